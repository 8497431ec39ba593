"""The step of a solver that has one: powers of ten, then finer around the best of them."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["COARSE", "FINE", "Trial", "Tuning", "search"]

COARSE = tuple(10.0**power for power in range(-6, 5))
FINE = tuple(10.0**power for power in (-0.5, -0.25, 0.25, 0.5))  # factors on the best of the coarse steps


class Trial(NamedTuple):
    """One step that was tried."""

    step: float
    neg_elbo: float  # F where the trial ended, nats; not finite where it failed


class Tuning(NamedTuple):
    """A search for a step, and what it found."""

    step: float
    trials: list[Trial]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"step": self.step, "trials": [trial._asdict() for trial in self.trials]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Tuning":
        """What `as_dict` gave; JSON has null for a number that is not finite."""
        trials = [
            Trial(t["step"], math.nan if t["neg_elbo"] is None else float(t["neg_elbo"])) for t in content["trials"]
        ]
        return cls(float(content["step"]), trials)


def search(objective: Callable[[float], float]) -> Tuning:
    """Step with the lowest finite objective: `COARSE` first, then `FINE` around the best of it.

    Where every trial fails, the smallest step is taken: its run then says that it failed.
    """
    trials = [Trial(step, objective(step)) for step in COARSE]
    middle = _best(trials)
    if middle is not None:
        trials += [Trial(middle * factor, objective(middle * factor)) for factor in FINE]
    best = _best(trials)
    return Tuning(COARSE[0] if best is None else best, trials)


def _best(trials: list[Trial]) -> float | None:
    """Of equally good steps the smallest."""
    finite = [(trial.neg_elbo, trial.step) for trial in trials if math.isfinite(trial.neg_elbo)]
    return min(finite)[1] if finite else None
