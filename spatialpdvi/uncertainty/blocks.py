"""Blocks of neighbouring spots: spots of different blocks count as independent, spots of one block do not."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.graph.neighbors import along_longest_side

__all__ = ["SMALLEST", "BlockSums", "block_sums", "choose_blocks", "spatial_blocks"]

SMALLEST = 12  # spots of a block
_FEWEST = 10.0  # effective blocks of the median domain, below which blocks do not grow
_GROWTH = 1.1  # of the variance, when blocks double, that shows correlation beyond them


class BlockSums(NamedTuple):
    """Sums over the spots of each group in each block."""

    values: np.ndarray  # (blocks, K, g) float64
    exposure: np.ndarray  # (blocks, K) float64

    def totals(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums over all blocks, (K, g) and (K,)."""
        return self.values.sum(axis=0), self.exposure.sum(axis=0)

    def effective(self) -> np.ndarray:
        """Return the effective number of blocks (K,) of each group, ``(sum_b e_bk)^2 / sum_b e_bk^2``; 0 without any.

        It is the number of blocks where a group lies evenly in them, and less where a few blocks have most of it.
        """
        squares = (self.exposure**2).sum(axis=0)
        total = self.exposure.sum(axis=0)
        return np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)


def spatial_blocks(coordinates: np.ndarray, sections: Sequence[np.ndarray], size: int) -> np.ndarray:
    """Return the block (n,) of each spot: compact, of ``size`` spots to within a half, none across sections.

    A section is cut in two across its longer side, by the order of its spots, until its parts are small enough.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3).
    sections
        The spots of each section, (n_s,) each.
    size
        Spots of a block, at least 1.
    """
    blocks = np.empty(len(coordinates), dtype=np.int64)
    parts, number = list(sections)[::-1], 0
    while parts:
        spots = parts.pop()
        if spots.size <= 1.5 * size:
            blocks[spots] = number
            number += 1
            continue
        ordered = along_longest_side(coordinates, spots)
        half = ordered.size // 2
        parts += [ordered[half:], ordered[:half]]
    return blocks


def block_sums(
    values: np.ndarray, exposure: np.ndarray, codes: np.ndarray, n_groups: int, blocks: np.ndarray
) -> BlockSums:
    """Sum the values (n, g) and the exposure (n,) over the spots of each group in each block.

    Parameters
    ----------
    values, exposure
        Of the spots.
    codes
        (n,) group of each spot, 0..n_groups-1.
    n_groups
        K.
    blocks
        (n,) from `spatial_blocks`.
    """
    n_blocks = int(blocks.max(initial=-1)) + 1
    cell = blocks * n_groups + codes
    member = sp.csr_matrix((np.ones(cell.size), (cell, np.arange(cell.size))), shape=(n_blocks * n_groups, cell.size))
    return BlockSums(
        np.asarray(member @ values).reshape(n_blocks, n_groups, -1),
        np.asarray(member @ exposure).reshape(n_blocks, n_groups),
    )


def choose_blocks(
    values: np.ndarray,
    exposure: np.ndarray,
    codes: np.ndarray,
    n_groups: int,
    *,
    coordinates: np.ndarray,
    sections: Sequence[np.ndarray],
) -> tuple[np.ndarray, int]:
    """Return blocks (n,) that are larger than the correlation of spots reaches, and their size in spots.

    Blocks double until the variance of the groups' means no longer grows by a tenth, or the median group would lie in
    too few of them for a variance to be measured. The means are ratios of sums; the variance is the median over groups
    and columns.
    """
    size = SMALLEST
    blocks = spatial_blocks(coordinates, sections, size)
    variance = _variance(block_sums(values, exposure, codes, n_groups, blocks))
    while True:
        larger = spatial_blocks(coordinates, sections, 2 * size)
        sums = block_sums(values, exposure, codes, n_groups, larger)
        present = sums.effective()[sums.totals()[1] > 0]  # spots without a type have no exposure
        if not present.size or np.median(present) < _FEWEST:
            return blocks, size
        grown = _variance(sums)
        both = (variance > 0) & (grown > 0)
        if not both.any() or np.median(grown[both] / variance[both]) < _GROWTH:
            return blocks, size
        blocks, size, variance = larger, 2 * size, grown


def _variance(sums: BlockSums) -> np.ndarray:
    """The variances (K, g) of the groups' means, corrected for the number of blocks; 0 for a group in one block."""
    values, exposure = sums.totals()
    mean = np.divide(values, exposure[:, None], out=np.zeros_like(values), where=exposure[:, None] > 0)
    squares = ((sums.values - sums.exposure[:, :, None] * mean) ** 2).sum(axis=0)
    effective = sums.effective()[:, None]
    factor = np.divide(effective, effective - 1.0, out=np.zeros_like(effective), where=effective > 1.0)
    return np.asarray(factor * squares)
