r"""The Potts-Gaussian mixture: its mean-field objective and its closed forms, one function per equation.

    F = sum_ik phi_ik [log phi_ik + 1/2 sum_f (m_kf^2 + e^rho_kf - 2 x_if m_kf) / sigma0_f^2]
      + 1/2 sum_kf [(m_kf^2 + e^rho_kf - 2 xi_f m_kf) / sigma1_f^2 - rho_kf]
      - 1/2 sum_i sum_{j in N(i)} r_ij sum_k phi_ik phi_jk                                             (E1)

The term of patch b contains the terms of its spots, half of each edge at either end, and the share w_b = n_b / n of the
prior. The model is that of Lyu, Yu, Ma and Shi (arXiv 2602.07632), appendix C.1. One of the paper's scripts uses a
share of 1/n; but shares must sum to one over *patches*, or the fixed point moves while the labels stay the same.

The problem knows features, patches and hyperparameters. It must not know AnnData, options or which solver calls it; the
estimator that users see, `spatialpdvi.PottsGMM`, is in `spatialpdvi.api.estimator`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from spatialpdvi.graph.patches import Patch
from spatialpdvi.kernels.globals import augmented_log_variance, augmented_mean
from spatialpdvi.kernels.mixture import evaluate_spots, sweep, sweep_cells
from spatialpdvi.problems.base import Evaluation, blockwise, total
from spatialpdvi.problems.features import Features

__all__ = [
    "Hyperparameters",
    "Part",
    "PottsGlobals",
    "PottsMixture",
    "Statistics",
    "data_term",
    "log_variance",
    "nearest_domain",
    "one_hot",
]


class PottsGlobals(NamedTuple):
    """lambda: the variational parameters of the domains' means, q(c_kf) = N(m_kf, exp(rho_kf))."""

    m: np.ndarray  # domain_mean (K, d), units of the features
    rho: np.ndarray  # log_variance (K, d)


class Statistics(NamedTuple):
    """The sufficient statistics of a patch's spots (E4)."""

    counts: np.ndarray  # N (K,), N_k = sum_i phi_ik
    sums: np.ndarray  # S (K, d), S_kf = sum_i phi_ik x_if


class Hyperparameters(NamedTuple):
    """Parameters that stay fixed during a fit; standard deviations, not variances, in units of the features."""

    noise_sd: np.ndarray  # sigma0 (d,), > 0
    prior_sd: np.ndarray  # sigma1 (d,), > 0
    prior_mean: np.ndarray  # xi (d,)


class Part(NamedTuple):
    """The part of an `Evaluation` that comes from one patch."""

    neg_elbo: float  # nats, without the prior
    residual_sum: float  # over spots, of the distances of their posteriors from their own optima
    residual_max: float  # the largest of these distances
    statistics: Statistics


