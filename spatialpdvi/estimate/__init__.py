"""How long a fit will take, and how much memory, before anything is read."""
