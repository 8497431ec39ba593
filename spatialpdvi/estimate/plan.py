"""What a fit of a file would do, from the metadata of the file; only the first few counts are read."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.errors import InputWarning, option
from spatialpdvi.estimate.cost_model import EPOCHS, SMOOTH, Work
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.matrices import INDEX_BYTES, Layout
from spatialpdvi.io.formats.streaming import BLOCK_VALUES
from spatialpdvi.io.section.counts import COPIES, find_counts
from spatialpdvi.io.section.features import name_features
from spatialpdvi.io.section.labels import read_initial, read_labels
from spatialpdvi.io.section.section import check_spots
from spatialpdvi.io.storage.folders import file_status
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.options.fit import KMEANS, FitOptions
from spatialpdvi.options.stages import StartSettings, are_tall, default_n_neighbors
from spatialpdvi.options.states import search_rounds, wanted_states
from spatialpdvi.runtime.memory import SPOT_BYTES, fit_bytes, memory_limit, show_size

__all__ = ["FitPlan", "plan_fit"]

_BLOCKS = 3  # of counts in memory: one is used, and up to two are read ahead


class FitPlan(NamedTuple):
    """What a fit of a file would do."""

    work: Work
    source: str  # where the counts or the features are
    layout: Layout  # how they are stored
    memory: int  # bytes that the fit may use
    needed: int  # bytes that are needed to read the counts as a whole
    assumed: tuple[str, ...]  # assumptions about what only the fit will find


def plan_fit(path: str | Path, options: FitOptions, *, markers: bool = False) -> FitPlan:
    """Find out the sizes of a file and of its fit.

    Parameters
    ----------
    path
        An h5ad file, or the folder of a zarr store.
    options
        Options of the fit.
    markers
        Whether the fit would search for marker genes.

    Raises
    ------
    InputError
        Where the file cannot be used, or something that the options name is not in it, as in the fit itself.
    """
    memory = memory_limit(options.memory)
    location = locate(path)
    with H5adSource(location) as source:
        check_spots(source)
        options.check_numbers(source.n_obs)
        labelled = read_labels(source, options.label_key)[0] is not None
        if options.init is not None and options.init != KMEANS:
            read_initial(source, options.init)
        assumed = []
        if options.smooth is None:
            assumed.append(f"smoothing over {SMOOTH} spots (the fit chooses 4 to 100)")
        epochs = min(EPOCHS[1], options.max_epochs)
        assumed.append(f"{epochs} epochs (most sections take {EPOCHS[0]} to {EPOCHS[2]})")
        common: dict[str, Any] = {
            "n": source.n_obs,
            "file_bytes": file_status(location.table())[0],
            "k": options.n_domains,
            "epochs": epochs,
            "smooth": options.smooth,
            "n_neighbors": options.n_neighbors or default_n_neighbors(),
            "given_start": options.init is not None,
            "search": search_rounds(options.search, source.n_obs),
            "labelled": labelled,
        }
        read = _plan_counts if options.rep is None else _plan_features
        where, layout, needed, sizes = read(source, options, memory)
        states = _states(options, source.n_obs, layout)
        common["flow_neighbors"] = 0 if states and not options.save_graph else options.flow_neighbors
        common["n_init"] = StartSettings.of(options, source.n_obs, searched=states > 0).n_init
        if states and options.states == "auto":
            assumed.append(f"{states} cell states that single spots tell apart (if not, the fit does not search)")
    work = Work(**common, **sizes, states=states, markers=markers and options.rep is None)
    if work.block_bytes and are_tall((work.n, work.kept_genes)) and not work.gene_wise:
        work = replace(work, holds_kept=fit_bytes(work.n, work.kept) <= memory)
    if options.restarts == "best":
        work = replace(work, starts=1 + work.restarts)
    return FitPlan(work, where, layout, memory, needed, tuple(assumed))


def _states(options: FitOptions, n_spots: int, layout: Layout) -> int:
    """Number of states that the fit learns; whether single spots tell them apart, only the fit itself can find.

    It learns none where what is fitted is sparse: genes themselves, or given columns.
    """
    is_sparse = options.n_pcs == 0 if options.rep is None else layout.storage != "dense"
    return 0 if is_sparse else wanted_states(options.states, n_spots, options.n_domains)


def _plan_features(source: H5adSource, options: FitOptions, _: int) -> tuple[str, Layout, int, dict[str, Any]]:
    """Return where the features are, how they are stored, their bytes, and their sizes for `Work`."""
    where = name_features(source, str(options.rep))
    layout = source.layout("X" if where == "X" else f"obsm/{options.rep}")
    return where, layout, layout.n_bytes, {"width": _width(layout, options), **_stored(layout)}


def _plan_counts(source: H5adSource, options: FitOptions, memory: int) -> tuple[str, Layout, int, dict[str, Any]]:
    """Return where the counts are, how they are stored, the memory that they need, and their sizes for `Work`."""
    where = find_counts(source, options.layer, memory=0).source
    layout = source.layout(where)
    values = _values(source, where, layout)
    needed = COPIES * layout.csr_bytes + SPOT_BYTES * source.n_obs
    sizes = _stored(layout)
    if layout.storage == "dense":
        sizes["counts_bytes"] = values * (layout.value_bytes + INDEX_BYTES)
    if needed > memory and not layout.by_rows:
        _warn_of_columns(where, needed)
    elif needed > memory:
        share = min(1.0, _BLOCKS * BLOCK_VALUES / max(1, layout.n_values))
        sizes["block_bytes"] = max(1, int(share * sizes["counts_bytes"]))
    genes = layout.shape[1]
    width = float(min(options.components_of(options.n_domains), genes))
    sizes |= {"genes": genes, "values": values, "kept_genes": min(options.n_top_genes, genes)}
    return where, layout, needed, sizes | {"width": width, "gene_wise": options.n_pcs == 0}


def _warn_of_columns(where: str, needed: int) -> None:
    msg = (
        f"The counts in {where} are stored by columns (CSC), so that the fit cannot read them block by block. The "
        f"estimate assumes that they are read as a whole, which needs {option('memory', show_size(needed))}. To need "
        "less memory, store them by rows (CSR)."
    )
    warnings.warn(msg, InputWarning, stacklevel=4)


def _stored(layout: Layout) -> dict[str, Any]:
    return {
        "counts_bytes": layout.n_bytes,
        "packed_bytes": layout.packed_bytes,
        # other formats than rows are converted, which needs a second copy
        "copies": 1 if layout.storage == "csr" else 2,
    }


def _width(layout: Layout, options: FitOptions) -> float:
    """Return the number of fitted columns; a key with "pca" in its name is taken to hold principal components."""
    columns = layout.shape[1]
    if options.n_pcs:
        return float(min(options.n_pcs, columns))
    if layout.storage != "dense":
        return layout.n_values / max(1, layout.shape[0])
    is_pca = "pca" in str(options.rep).lower()
    return float(min(options.components_of(options.n_domains), columns) if is_pca else columns)


def _values(source: H5adSource, where: str, layout: Layout) -> int:
    """Return the number of counts that are not 0; for a dense matrix it is estimated from its first rows."""
    if layout.storage != "dense":
        return layout.n_values
    first = source.first_values(where)
    return int(layout.n_values * (np.count_nonzero(first) / max(1, first.size)))
