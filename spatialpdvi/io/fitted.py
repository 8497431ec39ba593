"""The result of an earlier fit, read back from a section."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.io.coordinates import read_coordinates
from spatialpdvi.io.keys import Keys
from spatialpdvi.io.labels import read_domains, read_labels
from spatialpdvi.io.sources import Source

__all__ = ["Fitted", "read_fitted"]


class Fitted(NamedTuple):
    """What a picture or a report needs of a fitted section."""

    coordinates: np.ndarray  # (n, 2|3) float64
    domains: pd.Categorical  # (n,)
    confidence: np.ndarray  # (n,)
    annotation: pd.Categorical | None  # (n,); missing has code -1
    summary: dict[str, Any]  # uns[key]: params, trace, certificate, scores, ...


def read_fitted(source: Source, keys: Keys, *, label_key: str | None = None, spatial_key: str = "spatial") -> Fitted:
    """Read and check what a fit with ``keys`` has written, and the annotation where there is one."""
    missing = [key for key in (keys.domain, keys.confidence) if key not in source.obs_keys()]
    if missing or keys.uns not in source.uns_keys():
        msg = (
            f"Expected a fitted section with obs[{keys.domain!r}] and uns[{keys.uns!r}] in {source.name}, found "
            f"columns: {list_keys(source.obs_keys())}. Run `spatialpdvi fit` first, or name its --key-added."
        )
        raise InputError(msg)
    annotation, _ = read_labels(source, label_key)
    return Fitted(
        coordinates=read_coordinates(source, spatial_key),
        domains=read_domains(source, keys.domain),
        confidence=source.obs(keys.confidence).to_numpy(),
        annotation=annotation,
        summary=source.uns(keys.uns),
    )
