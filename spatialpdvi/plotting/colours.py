"""Colours for many categories, and the same colours for the categories of two maps that overlap."""

from functools import lru_cache

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

__all__ = ["UNLABELLED", "match_colours", "palette"]

UNLABELLED = "#dedede"

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The first colours are chosen by hand: calm ones, with names.
_FIRST = (
    *("#3f6fb5", "#f08a24", "#3f9b4b", "#cf3d3e", "#8e63b0"),
    *("#7a4f36", "#e88ac4", "#c9c22b", "#35b8c6", "#1c2f6b"),
    *("#9edb6a", "#b0286a", "#a9c4ef", "#5b6320", "#f7c28c"),
    *("#1f6f6b", "#c9a6e4", "#5f2a6b", "#f28f86", "#7d8fa3"),
)


@lru_cache
def palette(n: int) -> tuple[str, ...]:
    """``n`` colours as hexadecimal strings; each is as far as can be from those before it.

    The first of a longer palette are those of a shorter one.
    """
    chosen = list(_FIRST[:n])
    candidates = _candidates()
    place = _oklab(candidates)
    # White paper and the grey of unlabelled spots are taken already.
    taken = [_rgb(colour) for colour in (*chosen, UNLABELLED, "#ffffff")]
    nearest = np.min([_distance(place, _oklab(colour)) for colour in taken], axis=0)
    for _ in range(n - len(chosen)):
        best = int(np.argmax(nearest))
        chosen.append(to_hex(candidates[best]))
        nearest = np.minimum(nearest, _distance(place, place[best]))
    return tuple(chosen)


def match_colours(domains: Ints, annotation: Ints | None = None) -> tuple[list[str], list[str]]:
    """Colours of the domains and of the annotation; a domain has that of the label it covers best.

    Parameters
    ----------
    domains
        Code of each spot, shape (n,), -1 for none.
    annotation
        The same for the labels to compare with, where there are any.

    Returns
    -------
    tuple
        A colour per domain and a colour per label. Pairs share as many spots as one-to-one pairs
        can; domains in no pair have colours of their own.
    """
    n_domains = int(domains.max(initial=-1)) + 1
    if annotation is None:
        return list(palette(n_domains)), []
    n_labels = int(annotation.max(initial=-1)) + 1
    both = (domains >= 0) & (annotation >= 0)
    overlap = np.zeros((n_domains, n_labels), dtype=np.int64)
    np.add.at(overlap, (domains[both], annotation[both]), 1)
    partner = np.full(n_domains, -1)
    for domain, label in zip(*linear_sum_assignment(overlap, maximize=True), strict=True):
        if overlap[domain, label] > 0:
            partner[domain] = label
    alone = np.flatnonzero(partner < 0)
    colours = palette(n_labels + alone.size)
    partner[alone] = n_labels + np.arange(alone.size)
    return [colours[index] for index in partner], list(colours[:n_labels])


def _rgb(colour: str) -> Floats:
    return np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255


def _candidates() -> Floats:
    """A grid of colours, without the nearly white, the nearly black and the greyish."""
    steps = np.linspace(0, 1, 20)
    rgb = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, a, b = _oklab(rgb).T
    chroma = np.hypot(a, b)
    kept = (lightness > 0.36) & (lightness < 0.88) & (chroma > 0.05) & (chroma < 0.2)
    return np.asarray(rgb[kept])


def _distance(place: Floats, other: Floats) -> Floats:
    """Distance in OKLab; lightness counts less, since small patches of it are hard to tell apart."""
    return np.asarray(np.linalg.norm((place - other) * [0.8, 1, 1], axis=-1))


def _oklab(rgb: Floats) -> Floats:
    """Lightness, green-red and blue-yellow, in which equal steps look equal (Ottosson, 2020)."""
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
