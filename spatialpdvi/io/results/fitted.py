"""Read the result of a fit back from a section."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, list_keys, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.section.coordinates import as_table, read_coordinates
from spatialpdvi.io.section.features import read_graph
from spatialpdvi.io.section.labels import DEFAULT_LABEL_KEY, label_text, read_domains, read_labels, read_samples

__all__ = [
    "SELECTED",
    "Fitted",
    "check_fitted",
    "domain_names",
    "given_graph",
    "is_prediction",
    "joint_samples",
    "lost_sample_key",
    "not_ours",
    "read_agreement",
    "read_colours",
    "read_composition",
    "read_connectivities",
    "read_fitted",
    "read_flow",
    "read_number",
    "read_own_colours",
    "read_states",
    "read_summary",
    "sample_key_of_fit",
    "samples_of_fit",
    "scores_of_fit",
    "spatial_key_of_fit",
    "stored_graph",
    "stored_params",
    "why_missing",
    "with_lost",
]

_AGAIN = "Run `spatialpdvi fit` again."
SELECTED = (
    "A selection of spots loses the categories that have none left (`adata[...]`), and not what is stored of them. Run "
    "this on the whole section, before spots are selected, or run `spatialpdvi fit` again."
)
_GRAPH = f"The graph was not saved: fit again with {option('save_graph', True)}."
_NO_STATES = (
    "Only fits whose domains are compositions of cell states write it: fit with "
    f"{option('states', 'auto')}, or with a number of states."
)
# what to say instead where the domains are those of a prediction
_IN_PREDICTION = {
    _AGAIN: "Run `spatialpdvi predict` again.",
    _GRAPH: f"The graph was not saved: predict again with {option('save_graph', True)}.",
    _NO_STATES: "Only models whose domains are compositions of cell states give it: predict with such a model.",
}
_NONE_IN_PREDICTION = "The domains were predicted with a model. Predictions have none: only fits write it."
_CARRIED = "The domains were carried over by place: this stays with the spots of the fit from which they are."
_ROUNDED = 1e-5  # error of a sum of posteriors in single precision


class Fitted(NamedTuple):
    """What a picture or a report needs of a fitted section."""

    coordinates: np.ndarray | None  # (n, 2|3) float64; None if they were not wanted
    domains: pd.Categorical  # (n,)
    confidence: np.ndarray  # (n,)
    calibrated: np.ndarray | None  # (n,): the calibrated confidence, where there is one
    annotation: pd.Categorical | None  # (n,); missing has code -1
    colours: dict[str, str] | None  # by domain, where they are stored; they may be no valid colours
    summary: dict[str, Any]  # uns[key]: params, trace, certificate, scores, ...
    samples: pd.Categorical | None  # (n,): section of each spot, where there are several
    section: str | None = None  # the name of the only one, where a column names it
    label_key: str | None = None  # column of obs that holds the annotation
    label_colours: dict[str, str] | None = None  # by label, where the user stored any; they may be no valid colours

    @property
    def edits(self) -> list[str]:
        """What was done to the domains since the fit, a sentence for each edit."""
        found = self.summary.get("edits")
        if not isinstance(found, Mapping):
            return []
        columns = (np.atleast_1d(found.get(name, ())) for name in ("action", "detail"))
        return [f"{action}: {detail}" for action, detail in zip(*columns, strict=False)]

    @property
    def carried_from(self) -> str | None:
        """The fit from which the domains were carried over by place, the name of its file; None for a fit's own."""
        found = self.summary.get("transfer")
        return str(found.get("fit", "another file")) if isinstance(found, Mapping) else None

    @property
    def shown_confidence(self) -> np.ndarray:
        """The confidence (n,) that pictures show: calibrated, where the fit could calibrate it."""
        return self.confidence if self.calibrated is None else self.calibrated

    @property
    def n_fitted(self) -> int:
        """The number of domains of the fit, which edits and selections of spots do not change."""
        choice = self.summary.get("k_choice")
        k = choice.get("k") if isinstance(choice, Mapping) else stored_params(self.summary).get("k")
        return int(k) if isinstance(k, int | np.integer) else len(self.domains.categories)


