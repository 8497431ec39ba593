"""One run of a solver from a prepared start, and the search for its step size."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.fitting.loop import Stop, StopRule, TraceRow, optimise
from spatialpdvi.fitting.prepare import Prepared
from spatialpdvi.fitting.solve import trace_columns
from spatialpdvi.metrics.clustering import ari_of_table
from spatialpdvi.solvers import SOLVERS, SolverSettings, make_solver

__all__ = ["COARSE", "FINE", "Run", "Tuning", "has_step", "run_solver", "search_step"]

# step sizes
COARSE = tuple(10.0**power for power in range(-6, 5))
FINE = tuple(10.0**power for power in (-0.5, -0.25, 0.25, 0.5))  # factors of the best coarse step size


@dataclass(frozen=True)
class Run:
    """The result of a run, as plain values for JSON.

    Parameters
    ----------
    solver, seed
        The solver, and the seed of its start.
    step
        Its step size; None for a solver without one.
    neg_elbo
        F at the end, in nats; None where the run failed.
    ari
        Adjusted Rand index of the domains at the end and the labels; None without labels, or where the run failed.
    scale
        The scale of the problem (`spatialpdvi.problems.base.Evaluation`), to which differences of F are compared.
    epochs, seconds
        Number of epochs, and the time spent in the solver's own steps and in the evaluations that these need.
    converged, failed
        Whether the run converged, and whether F became infinite or NaN.
    trace
        Columns of equal length from epoch 0: epoch, seconds, neg_elbo, gradient_norm, and ari if there are labels.
    domains
        (n,) domain of each spot in the order of the file, or -1 where the run failed; only for the first seed.
    """

    solver: str
    seed: int
    step: float | None
    neg_elbo: float | None
    ari: float | None
    scale: float
    epochs: int
    seconds: float
    converged: bool
    failed: bool
    trace: dict[str, list[float | None]]
    domains: list[int] | None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields, for the file of the run."""
        return asdict(self)

    def column(self, name: str) -> np.ndarray:
        """Return a column of the trace as float64, with NaN where there is no number."""
        return np.array(self.trace[name], dtype=np.float64)


def has_step(name: str, *, also_p2dvi: bool = False) -> bool:
    """Whether the solver has a step size, which must be tuned; P2D-VI has one where its steps are constant."""
    return SOLVERS[name].has_step or (also_p2dvi and name == "p2dvi")


def run_solver(
    prepared: Prepared,
    name: str,
    *,
    seed: int,
    rule: StopRule,
    step: float | None = None,
    duals: str | None = None,
    on_epoch: Callable[[TraceRow], None] | None = None,
) -> Run:
    """Run a solver from a prepared start, with the random numbers of a fit with that solver and seed.

    Parameters
    ----------
    prepared
        The problem and the start.
    name
        Name of the solver.
    seed
        Seed of the start.
    rule
        When the run ends.
    step
        Step size, for a solver that has one.
    duals
        Where the dual variables start, for a solver that has some; None for its default.
    on_epoch
        Called after every epoch.
    """
    ari: list[float] = []

    engine = prepared.engine()

    def watch(row: TraceRow) -> None:
        table = engine.table()
        if table is not None:
            ari.append(ari_of_table(table))
        if on_epoch is not None:
            on_epoch(row)

    optimum = optimise(
        engine,
        make_solver(name, SolverSettings(step_size=step, duals=duals or SolverSettings.duals)),
        prepared.initial(),
        rule=rule,
        rng=np.random.default_rng(seed),
        on_epoch=watch,
    )
    last = optimum.trace[-1]
    failed = optimum.stop is Stop.NOT_FINITE
    return Run(
        solver=name,
        seed=seed,
        step=step,
        neg_elbo=None if failed else float(last.evaluation.neg_elbo),
        ari=_number(ari[-1]) if ari and not failed else None,
        scale=float(optimum.trace[0].evaluation.scale),
        epochs=last.epoch,
        seconds=last.seconds,
        converged=optimum.stop is Stop.CONVERGED,
        failed=failed,
        trace=_trace(optimum.trace, ari),
        domains=_domains(prepared, optimum.phi, failed=failed),
    )


def _trace(rows: list[TraceRow], ari: list[float]) -> dict[str, list[float | None]]:
    with np.errstate(over="ignore", invalid="ignore"):  # a failed run ends at huge values
        columns = trace_columns(rows, ari)
    shown = ("epoch", "seconds", "neg_elbo", "gradient_norm", "ari")
    return {name: [_number(value) for value in columns[name].tolist()] for name in shown if name in columns}


def _domains(prepared: Prepared, phi: np.ndarray, *, failed: bool) -> list[int]:
    domains = np.full(phi.shape[0], -1) if failed else prepared.graph.patching.as_given(phi.argmax(axis=1))
    return domains.tolist()


def _number(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


class Trial(NamedTuple):
    """A step size that was tried."""

    step: float
    neg_elbo: float  # F at the end of the trial, in nats; not finite where it failed


class Tuning(NamedTuple):
    """The step size that was found, and all that were tried."""

    step: float
    trials: list[Trial]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"step": self.step, "trials": [trial._asdict() for trial in self.trials]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Tuning":
        """Return the tuning that `as_dict` was called on; null stands for a number that is not finite."""
        trials = [
            Trial(t["step"], math.nan if t["neg_elbo"] is None else float(t["neg_elbo"])) for t in content["trials"]
        ]
        return cls(float(content["step"]), trials)


def search_step(objective: Callable[[float], float]) -> Tuning:
    """Search for the step size with the lowest finite objective among `COARSE`, then with `FINE` around the best.

    If all trials fail, the smallest step size is returned, and its run will show the failure.
    """
    trials = [Trial(step, objective(step)) for step in COARSE]
    middle = _best_step(trials)
    if middle is not None:
        trials += [Trial(middle * factor, objective(middle * factor)) for factor in FINE]
    best = _best_step(trials)
    return Tuning(COARSE[0] if best is None else best, trials)


def _best_step(trials: list[Trial]) -> float | None:
    """Return the best step size, or the smallest of several equally good ones."""
    finite = [(trial.neg_elbo, trial.step) for trial in trials if math.isfinite(trial.neg_elbo)]
    return min(finite)[1] if finite else None
