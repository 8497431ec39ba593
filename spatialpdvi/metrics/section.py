"""Scores of the domains of a result: over all spots, for each section of a joint fit, and of the confidences."""

from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.io.section.labels import spots_by_section
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.calibration import Calibration, calibration_scores
from spatialpdvi.metrics.clustering import domain_scores, label_agreement

__all__ = ["calibration_of", "scores_by_section", "scores_of_arrays", "section_scores"]


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
    calibrated = None if calibration is None else calibration.confidence
    return scored | calibration_of(section, domains, confidence=posterior.max(axis=1), calibrated=calibrated)


def calibration_of(
    section: Section, domains: np.ndarray, *, confidence: np.ndarray, calibrated: np.ndarray | None
) -> dict[str, Any]:
    """Return the scores of confidences under ``calibration``; nothing where no spot has a label."""
    if section.labels is None:
        return {}
    errors = calibration_scores(domains, section.labels.codes, confidence=confidence, calibrated=calibrated)
    return {"calibration": errors} if errors else {}


def scores_by_section(section: Section, domains: np.ndarray) -> dict[str, Any]:
    """Scores over all spots; CHAOS and PAS of several sections are means over spots of the scores of each section."""
    return scores_of_arrays(domains, section.coordinates, section.labels, section.samples)


def scores_of_arrays(
    domains: np.ndarray, xy: np.ndarray, labels: pd.Categorical | None, samples: pd.Categorical | None
) -> dict[str, Any]:
    """Return what `scores_by_section` does for domains (n,), coordinates (n, 2|3), labels (n,) and sections (n,)."""
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
