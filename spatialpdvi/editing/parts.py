"""How a domain is divided: by a fit inside it, or into its connected parts."""

import warnings
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError, InputWarning, option, own_names
from spatialpdvi.features.correction import FEWEST_CORRECTED
from spatialpdvi.fitting.fit import fit_section
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.io.formats.matrices import layer_address, matrix_address
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.counts import COUNTS_ADVICE
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.problems.potts_mixture import one_hot
from spatialpdvi.runtime.progress import Progress

__all__ = ["Parts", "connected_parts", "fitted_parts", "inner_options", "read_again"]

# Options of the fit that hold inside one of its domains as well. The others were chosen for the whole section (such as
# the neighbours that features are averaged over), or belong to its start, its solver or its output.
_INNER = (
    *("layer", "spatial_key", "label_key", "sample_key", "rep", "key_added"),
    *("n_top_genes", "target_sum", "totals", "transform", "clip", "whiten", "detrend", "correct"),
    *("n_neighbors", "flow_neighbors", "across_sections", "tau", "anisotropy", "beta", "n_init"),
)


class Parts(NamedTuple):
    """A domain divided."""

    parts: np.ndarray  # (n,) int64 in 0..N-1, of every spot; what they mean outside of the domain is the nearest part
    shares: np.ndarray  # (n, N) probability of each part given the domain, rows sum to 1
    calibrated: np.ndarray  # (n, N) the same, calibrated


def inner_options(options: FitOptions, into: int, *, seed: int, memory: str | None = None) -> FitOptions:
    """Return the options of a fit inside a domain.

    Parameters
    ----------
    options
        Of the fit.
    into
        Number of parts.
    seed, memory
        Of the fit inside.
    """
    kept = {f.name: getattr(options, f.name) for f in fields(options) if f.name in _INNER}
    n_pcs = options.n_pcs if options.rep is not None or options.n_pcs == 0 else None
    states = "off" if options.states == "off" else "auto"
    return FitOptions(k=into, n_pcs=n_pcs, states=states, seed=seed, memory=memory, **kept)


def read_again(source: Source, options: FitOptions) -> Section:
    """Read a section for a fit inside one of its domains.

    Parameters
    ----------
    source
        The fitted section.
    options
        Of the fit inside, from `inner_options`.

    Raises
    ------
    InputError
        Where it can no longer be read as the fit read it. Of counts, the error says what helps without an option for
        their layer, which an edit does not have.
    """
    try:
        return read_inputs(source, options)
    except InputError as error:
        if option("layer") not in error.advice:
            raise
        if options.layer is None:  # what follows the usual advice names layers that were not looked at
            better = f"Put the raw counts into {layer_address('counts')}, which is looked at before X."
            raise error.but(advice=error.advice.replace(COUNTS_ADVICE, better)) from error
        advice = f"The fit has read the raw counts from {matrix_address(options.layer)}: put them back."
        raise error.but(advice=advice) from error


