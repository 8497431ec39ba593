"""Compiled loops over spots; everything here takes plain arrays and knows no AnnData, option or solver."""
