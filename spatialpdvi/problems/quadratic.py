r"""A strongly convex quadratic with local and global variables, on which linear rates can be measured.

    F(phi, lambda) = sum_i 1/2 [phi_i; lambda - c_i]^T Q_i [phi_i; lambda - c_i],    phi_i in R^p, lambda in R^d    (Q1)

Q_i consists of the blocks pp, pl, lp and ll. The exact minimisers over phi given lambda, and over lambda given phi, are

    phi_i  = -Q_pp^-1 Q_pl (lambda - c_i)                                                                           (Q2)
    lambda = A^-1 v,    A = sum_i Q_ll,    v = sum_i (Q_ll c_i - Q_lp phi_i)                                        (Q3)

As a function of lambda, the term of a patch depends only on (A, v) of its samples. c_i is where sample i alone would
have lambda. Where all c_i are 0, the samples agree: F and the gradient of every sample are 0 at the optimum, so
sampling noise vanishes there and even constant stochastic steps converge. Where the c_i differ, they do not converge,
and dual variables are needed. This problem shares no code with the mixture, which shows that solvers know no more than
the interface.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.problems.base import Evaluation

__all__ = ["Quadratic", "QuadraticGlobals", "QuadraticStatistics", "random_quadratic"]


class QuadraticGlobals(NamedTuple):
    """lambda, as one block."""

    lam: np.ndarray  # (d,)


class QuadraticStatistics(NamedTuple):
    """The sufficient statistics of a patch's samples (Q3)."""

    curvature: np.ndarray  # A (d, d), sum_i Q_ll
    pull: np.ndarray  # v (d,), sum_i (Q_ll c_i - Q_lp phi_i)


