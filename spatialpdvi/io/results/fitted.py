"""The result of an earlier fit, read back from a section."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning, list_keys
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.extras import not_ours, read_number
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.section.coordinates import read_coordinates
from spatialpdvi.io.section.labels import read_domains, read_labels, read_samples

__all__ = ["Fitted", "check_fitted", "read_agreement", "read_fitted"]

_AGAIN = "Run `spatialpdvi fit` again."
_ROUNDED = 1e-5  # sums of posteriors in single precision


class Fitted(NamedTuple):
    """What a picture or a report needs of a fitted section."""

    coordinates: np.ndarray | None  # (n, 2|3) float64; None where they were not asked for
    domains: pd.Categorical  # (n,)
    confidence: np.ndarray  # (n,)
    calibrated: np.ndarray | None  # (n,): the calibrated confidence, where there is one
    annotation: pd.Categorical | None  # (n,); missing has code -1
    colours: dict[str, str] | None  # of the domains by name, where they are stored; not checked to be colours
    summary: dict[str, Any]  # uns[key]: params, trace, certificate, scores, ...
    samples: pd.Categorical | None  # (n,): the section of each spot, where there are several


def read_fitted(
    source: Source,
    keys: Keys,
    *,
    label_key: str | None = None,
    spatial_key: str | None = "spatial",
    sample_key: str | None = None,
) -> Fitted:
    """Read and check what a fit with ``keys`` has written, and the annotation where there is one.

    Sections are told apart by ``sample_key``, by default the one that the fit was given. Without ``spatial_key`` there
    are neither coordinates nor sections, as a chart needs none.
    """
    check_fitted(source, keys)
    annotation, _ = read_labels(source, label_key)
    summary = _read_summary(source, keys.uns)
    samples = None if spatial_key is None else _read_samples(source, summary, sample_key)
    sure, calibrated = keys.confidence, keys.calibrated_confidence
    return Fitted(
        coordinates=None if spatial_key is None else read_coordinates(source, spatial_key, samples=samples),
        domains=read_domains(source, keys.domain),
        confidence=_read_share(source, sure),
        calibrated=_read_share(source, calibrated) if calibrated in source.obs_keys() else None,
        annotation=annotation,
        colours=_read_colours(source, keys),
        summary=summary,
        samples=samples,
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


def _read_samples(source: Source, summary: Mapping[str, Any], key: str | None) -> pd.Categorical | None:
    """The section of each spot; None where there is one section."""
    if key is None:
        params = summary.get("params")
        key = params.get("sample_key") if isinstance(params, Mapping) else None
        if not isinstance(key, str) or not key:
            return None
        if key not in source.obs_keys():
            msg = (
                f"Expected obs[{key!r}], by which the fit told sections apart, in {source.name}, found no such column. "
                "All spots are drawn as one section. Name another column with --sample-key."
            )
            warnings.warn(msg, InputWarning, stacklevel=2)
            return None
    samples = read_samples(source, key)
    return samples if len(samples.categories) > 1 else None


def read_agreement(source: Source, keys: Keys) -> np.ndarray | None:
    """``obs[keys.agreement]``, (n,): the share of restarts that agree; None of a fit without restarts."""
    if keys.agreement not in source.obs_keys():
        return None
    return _read_share(source, keys.agreement)


def _read_share(source: Source, key: str) -> np.ndarray:
    """A column of obs with a share of 1 for each spot, (n,)."""
    values = read_number(source, key, otherwise=_AGAIN)
    outside = np.abs(values - 0.5) > 0.5 + _ROUNDED
    if outside.any():
        raise not_ours(source, f"obs[{key!r}]", f"{values[np.argmax(outside)]:.6g}, which is no share of 1")
    return values


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
        raise not_ours(source, name, f"a {type(summary).__name__}")
    for part in ("trace", "scores"):
        if not isinstance(summary.get(part), Mapping):
            raise not_ours(source, name, f"no dict {part!r} in it")
    if not isinstance(summary.get("k_scan", {}), Mapping):
        raise not_ours(source, name, "no dict 'k_scan' in it")
    for part in ("trace", "k_scan"):
        for column, values in summary.get(part, {}).items():
            if np.ndim(values) != 1 or np.asarray(values).dtype.kind not in "iufb":
                raise not_ours(source, name, f"no column of numbers in its {part} under {column!r}")
    for score, value in summary["scores"].items():
        if not isinstance(value, Mapping) and (np.ndim(value) or np.asarray(value).dtype.kind not in "iuf"):
            raise not_ours(source, name, f"no number in its scores under {score!r}")
    return dict(summary)
