"""Inputs that the user has computed: features to fit, and a graph of the spots."""

import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.matrices import as_csr
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.coordinates import as_table
from spatialpdvi.io.section.missing import misnamed

__all__ = ["name_features", "read_features", "read_graph"]

logger = logging.getLogger("spatialpdvi")


def read_features(source: Source, rep: str) -> np.ndarray | sp.csr_matrix:
    """Read the features ``obsm[rep]``, or the main matrix for ``X``.

    Values are exactly those of the file, in float32 where that can hold them and else in float64: the features are not
    written with the result, and must be found again in the file to the last digit.

    Parameters
    ----------
    source
        The section.
    rep
        A key of ``obsm``, or ``X``.

    Returns
    -------
    (n, d), dense or CSR, all finite.

    Raises
    ------
    InputError
        Where there are no such features, or some are not finite.
    """
    name = name_features(source, rep)
    features = _as_float(source.matrix("X") if name == "X" else source.obsm(rep), name)
    if not features.shape[1]:
        raise InputError(f"{name} to have at least one column", "none", f"Name another with {option('rep')}.")
    _check_finite(features, name, source.obs_names())
    return features


def name_features(source: Source, rep: str) -> str:
    """Return where the features called ``rep`` are: ``obsm['X_pca']``, or ``X``."""
    name = f"obsm[{rep!r}]" if rep in source.obsm_keys() else "X"
    if name == "X" and not (rep == "X" and source.has_matrix("X")):
        raise misnamed(source, "obsm", rep, "rep", also=["X"] * source.has_matrix("X"))
    return name


def read_graph(source: Source, key: str) -> sp.csr_matrix:
    """Read ``obsp[key]`` as a symmetric (n, n) float64 CSR without diagonal and without zeros.

    Raises
    ------
    InputError
        Where there is no such graph, or its weights are not finite or negative.
    """
    name = f"obsp[{key!r}]"
    if key not in source.obsp_keys():
        raise misnamed(source, "obsp", key, "graph")
    element = source.obsp(key)
    if not sp.issparse(element):
        element = as_table(element, name)
    _check_shape(element.shape, source.n_obs, name)
    graph = as_csr(element, name).astype(np.float64)  # a copy: that of the source must not change
    _check_weights(graph.data, name)
    graph = sp.csr_matrix(graph - sp.diags(graph.diagonal()))
    graph.eliminate_zeros()
    graph = _symmetric(graph, name)
    if not graph.nnz:
        text = (
            f"{name} has no edges, so the fit will not use the coordinates of the spots. Name another graph with "
            f"{option('graph')}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return graph


def _as_float(element: Any, name: str) -> np.ndarray | sp.csr_matrix:
    if not sp.issparse(element):
        table = as_table(element, name)
        return np.array(table, dtype=_float_type(table.dtype), order="C")
    csr = as_csr(element, name)
    csr = csr.astype(_float_type(csr.dtype))
    n_rows, n_columns = csr.shape
    # A value and its column take 8 bytes in CSR: if more than half of the values are stored, a dense array is smaller.
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
    raise InputError(
        f"{name} to hold finite numbers within the range of float32",
        f"{bad.sum():,} that are not (first: spot {spot_names[row]!r})",
        f"Repair them, or name another with {option('rep')}.",
    )


def _check_shape(shape: tuple[int, ...], n_spots: int, name: str) -> None:
    if shape == (n_spots, n_spots):
        return
    raise InputError(
        f"{name} to be {n_spots:,} x {n_spots:,} (spots x spots)",
        " x ".join(f"{size:,}" for size in shape),
        f"Name another graph with {option('graph')}.",
    )


def _check_weights(weights: np.ndarray, name: str) -> None:
    for bad, what in ((~np.isfinite(weights), "not finite"), (weights < 0, "negative")):
        if not bad.any():
            continue
        first = weights[np.argmax(bad)]
        raise InputError(
            f"{name} to hold finite weights, none negative",
            f"{bad.sum():,} {what} (first: {first:.6g})",
            f"Name a graph of connectivities with {option('graph')}.",
        )


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
