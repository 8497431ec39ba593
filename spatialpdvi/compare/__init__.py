"""Every solver on one objective from one start per seed: runs that are kept, a table, two pictures."""
