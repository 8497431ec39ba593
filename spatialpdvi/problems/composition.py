r"""Domains as compositions of cell states: the Potts mixture whose domains share states and differ in proportions.

    zeta ~ Potts(r),   s_i | zeta_i = k ~ Categorical(pi_k),   x_i | s_i = c ~ N(c_c, diag(sigma0^2))

with Gaussian states c_c ~ N(xi, diag(sigma1^2)) that all domains share, and pi_k = softmax(theta_k). Mean field is
q(zeta_i) q(s_i | zeta_i) q(c), and theta is a point estimate. The state of a spot given its domain has a closed form,

    l_ic = sum_f [x_if m_cf - 1/2 (m_cf^2 + e^rho_cf)] / sigma0_f^2                                            (C1)
    b_ik = log sum_c pi_kc e^l_ic,      psi_ikc = pi_kc e^(l_ic - b_ik)                                        (C2)

so that only phi is stored. Here b takes the place of the data term in (E1) and (E3), and the objective gains the term
of the compositions' Dirichlet prior with the weights a_c > 0,

    F = sum_ik phi_ik (log phi_ik - b_ik) - 1/2 sum_ij r_ij sum_k phi_ik phi_jk + KL(c) - sum_kc a_c log pi_kc (C3)

The states' blocks (m, rho) keep the closed forms of the Gaussian mixture with C states in the place of K domains. With
C = K and pi the unit matrix, this is that mixture.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import log_softmax, softmax

from spatialpdvi.graph.patches import Patch
from spatialpdvi.kernels.globals import augmented_composition
from spatialpdvi.kernels.mixture import data_term_dense, log_likelihoods, relative_likelihoods, responsibilities, settle
from spatialpdvi.problems.features import Features, wrap_features
from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsGlobals, PottsMixture, data_term

__all__ = [
    "CompositionGlobals",
    "CompositionMixture",
    "CompositionStatistics",
    "StateLikelihoods",
    "composed",
    "domain_term",
]


_RARE = 1e-3  # the share of a state from which its own curvature sets the steps


class CompositionGlobals(NamedTuple):
    """lambda: the variational parameters of the states' means, and the compositions of domains."""

    m: np.ndarray  # state_mean (C, d), units of the features
    rho: np.ndarray  # log_variance (C, d)
    theta: np.ndarray  # logits of the compositions (K, C): a row plus a constant is the same one, which `blend` weighs


class CompositionStatistics(NamedTuple):
    """The sufficient statistics of a patch's spots, with every state at its optimum (C2)."""

    counts: np.ndarray  # N (C,), N_c = sum_ik phi_ik psi_ikc
    sums: np.ndarray  # S (C, d), S_cf = sum_ik phi_ik psi_ikc x_if; zeros where states are held, which never read it
    members: np.ndarray  # M (K, C), M_kc = sum_i phi_ik psi_ikc


