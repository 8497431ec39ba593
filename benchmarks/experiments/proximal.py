r"""Gaussian process classification for `gaussian_process.py`, with the step of PG-SVI where nothing is conjugate.

The model is z ~ N(0, Sigma) and p(y_n | z_n) = 1 / (1 + exp(-y_n z_n)), y_n = -1 or 1. q(z) = N(m, V), and the negative
evidence lower bound is F = f + h with f(m, V) = -sum_n E_q log p(y_n | z_n) and h(m, V) = KL(q || p). A step of PG-SVI
(equation (17) of Khan, Babanezhad, Lin, Schmidt and Sugiyama 2016) replaces f by its linearisation at (m_k, V_k) and
stays near q_k in KL. With alpha_n = df/dm_n and gamma_n = 2 df/dV_nn, it minimises over m and V

    alpha^T m + 1/2 sum_n gamma_n V_nn + KL(q || p) + KL(q || q_k) / beta

This is strictly convex. Its derivatives in m and in V vanish where

    alpha + Sigma^-1 m + V_k^-1 (m - m_k) / beta = 0
    1/2 [diag(gamma) + Sigma^-1 - V^-1 + (V_k^-1 - V^-1) / beta] = 0

and with r = 1 / (1 + beta), so that (1 - r) / beta = r, multiplying both by 1 - r gives

    V^-1 <- r V_k^-1 + (1 - r) (Sigma^-1 + diag(gamma))
    m    <- [(1 - r) Sigma^-1 + r V_k^-1]^-1 [r V_k^-1 m_k - (1 - r) alpha]

From V_0 = Sigma on, V_k^-1 is always Sigma^-1 + W, W = diag(w_k), and w <- r w + (1 - r) gamma. With m = Sigma a the
second line becomes (I + r W Sigma) (a - a_k) = (1 - r) (-alpha - a_k). `ProximalProblem` has q in these (a, w), so that
Sigma is never inverted. The linearised F alone is least at a* = -alpha, w* = gamma, which is its `global_optimum`, and
the step is its `blend`: the shipped solver `PGSVI` runs as it is.

The authors' program (infKL_sprox.m of emtiyaz/prox-grad-svi) has the new W where the second line has r W. That is the
natural-gradient step, V^-1 m <- r V_k^-1 m_k + (1 - r) (gamma m_k - alpha), which shrinks a step where gamma is large
(`NaturalProblem`).

The gradient methods of the paper, SGD and ADADELTA, optimise m and a Cholesky factor of V (`RootProblem`). They get the
same alpha and gamma: df/dm = alpha, and row n of df/dR is gamma_n R_n where V = R R^T. With ``whitened`` they optimise
q of u in z = C u, C C^T = Sigma, and so know the geometry of the prior.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import dtrmm
from scipy.special import expit, log1p, ndtr

from spatialpdvi.problems.base import Blocks

__all__ = ["Bound", "Dual", "NaturalProblem", "ProximalProblem", "Root", "RootProblem", "logistic_expectations"]

# Expectations of the logistic likelihood under a Gaussian


class Logistic(NamedTuple):
    """Expectations under N(m, v) for each m and v."""

    softplus: np.ndarray  # E log(1 + exp(z))
    sigmoid: np.ndarray  # its derivative in m
    slope: np.ndarray  # the second derivative in m, which is twice the derivative in v


_HERMITE = np.polynomial.hermite_e.hermegauss(64)
_LEGENDRE = np.polynomial.legendre.leggauss(200)
_WIDE = 2.0  # standard deviation from which the bend of the softplus is narrow beside the Gaussian
_BEND = 40.0  # beyond it the softplus is straight to all digits


def logistic_expectations(m: np.ndarray, v: np.ndarray) -> Logistic:
    """Integrate to ten digits: by Gauss and Hermite where N(m, v) is narrow, else over the bend of the softplus.

    log(1 + exp(z)) is max(0, z), whose expectation is known, and log(1 + exp(-|z|)), which is 0 away from the origin.
    """
    m, s = np.broadcast_arrays(np.asarray(m, float), np.sqrt(v))
    narrow = [
        np.einsum("...q,q->...", values, _HERMITE[1] / np.sqrt(2 * np.pi))
        for values in _softplus(m[..., None] + s[..., None] * _HERMITE[0])
    ]
    t = 0.5 * _BEND * (1.0 + _LEGENDRE[0])
    weights, wide_s = 0.5 * _BEND * _LEGENDRE[1], np.maximum(s, _WIDE)[..., None]
    right, left = _density((t - m[..., None]) / wide_s) / wide_s, _density((t + m[..., None]) / wide_s) / wide_s
    bend, tail, slope = log1p(np.exp(-t)), expit(-t), expit(t) * expit(-t)
    z = m / wide_s[..., 0]
    wide = [
        m * ndtr(z) + wide_s[..., 0] * _density(z) + np.einsum("...q,q->...", left + right, weights * bend),
        ndtr(z) + np.einsum("...q,q->...", left - right, weights * tail),
        np.einsum("...q,q->...", left + right, weights * slope),
    ]
    return Logistic(*(np.where(s < _WIDE, a, b) for a, b in zip(narrow, wide, strict=True)))


def _softplus(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    sigmoid = expit(z)
    return np.logaddexp(0.0, z), sigmoid, sigmoid * expit(-z)


def _density(z: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)


# The problem, in the coordinates of the two kinds of methods


class Bound(NamedTuple):
    """What the loop reads of an evaluation."""

    neg_elbo: float  # F in nats


class LikelihoodGradient(NamedTuple):
    """The gradient of the likelihood's part f, 0 outside the patch."""

    alpha: np.ndarray  # df/dm_n (n,)
    gamma: np.ndarray  # 2 df/dV_nn (n,), >= 0


