"""Spots off the tissue, and the options that leave these or other spots out of a fit.

Sequencers report every spot of the chip, and molecules that spread reach the spots beside the tissue. These spots are
told from poor tissue by two facts together. Their counts are a mode of their own, several times lower than that of the
tissue; and they lie together at the outside of the spots. Fat and necrosis have few counts too, but not by so much, and
single spots of few counts lie anywhere.
"""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.ndimage import gaussian_filter1d
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.missing import misnamed
from spatialpdvi.runtime.rows import CountRows, row_blocks, row_sums, some_rows
from spatialpdvi.runtime.threads import nearest

__all__ = [
    "IN_TISSUE",
    "Exclusion",
    "enough_counts",
    "off_tissue",
    "read_mask",
    "warn_of_background",
    "warn_of_in_tissue",
]

_FEWEST = 100  # spots, to see two modes
_NEAR = 6  # neighbours over whose counts the median is taken: one ring on a hexagonal grid
_AROUND = 18  # neighbours whose directions tell whether a spot is at the outside: two rings
_BINS = 512  # of the histogram of log counts
_SHARE = 0.01  # of the spots that each mode has at least
_RATIO = 4.0  # of the counts of the two modes, at least: kinds of tissue differ by less
_DEPTH = 0.5  # the density between the modes is at most this part of the lower mode's
_GAP = 150.0  # degrees without a neighbour, from which a spot is at the outside
_MANY = 0.1  # of the spots of a section, from which it is named where they are few of all
_NAMED = 3  # sections in a warning
_SAMPLE = 100_000  # spots, which are enough for a warning
_EXCLUDE = "They are given domains like all others, some of which may hold little else. Exclude them"
IN_TISSUE = "in_tissue"  # where scanpy and squidpy keep what Space Ranger says


class Exclusion(NamedTuple):
    """Which spots of a section are left out of a fit."""

    mask: str | None = None  # column of obs that is true for spots to keep
    min_counts: int | str | None = None  # "auto" for spots off the tissue
    min_genes: int | None = None

    @property
    def needs_counts(self) -> bool:
        """Whether it depends on the counts."""
        return self.min_counts is not None or self.min_genes is not None

    @property
    def is_given(self) -> bool:
        """Whether there is one."""
        return self.mask is not None or self.needs_counts


def read_mask(source: Source, key: str) -> np.ndarray:
    """Read the column ``obs[key]`` of true and false, or of 1 and 0, (n,) bool.

    Raises
    ------
    InputError
        Where there is no such column, or it holds something else.
    """
    if key not in source.obs_keys():
        raise misnamed(source, "obs", key, "mask")
    column = source.obs(key)
    texts = column.astype(object).map(lambda value: str(value).strip().lower())
    is_true, is_false = texts.isin(("true", "1", "1.0")), texts.isin(("false", "0", "0.0"))
    other = ~(is_true | is_false)
    if other.any():
        raise InputError(
            "a column of true and false, or 1 and 0",
            f"{str(column[other].iloc[0])!r} in obs[{key!r}] (spot {str(source.obs_names()[other.argmax()])!r})",
            "Make a column that is true for the spots to be fitted.",
            option="mask",
        )
    return np.asarray(is_true)


def enough_counts(
    counts: CountRows, coordinates: np.ndarray | None, blocks: list[np.ndarray], exclusion: Exclusion
) -> np.ndarray:
    """Find the spots that have enough counts and genes.

    Parameters
    ----------
    counts
        (n, genes).
    coordinates
        (n, 2) or (n, 3); None where a number of counts or genes is enough.
    blocks
        The spots of each section.
    exclusion
        What is enough.

    Returns
    -------
    (n,) bool.
    """
    totals, genes = _sums(counts, with_genes=exclusion.min_genes is not None)
    kept = np.ones(totals.size, dtype=bool)
    if exclusion.min_counts == "auto":
        assert coordinates is not None
        for spots in blocks:
            kept[spots] = ~off_tissue(totals[spots], coordinates[spots])
    elif exclusion.min_counts is not None:
        kept = totals >= exclusion.min_counts
    return kept if exclusion.min_genes is None else kept & (genes >= exclusion.min_genes)


