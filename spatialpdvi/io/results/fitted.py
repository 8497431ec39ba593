"""What pictures and reports need of a result."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputWarning
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import count_moved, read_share
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import domain_names, read_colours, read_label_colours, with_lost
from spatialpdvi.io.results.summary import (
    check_fitted,
    label_key_of_fit,
    n_stored,
    read_summary,
    sample_key_of_fit,
    spatial_key_of_fit,
    stored_params,
)
from spatialpdvi.io.section.coordinates import read_coordinates
from spatialpdvi.io.section.labels import DEFAULT_LABEL_KEY, read_domains, read_labels, read_samples

__all__ = [
    "Fitted",
    "read_fitted",
    "samples_of_fit",
]


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
    n_moved: int = 0  # spots in other domains than the fit gave them, which nothing that it stored is about

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

    There is a warning of spots whose domains were changed since.

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
    annotation, found_key = read_labels(
        source, label_key, otherwise=label_key_of_fit(source, summary) or DEFAULT_LABEL_KEY
    )
    samples = coordinates = section = None
    if placed:
        samples, section = _samples_and_only_one(source, summary, sample_key)
        coordinates = read_coordinates(source, spatial_key_of_fit(summary, spatial_key), samples=samples)
    calibrated = keys.calibrated_confidence
    return Fitted(
        coordinates=coordinates,
        domains=read_domains(source, keys.domain),
        confidence=read_share(source, keys.confidence),
        calibrated=read_share(source, calibrated) if calibrated in source.obs_keys() else None,
        annotation=annotation,
        colours=read_colours(source, keys),
        summary=summary,
        samples=samples,
        section=section,
        label_key=found_key,
        label_colours=None if found_key is None else read_label_colours(source, found_key),
        n_moved=_moved(source, keys, summary),
    )


def _moved(source: Source, keys: Keys, summary: dict[str, Any]) -> int:
    """The number of spots whose domain is not that of the fit, of which a warning tells."""
    names, k = domain_names(source, keys), n_stored(summary)
    if len(names) < k and stored_params(summary).get("n_spots") != source.n_obs:
        return 0  # which names a selection has lost is not known where some were changed
    n_moved = count_moved(source, keys, with_lost(names, k, summary))
    if n_moved:
        text = (
            f"{n_moved:,} of {source.n_obs:,} spots in obs[{keys.domain!r}] of {source.name} are in other domains than "
            "the fit gave them. Scores are those of the domains that are shown, but confidences and all else that the "
            "fit stored are about its own. `spatialpdvi label` changes both."
        )
        warnings.warn(InputWarning(text), stacklevel=3)
    return n_moved


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
