"""Convert the output of sequencing platforms to AnnData."""

from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.runtime.memory import parse_size
from spatialpdvi.runtime.progress import Progress, progress_of

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
    image: str | Path | None = None,
    tissue: str | Path | None = None,
    memory: str = DEFAULT_MEMORY,
    progress: Progress | bool | None = None,
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
    image
        For a GEF or GEM: a registered image of SAW (``SN_regist.tif``), of which a pixel is a DNB. It is written into
        ``uns['spatial']``, shrunk to about 2,000 and 600 pixels. The image of a folder of Space Ranger is always
        written.
    tissue
        What marks the spots on the tissue in ``obs['in_tissue']``; those off it stay. For a GEF or GEM the mask that
        SAW writes (``SN_tissue_cut.tif``): a square is on the tissue if at least half of its DNBs are, a cell if its
        centre is. For a folder of Space Ranger a column of its positions, ``in_tissue``: all spots are read then, from
        ``raw_feature_bc_matrix.h5``, and without it only those under tissue.
    memory
        Memory that sorting may use, such as "1GB". Data that need more are stored on the disk of the output meanwhile.
        Pieces of images and masks take a part of it; it is an error where they need more.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

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
    from spatialpdvi.io.storage.paths import locate

    return bin_to_file(
        locate(path, option="path").path,
        Path(output),
        bin_size=bin_size,
        cell_bin=cell_bin,
        image=None if image is None else Path(image),
        tissue=None if tissue is None else str(tissue),
        memory=parse_size(memory),
        progress=progress_of(progress),
    )
