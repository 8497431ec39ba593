"""Python's way in to what sequencers put out: a file or folder of theirs to an AnnData that can be fitted."""

from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.runtime.memory import parse_size
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from spatialpdvi.binning import Written

__all__ = ["DEFAULT_MEMORY", "bin_file"]

DEFAULT_MEMORY = "1GB"  # more is hardly faster: runs that are too many wait on the disk


def bin_file(
    path: str | Path,
    output: str | Path,
    *,
    bin_size: int | None = None,
    cell_bin: bool = False,
    memory: str = DEFAULT_MEMORY,
    progress: Progress | None = None,
) -> "Written":
    """Make an AnnData of a GEF or GEM of Stereo-seq, or of a folder of 10x Space Ranger; what ``spatialpdvi bin`` does.

    Parameters
    ----------
    path
        A square-bin or cell-bin GEF (HDF5), a GEM (text, also compressed by gzip), or the folder ``outs`` of Space
        Ranger (Visium, Visium HD).
    output
        An h5ad, or a zarr store where it ends in .zarr; replaced as a whole or not at all.
    bin_size
        Side of the squares, in DNBs; 50 by default. Of Visium HD in micrometres, 8 by default.
    cell_bin
        Take the cells of a cell-bin GEF, or those that the column CellID of a GEM names, instead of squares.
    memory
        What sorting may take ("1GB"); more is kept on the disk of the output meanwhile.
    progress
        Shown stages; none by default.

    Returns
    -------
    Numbers of spots, genes and stored values.

    Raises
    ------
    InputError
        Where the input is none of these, damaged or empty, or the output cannot be written.

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
        memory=parse_size(memory, "--memory"),
        progress=progress or Progress(),
    )
