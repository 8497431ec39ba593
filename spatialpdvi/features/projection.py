"""The way from one section's counts to its components, kept so that another section's can go it too."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.features.preprocess import ScaledGenes, normalised_genes

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

    def apply(self, counts: sp.csr_matrix, gene_names: pd.Index) -> np.ndarray:
        """Scores (n, p) float32 of other counts (n, genes); a gene that is not among theirs counts as 0.

        A spot's total is of the genes that the model's section counted: panels of other sizes would differ in it.
        The names that are used must not repeat.
        """
        known = np.flatnonzero(gene_names.isin(self.counted))
        where = gene_names[known].get_indexer_for(self.genes)
        found = np.flatnonzero(where >= 0)
        values = normalised_genes(
            counts[:, known], where[found], target_sum=self.target_sum, transform=self.transform
        ).astype(np.float64)
        values = values @ sp.diags(1.0 / self.sd[found])
        values.data = np.minimum(values.data, self.clip)
        return np.asarray(values @ self.components[:, found].T - self.components @ self.mean, dtype=np.float32)


def learn_projection(
    counts: ScaledGenes, scores: np.ndarray, gene_names: pd.Index, *, target_sum: float, transform: str, clip: float
) -> GeneProjection:
    """Projection whose scores, for the section that it is learnt from, are those of its PCA.

    With X - 1 mean^T = U S V^T and scores T = U S, whose columns are orthogonal and sum to zero, the components are
    V^T = (T^T T)^-1 T^T X.

    Parameters
    ----------
    counts
        Scaled genes X (n, g) of the section.
    scores
        T (n, p), `principal_components` of them.
    gene_names
        Of all genes of the section.
    """
    centred = scores.astype(np.float64)
    centred -= centred.mean(axis=0)
    squares = (centred**2).sum(axis=0)
    values = counts.values.astype(np.float64)
    components = (values.T @ centred).T / np.where(squares > 0.0, squares, 1.0)[:, None]
    names = np.asarray(gene_names, dtype=str)
    return GeneProjection(
        counted=names,
        genes=names[counts.genes],
        sd=counts.sd,
        mean=np.asarray(values.mean(axis=0)).ravel(),
        components=np.ascontiguousarray(components),
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
