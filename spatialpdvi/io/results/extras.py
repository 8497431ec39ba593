"""What a fit may have written besides its domains, read for pictures: each with a sentence where it is missing."""

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.section.coordinates import as_table

__all__ = ["read_flow", "read_graph", "read_number"]

_GRAPH = "The graph was not saved: fit again with --save-graph (save_graph=True)."


def read_number(source: Source, key: str, *, otherwise: str) -> np.ndarray:
    """``obs[key]``, a finite number for each spot, (n,) float64.

    Parameters
    ----------
    source
        The fitted section.
    key
        Column of ``obs``.
    otherwise
        What to do where it is not there, a sentence.
    """
    if key not in source.obs_keys():
        msg = f"Expected obs[{key!r}] in {source.name}, found no such column. {otherwise}"
        raise InputError(msg)
    column = source.obs(key)
    found = f"values of type {column.dtype}"
    types = pd.api.types
    if types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isfinite(values).all():
            return np.asarray(values)
        found = f"{(~np.isfinite(values)).sum():,} spots with NaN or infinity"
    raise not_ours(source, f"obs[{key!r}]", found)


def read_flow(source: Source, keys: Keys) -> np.ndarray:
    """Flow directions, (n, 2) or of a section in space (n, 3), float64."""
    if keys.flow not in source.obsm_keys():
        msg = f"Expected obsm[{keys.flow!r}] in {source.name}, found no such element. {_GRAPH}"
        raise InputError(msg)
    flow = np.asarray(as_table(source.obsm(keys.flow), f"obsm[{keys.flow!r}]"), dtype=np.float64)
    if flow.shape[1] not in {2, 3} or not np.isfinite(flow).all():
        found = f"{flow.shape[1]} columns" if flow.shape[1] not in {2, 3} else "NaN or infinity"
        raise not_ours(source, f"obsm[{keys.flow!r}]", found)
    return flow


def read_graph(source: Source, keys: Keys) -> sp.csr_matrix:
    """The edge weights (n, n) of the objective."""
    if keys.connectivities not in source.obsp_keys():
        msg = f"Expected obsp[{keys.connectivities!r}] in {source.name}, found no such element. {_GRAPH}"
        raise InputError(msg)
    graph: Any = source.obsp(keys.connectivities)
    name = f"obsp[{keys.connectivities!r}]"
    if not sp.issparse(graph):
        raise not_ours(source, name, f"a {type(graph).__name__}")
    graph = sp.csr_matrix(graph)
    if graph.shape != (source.n_obs, source.n_obs) or not np.isfinite(graph.data).all():
        raise not_ours(source, name, f"a matrix of shape {graph.shape}, or NaN or infinity in it")
    return graph


def not_ours(source: Source, name: str, found: str) -> InputError:
    """What is there is not what a fit writes."""
    msg = f"Expected {name} of {source.name} to hold what a fit has written, found {found}. "
    return InputError(msg + "Run `spatialpdvi fit` again, or name the --key-added of another fit.")
