"""Calibration of posteriors: their mean confidence becomes the share of spots on which restarts agree.

Mean-field posteriors are overconfident, because the evidence that neighbours share is counted many times. One
temperature corrects that without any labels. It does not tell where other answers are about as good: where a section
was searched several times, the posteriors of the searches do. With labels, the remaining calibration error can be
measured.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import brentq

from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.runtime.rows import some_rows

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

BINS = 10  # bins of confidence, of equal width, for the reliability and the calibration error
_SMALLEST = 1e-30  # smaller posteriors are taken as this; float32 has full precision down to here
_LARGEST_LOG = np.log(1e4)  # of a temperature
_MOST_SPOTS = 40_000  # at most, from which the temperature is determined


class Calibration(NamedTuple):
    """A temperature, and the calibrated posterior that it gives or is a part of."""

    temperature: float  # at least 1
    posterior: np.ndarray  # (n, K) float32, rows sum to 1
    confidence: np.ndarray  # (n,) float32: the calibrated posterior of each spot's domain

    def part(self, spots: np.ndarray) -> Self:
        """Return the same for some of the spots."""
        return self._replace(posterior=self.posterior[spots], confidence=self.confidence[spots])


def calibrate(posterior: np.ndarray, agreement: float, *, searched: np.ndarray | None = None) -> Calibration:
    """Compute the posterior ``softmax(log(phi) / T)`` whose mean confidence is the agreement between restarts.

    Where there is a mean posterior of several searches, the result is the mean of the two (C9): the first says how far
    another model of the section differs, the second where this one has other answers that are about as good.

    Restarts on the same tissue disagree where labels are uncertain, and their agreement is known without annotation. A
    single temperature T does not change the order of domains at any spot. Temperature scaling is due to Guo, Pleiss,
    Sun and Weinberger (2017, ICML), who determine T from labels.

    Parameters
    ----------
    posterior
        phi (n, K).
    agreement
        The probability, in (0, 1], that two restarts place a spot in the same domain.
    searched
        (n, K), the mean posterior of several searches whose domains are those of ``posterior``, where there is one.

    Returns
    -------
    Calibration
        T, from 1 to 10,000, and the calibrated posterior. Its confidences are those of the domains that are most
        probable in ``posterior``, in a few spots not those that are most probable after calibration.
    """
    some = some_rows(posterior, 0, _MOST_SPOTS)

    def excess(log_temperature: float) -> float:
        return float(temper(some, float(np.exp(log_temperature))).max(axis=1).mean()) - agreement

    temperature = 1.0
    if excess(0.0) > 0.0:
        # at the largest temperature confidences are almost 1/K; restarts that agree less than that need no larger one
        temperature = (
            float(np.exp(brentq(excess, 0.0, _LARGEST_LOG)))
            if excess(_LARGEST_LOG) < 0.0
            else float(np.exp(_LARGEST_LOG))
        )
    found = tempered(posterior, temperature)
    if searched is None:
        return found
    mean = 0.5 * (found.posterior + searched.astype(np.float32))
    own = np.take_along_axis(mean, posterior.argmax(axis=1)[:, None], axis=1)[:, 0]
    return found._replace(posterior=mean, confidence=own)


def tempered(posterior: np.ndarray, temperature: float) -> Calibration:
    """Calibrate a posterior (n, K) with a known temperature, such as that of a saved model."""
    found = temper(posterior, temperature).astype(np.float32)
    return Calibration(temperature, found, found.max(axis=1))


def temper(posterior: np.ndarray, temperature: float) -> np.ndarray:
    """Compute ``softmax(log(phi) / T)``, (n, K) float64, from a posterior (n, K)."""
    score = np.log(np.maximum(posterior.astype(np.float64), _SMALLEST)) / temperature
    score -= score.max(axis=1, keepdims=True)
    np.exp(score, out=score)
    return np.asarray(score / score.sum(axis=1, keepdims=True))


def is_of_majority(domains: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Find the spots (n,) that have the most frequent label of their domain; codes (n,), no label missing."""
    counts = overlap(domains, labels, shape=(int(domains.max()) + 1, int(labels.max()) + 1))
    return np.asarray(counts.argmax(axis=1)[domains] == labels)


def reliability(confidence: np.ndarray, correct: np.ndarray) -> dict[str, np.ndarray]:
    """Compare confidences with the share of correct spots, bin by bin.

    Parameters
    ----------
    confidence
        Largest posterior of each spot (n,), from 0 to 1.
    correct
        Whether each spot is correct (n,).

    Returns
    -------
    dict
        Columns with one entry for each bin that has spots: the mean ``confidence``, the share of spots that are
        ``correct``, and the number of ``spots``.
    """
    which = np.minimum((confidence.astype(np.float64) * BINS).astype(np.int64), BINS - 1)
    spots = np.bincount(which, minlength=BINS)
    there = spots > 0
    columns: dict[str, Any] = {}
    for name, values in (("confidence", confidence), ("correct", correct)):
        total = np.bincount(which, weights=values.astype(np.float64), minlength=BINS)
        columns[name] = total[there] / spots[there]
    return {**columns, "spots": spots[there]}


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Compute the expected calibration error (Naeini, Cooper and Hauskrecht 2015, AAAI).

    It is the mean, over spots, of the distance between the mean confidence of a spot's bin and the share of the bin
    that is correct.

    Parameters
    ----------
    confidence
        Largest posterior of each spot (n,), from 0 to 1.
    correct
        Whether each spot is correct (n,).
    """
    bins = reliability(confidence, correct)
    return float(np.average(np.abs(bins["confidence"] - bins["correct"]), weights=bins["spots"]))


def calibration_scores(
    domains: np.ndarray, codes: np.ndarray, *, confidence: np.ndarray, calibrated: np.ndarray | None = None
) -> dict[str, Any]:
    """Measure how far confidences are from the share of spots that have the most frequent label of their domain.

    Parameters
    ----------
    domains
        Domain of each spot (n,).
    codes
        Code of the known label of each spot (n,); negative where there is none.
    confidence, calibrated
        Posterior and, where there is one, calibrated posterior of each spot's domain (n,).

    Returns
    -------
    dict
        ``accuracy``, the share of spots that have the most frequent label of their domain; ``ece``, the expected
        calibration error; and ``reliability``, the columns of `reliability`. The last two also for the calibrated
        posterior, with ``_calibrated`` appended. Empty if no spot has a label.
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
