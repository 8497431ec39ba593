"""Principal components of a section, and the projection that finds those of another section in the same space."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds

from spatialpdvi.errors import InputError, option
from spatialpdvi.features.scaling import (
    ColumnMoments,
    ScaledGenes,
    ScaledRows,
    is_constant,
    normalised_genes,
    take_genes,
)
from spatialpdvi.kernels.counts import column_products, project_rows
from spatialpdvi.options.stages import are_tall
from spatialpdvi.runtime.rows import CountRows, row_blocks, slices
from spatialpdvi.runtime.threads import n_threads, single_threaded

__all__ = [
    "GeneProjection",
    "OutlierLimit",
    "Space",
    "learn_limit",
    "learn_projection",
    "principal_components",
]

_FAR = 99.0  # percentile of the distance from the median beyond which spots are drawn in
_LEAST_SPREAD = 0.1  # of a column's sd, for its robust spread: most values of a column may be equal


class Components(NamedTuple):
    """Leading principal components."""

    scores: np.ndarray  # (n, p) float32
    loadings: np.ndarray  # (p, d) float64, rows of unit length
    mean: np.ndarray  # (d,) float64 of the features


class GeneProjection(NamedTuple):
    """The steps from the counts of a section to its principal components; genes are identified by their names."""

    counted: np.ndarray  # (G,) names of the genes whose counts add up to a spot's total
    genes: np.ndarray  # (g,) names of the selected genes
    sd: np.ndarray  # (g,) of their normalised and transformed values
    mean: np.ndarray  # (g,) of their scaled and clipped values
    components: np.ndarray  # (p, g) rows of unit length
    target_sum: float
    transform: str  # "none", "log1p" or "sqrt"
    clip: float

    def apply(self, counts: CountRows, gene_names: pd.Index) -> tuple[np.ndarray, np.ndarray]:
        """Return the scores (n, p) float32 and the totals (n,) of other counts (n, genes); genes that they lack are 0.

        The total of a spot is taken over the genes that the model's section counted, because totals of panels of
        different sizes cannot be compared. Names that occur in the projection must be unique.
        """
        counted = gene_names.isin(self.counted).astype(np.float64)
        place = gene_names.get_indexer_for(self.genes) if gene_names.is_unique else self._places(gene_names)
        found = np.flatnonzero(place >= 0)
        found = found[np.argsort(place[found])]
        blocks = [self._scores(block, counted, place, found) for block in row_blocks(counts)]
        scores, totals = zip(*blocks, strict=True)
        return np.concatenate(scores), np.concatenate(totals)

    def _places(self, gene_names: pd.Index) -> np.ndarray:
        """Columns of the genes, -1 where there is none; names of other genes may repeat."""
        known = np.flatnonzero(gene_names.isin(self.genes))
        where = gene_names[known].get_indexer_for(self.genes)
        return np.where(where >= 0, known[where], -1)

    def _scores(
        self, block: sp.csr_matrix, counted: np.ndarray, place: np.ndarray, found: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        totals = np.asarray(block.astype(np.float64) @ counted)
        taken = take_genes(block, place[found])
        values = normalised_genes(taken, totals, target_sum=self.target_sum, transform=self.transform)
        scaled = values.astype(np.float64) @ sp.diags(1.0 / self.sd[found])
        scaled.data = np.minimum(scaled.data, self.clip)
        return np.asarray(scaled @ self.components[:, found].T - self.components @ self.mean, dtype=np.float32), totals


class Space(NamedTuple):
    """What brings another section into the space of the features, before they are smoothed."""

    genes: GeneProjection | None  # None with `rep`
    rep: str | None  # key in obsm
    n_columns: int  # of obsm[rep]; 0 with genes
    centre: np.ndarray  # (d,) mean over the spots of the fit, of given columns less the origin
    origin: np.ndarray  # (d,) subtracted from given columns; 0 with genes, and where columns lie near zero

    @property
    def n_features(self) -> int:
        """Number d of the features; of given columns the first d are taken."""
        return int(self.centre.size)


class OutlierLimit(NamedTuple):
    """A distance from the median spot beyond which spots are drawn in, along the line to it."""

    centre: np.ndarray  # (d,) medians
    spread: np.ndarray  # (d,) > 0, robust standard deviations
    limit: float  # of the Euclidean distance in units of the spread

    def apply(self, features: np.ndarray) -> np.ndarray:
        """Return features (n, d) float64 about the median, with far spots drawn in to the limit."""
        centred = features.astype(np.float64) - self.centre
        distance = np.sqrt(((centred / self.spread) ** 2).sum(axis=1))
        centred *= np.minimum(1.0, self.limit / np.maximum(distance, self.limit))[:, None]
        return centred


def learn_limit(features: np.ndarray) -> OutlierLimit:
    """Return the limit at the 99th percentile of the distance of features (n, d)."""
    # column by column and block by block: the features of a large section are not copied as a whole
    centre = np.array([np.median(column) for column in features.T], dtype=np.float64)
    spread = np.array([_robust_spread(column - middle) for column, middle in zip(features.T, centre, strict=True)])
    spread[spread == 0.0] = 1.0
    blocks = slices(features.shape[0])
    distance = [np.sqrt((((features[rows] - centre) / spread) ** 2).sum(axis=1)) for rows in blocks]
    limit = float(np.percentile(np.concatenate(distance), _FAR))
    return OutlierLimit(centre, spread, limit or 1.0)


def _robust_spread(centred: np.ndarray) -> float:
    """The standard deviation (of a Gaussian) by the median distance of values (n,) from their median."""
    return float(max(1.4826 * np.median(np.abs(centred)), _LEAST_SPREAD * centred.std()))


def principal_components(
    scaled: np.ndarray | sp.csr_matrix | ScaledRows, n_components: int, *, seed: int
) -> Components:
    """Return the leading components of features (n, d), which are centred implicitly: a sparse matrix stays sparse.

    Their number p is ``n_components``, or one less than the smaller side of the matrix. The sign of each component is
    fixed. Sparse features that `are_tall`, and they alone, may be given as rows that are not in memory.

    Raises
    ------
    InputError
        Where there are fewer than two spots or columns, or no column varies.
    """
    p = min(n_components, min(scaled.shape) - 1)
    advice = f"Check {option('layer')}, or give features with {option('rep')}."
    if p < 1:
        raise InputError(
            "at least 2 spots and 2 features that vary for a PCA", f"{scaled.shape[0]} and {scaled.shape[1]}", advice
        )
    # scaled genes that are computed when they are read all vary
    if not isinstance(scaled, ScaledRows) and is_constant(scaled).all():
        raise InputError("features that vary between spots", "only constant ones", advice)
    if not isinstance(scaled, np.ndarray) and are_tall(scaled.shape):
        return _components_of_products(scaled, p)
    assert not isinstance(scaled, ScaledRows)  # the caller has asked
    return _components_by_steps(scaled, p, seed=seed)


def _components_by_steps(scaled: np.ndarray | sp.csr_matrix, p: int, *, seed: int) -> Components:
    """Components by an iterative method, which multiplies the matrix by a vector some hundred times."""
    # SciPy would average a sparse matrix in its own float32, and copy it
    mean = scaled.mean(axis=0, dtype=np.float64) if isinstance(scaled, np.ndarray) else _means(scaled)
    start = np.random.RandomState(seed).uniform(-1.0, 1.0, min(scaled.shape))
    with single_threaded():
        left, sizes, right = svds(_centred(scaled, mean.astype(scaled.dtype)), k=p, v0=start)
    left, sizes, right = left[:, ::-1], sizes[::-1], right[::-1]
    signs = np.sign(right[np.arange(p), np.abs(right).argmax(axis=1)])
    scores, loadings = left * (signs * sizes), right * signs[:, None]
    return Components(np.asarray(scores, dtype=np.float32), np.asarray(loadings, dtype=np.float64), mean)


def _centred(scaled: np.ndarray | sp.csr_matrix, mean: np.ndarray) -> np.ndarray | LinearOperator:
    """Features (n, d) less the mean of their columns; a sparse matrix stays sparse and is centred in each product.

    What `sklearn.decomposition.PCA` does, whose import would take a tenth of the fit of a small section.
    """
    if isinstance(scaled, np.ndarray):
        return scaled - mean
    transposed = scaled.T
    return LinearOperator(
        scaled.shape,
        matvec=lambda v: scaled @ v - mean @ v,
        matmat=lambda v: scaled @ v - mean @ v,
        rmatvec=lambda v: transposed @ v - mean * v.sum(),
        rmatmat=lambda v: transposed @ v - np.outer(mean, v.sum(axis=0)),
        dtype=scaled.dtype,
    )


def _means(values: sp.csr_matrix) -> np.ndarray:
    moments = ColumnMoments(*values.shape)
    moments.add(values)
    return moments.mean()


def _components_of_products(scaled: sp.csr_matrix | ScaledRows, p: int) -> Components:
    """Components from the covariances of all pairs of columns, in two passes over the rows."""
    from scipy.linalg import eigh

    n, d = scaled.shape
    products, moments, n_teams = np.zeros((d, d)), ColumnMoments(n, d), n_threads()
    for block in row_blocks(scaled):
        column_products(block.data, block.indices, block.indptr, n_teams, products)
        moments.add(block)
    mean = moments.mean()
    with single_threaded():
        covariance = products.T / n - np.outer(mean, mean)  # the lower triangle, which is what `eigh` reads
        _, vectors = eigh(covariance, subset_by_index=(d - p, d - 1), overwrite_a=True, check_finite=False)
    loadings = np.ascontiguousarray(vectors[:, ::-1].T)
    largest = np.abs(loadings).argmax(axis=1)
    loadings *= np.sign(loadings[np.arange(p), largest])[:, None]  # as scikit-learn chooses signs
    columns, shift = np.ascontiguousarray(loadings.T), -loadings @ mean
    scores, done = np.empty((n, p), dtype=np.float32), 0
    for block in row_blocks(scaled):
        own = scores[done : done + block.shape[0]]
        project_rows(block.data, block.indices, block.indptr, columns, shift, own)
        done += block.shape[0]
    return Components(scores, loadings, mean)


def learn_projection(
    counts: ScaledGenes,
    components: Components,
    gene_names: pd.Index,
    *,
    counted: np.ndarray,
    target_sum: float,
    transform: str,
    clip: float,
) -> GeneProjection:
    """Return the projection whose scores, for the section that it is learnt from, are those of its PCA.

    Parameters
    ----------
    counts
        Scaled genes (n, g) of the section.
    components
        `principal_components` of them.
    gene_names
        Names of all genes of the section.
    counted
        (G,) columns of the genes whose counts add up to a spot's total.
    target_sum, transform, clip
        How the genes were normalised, transformed and clipped (`scaled_genes`).
    """
    names = np.asarray(gene_names, dtype=str)
    return GeneProjection(
        counted=names[counted],
        genes=names[counts.genes],
        sd=counts.sd,
        mean=components.mean,
        components=np.ascontiguousarray(components.loadings),
        target_sum=float(target_sum),
        transform=transform,
        clip=float(clip),
    )
