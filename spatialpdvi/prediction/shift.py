"""How similar a section is to those that a model was fitted on: two numbers, and a warning where it is not."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from spatialpdvi.errors import InputWarning, option
from spatialpdvi.initialization.states import state_posterior
from spatialpdvi.io.section.section import Section
from spatialpdvi.model import Model
from spatialpdvi.problems.potts_mixture import PottsGlobals, one_hot
from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Similarity", "compared_parts", "similarity_to_model", "warn_of_shift"]

_OUTSIDE = 0.05  # of the spots: with more beyond the model's reach there is a warning
_SHIFT = 0.45  # of the way to the next domain; sections of one tissue reached at most .4 (docs/results_accuracy.md)


class Similarity(NamedTuple):
    """How far the spots of a section are from the domains of a model; both numbers are 0 at best."""

    outside: float  # share farther from every domain or state than 99.9 % of the fit's spots were
    shift: float  # how far the domains, or their states, have moved here, relative to the way to the next one

    @property
    def is_enough(self) -> bool:
        """Whether the model's domains are meaningful here."""
        return self.outside <= _OUTSIDE and self.shift <= _SHIFT


class _Groups:
    """Means of groups of spots beside those that a model gives them, from blocks of spots.

    Parameters
    ----------
    means
        (K, q) of the model.
    """

    def __init__(self, means: np.ndarray) -> None:
        self.means = means
        self._size, self._squared = np.zeros(len(means)), np.zeros(len(means))
        self._sums, self._squares = np.zeros(means.shape), np.zeros(means.shape)

    def add(self, weights: np.ndarray, values: np.ndarray) -> None:
        """Add spots with weights (b, K) in the groups and values (b, q)."""
        self._size += weights.sum(axis=0)
        self._squared += (weights**2).sum(axis=0)
        self._sums += weights.T @ values
        self._squares += weights.T @ values**2

    def shift(self) -> float:
        """How far means have moved on average, relative to the way to the next one.

        What the mean of so few spots differs by chance is no shift: its variance is subtracted from the square. Groups
        of a single spot or none are left out.
        """
        more = self._size**2 > (1.0 + 1e-9) * self._squared  # than one spot
        if not more.any():
            return 0.0
        size, squared = self._size[more, None], self._squared[more, None]
        means = self._sums[more] / size
        variance = np.maximum(self._squares[more] / size - means**2, 0.0)
        chance = (variance * squared / (size**2 - squared)).sum(axis=1)
        moved = np.sqrt(np.maximum(((means - self.means[more]) ** 2).sum(axis=1) - chance, 0.0))
        apart = np.sqrt(((self.means[:, None] - self.means) ** 2).sum(axis=2))
        np.fill_diagonal(apart, np.inf)
        way = float(self._size[more] @ apart[more].min(axis=1))
        total = float(self._size[more] @ moved)
        return total / way if way > 0.0 else float(total > 0.0)


def similarity_to_model(features: np.ndarray, unlimited: np.ndarray, domains: np.ndarray, model: Model) -> Similarity:
    """Return how similar spots are to those that a model was fitted on.

    A share of spots beyond the reach shows values that the model has not seen. It does not show domains that lie
    between the model's, because their spots are near enough to several of them. There the means of the section's own
    domains are displaced:

        shift = sum_i sqrt(|xbar_{k(i)} - m_{k(i)}|^2 - v_{k(i)}) / sum_i min_{l != k(i)} |m_l - m_{k(i)}|

    with lengths in noise sd, and v the variance of a mean of so many spots; differences below 0 count as 0.

    Where domains are compositions of states, m are the compositions, and xbar is the mean posterior of the states of a
    domain's spots. Any spot has some state that is likeliest, so that compositions alone may look alike in a section of
    other tissue. The shift is therefore the larger of theirs and that of the states: of the means of the spots in each
    state, weighed by their posterior, here and in the fit.

    Parameters
    ----------
    features
        (n, d) in the space of the model.
    unlimited
        (n, d) the same, where far spots are not drawn in.
    domains
        (n,) that the spots were assigned to.
    model
        Of a fit.
    """
    states, noise_sd = model.states, model.hyperparameters.noise_sd
    if states is None:
        groups = [_Groups(model.lam.m / noise_sd)]
    else:
        groups = [_Groups(states.spot_mean), _Groups(softmax(model.lam.theta, axis=1))]
    lam = PottsGlobals(model.lam.m, model.lam.rho)
    with single_threaded():
        for rows in slices(domains.size):
            x, own = features[rows], domains[rows]
            members = one_hot(own, model.n_domains)
            if states is None:
                groups[0].add(members, x / noise_sd)
            else:
                groups[0].add(state_posterior(x, lam, states.prior_weight), x)
                groups[1].add(members, state_posterior(x, lam, groups[1].means[own]))
    outside = float((model.distance(unlimited) > model.reach).mean())
    return Similarity(outside, max(group.shift() for group in groups))


def compared_parts(*, with_states: bool) -> tuple[str, str]:
    """Return what spots may be far from, and what may have moved, in words."""
    return ("state", "domains or states") if with_states else ("domain", "domains")


def warn_of_shift(section: Section, similarity: Sequence[Similarity], *, centred: bool, with_states: bool) -> None:
    """Warn of every section (`Section.spots_of_samples`) that is not similar to those of the model.

    Parameters
    ----------
    section
        One section or several.
    similarity
        Of each.
    centred
        Whether they were centred on the model's mean.
    with_states
        Whether the model's domains are compositions of states.
    """
    of, moved = compared_parts(with_states=with_states)
    names: Sequence[Any] = [None] if section.samples is None else list(section.samples.categories)
    advice = "Fit the sections together."
    if not centred:
        advice = f"Try {option('correct', 'center')}, or fit the sections together."
    for name, spots, own in zip(names, section.spots_of_samples(), similarity, strict=True):
        if own.is_enough:
            continue
        where = "" if name is None else f"In section {name!r}, "
        beyond = round(own.outside * spots.size)
        text = (
            f"{where}{beyond:,} of {spots.size:,} spots ({own.outside:.1%}) are farther from every {of} than 99.9 % "
            f"of the model's spots were, and {moved} have moved by {own.shift:.0%} of the way to the next one. These "
            f"domains may mean little. {advice}"
        )
        warnings.warn(InputWarning(text), stacklevel=2)
