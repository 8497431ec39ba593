"""Sums over groups of spots from one pass over the counts: how much of each gene they express, and how many do."""

from typing import NamedTuple

import numpy as np

from spatialpdvi.kernels.counts import group_moments
from spatialpdvi.runtime.rows import CountRows, row_blocks
from spatialpdvi.runtime.threads import n_threads

__all__ = ["SPOT_TOTAL", "GroupMoments", "moments_by_group"]

SPOT_TOTAL = 1e4  # counts of a spot after normalisation, wherever the expression of single genes is shown or compared


class GroupMoments(NamedTuple):
    """Sums of y = log(1 + normalised count) over the spots of each group."""

    sizes: np.ndarray  # (groups,) int64 spots
    sums: np.ndarray  # (groups, genes) float64 of y
    squares: np.ndarray  # (groups, genes) float64 of y^2
    present: np.ndarray  # (groups, genes) int64 spots with counts of the gene

    def others(self) -> "GroupMoments":
        """Return the same for all spots *outside* each group, summed over other groups: a difference would round."""
        return GroupMoments(*map(_all_but_own, self))

    def mean_variance(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of y, zeros included; the variance with n - 1, for groups of at least two spots."""
        n = self.sizes[..., None]
        mean = self.sums / n
        return mean, np.maximum(self.squares / n - mean**2, 0.0) * (n / (n - 1))

    def shares(self) -> np.ndarray:
        """Return the share of spots that have counts of each gene."""
        return np.asarray(self.present / self.sizes[..., None])

    def of(self, group: int, genes: np.ndarray) -> "GroupMoments":
        """Return the sums of one group and some genes: a number, and arrays (genes,)."""
        return GroupMoments(self.sizes[group], *(part[group, genes] for part in self[1:]))


def moments_by_group(counts: CountRows, codes: np.ndarray, n_groups: int) -> GroupMoments:
    """Return the sums of each group of spots, from one pass over the counts.

    Parameters
    ----------
    counts
        (n, genes), whole numbers >= 0; a spot without counts adds zeros.
    codes
        (n,) group of each spot.
    n_groups
        Number of groups.
    """
    shape = (n_groups, counts.shape[1])
    sums, squares, present = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int64)
    done = 0
    for block in row_blocks(counts):
        own = codes[done : done + block.shape[0]]
        sizes = np.bincount(own, minlength=n_groups)
        starts = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.argsort(own, kind="stable")
        group_moments(
            block.data, block.indices, block.indptr, rows, starts, _teams(sizes), SPOT_TOTAL, sums, squares, present
        )
        done += block.shape[0]
    return GroupMoments(np.bincount(codes, minlength=n_groups), sums, squares, present)


def _teams(sizes: np.ndarray) -> np.ndarray:
    """Thread (groups,) of each group: the largest groups first, each to the thread with the fewest spots."""
    load = np.zeros(min(n_threads(), sizes.size), dtype=np.int64)
    teams = np.empty(sizes.size, dtype=np.int64)
    for group in np.argsort(-sizes, kind="stable"):
        teams[group] = load.argmin()
        load[teams[group]] += sizes[group]
    return teams


def _all_but_own(part: np.ndarray) -> np.ndarray:
    """Sums over all rows except each: the sum of those before it and that of those after it."""
    before, after = np.zeros_like(part), np.zeros_like(part)
    np.cumsum(part[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumsum(part[:0:-1], axis=0)[::-1]
    before += after
    return before