def warn_of_in_tissue(source: Source) -> bool:
    """Warn of spots that ``obs['in_tissue']`` says are off the tissue; return whether there are any."""
    if IN_TISSUE not in source.obs_keys():
        return False
    try:
        kept = read_mask(source, IN_TISSUE)
    except InputError:  # a column of the user's own
        return False
    if kept.all():
        return False
    text = (
        f"{(~kept).sum():,} of {kept.size:,} spots are off the tissue by obs[{IN_TISSUE!r}]. {_EXCLUDE} "
        f"with {option('mask', IN_TISSUE)}."
    )
    warnings.warn(InputWarning(text), stacklevel=2)
    return True


def warn_of_background(
    totals: np.ndarray, coordinates: np.ndarray, blocks: list[np.ndarray], names: Sequence[str]
) -> None:
    """Warn of spots that seem to be off the tissue (`off_tissue`), from a sample of large sections.

    There is a warning where they are a hundredth of all spots, or a tenth of those of a section: a few spots of a small
    section have few counts for other reasons.

    Parameters
    ----------
    totals
        Counts of each spot, (n,).
    coordinates
        (n, 2) or (n, 3).
    blocks
        The spots of each section.
    names
        Their names; none where all spots are one section.
    """
    off, tissue, shares = [], [], np.zeros(len(blocks))
    for number, spots in enumerate(blocks):
        seen = some_rows(spots, 0, _SAMPLE)
        found = off_tissue(totals[seen], coordinates[seen])
        off.append(totals[seen[found]])
        tissue.append(totals[seen[~found]])
        shares[number] = found.mean()
    share = float(shares @ [spots.size for spots in blocks]) / totals.size
    told = np.arange(len(blocks)) if share >= _SHARE else np.flatnonzero(shares >= _MANY)
    if not told.size:
        return
    which = f"About {share:.0%} of the spots"
    if share < _SHARE:
        worst = told[np.argsort(-shares[told], kind="stable")]
        listed = ", ".join(f"{shares[i]:.0%} of those of section {names[i]!r}" for i in worst[:_NAMED])
        more = f" and many of {worst.size - _NAMED:,} more sections" if worst.size > _NAMED else ""
        which = f"Some spots (about {listed}{more})"
    low, high = (np.median(np.concatenate([counts[i] for i in told])) for counts in (off, tissue))
    text = (
        f"{which} seem to be off the tissue: they lie together at the outside, and have {low:,.0f} counts instead of "
        f"{high:,.0f} (medians). {_EXCLUDE} with {option('min_counts', 'auto')}, or with {option('mask')}."
    )
    warnings.warn(InputWarning(text), stacklevel=2)