class PottsMixture:
    """The Potts-Gaussian mixture over patches of spots; a `spatialpdvi.problems.base.Problem`.

    Parameters
    ----------
    features
        x (n, d), rows in patch order.
    patches
        Patches of consecutive rows with their edges, whose weights are ``beta r_ij``: all patches in order, or a
        mapping from patch numbers to the patches whose rows ``features`` holds (see `only`).
    hyperparameters
        sigma0, sigma1 and xi.
    """

    def __init__(
        self, features: Features, patches: Iterable[Patch] | Mapping[int, Patch], hyperparameters: Hyperparameters
    ) -> None:
        self.features = features
        self.patches = dict(patches) if isinstance(patches, Mapping) else dict(enumerate(patches))
        self.hyperparameters = hyperparameters
        self.n_patches = len(self.patches)
        self._rows = {b: features.rows(p.start, p.stop) for b, p in self.patches.items()}
        self._noise_precision = 1.0 / hyperparameters.noise_sd**2
        self._prior_precision = 1.0 / hyperparameters.prior_sd**2

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments only: the rows of single patches share the memory of the features."""
        return partial(type(self), **self._parameters()), (self.features, self.patches)

    def only(self, patch: int) -> Self:
        """Return the problem restricted to one patch, which keeps its number; its phi has the rows of this patch."""
        p = self.patches[patch]
        own = {patch: p._replace(start=0, stop=p.stop - p.start)}
        return type(self)(self._rows[patch].detached(), own, **self._parameters())

    def _parameters(self) -> dict[str, Any]:
        """The arguments that do not belong to spots."""
        return {"hyperparameters": self.hyperparameters}

    def halo(self, phi: np.ndarray, patch: int) -> np.ndarray:
        """Copy the current posteriors (n_halo, K) of the patch's neighbours in other patches."""
        return phi[self.patches[patch].halo_rows]

    def statistics(self, phi: np.ndarray, patch: int, lam: PottsGlobals) -> Statistics:
        """Compute N and S of the patch (E4)."""
        p = self.patches[patch]
        return Statistics(*self._rows[patch].statistics(phi[p.start : p.stop]))

    def update_locals(self, phi: np.ndarray, patch: int, halo: np.ndarray, lam: PottsGlobals) -> None:
        """Do one Gauss-Seidel sweep over the patch's posteriors, in place (E3).

        ``phi_i <- softmax_k(a_ik + sum_j r_ij phi_jk)`` with the data term ``a`` of (E2)
        """
        p = self.patches[patch]
        self._sweep(p, self._data_term(patch, lam), halo, phi[p.start : p.stop])

    def augmented_globals(
        self,
        statistics: Statistics,
        patch: int,
        lam0: PottsGlobals,
        dual: PottsGlobals,
        inv_step: PottsGlobals,
    ) -> PottsGlobals:
        """Minimise the augmented Lagrangian over the patch's copy of (m, rho), by its closed forms (E5, E6)."""
        out = PottsGlobals(np.empty_like(lam0.m), np.empty_like(lam0.rho))
        share = self.patches[patch].share
        prior, noise = self._prior_precision, self._noise_precision
        xi = self.hyperparameters.prior_mean
        augmented_mean(statistics.counts, statistics.sums, prior, xi, noise, share, dual.m, lam0.m, inv_step.m, out.m)
        augmented_log_variance(statistics.counts, prior, noise, share, dual.rho, lam0.rho, inv_step.rho, out.rho)
        return out

    def global_optimum(self, statistics: Statistics) -> PottsGlobals:
        """Minimise F over (m, rho), given the statistics of all spots (E7): ``m = (S/s0 + xi/s1)/L, rho = -log L``."""
        precision = self._precision(statistics.counts, 1.0)
        prior = self.hyperparameters.prior_mean * self._prior_precision
        return PottsGlobals((statistics.sums * self._noise_precision + prior) / precision, -np.log(precision))

    def blend(self, lam: PottsGlobals, target: PottsGlobals, step: float) -> PottsGlobals:
        """Average natural parameters of Gaussians, ``e^-rho`` and ``m e^-rho``, with weights 1 - s and s (E9)."""
        old, new = (1.0 - step) * np.exp(-lam.rho), step * np.exp(-target.rho)
        return PottsGlobals((old * lam.m + new * target.m) / (old + new), -np.log(old + new))

    def gradient(self, statistics: Statistics, patch: int, lam: PottsGlobals) -> PottsGlobals:
        """Compute the gradient of the patch's term in (m, rho) (E8)."""
        return self._gradient(statistics, self.patches[patch].share, lam)

    def evaluate(self, phi: np.ndarray, lam: PottsGlobals, *, each: Callable[..., Iterable[Any]] = map) -> Evaluation:
        """Compute F, and how far (phi, m, rho) is from a stationary point, in one pass over the spots (see `gather`).

        ``each`` is `map` or a parallel form of it.
        """
        return self.gather(
            each(lambda b: self.evaluate_patch(phi, b, self.halo(phi, b), lam), range(self.n_patches)), lam
        )

    def evaluate_patch(self, phi: np.ndarray, patch: int, halo: np.ndarray, lam: PottsGlobals) -> Part:
        """Compute one patch's part of the evaluation."""
        p = self.patches[patch]
        data_term, own = self._data_term(patch, lam), phi[p.start : p.stop]
        neg_elbo, residual = np.empty(len(own)), np.empty(len(own))
        evaluate_spots(
            data_term, p.indptr, p.indices, p.weights, halo, own, np.empty_like(data_term), neg_elbo, residual
        )
        largest = float(residual.max(initial=0.0))
        return Part(float(neg_elbo.sum()), float(residual.sum()), largest, self.statistics(phi, patch, lam))

    def gather(self, parts: Iterable[Part], lam: PottsGlobals) -> Evaluation:
        """Combine the parts of all patches, in their order, into the evaluation of the whole problem.

        The distances are dimensionless and comparable for any n. For m it is the largest distance of a mean from its
        own optimum, in units of the noise sd; for rho, the largest relative error of a variance; for phi, the total
        variation distance of a spot's posterior from its own optimum.
        """
        parts, neg_elbo = list(parts), self._prior_term(lam)
        squares = blockwise(np.zeros_like, lam)
        residual_sum = residual_max = 0.0
        for part, p in zip(parts, self.patches.values(), strict=True):
            neg_elbo += part.neg_elbo
            residual_sum += part.residual_sum
            residual_max = float(np.maximum(residual_max, part.residual_max))  # NaN stays NaN
            squares = blockwise(lambda square, own: square + own**2, squares, self._evidence(part.statistics, p.share))
        whole = total(part.statistics for part in parts)
        evidence, gradient = self._evidence(whole, 1.0), self._gradient(whole, 1.0, lam)
        curvature = self._curvature(evidence, lam)
        return Evaluation(
            neg_elbo=float(neg_elbo),
            # the misfit 1/2 sum (x - m)^2 / sigma0^2 at the start, by the definition of sigma0; F itself lacks the
            # squares of x, and its size is arbitrary when features lie far from zero
            scale=0.5 * self.features.shape[0] * self.features.shape[1],
            gradient=gradient,
            curvature=curvature,
            visit_curvature=blockwise(lambda c, square, own: c * (square / own**2), curvature, squares, evidence),
            stationarity=self._stationarity(gradient, evidence),
            residual_mean=residual_sum / self.features.shape[0],
            residual_max=residual_max,
        )

    def _sweep(self, patch: Patch, data_term: np.ndarray, halo: np.ndarray, own: np.ndarray) -> None:
        """Do one Gauss-Seidel sweep over the posteriors ``own`` (n_b, K) of a patch, in place."""
        if patch.cells is None:
            sweep(data_term, patch.indptr, patch.indices, patch.weights, halo, patch.colour_start, own)
        else:
            sweep_cells(data_term, patch.indptr, patch.indices, patch.weights, halo, *patch.cells, own)

    def _data_term(self, patch: int, lam: PottsGlobals) -> np.ndarray:
        return data_term(self._rows[patch], lam, self._noise_precision)

    def _evidence(self, statistics: Statistics, share: float) -> PottsGlobals:
        """What a patch, or the whole, adds to the curvature of each coordinate, up to a factor that patches share."""
        precision = self._precision(statistics.counts, share)
        return PottsGlobals(precision, precision)

    def _curvature(self, evidence: PottsGlobals, lam: PottsGlobals) -> PottsGlobals:
        """Bound the second derivative of F, coordinate by coordinate, given the evidence of all patches."""
        # the curvature in rho is 1/2 at the optimum and grows above it: below the optimum, 1/2 is a bound
        return PottsGlobals(evidence.m, 0.5 * np.maximum(np.exp(lam.rho) * evidence.rho, 1.0))

    def _stationarity(self, gradient: PottsGlobals, evidence: PottsGlobals) -> dict[str, float]:
        return {
            "mean": float(np.max(np.abs(gradient.m) / evidence.m / self.hyperparameters.noise_sd)),
            "log_variance": float(np.max(np.abs(2.0 * gradient.rho))),
        }

    def _precision(self, counts: np.ndarray, share: float) -> np.ndarray:
        """L (K, d), ``N_k / sigma0_f^2 + w / sigma1_f^2``: the curvature of F in m."""
        return counts[:, None] * self._noise_precision + share * self._prior_precision

    def _prior_term(self, lam: PottsGlobals) -> float:
        """The second line of (E1)."""
        xi = self.hyperparameters.prior_mean
        quadratic = (lam.m**2 + np.exp(lam.rho) - 2.0 * xi * lam.m) * self._prior_precision
        return 0.5 * float(np.sum(quadratic - lam.rho))

    def _gradient(self, statistics: Statistics, share: float, lam: PottsGlobals) -> PottsGlobals:
        precision = self._precision(statistics.counts, share)
        prior = share * self.hyperparameters.prior_mean * self._prior_precision
        return PottsGlobals(
            precision * lam.m - statistics.sums * self._noise_precision - prior,
            0.5 * (precision * np.exp(lam.rho) - share),
        )


