"""The counts of a simulated section: each burst of molecules gets a source, and then a gene of that source.

The sources of a spot are the profiles of the states of its cells, that of the whole body (molecules from far away), and
a few programmes, such as growth or stress, that vary across the body and from spot to spot. The mixture gives domains
gradients and makes genes vary together; bursts make each gene vary more than a Poisson count.
One search in one cumulative profile draws a burst, so a dense matrix of spots and genes is never formed.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import ndtri

from spatialpdvi.runtime.rows import slices
from spatialpdvi.synthetic.cells import Cells
from spatialpdvi.synthetic.tissue import Tissue, smooth_field

__all__ = ["Sources", "draw_blocks", "draw_counts", "draw_shares", "draw_sources"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BASELINE_SD = 2.6  # of log-normal expression: at the usual depth a spot has about 600 of 8,000 genes
_PROGRAMMES = 8  # the first two belong to scattered cells, such as blood
_SCATTERED = 2
_DISPERSION = 0.5  # variance of a gene's count = mean + about dispersion * mean^2
_MAX_BURST = 8.0
_MOST_OFF_TISSUE = 14  # bursts of a spot off the tissue
_BLOCK_SPOTS = 1 << 17  # whose shares are in memory at a time
_BLOCK_BURSTS = 4_000_000  # in memory at a time, about 100 MB


class Sources(NamedTuple):
    """The sources of bursts: the profiles of the states, of the body and of the programmes."""

    cumulative: Floats  # (n_sources, n_genes), each row rises to 1
    shares: "Shares"
    total: Ints  # (n_spots,), bursts per spot, at least 1
    burst: Floats  # (n_genes,), mean number of molecules in a burst besides the first


class Shares(NamedTuple):
    """What each spot draws from the sources, computed for a block of spots when it is needed."""

    cells: Cells
    log_weight: Floats  # (n_spots, 2 + n_programmes), of a spot's own cells, the body and each programme
    made: Floats  # (n_spots,), expected bursts of a spot's own

    def expected(self, rows: slice) -> Floats:
        """Return the expected bursts of some spots of the tissue from each source, (m, n_sources)."""
        if self.cells.leak is None:
            return self._own(rows) * self.made[rows, None]
        leak, columns = self.cells.leak.rows(rows)
        return np.asarray(leak @ (self._own(columns) * self.made[columns, None]))

    def of(self, rows: slice) -> Floats:
        """Return the shares of each source in the bursts of some spots, (m, n_sources); rows sum to 1."""
        n_tissue = len(self.made)
        tissue = slice(rows.start, min(rows.stop, n_tissue))
        if tissue.start >= tissue.stop:
            share = np.empty((0, self._n_sources))
        elif self.cells.leak is None:
            share = self._own(tissue)
        else:
            share = self.expected(tissue)
            share /= share.sum(axis=1)[:, None]
        if rows.stop <= n_tissue:
            return share
        ambient = np.zeros((rows.stop - max(rows.start, n_tissue), self._n_sources))
        ambient[:, self.cells.states.shape[1]] = 1.0
        return np.vstack([share, ambient])

    @property
    def _n_sources(self) -> int:
        return self.cells.states.shape[1] + self.log_weight.shape[1] - 1

    def _own(self, rows: slice) -> Floats:
        own, *others = _softmax(self.log_weight[rows]).T
        return np.column_stack([own[:, None] * self.cells.share(rows), *others])


def draw_sources(
    tissue: Tissue, cells: Cells, *, n_genes: int, depth: float, signal: float, rng: np.random.Generator
) -> Sources:
    """Draw the profiles of states and programmes, and the shares that each spot draws from them.

    Parameters
    ----------
    tissue
        Bins and domains.
    cells
        The states of the bins' cells.
    n_genes
        Number of genes.
    depth
        Mean number of molecules per spot of the tissue.
    signal
        Factor of the log fold changes between states; with 0, states do not differ.
    rng
        Random generator.
    """
    n_states = cells.states.shape[1]
    # every section has the same set of baselines, since chance in a tail this heavy would change the depth
    quantile = (rng.permutation(n_genes) + 0.5) / n_genes
    body = _BASELINE_SD * np.clip(ndtri(quantile), -3, 3)  # log
    state = body + cells.contrast * signal * _state_effects(n_states, n_genes, rng)
    programme = body + _sparse_effects(_PROGRAMMES, n_genes, rng, share=0.15, sd=1.2)
    profile = _softmax(np.vstack([state, body[None], programme]))
    dispersion = rng.gamma(2.0, _DISPERSION / 2, size=n_genes)
    burst = np.minimum(dispersion * depth * profile[n_states], _MAX_BURST)
    profile /= 1 + burst
    n_bursts = depth * profile[n_states].sum()
    cumulative = np.cumsum(profile, axis=1)
    cumulative /= cumulative[:, -1:]
    shares, mean = draw_shares(tissue, cells, n_bursts, rng)
    n_background = len(tissue.bins) - len(tissue.domain)
    total = np.maximum(1, rng.poisson(mean))
    total = np.concatenate([total, rng.integers(1, _MOST_OFF_TISSUE + 1, size=n_background)])
    return Sources(cumulative, shares, total, burst)


def draw_shares(tissue: Tissue, cells: Cells, typical: float, rng: np.random.Generator) -> tuple[Shares, Floats]:
    """Draw the shares that spots draw from the sources, and the expected bursts of each spot (n_spots,).

    Parameters
    ----------
    tissue, cells
        As for `draw_sources`.
    typical
        Mean of the expected bursts, apart from what leaks off the tissue.
    rng
        Random generator.
    """
    log_weight = _log_weights(tissue, rng)
    mean = _expected_bursts(tissue, typical * cells.amount, rng)
    shares = Shares(cells, log_weight, mean)
    if cells.leak is not None:
        blocks = slices(mean.size, _BLOCK_SPOTS)
        mean = np.concatenate([shares.expected(rows).sum(axis=1) for rows in blocks])
    return shares, mean


def draw_blocks(sources: Sources, rng: np.random.Generator) -> Iterator[csr_matrix]:
    """Draw the counts, CSR float32 with ``n_genes`` columns, one block of spots after another."""
    block = np.cumsum(sources.total) // _BLOCK_BURSTS
    edges = np.concatenate([[0], np.flatnonzero(np.diff(block)) + 1, [sources.total.size]])
    for start, stop in itertools.pairwise(edges):
        yield _draw_block(sources, slice(int(start), int(stop)), rng)


def draw_counts(sources: Sources, rng: np.random.Generator) -> csr_matrix:
    """Draw all counts, CSR float32 of shape (n_spots, n_genes)."""
    n_spots, n_genes = sources.total.size, sources.cumulative.shape[1]
    data, indices, lengths = [], [], []
    for counts in draw_blocks(sources, rng):
        data.append(counts.data)
        indices.append(counts.indices)
        lengths.append(np.diff(counts.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths), dtype=np.int64)])
    index_type = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
    values = np.concatenate(data)
    data.clear()  # before the columns are joined, which halves the peak of memory
    columns = np.concatenate(indices).astype(index_type, copy=False)
    return csr_matrix((values, columns, indptr.astype(index_type)), shape=(n_spots, n_genes))


def _draw_block(sources: Sources, rows: slice, rng: np.random.Generator) -> csr_matrix:
    """Draw the counts of a block of spots: assign bursts to sources, then to genes."""
    of_source = rng.multinomial(sources.total[rows], sources.shares.of(rows))
    spots, genes = [], []
    for bursts, profile in zip(of_source.T, sources.cumulative, strict=True):
        # sorted draws make the search fast; the shuffle then assigns them to spots
        drawn = np.sort(rng.random(int(bursts.sum())))
        gene = np.searchsorted(profile, drawn, side="right").astype(np.int32)
        rng.shuffle(gene)
        spots.append(np.repeat(np.arange(bursts.size, dtype=np.int32), bursts))
        genes.append(gene)
    spot, gene = np.concatenate(spots), np.concatenate(genes)
    shape = (of_source.shape[0], sources.cumulative.shape[1])
    counts = csr_matrix((np.ones(spot.size, dtype=np.float32), (spot, gene)), shape=shape)
    counts.sum_duplicates()
    counts.data += rng.poisson(counts.data * sources.burst[counts.indices])
    return counts


def _softmax(log_profile: Floats) -> Floats:
    profile = np.exp(log_profile - log_profile.max(axis=1, keepdims=True))
    return np.asarray(profile / profile.sum(axis=1, keepdims=True))


def _sparse_effects(n: int, n_genes: int, rng: np.random.Generator, *, share: float, sd: float) -> Floats:
    """Draw the log fold changes of ``n`` profiles, each in its own random share of the genes."""
    changed = rng.random((n, n_genes)) < share
    return np.asarray(np.where(changed, rng.normal(scale=sd, size=(n, n_genes)), 0.0))


def _state_effects(n_states: int, n_genes: int, rng: np.random.Generator) -> Floats:
    """Draw the log fold changes of states (S, n_genes): a part shared by groups of states, an own part, and markers."""
    group = rng.integers(max(2, n_states // 4), size=n_states)
    shared = _sparse_effects(int(group.max()) + 1, n_genes, rng, share=0.08, sd=0.8)
    own = _sparse_effects(n_states, n_genes, rng, share=0.08, sd=1.0)
    markers = np.abs(_sparse_effects(n_states, n_genes, rng, share=0.01, sd=2.4))
    return np.asarray(shared[group] + own + markers)


def _log_weights(tissue: Tissue, rng: np.random.Generator) -> Floats:
    """Draw the weights of each spot's own cells, the body and each programme, whose softmax is their shares."""
    n_spots = len(tissue.domain)
    log_weight = np.empty((n_spots, 2 + _PROGRAMMES))
    log_weight[:, 0] = 0.3 * rng.standard_normal(n_spots)
    log_weight[:, 1] = np.log(0.6) + 0.5 * rng.standard_normal(n_spots)
    for programme in range(_PROGRAMMES):
        gradient = smooth_field(rng, scale=0.25)(tissue.position)
        if programme < _SCATTERED:  # present in some spots and absent from others
            local = np.log(0.03) + 3.0 * (rng.random(n_spots) < 0.3)
            log_weight[:, 2 + programme] = 0.1 * gradient + local
        else:
            local = np.log(0.04) + 0.8 * rng.standard_normal(n_spots)
            log_weight[:, 2 + programme] = 0.25 * gradient + local
    return log_weight


def _expected_bursts(tissue: Tissue, typical: Floats, rng: np.random.Generator) -> Floats:
    """Draw the expected bursts of each spot: log-normal about the typical number, which varies over the section."""
    patchy = smooth_field(rng, scale=0.3)(tissue.position)
    relative = np.exp(0.2 * patchy + 0.35 * rng.standard_normal(len(tissue.domain)))
    return np.asarray(typical * relative / relative.mean())