class Quadratic:
    """A sum of quadratics over patches of consecutive samples; a `spatialpdvi.problems.base.Problem`.

    Parameters
    ----------
    forms
        Q_i (n, p + d, p + d), symmetric positive definite, the p local coordinates first.
    centres
        c_i (n, d), where each sample would have lambda.
    n_local
        p, from 1 to the size of the forms - 1.
    n_patches
        B, from 1 to n; the sizes of patches differ by at most one sample.

    Raises
    ------
    InputError
        If ``n_local`` or ``n_patches`` does not fit the forms.
    """

    def __init__(self, forms: np.ndarray, centres: np.ndarray, *, n_local: int, n_patches: int) -> None:
        n, size, _ = forms.shape
        _check("n_local", n_local, size - 1)
        _check("n_patches", n_patches, n)
        self.n_patches = n_patches
        self.n_samples, self.n_local, self.n_global = n, n_local, size - n_local
        self._centres = centres
        local, glob = slice(None, n_local), slice(n_local, None)
        blocks = (forms[:, local, local], forms[:, local, glob], forms[:, glob, local], forms[:, glob, glob])
        self._pp, self._pl, self._lp, self._ll = (np.ascontiguousarray(block) for block in blocks)
        self._response = -np.linalg.solve(self._pp, self._pl)  # d phi_i / d lambda of (Q2), (n, p, d)
        self._rows = [slice(start, stop) for start, stop in pairwise(_bounds(n, n_patches))]
        self._curvature = [self._ll[rows].sum(axis=0) for rows in self._rows]
        self._bound, self._visit_bound = _majorisers(np.stack(self._curvature))
        self._own_pull = [np.einsum("ilm,im->l", self._ll[rows], centres[rows]) for rows in self._rows]

    def halo(self, phi: np.ndarray, patch: int) -> None:
        """Return nothing: no sample depends on the local variables of another."""

    def statistics(self, phi: np.ndarray, patch: int, lam: QuadraticGlobals) -> QuadraticStatistics:
        """Compute A and v of the patch (Q3)."""
        rows = self._rows[patch]
        pull = self._own_pull[patch] - np.einsum("ilp,ip->l", self._lp[rows], phi[rows])
        return QuadraticStatistics(self._curvature[patch], pull)

    def update_locals(self, phi: np.ndarray, patch: int, halo: None, lam: QuadraticGlobals) -> None:
        """Minimise F exactly over the patch's rows of ``phi`` (n, p), in place (Q2)."""
        rows = self._rows[patch]
        phi[rows] = self._best(rows, lam)

    def augmented_globals(
        self,
        statistics: QuadraticStatistics,
        patch: int,
        lam0: QuadraticGlobals,
        dual: QuadraticGlobals,
        inv_step: QuadraticGlobals,
    ) -> QuadraticGlobals:
        """Solve ``(A + diag(1/eta)) lambda = v - dual + lambda_0 / eta``."""
        matrix = statistics.curvature + np.diag(inv_step.lam)
        return QuadraticGlobals(np.linalg.solve(matrix, statistics.pull - dual.lam + inv_step.lam * lam0.lam))

    def global_optimum(self, statistics: QuadraticStatistics) -> QuadraticGlobals:
        """Minimise F over lambda, given the statistics of all samples (Q3)."""
        return QuadraticGlobals(np.linalg.solve(statistics.curvature, statistics.pull))

    def blend(self, lam: QuadraticGlobals, target: QuadraticGlobals, step: float) -> QuadraticGlobals:
        """Average linearly: lambda is the mean of a Gaussian of fixed variance, a multiple of its natural parameter."""
        return QuadraticGlobals((1.0 - step) * lam.lam + step * target.lam)

    def gradient(self, statistics: QuadraticStatistics, patch: int, lam: QuadraticGlobals) -> QuadraticGlobals:
        """Compute ``A lambda - v`` of the patch."""
        return QuadraticGlobals(statistics.curvature @ lam.lam - statistics.pull)

    def evaluate(
        self, phi: np.ndarray, lam: QuadraticGlobals, *, each: Callable[..., Iterable[Any]] = map
    ) -> Evaluation:
        """Compute F, its gradient, and distances from the optimum that are comparable for any n and any units.

        Distances are in widths of one sample's term. For lambda it is the largest
        ``|dF/dlambda_l| / sqrt(n curvature_l)``, a Newton step in units of ``sqrt(n / curvature)``. For phi it is
        ``r / (1 + r)``, where r is the distance from the sample's own optimum in the norm of Q_pp. All samples are
        processed at once, so ``each`` is not called.
        """
        away = lam.lam - self._centres
        toward = np.einsum("ilm,im->il", self._ll, away)
        mixed = np.einsum("ilp,ip->il", self._lp, phi)
        local = np.sum(phi * np.einsum("ipq,iq->ip", self._pp, phi))
        gradient = (toward + mixed).sum(axis=0)
        miss = phi - np.einsum("ipl,il->ip", self._response, away)
        residual = np.sqrt(np.maximum(np.sum(miss * np.einsum("ipq,iq->ip", self._pp, miss), axis=1), 0.0))
        residual /= 1.0 + residual
        return Evaluation(
            neg_elbo=float(0.5 * local + np.sum((0.5 * toward + mixed) * away)),
            # F where every coordinate of every sample is one width from its optimum; at the optimum F may be 0
            scale=0.5 * self.n_samples * (self.n_local + self.n_global),
            gradient=QuadraticGlobals(gradient),
            curvature=QuadraticGlobals(self._bound),
            visit_curvature=QuadraticGlobals(self._visit_bound),
            stationarity={"lambda": float(np.max(np.abs(gradient) / np.sqrt(self.n_samples * self._bound)))},
            residual_mean=float(residual.mean()),
            residual_max=float(residual.max()),
        )

    def best_locals(self, lam: QuadraticGlobals) -> np.ndarray:
        """Compute the optimum (n, p) of all local variables given lambda (Q2), where F is ``min_phi F``."""
        return self._best(slice(None), lam)

    def optimum(self) -> tuple[np.ndarray, QuadraticGlobals]:
        """Compute the minimiser (phi, lambda) of F by eliminating the local variables."""
        reduced = self._reduced()
        lam = QuadraticGlobals(np.linalg.solve(reduced.sum(axis=0), np.einsum("ilm,im->l", reduced, self._centres)))
        return self.best_locals(lam), lam

    def profile_hessian(self) -> np.ndarray:
        """R (d, d) in ``min_phi F - F* = 1/2 (lambda - lambda*)^T R (lambda - lambda*)``: no cancellation occurs."""
        return self._reduced().sum(axis=0)

    def term_hessian(self, patch: int) -> np.ndarray:
        """Hessian of a patch's term in its own local variables and lambda, (n_b p + d) squared, lambda last."""
        rows, p = self._rows[patch], self.n_local
        n_local = (rows.stop - rows.start) * p
        hessian = np.zeros((n_local + self.n_global,) * 2)
        for i, (pp, pl) in enumerate(zip(self._pp[rows], self._pl[rows], strict=True)):
            own = slice(i * p, (i + 1) * p)
            hessian[own, own], hessian[own, n_local:], hessian[n_local:, own] = pp, pl, pl.T
        hessian[n_local:, n_local:] = self._curvature[patch]
        return hessian

    def _reduced(self) -> np.ndarray:
        """Each sample's form with its local variables eliminated (n, d, d), ``Q_ll - Q_lp Q_pp^-1 Q_pl``."""
        return self._ll + np.einsum("ilp,ipm->ilm", self._lp, self._response)

    def _best(self, rows: slice, lam: QuadraticGlobals) -> np.ndarray:
        return np.einsum("ipl,il->ip", self._response[rows], lam.lam - self._centres[rows])


