"""Ready-made inputs of the model: features to fit, and a graph of the spots."""

import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, list_keys
from spatialpdvi.io.formats.matrices import as_csr
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.coordinates import as_table

__all__ = ["name_features", "read_features", "read_graph"]

logger = logging.getLogger("spatialpdvi")


def read_features(source: Source, rep: str) -> np.ndarray | sp.csr_matrix:
    """``obsm[rep]``, or the main matrix for ``X``, as floats (n, d), dense or CSR, all finite.

    Values are kept as they are stored, in float32 where that holds them exactly and else in float64: what is not
    written beside the result must be found again in the file, to the last digit.
    """
    name = name_features(source, rep)
    features = _as_float(source.matrix("X") if name == "X" else source.obsm(rep), name)
    if not features.shape[1]:
        msg = f"Expected {name} to have at least one column, found none. Name another with --rep."
        raise InputError(msg)
    _check_finite(features, name, source.obs_names())
    return features


def name_features(source: Source, rep: str) -> str:
    """Where the features that ``--rep`` names are: ``obsm['X_pca']``, or ``X``."""
    name = f"obsm[{rep!r}]" if rep in source.obsm_keys() else "X"
    if name == "X" and not (rep == "X" and source.has_matrix("X")):
        keys = source.obsm_keys() + ["X"] * source.has_matrix("X")
        msg = f"Expected obsm[{rep!r}] in {source.name}, found keys: {list_keys(keys)}. Name one of these with --rep."
        raise InputError(msg)
    return name


def read_graph(source: Source, key: str) -> sp.csr_matrix:
    """``obsp[key]`` as a symmetric (n, n) float64 CSR without diagonal and without zeros."""
    name = f"obsp[{key!r}]"
    if key not in source.obsp_keys():
        msg = (
            f"Expected {name} in {source.name}, found keys: {list_keys(source.obsp_keys())}. "
            "Name one of these with --graph."
        )
        raise InputError(msg)
    element = source.obsp(key)
    if not sp.issparse(element):
        element = as_table(element, name)
    _check_shape(element.shape, source.n_obs, name)
    graph = as_csr(element, name).astype(np.float64)  # a copy: the source's own stays as it is
    _check_weights(graph.data, name)
    graph = sp.csr_matrix(graph - sp.diags(graph.diagonal()))
    graph.eliminate_zeros()
    graph = _symmetric(graph, name)
    if not graph.nnz:
        msg = (
            f"Expected {name} to connect spots, found no edge. The fit will not use their places; "
            "name another graph with --graph."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return graph


def _as_float(element: Any, name: str) -> np.ndarray | sp.csr_matrix:
    if not sp.issparse(element):
        table = as_table(element, name)
        return np.array(table, dtype=_float_type(table.dtype), order="C")
    csr = as_csr(element, name)
    csr = csr.astype(_float_type(csr.dtype))
    n_rows, n_columns = csr.shape
    # A value and its column take 8 bytes in CSR: past half full, a dense array is smaller.
    return csr.toarray() if 2 * csr.nnz > n_rows * n_columns else csr


def _float_type(stored: np.dtype[Any]) -> type[np.floating[Any]]:
    return np.float32 if np.can_cast(stored, np.float32, "safe") else np.float64


def _check_finite(features: np.ndarray | sp.csr_matrix, name: str, spot_names: pd.Index) -> None:
    values = features if isinstance(features, np.ndarray) else features.data
    # squares of larger values would overflow; comparisons with NaN are false
    bad = ~(np.abs(values) <= np.finfo(np.float32).max)
    if not bad.any():
        return
    first = int(bad.ravel().argmax())
    if isinstance(features, np.ndarray):
        row = first // features.shape[1]
    else:
        row = int(np.searchsorted(features.indptr, first, side="right")) - 1
    msg = (
        f"Expected {name} to hold finite numbers within the range of float32, found {bad.sum():,} "
        f"that are not (first: spot {spot_names[row]!r}). Repair them, or name another with --rep."
    )
    raise InputError(msg)


def _check_shape(shape: tuple[int, ...], n_spots: int, name: str) -> None:
    if shape == (n_spots, n_spots):
        return
    msg = (
        f"Expected {name} to be {n_spots:,} x {n_spots:,} (spots x spots), "
        f"found {' x '.join(f'{size:,}' for size in shape)}. Name another graph with --graph."
    )
    raise InputError(msg)


def _check_weights(weights: np.ndarray, name: str) -> None:
    for bad, what in ((~np.isfinite(weights), "not finite"), (weights < 0, "negative")):
        if not bad.any():
            continue
        first = weights[np.argmax(bad)]
        msg = (
            f"Expected {name} to hold finite weights, none negative, found {bad.sum():,} "
            f"{what} (first: {first:.6g}). Name a graph of connectivities with --graph."
        )
        raise InputError(msg)


def _symmetric(graph: sp.csr_matrix, name: str) -> sp.csr_matrix:
    transposed = graph.T.tocsr()
    n_different = (graph != transposed).nnz
    if not n_different:
        return graph
    logger.info("%s is not symmetric (%d entries differ): (A + A^T) / 2 is used.", name, n_different)
    averaged = sp.csr_matrix((graph + transposed) * 0.5)
    averaged.eliminate_zeros()
    averaged.sort_indices()
    return averaged
