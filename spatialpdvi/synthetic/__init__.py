"""A simulated section with known domains: the organs of an embryo, in counts of molecules.

It is what tests, documentation and benchmarks share, and what a new user can try before their own
data are ready.
"""

import os
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError
from spatialpdvi.io.results.writing import write_store
from spatialpdvi.io.storage.atomic import check_writable, clear_errors, replacing
from spatialpdvi.io.storage.locks import claimed
from spatialpdvi.io.storage.paths import resolve
from spatialpdvi.synthetic.expression import draw_counts, draw_sources
from spatialpdvi.synthetic.tissue import draw_tissue, organ_names

__all__ = ["simulate", "write_simulation"]

_LARGEST_SEED = 2**32 - 1  # as of a fit


def simulate(
    *,
    n_spots: int = 20_000,
    n_genes: int = 8_000,
    k: int = 20,
    seed: int = 0,
    spacing: float = 25.0,
    depth: float | None = None,
    signal: float = 1.0,
) -> ad.AnnData:
    """Draw a section of an embryo with ``k`` organs; the bits depend on the arguments alone.

    Parameters
    ----------
    n_spots
        Number of spots, exactly; at least ``k``.
    n_genes
        Number of genes, at least 20.
    k
        Number of domains, at least 2; none is empty.
    seed
        Same seed, same section.
    spacing
        Distance between neighbouring spots; 25 is that of Stereo-seq's bin 50 in micrometres.
    depth
        Molecules per spot, on average; by default 2,300 at 8,000 genes, growing slowly with their
        number.
    signal
        Multiplies the log fold changes between organs: 1 is about as hard as an embryo, 0 leaves
        nothing to find.

    Returns
    -------
    AnnData
        Counts in ``X`` (CSR float32), ``obs["annotation"]``, ``obsm["spatial"]`` (float64, y
        pointing down) and the parameters in ``uns["simulation"]``.

    Examples
    --------
    >>> adata = spv.simulate(n_spots=400, n_genes=60, k=3)
    >>> adata.shape, adata.obs["annotation"].nunique()
    ((400, 60), 3)
    """
    _check_sizes(n_spots, n_genes, k)
    if seed < 0:
        msg = f"Expected a seed of 0 or more, found {seed}. Give --seed 0, for example."
        raise InputError(msg)
    if seed > _LARGEST_SEED:
        msg = f"Expected a seed of at most {_LARGEST_SEED:,}, found {seed:,}. Give --seed 0, for example."
        raise InputError(msg)
    depth = 2300.0 * (n_genes / 8000) ** 0.2 if depth is None else float(depth)
    _check_scales(spacing=spacing, depth=depth, signal=signal)
    rng = np.random.default_rng(seed)
    tissue = draw_tissue(n_spots, k, rng)
    sources = draw_sources(tissue, n_genes=n_genes, depth=depth, signal=signal, rng=rng)
    counts = draw_counts(tissue, sources, rng)
    annotation = pd.Categorical.from_codes(tissue.organ, categories=organ_names(k))
    names = [f"{column}_{row}-0" for column, row in tissue.bins]
    adata = ad.AnnData(
        counts,
        obs=pd.DataFrame({"annotation": annotation}, index=names),
        var=pd.DataFrame(index=[f"gene{gene:05d}" for gene in range(1, n_genes + 1)]),
    )
    adata.obsm["spatial"] = tissue.bins * float(spacing)
    adata.uns["simulation"] = {
        "n_spots": n_spots,
        "n_genes": n_genes,
        "k": k,
        "seed": seed,
        "spacing": float(spacing),
        "depth": depth,
        "signal": float(signal),
    }
    return adata


def write_simulation(path: str | os.PathLike[str], adata: ad.AnnData) -> None:
    """Write a section as a compressed h5ad: the whole file appears under its name, or nothing does.

    Parameters
    ----------
    path
        File to write, or zarr store where it ends in .zarr; its folder must exist. What is there is replaced.
    adata
        What `simulate` returned.
    """
    target = resolve(Path(path), option=None)
    if not target.parent.is_dir():
        msg = (
            f"Expected a folder that exists for the simulated section, found '{target.parent}'. "
            "Make the folder first, or choose another one."
        )
        raise InputError(msg)
    if target.suffix == ".zarr":
        check_writable(target, None, as_store=True)
        with claimed(target):
            write_store(target, adata)
        return
    with claimed(target), clear_errors(target, option=None), replacing(target, like=target.parent) as unfinished:
        adata.write_h5ad(unfinished, compression="gzip")


def _check_sizes(n_spots: int, n_genes: int, k: int) -> None:
    if k < 2:
        msg = f"Expected at least 2 domains, found {k}. Give --k 2 or more."
        raise InputError(msg)
    if n_spots < k:
        msg = (
            f"Expected at least one spot per domain, found {n_spots} spots for {k} domains. "
            "Raise --n-spots or lower --k."
        )
        raise InputError(msg)
    if n_genes < 20:
        msg = f"Expected at least 20 genes, found {n_genes}. Give --n-genes 20 or more."
        raise InputError(msg)


def _check_scales(*, spacing: float, depth: float, signal: float) -> None:
    for name, value in (("spacing", spacing), ("depth", depth)):
        if not (np.isfinite(value) and value > 0):
            msg = f"Expected a positive {name}, found {value}. Give a number above 0."
            raise InputError(msg)
    if not (np.isfinite(signal) and signal >= 0):
        msg = f"Expected a signal of 0 or more, found {signal}. Give 1, the usual contrast."
        raise InputError(msg)
