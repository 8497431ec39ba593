"""Principal components of sparse features, centred without being made dense."""

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.features.scaling import column_mean_sd, is_constant
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Components", "principal_components"]


class Components(NamedTuple):
    """Leading principal components."""

    scores: np.ndarray  # (n, p) float32
    loadings: np.ndarray  # (p, d) float64, rows of unit length
    mean: np.ndarray  # (d,) float64 of the features


def principal_components(scaled: np.ndarray | sp.csr_matrix, n_pcs: int, *, seed: int) -> Components:
    """Leading components of features (n, d), centred implicitly: a sparse matrix stays sparse.

    p is ``n_pcs``, or one less than the smaller side of the matrix. Each component's sign is fixed.
    """
    import scanpy as sc

    p = min(n_pcs, min(scaled.shape) - 1)
    if p < 1:
        msg = (
            f"Expected at least 2 spots and 2 features that vary for a PCA, found {scaled.shape[0]} and "
            f"{scaled.shape[1]}. Check --layer, or give features with --rep."
        )
        raise InputError(msg)
    if is_constant(scaled).all():
        msg = "Expected features that vary between spots, found only constant ones. Check --layer or --rep."
        raise InputError(msg)
    with single_threaded():
        scores, loadings, *_ = sc.pp.pca(scaled, n_comps=p, svd_solver="arpack", random_state=seed, return_info=True)
    # the mean of a sparse matrix by SciPy is that of a copy, in its own float32
    mean = scaled.mean(axis=0, dtype=np.float64) if isinstance(scaled, np.ndarray) else column_mean_sd(scaled)[0]
    return Components(np.asarray(scores, dtype=np.float32), np.asarray(loadings, dtype=np.float64), mean)
