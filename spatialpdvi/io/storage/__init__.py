"""Files and folders on disk: atomic replacement, locks, paths, HDF5 and zarr elements."""
