r"""The Potts-Gaussian mixture: mean-field objective and closed forms, one equation each.

    F = sum_ik phi_ik [log phi_ik + 1/2 sum_f (m_kf^2 + e^rho_kf - 2 x_if m_kf) / sigma0_f^2]
      + 1/2 sum_kf [(m_kf^2 + e^rho_kf - 2 xi_f m_kf) / sigma1_f^2 - rho_kf]
      - 1/2 sum_i sum_{j in N(i)} r_ij sum_k phi_ik phi_jk                                             (E1)

Patch b carries its spots' terms, half of each of its edges' ends, and the share w_b = n_b / n of the prior.
Lyu, Yu, Ma and Shi (arXiv 2602.07632), appendix C.1. The paper's scripts print a share of 1/n in one place;
shares must sum to one over *patches*, or the fixed point moves while labels stay the same.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.graph.patches import Patch
from spatialpdvi.kernels.globals import augmented_log_variance, augmented_mean
from spatialpdvi.kernels.mixture import evaluate_spots, sweep, sweep_cells
from spatialpdvi.problems.base import Evaluation
from spatialpdvi.problems.features import Features

__all__ = ["Hyperparameters", "Part", "PottsGlobals", "PottsMixture", "Statistics", "data_term"]


class PottsGlobals(NamedTuple):
    """lambda: the variational parameters of the domains' means, q(c_kf) = N(m_kf, exp(rho_kf))."""

    m: np.ndarray  # domain_mean (K, d), units of the features
    rho: np.ndarray  # log_variance (K, d)


class Statistics(NamedTuple):
    """All that a patch's spots say about the domains (E4)."""

    counts: np.ndarray  # N (K,), N_k = sum_i phi_ik
    sums: np.ndarray  # S (K, d), S_kf = sum_i phi_ik x_if


class Hyperparameters(NamedTuple):
    """What is held fixed while the model is fitted; standard deviations, not variances."""

    noise_sd: np.ndarray  # sigma0 (d,), > 0
    prior_sd: np.ndarray  # sigma1 (d,), > 0
    prior_mean: np.ndarray  # xi (d,)


class Part(NamedTuple):
    """A patch's part of an `Evaluation`."""

    neg_elbo: float
    residual_sum: float  # over the spots, of the distance of their posteriors from their own optimum
    residual_max: float
    statistics: Statistics


