"""Scores of domains: their agreement with known labels, and their compactness in space.

These are pure functions of labels and coordinates; where domains come from must not matter here. Labels are integer
codes, negative for a spot without a label, or a pandas Categorical, Series or array in which such spots are missing.
Spots without a label are left out of every score.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError
from spatialpdvi.runtime.rows import slices

__all__ = [
    "SCORES",
    "adjusted_rand_index",
    "ari_of_table",
    "best_pairs",
    "chaos",
    "domain_scores",
    "expect_finite",
    "label_agreement",
    "overlap",
    "pas",
]

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

# names of scores, in the order of tables, and the heads of their columns
SCORES = {
    "ari": "ARI",
    "nmi": "NMI",
    "homogeneity": "homogeneity",
    "completeness": "completeness",
    "chaos": "CHAOS",
    "pas": "PAS",
}

_NEIGHBOURS = 10  # of PAS, as in its definition
_SPARE = 5  # enough to see all ties of the 10th neighbour on square and hexagonal lattices
_BLOCK = 1 << 20  # pairs of a spot and a neighbour that are in memory at a time
_DENSE_CELLS = 1 << 22  # a larger table of pairs of codes is counted by sorting


def domain_scores(domains: Any, coordinates: ArrayLike, *, labels: Any | None = None) -> dict[str, float | int]:
    """Compute all scores of a set of domains.

    Parameters
    ----------
    domains
        Domain of each spot, shape (n,).
    coordinates
        Coordinates, shape (n, 2) or (n, 3), in any unit.
    labels
        Known label of each spot, shape (n,), where there are any.

    Returns
    -------
    dict
        ``chaos`` and ``pas`` over all spots (lower is better), and ``n_spots``. With labels also ``n_scored``, the
        number of spots that have one, and over those spots ``ari``, ``nmi``, ``homogeneity`` and ``completeness`` (1 is
        best; NaN if no spot has a label).

    Raises
    ------
    InputError
        If the arguments are not of the same spots, or coordinates are not finite.
    """
    codes = _as_codes(domains)
    agreement = {} if labels is None else label_agreement(codes, labels)
    spatial = {"chaos": chaos(codes, coordinates), "pas": pas(codes, coordinates)}
    return {**agreement, **spatial, "n_spots": codes.size}


def adjusted_rand_index(codes_a: Any, codes_b: Any) -> float:
    """Compute the adjusted Rand index of two labellings, over the spots that have both labels.

    It is the Rand index (the share of pairs of spots on which two labellings agree), scaled so that 1 is perfect
    agreement and 0 is expected by chance (Hubert and Arabie 1985, Journal of Classification 2:193). The table of pairs
    is counted once, and its sums are exact integers that do not overflow.

    Parameters
    ----------
    codes_a, codes_b
        The labellings, each of shape (n,).

    Returns
    -------
    float
        At most 1; NaN if no spot has both labels.

    Raises
    ------
    InputError
        If the labellings differ in length or are not one column each.
    """
    a, b = _labelled_in_both(_as_codes(codes_a), _as_codes(codes_b))
    if a.size == 0:
        return float("nan")
    return _rand_index(_pair_counts(a, b), np.bincount(a), np.bincount(b))


def ari_of_table(table: np.ndarray) -> float:
    """Compute the adjusted Rand index from the numbers of spots (A, B) with each pair of labels; NaN without spots."""
    return _rand_index(table.ravel(), table.sum(axis=1), table.sum(axis=0)) if table.any() else float("nan")


def chaos(labels: Any, coordinates: ArrayLike) -> float:
    """Compute CHAOS, the mean distance of a spot to the nearest other spot of its domain; lower is more compact.

    The definition is that of SDMBench (Yuan et al. 2024, Nature Methods 21:712), after SpatialPCA (Shang and Zhou 2022,
    Nature Communications 13:7203). Coordinates are first standardised axis by axis (population standard deviation; an
    axis without spread becomes 0). Domains of one or two spots add no distance, but their spots count in the mean.
    CHAOS falls with the number of spots, so it may be compared only on the same spots.

    Parameters
    ----------
    labels
        Domain of each spot, shape (n,).
    coordinates
        Coordinates, shape (n, 2) or (n, 3), in any unit.

    Returns
    -------
    float
        Distance in standard deviations of the coordinates; NaN if no spot has a label.

    Raises
    ------
    InputError
        If the arguments are not of the same spots, or coordinates are not finite.
    """
    codes, position = _labelled_spots(labels, coordinates)
    if codes.size == 0:
        return float("nan")
    spread = position.std(axis=0)
    # the standard deviation of equal numbers need not be 0, because their mean is rounded
    flat = spread <= 1e-14 * np.abs(position).max(axis=0)
    position = np.where(flat, 0.0, (position - position.mean(axis=0)) / np.where(flat, 1, spread))
    by_domain = np.argsort(codes, kind="stable")
    total = 0.0
    for members in np.split(by_domain, np.cumsum(np.bincount(codes))[:-1]):
        if members.size > 2:
            own = position[members]
            total += float(cKDTree(own).query(own, k=[2])[0].sum())
    return total / codes.size


def pas(labels: Any, coordinates: ArrayLike) -> float:
    """Compute PAS, the share of spots with more than half of their 10 nearest neighbours in other domains.

    Lower is smoother. The definition is that of SDMBench (Yuan et al. 2024, Nature Methods 21:712), after SpatialPCA
    (Shang and Zhou 2022, Nature Communications 13:7203). Coordinates are not rescaled, and a spot is not its own
    neighbour. Of equally distant neighbours, those in earlier rows count, so that the result does not depend on
    rounding. With fewer than 11 spots, all others are neighbours.

    Parameters
    ----------
    labels
        Domain of each spot, shape (n,).
    coordinates
        Coordinates, shape (n, 2) or (n, 3), in any unit.

    Returns
    -------
    float
        Between 0 and 1; NaN if no spot has a label.

    Raises
    ------
    InputError
        If the arguments are not of the same spots, or coordinates are not finite.
    """
    codes, position = _labelled_spots(labels, coordinates)
    n = codes.size
    if n < 2:
        return 0.0 if n else float("nan")
    k = min(_NEIGHBOURS, n - 1)
    tree = cKDTree(position)
    abnormal = 0
    for rows in slices(n, _BLOCK // (_NEIGHBOURS + _SPARE)):
        spots = np.arange(rows.start, rows.stop)
        neighbours = _nearest_with_all_ties(tree, spots, k)
        differ = (codes[neighbours] != codes[spots][:, None]).sum(axis=1)
        abnormal += int((differ > k / 2).sum())
    return abnormal / n


def _nearest_with_all_ties(tree: cKDTree, spots: Codes, k: int) -> Codes:
    """The ``k`` nearest other spots, shape (len(spots), k), with any number of ties, as where many spots coincide."""
    from spatialpdvi.graph.neighbors import order_nearest  # not at the top: plots need tables of labels, not numba

    chosen = np.empty((spots.size, k), dtype=np.int64)
    todo, spare = np.arange(spots.size), _SPARE
    while todo.size:
        undecided = []
        for part in np.array_split(todo, -(-todo.size * (k + spare) // _BLOCK)):
            rank, near = order_nearest(tree, spots[part], k, spare=spare)
            chosen[part] = near[:, :k]
            if near.shape[1] < tree.n - 1:  # there are more spots, which may tie with the k-th as well
                undecided.append(part[rank[:, -1] == rank[:, k - 1]])
        todo = np.concatenate(undecided) if undecided else todo[:0]
        spare = 2 * spare + k
    return chosen


def label_agreement(domains: Any, labels: Any) -> dict[str, float | int]:
    """Compare domains with known labels, over the spots that have both.

    Parameters
    ----------
    domains, labels
        Domain and known label of each spot, each of shape (n,).

    Returns
    -------
    dict
        ``ari`` (Hubert and Arabie 1985), ``nmi`` (mutual information over the mean of the two entropies),
        ``homogeneity`` and ``completeness`` (Rosenberg and Hirschberg 2007), NaN if no spot has a label; and
        ``n_scored``, the number of spots that were compared.

    Raises
    ------
    InputError
        If domains and labels differ in length.
    """
    domain, label = _as_codes(domains), _as_codes(labels)
    ari = adjusted_rand_index(domain, label)
    domain, label = _labelled_in_both(domain, label)
    homogeneity, completeness, nmi = _shared_information(label, domain)
    return {
        "ari": ari,
        "nmi": nmi,
        "homogeneity": homogeneity,
        "completeness": completeness,
        "n_scored": label.size,
    }


def _shared_information(label: Codes, domain: Codes) -> tuple[float, float, float]:
    """Mutual information over the entropy of labels, over that of domains, and over the mean of both; NaN for no spots.

    Not scikit-learn's, whose import takes longer than all else in the scoring of a section.
    """
    if not label.size:
        return float("nan"), float("nan"), float("nan")
    of_labels, of_domains, of_pairs = (
        _entropy(counts) for counts in (np.bincount(label), np.bincount(domain), _pair_counts(label, domain))
    )
    shared = max(0.0, of_labels + of_domains - of_pairs)
    both = of_labels + of_domains
    return (
        shared / of_labels if of_labels else 1.0,
        shared / of_domains if of_domains else 1.0,
        2.0 * shared / both if both else 1.0,
    )


def _entropy(counts: Codes) -> float:
    """Entropy in nats of a spot's group, where groups have so many spots; exactly 0 for a single group."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum()) + 0.0