def one_hot(labels: np.ndarray, k: int) -> np.ndarray:
    """Return the posterior (n, k) that gives each label the probability 1."""
    phi = np.zeros((labels.size, k))
    phi[np.arange(labels.size), labels] = 1.0
    return phi


def log_variance(counts: np.ndarray, hyperparameters: Hyperparameters) -> np.ndarray:
    """Return rho (K, d) of means with ``counts`` N (K,) spots each, ``-log(N/sigma0^2 + 1/sigma1^2)`` (E7)."""
    return np.asarray(-np.log(counts[:, None] / hyperparameters.noise_sd**2 + 1.0 / hyperparameters.prior_sd**2))


def data_term(features: Features, lam: PottsGlobals, noise_precision: np.ndarray) -> np.ndarray:
    """Compute the expected log-likelihood (n, K), up to a constant for each spot (E2).

    Parameters
    ----------
    features
        x (n, d).
    lam
        m and rho (K, d).
    noise_precision
        1 / sigma0^2 (d,).
    """
    weight = np.ascontiguousarray((lam.m * noise_precision).T)
    # a sum and not a BLAS product, whose last bits may depend on its number of threads
    offset = 0.5 * np.sum((lam.m**2 + np.exp(lam.rho)) * noise_precision, axis=1)
    return features.data_term(weight, offset)


def nearest_domain(features: np.ndarray, lam: Any, hyperparameters: Hyperparameters) -> np.ndarray:
    """Return the Mahalanobis distance (n,) of features (n, d) to the nearest mean of a domain or state, in noise sd.

    ``min_k sqrt( sum_f (x_if - m_kf)^2 / sigma0_f^2 )``
    """
    nearest = np.full(features.shape[0], np.inf)
    for mean in lam.m:
        squares = (((features - mean) / hyperparameters.noise_sd) ** 2).sum(axis=1)
        np.minimum(nearest, squares, out=nearest)
    return np.sqrt(nearest)