def off_tissue(totals: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """Find the spots off the tissue.

    Parameters
    ----------
    totals
        Counts of each spot, (n,).
    coordinates
        (n, 2) or (n, 3), of which the first two are used; of one section.

    Returns
    -------
    (n,) bool; none where counts do not have two modes, or the lower one does not lie at the outside.
    """
    n = totals.size
    nothing = np.zeros(n, dtype=bool)
    if n < _FEWEST:
        return nothing
    place = coordinates[:, :2]
    _, near = nearest(cKDTree(place), place, _AROUND + 1)
    counts, ring = np.log10(1.0 + totals), near[:, : _NEAR + 1]
    averaged = np.median(counts[ring], axis=1)
    limit = _between_modes(averaged)
    if limit is None:
        return nothing
    spot, other = np.repeat(np.arange(n), _NEAR), near[:, 1 : _NEAR + 1].ravel()
    limits = _limits(averaged, limit, _pieces(spot, other, n))
    low = averaged < limits
    joined = low[spot] & low[other]
    piece = _pieces(spot[joined], other[joined], n)
    off = low & np.isin(piece, piece[low & _is_outside(place, near[:, 1:])])
    # where the two meet neighbours say little, and a spot of many counts is no empty one wherever it lies
    off = off[ring].any(axis=1) & (counts < limits)
    return off if off.mean() >= _SHARE else nothing


def _pieces(spot: np.ndarray, other: np.ndarray, n: int) -> np.ndarray:
    """The connected piece of each of n spots, (n,), where each ``spot`` is joined to its ``other``."""
    graph = sp.csr_matrix((np.ones(spot.size, dtype=bool), (spot, other)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1])


def _limits(values: np.ndarray, limit: float, piece: np.ndarray) -> np.ndarray:
    """Limit below which values (n,) are of the lower mode, (n,): that of all, or of a large piece's own values.

    Background begins where tissue ends. What lies apart from all else and has one mode, such as a core of a tissue
    array or a second section, is tissue however few its counts are.
    """
    limits = np.full(values.size, limit)
    sizes = np.bincount(piece)
    for large in np.flatnonzero((sizes >= _FEWEST) & (sizes < values.size)):
        inside = piece == large
        own = _between_modes(values[inside])
        limits[inside] = -np.inf if own is None else own
    return limits


def _between_modes(values: np.ndarray) -> float | None:
    """The value that is equally many spreads from two modes of the values, (n,); None where two modes are not seen."""
    low, high = float(values.min()), float(values.max())
    if high - low < np.log10(_RATIO):
        return None
    counted, edges = np.histogram(values, bins=_BINS, range=(low, high))
    quartiles = np.quantile(values, [0.25, 0.75])
    width = 0.9 * min(values.std(), np.ptp(quartiles) / 1.34) * values.size**-0.2  # Silverman's rule
    density = gaussian_filter1d(counted.astype(float), max(1.0, width * _BINS / (high - low)), mode="constant")
    peaks = _peaks(np.concatenate([[0.0], density, [0.0]])) - 1
    best, found = _DEPTH, None
    for left, right in pairwise(peaks):
        valley = left + int(np.argmin(density[left : right + 1]))
        depth = density[valley] / min(density[:valley].max(), density[valley:].max())
        below = values < edges[valley + 1]
        if depth > best or not _SHARE <= below.mean() <= 1.0 - _SHARE:
            continue
        (lower, its), (upper, other) = _mode(values[below]), _mode(values[~below])
        if upper - lower >= np.log10(_RATIO):
            best, found = depth, (lower * other + upper * its) / (other + its)
    return found


def _peaks(values: np.ndarray) -> np.ndarray:
    """Places of values (n,) that are higher than those on both sides; of several equal ones the middle.

    As `scipy.signal.find_peaks`, whose import would take a tenth of the fit of a small section.
    """
    last = np.append(np.flatnonzero(np.diff(values)), values.size - 1)  # of each stretch of equal values
    first = np.append(0, last[:-1] + 1)
    height = values[first]
    inner = np.flatnonzero((height[1:-1] > height[:-2]) & (height[1:-1] > height[2:])) + 1
    return np.asarray((first[inner] + last[inner]) // 2)


def _mode(values: np.ndarray) -> tuple[float, float]:
    """Median and spread of the values on one side of the valley; molecules that spread give them a long tail."""
    middle = float(np.median(values))
    return middle, max(float(np.median(np.abs(values - middle))), 1e-6)


def _is_outside(place: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Whether the neighbours (n, q) of each spot leave a wide angle free, (n,)."""
    step = place[near] - place[:, None, :]
    angle = np.sort(np.arctan2(step[..., 1], step[..., 0]), axis=1)
    gaps = np.diff(angle, axis=1, append=angle[:, :1] + 2.0 * np.pi)
    return np.asarray(gaps.max(axis=1) >= np.deg2rad(_GAP))


def _sums(counts: CountRows, *, with_genes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Counts (n,) of each spot, and its genes where these are wanted, which takes far longer; otherwise (0,)."""
    totals, genes = [], [np.zeros(0, dtype=np.int64)]
    for block in row_blocks(counts):
        totals.append(row_sums(block))
        if with_genes:
            genes.append((block > 0).getnnz(axis=1))
    return np.concatenate(totals), np.concatenate(genes)
