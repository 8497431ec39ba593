"""Colours for many categories, chosen such that domains that touch in space are easy to tell apart.

The module does without matplotlib, because every fit uses it; colours are hexadecimal strings.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from spatialpdvi.runtime.threads import nearest

__all__ = ["UNLABELLED", "border_lengths", "domain_colours", "further_colours", "palette"]

UNLABELLED = "#dedede"

Floats = NDArray[np.float64]

# the first colours were chosen by hand
_FIRST = (
    *("#3f6fb5", "#f08a24", "#3f9b4b", "#cf3d3e", "#8e63b0"),
    *("#7a4f36", "#e88ac4", "#c9c22b", "#35b8c6", "#1c2f6b"),
    *("#9edb6a", "#b0286a", "#a9c4ef", "#5b6320", "#f7c28c"),
    *("#1f6f6b", "#c9a6e4", "#5f2a6b", "#f28f86", "#7d8fa3"),
)

_NEIGHBOURS = 6  # nearest spots between which borders are counted: those of a hexagonal lattice
_MOST = 128  # domains: the colours of more cannot be told apart, however they are assigned


@lru_cache
def palette(n: int) -> tuple[str, ...]:
    """Return ``n`` colours as hexadecimal strings, each as different as possible from those before it.

    A longer palette begins with the colours of a shorter one.
    """
    chosen = _FIRST[:n]
    return (*chosen, *further_colours(n - len(chosen), taken=chosen))


def further_colours(n: int, *, taken: Sequence[str]) -> list[str]:
    """Return ``n`` colours, each as different as possible from those ``taken`` (hexadecimal) and those before it."""
    if n < 1:
        return []
    candidates = _candidates()
    place = _oklab(candidates)
    # white paper and the grey of unlabelled spots are taken already
    nearest = np.min([_distance(place, _oklab(_rgb(colour))) for colour in (*taken, UNLABELLED, "#ffffff")], axis=0)
    chosen = []
    for _ in range(n):
        best = int(np.argmax(nearest))
        chosen.append("#" + "".join(f"{round(255 * value):02x}" for value in candidates[best]))
        nearest = np.minimum(nearest, _distance(place, place[best]))
    return chosen


def border_lengths(
    domains: np.ndarray, coordinates: np.ndarray, n_domains: int, *, samples: Sequence[np.ndarray]
) -> np.ndarray:
    """Count the pairs of nearest spots across the border of each two domains.

    Parameters
    ----------
    domains
        (n,) codes in 0..K-1.
    coordinates
        (n, 2) or (n, 3), any unit.
    n_domains
        K.
    samples
        Spots of each section; there are no borders between sections.

    Returns
    -------
    numpy.ndarray
        Counts (K, K), symmetric, 0 on the diagonal.
    """
    length = np.zeros((n_domains, n_domains))
    for spots in samples:
        own = domains[spots]
        # each spot is its own first neighbour, and counts on the diagonal, which is set to 0 in the end
        _, near = nearest(cKDTree(coordinates[spots]), coordinates[spots], min(1 + _NEIGHBOURS, spots.size))
        pairs = own[:, None] * n_domains + own[near.reshape(spots.size, -1)]
        length += np.bincount(pairs.ravel(), minlength=n_domains**2).reshape(n_domains, n_domains)
    length += length.T.copy()
    np.fill_diagonal(length, 0.0)
    return length


def domain_colours(length: np.ndarray) -> tuple[str, ...]:
    """Assign a colour of the palette to each domain, so that domains with a common border have very different colours.

    The assignment makes the sum of w_ab / d_ab^2 over pairs of domains small. Here d_ab is the distance of the two
    colours in OKLab, and w_ab the share of a's border that is with b plus the share of b's border that is with a, so
    that a thin layer counts as much as the domains around it. Starting with the order of the palette, the best exchange
    of two colours is made until no exchange lowers the sum (the quadratic assignment problem of Koopmans and Beckmann,
    1957, by pair exchange). The result does not depend on a seed.

    Parameters
    ----------
    length
        Borders (K, K), as `border_lengths` returns them.

    Returns
    -------
    tuple
        K colours as hexadecimal strings.
    """
    k = length.shape[0]
    colours = palette(k)
    if k > _MOST:
        return colours
    whole = length.sum(axis=1, keepdims=True)
    share = np.divide(length, whole, out=np.zeros_like(length), where=whole > 0)
    weight = share + share.T
    place = _oklab(np.array([_rgb(colour) for colour in colours]))
    similarity = 1.0 / (_distance(place[:, None], place) ** 2 + 1e-4)
    np.fill_diagonal(similarity, 0.0)
    assigned = np.arange(k)
    while True:
        own = similarity[assigned][:, assigned]
        # not a BLAS product, whose last bits may depend on the number of threads
        both = np.einsum("ac,cb->ab", weight, own)
        alone = np.diag(both)
        change = both + both.T - alone[:, None] - alone + 2.0 * weight * own
        a, b = np.unravel_index(int(np.argmin(change)), change.shape)
        if change[a, b] > -1e-9 * weight.size:
            return tuple(colours[i] for i in assigned)
        assigned[[a, b]] = assigned[[b, a]]


def _rgb(colour: str) -> Floats:
    return np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255


def _candidates() -> Floats:
    """Return a grid of colours, without the nearly white, the nearly black and the greyish ones."""
    steps = np.linspace(0, 1, 20)
    rgb = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, a, b = _oklab(rgb).T
    chroma = np.hypot(a, b)
    kept = (lightness > 0.36) & (lightness < 0.88) & (chroma > 0.05) & (chroma < 0.2)
    return np.asarray(rgb[kept])


def _distance(place: Floats, other: Floats) -> Floats:
    """Return the distance in OKLab, where lightness counts less because it is hard to see on small patches."""
    return np.asarray(np.linalg.norm((place - other) * [0.8, 1, 1], axis=-1))


def _oklab(rgb: Floats) -> Floats:
    """Return lightness, green-red and blue-yellow of OKLab, in which equal steps look equal (Ottosson, 2020)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = linear @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    return np.asarray(
        np.cbrt(cones)
        @ np.array(
            [
                [0.2104542553, 1.9779984951, 0.0259040371],
                [0.7936177850, -2.4285922050, 0.7827717662],
                [-0.0040720468, 0.4505937099, -0.8086757660],
            ]
        )
    )