def read_fitted(
    source: Source,
    keys: Keys,
    *,
    label_key: str | None = None,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    placed: bool = True,
) -> Fitted:
    """Read and check what a fit has written, and the annotation where there is one.

    Parameters
    ----------
    source
        The fitted section.
    keys
        The names under which the fit was written.
    label_key
        Column of ``obs`` with the annotation; None for that of the fit, or where it is gone for ``annotation``, if
        there is one.
    spatial_key
        Key of ``obsm`` with the coordinates; None for those of the fit.
    sample_key
        Column of ``obs`` with the section of each spot; None for the one that the fit was given.
    placed
        Whether to read coordinates and sections, which charts do not need.

    Raises
    ------
    InputError
        Where there is no fit, or its elements have been changed.
    """
    check_fitted(source, keys)
    summary = read_summary(source, keys.uns)
    annotation, found_key = read_labels(source, label_key, otherwise=_label_key_of_fit(source, summary))
    samples = coordinates = section = None
    if placed:
        samples, section = _samples_and_only_one(source, summary, sample_key)
        coordinates = read_coordinates(source, spatial_key_of_fit(summary, spatial_key), samples=samples)
    calibrated = keys.calibrated_confidence
    return Fitted(
        coordinates=coordinates,
        domains=read_domains(source, keys.domain),
        confidence=_read_share(source, keys.confidence),
        calibrated=_read_share(source, calibrated) if calibrated in source.obs_keys() else None,
        annotation=annotation,
        colours=read_colours(source, keys),
        summary=summary,
        samples=samples,
        section=section,
        label_key=found_key,
        label_colours=None if found_key is None else _read_label_colours(source, found_key),
    )


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


def samples_of_fit(source: Source, summary: Any, key: str | None) -> pd.Categorical | None:
    """Read the section of each spot, (n,): from ``obs[key]``, or from the column that the fit was given.

    Returns None where there is one section. Where the fit's column is gone, a warning says so.
    """
    return _samples_and_only_one(source, summary, key)[0]


def _samples_and_only_one(source: Source, summary: Any, key: str | None) -> tuple[pd.Categorical | None, str | None]:
    """Read the section of each spot, and, where all are of one section, the name of that instead."""
    key = sample_key_of_fit(source, summary, key)
    samples = None if key is None else read_samples(source, key)
    if samples is None or len(samples.categories) > 1:
        return samples, None
    return None, str(samples.categories[0])


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


def _label_key_of_fit(source: Source, summary: Any) -> str:
    """Return the column of the labels that the fit was scored against, where it is still there, or the usual one."""
    key = stored_params(summary).get("label_key")
    return key if isinstance(key, str) and key in source.obs_keys() else DEFAULT_LABEL_KEY


def read_agreement(source: Source, keys: Keys) -> np.ndarray | None:
    """Read the agreement of each spot, (n,); None after a fit without restarts."""
    if keys.agreement not in source.obs_keys():
        return None
    return _read_share(source, keys.agreement)


def _read_share(source: Source, key: str) -> np.ndarray:
    """Read a column of obs with values in [0, 1], (n,)."""
    values = read_number(source, key, otherwise=_AGAIN)
    outside = np.abs(values - 0.5) > 0.5 + _ROUNDED
    if outside.any():
        raise not_ours(source, f"obs[{key!r}]", f"{values[np.argmax(outside)]:.6g}, which is not between 0 and 1")
    return values


def domain_names(source: Source, keys: Keys) -> list[str]:
    """Return the names of the domains of a section, those without spots too where the column is a categorical one."""
    column = source.obs(keys.domain)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [label_text(name) for name in column.cat.categories]
    return list(read_domains(source, keys.domain).categories)


