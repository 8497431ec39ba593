"""The way from one section's counts to its components, kept so that another section's can go it too."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.features.components import Components
from spatialpdvi.features.scaling import ScaledGenes, normalised_genes, take_genes
from spatialpdvi.runtime.rows import CountRows, row_blocks

__all__ = ["GeneProjection", "centre_samples", "learn_projection"]


class GeneProjection(NamedTuple):
    """What turned the counts of a section into principal components; genes are known by their names."""

    counted: np.ndarray  # (G,) names of all genes of the section, whose counts make a spot's total
    genes: np.ndarray  # (g,) names of those that were kept
    sd: np.ndarray  # (g,) of their normalised and transformed values
    mean: np.ndarray  # (g,) of their scaled and clipped values
    components: np.ndarray  # (p, g) rows of unit length
    target_sum: float
    transform: str  # "none", "log1p" or "sqrt"
    clip: float

    def apply(self, counts: CountRows, gene_names: pd.Index) -> np.ndarray:
        """Scores (n, p) float32 of other counts (n, genes); a gene that is not among theirs counts as 0.

        A spot's total is of the genes that the model's section counted: panels of other sizes would differ in it.
        The names that are used must not repeat.
        """
        counted = gene_names.isin(self.counted).astype(np.float64)
        place = gene_names.get_indexer_for(self.genes) if gene_names.is_unique else self._places(gene_names)
        found = np.flatnonzero(place >= 0)
        found = found[np.argsort(place[found])]
        return np.concatenate([self._scores(block, counted, place, found) for block in row_blocks(counts)])

    def _places(self, gene_names: pd.Index) -> np.ndarray:
        """Columns of the genes, -1 where there is none; other names may repeat."""
        known = np.flatnonzero(gene_names.isin(self.genes))
        where = gene_names[known].get_indexer_for(self.genes)
        return np.where(where >= 0, known[where], -1)

    def _scores(self, block: sp.csr_matrix, counted: np.ndarray, place: np.ndarray, found: np.ndarray) -> np.ndarray:
        totals = np.asarray(block.astype(np.float64) @ counted)
        taken = take_genes(block, place[found])
        values = normalised_genes(taken, totals, target_sum=self.target_sum, transform=self.transform)
        scaled = values.astype(np.float64) @ sp.diags(1.0 / self.sd[found])
        scaled.data = np.minimum(scaled.data, self.clip)
        return np.asarray(scaled @ self.components[:, found].T - self.components @ self.mean, dtype=np.float32)


def learn_projection(
    counts: ScaledGenes,
    components: Components,
    gene_names: pd.Index,
    *,
    target_sum: float,
    transform: str,
    clip: float,
) -> GeneProjection:
    """Projection whose scores, for the section that it is learnt from, are those of its PCA.

    Parameters
    ----------
    counts
        Scaled genes (n, g) of the section.
    components
        `principal_components` of them.
    gene_names
        Of all genes of the section.
    """
    names = np.asarray(gene_names, dtype=str)
    return GeneProjection(
        counted=names,
        genes=names[counts.genes],
        sd=counts.sd,
        mean=components.mean,
        components=np.ascontiguousarray(components.loadings),
        target_sum=float(target_sum),
        transform=transform,
        clip=float(clip),
    )


def centre_samples(x: np.ndarray, samples: Sequence[np.ndarray], centre: np.ndarray | None = None) -> np.ndarray:
    """Features (n, d) whose mean is the same in every section: ``centre`` (d,), or that of all spots."""
    centred = x.astype(np.float64)
    if centre is None:
        centre = centred.mean(axis=0)
    for spots in samples:
        centred[spots] += centre - centred[spots].mean(axis=0)
    return centred.astype(x.dtype)