def random_quadratic(
    *,
    n_samples: int = 10_000,
    n_local: int = 5,
    n_global: int = 5,
    condition: float = 1000.0,
    n_patches: int = 100,
    seed: int = 0,
    spread: float = 0.0,
    unit_ratio: float = 1.0,
) -> Quadratic:
    """Draw a quadratic; every Q_i has log-spaced eigenvalues from 1/condition to 1 in a random orthogonal basis.

    Parameters
    ----------
    n_samples, n_local, n_global, n_patches
        n, p, d and B.
    condition
        Ratio of the largest to the smallest eigenvalue of every Q_i, before ``unit_ratio`` is applied; at least 1.
    seed
        Seed of the bases and of the c_i.
    spread
        Standard deviation of the c_i, in the unit of each coordinate. Half of the variance is common to the samples of
        a patch, so that patches are biased. With 0, all samples agree on the optimum 0.
    unit_ratio
        Ratio of the largest to the smallest unit of the coordinates of lambda, log-spaced; curvatures differ by its
        square. With 1, the average over many random bases is close to a multiple of the identity, and a preconditioner
        has nothing to gain.

    Raises
    ------
    InputError
        If a number is out of its range.
    """
    for name, value in (("condition", condition), ("unit_ratio", unit_ratio)):
        if not value >= 1.0:
            raise InputError("at least 1", f"{value}", option=name)
    _check("n_patches", n_patches, n_samples)
    rng = np.random.default_rng(seed)
    size = n_local + n_global
    basis, _ = np.linalg.qr(rng.normal(size=(n_samples, size, size)))
    eigenvalues = np.geomspace(1.0 / condition, 1.0, size)
    forms = np.einsum("iae,e,ibe->iab", basis, eigenvalues, basis)
    scale = np.concatenate([np.ones(n_local), np.geomspace(1.0, unit_ratio, n_global)])
    own, common = rng.normal(size=(n_samples, n_global)), rng.normal(size=(n_patches, n_global))
    common = np.repeat(common, np.diff(_bounds(n_samples, n_patches)), axis=0)
    centres = spread * np.sqrt(0.5) * (own + common) / scale[n_local:]
    return Quadratic(forms * scale * scale[:, None], centres, n_local=n_local, n_patches=n_patches)


def _majorisers(parts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bound the curvature (d,) of F, and the curvature that one visit meets, from the A (B, d, d) of all patches.

    The diagonal matrix of ``L_l = sum_m |A_lm| sqrt(A_ll / A_mm)`` majorises A. With the second derivative A_ll alone,
    a step of 1/L in all coordinates at once could overshoot where they are correlated. Plain row sums of |A| prevent
    that too (Gershgorin), but depend on the units of the coordinates, so that flat coordinates would inherit the
    curvature of the steep ones; these are the row sums after A is scaled to a unit diagonal. A visit's share is ``sum_b
    A_b,ll^2 / (sum_b A_b,ll)^2``, which is 1/B where all patches are alike.
    """
    total = parts.sum(axis=0)
    diagonal = np.diag(total)
    root = np.sqrt(diagonal)
    bound = np.sum(np.abs(total) * root[:, None] / root, axis=1)
    own = np.diagonal(parts, axis1=1, axis2=2)
    return bound, bound * np.sum(own**2, axis=0) / diagonal**2


def _bounds(n: int, n_patches: int) -> np.ndarray:
    """The first rows (B + 1,) of patches of consecutive samples."""
    return np.linspace(0, n, n_patches + 1).round().astype(np.int64)


def _check(name: str, value: int, largest: int) -> None:
    if not 1 <= value <= largest:
        raise InputError(f"between 1 and {largest}", f"{value}", option=name)
