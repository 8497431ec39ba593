"""Seconds and bytes of the stages of a fit, from how much there is to do and how fast the machine is."""

from typing import NamedTuple

from spatialpdvi.estimate.coefficients import MEMORY, PARALLEL, SECONDS
from spatialpdvi.estimate.machine import Speed
from spatialpdvi.estimate.work import Work

__all__ = ["Prediction", "predict_bytes", "predict_seconds", "rate_of"]

_RATES = {"packed": "inflate", "bytes": "copy", "file": "copy", "once": "python"}  # all else is arithmetic


class Prediction(NamedTuple):
    """What a fit will take, stage by stage, in their order."""

    seconds: dict[str, float]
    peak_bytes: dict[str, float]

    @property
    def total_seconds(self) -> float:
        """Of the whole command."""
        return sum(self.seconds.values())

    @property
    def peak_memory_bytes(self) -> float:
        """Largest of all stages."""
        return max(self.peak_bytes.values())


def rate_of(term: str) -> str:
    """The field of `Speed` that a term of `Work.terms` goes with."""
    return _RATES.get(term, "multiply")


def predict_seconds(work: Work, speed: Speed, *, threads: int) -> dict[str, float]:
    """Wall seconds of each stage on an idle machine.

    Parameters
    ----------
    work
        How much there is to do.
    speed
        Of the machine, beside that of the coefficients (`Speed.beside`).
    threads
        That the fit may use.
    """
    seconds = {}
    for stage, terms in work.terms().items():
        processor = sum(
            SECONDS[stage].get(term, 0.0) * size / getattr(speed, rate_of(term)) for term, size in terms.items()
        )
        share = PARALLEL[stage]
        seconds[stage] = processor * (1.0 - share + share / threads)
    return seconds


def predict_bytes(work: Work) -> dict[str, float]:
    """Peak of the memory in use in each stage, bytes."""
    return {
        stage: sum(MEMORY[stage].get(term, 0.0) * size for term, size in terms.items())
        for stage, terms in work.memory_terms().items()
    }