def with_lost(names: list[str], k: int, summary: Mapping[str, Any]) -> list[str]:
    """Return the names of all K domains of a fit, of which a selection of spots has lost those without spots.

    Those that an edit has named cannot be known again, and are missing still.
    """
    numbers = [str(number) for number in range(k)]  # what a fit calls its domains
    return numbers if "edits" not in summary and set(names) < set(numbers) else names


def read_colours(source: Source, keys: Keys) -> dict[str, str] | None:
    """Read the colours of the categories of the domains, by name; None where there are none."""
    if keys.colours not in source.uns_keys():
        return None
    names, values = domain_names(source, keys), source.uns(keys.colours)
    colours = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(colours, list | tuple) and len(colours) >= len(names) and all(isinstance(c, str) for c in colours):
        return dict(zip(names, colours, strict=False))  # scanpy, too, takes the first of more
    found = (
        f"{len(colours)} values" if isinstance(colours, list | tuple) else f"an object of type {type(values).__name__}"
    )
    raise InputError(
        f"uns[{keys.colours!r}] of {source.name} to hold a colour for each of the {len(names)} categories of "
        f"obs[{keys.domain!r}]",
        found,
        "Correct or remove it, or run `spatialpdvi fit` again.",
    )


def read_own_colours(source: Source, keys: Keys) -> dict[str, str] | None:
    """Read the colours of the domains, by name, where they are not those that the last fit wrote; None elsewhere."""
    try:
        check_fitted(source, keys)
        colours = read_colours(source, keys)
    except InputError:  # no fit, or nothing that could be kept
        return None
    summary = source.uns(keys.uns)
    written = np.atleast_1d(summary.get("colours", ())).tolist() if isinstance(summary, Mapping) else []
    return None if colours is None or list(colours.values()) == written else colours


def _read_label_colours(source: Source, key: str) -> dict[str, str] | None:
    """Read the colours that the user stored for the labels ``obs[key]``, by name; None where there are none."""
    if f"{key}_colors" not in source.uns_keys():
        return None
    column, colours = source.obs(key), np.atleast_1d(source.uns(f"{key}_colors")).tolist()
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return None
    names = [label_text(name) for name in column.cat.categories]
    if len(colours) < len(names) or not all(isinstance(colour, str) for colour in colours):
        text = f"uns['{key}_colors'] is not used: it does not hold a colour for each of the {len(names)} labels."
        warnings.warn(InputWarning(text), stacklevel=3)
        return None
    return dict(zip(names, colours, strict=False))


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


def read_number(source: Source, key: str, *, otherwise: str) -> np.ndarray:
    """Read ``obs[key]``, a finite number for each spot, (n,) float64.

    Parameters
    ----------
    source
        The fitted section.
    key
        Column of ``obs``.
    otherwise
        The advice, as whole sentences, where there is no such column.

    Raises
    ------
    InputError
        Where there is no such column, or it is not one of finite numbers.
    """
    if key not in source.obs_keys():
        raise InputError(f"obs[{key!r}] in {source.name}", "no such column", otherwise)
    column = source.obs(key)
    found = f"values of type {column.dtype}"
    types = pd.api.types
    if types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isfinite(values).all():
            return np.asarray(values)
        found = f"{(~np.isfinite(values)).sum():,} spots with NaN or infinity"
    raise not_ours(source, f"obs[{key!r}]", found)


def read_flow(source: Source, keys: Keys) -> np.ndarray:
    """Read the flow directions, (n, 2|3) float64."""
    if keys.flow not in source.obsm_keys():
        raise InputError(f"obsm[{keys.flow!r}] in {source.name}", "no such element", why_missing(source, keys, _GRAPH))
    flow = np.asarray(as_table(source.obsm(keys.flow), f"obsm[{keys.flow!r}]"), dtype=np.float64)
    if flow.shape[1] not in {2, 3} or not np.isfinite(flow).all():
        found = f"{flow.shape[1]} columns" if flow.shape[1] not in {2, 3} else "NaN or infinity"
        raise not_ours(source, f"obsm[{keys.flow!r}]", found)
    return flow


