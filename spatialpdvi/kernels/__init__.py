"""Compiled loops over spots and edges. They take plain arrays and must not know AnnData, options or solvers."""
