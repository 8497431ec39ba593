r"""Trends that all cell states share: how features drift with the counts of a spot and along its section.

Spots with few counts, and spots at one end of a section where capture was poorer, have other features than spots of the
same state elsewhere. Such a trend is the same in every state; differences between cells are not:

    x_i | s_i = c  ~  N(c_c + B_g^T v_i, Sigma)      v_i log total counts and coordinates, g the section of spot i (C10)

B_g is the regression of features on covariates within groups of like spots, and each of its rows is shrunk by how well
the trend of a group is told by those of all others (C11). A group has one state and one kind of neighbourhood: where
layers of tissue follow one another along a coordinate, what changes from layer to layer is not a trend.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from spatialpdvi.io.section.coordinates import far_spots

__all__ = ["Covariates", "shared_trend", "spot_covariates"]

_FARTHEST = 3.0  # sd from the mean: a spot with next to no counts must not decide the trend, nor be moved far by it


class Covariates(NamedTuple):
    """What features may drift with, in each section by itself."""

    values: np.ndarray  # (n, p) float32, in sd from the mean of the section; 0 where all its spots are equal
    coordinates: np.ndarray  # (n, 2) or (n, 3), any unit
    sections: tuple[np.ndarray, ...]  # spots (ascending) of each

    def times(self, trends: Sequence[np.ndarray]) -> np.ndarray:
        """Return the drift (n, d) float32 of all spots by the trends (p, d) of their sections."""
        drift = np.empty((self.values.shape[0], trends[0].shape[1]), dtype=np.float32)
        for spots, trend in zip(self.sections, trends, strict=True):
            drift[spots] = self.values[spots] @ trend.astype(np.float32)
        return drift


def spot_covariates(coordinates: np.ndarray, sections: Sequence[np.ndarray], totals: np.ndarray | None) -> Covariates:
    """Return the covariates of all spots: their coordinates and, where they are known, the logarithm of their counts.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), any unit.
    sections
        Spots (ascending) of each section.
    totals
        (n,) counts of each spot, or None.
    """
    columns = [*coordinates.T] if totals is None else [np.log1p(totals), *coordinates.T]
    values = np.empty((coordinates.shape[0], len(columns)), dtype=np.float32)
    for spots in sections:
        near = ~far_spots(coordinates[spots])  # all others would be at one place to a spot that was put far away
        for column, into in zip(columns, values.T, strict=True):
            own = column[spots].astype(np.float64)
            typical = own[near]
            sd = typical.std()
            centred = own - typical.mean()
            is_flat = sd <= 1e-9 * np.abs(typical).max(initial=0.0)
            into[spots] = 0.0 if is_flat else np.clip(centred / sd, -_FARTHEST, _FARTHEST)
    return Covariates(values, coordinates, tuple(sections))


def shared_trend(features: np.ndarray, posterior: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the trend B (p, d) of one section that groups of its spots share (C11).

    Parameters
    ----------
    features
        (n, d) in coordinates in which the noise within states is 1.
    posterior
        (n, G) of the groups of each spot, rows sum to 1.
    values
        (n, p) covariates.
    """
    (n, d), p, n_groups = features.shape, values.shape[1], posterior.shape[1]
    size = np.maximum(posterior.sum(axis=0), 1e-9)
    x, v = features.astype(np.float64), values.astype(np.float64)
    mean_x, mean_v = (posterior.T @ x) / size[:, None], (posterior.T @ v) / size[:, None]
    squares = (posterior.T @ (v[:, :, None] * v[:, None, :]).reshape(n, -1)).reshape(n_groups, p, p)
    products = (posterior.T @ (v[:, :, None] * x[:, None, :]).reshape(n, -1)).reshape(n_groups, p, d)
    squares -= size[:, None, None] * mean_v[:, :, None] * mean_v[:, None, :]
    products -= size[:, None, None] * mean_v[:, :, None] * mean_x[:, None, :]
    all_squares, all_products = squares.sum(axis=0), products.sum(axis=0)
    told, possible = np.zeros(p), np.zeros(p)
    for own_squares, own_products in zip(squares, products, strict=True):
        others = _solved(all_squares - own_squares, all_products - own_products)
        told += (others * own_products).sum(axis=1)
        possible += (others * (own_squares @ others)).sum(axis=1)
    agreement = np.clip(np.divide(told, possible, out=np.zeros(p), where=possible > 0), 0.0, 1.0)
    return np.asarray(agreement[:, None] * _solved(all_squares, all_products))


def _solved(squares: np.ndarray, products: np.ndarray) -> np.ndarray:
    """The regression (p, d) of least size; a covariate that is constant has none."""
    return np.asarray(np.linalg.lstsq(squares, products, rcond=1e-9)[0])
