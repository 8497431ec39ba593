"""The cells of a simulated section: which states they have, and how their molecules spread.

In an easy section every domain has a state of its own. In any other, domains share states and differ in how much they
have of each: a bin has one to four cells, whose states are drawn from the composition of its domain, and a tenth of its
molecules come from the bins around it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from spatialpdvi.runtime.rows import slices
from spatialpdvi.synthetic.tissue import Neighbours, Tissue

__all__ = ["Cells", "draw_cells", "draw_compositions", "one_state_each"]

Floats = NDArray[np.float64]

_CELLS_OF_BIN = (0.3, 0.35, 0.25, 0.1)  # probability of 1, 2, 3 and 4
_UBIQUITOUS = 3  # states of every domain, such as blood and vessels
_UBIQUITOUS_SHARE = 0.2
_OWN = (0.3, 0.25, 0.2, 0.15, 0.1)  # how much of the rest each of a domain's own states has
_ALIKE = 3  # of so many pairs of touching domains, one differs in proportions alone
_LEAK = 0.1  # of a bin's molecules
_BLOCK = 1 << 18  # bins whose states are drawn at a time
_CONTRAST = 0.75  # cell types of one tissue differ less than organs


class Leak(NamedTuple):
    """How the molecules of a bin spread to the bins around it."""

    neighbours: Neighbours
    stays: Floats  # (n_spots,), share of a bin's molecules that are found in it
    goes: Floats  # (n_spots,), share that is found in each bin around it

    def rows(self, rows: slice) -> tuple[csr_array, slice]:
        """Return some rows of the matrix that makes molecules found of molecules made, and the columns that it has."""
        spots = np.arange(rows.start, rows.stop)
        from_ = np.column_stack([spots, self.neighbours.of(rows)])  # (m, 9)
        there = from_ >= 0
        sources = from_[there]
        columns = slice(int(sources.min()), int(sources.max()) + 1)
        share = np.where(np.arange(from_.shape[1]) == 0, self.stays[spots, None], self.goes[from_])[there]
        starts = np.append(0, np.cumsum(there.sum(axis=1)))
        shape = spots.size, columns.stop - columns.start
        return csr_array((share, sources - columns.start, starts), shape=shape), columns


class Cells(NamedTuple):
    """What the cells of each bin of the tissue are, and where their molecules go."""

    states: NDArray[np.uint8]  # (n_spots, n_states), number of a bin's cells of each state
    amount: Floats  # (n_spots,), molecules of a bin relative to others, apart from chance
    leak: Leak | None  # None if molecules stay where they are
    contrast: float  # factor of the log fold changes between states

    def share(self, rows: slice) -> Floats:
        """Share of each state among the cells of some bins, (m, n_states); rows sum to 1."""
        states = self.states[rows]
        return np.asarray(states / states.sum(axis=1, keepdims=True))


def one_state_each(tissue: Tissue) -> Cells:
    """Return cells whose state is their domain, and whose molecules stay where they are."""
    n_spots = len(tissue.domain)
    return Cells(np.eye(len(tissue.names), dtype=np.uint8)[tissue.domain], np.ones(n_spots), None, 1.0)


def draw_compositions(tissue: Tissue, rng: np.random.Generator) -> Floats:
    """Draw the composition (k, n_states) of each domain: three states of all domains, and five of those that some have.

    Domains that touch are paired, those with the longest borders first. The second domain of one pair in three has the
    states of the first, and most of those of which the first has least.
    """
    k = len(tissue.names)
    n_states = _UBIQUITOUS + max(len(_OWN) + 1, (k + 5) // 2)
    composition = np.zeros((k, n_states))
    composition[:, :_UBIQUITOUS] = _UBIQUITOUS_SHARE * rng.dirichlet(np.full(_UBIQUITOUS, 4.0), size=k)
    # each state is the main one of as many domains as any other, to within one
    main = rng.permutation(np.resize(rng.permutation(n_states - _UBIQUITOUS), k))
    states = np.empty((k, len(_OWN)), dtype=np.int64)
    for domain in range(k):
        others = np.delete(np.arange(n_states - _UBIQUITOUS), main[domain])
        states[domain] = main[domain], *rng.choice(others, size=len(_OWN) - 1, replace=False)
    for number, (first, second) in enumerate(_touching_pairs(tissue)):
        if number % _ALIKE == 0:
            states[second] = states[first][::-1]
    np.put_along_axis(composition, _UBIQUITOUS + states, (1 - _UBIQUITOUS_SHARE) * np.array([_OWN]), axis=1)
    return composition


def draw_cells(tissue: Tissue, composition: Floats, rng: np.random.Generator) -> Cells:
    """Draw one to four cells of each bin, with states from the ``composition`` (k, n_states) of its domain."""
    n_cells = 1 + rng.choice(len(_CELLS_OF_BIN), size=len(tissue.domain), p=_CELLS_OF_BIN)
    states = np.empty((len(n_cells), composition.shape[1]), dtype=np.uint8)
    count, neighbours = np.empty(len(n_cells), dtype=np.int64), Neighbours(tissue.bins[: len(n_cells)])
    for rows in slices(len(n_cells), _BLOCK):
        states[rows] = rng.multinomial(n_cells[rows], composition[tissue.domain[rows]])
        count[rows] = (neighbours.of(rows) >= 0).sum(axis=1)
    lost = np.where(count > 0, _LEAK, 0.0)
    leak = Leak(neighbours, 1 - lost, lost / np.maximum(count, 1))
    return Cells(states, n_cells / n_cells.mean(), leak, _CONTRAST)


def _touching_pairs(tissue: Tissue) -> list[tuple[int, int]]:
    """Pairs of domains that touch, each domain in one pair at most, those with the longest borders first."""
    k, n_spots = len(tissue.names), len(tissue.domain)
    neighbours, border = Neighbours(tissue.bins[:n_spots]), np.zeros(k * k, dtype=np.int64)
    for rows in slices(n_spots, _BLOCK):
        later = neighbours.of(rows, later=True)
        own, other = tissue.domain[rows, None], tissue.domain[later]
        codes = np.minimum(own, other) * k + np.maximum(own, other)
        border += np.bincount(codes[later >= 0], minlength=k * k)
    border[:: k + 1] = 0
    pairs: list[tuple[int, int]] = []
    for code in np.argsort(-border, kind="stable")[: np.count_nonzero(border)]:
        first, second = divmod(int(code), k)
        if not any(domain in pair for pair in pairs for domain in (first, second)):
            pairs.append((first, second))
    return pairs
