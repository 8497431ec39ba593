"""What an edit of a fit's domains changes in its file: the domains, and all that is stored for each of them."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, assert_never, cast

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.editing.domains import divide, logged, rename, unite
from spatialpdvi.editing.edits import Edit, Levels, Merge, Pieces, Rename, Split
from spatialpdvi.editing.levels import Union, groups_at, level_counts, successive_unions
from spatialpdvi.editing.names import check_known, joined, majority_names, repeated, table_names, told_apart
from spatialpdvi.editing.parts import connected_parts, fitted_parts, inner_options, read_again
from spatialpdvi.editing.results import edited_scores, level_of, steps_table, table_of
from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.graph.build import build_graph, join_spots, layered_edges
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import RenamedError, check_names, given_graph, stored_graph, stored_neighbors
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import written_colours
from spatialpdvi.io.results.stored import StoredFit, fitted_features, fitted_section
from spatialpdvi.io.results.summary import files_of_fit, label_key_of_fit, stored_params
from spatialpdvi.io.section.labels import read_column, read_domains
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.stages import GraphSettings
from spatialpdvi.runtime.progress import Progress

__all__ = ["Changes", "edit_domains"]

_Elements = dict[tuple[str, str], Any]


class Changes(NamedTuple):
    """What an edit writes and removes, and the table that it returns."""

    elements: _Elements
    remove: list[tuple[str, str]]
    table: pd.DataFrame


class _Edited(NamedTuple):
    fit: StoredFit
    detail: str  # what was done, a sentence
    section: Section | None = None  # that was read for it, so that it is read, and warned of, once


def edit_domains(
    source: Source, keys: Keys, fit: StoredFit, edit: Edit, progress: Progress, *, memory: str | None = None
) -> Changes:
    """Return what is to be written after an edit (docs/editing.md).

    Parameters
    ----------
    source
        The fitted spots of a section.
    keys
        Of the fit.
    fit
        Read from it.
    edit
        Checked.
    progress
        Shows the stages.
    memory
        Memory that counts may use where a domain is split; by default all free memory.

    Raises
    ------
    InputError
        Where the edit does not suit the domains.
    """
    if "transfer" in fit.summary and isinstance(edit, Split | Pieces | Levels):
        raise InputError(
            f"the domains of a fit in {source.name}",
            f"domains that were carried over from {fit.summary['transfer']['fit']}, whose spots have the features",
            "Edit the domains of that fit, and carry them over again.",
        )
    match edit:
        case Levels():
            return _levels(source, keys, fit, edit, progress)
        case Rename():
            edited = _rename(source, fit, edit)
        case Merge():
            edited = _merge(fit, edit)
        case Split():
            edited = _split(source, keys, fit, edit, progress, memory=memory)
        case Pieces():
            edited = _pieces(source, keys, fit, edit, progress)
        case _:
            assert_never(edit)
    return _written(source, keys, fit, edited, action=type(edit).__name__.lower())


def _rename(source: Source, fit: StoredFit, edit: Rename) -> _Edited:
    if edit.from_key is None:
        assert edit.names is not None
        names = table_names({str(old): str(new) for old, new in edit.names.items()}, fit.names)
    else:
        labels = read_column(source, edit.from_key, name="from_key")
        names = majority_names(fit.codes, fit.names, labels.codes.astype("int64"), list(labels.categories))
    twice = repeated(names)
    if twice and not edit.merge and edit.from_key is None:
        raise InputError(
            "a name of its own for each domain",
            f"{twice[0]!r} for {names.count(twice[0])} domains",
            f"Give {option('merge', True)} to unite domains that share a name.",
            option="names",
        )
    names = names if edit.merge else told_apart(names)
    detail = ", ".join(f"{old!r} to {new!r}" for old, new in zip(fit.names, names, strict=True) if old != new)
    if edit.merge:
        while shared := repeated(names):
            members = [k for k, name in enumerate(names) if name == shared[0]]
            fit = unite(fit, members, shared[0])
            names = [name for k, name in enumerate(names) if k not in members[1:]]
    return _Edited(rename(fit, names), detail or "no name changed")


def _merge(fit: StoredFit, edit: Merge) -> _Edited:
    check_known([str(name) for name in edit.domains], fit.names, "domains")
    members = sorted({fit.names.index(str(name)) for name in edit.domains})
    wanted = [fit.names[k] for k in members]
    name = joined(wanted) if edit.name is None else edit.name
    if name in set(fit.names) - set(wanted) or not name.strip():
        found = f"{name!r}, which is another domain" if name.strip() else "an empty name"
        raise InputError("a new name", found, "Choose another.", option="name")
    return _Edited(unite(fit, members, name), f"{', '.join(map(repr, wanted))} to {name!r}")


def _split(
    source: Source, keys: Keys, fit: StoredFit, edit: Split, progress: Progress, *, memory: str | None
) -> _Edited:
    name = str(edit.domain)
    check_known([name], fit.names, "domain")
    domain, own_options = fit.names.index(name), _options(source, fit)
    options = inner_options(own_options, edit.into, seed=edit.seed, memory=memory)
    with progress.stage("read"):
        features = fitted_features(source, keys, fit.summary)
        section = read_again(source, options)
    found = fitted_parts(section, fit.codes == domain, options, progress)
    edited = divide(fit, domain, found.parts, shares=found.shares, calibrated=found.calibrated, features=features)
    return _Edited(edited, f"{name!r} into {edit.into} by a fit inside it, seed {edit.seed}", section)


def _pieces(source: Source, keys: Keys, fit: StoredFit, edit: Pieces, progress: Progress) -> _Edited:
    name = str(edit.domain)
    check_known([name], fit.names, "domain")
    domain = fit.names.index(name)
    section = fitted_section(source, fit.summary)
    features = fitted_features(source, keys, fit.summary)
    graph = stored_neighbors(source, keys, fit.summary)
    with progress.stage("graph"):
        if graph is None:
            settings = GraphSettings.of(_options(source, fit))
            graph = join_spots(section._replace(graph=given_graph(source, fit.summary)), settings)
        found = connected_parts(section, fit.codes == domain, graph, edit.min_spots)
    edited = divide(fit, domain, found.parts, shares=found.shares, features=features)
    return _Edited(edited, f"{name!r} into {found.shares.shape[1]} connected parts", section)


def _levels(source: Source, keys: Keys, fit: StoredFit, edit: Levels, progress: Progress) -> Changes:
    counts = level_counts(edit.levels, int((fit.sizes > 0).sum()))
    _warn_of_other_files(fit.summary)
    features = fitted_features(source, keys, fit.summary)
    graph = _weights(source, keys, fit, features, progress)
    with progress.stage("levels"):
        # the record reaches the coarsest level in the file, which may be an earlier one
        steps = successive_unions(fit, features, graph, fewest=min([counts[-1], *keys.levels_in(source)]))
    elements: _Elements = {}
    for n in counts:
        column, firsts = level_of(fit, groups_at(steps, len(fit.names), n))
        elements["obs", keys.level(n)] = column
        if fit.colours is not None:
            own = np.array([fit.colours[first] for first in firsts], dtype=object)
            elements["uns", f"{keys.level(n)}_colors"] = own
    columns = {name: np.array([getattr(step, name) for step in steps]) for name in Union._fields}
    elements["uns", keys.uns] = fit.summary | {"levels": columns}
    return Changes(elements, [], steps_table(steps, fit.names))


def _written(source: Source, keys: Keys, before: StoredFit, edited: _Edited, *, action: str) -> Changes:
    """Return what is written after an edit of the domains: all that follows from them, and the record of the edit."""
    fit, summary = edited.fit, edited.fit.summary
    regrouped = fit.posterior is not before.posterior
    if regrouped:
        section = edited.section or fitted_section(source, summary)
        summary = summary | {"scores": edited_scores(section, fit)}
    if fit.colours is not None and list(before.colours or ()) == written_colours(summary):
        summary = summary | {"colours": np.array(fit.colours, dtype=object)}  # still not the user's own
    summary = logged(before.summary, summary, action=action, detail=edited.detail, k=len(fit.names))
    elements = fit._replace(summary=summary).elements(keys)
    stored = [key for key in (keys.markers, keys.intervals, keys.description) if key in source.uns_keys()]
    levels = keys.levels_in(source)
    if regrouped:
        stale = [("uns", key) for key in stored]
        if ("uns", keys.intervals) in stale and stored_params(source.uns(keys.intervals)).get("of") == "state":
            stale.remove(("uns", keys.intervals))
        remove = [*stale, *keys.level_pairs(levels)]
        _warn_of_stale([f"{group}[{key!r}]" for group, key in remove if not key.endswith("_colors")])
    else:
        elements = {pair: elements[pair] for pair in (("obs", keys.domain), ("uns", keys.uns))}
        remove = [("uns", key) for key in stored if _has_other_names(source, keys, key)]
        _warn_of_stale([f"uns[{key!r}]" for _, key in remove])
        renamed = _renamed(source, keys, before, fit, levels)
        elements |= {pair: element for pair, element in renamed.items() if pair not in remove}
    if keys.fitted_domain not in source.obs_keys():
        elements["obs", keys.fitted_domain] = pd.Categorical.from_codes(before.codes, list(before.names))
        origin = before.codes, before.names
    else:
        first = read_domains(source, keys.fitted_domain)
        origin = np.asarray(first.codes, dtype=np.int64), tuple(first.categories)
    return Changes(elements, remove, table_of(fit, *origin))


def _has_other_names(source: Source, keys: Keys, key: str) -> bool:
    """Whether the domains were renamed in Python after ``uns[key]`` was written."""
    try:
        check_names(source, keys, key)
    except RenamedError:
        return True
    return False


def _renamed(source: Source, keys: Keys, before: StoredFit, after: StoredFit, levels: Sequence[int]) -> _Elements:
    """Return what is stored about domains, with their new names: markers, intervals, description, coarser domains."""
    new, elements = dict(zip(before.names, after.names, strict=True)), _Elements()

    def renamed(table: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(table)
        for column in {"domain", "other"} & set(table) if "domain" in table else ():  # else of states
            named = [new.get(str(name), str(name)) for name in np.atleast_1d(table[column])]
            found[column] = np.array(named, dtype=object)
        return found

    if keys.markers in source.uns_keys() and isinstance(table := source.uns(keys.markers), Mapping):
        elements["uns", keys.markers] = renamed(table)
    for key in (keys.intervals, keys.description):
        if key in source.uns_keys() and isinstance(tables := source.uns(key), Mapping):
            parts = {name: part for name, part in tables.items() if isinstance(part, Mapping) and name != "params"}
            elements["uns", key] = dict(tables) | {name: renamed(part) for name, part in parts.items()}
    for n in levels:
        _, codes = np.unique(source.obs(keys.level(n)).astype(str), return_inverse=True)
        groups = np.array([codes[before.codes == k].max(initial=-1) for k in range(len(before.names))])
        elements["obs", keys.level(n)] = level_of(after, groups)[0]
    return elements


def _options(source: Source, fit: StoredFit) -> FitOptions:
    """Return the options of the fit, as far as they are stored and still apply to the file."""
    given = dict(stored_params(fit.summary)) | {"label_key": label_key_of_fit(source, fit.summary)}
    if files_of_fit(fit.summary):
        given.pop("across_sections", None)
    if given.get("n_spots", fit.codes.size) != fit.codes.size:
        for name in ("n_patches", "cross_patch_edges"):  # of more spots than are in the file
            given.pop(name, None)
    if "composition" in fit.summary:
        given.setdefault("anisotropy", 0.0)  # there was no such option yet
    return FitOptions.of_stored(given, k=max(2, len(fit.names)))


def _weights(
    source: Source,
    keys: Keys,
    fit: StoredFit,
    features: np.ndarray | sp.csr_matrix,
    progress: Progress,
) -> sp.csr_matrix:
    """Return the edge weights of the objective: the stored ones, or else those that follow from the domains."""
    graph = stored_graph(source, keys)
    if graph is not None:
        return graph
    section = fitted_section(source, fit.summary)._replace(graph=given_graph(source, fit.summary))
    settings = GraphSettings.of(_options(source, fit))
    edges = None
    if "composition" in fit.summary:
        edges = layered_edges(section, cast("np.ndarray", features), join_spots(section, settings), settings)
    return build_graph(section, features, fit.codes, settings, progress, weights=edges).patching.graph


def _warn_of_stale(names: Sequence[str]) -> None:
    if names:
        were, them = ("was", "it") if len(names) == 1 else ("were", "them")
        text = f"{', '.join(names)} belonged to the domains before this edit, and {were} removed. Compute {them} again."
        warnings.warn(InputWarning(text), stacklevel=2)


def _warn_of_other_files(summary: Mapping[str, Any]) -> None:
    """Warn where a joint fit has other files, whose spots have no say in the levels of this one."""
    if files_of_fit(summary):
        text = (
            "These domains belong to a joint fit of several files, and only the spots of this file decide about its "
            "levels: other files may get others. To have the same in all of them, unite the same domains in each file."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
