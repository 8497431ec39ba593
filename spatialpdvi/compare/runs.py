"""One run: a solver from a prepared start, and the record of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spatialpdvi.fitting.certificate import gradient_norm
from spatialpdvi.fitting.loop import Stop, StopRule, TraceRow, optimise
from spatialpdvi.fitting.prepare import Prepared
from spatialpdvi.metrics.clustering import ari_of_table
from spatialpdvi.solvers import SOLVERS, SolverSettings, make_solver

__all__ = ["Run", "has_step", "run_solver"]


@dataclass(frozen=True)
class Run:
    """What a run found; plain values, as they stand in JSON.

    Parameters
    ----------
    solver, seed, step
        What ran; the step is None for a solver that has none to tune.
    neg_elbo
        F at the end, nats; None where the run failed.
    ari
        Of the domains at the end against the labels; None without labels, or where the run failed.
    epochs, seconds
        Visits of every patch, and the time spent in the solver's own steps.
    converged, failed
        Whether the stop rule was met; whether F left the finite numbers.
    trace
        Columns of equal length from epoch 0: epoch, seconds, neg_elbo, gradient_norm, and ari with labels.
    domains
        (n,) domain of each spot in the file's order, -1 for all where the run failed; kept for the first seed alone.
    """

    solver: str
    seed: int
    step: float | None
    neg_elbo: float | None
    ari: float | None
    epochs: int
    seconds: float
    converged: bool
    failed: bool
    trace: dict[str, list[float | None]]
    domains: list[int] | None

    def as_dict(self) -> dict[str, Any]:
        """All fields, for the file of the run."""
        return asdict(self)

    def column(self, name: str) -> np.ndarray:
        """A column of the trace, float64, NaN where there is no number."""
        return np.array(self.trace[name], dtype=np.float64)


def has_step(name: str) -> bool:
    """Whether the solver takes a step that must be tuned."""
    return SOLVERS[name].has_step


def run_solver(
    prepared: Prepared,
    name: str,
    *,
    seed: int,
    rule: StopRule,
    step: float | None = None,
    on_epoch: Callable[[TraceRow], None] | None = None,
) -> Run:
    """Run a solver of the registry from the prepared start.

    The generator's seed is the start's, so that a run is what ``fit`` with that solver and seed does.
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
        make_solver(name, SolverSettings(step_size=step)),
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
        epochs=last.epoch,
        seconds=last.seconds,
        converged=optimum.stop is Stop.CONVERGED,
        failed=failed,
        trace=_trace(optimum.trace, ari),
        domains=_domains(prepared, optimum.phi, failed=failed),
    )


def _trace(rows: list[TraceRow], ari: list[float]) -> dict[str, list[float | None]]:
    with np.errstate(over="ignore", invalid="ignore"):  # a run that failed ends far out
        gradient = [_number(gradient_norm(row.evaluation)) for row in rows]
    columns: dict[str, list[float | None]] = {
        "epoch": [row.epoch for row in rows],
        "seconds": [row.seconds for row in rows],
        "neg_elbo": [_number(row.evaluation.neg_elbo) for row in rows],
        "gradient_norm": gradient,
    }
    if ari:
        columns["ari"] = [_number(value) for value in ari]
    return columns


def _domains(prepared: Prepared, phi: np.ndarray, *, failed: bool) -> list[int]:
    domains = np.full(phi.shape[0], -1)
    if not failed:
        domains[prepared.graph.patching.order] = phi.argmax(axis=1)
    return domains.tolist()


def _number(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return float(value) if np.isfinite(value) else None
