"""The result of an earlier fit, read back from a section."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.io.coordinates import read_coordinates
from spatialpdvi.io.keys import Keys
from spatialpdvi.io.labels import read_domains, read_labels
from spatialpdvi.io.sources import Source

__all__ = ["Fitted", "check_fitted", "read_fitted"]


class Fitted(NamedTuple):
    """What a picture or a report needs of a fitted section."""

    coordinates: np.ndarray  # (n, 2|3) float64
    domains: pd.Categorical  # (n,)
    confidence: np.ndarray  # (n,)
    calibrated: np.ndarray | None  # (n,): the calibrated confidence, where there is one
    annotation: pd.Categorical | None  # (n,); missing has code -1
    colours: dict[str, str] | None  # of the domains by name, where they are stored; not checked to be colours
    summary: dict[str, Any]  # uns[key]: params, trace, certificate, scores, ...


def read_fitted(source: Source, keys: Keys, *, label_key: str | None = None, spatial_key: str = "spatial") -> Fitted:
    """Read and check what a fit with ``keys`` has written, and the annotation where there is one."""
    check_fitted(source, keys)
    annotation, _ = read_labels(source, label_key)
    has_calibrated = keys.calibrated_confidence in source.obs_keys()
    return Fitted(
        coordinates=read_coordinates(source, spatial_key),
        domains=read_domains(source, keys.domain),
        confidence=_read_confidence(source, keys.confidence),
        calibrated=_read_confidence(source, keys.calibrated_confidence) if has_calibrated else None,
        annotation=annotation,
        colours=_read_colours(source, keys),
        summary=_read_summary(source, keys.uns),
    )


def check_fitted(source: Source, keys: Keys) -> None:
    """Refuse a section in which no fit has written under ``keys``."""
    missing = [key for key in (keys.domain, keys.confidence) if key not in source.obs_keys()]
    if missing or keys.uns not in source.uns_keys():
        msg = (
            f"Expected a fitted section with obs[{keys.domain!r}] and uns[{keys.uns!r}] in {source.name}, found "
            f"columns: {list_keys(source.obs_keys())}. Run `spatialpdvi fit` first, or name its --key-added."
        )
        raise InputError(msg)


def _read_confidence(source: Source, key: str) -> np.ndarray:
    column = source.obs(key)
    found = f"values of type {column.dtype}"
    if pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isfinite(values).all():
            return np.asarray(values)
        found = f"{(~np.isfinite(values)).sum():,} spots with NaN or infinity"
    raise _not_ours(source, f"obs[{key!r}]", found)


def _read_colours(source: Source, keys: Keys) -> dict[str, str] | None:
    """``uns[keys.colours]`` by the names of the categories they are in the order of; None where it is not there."""
    if keys.colours not in source.uns_keys():
        return None
    column = source.obs(keys.domain)
    if isinstance(column.dtype, pd.CategoricalDtype):
        names = [str(name) for name in column.cat.categories]
    else:
        names = list(read_domains(source, keys.domain).categories)
    values = source.uns(keys.colours)
    colours = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(colours, list | tuple) and len(colours) >= len(names) and all(isinstance(c, str) for c in colours):
        return dict(zip(names, colours, strict=False))  # scanpy, too, takes the first of more
    found = f"{len(colours)} values" if isinstance(colours, list | tuple) else f"a {type(values).__name__}"
    msg = (
        f"Expected uns[{keys.colours!r}] of {source.name} to hold a colour for each of the {len(names)} categories of "
        f"obs[{keys.domain!r}], found {found}. Mend or remove it, or run `spatialpdvi fit` again."
    )
    raise InputError(msg)


def _read_summary(source: Source, key: str) -> dict[str, Any]:
    """``uns[key]`` with a trace of numeric columns and scores that are numbers."""
    summary, name = source.uns(key), f"uns[{key!r}]"
    if not isinstance(summary, Mapping):
        raise _not_ours(source, name, f"a {type(summary).__name__}")
    for part in ("trace", "scores"):
        if not isinstance(summary.get(part), Mapping):
            raise _not_ours(source, name, f"no dict {part!r} in it")
    if not isinstance(summary.get("k_scan", {}), Mapping):
        raise _not_ours(source, name, "no dict 'k_scan' in it")
    for part in ("trace", "k_scan"):
        for column, values in summary.get(part, {}).items():
            if np.ndim(values) != 1 or np.asarray(values).dtype.kind not in "iufb":
                raise _not_ours(source, name, f"no column of numbers in its {part} under {column!r}")
    for score, value in summary["scores"].items():
        if not isinstance(value, Mapping) and (np.ndim(value) or np.asarray(value).dtype.kind not in "iuf"):
            raise _not_ours(source, name, f"no number in its scores under {score!r}")
    return dict(summary)


def _not_ours(source: Source, name: str, found: str) -> InputError:
    msg = f"Expected {name} of {source.name} to hold what a fit has written, found {found}. "
    return InputError(msg + "Run `spatialpdvi fit` again, or name the --key-added of another fit.")
