"""Read the columns, arrays and matrices of a result, and check its tables, against the domains that they are about."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import domain_names, why_fewer, with_lost
from spatialpdvi.io.results.summary import is_prediction, n_stored, not_ours, stored_params
from spatialpdvi.io.section.coordinates import as_table
from spatialpdvi.io.section.features import read_graph
from spatialpdvi.io.section.labels import read_domains
from spatialpdvi.io.section.missing import missing

__all__ = [
    "RenamedError",
    "check_names",
    "check_order",
    "count_moved",
    "given_graph",
    "read_agreement",
    "read_composition",
    "read_connectivities",
    "read_flow",
    "read_number",
    "read_share",
    "read_states",
    "stored_graph",
    "stored_neighbors",
    "why_missing",
]

_AGAIN = "Run `spatialpdvi fit` again."
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
_OF_OTHER = 1e-3  # how far a confidence may be from the posterior of the spot's domain


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
        raise missing(source, "obs", key, otherwise)
    column = source.obs(key)
    found = f"values of type {column.dtype}"
    types = pd.api.types
    if types.is_numeric_dtype(column.dtype) and not types.is_complex_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isfinite(values).all():
            return np.asarray(values)
        found = f"{(~np.isfinite(values)).sum():,} spots with NaN or infinity"
    raise not_ours(source, f"obs[{key!r}]", found)


def read_share(source: Source, key: str) -> np.ndarray:
    """Read a column of obs with values in [0, 1], (n,)."""
    values = read_number(source, key, otherwise=_AGAIN)
    outside = np.abs(values - 0.5) > 0.5 + _ROUNDED
    if outside.any():
        raise not_ours(source, f"obs[{key!r}]", f"{values[np.argmax(outside)]:.6g}, which is not between 0 and 1")
    return values


def read_agreement(source: Source, keys: Keys) -> np.ndarray | None:
    """Read the agreement of each spot, (n,); None after a fit without restarts."""
    if keys.agreement not in source.obs_keys():
        return None
    return read_share(source, keys.agreement)


def read_flow(source: Source, keys: Keys) -> np.ndarray:
    """Read the flow directions, (n, 2|3) float64."""
    if keys.flow not in source.obsm_keys():
        raise missing(source, "obsm", keys.flow, why_missing(source, keys, _GRAPH))
    flow = np.asarray(as_table(source.obsm(keys.flow), f"obsm[{keys.flow!r}]"), dtype=np.float64)
    if flow.shape[1] not in {2, 3} or not np.isfinite(flow).all():
        found = f"{flow.shape[1]} columns" if flow.shape[1] not in {2, 3} else "NaN or infinity"
        raise not_ours(source, f"obsm[{keys.flow!r}]", found)
    return flow


def read_states(source: Source, keys: Keys) -> np.ndarray:
    """Read the posterior of each spot's state, (n, C) in the type in which it is stored."""
    if keys.state not in source.obsm_keys():
        raise missing(source, "obsm", keys.state, why_missing(source, keys, _NO_STATES))
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
        raise missing(source, f"uns[{keys.uns!r}]", "composition", _NO_STATES)
    shares = np.asarray(summary["composition"])
    every = with_lost(domain_names(source, keys), len(shares), summary)
    right = shares.ndim == 2 and shares.shape[0] >= len(every) and shares.dtype.kind in "iuf"
    if not right or not np.isfinite(shares).all() or (shares < 0).any():
        raise not_ours(source, name, f"an array of shape {shares.shape} that is not a row of shares for each domain")
    if shares.shape[0] > len(every):
        raise InputError(
            f"a row of {name} of {source.name} for each of the {len(every)} categories of obs[{keys.domain!r}]",
            f"{shares.shape[0]} rows",
            why_fewer(source, summary),
        )
    place = {name: row for row, name in enumerate(every)}
    rows = np.array([place[str(category)] for category in domains.categories], dtype=np.int64)
    if keys.posterior in source.obsm_keys():
        posterior = as_table(source.obsm(keys.posterior), f"obsm[{keys.posterior!r}]")
        if posterior.shape[1] != len(every):
            raise not_ours(source, f"obsm[{keys.posterior!r}]", f"{posterior.shape[1]} columns")
        check_order(source, keys, rows[domains.codes], posterior)
    return shares[rows].astype(np.float64)


