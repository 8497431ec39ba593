"""Patches of spots: compact, balanced blocks of consecutive rows with their own edges.

Rows are in patch order from here on; `Patching.order` leads back to the user's order.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.graph.neighbors import between_groups, only_edges
from spatialpdvi.kernels.graph import colour_greedily, follows_other_cells
from spatialpdvi.options.stages import patches_of_sections

__all__ = ["Cells", "Patch", "Patching", "make_patches"]

_CELLS = 4  # in a patch, a power of two
_SMALL = 250  # spots in a cell: with fewer, most of them border on another cell


class Cells(NamedTuple):
    """An order of a patch's rows that threads can share: waves follow each other, the cells of a wave run in parallel.

    A sweep by colour only fixes which of two neighbours comes first. A spot that waits for no spot of another cell can
    be updated within its cell, whatever other cells do meanwhile. These spots are the first wave, with `_CELLS` cells.
    The next wave has half as many cells, each of two cells joined, for spots that wait for no spot outside them. The
    last wave is one cell with all spots that are left.
    """

    rows: np.ndarray  # (n_b,) int64, by wave, cell and colour
    starts: np.ndarray  # (n_cells, n_colours + 1) int64, into rows
    waves: np.ndarray  # (n_waves + 1,) int64, into the cells


class Patch(NamedTuple):
    """Rows ``start:stop`` (in patch order) with their edges.

    Columns below ``n_b = stop - start`` are the patch's own rows; column ``n_b + h`` is row ``halo_rows[h]`` of
    another patch. Rows of one colour are consecutive and share no edge.
    """

    start: int
    stop: int
    share: float  # w_b = n_b / n, of the prior
    indptr: np.ndarray  # (n_b + 1,) int64
    indices: np.ndarray  # (n_edges,) int32, local columns
    weights: np.ndarray  # (n_edges,) float64, beta r_ij
    halo_rows: np.ndarray  # (n_halo,) int64, rows in patch order
    colour_start: np.ndarray  # (n_colours + 1,) int64, local rows
    cells: Cells | None = None  # the same order of neighbours in fewer steps; None where the patch is small


class Patching(NamedTuple):
    """All patches, and the way back to the user's order."""

    order: np.ndarray  # (n,) int64: row a of the patch order is spot order[a]
    patches: tuple[Patch, ...]
    graph: sp.csr_matrix  # (n, n) in the *user's* order: the edges that entered the objective
    n_dropped: int  # undirected edges between patches that were dropped

    def as_given(self, rows: np.ndarray) -> np.ndarray:
        """Return labels (n,) or posteriors (n, K) of the patch order in the user's order."""
        given = np.empty_like(rows)
        given[self.order] = rows
        return given


def make_patches(
    coordinates: np.ndarray,
    graph: sp.csr_matrix,
    n_patches: int,
    *,
    keep_cross_edges: bool = True,
    samples: Sequence[np.ndarray] | None = None,
) -> Patching:
    """Divide a section into ``n_patches`` patches and give each its edges.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3).
    graph
        Symmetric weights (n, n), no diagonal, each undirected edge stored twice.
    n_patches
        Between 1 and n.
    keep_cross_edges
        Whether edges between patches stay in the model (through the neighbours' posteriors as they were when the
        step began) or are dropped, as in the paper.
    samples
        Spots of each section: no patch reaches into two. The number of patches of a section is in proportion to its
        spots, and at least one, even if these add up to more than ``n_patches``.
    """
    n = coordinates.shape[0]
    patch_of = np.empty(n, dtype=np.int64)
    first = 0
    for spots, count in _allot(samples or [np.arange(n)], n_patches):
        patch_of[spots] = first + _bisect(coordinates[spots], count)
        first += count
    n_patches = first
    dropped = 0
    if not keep_cross_edges:
        crossing = between_groups(graph, patch_of)
        dropped, graph = int(crossing.sum()) // 2, only_edges(graph, ~crossing)
    colour = np.empty(n, dtype=np.int32)
    colour_greedily(graph.indptr, graph.indices, patch_of, colour)
    order = np.lexsort((np.arange(n), colour, patch_of))
    row_of = np.empty(n, dtype=graph.indices.dtype)
    row_of[order] = np.arange(n)
    bounds = np.searchsorted(patch_of[order], np.arange(n_patches + 1))
    colour = colour[order]
    patches = tuple(
        _cut(graph[spots], row_of, int(start), colour[start:stop], coordinates[spots])
        for start, stop in pairwise(bounds)
        for spots in [order[start:stop]]  # by patch: no copy of the graph in patch order beside the patches
    )
    return Patching(order, patches, graph, dropped)


