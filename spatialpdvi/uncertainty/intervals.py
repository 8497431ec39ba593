"""The intervals of a fitted section: what is read of it, what is estimated, and the tables that follow."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning, list_keys, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import read_connectivities, read_states
from spatialpdvi.io.results.expression import read_gene_counts
from spatialpdvi.io.results.fitted import samples_of_fit
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.io.results.stored import StoredFit, fitted_features, read_stored
from spatialpdvi.io.results.summary import is_prediction, spatial_key_of_fit
from spatialpdvi.io.section.coordinates import read_coordinates
from spatialpdvi.io.section.labels import read_types, spots_by_section
from spatialpdvi.marker_genes import markers_of, unique_markers
from spatialpdvi.options.validation import check_choice, check_of, check_seed, listed, read_kind
from spatialpdvi.runtime.progress import NO_STAGE, Stage
from spatialpdvi.uncertainty.linear_response import Coupling
from spatialpdvi.uncertainty.methods import METHODS, MOST_IMPLICIT, Estimate, Evidence, estimate
from spatialpdvi.uncertainty.tables import Intervals, contrast_table, expression_table, share_table
from spatialpdvi.version import library_versions

__all__ = ["IntervalOptions", "intervals_of"]

_MOST_GENES = 1000  # whose counts are dense in memory
_OF_DOMAINS = ("linear-response", "implicit")  # methods that need the graph, and know no states
_OF_ALL = ", ".join(name for name in METHODS if name not in _OF_DOMAINS)
_UNRELIABLE = 5.0  # effective blocks of a domain, below which a warning says so


@dataclass(frozen=True, kw_only=True)
class IntervalOptions:
    """What the caller chose, which is checked before anything is read: the arguments of `spatialpdvi.intervals`.

    Raises
    ------
    InputError
        Where one is out of its range.
    """

    genes: tuple[str, ...] = ()
    n_genes: int = 3
    contrasts: tuple[tuple[str, str], ...] = ()
    by: str | None = None
    of: str = "domain"
    method: str = "blocks"
    level: float = 0.9
    seed: int = 0
    spatial_key: str | None = None
    sample_key: str | None = None
    layer: str | None = None
    gene_key: str | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        check_of(self.of)
        check_choice("method", self.method, METHODS)
        if not 0.0 < read_kind("level", self.level, float) < 1.0:
            raise InputError("above 0 and below 1", f"{self.level}", f"Give {option('level', 0.9)}.", option="level")
        if read_kind("n_genes", self.n_genes, int) < 1:
            raise InputError("at least 1", f"{self.n_genes}", option="n_genes")
        check_seed(self.seed)
        if len(self.genes) > _MOST_GENES:
            raise InputError(f"at most {_MOST_GENES:,} genes", f"{len(self.genes):,}", "Ask for them in parts.")
        repeated = [gene for position, gene in enumerate(self.genes) if gene in self.genes[:position]]
        if repeated:
            raise InputError("different genes", f"{repeated[0]!r} twice", "Name each gene once.")
        if self.of == "state" and self.method in _OF_DOMAINS:
            advice = f"Choose one of these, or {option('of', 'domain')}."
            raise InputError(
                f"one of {_OF_ALL} with {option('of', 'state')}", repr(self.method), advice, option="method"
            )
        if self.by is not None and self.of == "state":
            wanted = f"no {option('by')} with {option('of', 'state')}"
            raise InputError(wanted, repr(self.by), "Shares are those of types in domains.")


class _Groups(NamedTuple):
    """The domains, or states, of n spots."""

    names: tuple[str, ...]  # (K,)
    codes: np.ndarray  # (n,)
    posterior: np.ndarray  # (n, K)
    calibrated: np.ndarray  # (n, K)


def intervals_of(source: Source, keys: Keys, options: IntervalOptions, stage: Stage = NO_STAGE) -> Intervals:
    """Return the intervals of a fitted section (docs/intervals.md).

    Parameters
    ----------
    source, keys
        The section, and the keys that the fit wrote.
    options
        What is asked for.
    stage
        Shows how far slow methods are.

    Raises
    ------
    InputError
        Where there is no fit, or a gene, a domain or a column does not exist.
    """
    source = select_fitted(source, keys)
    stored = read_stored(source, keys)
    groups = _groups(source, keys, stored, options.of)
    pairs = _pairs(options.contrasts, groups)
    genes = _genes(source, keys, options)
    values, totals = read_gene_counts(source, keys, genes, layer=options.layer, gene_key=options.gene_key)
    samples = samples_of_fit(source, stored.summary, options.sample_key)
    spatial_key = spatial_key_of_fit(stored.summary, options.spatial_key)
    coordinates = read_coordinates(source, spatial_key, samples=samples)
    evidence = Evidence(
        values=values,
        exposure=totals,
        codes=groups.codes,
        posterior=groups.posterior,
        calibrated=groups.calibrated,
        coordinates=coordinates,
        sections=spots_by_section(samples, groups.codes.size),
        seed=options.seed,
    )
    if options.method in _OF_DOMAINS:
        evidence = _with_response(evidence, source, keys, stored, options)
    found = estimate(evidence, options.method, stage)
    few = _warn_of_few(found, groups, options.of)
    k = len(groups.names)
    sums = np.zeros((k, len(genes)))
    np.add.at(sums, groups.codes, values)
    totals_of = np.bincount(groups.codes, weights=totals, minlength=k)
    names: dict[str, Any] = {"of": options.of, "names": groups.names, "genes": genes, "level": options.level}
    return Intervals(
        expression=expression_table(found, (sums, totals_of), **names),
        contrasts=contrast_table(found, pairs, **names),
        composition=_composition(source, keys, stored, evidence, options, told=few, stage=stage),
        params={
            "key_added": keys.prefix,
            "of": options.of,
            "method": options.method,
            "level": options.level,
            "seed": options.seed,
            "by": options.by,
            "layer": options.layer,
            "gene_key": options.gene_key,
            "block_size": found.block_size or None,
            "versions": library_versions("pandas"),
        },
    )


def _groups(source: Source, keys: Keys, stored: StoredFit, of: str) -> _Groups:
    """The domains or the states, and what the fit says about each spot."""
    if of == "state":
        states = read_states(source, keys)
        names = tuple(str(state) for state in range(states.shape[1]))
        return _Groups(names, states.argmax(axis=1), states, states)
    if stored.calibrated is None:
        text = (
            "The fit has no calibrated posterior, so that the intervals take its own posterior for the probability "
            "that a spot belongs to its domain, which is too sure. A fit with several restarts "
            f"({option('n_init')}) has one."
        )
        warnings.warn(InputWarning(text), stacklevel=4)
    calibrated = stored.posterior if stored.calibrated is None else stored.calibrated
    return _Groups(stored.names, stored.codes, stored.posterior, calibrated)


def _pairs(contrasts: Sequence[tuple[str, str]], groups: _Groups) -> list[tuple[int, int]]:
    """The positions of the pairs of domains that are compared: the given ones, or all that have spots."""
    position = {name: number for number, name in enumerate(groups.names)}
    if not contrasts:
        filled = np.unique(groups.codes)
        return [(int(a), int(b)) for i, a in enumerate(filled) for b in filled[i + 1 :]]
    found = []
    for pair in contrasts:
        pair_names = [str(name) for name in listed(pair)]  # a text is one name, not a pair of letters
        unknown = [name for name in pair_names if name not in position]
        if len(set(pair_names)) != 2 or len(pair_names) != 2 or unknown:
            example = "A pair is in brackets of its own, as in [('0', '1')]. " if len(pair_names) == 1 else ""
            no_such = f", where {unknown[0]!r} is no domain" if unknown and not example else ""
            raise InputError(
                "pairs of two domains",
                f"{list_keys(pair_names)}{no_such}",
                f"{example}The names are {list_keys(list(groups.names))}.",
            )
        positions = position[pair_names[0]], position[pair_names[1]]
        if positions in found:
            raise InputError("different contrasts", f"{list_keys(pair_names)} twice", "Name each contrast once.")
        found.append(positions)
    return found


def _genes(source: Source, keys: Keys, options: IntervalOptions) -> list[str]:
    """The names of the genes: those that were asked for, or the first markers of each domain with unique names."""
    if options.genes:
        return list(options.genes)
    expression, table = markers_of(
        source,
        keys,
        n=options.n_genes,
        of=options.of,
        layer=options.layer,
        gene_key=options.gene_key,
        memory=options.memory,
    )
    found = unique_markers(table, expression.genes)
    if len(found) > _MOST_GENES:
        raise InputError(
            f"at most {_MOST_GENES:,} marker genes in all",
            f"{len(found):,} with {option('n_genes', options.n_genes)}",
            f"Lower {option('n_genes')}.",
        )
    return found


def _with_response(
    evidence: Evidence, source: Source, keys: Keys, stored: StoredFit, options: IntervalOptions
) -> Evidence:
    """The evidence with what linear response needs besides: the graph, and the domains' means where there are any."""
    if options.method == "implicit" and len(stored.names) > MOST_IMPLICIT:
        advice = f"Give {option('method')} as one of {_OF_ALL}, or linear-response."
        raise InputError(f"at most {MOST_IMPLICIT} domains for 'implicit'", f"{len(stored.names)}", advice)
    graph = read_connectivities(source, keys)
    summary = stored.summary
    mean = np.asarray(summary.get("domain_mean", ()))
    coupling = None
    # the means of states that domains share, of a prediction, and of domains that were edited are held
    are_held = "state_mean" in summary or "edits" in summary or is_prediction(summary)
    if not are_held and mean.ndim == 2 and mean.shape[0] == len(stored.names):
        features = fitted_features(source, keys, summary)
        dense = features if isinstance(features, np.ndarray) else features.toarray()
        precision = 1.0 / np.asarray(summary["noise_sd"]) ** 2
        coupling = Coupling(dense.astype(np.float64), mean, np.asarray(summary["log_variance"]), precision)
    return evidence._replace(graph=graph, coupling=coupling)


