"""Scores of the domains of a result: over all spots, for each section of a joint fit, and of the confidences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.io.results.fitted import Fitted, scores_of_fit, stored_params
from spatialpdvi.io.section.section import Section, spots_by_section
from spatialpdvi.metrics.calibration import Calibration, calibration_scores
from spatialpdvi.metrics.clustering import domain_scores, label_agreement

__all__ = ["measured_calibration", "scores_by_section", "scores_of_spots", "section_scores", "shown_scores"]


def section_scores(
    section: Section, posterior: np.ndarray, *, baseline: np.ndarray, calibration: Calibration | None
) -> dict[str, Any]:
    """Score the domains of a result and of its baseline.

    Parameters
    ----------
    section
        The section, with its coordinates, its known labels where there are any, and the sections that it is joined
        from.
    posterior
        Posterior (n, K); its most probable domains are scored.
    baseline
        Labels (n,) to compare with, such as those of the start.
    calibration
        The calibrated posterior, where there is one.

    Returns
    -------
    dict
        The scores of `spatialpdvi.metrics.clustering.domain_scores`; those of the baseline under ``baseline``; for a
        joint fit those of each section, as columns, under ``samples``; and with known labels those of
        `spatialpdvi.metrics.calibration.calibration_scores` under ``calibration``.
    """
    domains = posterior.argmax(axis=1)
    scored = scores_by_section(section, domains)
    scored["baseline"] = scores_by_section(section, baseline)
    if section.labels is not None:
        scored["calibration"] = calibration_scores(
            domains,
            section.labels.codes,
            confidence=posterior.max(axis=1),
            calibrated=None if calibration is None else calibration.confidence,
        )
    return scored


def scores_by_section(section: Section, domains: np.ndarray) -> dict[str, Any]:
    """Scores over all spots; CHAOS and PAS of several sections are means over spots of the scores of each section."""
    return _scores(domains, section.coordinates, section.labels, section.samples)


def scores_of_spots(fitted: Fitted) -> dict[str, Any] | None:
    """Return the scores of the spots of a stored result where these are a selection of those that were fitted.

    Those that the fit has stored are of all. Returns None where all spots are there.

    Parameters
    ----------
    fitted
        The result, with its coordinates. One file of several that were fitted together is no selection.
    """
    stored, n = scores_of_fit(fitted.summary), fitted.domains.size
    sections = stored.get("samples")
    whole = {stored.get("n_spots"), fitted.summary["scores"].get("n_spots")}
    if isinstance(sections, Mapping) and "sample_key" not in stored_params(fitted.summary):
        whole |= set(np.atleast_1d(sections.get("n_spots", ())).tolist())
    return None if whole & {n, None} or fitted.coordinates is None else _scores_of_stored(fitted, fitted.coordinates)


def shown_scores(fitted: Fitted) -> Mapping[str, Any]:
    """Return the scores to print beside a map of a stored result: of the spots and of the labels that are shown.

    Those that the fit has stored are of all of its spots, against the labels of the fit. One file of several that were
    fitted together has those of all.
    """
    stored: Mapping[str, Any] = fitted.summary["scores"]
    key = stored_params(fitted.summary).get("label_key")
    others = isinstance(key, str) and fitted.annotation is not None and fitted.label_key != key
    if others and fitted.coordinates is not None:
        return _scores_of_stored(fitted, fitted.coordinates)
    return scores_of_spots(fitted) or stored


def _scores_of_stored(fitted: Fitted, xy: np.ndarray) -> dict[str, Any]:
    return _scores(fitted.domains.codes.astype(np.int64), xy, fitted.annotation, fitted.samples)


def _scores(
    domains: np.ndarray, xy: np.ndarray, labels: pd.Categorical | None, samples: pd.Categorical | None
) -> dict[str, Any]:
    if samples is None:
        return dict(domain_scores(domains, xy, labels=labels))
    own = [
        domain_scores(domains[spots], xy[spots], labels=None if labels is None else labels[spots])
        for spots in spots_by_section(samples, domains.size)
    ]
    # columns, not a dict by section: users name sections, and a name need not be a valid key in a file
    columns: dict[str, Any] = {name: np.array([scored[name] for scored in own]) for name in own[0]}
    agreement = {} if labels is None else label_agreement(domains, labels)
    size = columns["n_spots"]
    spatial = {name: float((columns[name] * size).sum() / size.sum()) for name in ("chaos", "pas")}
    names = np.array([str(name) for name in samples.categories], dtype=object)
    return {**agreement, **spatial, "n_spots": int(size.sum()), "samples": {"sample": names, **columns}}


def measured_calibration(fitted: Fitted) -> dict[str, Any]:
    """Return `calibration_scores` of a stored result against the annotation that it was read with; empty without one.

    Those that the fit has stored are scores against the labels of the fit, which may be others.
    """
    if fitted.annotation is None:
        return {}
    domains, codes = fitted.domains.codes.astype(np.int64), fitted.annotation.codes
    return calibration_scores(domains, codes, confidence=fitted.confidence, calibrated=fitted.calibrated)