def check_order(source: Source, keys: Keys, codes: np.ndarray, posterior: np.ndarray) -> None:
    """Check, by the confidence, that spots have the domains that the fit stored, with the categories in its order.

    Parameters
    ----------
    source, keys
        Of the fit.
    codes
        (n,) the column of each spot's domain.
    posterior
        (n, K)

    Raises
    ------
    InputError
        Where the confidence of a spot is not the posterior of its domain.
    """
    confidence = read_number(source, keys.confidence, otherwise=_AGAIN)
    other = _of_others(posterior, codes, confidence)
    if other.any():
        raise InputError(
            f"obs[{keys.domain!r}] of {source.name} to have its categories in the order of the columns of "
            f"obsm[{keys.posterior!r}], and each spot in the domain that the fit gave it",
            f"{other.sum():,} of {codes.size:,} spots whose posterior does not belong to their domain",
            "Put both back as they were, or run `spatialpdvi fit` again. Domains are changed with `spatialpdvi label`.",
        )


def count_moved(source: Source, keys: Keys, every: list[str]) -> int:
    """Count the spots in other domains than the fit gave them; 0 where there is no posterior to tell it by.

    Parameters
    ----------
    source, keys
        Of the fit.
    every
        Names of all K domains, in the order of the fit.
    """
    if keys.posterior not in source.obsm_keys() or keys.confidence not in source.obs_keys():
        return 0
    posterior = as_table(source.obsm(keys.posterior), f"obsm[{keys.posterior!r}]")
    confidence = source.obs(keys.confidence)
    if posterior.shape[1] != len(every) or not pd.api.types.is_float_dtype(confidence.dtype):
        return 0  # which is told where they are read
    codes = np.asarray(read_domains(source, keys.domain).set_categories(every).codes, dtype=np.int64)
    return int(_of_others(posterior, codes, confidence.to_numpy()).sum())


class RenamedError(InputError):
    """What is stored of the domains is under names that they no longer have."""


def check_names(source: Source, keys: Keys, key: str) -> None:
    """Raise where ``uns[key]``, a table of domains or several, is under other names than the domains have now.

    Tables list domains in the order of the categories, of which those that they say nothing about are left out, and a
    selection of spots may have lost some. Categories that were renamed in Python show in this order.

    Raises
    ------
    RenamedError
        Where a table has another order, or names that no domain has.
    """
    names, summary = domain_names(source, keys), source.uns(keys.uns)
    k = n_stored(summary)
    lists = list(_listed(source.uns(key), key, keys))
    has_lost, have_moved = len(names) < k, False
    if has_lost and lists and "edits" not in summary:  # of the names that an edit gave, nothing tells
        whole = [
            every for every in (*lists, with_lost(names, k, summary)) if len(every) == k and set(names) < set(every)
        ]
        have_moved = not whole or count_moved(source, keys, whole[0]) > 0
    for listed in lists:
        known = [name for name in listed if name in names]
        in_order = known == [name for name in names if name in known]
        if not in_order or have_moved or (len(known) < len(listed) and not has_lost):
            raise RenamedError(
                f"uns[{key!r}] to be about the domains of obs[{keys.domain!r}] in {source.name}, {_in_order(names)}",
                f"domains that were renamed, or put in another order, after it was written ({_in_order(listed)})",
                "Compute it again. `spatialpdvi label rename` renames what is stored, too.",
            )


def _in_order(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _listed(stored: Any, key: str, keys: Keys) -> Iterator[list[str]]:
    """The names of domains, each once, in the orders in which a stored element lists them."""
    if not isinstance(stored, Mapping) or stored_params(stored).get("of") == "state":
        return
    table = stored if key == keys.markers else stored.get("expression" if key == keys.intervals else "domains")
    if not isinstance(table, Mapping) or "domain" not in table:
        return
    domains = [str(name) for name in np.atleast_1d(table["domain"])]
    sections = [str(name) for name in np.atleast_1d(table.get("section", [""] * len(domains)))]
    for section in dict.fromkeys(sections):
        yield list(dict.fromkeys(name for name, own in zip(domains, sections, strict=False) if own == section))


def _of_others(posterior: np.ndarray, codes: np.ndarray, confidence: np.ndarray) -> np.ndarray:
    """Whether the confidence of each spot (n,) is not the posterior (n, K) of its domain."""
    return np.asarray(np.abs(posterior[np.arange(codes.size), codes] - confidence) > _OF_OTHER)


def read_connectivities(source: Source, keys: Keys) -> sp.csr_matrix:
    """Read the edge weights of the objective, (n, n)."""
    if keys.connectivities not in source.obsp_keys():
        raise missing(source, "obsp", keys.connectivities, why_missing(source, keys, _GRAPH))
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


def stored_neighbors(source: Source, keys: Keys, summary: Any) -> sp.csr_matrix | None:
    """Read which spots the fit with this summary joined (n, n); None where that is not stored.

    The objective of a fit without edges between patches has fewer edges than spots have neighbours in the tissue.
    """
    return None if stored_params(summary).get("n_edges_dropped") else stored_graph(source, keys)


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
