"""Where the features of a model come from, before they are averaged over neighbours."""

from typing import NamedTuple

import numpy as np

from spatialpdvi.features.projection import GeneProjection

__all__ = ["Space"]


class Space(NamedTuple):
    """Where features come from, before they are averaged in space: genes, or columns that are given."""

    genes: GeneProjection | None  # None with `rep`
    rep: str | None  # key in obsm
    n_columns: int  # of obsm[rep]; 0 with genes
    centre: np.ndarray  # (d,) mean over the spots of the fit, of columns that are given less the origin
    origin: np.ndarray  # (d,) taken off columns that are given; 0 with genes, and where they are near zero

    @property
    def n_features(self) -> int:
        """Number d of the features; of given columns the first d are taken."""
        return int(self.centre.size)
