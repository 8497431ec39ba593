r"""The mean of a quantity in each domain and how sure it is: a table of methods on one interface, `METHODS`.

A quantity y_ig of spot i (counts of a gene, or one for a type) has an exposure t_i (all counts of the spot, or one).
The mean of domain k is a ratio of sums over its spots,

    theta_kg = sum_i [z_i = k] y_ig / sum_i [z_i = k] t_i                                              (U1)

A method returns log theta with a covariance between domains, from which `spatialpdvi.uncertainty.tables` makes
intervals; shares of types stay as they are, since their truth is often 0, which has no logarithm. Methods know arrays
only: neither files nor genes.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.runtime.progress import NO_STAGE, Stage
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.uncertainty.blocks import BlockSums, block_sums, choose_blocks
from spatialpdvi.uncertainty.implicit import ImplicitOptions, implicit_steps
from spatialpdvi.uncertainty.linear_response import Coupling, response_covariance
from spatialpdvi.uncertainty.profile import Profile

__all__ = ["METHODS", "MOST_IMPLICIT", "Estimate", "Evidence", "Method", "estimate", "variances"]

PSEUDO = 0.5  # added to a sum of counts, so that its logarithm is finite
_REPLICATES = 400
_DRAWS = 4000  # of the implicit posterior
_OF_DRAWS = 2  # beside the seed, whose own numbers are those of the steps
_IMPLICIT = ImplicitOptions(hidden=(20,), covariance="full", iterations=200, pairs=50, noises=100, tracked=100)
MOST_IMPLICIT = 20  # domains
_ALIKE = 1e-3  # least share of the variance between pure domains that fitted ones keep
_SOURCES = 2  # domains that the misplaced spots of one come from in equal parts; the posterior spreads them over more
_FEWEST = 1.5  # effective blocks: a domain in fewer has no interval


class Evidence(NamedTuple):
    """All that methods may use: n spots, K domains, g quantities."""

    values: np.ndarray  # y (n, g) float64, >= 0
    exposure: np.ndarray  # t (n,) float64, >= 0
    codes: np.ndarray  # z (n,) int64, the domain of each spot
    posterior: np.ndarray  # phi (n, K) float64
    calibrated: np.ndarray  # (n, K) float64: the calibrated posterior, or the posterior where there is none
    coordinates: np.ndarray  # (n, 2|3)
    sections: Sequence[np.ndarray]  # the spots of each section
    graph: sp.csr_matrix | None = None  # (n, n) weights of the objective, for linear response
    coupling: Coupling | None = None  # of posteriors to the domains' means, for linear response
    seed: int = 0
    are_shares: bool = False  # whether the quantities are shares, which are not put into logarithms

    @property
    def n_groups(self) -> int:
        """K, empty domains included."""
        return int(self.posterior.shape[1])

    def ratio(self, sums: np.ndarray, exposure: np.ndarray) -> np.ndarray:
        """Return theta (K, g); one of counts has half a count more, so that its logarithm is finite."""
        return np.asarray((sums + (0.0 if self.are_shares else PSEUDO)) / exposure[:, None])

    def scaled(self, theta: np.ndarray) -> np.ndarray:
        """Return theta on the scale of the intervals."""
        return theta if self.are_shares else np.log(theta)

    def slope(self, theta: np.ndarray) -> np.ndarray:
        """Return the derivative of `scaled`."""
        return np.ones_like(theta) if self.are_shares else 1.0 / theta


class Estimate(NamedTuple):
    """What a method found: log theta, or a share, has a t distribution about `mean` with this scale matrix."""

    mean: np.ndarray  # (K, g) of log theta, or of shares
    covariance: np.ndarray  # (K, K, g) between domains
    freedom: np.ndarray  # (K,) degrees of freedom, inf for a normal distribution; NaN for a domain without an interval
    block_size: int = 0  # spots of a block; 0 where the method has none
    chance: np.ndarray | None = None  # (K, g) variances of shares but for misplaced spots, where these are told apart
    purity: np.ndarray | None = None  # (K,) share of a domain's spots that are not misplaced, with `chance`


Method = Callable[[Evidence, Stage], Estimate]


def estimate(evidence: Evidence, method: str, stage: Stage = NO_STAGE) -> Estimate:
    """Return what a method of `METHODS` finds; the same seed gives the same bits for any number of threads.

    Domains without spots, without exposure in them, or with fewer blocks than a variance needs, have NaN. So has a gene
    without a count by the methods without blocks, to which it shows no noise. ``stage`` shows how far a method is that
    takes long.
    """
    with single_threaded(), np.errstate(divide="ignore", invalid="ignore"):
        found = METHODS[method](evidence, stage)
    empty = np.bincount(evidence.codes, weights=evidence.exposure, minlength=evidence.n_groups) == 0
    unknown = empty | np.isnan(found.freedom)
    mean, covariance = found.mean.copy(), found.covariance.copy()
    mean[empty] = np.nan
    covariance[unknown] = np.nan
    covariance[:, unknown] = np.nan
    if not (evidence.are_shares or found.block_size):
        covariance[:, :, evidence.values.sum(axis=0) == 0] = np.nan
    return found._replace(mean=mean, covariance=covariance)


def _mean_field(evidence: Evidence, _stage: Stage) -> Estimate:
    """Independent spots with known posteriors: the variance is sigma_g^2 over the domain's exposure, as exp(rho) is."""
    theta, variance = _working_model(evidence)
    return Estimate(evidence.scaled(theta), _diagonal(variance), np.full(evidence.n_groups, np.inf))


