"""How good a set of domains is: agreement with known labels, and compactness in space.

Pure functions of labels and coordinates. Labels are integer codes, negative for "unlabelled", or a
pandas Categorical, Series or array in which the unlabelled are missing. Unlabelled spots take no
part in any score.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree
from sklearn.metrics import homogeneity_completeness_v_measure

from spatialpdvi.errors import InputError, expect_finite

__all__ = ["adjusted_rand_index", "ari_of_table", "chaos", "contingency", "label_agreement", "overlap", "pas", "scores"]

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]

_NEIGHBOURS = 10
_QUERIED = 16  # enough for all ties of the 10th neighbour on square and hexagonal lattices
_BLOCK = 1 << 20  # pairs of a spot and a neighbour in hand at a time
_SAME = 1e-9  # relative difference of distances that is rounding, as on lattices in microns
_DENSE_CELLS = 1 << 22  # a larger table of pairs of codes is counted by sorting


def scores(domains: Any, coordinates: ArrayLike, *, labels: Any | None = None) -> dict[str, float | int]:
    """All scores of a set of domains.

    Parameters
    ----------
    domains
        Domain of each spot, shape (n,).
    coordinates
        Positions, shape (n, 2) or (n, 3), in any unit.
    labels
        Known label of each spot, shape (n,), where there are any.

    Returns
    -------
    dict
        ``chaos`` and ``pas`` over all spots (lower is better) and ``n_spots``. Where labels are
        given also ``n_scored``, the number of spots with a label, and over those ``ari``, ``nmi``,
        ``homogeneity`` and ``completeness`` (1 is best; NaN if no spot has a label).
    """
    codes = _as_codes(domains)
    agreement = {} if labels is None else label_agreement(codes, labels)
    spatial = {"chaos": chaos(codes, coordinates), "pas": pas(codes, coordinates)}
    return {**agreement, **spatial, "n_spots": codes.size}


def adjusted_rand_index(codes_a: Any, codes_b: Any) -> float:
    """Adjusted Rand index of two labellings of shape (n,), over the spots that have both.

    The table of pairs is counted once and the sums are exact integers, so that 10^7 spots are
    neither slow nor an overflow. NaN if no spot has both labels.
    """
    a, b = _labelled_in_both(_as_codes(codes_a), _as_codes(codes_b))
    if a.size == 0:
        return float("nan")
    return _rand_index(_pair_counts(a, b), np.bincount(a), np.bincount(b))


def ari_of_table(table: np.ndarray) -> float:
    """Adjusted Rand index of two labellings from the number of spots with each pair of labels (a, b)."""
    return _rand_index(table.ravel(), table.sum(axis=1), table.sum(axis=0)) if table.any() else float("nan")


def contingency(codes: np.ndarray, domains: np.ndarray, n_domains: int) -> np.ndarray:
    """Spots (labels, domains) with each pair of a known label and a domain; a code below 0 is no label."""
    known = codes >= 0
    n_labels = int(codes.max(initial=-1)) + 1
    pairs = codes[known] * n_domains + domains[known]
    return np.bincount(pairs, minlength=n_labels * n_domains).reshape(n_labels, n_domains)


def chaos(labels: Any, coordinates: ArrayLike) -> float:
    """Mean distance of a spot to the nearest other spot of its cluster; lower is more compact.

    Coordinates are first standardised axis by axis (population standard deviation; an axis without
    spread stays 0). Clusters of one or two spots add no distance, yet their spots count in the
    mean. The value falls with the number of spots: compare it on the same spots only.

    Parameters
    ----------
    labels
        Cluster of each spot, shape (n,).
    coordinates
        Positions, shape (n, 2) or (n, 3), in any unit.

    Returns
    -------
    float
        Distance in standard deviations of the coordinates; NaN if no spot is labelled.
    """
    codes, position = _labelled_spots(labels, coordinates)
    if codes.size == 0:
        return float("nan")
    spread = position.std(axis=0)
    # The spread of equal numbers need not be 0, for their mean is rounded.
    flat = spread <= 1e-14 * np.abs(position).max(axis=0)
    position = np.where(flat, 0.0, (position - position.mean(axis=0)) / np.where(flat, 1, spread))
    by_cluster = np.argsort(codes, kind="stable")
    total = 0.0
    for members in np.split(by_cluster, np.cumsum(np.bincount(codes))[:-1]):
        if members.size > 2:
            own = position[members]
            total += float(cKDTree(own).query(own, k=[2])[0].sum())
    return total / codes.size


def pas(labels: Any, coordinates: ArrayLike) -> float:
    """Share of spots most of whose 10 nearest neighbours are of another cluster; lower is smoother.

    Neighbours are nearest in the coordinates as they are, without the spot itself; of equally
    distant ones, those that come first in the data. With fewer than 11 spots, all others are
    neighbours.

    Parameters
    ----------
    labels
        Cluster of each spot, shape (n,).
    coordinates
        Positions, shape (n, 2) or (n, 3), in any unit.

    Returns
    -------
    float
        Between 0 and 1; NaN if no spot is labelled.
    """
    codes, position = _labelled_spots(labels, coordinates)
    n = codes.size
    if n < 2:
        return 0.0 if n else float("nan")
    k = min(_NEIGHBOURS, n - 1)
    tree = cKDTree(position)
    abnormal = 0
    step = _BLOCK // _QUERIED
    for start in range(0, n, step):
        spots = np.arange(start, min(start + step, n))
        neighbours = _nearest_others(tree, spots, k=k)
        differ = (codes[neighbours] != codes[spots][:, None]).sum(axis=1)
        abnormal += int((differ > k / 2).sum())
    return abnormal / n


def _nearest_others(tree: cKDTree, spots: Codes, *, k: int) -> Codes:
    """The ``k`` nearest other spots, shape (len(spots), k); ties go to the smaller index."""
    chosen = np.empty((spots.size, k), dtype=np.int64)
    todo = np.arange(spots.size)
    queried = min(_QUERIED, tree.n)
    while todo.size:
        undecided = []
        for part in np.array_split(todo, -(-todo.size * queried // _BLOCK)):
            chosen[part], decided = _nearest_of_queried(tree, spots[part], k=k, queried=queried)
            undecided.append(part[~decided])
        todo = np.concatenate(undecided)
        queried = min(2 * queried, tree.n)
    return chosen


def _nearest_of_queried(tree: cKDTree, spots: Codes, *, k: int, queried: int) -> tuple[Codes, NDArray[np.bool_]]:
    """The same from ``queried`` candidates, and for each spot whether that held all the ties."""
    distance, found = tree.query(tree.data[spots], k=queried)
    reach = distance[:, -1].copy()
    distance[found == spots[:, None]] = np.inf  # the spot itself: not always first, with duplicates
    kth = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
    # Nearer than the k-th, tied with it, or beyond; then by index.
    rank = (distance >= kth * (1 - _SAME)).astype(np.int64) + (distance > kth * (1 + _SAME))
    order = np.argsort(rank * tree.n + found, axis=1)[:, :k]
    decided = (reach > kth[:, 0] * (1 + _SAME)) | (queried == tree.n)
    return np.take_along_axis(found, order, axis=1), decided


def label_agreement(domains: Any, labels: Any) -> dict[str, float | int]:
    """``ari``, ``nmi``, ``homogeneity``, ``completeness`` and ``n_scored`` of domains (n,) against labels (n,)."""
    domain, label = _as_codes(domains), _as_codes(labels)
    ari = adjusted_rand_index(domain, label)
    domain, label = _labelled_in_both(domain, label)
    entropies = (np.nan,) * 3
    if label.size:
        entropies = homogeneity_completeness_v_measure(label, domain)
    homogeneity, completeness, v_measure = (float(value) for value in entropies)
    # With the arithmetic mean, as is usual, normalised mutual information is the V-measure.
    return {
        "ari": ari,
        "nmi": v_measure,
        "homogeneity": homogeneity,
        "completeness": completeness,
        "n_scored": label.size,
    }


def _as_codes(labels: Any) -> Codes:
    """Codes 0, 1, ... of shape (n,), -1 for unlabelled."""
    if isinstance(labels, pd.Series):
        labels = labels.array
    if isinstance(labels, pd.Categorical):
        return np.asarray(labels.codes, dtype=np.int64)
    values = np.asarray(labels)
    if values.ndim != 1:
        msg = f"Expected labels in one column, found an array of shape {values.shape}. Give one label per spot."
        raise InputError(msg)
    if not np.issubdtype(values.dtype, np.integer):
        return np.asarray(pd.factorize(values)[0], dtype=np.int64)
    codes = np.maximum(values.astype(np.int64, copy=False), -1)
    if codes.size and codes.max() > codes.size:  # names rather than codes: tables would be far too long
        named = codes >= 0
        codes[named] = np.unique(codes[named], return_inverse=True)[1]
    return codes


def _rand_index(pairs: np.ndarray, in_a: np.ndarray, in_b: np.ndarray) -> float:
    """Adjusted Rand index from the spots of each pair of labels, of each a and of each b."""
    n = int(in_a.sum())
    # Ordered pairs of spots put together by both, by a, by b; and all pairs. Below 2^63 up to 3e9
    # spots.
    both, a, b = (_square_sum(counts) - n for counts in (pairs, in_a, in_b))
    every = n * (n - 1)
    if both == a == b:  # one and the same partition
        return 1.0
    return 2 * (both * every - a * b) / ((a + b) * every - 2 * a * b)


def _labelled_in_both(a: Codes, b: Codes) -> tuple[Codes, Codes]:
    if a.size != b.size:
        msg = (
            f"Expected as many labels as domains, found {b.size} labels for {a.size} domains. "
            "Give one of each per spot."
        )
        raise InputError(msg)
    both = (a >= 0) & (b >= 0)
    return (a, b) if both.all() else (a[both], b[both])


def _labelled_spots(labels: Any, coordinates: ArrayLike) -> tuple[Codes, Floats]:
    codes = _as_codes(labels)
    position = np.asarray(coordinates, dtype=np.float64)
    if position.ndim != 2 or len(position) != codes.size:
        msg = (
            f"Expected coordinates of shape ({codes.size}, 2) or ({codes.size}, 3), as there are "
            f"{codes.size} labels, found {position.shape}. Give both for the same spots."
        )
        raise InputError(msg)
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
    """Spots (A, B) that have each label of the first and each of the second; codes (n,) in 0..A-1 and 0..B-1."""
    pairs = first.astype(np.int64) * shape[1] + second
    return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)