def _as_codes(labels: Any) -> Codes:
    """Codes 0, 1, ... of shape (n,); -1 for a spot without a label."""
    if isinstance(labels, pd.Series):
        labels = labels.array
    if isinstance(labels, pd.Categorical):
        return np.asarray(labels.codes, dtype=np.int64)
    values = np.asarray(labels)
    if values.ndim != 1:
        raise InputError("labels in one column", f"an array of shape {values.shape}", "Give one label per spot.")
    if not np.issubdtype(values.dtype, np.integer):
        return np.asarray(pd.factorize(values)[0], dtype=np.int64)
    codes = np.maximum(values.astype(np.int64, copy=False), -1)
    if codes.size and codes.max() > codes.size:  # numbers used as names: a table by code would be far too long
        named = codes >= 0
        codes[named] = np.unique(codes[named], return_inverse=True)[1]
    return codes


def _rand_index(pairs: np.ndarray, in_a: np.ndarray, in_b: np.ndarray) -> float:
    """Adjusted Rand index from the numbers of spots with each pair of labels, with each label a, with each label b."""
    n = int(in_a.sum())
    # ordered pairs of spots with equal labels in both, in a, in b; and all pairs: below 2^63 up to 3e9 spots
    both, a, b = (_square_sum(counts) - n for counts in (pairs, in_a, in_b))
    every = n * (n - 1)
    if both == a == b:  # one and the same partition
        return 1.0
    return 2 * (both * every - a * b) / ((a + b) * every - 2 * a * b)


