r"""Linear response: how the posteriors of all spots move together (Giordano, Broderick and Jordan 2018).

Mean field takes spots as independent. A perturbation ``a`` of the log posteriors moves them by ``delta``, which follows
from the fixed point (E3): with V_i = diag phi_i - phi_i phi_i', the edge weights R and the coupling A to the domains'
means, whose curvature is L = e^-rho,

    delta = V (R delta + A L^-1 A' delta + a)                                                          (U4)

and the covariance of two functionals with slopes a and b is b' delta. V is B B' with B_i = D^1/2 (I - p p'), p the
square roots of phi_i and D = diag phi_i, so that delta = B u and (I - B' (R + A L^-1 A') B) u = B' a. This matrix is
positive definite at a local minimum of F, and conjugate gradients solve it for all slopes at once.
"""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputWarning, option

__all__ = ["Coupling", "response_covariance"]

_MOST_STEPS = 500
_TOLERANCE = 1e-6  # of the residual, relative to the right-hand side
_AT_A_TIME = 1 << 25  # numbers of one array of unknowns


class Coupling(NamedTuple):
    """What joins the posteriors to the means of the domains, q(c_kf) = N(m_kf, e^rho_kf)."""

    features: np.ndarray  # x (n, d)
    mean: np.ndarray  # m (K, d)
    log_variance: np.ndarray  # rho (K, d)
    noise_precision: np.ndarray  # 1 / sigma0^2 (d,)

    def apply(self, moved: np.ndarray) -> np.ndarray:
        """Return ``A L^-1 A' moved`` for posteriors (n, K, q) that moved."""
        found = np.empty_like(moved)
        for k in range(moved.shape[1]):
            slope = (self.features - self.mean[k]) * self.noise_precision
            found[:, k] = slope @ (np.exp(self.log_variance[k])[:, None] * (slope.T @ moved[:, k]))
        return found


def response_covariance(
    phi: np.ndarray, graph: sp.csr_matrix, slope: np.ndarray, coupling: Coupling | None
) -> np.ndarray:
    """Return the covariance (K, K, g) that the posteriors give to functionals of which each depends on one domain.

    Parameters
    ----------
    phi
        (n, K), at a fixed point.
    graph
        R (n, n), symmetric.
    slope
        (n, K, g): the derivative of functional g of domain k with respect to phi_ik.
    coupling
        To the domains' means; None to hold them.
    """
    n, k, g = slope.shape
    root = np.sqrt(phi)
    found = np.empty((k, k, g))
    step = max(1, _AT_A_TIME // max(1, n * k * k))
    for first in range(0, g, step):
        own = slope[:, :, first : first + step]
        q = own.shape[2]
        # one right-hand side for each domain and quantity, which is not 0 in the column of its domain alone
        right = np.zeros((n, k, k * q))
        for domain in range(k):
            right[:, domain, domain * q : (domain + 1) * q] = own[:, domain]
        moved = _solve(root, graph, right, coupling).reshape(n, k, k, q)
        found[:, :, first : first + step] = np.einsum("ikq,iklq->klq", own, moved)
    return 0.5 * (found + found.transpose(1, 0, 2))


def _solve(root: np.ndarray, graph: sp.csr_matrix, right: np.ndarray, coupling: Coupling | None) -> np.ndarray:
    """Delta (n, K, q) of (U4) for the perturbations ``right`` (n, K, q), by conjugate gradients."""

    def forth(values: np.ndarray) -> np.ndarray:  # B
        return root[:, :, None] * _centred(values, root)

    def back(values: np.ndarray) -> np.ndarray:  # B'
        return _centred(root[:, :, None] * values, root)

    def apply(u: np.ndarray) -> np.ndarray:
        moved = forth(u)
        pulled = np.asarray(graph @ moved.reshape(moved.shape[0], -1)).reshape(moved.shape)
        if coupling is not None:
            pulled += coupling.apply(moved)
        return u - back(pulled)

    residual = back(right)
    start = (residual**2).sum(axis=(0, 1))
    u, direction, square = np.zeros_like(residual), residual.copy(), start.copy()
    for _ in range(_MOST_STEPS):
        active = square > _TOLERANCE**2 * start
        if not active.any():
            break
        applied = apply(direction)
        curvature = (direction * applied).sum(axis=(0, 1))
        # a negative curvature means that phi is no minimum in this direction: it stays where it is
        length = np.where(active & (curvature > 0), square / np.where(curvature > 0, curvature, 1.0), 0.0)
        u += length * direction
        residual -= length * applied
        new = np.where(length > 0, (residual**2).sum(axis=(0, 1)), 0.0)
        direction = residual + np.where(square > 0, new / np.where(square > 0, square, 1.0), 0.0) * direction
        square = new
    if (square > _TOLERANCE**2 * start).any():
        text = (
            f"The response of the posteriors was not found within {_MOST_STEPS} steps, so that some intervals may be "
            f"too narrow. Try {option('method', 'blocks')}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return forth(u)


def _centred(values: np.ndarray, root: np.ndarray) -> np.ndarray:
    """``(I - p p') values`` for every spot, p the square roots of its posterior."""
    return np.asarray(values - root[:, :, None] * (root[:, :, None] * values).sum(axis=1, keepdims=True))
