"""AnnData as h5ad, zarr or in memory, read element by element, without checks of what the elements mean."""