class _Sampled:
    """What both kinds share: mini-batches, and alpha and gamma by Monte Carlo.

    A patch is a mini-batch. In every pass its rows are drawn anew, since phi (B,) counts the visits of each patch. Rows
    and samples of a visit depend on the seed, the patch and this number alone: the same seed gives the same bits.

    Parameters
    ----------
    kernel
        Sigma (n, n).
    labels
        y (n,), -1 or 1.
    n_patches
        B.
    n_draws
        S, samples of each z_n; 0 takes the expectations themselves.
    """

    def __init__(self, kernel: np.ndarray, labels: np.ndarray, *, n_patches: int, n_draws: int, seed: int) -> None:
        self.kernel, self.labels, self.n_draws = kernel, labels, n_draws
        self.n, self.n_patches, self._seed = labels.size, n_patches, seed
        self._drawn: tuple[int, list[np.ndarray]] = (-1, [])  # the rows of the latest pass

    def halo(self, phi: np.ndarray, patch: int) -> None:
        """Return nothing: patches have no local variables."""

    def update_locals(self, phi: np.ndarray, patch: int, halo: None, lam: Blocks) -> None:
        """Count a visit."""
        phi[patch] += 1

    def rows(self, phi: np.ndarray, patch: int) -> np.ndarray:
        """Rows of the patch in its latest visit; the patches of one pass divide all rows among them."""
        visit = int(phi[patch])
        if self._drawn[0] != visit:
            order = np.random.default_rng((self._seed, visit)).permutation(self.n)
            self._drawn = visit, np.array_split(order, self.n_patches)
        return self._drawn[1][patch]

    def statistics(self, phi: np.ndarray, patch: int, lam: Blocks) -> LikelihoodGradient:
        """Estimate alpha and gamma of the patch without bias: derivatives of log p are averaged over samples of z."""
        rows = self.rows(phi, patch)
        m, v = self.marginals(lam, rows)
        if self.n_draws:
            rng = np.random.default_rng((self._seed, int(phi[patch]), patch))
            z = m + np.sqrt(v) * rng.standard_normal((self.n_draws, rows.size))
            sigmoid = expit(z)
            first, second = sigmoid.mean(axis=0), (sigmoid * (1.0 - sigmoid)).mean(axis=0)
        else:
            _, first, second = logistic_expectations(m, v)
        alpha, gamma = np.zeros((2, self.n))
        alpha[rows], gamma[rows] = first - (self.labels[rows] > 0), second
        return LikelihoodGradient(alpha, gamma)

    def marginals(self, lam: Blocks, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute m_n and V_nn of some rows."""
        raise NotImplementedError

    def divergence(self, lam: Blocks) -> float:
        """Compute KL(q || p)."""
        raise NotImplementedError

    def evaluate(self, phi: np.ndarray, lam: Blocks, **_: Any) -> Bound:
        """Compute F by quadrature; infinite where q has overflowed."""
        m, v = self.marginals(lam, np.arange(self.n))
        if not (np.all(np.isfinite(m)) and np.all(np.isfinite(v))):
            return Bound(np.inf)
        return Bound(float(logistic_expectations(-self.labels * m, v).softplus.sum() + self.divergence(lam)))


class Dual(NamedTuple):
    """q in the coordinates of the module's docstring: m = Sigma a, V^-1 = Sigma^-1 + diag(w)."""

    a: np.ndarray  # (n,)
    w: np.ndarray  # (n,), >= 0


class ProximalProblem(_Sampled):
    """What the natural-gradient solvers ask of a problem, so that PG-SVI does a step of (17)."""

    _factored: tuple[np.ndarray, np.ndarray] | None = None  # the latest w and its L

    def start(self) -> tuple[np.ndarray, Dual]:
        """No visits, and q at the prior."""
        return np.zeros(self.n_patches, dtype=np.int64), Dual(*np.zeros((2, self.n)))

    def marginals(self, lam: Dual, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute V_nn as ``Sigma_nn - |L^-1 W^1/2 Sigma_n|^2`` with ``L L^T = I + W^1/2 Sigma W^1/2``."""
        columns = self.kernel[:, rows]
        half = solve_triangular(self._factor(lam.w), np.sqrt(lam.w)[:, None] * columns, lower=True, check_finite=False)
        return lam.a @ columns, self.kernel[rows, rows] - np.sum(half**2, axis=0)

    def divergence(self, lam: Dual) -> float:
        """With the L of `marginals`, ``1/2 (tr (L L^T)^-1 - n + 2 log|L| + a^T Sigma a)``."""
        factor = self._factor(lam.w)
        trace = np.sum(solve_triangular(factor, np.eye(self.n), lower=True, check_finite=False) ** 2)
        return float(0.5 * (trace - self.n + lam.a @ self.kernel @ lam.a) + np.log(np.diag(factor)).sum())

    def global_optimum(self, statistics: LikelihoodGradient) -> Dual:
        """Minimise the linearised F."""
        return Dual(-statistics.alpha, statistics.gamma)

    def blend(self, lam: Dual, target: Dual, step: float) -> Dual:
        """Take the step of (17) with ``r = 1 - step``: ``(I + r W Sigma) (a_new - a) = (1 - r) (a* - a)``."""
        r = 1.0 - step
        change = self.solve_shifted(r * lam.w, step * (target.a - lam.a))
        return Dual(lam.a + change, r * lam.w + step * target.w)

    def solve_shifted(self, w: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Solve ``(I + W Sigma) y = x`` as ``y = x - W^1/2 (L L^T)^-1 W^1/2 Sigma x``."""
        root = np.sqrt(w)
        return x - root * cho_solve((self._factor(w), True), root * (self.kernel @ x), check_finite=False)

    def predict(self, lam: Dual, cross: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of z at other points, with their kernels (N*, n) to the rows and (N*,) to themselves."""
        half = solve_triangular(self._factor(lam.w), np.sqrt(lam.w)[:, None] * cross.T, lower=True)
        return cross @ lam.a, own - np.sum(half**2, axis=0)

    def _factor(self, w: np.ndarray) -> np.ndarray:
        """L for W = diag(w), computed once for one and the same array."""
        if self._factored is None or self._factored[0] is not w:
            self._factored = w, self._new_factor(w)
        return self._factored[1]

    def _new_factor(self, w: np.ndarray) -> np.ndarray:
        root = np.sqrt(w)
        matrix = root[:, None] * self.kernel * root
        matrix.flat[:: self.n + 1] += 1.0
        return cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)


class NaturalProblem(ProximalProblem):
    """The same with the natural-gradient step of m, as in the authors' program."""

    def blend(self, lam: Dual, target: Dual, step: float) -> Dual:
        """Take the step of V first, and with its W: ``(I + W Sigma) (a_new - a) = (1 - r) (a* - a)``."""
        w = (1.0 - step) * lam.w + step * target.w
        return Dual(lam.a + self.solve_shifted(w, step * (target.a - lam.a)), w)


class Root(NamedTuple):
    """q of u in z = C u: its mean, and R lower triangular with R R^T its covariance and with logarithms as diagonal."""

    mean: np.ndarray  # (n,)
    root: np.ndarray  # (n, n)


class RootProblem(_Sampled):
    """What gradient solvers ask of a problem; C is I, or the Cholesky factor of Sigma where ``whitened``."""

    def __init__(self, kernel: np.ndarray, labels: np.ndarray, *, whitened: bool, **how: Any) -> None:
        super().__init__(kernel, labels, **how)
        self._prior = cholesky(kernel, lower=True)
        inverse = solve_triangular(self._prior, np.eye(self.n), lower=True)
        self._map = self._prior if whitened else None
        self._precision = None if whitened else inverse.T @ inverse  # of the prior of u; None: the identity
        self._weights = inverse.T if whitened else inverse.T @ inverse  # E z* = cross @ weights @ E u

    def start(self) -> tuple[np.ndarray, Root]:
        """No visits, and q at the prior."""
        root = self._prior.copy() if self._map is None else np.eye(self.n)
        root.flat[:: self.n + 1] = np.log(np.diag(root))
        return np.zeros(self.n_patches, dtype=np.int64), Root(np.zeros(self.n), root)

    def marginals(self, lam: Root, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute m_n and V_nn of some rows."""
        root = _with_diagonal(lam.root)
        if self._map is None:
            return lam.mean[rows], np.sum(root[rows] ** 2, axis=1)
        return self._map[rows] @ lam.mean, np.sum((self._map[rows] @ root) ** 2, axis=1)

    def divergence(self, lam: Root) -> float:
        """Compute KL(q || p) in the coordinates u."""
        root, log_ratio = _with_diagonal(lam.root), 2.0 * np.trace(lam.root)
        if self._precision is not None:
            log_ratio -= 2.0 * np.log(np.diag(self._prior)).sum()
        square = np.sum(self._scaled(root) * root) + lam.mean @ self._scaled(lam.mean)
        return float(0.5 * (square - self.n - log_ratio))

    def gradient(self, statistics: LikelihoodGradient, patch: int, lam: Root) -> Root:
        """Gradient of the patch's term of f and of its share of the divergence, 1/B."""
        rows = np.flatnonzero((statistics.alpha != 0.0) | (statistics.gamma != 0.0))
        alpha, gamma = statistics.alpha[rows], statistics.gamma[rows, None]
        dense = _with_diagonal(lam.root)
        mean, root = self._scaled(lam.mean) / self.n_patches, self._scaled(dense) / self.n_patches
        if self._map is None:
            mean[rows] += alpha
            root[rows] += gamma * dense[rows]
        else:
            mean += alpha @ self._map[rows]
            root += self._map[rows].T @ (gamma * (self._map[rows] @ dense))
        root.flat[:: self.n + 1] = np.diag(root) * np.diag(dense) - 1.0 / self.n_patches
        return Root(mean, np.tril(root))

    def predict(self, lam: Root, cross: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of z at other points, with their kernels (N*, n) to the rows and (N*,) to themselves."""
        weights = cross @ self._weights
        known = np.sum(solve_triangular(self._prior, cross.T, lower=True) ** 2, axis=0)
        return weights @ lam.mean, own - known + np.sum((weights @ _with_diagonal(lam.root)) ** 2, axis=1)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        if self._precision is None:
            return x
        # of the product with a lower triangular matrix, BLAS computes half; its arrays are transposed
        return self._precision @ x if x.ndim == 1 else dtrmm(1.0, x.T, self._precision, lower=0).T


def _with_diagonal(root: np.ndarray) -> np.ndarray:
    """R itself, from one whose diagonal is in logarithms."""
    dense = root.copy()
    dense.flat[:: root.shape[0] + 1] = np.exp(np.diag(root))
    return dense
