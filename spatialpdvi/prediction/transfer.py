"""Domains of a fitted file carried to the spots of another one: both read, their sections matched, and the result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, list_keys, option, own_names
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import Keys, check_not_replaced
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.io.results.stored import StoredFit, read_stored
from spatialpdvi.io.results.summary import lost_sample_key, sample_key_of_fit, spatial_key_of_fit, stored_params
from spatialpdvi.io.section.coordinates import read_coordinates
from spatialpdvi.io.section.labels import read_samples
from spatialpdvi.io.section.section import Section, read_section
from spatialpdvi.metrics.section import scores_by_section
from spatialpdvi.options.validation import check_choice, read_kind
from spatialpdvi.prediction.places import BORDERS, Carried, FittedSpots, carry
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.version import library_versions

__all__ = ["OF_RESULT", "TransferOptions", "TransferResult", "carry_domains", "read_fitted_domains"]

OF_RESULT = {"key_added": "new_key"}  # what the key of a result is called here; another key of the fit would not help

# of uns: what belongs to the domains, wherever their spots are; features, states and scans belong to the fit's spots
_OF_DOMAINS = (
    *("domain_mean", "log_variance", "state_mean", "composition", "prior_weight", "noise_sd", "prior_sd", "prior_mean"),
    *("trace", "certificate", "edits"),
)
_OF_FIT = ("k", "temperature")  # of params


@dataclass(frozen=True, eq=False)
class TransferResult:
    """Domains that were carried to the n spots of another file, bin size or segmentation.

    Parameters
    ----------
    domains
        (n,) int64, the position of each spot's domain in ``names``; -1 for a spot without one.
    names
        (K,) of the domains, those of the fit in its order.
    posterior
        (n, K) float32, interpolated; NaN for a spot without a domain.
    calibrated
        The same for the calibrated posterior; None where the fit has none.
    sections
        A row for each section: its name ``section`` (empty where there is one), its ``spots``, how many of them are
        ``assigned``, and ``max_distance``, the largest distance to a fitted spot, in the unit of the fit.
    scores
        As of a fit, over the spots that have a domain.

    Examples
    --------
    >>> result = spv.transfer(adata, other)
    >>> result.posterior.shape
    (400, 3)
    """

    domains: np.ndarray
    names: tuple[str, ...]
    posterior: np.ndarray
    calibrated: np.ndarray | None
    sections: pd.DataFrame
    scores: dict[str, Any]

    def __repr__(self) -> str:
        return f"TransferResult({self.domains.size:,} spots, {(self.domains >= 0).sum():,} with a domain)"


@dataclass(frozen=True, kw_only=True)
class TransferOptions:
    """What the caller chose, which is checked before anything is read: the arguments of `spatialpdvi.transfer`.

    Raises
    ------
    InputError
        Where one is out of its range.
    """

    key_added: str = "pdvi"
    new_key: str | None = None
    borders: str = "spots"
    max_distance: float | None = None
    scale: float = 1.0
    spatial_key: str | None = None
    sample_key: str | None = None
    label_key: str | None = None

    def __post_init__(self) -> None:
        check_choice("borders", self.borders, BORDERS)
        for name in ("max_distance", "scale"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(read_kind(name, value, float)) and value > 0):
                wanted = "a number above 0" if math.isfinite(value) else "a finite number above 0"
                raise InputError(wanted, f"{value:g}", "Give it in the unit of the fit.", option=name)
        _ = self.keys, self.new_keys  # which check their prefixes

    @property
    def keys(self) -> Keys:
        """Those of the fit."""
        return Keys(self.key_added)

    @property
    def new_keys(self) -> Keys:
        """Those that are written."""
        if self.new_key is None:
            return self.keys
        with own_names(OF_RESULT):
            return Keys(self.new_key)


class FittedDomains(NamedTuple):
    """The fit whose domains are carried."""

    name: str  # of its file; empty in memory
    stored: StoredFit
    coordinates: np.ndarray  # (n, 2|3)
    samples: pd.Categorical | None
    params: Mapping[str, Any]


class _Pair(NamedTuple):
    """A section in both files."""

    name: str | None  # None where there is one
    of_fit: np.ndarray | slice  # its spots in the fit
    spots: np.ndarray  # its other spots, which get a domain


def read_fitted_domains(everything: Source, options: TransferOptions, *, name: str) -> FittedDomains:
    """Read the domains of a fit, and where its spots are.

    Parameters
    ----------
    everything
        The fitted file, with the spots that the fit left out.
    options
        What the caller chose.
    name
        Of the file, which the result says; empty in memory.

    Raises
    ------
    InputError
        Where there is no fit, or its coordinates or sections are gone.
    """
    source = select_fitted(everything, options.keys)
    stored = read_stored(source, options.keys)
    params = stored_params(stored.summary)
    lost = lost_sample_key(source, stored.summary)
    if lost is not None:
        raise InputError(
            f"obs[{lost!r}], by which the fit told sections apart, in {source.name}",
            f"columns: {list_keys(source.obs_keys())}",
            "Put it back: spots of different sections may lie at the same place.",
        )
    # one section of several has its name still
    sample_key = sample_key_of_fit(source, stored.summary, None)
    samples = None if sample_key is None else read_samples(source, sample_key)
    try:
        coordinates = read_coordinates(source, spatial_key_of_fit(stored.summary, None), samples=samples)
    except InputError as error:
        raise error.but(advice="The fit has had them there: put them back, or run `spatialpdvi fit` again.") from error
    return FittedDomains(name, stored, coordinates, samples, params)


def carry_domains(
    fit: FittedDomains, target: Source, options: TransferOptions, progress: Progress
) -> tuple[TransferResult, dict[tuple[str, str], Any]]:
    """Return the result, and what is written into the file of the other spots (docs/transfer.md).

    Parameters
    ----------
    fit
        From `read_fitted_domains`.
    target
        The file of the other spots.
    options
        What the caller chose.
    progress
        Shows the stages.

    Raises
    ------
    InputError
        Where sections or coordinates do not match.
    """
    with progress.stage("read") as stage:
        sample_key = _sample_key(fit, target, options.sample_key)
        spatial_key = spatial_key_of_fit(fit.stored.summary, options.spatial_key)
        label_key = options.label_key
        with own_names(OF_RESULT):
            check_not_replaced(target, options.new_keys, {"label_key": label_key, "sample_key": sample_key})
        section = read_section(
            target, spatial_key=spatial_key, label_key=label_key, sample_key=sample_key, expression=False
        )
        pairs = _matched(fit, section, target)
        stage.note(f"{section.coordinates.shape[0]:,} spots to give a domain")
    places, stored = section.coordinates * options.scale, fit.stored
    parts: list[Carried] = []
    with progress.stage("transfer") as stage:
        for pair in pairs:
            near = FittedSpots(
                fit.coordinates[pair.of_fit],
                stored.codes[pair.of_fit],
                stored.posterior[pair.of_fit],
                None if stored.calibrated is None else stored.calibrated[pair.of_fit],
            )
            part = carry(
                near,
                places[pair.spots],
                borders=options.borders,
                limit=options.max_distance,
                section=pair.name,
                scale=options.scale,
            )
            parts.append(part)
        domains = np.full(places.shape[0], -1, dtype=np.int64)
        for pair, part in zip(pairs, parts, strict=True):
            domains[pair.spots] = part.codes
        kept = domains >= 0
        stage.note(f"{kept.sum():,} spots have a domain")
    posterior = _joined([part.posterior for part in parts], pairs, places.shape[0])
    calibrated = None
    if stored.calibrated is not None:
        calibrated = _joined([part.calibrated for part in parts], pairs, places.shape[0])
    columns = {
        "section": np.array([pair.name or "" for pair in pairs], dtype=object),
        "spots": np.array([pair.spots.size for pair in pairs]),
        "assigned": np.array([int((part.codes >= 0).sum()) for part in parts]),
        "max_distance": np.array([part.limit for part in parts]),
    }
    with progress.stage("scores"):
        scores = scores_by_section(section.of(np.flatnonzero(kept)), domains[kept])
    result = TransferResult(domains, stored.names, posterior, calibrated, pd.DataFrame(columns), scores)
    params = {
        "spatial_key": spatial_key,
        "sample_key": sample_key,
        "label_key": section.label_key,
        "max_distance": options.max_distance,
        "n_spots": int(kept.sum()),
        "n_excluded": int((~kept).sum()),
    }
    return result, _elements(result, fit, options, params, columns)


def _joined(parts: list[Any], pairs: list[_Pair], n: int) -> np.ndarray:
    """Return the rows of all sections in the order of the file; those of one section are not copied."""
    if len(parts) == 1:
        return np.asarray(parts[0])
    rows = np.empty((n, parts[0].shape[1]), dtype=np.float32)
    for pair, part in zip(pairs, parts, strict=True):
        rows[pair.spots] = part
    return rows


def _sample_key(fit: FittedDomains, target: Source, given: str | None) -> str | None:
    """Return the column with the sections of the other spots; None where there is one section."""
    if fit.samples is None:
        if given is None:
            return None
        raise InputError(
            f"a fit of several sections with {option('sample_key')}",
            "a fit of one",
            "Leave it out, or take the spots of the section that was fitted.",
        )
    key = given or str(fit.params["sample_key"])
    if key not in target.obs_keys():
        if given is None and len(fit.samples.categories) == 1:
            return None
        raise InputError(
            f"a column {key!r} with the section of each spot in obs of {target.name}, as the fit has several sections",
            f"columns: {list_keys(target.obs_keys())}",
            f"Name one of these with {option('sample_key')}, or add it.",
        )
    return key


def _matched(fit: FittedDomains, section: Section, target: Source) -> list[_Pair]:
    """Match the sections by name."""
    axes, others = fit.coordinates.shape[1], section.coordinates.shape[1]
    if axes != others:
        raise InputError(
            f"coordinates of {axes} axes in {target.name}, as in the fit",
            f"{others} axes",
            f"Name coordinates of {axes} columns with {option('spatial_key')}.",
        )
    if fit.samples is None or section.samples is None:  # each has one section
        return [_Pair(None, slice(None), np.arange(section.coordinates.shape[0]))]
    known = {str(name): code for code, name in enumerate(fit.samples.categories)}
    names = [str(name) for name in section.samples.categories]
    strange = [name for name in names if name not in known]
    if strange:
        raise InputError(
            f"sections of the fit in {target.name}: {list_keys(known)}",
            f"{', '.join(map(repr, strange[:4]))}{' and others' if len(strange) > 4 else ''}",
            f"Rename these sections, leave them out, or name another column with {option('sample_key')}.",
        )
    codes = np.asarray(fit.samples.codes)
    return [
        _Pair(name, np.flatnonzero(codes == known[name]), spots)
        for name, spots in zip(names, section.spots_of_samples(), strict=True)
    ]


def _elements(
    result: TransferResult,
    fit: FittedDomains,
    options: TransferOptions,
    params: dict[str, Any],
    columns: dict[str, Any],
) -> dict[tuple[str, str], Any]:
    """Return the value of each (group, key) that is written (docs/outputs.md)."""
    keys, summary = options.new_keys, fit.stored.summary
    source = fit.name or "an AnnData in memory"
    before = summary.get("transfer")  # where the domains had been carried over before
    fit_source = str(before.get("fit", source)) if isinstance(before, Mapping) else source
    params = {
        **({"transferred_from": fit.name} if fit.name else {}),
        "transferred_key": options.keys.prefix,
        **{name: fit.params[name] for name in _OF_FIT if name in fit.params},
        "borders": options.borders,
        "scale": float(options.scale),
        "key_added": keys.prefix,
        **params,
    }
    stated = {
        "source": source,
        "key": options.keys.prefix,
        "fit": fit_source,
        "certificate": f"The certificate and the trace are those of the fit of {fit_source}. The domains were carried "
        "over by place, which is no fit and has no certificate of its own.",
        "sections": columns,
    }
    uns = {
        "params": {name: value for name, value in params.items() if value is not None}
        | {"versions": library_versions()},
        **{name: summary[name] for name in _OF_DOMAINS if name in summary},
        "scores": result.scores,
        "transfer": stated,
    }
    carried = fit.stored._replace(
        codes=result.domains, posterior=result.posterior, calibrated=result.calibrated, summary=uns
    )
    return carried.elements(keys)
