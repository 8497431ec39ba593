"""The stability of domains: between halves of the spots or genes, and with one domain more or less."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from spatialpdvi.features.build import RawFeatures
from spatialpdvi.features.correction import correct_sections
from spatialpdvi.features.smoothing import SCALES, neighbor_averages
from spatialpdvi.initialization.consensus import consensus
from spatialpdvi.initialization.restarts import in_unit_range, restart_labels
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.clustering import adjusted_rand_index, overlap
from spatialpdvi.model_selection.replicates import Halves, gene_halves, spot_halves
from spatialpdvi.options.stages import FeatureSettings
from spatialpdvi.runtime.rows import some_rows
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Found", "Replication", "found_again", "persistence"]

_SPLITS = 6
_GENE_SPLITS = 2  # of these, where there are counts; the others split the spots
_RESTARTS = 2  # `n_init` for each half
_COMPARED = 4_000  # spots on which halves are compared, at most; averages are over all spots


class Found(NamedTuple):
    """How similar the domains of two halves are, mean over splits."""

    net: float  # sum over domains of what both halves give to it, less what one alone does: K at best
    ari: float


_HalvesByScale = tuple[list[np.ndarray], list[np.ndarray]]  # of either half, features (n, p) on every scale


class Replication:
    """How many domains are found in both halves of the spots, or of the genes.

    Halves are split once for all numbers of domains, so that these are compared on the same halves.

    Parameters
    ----------
    section, raw
        Of the fit; genes are split where ``raw`` holds the scaled ones.
    settings
        Of the features; the seed is that of the splits too.
    across
        Whether averages reach across sections.
    """

    def __init__(self, section: Section, raw: RawFeatures, settings: FeatureSettings, *, across: bool) -> None:
        self._section, self._raw, self._seed = section, raw, settings.seed
        # of the splits: neighbouring seeds of a scan must not share any
        self._seeds = np.random.default_rng(settings.seed).integers(2**32, size=_SPLITS)
        self._blocks = section.neighbourhood_groups(across=across)
        self._compared = some_rows(np.arange(section.coordinates.shape[0]), settings.seed, _COMPARED)
        self._genes = [] if raw.scaled is None else self._split_genes(raw.scaled, settings)
        self._averages: tuple[int, list[_HalvesByScale]] | None = None

    def of(self, k: int, *, n_neighbors: int, n_components: int) -> Found:
        """Return how many of k domains both halves show.

        The labels of a half are the consensus of nine restarts on it, as those of a fit are.

        Parameters
        ----------
        k
            K.
        n_neighbors
            Neighbours that a fit of k domains averages over.
        n_components
            Leading components that it has.
        """
        with single_threaded():
            pairs = [
                tuple(_labels([features[:, :n_components] for features in half], k, seed=self._seed) for half in halves)
                for halves in self._at(n_neighbors)
            ]
        net = [found_again(first, second, k) for first, second in pairs]
        ari = [adjusted_rand_index(first, second) for first, second in pairs]
        return Found(float(np.mean(net)), float(np.mean(ari)))

    def _at(self, n_neighbors: int) -> list[_HalvesByScale]:
        """All splits, averaged over neighbours; the last are kept in memory, because most K share them."""
        if self._averages is None or self._averages[0] != n_neighbors:
            scales = list(dict.fromkeys(int(factor * n_neighbors) for factor in SCALES))
            splits = [self._split_spots(scales, split) for split in range(_SPLITS - len(self._genes))]
            splits += [self._averaged(halves, scales) for halves in self._genes]
            self._averages = n_neighbors, splits
        return self._averages[1]

    def _split_spots(self, scales: list[int], split: int) -> _HalvesByScale:
        """Halves averaged as near as a fit averages, which are noisier, or every other time as precisely and wider."""
        if split % 2:
            scales = [2 * scale for scale in scales]
        x, xy, seed = self._raw.components, self._section.coordinates, int(self._seeds[split])
        by_scale = [spot_halves(x, xy, scale, samples=self._blocks, seed=seed) for scale in scales]
        return self._sampled([half.first for half in by_scale]), self._sampled([half.second for half in by_scale])

    def _split_genes(self, scaled: np.ndarray | sp.csr_matrix, settings: FeatureSettings) -> list[Halves]:
        width, samples = self._raw.components.shape[1], self._section.spots_of_samples()
        split = [gene_halves(scaled, width, seed=int(seed)) for seed in self._seeds[:_GENE_SPLITS]]
        return [
            Halves(*(correct_sections(half, samples, method=settings.correct, seed=settings.seed) for half in halves))
            for halves in split
            if halves is not None
        ]

    def _averaged(self, halves: Halves, scales: list[int]) -> _HalvesByScale:
        xy = self._section.coordinates
        first, second = (neighbor_averages(half, xy, scales, samples=self._blocks) for half in halves)
        return self._sampled(first), self._sampled(second)

    def _sampled(self, by_scale: list[np.ndarray]) -> list[np.ndarray]:
        """The spots that are compared, scaled for clustering."""
        return [in_unit_range(features[self._compared]) for features in by_scale]


def found_again(first: np.ndarray, second: np.ndarray, k: int) -> float:
    r"""Return how many of k domains two labellings (n,) share, less those that they do not: between -k and k.

    Domains are matched one to one, A_j with B_j. Each counts as the spots that both have, less those that one alone
    has, divided by the spots of the two,

        sum_j  ( 2 |A_j n B_j| - |A_j \ B_j| - |B_j \ A_j| ) / ( |A_j| + |B_j| )

    so that a domain adds to the sum where the labellings agree on more of it than they do not (a Dice index above one
    half), and subtracts from it otherwise. A domain that is empty in both subtracts 1.
    """
    common = overlap(first, second, shape=(k, k))
    both = np.maximum(common.sum(axis=1)[:, None] + common.sum(axis=0), 1)
    dice = 2.0 * common / both
    return float((2.0 * dice[linear_sum_assignment(-dice)] - 1.0).sum())


def persistence(domains: Sequence[np.ndarray]) -> np.ndarray:
    """Return the mean overlap of the domains of each K with those of one domain more and of one less.

    Parameters
    ----------
    domains
        Labels (n,) of rising K; at the ends of the range the one neighbour counts.
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


def _labels(by_scale: list[np.ndarray], k: int, *, seed: int) -> np.ndarray:
    return consensus(restart_labels(by_scale, k, n_init=_RESTARTS, seed=seed), k).labels
