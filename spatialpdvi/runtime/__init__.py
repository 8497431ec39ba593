"""What every part of a run shares: memory, threads, progress, and blocks of rows."""