class PottsMixture:
    """Potts-Gaussian mixture over patches of spots; a `Problem`.

    Parameters
    ----------
    features
        x (n, d), rows in patch order.
    patches
        Patches of consecutive rows with their edges; the weights are ``beta r_ij``. By number: all of them, or where
        a problem is spread over computers those whose rows are here (`alone`).
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
        """Travels as what it was made of: rows of features share its memory."""
        return PottsMixture, (self.features, self.patches, self.hyperparameters)

    def alone(self, patch: int) -> "PottsMixture":
        """The problem of one patch, under its number: phi are its own rows, halos are given."""
        p = self.patches[patch]
        return PottsMixture(
            self._rows[patch].alone(), {patch: p._replace(start=0, stop=p.stop - p.start)}, self.hyperparameters
        )

    def halo(self, phi: np.ndarray, patch: int) -> np.ndarray:
        """Posteriors (n_halo, K) of the patch's neighbours in other patches, as they are now."""
        return phi[self.patches[patch].halo_rows]

    def statistics(self, phi: np.ndarray, patch: int) -> Statistics:
        """N and S of the patch (E4)."""
        p = self.patches[patch]
        return Statistics(*self._rows[patch].statistics(phi[p.start : p.stop]))

    def update_locals(self, phi: np.ndarray, patch: int, halo: np.ndarray, lam: PottsGlobals) -> None:
        """One Gauss-Seidel sweep of the patch's posteriors, in place (E3).

        ``phi_i <- softmax_k(a_ik + sum_j r_ij phi_jk)`` with the data term ``a`` of (E2)
        """
        p = self.patches[patch]
        data_term, own = self._data_term(patch, lam), phi[p.start : p.stop]
        if p.cells is None:
            sweep(data_term, p.indptr, p.indices, p.weights, halo, p.colour_start, own)
        else:
            sweep_cells(data_term, p.indptr, p.indices, p.weights, halo, *p.cells, own)

    def augmented_globals(
        self,
        statistics: Statistics,
        patch: int,
        lam0: PottsGlobals,
        dual: PottsGlobals,
        inv_step: PottsGlobals,
    ) -> PottsGlobals:
        """The patch's copy of (m, rho) by its closed forms (E5, E6)."""
        out = PottsGlobals(np.empty_like(lam0.m), np.empty_like(lam0.rho))
        share = self.patches[patch].share
        prior, noise = self._prior_precision, self._noise_precision
        xi = self.hyperparameters.prior_mean
        augmented_mean(statistics.counts, statistics.sums, prior, xi, noise, share, dual.m, lam0.m, inv_step.m, out.m)
        augmented_log_variance(statistics.counts, prior, noise, share, dual.rho, lam0.rho, inv_step.rho, out.rho)
        return out

    def global_optimum(self, statistics: Statistics) -> PottsGlobals:
        """Minimiser over (m, rho) given all spots (E7): ``m = (S/s0 + xi/s1)/L``, ``rho = -log L``."""
        precision = self._precision(statistics.counts, 1.0)
        prior = self.hyperparameters.prior_mean * self._prior_precision
        return PottsGlobals((statistics.sums * self._noise_precision + prior) / precision, -np.log(precision))

    def blend(self, lam: PottsGlobals, target: PottsGlobals, step: float) -> PottsGlobals:
        """Mix two Gaussians' natural parameters, precision ``e^-rho`` and ``m e^-rho`` (E9)."""
        old, new = (1.0 - step) * np.exp(-lam.rho), step * np.exp(-target.rho)
        return PottsGlobals((old * lam.m + new * target.m) / (old + new), -np.log(old + new))

    def gradient(self, statistics: Statistics, patch: int, lam: PottsGlobals) -> PottsGlobals:
        """Gradient of the patch's term in (m, rho) (E8)."""
        return self._gradient(statistics, self.patches[patch].share, lam)

    def evaluate(self, phi: np.ndarray, lam: PottsGlobals, *, each: Callable[..., Iterable[Any]] = map) -> Evaluation:
        """F and how far (phi, m, rho) is from stationary, from one pass over the spots (`gather`).

        ``each`` is `map`, or what does the same side by side.
        """
        return self.gather(
            each(lambda b: self.evaluate_patch(phi, b, self.halo(phi, b), lam), range(self.n_patches)), lam
        )

    def evaluate_patch(self, phi: np.ndarray, patch: int, halo: np.ndarray, lam: PottsGlobals) -> Part:
        """A patch's part of the evaluation."""
        p = self.patches[patch]
        data_term, own = self._data_term(patch, lam), phi[p.start : p.stop]
        neg_elbo, residual = np.empty(len(own)), np.empty(len(own))
        evaluate_spots(
            data_term, p.indptr, p.indices, p.weights, halo, own, np.empty_like(data_term), neg_elbo, residual
        )
        largest = float(residual.max(initial=0.0))
        return Part(float(neg_elbo.sum()), float(residual.sum()), largest, self.statistics(phi, patch))

    def gather(self, parts: Iterable[Part], lam: PottsGlobals) -> Evaluation:
        """Evaluation from the parts of all patches, in their order.

        The distances are dimensionless and mean the same for any n: of m, the largest distance of a mean from its
        own optimum in units of the noise sd; of rho, the largest relative error of a variance; of phi, the total
        variation distance of a spot's posterior from its own optimum.
        """
        neg_elbo = self._prior_term(lam)
        total = Statistics(np.zeros(lam.m.shape[0]), np.zeros(lam.m.shape))
        squares = np.zeros(lam.m.shape)
        residual_sum = residual_max = 0.0
        for part, p in zip(parts, self.patches.values(), strict=True):
            neg_elbo += part.neg_elbo
            residual_sum += part.residual_sum
            residual_max = float(np.maximum(residual_max, part.residual_max))  # NaN stays NaN
            own = part.statistics
            total = Statistics(total.counts + own.counts, total.sums + own.sums)
            squares += self._precision(own.counts, p.share) ** 2
        gradient = self._gradient(total, 1.0, lam)
        precision = self._precision(total.counts, 1.0)
        # in rho it is 1/2 at the optimum and grows above it: the bound holds on the way there from below
        curvature = PottsGlobals(precision, 0.5 * np.maximum(np.exp(lam.rho) * precision, 1.0))
        shared_by = squares / precision**2
        return Evaluation(
            neg_elbo=float(neg_elbo),
            # the misfit 1/2 sum (x - m)^2 / sigma0^2 at the start, by the definition of sigma0; F itself lacks
            # the squares of x and is of any size when features lie far from zero
            scale=0.5 * self.features.shape[0] * self.features.shape[1],
            gradient=gradient,
            curvature=curvature,
            visit_curvature=PottsGlobals(curvature.m * shared_by, curvature.rho * shared_by),
            stationarity={
                "mean": float(np.max(np.abs(gradient.m) / precision / self.hyperparameters.noise_sd)),
                "log_variance": float(np.max(np.abs(2.0 * gradient.rho))),
            },
            residual_mean=residual_sum / self.features.shape[0],
            residual_max=residual_max,
        )

    def _data_term(self, patch: int, lam: PottsGlobals) -> np.ndarray:
        return data_term(self._rows[patch], lam, self._noise_precision)

    def _precision(self, counts: np.ndarray, share: float) -> np.ndarray:
        """L (K, d): ``N_k / sigma0_f^2 + w / sigma1_f^2``, the curvature of F in m."""
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


def data_term(features: Features, lam: PottsGlobals, noise_precision: np.ndarray) -> np.ndarray:
    """Expected log-likelihood (n, K) up to a constant of each spot (E2); ``noise_precision`` is 1 / sigma0^2 (d,)."""
    weight = np.ascontiguousarray((lam.m * noise_precision).T)
    # a sum rather than a BLAS product, whose last bits may depend on its number of threads
    offset = 0.5 * np.sum((lam.m**2 + np.exp(lam.rho)) * noise_precision, axis=1)
    return features.data_term(weight, offset)