class CompositionMixture(PottsMixture):
    """The mixture of compositions over patches of spots; a `spatialpdvi.problems.base.Problem`.

    Parameters
    ----------
    features, patches, hyperparameters
        As for `PottsMixture`, where the noise is that within states.
    prior_weight
        a (C,), > 0: the weights of the Dirichlet prior on the compositions, in spots. In the softmax basis its density
        is prod_c pi_kc^a_c, so that a composition without a spot is a / sum(a).
    held
        The states' m and rho (C, d) where these are not fitted; None to fit them.
    """

    def __init__(
        self,
        features: Features,
        patches: Iterable[Patch] | Mapping[int, Patch],
        hyperparameters: Hyperparameters,
        *,
        prior_weight: np.ndarray,
        held: PottsGlobals | None = None,
    ) -> None:
        super().__init__(features, patches, hyperparameters)
        self.prior_weight = prior_weight
        self.held = held
        self._known: dict[int, StateLikelihoods] = {}  # of patches, where states are held

    def statistics(self, phi: np.ndarray, patch: int, lam: CompositionGlobals) -> CompositionStatistics:  # type: ignore[override]
        """Compute N, S and M of the patch, with its spots' states at their optimum given ``lam``."""
        p = self.patches[patch]
        states, composition = self._likelihoods(patch, lam), softmax(lam.theta, axis=1)
        mixed = states.weighted(phi[p.start : p.stop], composition)
        members = states.members(mixed, composition)
        if self.held is not None:
            return CompositionStatistics(members.sum(axis=0), np.zeros_like(self.held.m), members)
        counts, sums = self._rows[patch].statistics(states.posterior(mixed, composition))
        return CompositionStatistics(counts, sums, members)

    def state_posterior(self, phi: np.ndarray, lam: CompositionGlobals) -> np.ndarray:
        """Return the posterior (n, C) float32 of each spot's state, ``sum_k phi_ik psi_ikc`` (C2), for phi (n, K)."""
        found = np.empty((phi.shape[0], lam.m.shape[0]), dtype=np.float32)
        composition = softmax(lam.theta, axis=1)
        for b, p in self.patches.items():
            states = self._likelihoods(b, lam)
            mixed = states.weighted(np.asarray(phi[p.start : p.stop], dtype=float), composition)
            with np.errstate(under="ignore"):  # the smallest posteriors are 0 in single precision
                found[p.start : p.stop] = states.posterior(mixed, composition)
        return found

    def augmented_globals(  # type: ignore[override]
        self,
        statistics: CompositionStatistics,
        patch: int,
        lam0: CompositionGlobals,
        dual: CompositionGlobals,
        inv_step: CompositionGlobals,
    ) -> CompositionGlobals:
        """Minimise the augmented Lagrangian over the patch's copy of (m, rho, theta), by (E5), (E6) and (C4)."""
        states = self.held
        if states is None:
            states = super().augmented_globals(statistics, patch, lam0, dual, inv_step)  # type: ignore[arg-type]
        theta = np.empty_like(lam0.theta)
        weights = self._weights(statistics, self.patches[patch].share)
        augmented_composition(weights, dual.theta, lam0.theta, inv_step.theta, theta)
        return CompositionGlobals(states.m, states.rho, theta)

    def global_optimum(self, statistics: CompositionStatistics) -> CompositionGlobals:  # type: ignore[override]
        """Minimise F over (m, rho, theta), given the statistics of all spots: (E7) and ``pi_k ~ M_k + a`` (C5)."""
        states = self.held or super().global_optimum(statistics)  # type: ignore[arg-type]
        return CompositionGlobals(states.m, states.rho, np.log(self._weights(statistics, 1.0)))

    def blend(  # type: ignore[override]
        self, lam: CompositionGlobals, target: CompositionGlobals, step: float
    ) -> CompositionGlobals:
        """Average natural parameters of the states (E9), and the spots A = e^theta of each domain in each state (C7).

        Both are affine in the statistics, so that the mean over batches is the step with all spots. This is the step of
        stochastic EM (Cappe and Moulines 2009).
        """
        states = self.held or super().blend(lam, target, step)  # type: ignore[arg-type]
        with np.errstate(divide="ignore"):  # a step of 1 discards lam
            old, new = np.log1p(-step) + lam.theta, np.log(step) + target.theta
        return CompositionGlobals(states.m, states.rho, np.logaddexp(old, new))

    def _parameters(self) -> dict[str, Any]:
        return {**super()._parameters(), "prior_weight": self.prior_weight, "held": self.held}

    def _sweep(self, patch: Patch, data_term: np.ndarray, halo: np.ndarray, own: np.ndarray) -> None:
        """Do a sweep; where states are held, update spots again whose neighbours have moved, until all are at rest.

        One spot says little about its domain, so that a border which costs more than it explains retreats spot by spot,
        with single sweeps for hundreds of epochs. With states that are fitted, a visit is that of the Gaussian mixture.
        """
        before = None if self.held is None else own.copy()
        super()._sweep(patch, data_term, halo, own)
        if before is not None:
            settle(data_term, patch.indptr, patch.indices, patch.weights, halo, patch.colour_start, before, own)

    def _data_term(self, patch: int, lam: CompositionGlobals) -> np.ndarray:  # type: ignore[override]
        return self._likelihoods(patch, lam).domain_term(softmax(lam.theta, axis=1))

    def _likelihoods(self, patch: int, lam: CompositionGlobals) -> "StateLikelihoods":
        """The likelihoods of the patch's spots, which are computed once where states are held."""
        known = self._known.get(patch)
        if known is None:
            known = StateLikelihoods.of(self._rows[patch], self.held or lam, self._noise_precision)
            if self.held is not None:
                self._known[patch] = known
        return known

    def _prior_term(self, lam: CompositionGlobals) -> float:  # type: ignore[override]
        """The terms of the states' and the compositions' priors in (C3)."""
        return super()._prior_term(lam) - float(np.sum(self.prior_weight * log_softmax(lam.theta, axis=1)))  # type: ignore[arg-type]

    def _weights(self, statistics: CompositionStatistics, share: float) -> np.ndarray:
        """A (K, C), ``M_kc + w a_c``: the spots of each domain in each state, with the share w of the prior."""
        return statistics.members + share * self.prior_weight

    def _gradient(  # type: ignore[override]
        self, statistics: CompositionStatistics, share: float, lam: CompositionGlobals
    ) -> CompositionGlobals:
        """Compute (E8), and ``dF/dtheta_kc = T_k pi_kc - A_kc`` (C6); blocks that are held have none."""
        weights = self._weights(statistics, share)
        theta = weights.sum(axis=1, keepdims=True) * softmax(lam.theta, axis=1) - weights
        if self.held is not None:
            return CompositionGlobals(np.zeros_like(lam.m), np.zeros_like(lam.rho), theta)
        states = super()._gradient(statistics, share, lam)  # type: ignore[arg-type]
        return CompositionGlobals(states.m, states.rho, theta)

    def _evidence(self, statistics: CompositionStatistics, share: float) -> CompositionGlobals:  # type: ignore[override]
        states = super()._evidence(statistics, share)  # type: ignore[arg-type]
        return CompositionGlobals(states.m, states.rho, self._weights(statistics, share))

    def _curvature(self, evidence: CompositionGlobals, lam: CompositionGlobals) -> CompositionGlobals:  # type: ignore[override]
        # diag(T pi) majorises T (diag pi - pi pi') and is A at the optimum; where pi is too small, A is the bound. Of
        # states that a domain hardly has, both are next to nothing, and steps would throw their logits out of range
        spots = evidence.theta.sum(axis=1, keepdims=True)
        theta = np.maximum(spots * np.maximum(softmax(lam.theta, axis=1), _RARE), evidence.theta)
        if self.held is not None:  # blocks without a gradient must not set the one step of PD-VI
            flat = np.full_like(lam.m, theta.min())
            return CompositionGlobals(flat, flat, theta)
        states = super()._curvature(evidence, lam)  # type: ignore[arg-type]
        return CompositionGlobals(states.m, states.rho, theta)

    def _stationarity(self, gradient: CompositionGlobals, evidence: CompositionGlobals) -> dict[str, float]:  # type: ignore[override]
        """As for the mixture; for a composition, the total variation distance from its own optimum."""
        distance = 0.5 * np.abs(gradient.theta).sum(axis=1) / evidence.theta.sum(axis=1)
        return {**super()._stationarity(gradient, evidence), "composition": float(distance.max())}  # type: ignore[arg-type]


