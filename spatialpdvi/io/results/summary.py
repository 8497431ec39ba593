"""What the summary of a result, ``uns[key]``, says of its fit."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError, InputWarning, list_keys, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import Keys

__all__ = [
    "check_fitted",
    "files_of_fit",
    "is_prediction",
    "joint_samples",
    "label_key_of_fit",
    "lost_sample_key",
    "n_stored",
    "not_ours",
    "read_summary",
    "sample_key_of_fit",
    "scores_of_fit",
    "spatial_key_of_fit",
    "stored_params",
]


def check_fitted(source: Source, keys: Keys) -> None:
    """Raise an `InputError` where no fit has been written under these names, or there are no spots."""
    missing = [key for key in (keys.domain, keys.confidence) if key not in source.obs_keys()]
    if missing or keys.uns not in source.uns_keys():
        found, advice = f"columns: {list_keys(source.obs_keys())}", "Run `spatialpdvi fit` first, or name its"
        if not missing:
            found = f"keys of uns: {list_keys(source.uns_keys())}"
            advice = "Sections lose it when they are concatenated: fit them together, or name the fit's"
        raise InputError(
            f"a fitted section with obs[{keys.domain!r}] and uns[{keys.uns!r}] in {source.name}",
            found,
            f"{advice} {option('key_added')}.",
        )
    if not source.n_obs:
        raise InputError(f"at least one spot in {source.name}", "none")


def read_summary(source: Source, key: str) -> dict[str, Any]:
    """Read ``uns[key]``, with a trace of numeric columns and scores that are numbers."""
    summary, name = source.uns(key), f"uns[{key!r}]"
    if not isinstance(summary, Mapping):
        raise not_ours(source, name, f"an object of type {type(summary).__name__}")
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


def n_stored(summary: Any) -> int:
    """Return how many domains the summary of a fit describes, those of an edit where there was one; 0 without any."""
    return len(np.atleast_1d(summary.get("domain_mean", ()))) if isinstance(summary, Mapping) else 0


def stored_params(summary: Any) -> Mapping[str, Any]:
    """Return the parameters in the summary of a fit, ``uns[key]``; empty where there are none.

    A file holds numbers and truth values of NumPy; here they are Python's own.
    """
    params = summary.get("params") if isinstance(summary, Mapping) else None
    items = params.items() if isinstance(params, Mapping) else ()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in items}


def is_prediction(summary: Any) -> bool:
    """Whether a result, by its summary ``uns[key]``, is a prediction; models without a file have no name."""
    return not {"model", "model_version"}.isdisjoint(stored_params(summary))


def joint_samples(scores: Mapping[str, Any]) -> list[str]:
    """Return the names of the sections of a joint fit in their order; an empty list for a fit of one section."""
    samples = scores.get("samples")
    names = samples.get("sample") if isinstance(samples, Mapping) else None
    return [] if names is None else [str(name) for name in np.atleast_1d(names)]


def files_of_fit(summary: Any) -> list[str]:
    """Return the names of the files that were fitted together, in their order; an empty list for a fit of one file."""
    return [] if "sample_key" in stored_params(summary) else joint_samples(scores_of_fit(summary))


def scores_of_fit(summary: Any) -> Mapping[str, Any]:
    """Return scores over all sections of a fit from its summary, ``uns[key]``; empty where there are none.

    An edit scores the domains of its file alone. Where the file is one of several that were fitted together, the scores
    of the fit's start still name the sections, under ``samples``.
    """
    scores = summary.get("scores") if isinstance(summary, Mapping) else None
    if not isinstance(scores, Mapping):
        return {}
    start = scores.get("baseline")
    return start if "samples" not in scores and isinstance(start, Mapping) and "samples" in start else scores


def spatial_key_of_fit(summary: Any, key: str | None) -> str:
    """Return the key of the coordinates: the given one, or that of the fit with this summary, ``uns[key]``."""
    return str(stored_params(summary).get("spatial_key", "spatial")) if key is None else key


def label_key_of_fit(source: Source, summary: Any) -> str | None:
    """Return the column of the labels that the fit was scored against; None where it had none, or they are gone."""
    key = stored_params(summary).get("label_key")
    return key if isinstance(key, str) and key in source.obs_keys() else None


def sample_key_of_fit(source: Source, summary: Any, key: str | None) -> str | None:
    """Return the column of sections: the given one, or that of the fit; None, with a warning, where it is gone."""
    if key is not None:
        return key
    lost = lost_sample_key(source, summary)
    if lost is None:
        return _stored_sample_key(summary)
    text = (
        f"The column obs[{lost!r}], by which the fit told sections apart, is not in {source.name}. All spots "
        f"count as one section; name another column with {option('sample_key')}."
    )
    warnings.warn(InputWarning(text), stacklevel=3)
    return None


def lost_sample_key(source: Source, summary: Any) -> str | None:
    """Return the column by which the fit told sections apart, where it is gone."""
    key = _stored_sample_key(summary)
    return None if key is None or key in source.obs_keys() else key


def _stored_sample_key(summary: Any) -> str | None:
    key = stored_params(summary).get("sample_key")
    return key if isinstance(key, str) and key else None


def not_ours(source: Source, name: str, found: str) -> InputError:
    """Return the error for an element that is not what a fit writes."""
    return InputError(
        f"{name} of {source.name} to hold the result of a fit",
        found,
        f"Run `spatialpdvi fit` again, or name the {option('key_added')} of another fit.",
    )