def _linear_response(evidence: Evidence, _stage: Stage) -> Estimate:
    """Mean field, and what the means would change if the posteriors did: Giordano, Broderick and Jordan (2018)."""
    theta, variance = _working_model(evidence)
    assert evidence.graph is not None  # checked where the file is read
    phi, t = evidence.posterior, evidence.exposure
    # the derivative of the mean of domain k with respect to phi_ik
    residual = (evidence.values[:, None, :] - t[:, None, None] * theta) / (t @ phi)[:, None]
    response = response_covariance(phi, evidence.graph, residual * evidence.slope(theta), evidence.coupling)
    return Estimate(evidence.scaled(theta), _diagonal(variance) + response, np.full(phi.shape[1], np.inf))


def _working_model(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    """Theta and the variance of its scaled mean, (K, g) each, for y_ig ~ N(t_i theta_kg, t_i sigma_g^2) in domain k."""
    phi, t = evidence.posterior, evidence.exposure
    weight, sums = t @ phi, phi.T @ evidence.values
    # sum_ik phi_ik (y_ig - t_i theta_kg)^2 / t_i, expanded so that no (n, K, g) array is formed
    squares = np.divide(evidence.values**2, t[:, None], out=np.zeros_like(evidence.values), where=t[:, None] > 0)
    filled = weight > 0
    left = squares.sum(axis=0) - (sums[filled] ** 2 / weight[filled, None]).sum(axis=0)
    n_observed = int((t > 0).sum())  # spots without exposure say nothing about the noise
    noise = np.maximum(left, 0.0) / max(1, n_observed - int(filled.sum()))
    theta = evidence.ratio(sums, weight)
    return theta, noise / weight[:, None] * evidence.slope(theta) ** 2


def _implicit(evidence: Evidence, stage: Stage) -> Estimate:
    """CI-VI on the profile objective of each quantity by itself, started at mean field (`Profile`)."""
    assert evidence.graph is not None  # checked where the file is read
    theta, variance = _working_model(evidence)
    slope, weight = evidence.slope(theta), evidence.exposure @ evidence.posterior
    filled = np.flatnonzero(np.bincount(evidence.codes, minlength=evidence.n_groups))
    covariance = np.full((evidence.n_groups, *theta.shape), np.nan)
    mean, among = evidence.scaled(theta), np.ix_(filled, filled)
    n, quantities = theta.shape[1], "types" if evidence.are_shares else "genes"
    for g in range(n):
        own = variance[filled, g] / slope[filled, g] ** 2
        if not (own > 0).all():  # a type that no spot has, or all: nothing varies
            covariance[:, :, g][among] = 0.0
            continue
        profile = Profile.of(
            evidence.values[:, g],
            evidence.exposure,
            evidence.posterior,
            graph=evidence.graph,
            centre=theta[:, g],
            varied=filled,
            noise=float(own[0] * weight[filled[0]]),
        )
        start = theta[filled, g], np.sqrt(own)
        steps = implicit_steps(profile.evaluate, filled.size, options=_IMPLICIT, seed=evidence.seed, start=start)
        for done, fitted in enumerate(steps, 1):  # noqa: B007 - the last one is wanted
            stage.note(f"{g} of {n} {quantities}, and {done} of {_IMPLICIT.iterations} steps of the next")
            stage.advance(g + done / _IMPLICIT.iterations, n)
        drawn = fitted.sample(_DRAWS, (evidence.seed, _OF_DRAWS))
        spread = np.atleast_2d(np.cov(drawn.T)) * np.outer(slope[filled, g], slope[filled, g])
        covariance[:, :, g][among] = spread
    return Estimate(mean, covariance, np.full(evidence.n_groups, np.inf))


def _block_bootstrap(evidence: Evidence, _stage: Stage) -> Estimate:
    """The spatial block bootstrap in its limit of many replicates, and the bias through misplaced spots (U2, U3).

    A replicate weighs whole blocks anew. To first order, log theta changes by the sum over blocks of weight times
    ``s_bkg = sum_{i in b} [z_i = k] (y_ig / theta_kg - t_i) / T_k``, so that no replicate has to be drawn:

        cov(log theta_k, log theta_l) = sqrt(f_k f_l) sum_b s_bk s_bl,    f_k = G_k / (G_k - 1)            (U2)

    with the effective number of blocks G_k, and G_k - 1 degrees of freedom. It is at least that of independent
    molecules, or spots.
    """
    sums, _, size = _sums(evidence)
    values, exposure = sums.totals()
    theta = evidence.ratio(values, exposure)
    residual = sums.values - sums.exposure[:, :, None] * (values / exposure[:, None])
    effective = sums.effective()
    factor = np.sqrt(effective / (effective - 1.0))
    influence = residual * (evidence.slope(theta) * (factor / exposure)[:, None])
    chance = _at_least(_least_variance(evidence, sums), np.einsum("bkg,blg->klg", influence, influence))
    scaled, freedom = evidence.scaled(theta), _freedom(effective)
    mixing = _mixing(evidence)
    bias = _bias(scaled, chance, mixing, np.where(np.isnan(freedom), 0.0, exposure))
    found = Estimate(scaled, chance + _diagonal(bias), freedom, size)
    return found._replace(chance=variances(chance), purity=mixing.diagonal()) if evidence.are_shares else found


def _sampled_bootstrap(evidence: Evidence, _stage: Stage) -> Estimate:
    """The spatial block bootstrap by replicates: blocks are weighed anew, and their spots get domains anew.

    The weight of a block is exponential (Rubin's Bayesian bootstrap). A spot's domain is drawn from its calibrated
    posterior by the largest of log posterior + Gumbel noise, which the spots of a block share: each spot has the
    probabilities that it should have, and a block changes as a whole. The covariance is the mean square about the
    estimate, so that it includes the shift of the mean.
    """
    sums, blocks, size = _sums(evidence)
    centre = evidence.scaled(evidence.ratio(*sums.totals()))
    rng = np.random.default_rng(evidence.seed)
    n_blocks, k = sums.exposure.shape
    logs = np.log(np.maximum(evidence.calibrated, 1e-12))
    rows = np.arange(blocks.size)
    moved = np.zeros((k, k, centre.shape[1]))
    for _ in range(_REPLICATES):
        weight = np.asarray(rng.exponential(size=n_blocks))[blocks]
        drawn = (logs + rng.gumbel(size=(n_blocks, k))[blocks]).argmax(axis=1)
        member = sp.csr_matrix((weight, (drawn, rows)), shape=(k, rows.size))
        # a domain that a replicate leaves empty keeps its exposure above 0
        exposure = np.maximum(np.asarray(member @ evidence.exposure), PSEUDO)
        change = evidence.scaled(evidence.ratio(np.asarray(member @ evidence.values), exposure)) - centre
        moved += np.einsum("kg,lg->klg", change, change)
    covariance = _at_least(_least_variance(evidence, sums), moved / _REPLICATES)
    return Estimate(centre, covariance, _freedom(sums.effective()), size)


def _sums(evidence: Evidence) -> tuple[BlockSums, np.ndarray, int]:
    """The sums of each domain in each block, the block of each spot (n,), and the size of blocks."""
    args = evidence.values, evidence.exposure, evidence.codes, evidence.n_groups
    blocks, size = choose_blocks(*args, coordinates=evidence.coordinates, sections=evidence.sections)
    return block_sums(*args, blocks), blocks, size


def _mixing(evidence: Evidence) -> np.ndarray:
    """What the spots of each domain are, C (K, K): the mean calibrated posterior of domain l over those of domain k.

    Rows sum to 1. A domain without exposure, and spots without a type, which have none, say nothing about the mixture.
    """
    member = np.eye(evidence.n_groups)[evidence.codes] * evidence.exposure[:, None]
    mixing = member.T @ evidence.calibrated
    mixing[:, member.sum(axis=0) == 0] = 0.0
    total = mixing.sum(axis=1)
    empty = total == 0
    mixing[empty] = np.eye(evidence.n_groups)[empty]
    return np.asarray(mixing / np.where(empty, 1.0, total)[:, None])


def _bias(scaled: np.ndarray, chance: np.ndarray, mixing: np.ndarray, exposure: np.ndarray) -> np.ndarray:
    """The mean square (K, g) of the bias of the scaled means x through spots of other domains (U3).

    Fitted domains are mixtures x = C p of pure ones, so that the bias of domain k is ``sum_l C_kl (p_l - p_k)``. How
    much of a domain is misplaced is known well, and where it comes from is not: the bias that C and x give has the
    wrong sign as often as not. So the mean square is the one of misplaced spots from two domains with exchangeable pure
    means, with the squares of the differences between domain k and those that it is confused with in place of their
    mean.

    Parameters
    ----------
    scaled
        x (K, g); domains without exposure may have any.
    chance
        (K, K, g) covariance of x without this bias.
    mixing
        C (K, K).
    exposure
        (K,) 0 for a domain that is left out, since its variance is not known.
    """
    known = np.flatnonzero(exposure > 0)
    found = np.zeros_like(scaled)
    if known.size < 2:
        return found
    among = np.ix_(known, known)
    share = exposure[known] / exposure[known].sum()
    centred = np.diag(share) - np.outer(share, share)  # of this matrix W, x' W x is the variance of x
    x, noise, own = scaled[known], chance[among], mixing[among]
    differing = np.einsum("kg,kl,lg->g", x, centred, x) - np.einsum("kl,klg->g", centred, noise)
    spread = np.maximum(differing, 0.0) / np.trace(centred)
    weight = np.divide(spread, spread + variances(noise), out=np.zeros_like(x), where=spread > 0)
    centre = share @ x
    mean, left = centre + weight * (x - centre), spread * (1.0 - weight)
    squares = (mean[:, None] - mean[None]) ** 2 + left[:, None] + left[None]
    preserved = max(float(np.trace(centred @ mixing[known] @ mixing[known].T)) / float(np.trace(centred)), _ALIKE)
    others = own - np.diag(own.diagonal())
    misplaced = others.sum(axis=1)
    amount = (1.0 + 1.0 / _SOURCES) / 2.0 * misplaced**2
    source = np.divide(others, misplaced[:, None], out=np.zeros_like(others), where=misplaced[:, None] > 0)
    found[known] = amount[:, None] * np.einsum("kl,klg->kg", source, squares) / preserved
    return found


def _least_variance(evidence: Evidence, sums: BlockSums) -> np.ndarray:
    """The variance (K, g) of scaled means if molecules, or the types of spots, were independent."""
    values, exposure = sums.totals()
    if not evidence.are_shares:
        return np.asarray(1.0 / (values + PSEUDO))
    share = (values + 1.0) / (exposure[:, None] + 2.0)  # of no spot, or all, the next spot may differ
    return np.asarray(share * (1.0 - share) / exposure[:, None])


def _at_least(least: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The covariance (K, K, g) with variances of at least ``least`` (K, g)."""
    raised, index = covariance.copy(), np.arange(least.shape[0])
    raised[index, index] = np.maximum(covariance[index, index], least)
    return raised


def _freedom(effective: np.ndarray) -> np.ndarray:
    return np.where(effective >= _FEWEST, np.maximum(effective - 1.0, 1.0), np.nan)


def variances(covariance: np.ndarray) -> np.ndarray:
    """Return the variances (K, g) of a covariance (K, K, g)."""
    return np.asarray(np.einsum("kkg->kg", covariance))


def _diagonal(variance: np.ndarray) -> np.ndarray:
    """A covariance (K, K, g) of domains that do not depend on one another."""
    return np.asarray(np.eye(variance.shape[0])[:, :, None] * variance[:, None, :])


METHODS: dict[str, Method] = {
    "blocks": _block_bootstrap,
    "bootstrap": _sampled_bootstrap,
    "implicit": _implicit,
    "linear-response": _linear_response,
    "mean-field": _mean_field,
}