def _labelled_in_both(a: Codes, b: Codes) -> tuple[Codes, Codes]:
    if a.size != b.size:
        raise InputError(
            "as many labels as domains",
            f"{b.size} labels for {a.size} domains",
            "Give one of each for every spot.",
        )
    both = (a >= 0) & (b >= 0)
    return (a, b) if both.all() else (a[both], b[both])


def expect_finite(position: np.ndarray) -> None:
    """Raise an `InputError` where coordinates (n, 2|3) hold NaN or infinity."""
    n_bad = int((~np.isfinite(position).all(axis=1)).sum())
    if n_bad:
        raise InputError(
            "finite coordinates",
            f"{n_bad} spots with NaN or infinity" if n_bad > 1 else "1 spot with NaN or infinity",
            "Remove these spots, or correct their coordinates.",
        )


def _labelled_spots(labels: Any, coordinates: ArrayLike) -> tuple[Codes, Floats]:
    codes = _as_codes(labels)
    position = np.asarray(coordinates, dtype=np.float64)
    if position.ndim != 2 or len(position) != codes.size:
        raise InputError(
            f"coordinates of shape ({codes.size}, 2) or ({codes.size}, 3), since there are {codes.size} labels",
            f"shape {position.shape}",
            "Give both for the same spots.",
        )
    expect_finite(position)
    known = codes >= 0
    return codes[known], position[known]


def _pair_counts(a: Codes, b: Codes) -> Codes:
    width = int(b.max()) + 1
    pair = a * width + b
    if (int(a.max()) + 1) * width <= _DENSE_CELLS:
        return np.bincount(pair)
    return np.asarray(np.unique(pair, return_counts=True)[1])


def _square_sum(counts: Codes) -> int:
    counts = counts.astype(np.int64, copy=False)
    return int(counts @ counts)


def overlap(first: np.ndarray, second: np.ndarray, *, shape: tuple[int, int]) -> np.ndarray:
    """Count the spots (A, B) with each pair of labels, the contingency table of two labellings.

    scikit-learn's `contingency_matrix` sorts the labels and leaves out those that do not occur. For 10^6 spots it took
    30 times as long as this count (0.5 s and 0.016 s).

    Parameters
    ----------
    first, second
        Labels (n,), whole numbers in 0..A-1 and in 0..B-1. A spot with a negative number has no label, and is not
        counted.
    shape
        A and B.
    """
    known = (first >= 0) & (second >= 0)
    if not known.all():
        first, second = first[known], second[known]
    pairs = first.astype(np.int64) * shape[1] + second
    return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)


def best_pairs(common: np.ndarray) -> list[tuple[int, int]]:
    """Pair the labels of two labellings one to one, such that the pairs have as many spots in common as possible.

    Parameters
    ----------
    common
        Spots (A, B) with each pair of labels, from `overlap`.

    Returns
    -------
    list
        The pairs by rising first label, without those that have no spot in common.
    """
    from scipy.optimize import linear_sum_assignment  # not at the top: scores need none of it

    pairs = zip(*(labels.tolist() for labels in linear_sum_assignment(common, maximize=True)), strict=True)
    return [(first, second) for first, second in pairs if common[first, second] > 0]
