"""Write the result of a fit or a prediction into a file without counts."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import Location
from spatialpdvi.runtime.memory import memory_limit
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from pandas import DataFrame

    from spatialpdvi.io.formats.h5ad import H5adSource

__all__ = ["write_result"]


def write_result(
    path: Location,
    target: Location,
    elements: Mapping[tuple[str, str], Any],
    keys: Keys,
    *,
    remove: Sequence[tuple[str, str]],
    spots: bytes,
    slim: bool,
    memory: str | None,
    markers: "DataFrame | None" = None,
    progress: Progress,
) -> None:
    """Write the elements of a result beside what the section holds, or only what later commands need of that.

    A slim file has no counts, so it gets the marker genes too, ten of each domain.

    Parameters
    ----------
    path, target
        The section, and the file or store to write.
    elements
        Values by (group, key).
    keys
        Their names.
    remove
        What an earlier fit has written.
    spots
        The `H5adSource.digest` of the section when it was read.
    slim
        Whether to leave the counts out.
    memory
        Memory that counts may use which are stored by columns; those by rows are read block by block.
    markers
        The marker genes of the domains of this file, where they are known.
    progress
        Shows the stage.
    """
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.slim import slim_pairs
    from spatialpdvi.io.results.summary import stored_params
    from spatialpdvi.io.results.writing import marker_columns, write_elements
    from spatialpdvi.io.section.counts import COUNTS_IN, FITTED_IN, slim_from

    summary, written = elements["uns", keys.uns], dict(elements)
    pairs = None  # all that the section holds
    with H5adSource(path) as source:
        origin = slim_from(source)
        if slim:
            rep = None if ("obsm", keys.features) in elements else stored_params(summary).get("rep")
            pairs = slim_pairs(source, keys, rep=rep)
            if markers is None:
                with progress.stage("markers"):
                    markers = _markers(source, elements, keys, memory)
            if markers is not None:
                written |= marker_columns(markers, keys, "domain")
    if origin is not None:  # a fit of features that a file without counts has
        written["uns", keys.uns] = summary | {COUNTS_IN: origin, FITTED_IN: path.name}
    elif slim:
        written["uns", keys.uns] = summary | {COUNTS_IN: path.name}
    with progress.stage("write"):
        write_elements(path, target, written, remove=remove, only=pairs, spots=spots)


def _markers(
    source: "H5adSource", elements: Mapping[tuple[str, str], Any], keys: Keys, memory: str | None
) -> "DataFrame | None":
    """Find the marker genes that `markers` finds in the whole file; None where there are no counts.

    A result is not lost where its counts cannot be read: a warning says why.
    """
    import numpy as np

    from spatialpdvi.io.formats.sources import select_spots
    from spatialpdvi.io.results.expression import layer_of_the_fit, memory_after_fit
    from spatialpdvi.io.section.counts import read_counts
    from spatialpdvi.marker_genes import rank_markers

    domains, summary = elements["obs", keys.domain], elements["uns", keys.uns]
    spots = np.flatnonzero(domains.codes >= 0)
    fitted = select_spots(source, spots) if spots.size < source.n_obs else source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the fit has given the same warnings of these counts
        try:
            most = memory_after_fit(fitted, summary, memory_limit(memory))
        except InputError:  # a fit of features in a file without counts
            return None
        try:
            counts = read_counts(fitted, layer_of_the_fit(source, summary), memory=most)
            names = np.asarray(counts.gene_names, dtype=object)
            return rank_markers(counts.matrix, names, domains[spots].remove_unused_categories())
        except InputError as error:
            problem = error.sentence(option)
    warnings.warn(InputWarning(f"The result is stored without marker genes. {problem}"), stacklevel=5)
    return None