def _allot(samples: Sequence[np.ndarray], n_patches: int) -> list[tuple[np.ndarray, int]]:
    """Sections with their numbers of patches."""
    return list(zip(samples, patches_of_sections([spots.size for spots in samples], n_patches), strict=True))


def _bisect(coordinates: np.ndarray, n_patches: int) -> np.ndarray:
    """Patch number (n,) of each spot, from halving along the longest axis until there are ``n_patches`` parts.

    Parts are cut by rank, in proportion to the patches of each half, so that sizes differ by a spot or two and none is
    empty, whatever the shape of the tissue. The axis is the first principal component of the part, so that slanted
    tissue is divided as well as upright tissue. Ties are broken by the spot's number.
    """
    patch_of = np.empty(coordinates.shape[0], dtype=np.int64)
    stack = [(np.arange(coordinates.shape[0]), 0, n_patches)]
    while stack:
        spots, first, count = stack.pop()
        if count == 1:
            patch_of[spots] = first
            continue
        left = count // 2
        position = _longest_axis(coordinates[spots])
        ranked = spots[np.lexsort((spots, position))]
        cut = round(spots.size * left / count)
        # halves stay in the user's order, so that rows that are close in the file are close in memory
        stack.append((np.sort(ranked[:cut]), first, left))
        stack.append((np.sort(ranked[cut:]), first + left, count - left))
    return patch_of


def _longest_axis(points: np.ndarray) -> np.ndarray:
    """Position (n,) of points along their first principal axis, its sign fixed."""
    centred = points - points.mean(axis=0)
    # spelled out rather than by a BLAS product, whose last bits may depend on its number of threads
    covariance = np.einsum("ia,ib->ab", centred, centred)
    _, vectors = np.linalg.eigh(covariance)
    axis = vectors[:, -1]
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    return np.einsum("ia,a->i", centred, axis)


def _cut(edges: sp.csr_matrix, row_of: np.ndarray, start: int, colour: np.ndarray, coordinates: np.ndarray) -> Patch:
    """The patch whose rows begin at ``start``, from the rows of the graph of its spots, in their order."""
    n_own, n = edges.shape
    stop = start + n_own
    ordered = sp.csr_matrix((edges.data, row_of[edges.indices], edges.indptr), shape=edges.shape)
    ordered.sort_indices()
    columns = ordered.indices
    outside = (columns < start) | (columns >= stop)
    halo_rows = np.unique(columns[outside]).astype(np.int64)
    indices = (columns - start).astype(np.int32)
    indices[outside] = n_own + np.searchsorted(halo_rows, columns[outside])
    patch = Patch(
        start=start,
        stop=stop,
        share=n_own / n,
        indptr=ordered.indptr.astype(np.int64),
        indices=indices,
        weights=ordered.data.astype(np.float64, copy=False),
        halo_rows=halo_rows,
        colour_start=np.searchsorted(colour, np.arange(int(colour[-1]) + 2)).astype(np.int64),
    )
    return patch._replace(cells=_lay_cells(patch, colour.astype(np.int64), coordinates))


def _lay_cells(patch: Patch, colour: np.ndarray, coordinates: np.ndarray) -> Cells | None:
    """Waves of cells with the order of a sweep by colour (`Cells`); None where the patch is small."""
    n = patch.stop - patch.start
    if n < _CELLS * _SMALL:
        return None
    cell = _bisect(coordinates, _CELLS)
    group = cell.copy()  # of the first wave
    waves = [0, _CELLS]
    while waves[-1] - waves[-2] > 1:
        late = np.empty(n, dtype=np.bool_)
        follows_other_cells(patch.indptr, patch.indices, colour, cell, late)
        cell //= 2  # halves were numbered side by side
        group[late] = waves[-1] + cell[late]
        waves.append(waves[-1] + (waves[-1] - waves[-2]) // 2)
    n_colours = patch.colour_start.size - 1
    key = group * n_colours + colour
    rows = np.argsort(key, kind="stable")
    firsts = np.arange(waves[-1])[:, None] * n_colours + np.arange(n_colours + 1)
    return Cells(rows.astype(np.int64), np.searchsorted(key[rows], firsts).astype(np.int64), np.array(waves))