class StateLikelihoods(NamedTuple):
    """Likelihoods of states, relative to each spot's most likely one, and what domains make of them (C2)."""

    relative: np.ndarray  # (n, C), e^(l_ic - top_i)
    tops: np.ndarray  # (n,), max_c l_ic

    @classmethod
    def of(cls, features: Features, states: PottsGlobals | CompositionGlobals, noise_precision: np.ndarray) -> Self:
        """Compute them from x (n, d), m and rho (C, d), and 1 / sigma0^2 (d,)."""
        relative = data_term(features, PottsGlobals(states.m, states.rho), noise_precision)
        tops = np.empty(relative.shape[0])
        relative_likelihoods(relative, tops)
        return cls(relative, tops)

    def of_spots(self, spots: np.ndarray) -> Self:
        """Return those of some spots."""
        return type(self)(self.relative[spots], self.tops[spots])

    def domain_term(self, composition: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        """Return b (n, K), the log-likelihood of domains with the compositions pi (K, C), in ``out`` if given."""
        mixed = self.of_domains(composition, out=out)
        log_likelihoods(mixed, self.tops)
        return mixed

    def of_domains(self, composition: np.ndarray, *, out: np.ndarray | None = None) -> np.ndarray:
        """Return e^(b_ik - top_i), (n, K), for the compositions pi (K, C), in ``out`` if given."""
        weight = np.ascontiguousarray(composition.T)
        if out is None:
            out = np.empty((self.relative.shape[0], composition.shape[0]))
        data_term_dense(self.relative, weight, np.zeros(composition.shape[0]), out)
        return out

    def weighted(self, phi: np.ndarray, composition: np.ndarray) -> np.ndarray:
        """Return ``phi_ik e^-(b_ik - top_i)``, (n, K), from which `members` and `posterior` follow."""
        mixed = self.of_domains(composition)
        responsibilities(phi, mixed)
        return mixed

    def members(self, mixed: np.ndarray, composition: np.ndarray) -> np.ndarray:
        """Return M (K, C), for `weighted` posteriors."""
        return np.asarray(wrap_features(self.relative).statistics(mixed)[1] * composition)

    def posterior(self, mixed: np.ndarray, composition: np.ndarray) -> np.ndarray:
        """Return the posterior (n, C) of the states, ``sum_k phi_ik psi_ikc``, for `weighted` posteriors."""
        weighted = wrap_features(mixed).data_term(composition, np.zeros(composition.shape[1]))
        return np.asarray(self.relative * weighted)


def composed(members: np.ndarray, prior_weight: np.ndarray) -> np.ndarray:
    """Return the compositions pi (K, C) of domains with ``members`` M (K, C) and the prior's weights a (C,) (C5)."""
    weights = members + prior_weight
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def domain_term(features: Features, lam: CompositionGlobals, noise_precision: np.ndarray) -> np.ndarray:
    """Compute the log-likelihood of the domains b (n, K), in which every state is at its optimum (C2).

    Parameters
    ----------
    features
        x (n, d).
    lam
        m and rho (C, d), theta (K, C).
    noise_precision
        1 / sigma0^2 (d,).
    """
    return StateLikelihoods.of(features, lam, noise_precision).domain_term(softmax(lam.theta, axis=1))
