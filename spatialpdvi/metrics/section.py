"""Scores of a section's domains, whatever found them: over all spots, section by section, and of the confidences."""

from typing import Any

import numpy as np

from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.calibration import Calibration, calibration_scores
from spatialpdvi.metrics.clustering import label_agreement, scores

__all__ = ["result_scores"]


def result_scores(
    section: Section, posterior: np.ndarray, *, baseline: np.ndarray, calibration: Calibration | None
) -> dict[str, Any]:
    """Scores of the domains of a posterior (n, K), of baseline labels (n,) and, with known labels, of confidences."""
    domains = posterior.argmax(axis=1)
    scored = _section_scores(section, domains)
    scored["baseline"] = _section_scores(section, baseline)
    if section.labels is not None:
        scored["calibration"] = calibration_scores(
            domains,
            section.labels.codes,
            confidence=posterior.max(axis=1),
            calibrated=None if calibration is None else calibration.confidence,
        )
    return scored


def _section_scores(section: Section, domains: np.ndarray) -> dict[str, Any]:
    """Scores over all spots; of several sections also each one's own, since CHAOS and PAS are of one place."""
    xy, labels = section.coordinates, section.labels
    if section.samples is None:
        return dict(scores(domains, xy, labels=labels))
    own = [
        scores(domains[spots], xy[spots], labels=None if labels is None else labels[spots])
        for spots in section.spots_of_samples()
    ]
    # names of sections are the user's, and may be none that a file could have as a key: columns, not a dict
    columns: dict[str, Any] = {name: np.array([scored[name] for scored in own]) for name in own[0]}
    agreement = {} if labels is None else label_agreement(domains, labels)
    size = columns["n_spots"]
    spatial = {name: float((columns[name] * size).sum() / size.sum()) for name in ("chaos", "pas")}
    names = np.array([str(name) for name in section.samples.categories], dtype=object)
    return {**agreement, **spatial, "n_spots": int(size.sum()), "samples": {"sample": names, **columns}}
