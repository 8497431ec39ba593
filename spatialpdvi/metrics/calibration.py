"""Posteriors as sure as restarts are: the mean field is surer, since it counts what neighbours share many times."""

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from spatialpdvi.metrics.clustering import overlap

__all__ = [
    "Calibration",
    "calibrate",
    "calibration_error",
    "calibration_scores",
    "is_of_majority",
    "reliability",
    "temper",
    "tempered",
]

BINS = 10  # of confidence, of equal width, for reliability and error
_LEAST = 1e-30  # posteriors below count as this: float32 has digits down to there
_HOTTEST = np.log(1e4)
_LEARNT_FROM = 20_000  # spots at the most


class Calibration(NamedTuple):
    """A temperature, and the posterior that it makes."""

    temperature: float  # 1 or more: posteriors are only ever made less sure
    posterior: np.ndarray  # (n, K) float32, rows sum to 1

    @property
    def confidence(self) -> np.ndarray:
        """Largest calibrated posterior of each spot (n,) float32."""
        return np.asarray(self.posterior.max(axis=1))


def calibrate(posterior: np.ndarray, agreement: float) -> Calibration:
    """Posterior ``softmax(log(phi) / T)`` whose mean confidence is the agreement between two restarts.

    Restarts on the same tissue disagree where labels are uncertain, and their agreement is known without any label; a
    single temperature keeps the order of domains at every spot (Guo et al. 2017 learn it from labels).

    Parameters
    ----------
    posterior
        phi (n, K).
    agreement
        Chance that two restarts say the same of a spot, in (0, 1].
    """
    some = posterior[:: max(1, len(posterior) // _LEARNT_FROM)]

    def excess(log_temperature: float) -> float:
        return float(temper(some, float(np.exp(log_temperature))).max(axis=1).mean()) - agreement

    temperature = 1.0
    if excess(0.0) > 0.0:
        # as hot as can be, a confidence is 1/K: restarts that agree less than chance leave no more to say
        temperature = (
            float(np.exp(brentq(excess, 0.0, _HOTTEST))) if excess(_HOTTEST) < 0.0 else float(np.exp(_HOTTEST))
        )
    return tempered(posterior, temperature)


def tempered(posterior: np.ndarray, temperature: float) -> Calibration:
    """Posterior (n, K) made less sure by a temperature that is known, as of a kept model."""
    return Calibration(temperature, temper(posterior, temperature).astype(np.float32))


def temper(posterior: np.ndarray, temperature: float) -> np.ndarray:
    """``softmax(log(phi) / T)``, (n, K) float64."""
    score = np.log(np.maximum(posterior.astype(np.float64), _LEAST)) / temperature
    score -= score.max(axis=1, keepdims=True)
    np.exp(score, out=score)
    return np.asarray(score / score.sum(axis=1, keepdims=True))


def is_of_majority(domains: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Whether a spot has the label that most spots of its domain have; both (n,) codes, labels none missing."""
    counts = overlap(domains, labels, shape=(int(domains.max()) + 1, int(labels.max()) + 1))
    return np.asarray(counts.argmax(axis=1)[domains] == labels)


def reliability(confidence: np.ndarray, correct: np.ndarray) -> dict[str, np.ndarray]:
    """Columns by bin of confidence that holds spots: mean ``confidence``, share that is ``correct``, ``spots``."""
    which = np.minimum((confidence.astype(np.float64) * BINS).astype(np.int64), BINS - 1)
    spots = np.bincount(which, minlength=BINS)
    there = spots > 0
    columns: dict[str, Any] = {}
    for name, values in (("confidence", confidence), ("correct", correct)):
        total = np.bincount(which, weights=values.astype(np.float64), minlength=BINS)
        columns[name] = total[there] / spots[there]
    return {**columns, "spots": spots[there]}


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Expected calibration error: mean over spots of a bin's distance between its confidence and its share correct."""
    bins = reliability(confidence, correct)
    return float(np.average(np.abs(bins["confidence"] - bins["correct"]), weights=bins["spots"]))


def calibration_scores(
    domains: np.ndarray, codes: np.ndarray, *, confidence: np.ndarray, calibrated: np.ndarray | None = None
) -> dict[str, Any]:
    """How far confidences are from the share of spots that have their domain's most frequent label.

    Parameters
    ----------
    domains
        Domain of each spot (n,).
    codes
        Known label of each spot (n,), negative where there is none.
    confidence, calibrated
        Largest posterior of each spot (n,), and that of the calibrated posterior where there is one.

    Returns
    -------
    dict
        ``accuracy``, the expected calibration error ``ece`` and the columns of ``reliability``; the last two also with
        ``_calibrated`` of a calibrated posterior. Empty where no spot is labelled.
    """
    scored = codes >= 0
    if not scored.any():
        return {}
    correct = is_of_majority(domains[scored], codes[scored].astype(np.int64))
    found: dict[str, Any] = {"accuracy": float(correct.mean())}
    for ending, values in (("", confidence), ("_calibrated", calibrated)):
        if values is not None:
            found[f"ece{ending}"] = calibration_error(values[scored], correct)
            found[f"reliability{ending}"] = reliability(values[scored], correct)
    return found