def _composition(
    source: Source,
    keys: Keys,
    stored: StoredFit,
    evidence: Evidence,
    options: IntervalOptions,
    *,
    told: np.ndarray,
    stage: Stage,
) -> pd.DataFrame | None:
    """The table of shares of types, or of states, in domains; None where there are neither.

    There is a warning of domains with few blocks but for those (K,) of which one has told.
    """
    if options.of == "state" or (options.by is None and keys.state not in source.obsm_keys()):
        return None
    if options.by is None:
        values = read_states(source, keys)
        types = [str(state) for state in range(values.shape[1])]
        exposure = np.ones(len(values))
    else:
        column = read_types(source, options.by)
        types = [str(name) for name in column.categories]
        values = np.eye(len(types))[column.codes]
        exposure = (column.codes >= 0).astype(np.float64)
        values[column.codes < 0] = 0.0  # a spot without a type says nothing
    shares = evidence._replace(values=values, exposure=exposure, are_shares=True)
    found = estimate(shares, options.method, stage)
    counted = evidence.codes[(exposure > 0) & ~told[evidence.codes]]
    groups = _Groups(stored.names, counted, evidence.posterior, evidence.calibrated)
    _warn_of_few(found, groups, "domain", of_typed="" if options.by is None else " with their typed spots")
    return share_table(found, names=stored.names, types=types, level=options.level)


def _warn_of_few(found: Estimate, groups: _Groups, of: str, *, of_typed: str = "") -> np.ndarray:
    """Warn of domains that lie in too few blocks for a variance to be measured, and return which (K,) do."""
    sizes = np.bincount(groups.codes, minlength=len(groups.names))
    few = (sizes > 0) & (np.isnan(found.freedom) | (found.freedom < _UNRELIABLE - 1.0))
    if few.any() and found.block_size:
        names = ", ".join(repr(name) for name, is_few in zip(groups.names, few, strict=True) if is_few)
        text = (
            f"Some {of}s lie{of_typed} in fewer than {_UNRELIABLE:.0f} blocks of {found.block_size} spots, so that "
            f"their intervals are wide, or NaN below one and a half: {names}."
        )
        warnings.warn(InputWarning(text), stacklevel=4)
    return np.asarray(few)
