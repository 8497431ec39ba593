"""What comes before a fit: ``spatialpdvi.pp.bin`` reads the output of a sequencing platform as an AnnData."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from spatialpdvi import api
from spatialpdvi.api.binning import DEFAULT_MEMORY
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["bin"]


def bin(  # noqa: A001 - the command has this name
    path: str | Path,
    *,
    bin_size: int | None = None,
    cell_bin: bool = False,
    image: str | Path | None = None,
    tissue: str | Path | None = None,
    memory: str = DEFAULT_MEMORY,
    progress: Progress | bool | None = None,
) -> "AnnData":
    """Read a GEF or GEM of Stereo-seq, or a folder of 10x Space Ranger, with its molecules sorted into spots.

    Parameters
    ----------
    path
        A square-bin or cell-bin GEF (HDF5), a GEM (text, which may be compressed by gzip), or the folder ``outs`` of
        Space Ranger (Visium or Visium HD).
    bin_size
        Side of the square bins, in DNBs (default 50), or in micrometres for Visium HD (default 8).
    cell_bin
        Whether to use cells as spots: those of a cell-bin GEF, or of the column CellID of a GEM.
    image, tissue
        A registered image, and what marks the spots on the tissue, as for `spatialpdvi.bin_file`.
    memory
        Memory that sorting may use, such as "1GB". Data that need more are stored in the folder of temporary files.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    The section, with counts in X and coordinates in ``obsm['spatial']``. `spatialpdvi.bin_file` writes one that is too
    large for memory.

    Raises
    ------
    InputError
        Where the input is of another kind, damaged or empty.

    Examples
    --------
    >>> binned = spv.pp.bin("sample.gem", bin_size=50)
    >>> binned.obsm["spatial"].shape == (binned.n_obs, 2)
    True
    """
    import anndata

    with TemporaryDirectory() as folder:
        written = Path(folder) / "sample.h5ad"
        api.bin_file(
            path,
            written,
            bin_size=bin_size,
            cell_bin=cell_bin,
            image=image,
            tissue=tissue,
            memory=memory,
            progress=progress,
        )
        return anndata.read_h5ad(written)