def fitted_parts(section: Section, own: np.ndarray, options: FitOptions, progress: Progress) -> Parts:
    """Divide a domain by a fit of its own spots.

    Parameters
    ----------
    section
        All spots, with their counts or features.
    own
        Whether each spot (n,) belongs to the domain.
    options
        Of the fit inside, from `inner_options`.
    progress
        Shows its stages.

    Raises
    ------
    InputError
        Where the domain has too few spots, or a part ends without any.
    """
    n, into = int(own.sum()), options.n_domains
    if n < 2 * into:
        advice = "" if n >= 4 else "Leave the domain as it is: two parts need at least 4 spots."
        limit = f"at most half the number of spots of the domain, which is {n // 2:,}"
        raise InputError(limit, str(into), advice, option="into")
    inside = section.of(np.flatnonzero(own))
    if inside.samples is None or len(inside.samples.categories) < 2:
        inside, options = inside._replace(samples=None), replace(options, correct="none", across_sections=False)
    if options.correct == "harmony" and n < FEWEST_CORRECTED:
        options = replace(options, correct="none")
    if options.n_neighbors is not None:
        options = replace(options, n_neighbors=min(options.n_neighbors, n - 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        with own_names({**dict.fromkeys(_INNER), "k": "into"}):
            result = fit_section(inside, options, progress)
    filled = int((result.domain_sizes > 0).sum())
    if filled < into:
        raise InputError(
            f"spots of the domain that differ, for a fit that finds {into} parts",
            f"{filled}, with the other parts empty" if filled > 1 else "only one with spots",
            f"Lower {option('into')}, choose another {option('seed')}, or leave the domain as it is.",
        )
    for warning in caught:
        _warn_inside(warning.message)
    calibrated = result.posterior if result.calibration is None else result.calibration.posterior
    nearest = (np.cumsum(own) - 1)[_nearest(section, own)]  # its row in the fit
    return Parts(
        result.domains[nearest],
        _normalised(result.posterior[nearest]),
        _normalised(calibrated[nearest]),
    )


def connected_parts(section: Section, own: np.ndarray, pattern: sp.csr_matrix, smallest: int) -> Parts:
    """Divide a domain into the connected parts of its spots, the largest first.

    Parameters
    ----------
    section
        All spots.
    own
        Whether each spot (n,) belongs to the domain.
    pattern
        Which spots are joined (n, n).
    smallest
        Number of spots from which a part becomes a domain; the spots of smaller ones go to the nearest such part.

    Raises
    ------
    InputError
        Where the domain has no spots, or there are fewer than two such parts.
    """
    if smallest < 1:
        raise InputError("at least 1", str(smallest), option="min_spots")
    spots = np.flatnonzero(own)
    if not spots.size:
        raise InputError("a domain with spots", "one that has none", "Name another domain.")
    n_found, labels = connected_components(pattern[spots][:, spots], directed=False)
    sizes = np.bincount(labels, minlength=n_found)
    large = np.argsort(-sizes, kind="stable")[: int((sizes >= smallest).sum())]
    expected = f"at least two connected parts with {smallest:,} spot{'s' * (smallest != 1)} or more"
    if n_found == 1:
        found = f"one part, with {spots.size:,} spot{'s' * (spots.size != 1)}"
        raise InputError(expected, found, "Leave the domain as it is, or split it with `spatialpdvi label split`.")
    if large.size < 2:
        listed = ", ".join(f"{size:,}" for size in np.sort(sizes)[::-1][:5]) + (", ..." if n_found > 5 else "")
        advice = f"Lower {option('min_spots')}, or leave the domain as it is."
        raise InputError(expected, f"parts with {listed} spots", advice)
    position = np.full(n_found, -1)
    position[large] = np.arange(large.size)
    part = np.full(own.size, -1)
    part[spots] = position[labels]
    parts = part[_nearest(section, part >= 0)]
    shares = one_hot(parts, large.size)
    return Parts(parts, shares, shares)


def _nearest(section: Section, chosen: np.ndarray) -> np.ndarray:
    """The nearest of the chosen spots (n,) to each spot, in its own section where that has one; of these, itself."""
    xy = section.coordinates
    found = np.full(chosen.size, -1)
    for spots in section.spots_of_samples():
        here = spots[chosen[spots]]
        if here.size:
            found[spots] = here[cKDTree(xy[here]).query(xy[spots])[1]]
    rest = np.flatnonzero(found < 0)
    if rest.size:
        everywhere = np.flatnonzero(chosen)
        found[rest] = everywhere[cKDTree(xy[everywhere]).query(xy[rest])[1]]
    found[chosen] = np.flatnonzero(chosen)  # spots at one place keep their own
    return found


def _warn_inside(message: Warning | str) -> None:
    """Warn again of what the fit inside a domain has warned of."""
    if isinstance(message, InputWarning):
        message = InputWarning(f"The fit inside the domain: {message.args[0]}")
    warnings.warn(message, stacklevel=3)


def _normalised(posterior: np.ndarray) -> np.ndarray:
    values = posterior.astype(np.float64)
    return np.asarray(values / values.sum(axis=1, keepdims=True))
