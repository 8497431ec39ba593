"""Whether a section is like the one that a model was fitted on: two numbers, and a warning where it is not."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.errors import InputWarning
from spatialpdvi.io.section.section import Section
from spatialpdvi.model import Model

__all__ = ["Likeness", "likeness_of", "tell_unlike"]

_OUTSIDE = 0.05  # of the spots: with more beyond the model's reach the user is told
_SHIFT = 0.45  # of the way to the next domain; sections of one tissue came to .4 at the most (docs/measurements.md)


class Likeness(NamedTuple):
    """How far the spots of a section are from where the model has its domains."""

    outside: float  # share farther from every domain than 99.9 % of the fit's spots were
    shift: float  # how far the domains' means have moved here, relative to the way to the next domain

    @property
    def is_enough(self) -> bool:
        """Whether the model's domains mean something here."""
        return self.outside <= _OUTSIDE and self.shift <= _SHIFT


def likeness_of(features: np.ndarray, domains: np.ndarray, model: Model) -> Likeness:
    """Likeness of spots with features (n, d) that were given the domains (n,).

    A share beyond the reach shows values that the model has not seen; it does not show domains that lie between the
    model's, whose spots are near enough to all of them. There the means of the section's own domains are displaced:

        shift = sum_i |xbar_{k(i)} - m_{k(i)}| / sum_i min_{l != k(i)} |m_l - m_{k(i)}|,    lengths in noise sd
    """
    means = model.lam.m / model.hyperparameters.noise_sd
    apart = np.sqrt(((means[:, None] - means[None]) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    moved = way = 0.0
    for k in np.unique(domains):
        own = features[domains == k]
        centre = own.mean(axis=0, dtype=np.float64) / model.hyperparameters.noise_sd
        moved += len(own) * float(np.linalg.norm(centre - means[k]))
        way += len(own) * float(apart[k].min())
    shift = moved / way if way > 0.0 else float(moved > 0.0)
    return Likeness(float((model.distance(features) > model.reach).mean()), shift)


def tell_unlike(section: Section, likeness: Sequence[Likeness], *, centred: bool) -> None:
    """Warn, with numbers, of every part of the section (`Section.spots_of_samples`) that is unlike the model's."""
    names: Sequence[Any] = [None] if section.samples is None else list(section.samples.categories)
    advice = "fit the sections together" if centred else "try --correct center, or fit the sections together"
    for name, spots, found in zip(names, section.spots_of_samples(), likeness, strict=True):
        if found.is_enough:
            continue
        where = "" if name is None else f" in {name!r}"
        beyond = round(found.outside * spots.size)
        msg = (
            f"Expected spots like those of the model{where}, found {beyond:,} of {spots.size:,} ({found.outside:.1%}) "
            f"farther from every domain than 99.9 % of those, and domains moved by {found.shift:.0%} of the way to the "
            f"next one. Their domains may mean little: {advice}."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