def read_states(source: Source, keys: Keys) -> np.ndarray:
    """Read the posterior of each spot's state, (n, C) in the type in which it is stored."""
    if keys.state not in source.obsm_keys():
        raise InputError(
            f"obsm[{keys.state!r}] in {source.name}", "no such element", why_missing(source, keys, _NO_STATES)
        )
    name = f"obsm[{keys.state!r}]"
    states = as_table(source.obsm(keys.state), name)
    if states.shape[1] == 0 or not np.isfinite(states).all():
        raise not_ours(source, name, "NaN or infinity" if states.shape[1] else "no column")
    return states


def read_composition(source: Source, keys: Keys, summary: Mapping[str, Any], domains: pd.Categorical) -> np.ndarray:
    """Read the share of each state in each domain that has spots, (K, C) float64, from the summary of a fit.

    Parameters
    ----------
    source, keys
        Of the fit.
    summary
        ``uns[key]``.
    domains
        (n,), from `read_domains`: those without spots, as in one file of several, have no category.
    """
    name = f"uns[{keys.uns!r}]['composition']"
    if "composition" not in summary:
        raise InputError(f"{name} in {source.name}", "no such element", _NO_STATES)
    shares = np.asarray(summary["composition"])
    every = with_lost(domain_names(source, keys), len(shares), summary)
    right = shares.ndim == 2 and shares.shape[0] >= len(every) and shares.dtype.kind in "iuf"
    if not right or not np.isfinite(shares).all() or (shares < 0).any():
        raise not_ours(source, name, f"an array of shape {shares.shape} that is not a row of shares for each domain")
    if shares.shape[0] > len(every):
        raise InputError(
            f"a row of {name} of {source.name} for each of the {len(every)} categories of obs[{keys.domain!r}]",
            f"{shares.shape[0]} rows",
            SELECTED,
        )
    place = {name: row for row, name in enumerate(every)}
    return shares[[place[str(category)] for category in domains.categories]].astype(np.float64)


def read_connectivities(source: Source, keys: Keys) -> sp.csr_matrix:
    """Read the edge weights of the objective, (n, n)."""
    if keys.connectivities not in source.obsp_keys():
        raise InputError(
            f"obsp[{keys.connectivities!r}] in {source.name}", "no such element", why_missing(source, keys, _GRAPH)
        )
    graph: Any = source.obsp(keys.connectivities)
    name = f"obsp[{keys.connectivities!r}]"
    if not sp.issparse(graph):
        raise not_ours(source, name, f"an object of type {type(graph).__name__}")
    graph = sp.csr_matrix(graph)
    if graph.shape != (source.n_obs, source.n_obs) or not np.isfinite(graph.data).all():
        raise not_ours(source, name, f"a matrix of shape {graph.shape}, or NaN or infinity in it")
    return graph


def stored_graph(source: Source, keys: Keys) -> sp.csr_matrix | None:
    """Read the edge weights of the objective, (n, n); None where the fit did not save them."""
    return read_connectivities(source, keys) if keys.connectivities in source.obsp_keys() else None


def given_graph(source: Source, summary: Any) -> sp.csr_matrix | None:
    """Read the graph that the fit with this summary was given, (n, n); None where it is no longer in the file."""
    key = stored_params(summary).get("graph")
    return read_graph(source, key) if isinstance(key, str) and key in source.obsp_keys() else None


def why_missing(source: Source, keys: Keys, otherwise: str) -> str:
    """Return what to say about a missing element: what holds for a transfer or a prediction, or else ``otherwise``."""
    stored = source.uns_fields(keys.uns)
    if "transfer" in stored:
        return _CARRIED
    if "params" in stored and is_prediction(source.uns(keys.uns)):
        return _IN_PREDICTION.get(otherwise, _NONE_IN_PREDICTION)
    return otherwise


def not_ours(source: Source, name: str, found: str) -> InputError:
    """Return the error for an element that is not what a fit writes."""
    return InputError(
        f"{name} of {source.name} to hold the result of a fit",
        found,
        f"Run `spatialpdvi fit` again, or name the {option('key_added')} of another fit.",
    )
