"""Scores of results that were read back: of the spots, the file and the labels that are shown."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.io.results.summary import files_of_fit, joint_samples, scores_of_fit, stored_params
from spatialpdvi.metrics.calibration import calibration_scores
from spatialpdvi.metrics.section import scores_of_arrays

__all__ = ["measured_calibration", "scores_of_file", "scores_of_section", "scores_of_spots", "shown_scores"]


def scores_of_spots(fitted: Fitted) -> dict[str, Any] | None:
    """Return the scores of the spots of a stored result where those that the fit has stored are about others.

    They are of all spots that were fitted, in the domains of the fit. Returns None where all of these are there.

    Parameters
    ----------
    fitted
        The result, with its coordinates. One file of several that were fitted together is no selection.
    """
    stored, n = scores_of_fit(fitted.summary), fitted.domains.size
    whole = {stored.get("n_spots"), fitted.summary["scores"].get("n_spots")}
    if files_of_fit(fitted.summary):
        whole |= set(np.atleast_1d(stored["samples"].get("n_spots", ())).tolist())
    holds = whole & {n, None} and not fitted.n_moved
    return None if holds or fitted.coordinates is None else _scores_of_stored(fitted, fitted.coordinates)


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
    return scores_of_arrays(fitted.domains.codes.astype(np.int64), xy, fitted.annotation, fitted.samples)


def scores_of_file(scores: Mapping[str, Any], fitted: Fitted, *, name: str) -> Mapping[str, Any]:
    """Return the scores of a file alone, also where it is one of several that were fitted together.

    Parameters
    ----------
    scores
        Those of the result, or of its start.
    fitted
        The result.
    name
        The name of the file, without folder and ending. A file that was renamed is known by the number of its spots;
        there are no scores where two have as many.
    """
    names = joint_samples(scores) if files_of_fit(fitted.summary) else []
    if not names:
        return scores
    if name in names:
        return scores_of_section(scores, names.index(name))
    same = np.flatnonzero(np.atleast_1d(scores["samples"].get("n_spots", ())) == fitted.domains.size)
    return scores_of_section(scores, int(same[0])) if same.size == 1 else {}


def scores_of_section(scores: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return the scores of the i-th section of a joint fit, whose scores are columns under ``samples``."""
    columns = scores["samples"]
    return {name: np.atleast_1d(values)[i] for name, values in columns.items() if np.size(values) > i}


def measured_calibration(fitted: Fitted) -> dict[str, Any]:
    """Return `calibration_scores` of a stored result against the annotation that it was read with; empty without one.

    Those that the fit has stored are scores against the labels of the fit, which may be others.
    """
    if fitted.annotation is None:
        return {}
    domains, codes = fitted.domains.codes.astype(np.int64), fitted.annotation.codes
    return calibration_scores(domains, codes, confidence=fitted.confidence, calibrated=fitted.calibrated)
