"""Features averaged over neighbours in space, over a number of neighbours that the data can choose."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.features.build import RawFeatures
from spatialpdvi.features.projection import Space
from spatialpdvi.graph.neighbors import nearest_spots
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.stages import SmoothingSettings
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import in_blocks

__all__ = [
    "CANDIDATES",
    "SCALES",
    "SmoothedFeatures",
    "averages_of_nearest",
    "neighbor_averages",
    "predictive_neighbors",
    "smooth_features",
]

SCALES = (0.5, 1.0, 2.0)  # of the section's own number of neighbours: the scales that restarts cluster
CANDIDATES = (4, 6, 8, 12, 18, 25, 30, 40, 50, 60, 80, 100)  # neighbours
_NEAR_BEST = 0.005  # relative to the least error: the fewest neighbours within it are taken
_SAMPLED = 20_000  # spots on which the error is estimated, at most
_BLOCK = 50_000  # spots whose neighbours are in memory at a time
_AT_A_TIME = 1 << 11  # spots that a thread averages at a time


class SmoothedFeatures(NamedTuple):
    """Features of a section from which a start is found, and which are fitted once they are whitened."""

    fitted: np.ndarray | sp.csr_matrix  # (n, d): what is fitted, smoothed where dense, not yet whitened
    components: np.ndarray  # (n, p) dense, smoothed at the scale of the section: what k-means alone would cluster
    by_scale: tuple[np.ndarray, ...]  # (n, p) components smoothed at each scale: what restarts cluster
    as_given: bool  # whether `fitted` is a matrix of the file, unchanged
    space: Space | None  # None where another section cannot be brought into it
    found: dict[str, Any]  # for params


def smooth_features(
    section: Section, raw: RawFeatures, settings: SmoothingSettings, progress: Progress
) -> SmoothedFeatures:
    """Average the features of a section over neighbours in space, at the scale of the section and around it."""
    components, xy = raw.components, section.coordinates
    samples = section.neighbourhood_groups(across=settings.across_sections)
    with progress.stage("smooth") as stage:
        # An average over more than half the spots that a domain has on average would blur the domains themselves. The
        # size of sections is that in which the average spot lies, so that a few spots apart do not count as a section.
        sizes = np.array([spots.size for spots in samples], dtype=np.int64)
        most = int(sizes @ sizes // (2 * settings.n_domains * sizes.sum()))
        scale = settings.smooth
        if scale is None:
            scale = predictive_neighbors(components, xy, samples=samples, most=most, seed=settings.seed)
        scales = tuple(dict.fromkeys(min(int(factor * scale), max(most, scale)) for factor in SCALES))
        by_scale = neighbor_averages(components, xy, scales, samples=samples)
        smoothed = by_scale[scales.index(scale)]
        fitted = smoothed if raw.full is None else raw.full
        if scale and isinstance(raw.full, np.ndarray):
            (fitted,) = neighbor_averages(raw.full, xy, (scale,), samples=samples)
        stage.note(f"{scale} nearest spots" if scale else "off")
    return SmoothedFeatures(
        fitted=fitted,
        components=smoothed,
        by_scale=tuple(by_scale),
        as_given=raw.as_given and not (scale and isinstance(fitted, np.ndarray)),
        space=raw.space,
        found={**raw.found, "smooth": int(scale)},
    )


def neighbor_averages(
    features: np.ndarray, coordinates: np.ndarray, counts: Sequence[int], *, samples: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the means (n, d) of the features over each spot and its nearest others, one for each of ``counts``.

    Parameters
    ----------
    features
        (n, d); means have their type.
    coordinates
        (n, 2) or (n, 3), any unit; ties are broken by the spot's number (`nearest_spots`).
    counts
        Numbers of neighbours; 0 leaves the features as they are. Beyond n - 1 all spots are averaged.
    samples
        Spots of each section: neighbours are of the same one.
    """
    means = [np.empty_like(features) for _ in counts]
    for spots in samples:
        tree = cKDTree(coordinates[spots])
        for block in slices(spots.size, _BLOCK):
            own = spots[block]
            index = own[:, None][:, :0]
            if max(counts):
                index = spots[nearest_spots(tree, np.arange(block.start, block.stop), max(counts))]
            for mean, part in zip(means, _first_averaged(features, own, index, counts), strict=True):
                mean[own] = part
    return means


def averages_of_nearest(features: np.ndarray, nearest: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """Return the means (n, d) of the features over each spot and the first ``counts`` of its nearest (n, q).

    Parameters
    ----------
    features, counts
        As for `neighbor_averages`.
    nearest
        Numbers of the spots nearest to each, in the order of their distance.
    """
    return _first_averaged(features, np.arange(features.shape[0]), nearest, counts)


def _first_averaged(
    features: np.ndarray, own: np.ndarray, index: np.ndarray, counts: Sequence[int]
) -> list[np.ndarray]:
    """Means (b, d) over each of the spots ``own`` (b,) and the first ``counts`` of its neighbours ``index`` (b, q)."""
    means = [np.empty((own.size, features.shape[1]), dtype=features.dtype) for _ in counts]

    def average(rows: slice) -> None:
        near = index[rows]
        total = features[own[rows]].astype(np.float64)
        for taken in range(near.shape[1] + 1):
            if taken:
                total += features[near[:, taken - 1]]
            for mean, count in zip(means, counts, strict=True):
                if min(count, near.shape[1]) == taken:
                    mean[rows] = total / (taken + 1)

    in_blocks(average, own.size, _AT_A_TIME)
    return means


def predictive_neighbors(
    features: np.ndarray, coordinates: np.ndarray, *, samples: Sequence[np.ndarray], most: int, seed: int
) -> int:
    """Return the number of nearest spots whose mean predicts the features of a spot best.

    The spot itself is left out (leave-one-out cross-validation of a nearest-neighbour regression). The mean of few
    neighbours keeps their noise, the mean of many reaches into other tissue. Where the two balance depends on the
    technology and on the spacing of spots, and shows without any label. Averages blur borders, so that the smallest
    number whose error is within half a per cent of the least is taken.

    Parameters
    ----------
    features
        (n, d) float, weighted as they come: components of a PCA by their variance.
    coordinates
        (n, 2) or (n, 3), any unit.
    samples
        Spots of each section: neighbours are of the same one, and the errors of all are added up that have more spots
        than the largest number.
    most
        Largest number considered.
    seed
        Of the spots on which the error is estimated, where there are more than 20,000.
    """
    n = features.shape[0]
    candidates = [count for count in CANDIDATES if count <= min(most, max(spots.size for spots in samples) - 1)]
    if not candidates:
        return 0
    rng = np.random.default_rng(seed)
    errors = dict.fromkeys(candidates, 0.0)
    for spots in samples:
        if spots.size <= candidates[-1]:
            continue
        sampled = np.arange(spots.size)
        if n > _SAMPLED:
            sampled = np.sort(rng.choice(spots.size, -(-_SAMPLED * spots.size // n), replace=False))
        index = spots[nearest_spots(cKDTree(coordinates[spots]), sampled, candidates[-1])]
        own = features[spots[sampled]].astype(np.float64)
        total = np.zeros_like(own)
        for column in range(candidates[-1]):
            total += features[index[:, column]]
            if column + 1 in errors:
                errors[column + 1] += float(((own - total / (column + 1)) ** 2).sum())
    enough = (1.0 + _NEAR_BEST) * min(errors.values())
    return next(count for count in candidates if errors[count] <= enough)
