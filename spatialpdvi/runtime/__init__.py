"""What all stages of a run use: memory, threads, progress, and matrices that are read in blocks of rows."""
