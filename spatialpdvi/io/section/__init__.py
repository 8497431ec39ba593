"""One section of tissue, read and checked."""
