r"""The domains of a fitted section at other places of it, such as smaller bins or cells.

Each place x takes the domain of the fitted spot i that is nearest, so that a place inside a bin has the domain of that
bin. Its posterior follows those of the q = 9 nearest spots, at distances d_1 to d_q,

    s(x) = sum_j w_j phi_j,   w_j ~ (d_q / d_j - 1)^2                                                          (T1)
    p(x) = phi_i + t (s(x) - phi_i)                                                                            (T2)

(T1) is Shepard's interpolation as modified by Franke and Little: it has the posterior of a spot where the spot lies,
and it is continuous, because the weight of a spot has fallen to zero where another one takes its place among the q. In
(T2), t is the largest number up to 1 with which no other domain overtakes that of spot i. With smooth borders p is s
itself, and the domain is its largest entry.
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.runtime.rows import some_rows
from spatialpdvi.runtime.threads import in_blocks

__all__ = ["BORDERS", "Carried", "FittedSpots", "carry"]

BORDERS = ("spots", "smooth")

_NEAREST = 9  # spots that have a weight: on a square lattice the bin and those around it
_ROUND = 4  # the distance to this neighbour is how far a spot reaches: the next bin on a lattice
_SAMPLE = 50_000  # spots over which a median is taken, or a share
_BLOCK = 1 << 14  # places that a thread has in work at a time
_SAME = 1e-9  # distances that differ by less, as a share, are equal
_MOST = 0.95  # of the spots have a domain where both are of the same tissue
_CLEARLY = 0.1  # more of them, with the axes exchanged, say that their order differs
_AHEAD = 1e-3  # by how much the domain stays ahead of the others in (T2), if it was so far ahead
_ALIKE = 1.2  # factors along the axes that differ by less come from one factor between two units
_OTHER_UNIT = 1.25  # factors between two units are at least this, or at most its inverse
_AT_PLACE = 0.1  # of the extent: how well the corners fit once coordinates are scaled
_ABSURD = 100.0  # no two resolutions of one section differ by this factor in extent and in spacing


class FittedSpots(NamedTuple):
    """The n fitted spots of one section."""

    coordinates: np.ndarray  # (n, 2|3)
    codes: np.ndarray  # (n,) domain of each
    posterior: np.ndarray  # (n, K) float64
    calibrated: np.ndarray | None  # (n, K) float64


class Carried(NamedTuple):
    """What m places of one section take from its fitted spots."""

    codes: np.ndarray  # (m,) int64; -1 for a place that is too far from the fitted spots
    posterior: np.ndarray  # (m, K) float32; NaN for these places
    calibrated: np.ndarray | None  # (m, K) float32
    limit: float  # the largest distance to a fitted spot


def carry(
    fit: FittedSpots,
    places: np.ndarray,
    *,
    borders: str = "spots",
    limit: float | None = None,
    section: str | None = None,
    scale: float = 1.0,
) -> Carried:
    """Carry the domains of the fitted spots of a section to other places of it (T1, T2).

    Parameters
    ----------
    fit
        The fitted spots.
    places
        (m, 2) or (m, 3), in the unit of the fit.
    borders
        "spots": a place has the domain of the nearest spot, of equally near ones that of the first. "smooth": it has
        the largest interpolated posterior.
    limit
        Places farther from every spot have no domain; by default the median distance of a fitted spot to its fourth
        neighbour, which is the spacing on a square or hexagonal lattice.
    section
        Its name in messages, where there are several.
    scale
        By what the places were multiplied already, for the advice of messages.

    Raises
    ------
    InputError
        Where no place is near a fitted spot, or the coordinates cannot be of one unit.
    """
    tree = cKDTree(fit.coordinates)
    limit = _reach(tree) if limit is None else limit
    where = "" if section is None else f" of section {section!r}"
    _check_units(fit.coordinates, places, where)
    near = (1.0 + _SAME) * limit
    codes = np.full(places.shape[0], -1, dtype=np.int64)
    shape = (places.shape[0], fit.posterior.shape[1])
    posterior = np.full(shape, np.nan, dtype=np.float32)
    calibrated = None if fit.calibrated is None else np.full(shape, np.nan, dtype=np.float32)

    def fill(block: slice) -> None:
        distance, spots = tree.query(places[block], k=np.arange(1, min(_NEAREST, tree.n) + 1))
        inside = distance[:, 0] <= near
        rows, distance, spots = block.start + np.flatnonzero(inside), distance[inside], spots[inside]
        weights, own = _weights(distance), _nearest(tree, places[rows], distance, spots)
        smooth = _interpolated(fit.posterior, spots, weights)
        codes[rows] = smooth.argmax(axis=1) if borders == "smooth" else fit.codes[own]
        posterior[rows] = smooth if borders == "smooth" else _towards(fit.posterior[own], smooth, codes[rows])
        if fit.calibrated is not None and calibrated is not None:
            smooth = _interpolated(fit.calibrated, spots, weights)
            calibrated[rows] = smooth if borders == "smooth" else _towards(fit.calibrated[own], smooth, codes[rows])

    in_blocks(fill, places.shape[0], _BLOCK)
    _check_found(tree, places, codes, limit, where, scale=scale)
    return Carried(codes, posterior, calibrated, limit)


def _reach(tree: cKDTree) -> float:
    """The median distance of a spot to its fourth neighbour at another place."""
    found = _neighbour(tree, _ROUND)
    if found == 0.0:  # many spots lie at one place
        places = np.unique(tree.data, axis=0)
        found = _neighbour(cKDTree(places), _ROUND) if places.shape[0] > 1 else 0.0
    if found == 0.0:
        raise InputError(
            "fitted spots at two places or more, whose spacing says how far they reach",
            f"{tree.n:,} at one place",
            f"Give the distance with {option('max_distance')}.",
        )
    return found


def _neighbour(tree: cKDTree, k: int) -> float:
    """The median distance of a spot to its k-th neighbour, or to the last where there are fewer."""
    if tree.n < 2:
        return 0.0
    some = tree.data[:: -(-tree.n // _SAMPLE)]
    distance, _ = tree.query(some, k=[min(k, tree.n - 1) + 1])
    return float(np.median(distance))


def _weights(distance: np.ndarray) -> np.ndarray:
    """The weights (b, q) of (T1), rows sum to 1, from ascending distances (b, q)."""
    last = distance[:, -1:]
    share = np.divide(distance, last, out=np.ones_like(distance), where=last > 0.0)
    at_spot = share[:, 0] <= _SAME
    weights = np.where(share <= _SAME, 1.0, 0.0)
    weights[~at_spot] = (1.0 / share[~at_spot] - 1.0) ** 2
    weights[weights.sum(axis=1) == 0.0] = 1.0  # all equally far
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _nearest(tree: cKDTree, places: np.ndarray, distance: np.ndarray, spots: np.ndarray) -> np.ndarray:
    """The nearest spot (b,), of equally near ones the first, whatever the order in which the tree returns them."""
    reach = distance[:, 0] * (1.0 + _SAME)
    tied = distance <= reach[:, None]
    nearest = np.asarray(np.where(tied, spots, np.iinfo(spots.dtype).max).min(axis=1))
    more = np.flatnonzero(tied.all(axis=1)) if spots.shape[1] < tree.n else np.zeros(0, dtype=np.int64)
    if more.size:  # as many spots lie at one place, and there may be others there
        nearest[more] = [min(found) for found in tree.query_ball_point(places[more], reach[more])]
    return nearest


def _interpolated(values: np.ndarray, spots: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted means (b, K) of the rows (b, q) of values (n, K)."""
    total = weights[:, :1] * values[spots[:, 0]]
    for j in range(1, spots.shape[1]):
        total += weights[:, j : j + 1] * values[spots[:, j]]
    return total


