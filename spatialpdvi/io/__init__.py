"""AnnData files in, results out: the only rooms that know HDF5 and AnnData's layout."""
