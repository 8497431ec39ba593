"""A simulated section with known domains, the organs of an embryo, as counts of molecules in memory or in a file."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import numpy as np
import pandas as pd
from anndata.io import write_elem
from numpy.typing import NDArray

from spatialpdvi.io.results.writing import append_counts, new_store
from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.locks import claimed
from spatialpdvi.io.storage.outputs import check_ending, check_writable
from spatialpdvi.io.storage.paths import Location, locate, resolve
from spatialpdvi.runtime.progress import Progress, Stage, progress_of
from spatialpdvi.runtime.rows import slices
from spatialpdvi.synthetic.cells import Cells, draw_cells, draw_compositions, one_state_each
from spatialpdvi.synthetic.expression import Sources, draw_blocks, draw_counts, draw_sources
from spatialpdvi.synthetic.options import Simulation
from spatialpdvi.synthetic.tissue import Tissue, draw_tissue

__all__ = ["draw_section", "simulate", "simulate_file"]

_BURST_BYTES = 3  # in a file, compressed: generous
_BLOCK = 1 << 17  # spots that are named at a time


class _Drawn(NamedTuple):
    """A section before its counts are drawn."""

    frame: ad.AnnData  # all but X
    sources: Sources
    rng: np.random.Generator
    tissue: Tissue
    cells: Cells
    composition: NDArray[np.float64] | None  # (k, n_states); None where every domain has a state of its own


def simulate(
    *,
    n_spots: int = Simulation.n_spots,
    n_genes: int = Simulation.n_genes,
    k: int = Simulation.k,
    seed: int = Simulation.seed,
    spacing: float = Simulation.spacing,
    depth: float | None = Simulation.depth,
    signal: float = Simulation.signal,
    easy: bool = Simulation.easy,
    background: int = Simulation.background,
) -> ad.AnnData:
    """Simulate a section of an embryo with ``k`` domains; equal arguments give equal bits.

    Domains share cell states and differ in their proportions, as those of real tissue do: a spot has one to four cells,
    and a tenth of its molecules come from the spots around it. One in three pairs of touching domains differs in
    proportions alone. There are organs, a thin skin, and thin layers inside the two largest organs.

    Parameters
    ----------
    n_spots
        Number of spots; at least ``k``.
    n_genes
        Number of genes; at least 20.
    k
        Number of domains, at least 2; every domain has spots.
    seed
        Seed of the random numbers, from 0 to 2^32 - 1.
    spacing
        Distance between neighbouring spots, > 0; 25 is the distance of Stereo-seq's bin 50 in micrometres.
    depth
        Mean number of molecules per spot, > 0; by default 2,300 for 8,000 genes, growing slowly with the number of
        genes.
    signal
        Factor of the log fold changes between cell states, >= 0. With 1, domains are about as hard to find as in a real
        embryo; with 0, they do not differ.
    easy
        Give every domain a state of its own, leave out skin and layers, and let all molecules stay where they are. Such
        domains are far easier to find than those of real tissue.
    background
        Number of additional spots off the tissue, around it. They have 1 to 14 bursts of molecules each, with the
        expression that all of the body has in common, and no annotation.

    Returns
    -------
    AnnData
        Counts in ``X`` (CSR float32), domains in ``obs["annotation"]``, coordinates in ``obsm["spatial"]`` (float64,
        the y axis points down) and the parameters in ``uns["simulation"]``. Unless the section is easy,
        ``uns["simulation"]["composition"]`` has the share of each state in each domain, (k, number of states). With
        ``background``, ``obs["in_tissue"]`` is 1 for spots of the tissue and 0 for others.

    Raises
    ------
    InputError
        If an argument is out of its range.

    Examples
    --------
    >>> adata = spv.simulate(n_spots=400, n_genes=60, k=3)
    >>> adata.shape, adata.obs["annotation"].nunique()
    ((400, 60), 3)
    """
    options = Simulation(
        n_spots=n_spots,
        n_genes=n_genes,
        k=k,
        seed=seed,
        spacing=spacing,
        depth=depth,
        signal=signal,
        easy=easy,
        background=background,
    )
    drawn = draw_section(options)
    drawn.frame.X = draw_counts(drawn.sources, drawn.rng)
    return drawn.frame


def simulate_file(
    path: str | os.PathLike[str], *, progress: Progress | bool | None = None, **arguments: Any
) -> tuple[int, int]:
    """Simulate a section and write it block by block, completely or not at all; its counts are never in memory at once.

    Parameters
    ----------
    path
        An h5ad file that ends in .h5ad, or a zarr store in .zarr. Its folder must exist; an existing file is replaced.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.
    arguments
        Those of `simulate`.

    Returns
    -------
    Numbers of spots and of stored counts.

    Raises
    ------
    InputError
        If an argument is out of its range, the path has another ending, the folder does not exist or the file cannot
        be written.
    """
    target, progress = locate(Path(path)), progress_of(progress)
    resolve(target, option=None)  # raises where nothing can be written
    check_writable(target, None, as_store=target.path.suffix == ".zarr")
    check_ending(target, None)
    with claimed(target):
        with progress.stage("simulate") as stage:
            drawn = draw_section(Simulation(**arguments))
            stage.note(f"{drawn.frame.n_obs:,} spots")
        with progress.stage("write") as stage, clear_errors(target, option=None):
            n_written = _write(target, drawn, stage)
    return drawn.frame.n_obs, n_written


def _write(target: Location, drawn: _Drawn, stage: Stage) -> int:
    """Write a section, and return its number of counts."""
    n_bursts, n_written = int(drawn.sources.total.sum()), 0  # a burst is at most one count
    with new_store(target, n_spots=drawn.frame.n_obs, n_values=n_bursts, value_bytes=_BURST_BYTES) as store:
        write_elem(store, "/", drawn.frame)
        if "X" in store:  # newer versions of anndata store that there is none
            del store["X"]
        for block in draw_blocks(drawn.sources, drawn.rng):
            append_counts(store, block, n_values=n_bursts)
            n_written += block.nnz
            stage.note(f"{n_written:,} counts")
    return n_written


def draw_section(options: Simulation) -> _Drawn:
    """Draw a section but for its counts."""
    n_genes, n_background = options.n_genes, options.background
    rng = np.random.default_rng(options.seed)
    tissue = draw_tissue(options.n_spots, options.k, rng, layered=not options.easy, n_background=n_background)
    composition = None if options.easy else draw_compositions(tissue, rng)
    cells = one_state_each(tissue) if composition is None else draw_cells(tissue, composition, rng)
    depth, signal = options.mean_depth, options.signal
    sources = draw_sources(tissue, cells, n_genes=n_genes, depth=depth, signal=signal, rng=rng)
    codes = np.concatenate([tissue.domain, np.full(n_background, -1)])
    annotation = pd.Categorical.from_codes(codes, categories=tissue.names)
    names = [
        f"{column}_{row}-0" for rows in slices(len(tissue.bins), _BLOCK) for column, row in tissue.bins[rows].tolist()
    ]
    adata = ad.AnnData(
        obs=pd.DataFrame({"annotation": annotation}, index=names),
        var=pd.DataFrame(index=[f"gene{gene:05d}" for gene in range(1, n_genes + 1)]),
    )
    if n_background:
        adata.obs["in_tissue"] = (codes >= 0).astype(np.int64)
    adata.obsm["spatial"] = tissue.bins * float(options.spacing)
    adata.uns["simulation"] = options.facts()
    if composition is not None:
        adata.uns["simulation"]["composition"] = composition
    return _Drawn(adata, sources, rng, tissue, cells, composition)
