"""AnnData files in, results out: no other package reads or writes these files."""
