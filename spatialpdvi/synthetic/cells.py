"""The cells of a simulated section: which states they have, and how their molecules spread.

In an easy section every domain has a state of its own. In any other, domains share states and differ in how much they
have of each: a bin has one to four cells, whose states are drawn from the composition of its domain, and a tenth of its
molecules come from the bins around it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from scipy.spatial import cKDTree

from spatialpdvi.synthetic.tissue import Tissue

__all__ = ["Cells", "draw_cells", "draw_compositions", "one_state_each"]

Floats = NDArray[np.float64]

_CELLS_OF_BIN = (0.3, 0.35, 0.25, 0.1)  # probability of 1, 2, 3 and 4
_UBIQUITOUS = 3  # states of every domain, such as blood and vessels
_UBIQUITOUS_SHARE = 0.2
_OWN = (0.3, 0.25, 0.2, 0.15, 0.1)  # how much of the rest each of a domain's own states has
_ALIKE = 3  # of so many pairs of touching domains, one differs in proportions alone
_LEAK = 0.1  # of a bin's molecules
_CONTRAST = 0.75  # cell types of one tissue differ less than organs


class Cells(NamedTuple):
    """What the cells of each bin of the tissue are, and where their molecules go."""

    share: Floats  # (n_spots, n_states), of each state among the cells of a bin; rows sum to 1
    amount: Floats  # (n_spots,), molecules of a bin relative to others, apart from chance
    leak: csr_array | None  # (n_spots, n_spots): molecules found are this matrix times those made; None if they stay
    contrast: float  # factor of the log fold changes between states


def one_state_each(tissue: Tissue) -> Cells:
    """Return cells whose state is their domain, and whose molecules stay where they are."""
    n_spots = len(tissue.domain)
    return Cells(np.eye(len(tissue.names))[tissue.domain], np.ones(n_spots), None, 1.0)


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
    states = rng.multinomial(n_cells, composition[tissue.domain])
    pairs = _touching_bins(tissue)
    rows, columns = np.concatenate([pairs, pairs[:, ::-1]]).T
    touching = csr_array((np.ones(rows.size), (rows, columns)), shape=(len(n_cells), len(n_cells)))
    count = touching.sum(axis=0)
    lost = np.where(count > 0, _LEAK, 0.0)
    leak = diags_array(1 - lost) + touching @ diags_array(lost / np.maximum(count, 1))
    return Cells(states / n_cells[:, None], n_cells / n_cells.mean(), csr_array(leak), _CONTRAST)


def _touching_bins(tissue: Tissue) -> NDArray[np.intp]:
    """Pairs (n_pairs, 2) of bins of the tissue that share a side or a corner."""
    bins = tissue.bins[: len(tissue.domain)]
    return np.asarray(cKDTree(bins).query_pairs(1.5, output_type="ndarray"))


def _touching_pairs(tissue: Tissue) -> list[tuple[int, int]]:
    """Pairs of domains that touch, each domain in one pair at most, those with the longest borders first."""
    k = len(tissue.names)
    ends = np.sort(tissue.domain[_touching_bins(tissue)], axis=1)
    border = np.bincount(ends[:, 0] * k + ends[:, 1], minlength=k * k)
    border[:: k + 1] = 0
    pairs: list[tuple[int, int]] = []
    for code in np.argsort(-border, kind="stable")[: np.count_nonzero(border)]:
        first, second = divmod(int(code), k)
        if not any(domain in pair for pair in pairs for domain in (first, second)):
            pairs.append((first, second))
    return pairs
