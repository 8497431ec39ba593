"""The states that domains of a section may share: whether there are any, how many, and without which trends."""

import warnings
from collections.abc import Sequence

import numpy as np

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.features.build import COMPONENTS, RawFeatures
from spatialpdvi.features.projection import learn_limit
from spatialpdvi.features.trends import Covariates, spot_covariates
from spatialpdvi.initialization.states import (
    States,
    are_distinct,
    distinctness,
    learn_states,
    states_of_communities,
    trends_within,
    why_unfit,
)
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.stages import StateSettings
from spatialpdvi.options.states import are_communities, most_states, n_mixtures, wanted_states
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import on_threads, single_threaded

__all__ = ["covariates_of", "learn_sets", "number_of_states", "warn_of_few_spots"]

# of the variance within states. Less is found in simulated sections that have no trend but that of the counts, and its
# removal changed only which of several answers was found (docs/lab_notebook.md)
_LEAST_TREND = 0.0125
_ROUNDS = 5  # of trends, at most: strong ones are confused with states at first


def number_of_states(section: Section, raw: RawFeatures, options: FitOptions) -> int:
    """Return the number of states that domains may share in a fit, or 0 where each domain has one Gaussian.

    Parameters
    ----------
    section
        Read and checked.
    raw
        Of the section, before features are averaged in space.
    options
        Of a fit with one number of domains.

    Raises
    ------
    InputError
        Where the features are sparse and states were requested.
    """
    is_dense = isinstance(raw.fitted, np.ndarray)
    wanted = wanted_states(options.states, section.coordinates.shape[0], options.n_domains)
    if options.states == "auto":
        return wanted if is_dense else 0
    if wanted and not is_dense:
        raise InputError(
            f"dense features with {option('states', options.states)}",
            "sparse ones",
            f"{COMPONENTS}, or leave {option('states')} out.",
        )
    return wanted


def warn_of_few_spots(n_states: int, n_spots: int) -> None:
    """Warn where states have so few spots each that too little is known about them; ``auto`` never has."""
    most = most_states(n_spots)
    if n_states > most:
        advice = f"at most {most}" if most > 1 else option("states", "off")
        text = (
            f"With {option('states', n_states)}, a state has {n_spots / n_states:.1f} of the {n_spots:,} spots on "
            f"average, too few to learn what it is and in which domains it lies. Give {advice}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)


def learn_sets(
    section: Section,
    raw: RawFeatures,
    settings: StateSettings,
    n_sets: int,
    progress: Progress,
    *,
    covariates: Covariates | None = None,
) -> list[States]:
    """Learn sets of states with different seeds; none where ``auto`` finds them unfit for compositions.

    ``auto`` looks at several mixtures (`n_mixtures`, `why_unfit`). Trends are the mean of those within all these;
    unless they are small, mixtures are learnt again without them, and what is left of the trends is looked for within
    them. Where there are spots for them, the sets are then communities of the features without trends.

    Parameters
    ----------
    section
        Read and checked.
    raw
        Of the section: dense features of single spots.
    settings
        Of the states.
    n_sets
        How many sets to return.
    progress
        Shows the stage "states".
    covariates
        With which features drift; None to leave them as they are.
    """
    unsmoothed = np.asarray(raw.fitted)
    with progress.stage("states") as stage, single_threaded():
        n_learnt = n_mixtures(settings.n_states, unsmoothed.shape[0], n_sets, if_distinct=settings.if_distinct)
        drawn = np.random.default_rng(settings.seed).integers(2**32, size=max(n_learnt, n_sets) - 1)
        seeds = (settings.seed, *drawn)
        sets = _deciding_mixtures(unsmoothed, settings, seeds[:n_learnt])
        if settings.if_distinct:
            why = why_unfit(sets, section.coordinates, section.spots_of_samples(), raw.totals, seed=settings.seed)
            if why:
                stage.note(f"none: {why}")
                return []
        apart = distinctness(sets)
        if covariates is None:
            stage.note(f"{settings.n_states} states; {apart}")
            return _final(sets, unsmoothed, settings, seeds[:n_sets])
        steady, drift = unsmoothed, None
        for _ in range(_ROUNDS):
            more = _drift(sets, covariates, settings)
            part = _part_within(more, sets[0])
            if part < _LEAST_TREND:
                break
            drift = more if drift is None else drift + more
            steady = unsmoothed - drift
            sets = _mixtures(steady, settings, seeds[: min(n_sets, n_learnt)])
        removed = 0.0 if drift is None else _part_within(drift, sets[0])
        done = "removed" if removed else "left"
        trends = f"trends are {removed or part:.1%} of the variance within states, and are {done}"
        stage.note(f"{settings.n_states} states; {apart}; {trends}")
        sets = _final(sets, steady, settings, seeds[:n_sets])
        return [states._replace(detrended=removed) for states in sets]


def covariates_of(section: Section, raw: RawFeatures, options: FitOptions) -> Covariates | None:
    """Return with what the features of a section drift, or None where `detrend` is off.

    Parameters
    ----------
    section, raw, options
        As for `number_of_states`.
    """
    return spot_covariates(section.coordinates, section.spots_of_samples(), raw.totals) if options.detrend else None


def _final(
    mixtures: Sequence[States], features: np.ndarray, settings: StateSettings, seeds: Sequence[int]
) -> list[States]:
    """One set of states for each seed: communities where there are spots for these, otherwise the given mixtures.

    Where there are not as many communities, as in ready features of few values, mixtures are learnt.
    """
    if not are_communities(settings.n_states, features.shape[0]):
        return list(mixtures[: len(seeds)])
    made = states_of_communities(features, settings.n_states, seeds=[int(seed) for seed in seeds])
    return made or _mixtures(features, settings, seeds)


def _deciding_mixtures(features: np.ndarray, settings: StateSettings, seeds: Sequence[int]) -> list[States]:
    """As `_mixtures`, but none after most are not distinct: others cannot change the side of the median."""
    if not settings.if_distinct:
        return _mixtures(features, settings, seeds)
    sets: list[States] = []
    while len(sets) < len(seeds):
        more = len(seeds) // 2 + 1 - sum(not are_distinct([own]) for own in sets)
        if not more:
            break
        sets += _mixtures(features, settings, seeds[len(sets) : len(sets) + more])
    return sets


def _mixtures(features: np.ndarray, settings: StateSettings, seeds: Sequence[int]) -> list[States]:
    """One set of states for each seed, each a mixture that is learnt on one thread."""
    limit = learn_limit(features)
    return on_threads(lambda seed: learn_states(features, settings.n_states, seed=int(seed), limit=limit), seeds)


def _drift(sets: Sequence[States], covariates: Covariates, settings: StateSettings) -> np.ndarray:
    """Drift (n, d) float32 of features by the trends that states share, the mean of those within each set."""
    of = {"n_kinds": settings.n_domains, "seed": settings.seed}

    def within(states: States) -> list[np.ndarray]:
        back = np.linalg.inv(states.rotation)
        found = trends_within(states.features, states.lam, states.share, covariates, **of)
        return [own @ back / len(sets) for own in found]

    trends = [np.zeros((covariates.values.shape[1], sets[0].features.shape[1])) for _ in covariates.sections]
    for found in on_threads(within, sets):
        trends = [trend + own for trend, own in zip(trends, found, strict=True)]
    return covariates.times(trends)


def _part_within(drift: np.ndarray, states: States) -> float:
    """What part of the variance within states a drift (n, d) is."""
    size = float((drift @ states.rotation.astype(np.float32)).var(axis=0, dtype=np.float64).sum())
    return size / (size + drift.shape[1])
