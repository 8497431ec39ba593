"""Sort the molecules of a sequencing run into squares or cells, and write them as an AnnData."""

from spatialpdvi.binning.files import DEFAULT_BIN, bin_to_file
from spatialpdvi.binning.store import Written

__all__ = ["DEFAULT_BIN", "Written", "bin_to_file"]
