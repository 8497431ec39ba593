"""Output of sequencers to an AnnData: molecules sorted into squares or cells. Knows neither models nor fits."""

from spatialpdvi.binning.files import DEFAULT_BIN, bin_to_file
from spatialpdvi.binning.store import Written

__all__ = ["DEFAULT_BIN", "Written", "bin_to_file"]
