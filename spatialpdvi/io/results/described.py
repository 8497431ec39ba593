"""The sections of a file whose domains are described, and the description that a file holds."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import check_names, given_graph, stored_neighbors
from spatialpdvi.io.results.fitted import samples_of_fit
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import domain_names, with_lost
from spatialpdvi.io.results.summary import (
    check_fitted,
    n_stored,
    not_ours,
    read_summary,
    spatial_key_of_fit,
    stored_params,
)
from spatialpdvi.io.section.coordinates import read_coordinates
from spatialpdvi.io.section.labels import read_column, read_domains, read_types
from spatialpdvi.io.section.missing import missing

__all__ = [
    "ComparedDomains",
    "DescribedKeys",
    "SectionDomains",
    "StoredDescription",
    "StoredIntervals",
    "compared_domains",
    "read_description",
    "read_intervals",
    "read_sections",
]

# of each table of intervals: its columns of texts beside the domain or state, and those of numbers
_INTERVALS = {
    "expression": ({"gene"}, {"mean", "lower", "upper"}),
    "contrasts": ({"gene", "other"}, {"log2_fold_change", "lower", "upper"}),
    "composition": ({"type"}, {"share", "lower", "upper"}),
}
_HYPERPARAMETERS = ("noise_sd", "prior_sd", "prior_mean")
_ROUNDED = 1e-6  # relative error of parameters that are the same


class DescribedKeys(NamedTuple):
    """Where the things that are described are, as the user named them."""

    domain_key: str | None = None  # None for the domains of the fit
    spatial_key: str | None = None  # None for that of the fit
    sample_key: str | None = None  # None for that of the fit
    by: str | None = None
    condition: str | None = None


class SectionDomains(NamedTuple):
    """One section of n spots with their domains. Spots without a domain are left out."""

    name: str
    spots: np.ndarray  # (n,) int64, row of each spot in the file
    domains: pd.Categorical  # (n,), none missing; its categories are those of the whole file
    coordinates: np.ndarray  # (n, 2|3) float64
    graph: sp.csr_matrix | None  # (n, n), the edges of the fit, where they are in the file
    n_neighbors: int | None  # of the fit
    types: pd.Categorical | None  # (n,) what the composition is of; missing has code -1
    condition: str | None
    graph_source: str = "stored by the fit"


def read_sections(source: Source, keys: Keys, chosen: DescribedKeys, *, name: str) -> list[SectionDomains]:
    """Read the sections of a file, in the order of their names in its column of sections.

    Parameters
    ----------
    source
        The file; fitted, unless ``domain_key`` names other domains.
    keys
        The names under which the fit was written.
    chosen
        Where everything else is.
    name
        Of the section, where the file holds one section.

    Raises
    ------
    InputError
        Where there is no fit, a column is missing, or a section has no condition or more than one.
    """
    if chosen.domain_key is None:
        check_fitted(source, keys)
    summary = source.uns(keys.uns) if keys.uns in source.uns_keys() else {}
    params = stored_params(summary)
    samples = samples_of_fit(source, summary, chosen.sample_key)
    spatial_key = spatial_key_of_fit(summary, chosen.spatial_key)
    coordinates = read_coordinates(source, spatial_key, samples=samples)
    domains = _read_domains(source, keys, chosen.domain_key)
    types = None if chosen.by is None else read_types(source, chosen.by)
    conditions = None if chosen.condition is None else read_column(source, chosen.condition, name="condition")
    graph, graph_source, has_edges = _graph_of_fit(source, keys, summary, spatial_key)
    n_neighbors = params.get("n_neighbors")
    codes = np.zeros(len(domains), dtype=np.int64) if samples is None else np.asarray(samples.codes, dtype=np.int64)
    names = [name] if samples is None else [str(category) for category in samples.categories]
    found = []
    for code, of_section in enumerate(names):
        spots = np.flatnonzero((codes == code) & (domains.codes >= 0))
        if not spots.size:
            raise InputError(
                f"spots with a domain in section {of_section!r} of {source.name}", "none", "Leave this section out."
            )
        found.append(
            SectionDomains(
                name=of_section,
                spots=spots,
                domains=domains[spots],
                coordinates=coordinates[spots],
                graph=sp.csr_matrix(graph[spots][:, spots]) if graph is not None and has_edges[spots].all() else None,
                n_neighbors=None if n_neighbors is None else int(n_neighbors),
                types=None if types is None else types[spots],
                condition=None if conditions is None else _one_condition(conditions[spots], chosen, of_section),
                graph_source=graph_source,
            )
        )
    return found


class ComparedDomains(NamedTuple):
    """What tells whether the domains of two files are the same."""

    names: list[str] | None  # of all domains, those without spots too; None where a selection of spots has lost some
    parameters: dict[str, np.ndarray]  # of the fit, which no edit of the domains changes
    were_divided: bool  # by the spots of this file alone

    def is_of_fit_of(self, other: Self) -> bool:
        """Whether both are of one fit, or of one model: the domains have the same parameters."""
        shared = self.parameters.keys() & other.parameters.keys()
        return all(_are_close(self.parameters[name], other.parameters[name]) for name in shared)

    def has_names_of(self, other: Self) -> bool:
        """Whether both have the same domains, as far as they are known."""
        return self.names is None or other.names is None or self.names == other.names


def compared_domains(source: Source, keys: Keys) -> ComparedDomains:
    """Read what tells whether the domains of a fitted file are those of another file."""
    summary = read_summary(source, keys.uns)
    k, edits = n_stored(summary), summary.get("edits", {})
    names = with_lost(domain_names(source, keys), k, summary)
    # an edit makes means of its own, and those of domains that share states are rounded otherwise in a model
    means = "state_mean" if "state_mean" in summary else "domain_mean"
    fixed = _HYPERPARAMETERS if edits and means == "domain_mean" else (*_HYPERPARAMETERS, means)
    return ComparedDomains(
        names=names if len(names) >= k else None,
        parameters={name: np.asarray(summary[name]) for name in fixed if name in summary},
        were_divided=not {"split", "pieces"}.isdisjoint(map(str, np.atleast_1d(edits.get("action", ())))),
    )


class StoredDescription(NamedTuple):
    """What `spatialpdvi describe --store` has written."""

    tables: dict[str, pd.DataFrame]  # sections, domains, contacts, and others where there are any
    by: str | None  # what the composition is of


def read_description(source: Source, keys: Keys) -> StoredDescription | None:
    """Read the tables that `spatialpdvi describe --store` has written; None where there are none.

    Raises
    ------
    InputError
        Where the element has been changed.
    """
    if keys.description not in source.uns_keys():
        return None
    stored, name = source.uns(keys.description), f"uns[{keys.description!r}]"
    if not isinstance(stored, Mapping) or not {"sections", "domains", "contacts"} <= set(stored):
        raise not_ours(source, name, "no tables of sections, domains and contacts in it")
    check_names(source, keys, keys.description)
    return StoredDescription(_tables(source, stored, name), stored_params(stored).get("by"))


class StoredIntervals(NamedTuple):
    """What `spatialpdvi intervals --store` has written."""

    tables: dict[str, pd.DataFrame]  # expression, and contrasts and composition where there are any
    params: Mapping[str, Any]


def read_intervals(source: Source, keys: Keys) -> StoredIntervals:
    """Read the tables that `spatialpdvi intervals --store` has written, and the options in their ``params``.

    Raises
    ------
    InputError
        Where there are none, or the element has been changed.
    """
    name = f"uns[{keys.intervals!r}]"
    if keys.intervals not in source.uns_keys():
        advice = f"Run `spatialpdvi intervals` with {option('store', True)} first."
        raise missing(source, "uns", keys.intervals, advice)
    stored = source.uns(keys.intervals)
    tables = _tables(source, stored, name) if isinstance(stored, Mapping) else {}
    params = stored_params(stored)
    for table, columns in tables.items():
        texts, numbers = _INTERVALS.get(table, (set(), set()))
        present = texts | numbers <= set(columns) and bool({"domain", "state"} & set(columns))
        if not texts or not present or any(columns[number].dtype.kind not in "iuf" for number in numbers):
            raise not_ours(source, name, f"no table of intervals under {table!r}")
    if "expression" not in tables:
        raise not_ours(source, name, "no table of expression in it")
    level = params.get("level")
    if not isinstance(level, float | np.floating) or "method" not in params:
        raise not_ours(source, name, "no level or method in its params")
    check_names(source, keys, keys.intervals)
    return StoredIntervals(tables, params)


def _tables(source: Source, stored: Mapping[str, Any], name: str) -> dict[str, pd.DataFrame]:
    """The tables of an element of uns, each a dict of columns of equal length, beside its ``params``."""
    tables = {}
    for key, columns in stored.items():
        if key == "params":
            continue
        lengths = {len(np.atleast_1d(values)) for values in columns.values()} if isinstance(columns, Mapping) else set()
        if len(lengths) != 1:
            raise not_ours(source, name, f"no columns of equal length under {key!r}")
        tables[key] = pd.DataFrame({column: np.atleast_1d(values) for column, values in columns.items()})
    return tables


def _read_domains(source: Source, keys: Keys, key: str | None) -> pd.Categorical:
    """The domains of the fit, or those of a column, in which spots may have none."""
    if key is None:
        return read_domains(source, keys.domain)
    domains = read_column(source, key, name="domain_key")
    n_missing = int((domains.codes < 0).sum())
    if n_missing:
        text = (
            f"obs[{key!r}] of {source.name} has no domain for {n_missing:,} of {len(domains):,} spots; they are left "
            "out."
        )
        warnings.warn(InputWarning(text), stacklevel=3)
    return domains


def _graph_of_fit(
    source: Source, keys: Keys, summary: Any, spatial_key: str
) -> tuple[sp.csr_matrix | None, str, np.ndarray]:
    """The graph (n, n) in which the fit joined spots, where it is from, and whether each spot (n,) is a part of it.

    It is None where it is not in the file, or the spots are looked at in other places.
    """
    everywhere = np.ones(source.n_obs, dtype=bool)
    if spatial_key != spatial_key_of_fit(summary, None):
        return None, "", everywhere
    stored = stored_neighbors(source, keys, summary)
    if stored is not None:
        fitted = source.obs(keys.domain).notna().to_numpy() if keys.domain in source.obs_keys() else ~everywhere
        return stored, "stored by the fit", fitted
    return given_graph(source, summary), f"given to the fit, obsp[{stored_params(summary).get('graph')!r}]", everywhere


def _one_condition(values: pd.Categorical, chosen: DescribedKeys, section: str) -> str:
    found = [str(value) for value in values.remove_unused_categories().categories]
    if len(found) == 1 and not (values.codes < 0).any():
        return found[0]
    what = "spots without one" if len(found) < 2 else ", ".join(map(repr, found[:4]))
    raise InputError(
        f"one value of obs[{chosen.condition!r}] in all spots of section {section!r}",
        what,
        f"Sections are compared, so that each has one condition; name another column with {option('condition')}, or "
        f"the column of the sections with {option('sample_key')}.",
    )


def _are_close(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=_ROUNDED)