def _towards(own: np.ndarray, smooth: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """(T2): from the posteriors of the nearest spots towards the interpolated ones, (b, K) each."""
    row = np.arange(codes.size)
    margin = own[row, codes][:, None] - own
    there = smooth[row, codes][:, None] - smooth
    least = np.minimum(margin, _AHEAD)
    share = np.divide(margin - least, margin - there, out=np.ones_like(own), where=there < least)
    return np.asarray(own + share.min(axis=1, keepdims=True) * (smooth - own))


def _check_units(fitted: np.ndarray, places: np.ndarray, where: str) -> None:
    """Raise an error where extent and spacing both differ so much that units must be others."""
    factors = _factors(fitted, places)
    if not factors.size or not (factors.min() >= _ABSURD or factors.max() <= 1.0 / _ABSURD):
        return
    spacing, other = _neighbour(cKDTree(fitted), 1), _neighbour(cKDTree(places), 1)
    if not spacing or not other or 1.0 / _ABSURD < other / spacing < _ABSURD:
        return  # a small part of the section, or a much larger one, in the same unit
    raise InputError(
        f"coordinates{where} in the unit of the fit, whose spots are {spacing:.4g} apart",
        f"spots that are {other:.4g} apart, and an extent that is {np.median(factors):.3g} times that of the fit",
        f"Bring them to one unit: pixels and micrometres, for example, by {option('scale')}, which multiplies the "
        f"coordinates to which domains are carried.",
    )


def _check_found(
    tree: cKDTree, places: np.ndarray, codes: np.ndarray, limit: float, where: str, *, scale: float
) -> None:
    """Raise an error where no place has a domain; warn where few have, or where units or axes seem to differ."""
    fitted = np.asarray(tree.data)
    share, factor = float((codes >= 0).mean()), _other_unit(tree, places)
    right = "" if factor is None else f"{option('scale', float(f'{scale / factor:.3g}'))}, estimated from the extents"
    boxes = f"{_box(places)}, and of the fit {_box(fitted)}"
    if share == 0.0:
        if right:
            advice = f"They look like those of the fit in another unit, such as pixels and micrometres: try {right}."
        elif _are_other_planes(fitted, places, limit):
            advice = (
                "They lie in another plane. Other sections get their domains from a model, with `spatialpdvi predict`, "
                f"or from the nearest plane with a larger {option('max_distance')}."
            )
        else:
            advice = (
                "Are both of the same section, with the same origin and unit (pixels or micrometres)? "
                f"{option('scale')} multiplies the coordinates to which domains are carried."
            )
        expected = f"spots{where} within {limit:.4g} of a fitted spot"
        raise InputError(expected, f"none: their coordinates are {boxes}", advice)
    if right:
        text = (
            f"The coordinates{where} extend over {factor:.3g} times the extent of the fit, along both axes, as if they "
            f"were in another unit (pixels and micrometres, for example). If they are, try {right}."
        )
        warnings.warn(InputWarning(text), stacklevel=3)
    elif (exchanged := _share_exchanged(tree, places, limit) if share < _MOST else 0.0) > share + _CLEARLY:
        text = (
            f"Only {share:.1%} of the spots{where} are within {limit:.4g} of a fitted spot, and {exchanged:.1%} would "
            "be with x and y exchanged. Exchange them if they are in another order than those of the fit."
        )
        warnings.warn(InputWarning(text), stacklevel=3)
    elif share < 0.5:
        text = (
            f"Only {share:.1%} of the spots{where} are within {limit:.4g} of a fitted spot; all others have no domain. "
            f"Their coordinates are {boxes}. Check origin and unit, or give {option('max_distance')}."
        )
        warnings.warn(InputWarning(text), stacklevel=3)


def _share_exchanged(tree: cKDTree, places: np.ndarray, limit: float) -> float:
    """The share of the places that would be near a fitted spot with x and y exchanged, of a sample."""
    exchanged = some_rows(places, 0, _SAMPLE).copy()
    exchanged[:, :2] = exchanged[:, 1::-1]
    distance, _ = tree.query(exchanged, distance_upper_bound=(1.0 + _SAME) * limit)
    return float(np.isfinite(distance).mean())


def _factors(fitted: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The extent of the places over that of the fit, along each axis where both have one."""
    extent, other = np.ptp(fitted, axis=0), np.ptp(places, axis=0)
    known = (extent > 0.0) & (other > 0.0)
    return np.asarray(other[known] / extent[known])


def _are_other_planes(fitted: np.ndarray, places: np.ndarray, limit: float) -> bool:
    """Whether the places lie beside the fit in x and y, and beyond the limit of it in z."""
    low, high = np.maximum(fitted.min(axis=0), places.min(axis=0)), np.minimum(fitted.max(axis=0), places.max(axis=0))
    return low.size > 2 and bool((low[:2] <= high[:2]).all() and low[2] > high[2] + limit)


def _other_unit(tree: cKDTree, places: np.ndarray) -> float | None:
    """The factor by which the places lie where the fit does; None where there is none that is far from 1."""
    fitted = np.asarray(tree.data)
    factors = _factors(fitted[:, :2], places[:, :2])
    if factors.size < 2 or factors.max() > _ALIKE * factors.min():
        return None
    factor = float(np.sqrt(factors.prod()))
    if 1.0 / _OTHER_UNIT < factor < _OTHER_UNIT:
        return None
    near = _AT_PLACE * np.ptp(fitted, axis=0)
    if near.size > 2:  # other sections of one tissue differ in extent as well, but lie in other planes
        near[2] += _neighbour(tree, 1)
    corners = [edge(fitted, axis=0) - edge(places, axis=0) / factor for edge in (np.min, np.max)]
    return factor if (np.abs(corners) <= near).all() else None


def _box(coordinates: np.ndarray) -> str:
    """The extent along each axis, in words."""
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    return ", ".join(f"{axis} {a:.6g} to {b:.6g}" for axis, a, b in zip("xyz", low, high, strict=False))
