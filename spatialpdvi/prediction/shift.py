"""How similar a section is to those that a model was fitted on: two numbers, and a warning where it is not."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from spatialpdvi.errors import InputWarning, option
from spatialpdvi.io.section.section import Section
from spatialpdvi.model import Model
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsGlobals, data_term

__all__ = ["Similarity", "similarity_to_model", "warn_of_shift"]

_OUTSIDE = 0.05  # of the spots: with more beyond the model's reach there is a warning
_SHIFT = 0.45  # of the way to the next domain; sections of one tissue reached at most .4 (docs/results_accuracy.md)


class Similarity(NamedTuple):
    """How far the spots of a section are from the domains of a model; both numbers are 0 at best."""

    outside: float  # share farther from every domain than 99.9 % of the fit's spots were
    shift: float  # how far the domains' means have moved here, relative to the way to the next domain

    @property
    def is_enough(self) -> bool:
        """Whether the model's domains are meaningful here."""
        return self.outside <= _OUTSIDE and self.shift <= _SHIFT


def similarity_to_model(features: np.ndarray, unlimited: np.ndarray, domains: np.ndarray, model: Model) -> Similarity:
    """Return how similar spots are to those that a model was fitted on.

    A share of spots beyond the reach shows values that the model has not seen. It does not show domains that lie
    between the model's, because their spots are near enough to several of them. There the means of the section's own
    domains are displaced:

        shift = sum_i |xbar_{k(i)} - m_{k(i)}| / sum_i min_{l != k(i)} |m_l - m_{k(i)}|,    lengths in noise sd

    Where domains are compositions of states, m are the compositions, and xbar is the mean posterior of the states of a
    domain's spots.

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
    means, values, unit = _compared(features, domains, model)
    apart = np.sqrt(((means[:, None] - means[None]) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    moved = way = 0.0
    for k in np.unique(domains):
        own = values[domains == k]
        centre = own.mean(axis=0, dtype=np.float64) / unit
        moved += len(own) * float(np.linalg.norm(centre - means[k]))
        way += len(own) * float(apart[k].min())
    shift = moved / way if way > 0.0 else float(moved > 0.0)
    return Similarity(float((model.distance(unlimited) > model.reach).mean()), shift)


def _compared(
    features: np.ndarray, domains: np.ndarray, model: Model
) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
    """The means of domains (K, q) that are compared, and the values (n, q) of spots, which have another unit."""
    noise_sd = model.hyperparameters.noise_sd
    if model.states is None:
        return model.lam.m / noise_sd, features, noise_sd
    composition = softmax(model.lam.theta, axis=1)
    logs = data_term(wrap_features(features), PottsGlobals(model.lam.m, model.lam.rho), 1.0 / noise_sd**2)
    values = composition[domains] * np.exp(logs - logs.max(axis=1, keepdims=True))
    return composition, values / values.sum(axis=1, keepdims=True), 1.0


def warn_of_shift(section: Section, similarity: Sequence[Similarity], *, centred: bool) -> None:
    """Warn of every section (`Section.spots_of_samples`) that is not similar to those of the model.

    Parameters
    ----------
    section
        One section or several.
    similarity
        Of each.
    centred
        Whether they were centred on the model's mean.
    """
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
            f"{where}{beyond:,} of {spots.size:,} spots ({own.outside:.1%}) are farther from every domain than 99.9 % "
            f"of the model's spots were, and domains have moved by {own.shift:.0%} of the way to the next one. These "
            f"domains may mean little. {advice}"
        )
        warnings.warn(InputWarning(text), stacklevel=2)
