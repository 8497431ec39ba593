"""Whether domains are found again: from the other half of the spots or genes, and with one domain more or less."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from spatialpdvi.features.build import SCALES, RawFeatures, correct_sections
from spatialpdvi.features.smoothing import neighbor_averages
from spatialpdvi.initialization import consensus, in_unit_range, restart_labels
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.clustering import adjusted_rand_index, overlap
from spatialpdvi.model_selection.replicates import Halves, gene_halves, spot_halves
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Found", "Replication", "found_again", "persistence"]

_SPLITS = 6
_GENE_SPLITS = 2  # of these, where there are counts; the others split the spots
_RESTARTS = 2  # --n-init of each half
_ASKED = 1_200  # spots that halves are compared on, at the most; averages are over all


class Found(NamedTuple):
    """What of the domains two halves show alike, mean over splits."""

    net: float  # sum over domains of what both halves give to it, less what one alone does: K at the best
    ari: float


_Look = tuple[list[np.ndarray], list[np.ndarray]]  # of either half, features (n, p) on every scale


class Replication:
    """How many domains one half of the spots, or of the genes, shows as the other half does.

    Halves are split once for all numbers of domains, so that these are compared by the same looks.

    Parameters
    ----------
    section, raw, options
        Of the fit; the seed is that of the splits. Genes are split where ``raw`` keeps the scaled ones.
    """

    def __init__(self, section: Section, raw: RawFeatures, options: FitOptions) -> None:
        self._section, self._raw, self._seed = section, raw, options.seed
        self._blocks = section.blocks(across=options.across_sections)
        self._asked = _some(section.coordinates.shape[0], options.seed)
        self._genes = [] if raw.scaled is None else self._split_genes(raw.scaled, options)
        self._looks: tuple[int, list[_Look]] | None = None

    def of(self, k: int, *, n_neighbors: int, n_components: int) -> Found:
        """What is found again of k domains; a half's labels are what nine restarts on it agree on, as a fit's are.

        Of the halves the leading components are seen, as many as a fit of k domains has.
        """
        with single_threaded():
            pairs = [
                tuple(_labels([view[:, :n_components] for view in half], k, seed=self._seed) for half in look)
                for look in self._at(n_neighbors)
            ]
        net = [found_again(first, second, k) for first, second in pairs]
        ari = [adjusted_rand_index(first, second) for first, second in pairs]
        return Found(float(np.mean(net)), float(np.mean(ari)))

    def _at(self, n_neighbors: int) -> list[_Look]:
        """All looks, averaged over neighbours; the last ones are kept, since most K share them."""
        if self._looks is None or self._looks[0] != n_neighbors:
            scales = list(dict.fromkeys(int(factor * n_neighbors) for factor in SCALES))
            looks = [self._split_spots(scales, split) for split in range(_SPLITS - len(self._genes))]
            looks += [self._averaged(halves, scales) for halves in self._genes]
            self._looks = n_neighbors, looks
        return self._looks[1]

    def _split_spots(self, scales: list[int], split: int) -> _Look:
        """Halves as near as a fit's averages and noisier, or, every other split, as precise and wider."""
        if split % 2:
            scales = [2 * scale for scale in scales]
        x, xy, seed = self._raw.components, self._section.coordinates, self._seed + split
        by_scale = [spot_halves(x, xy, scale, samples=self._blocks, seed=seed) for scale in scales]
        return self._seen([halves.first for halves in by_scale]), self._seen([halves.second for halves in by_scale])

    def _split_genes(self, scaled: np.ndarray | sp.csr_matrix, options: FitOptions) -> list[Halves]:
        width = self._raw.components.shape[1]
        split = [gene_halves(scaled, width, seed=self._seed + i) for i in range(_GENE_SPLITS)]
        return [
            Halves(*(correct_sections(half, self._section, options) for half in halves))
            for halves in split
            if halves is not None
        ]

    def _averaged(self, halves: Halves, scales: list[int]) -> _Look:
        xy = self._section.coordinates
        first, second = (neighbor_averages(half, xy, scales, samples=self._blocks) for half in halves)
        return self._seen(first), self._seen(second)

    def _seen(self, views: list[np.ndarray]) -> list[np.ndarray]:
        """The spots that are asked of, in a range that clusters can be sought in."""
        return [in_unit_range(view[self._asked]) for view in views]


def found_again(first: np.ndarray, second: np.ndarray, k: int) -> float:
    r"""How many of k domains two labellings (n,) share, less what they do not: between -k and k.

    Domains are matched one to one, A_j with B_j, and each counts as the spots that both have, less those that one alone
    has, of all that either has counted twice over,

        sum_j  ( 2 |A_j n B_j| - |A_j \ B_j| - |B_j \ A_j| ) / ( |A_j| + |B_j| )

    so a domain adds to the sum if both labellings agree on more than they do not (a Dice index above one half), and
    takes from it otherwise. One that is empty in both has nothing to be found, and takes 1.
    """
    common = overlap(first, second, shape=(k, k))
    both = np.maximum(common.sum(axis=1)[:, None] + common.sum(axis=0), 1)
    dice = 2.0 * common / both
    return float((2.0 * dice[linear_sum_assignment(-dice)] - 1.0).sum())


def persistence(domains: Sequence[np.ndarray]) -> np.ndarray:
    """How far the domains of each K are there with one domain more and with one less: mean overlap with those.

    ``domains`` are labels (n,) of rising K; at the ends of the range the one neighbour counts.
    """
    on = [_largest_overlap(domains[i], domains[i + 1]) for i in range(len(domains) - 1)]
    back = [_largest_overlap(domains[i + 1], domains[i]) for i in range(len(domains) - 1)]
    return np.array([np.mean(on[i : i + 1] + back[max(i - 1, 0) : i]) for i in range(len(domains))])


def _largest_overlap(domains: np.ndarray, others: np.ndarray) -> float:
    """Mean over the domains (n,) that are not empty of the largest Jaccard index with one of the others (n,)."""
    common = overlap(domains, others, shape=(int(domains.max()) + 1, int(others.max()) + 1))
    sizes = common.sum(axis=1)
    union = sizes[:, None] + common.sum(axis=0) - common
    return float((common / np.maximum(union, 1)).max(axis=1)[sizes > 0].mean())


def _some(n: int, seed: int) -> np.ndarray:
    if n <= _ASKED:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, _ASKED, replace=False))


def _labels(views: list[np.ndarray], k: int, *, seed: int) -> np.ndarray:
    return consensus(restart_labels(views, k, n_init=_RESTARTS, seed=seed), k).labels
