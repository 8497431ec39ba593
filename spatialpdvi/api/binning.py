"""Convert the output of sequencing platforms to AnnData."""

from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.runtime.memory import parse_size
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from spatialpdvi.binning import Written

__all__ = ["DEFAULT_MEMORY", "bin_file"]

DEFAULT_MEMORY = "1GB"  # more memory makes sorting hardly faster


def bin_file(
    path: str | Path,
    output: str | Path,
    *,
    bin_size: int | None = None,
    cell_bin: bool = False,
    memory: str = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> "Written":
    """Convert a GEF or GEM of Stereo-seq, or a folder of 10x Space Ranger, to AnnData.

    Parameters
    ----------
    path
        A square-bin or cell-bin GEF (HDF5), a GEM (text, which may be compressed by gzip), or the folder ``outs`` of
        Space Ranger (Visium or Visium HD).
    output
        The h5ad file to write, or a zarr store if it ends in .zarr. It is replaced as a whole or not at all.
    bin_size
        Side of the square bins, in DNBs (default 50), or in micrometres for Visium HD (default 8).
    cell_bin
        Whether to use cells as spots: those of a cell-bin GEF, or of the column CellID of a GEM.
    memory
        Memory that sorting may use, such as "1GB". Data that need more are stored on the disk of the output meanwhile.
    progress
        Shows the stages; by default nothing is shown.

    Returns
    -------
    The numbers of spots, genes and stored values.

    Raises
    ------
    InputError
        Where the input is of another kind, damaged or empty, or the output cannot be written.

    Examples
    --------
    >>> written = spv.bin_file("sample.gem", "sample.h5ad", bin_size=50)
    >>> written.n_spots == anndata.read_h5ad("sample.h5ad").n_obs
    True
    """
    from spatialpdvi.binning import bin_to_file

    return bin_to_file(
        Path(path),
        Path(output),
        bin_size=bin_size,
        cell_bin=cell_bin,
        memory=parse_size(memory),
        progress=progress or Progress(),
    )
