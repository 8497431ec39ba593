"""The loop of every solver: choose a batch, visit it, merge, record, stop. It knows only a solver and an engine."""

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.engines.base import Engine
from spatialpdvi.problems.base import Blocks, Evaluation
from spatialpdvi.solvers.base import Solver, State

__all__ = ["Optimum", "Stop", "StopRule", "TraceRow", "Underway", "one_epoch", "optimise"]


class Stop(enum.Enum):
    """Why the loop ended; the value is the sentence shown."""

    CONVERGED = "Converged: every block is stationary within the tolerance and the objective has settled."
    EPOCHS = "Not converged: the limit of epochs was reached first; allow more epochs or a larger tolerance."
    NOT_FINITE = "Not converged: the objective is no longer finite; the steps are too large."


@dataclass(frozen=True)
class StopRule:
    """When to stop; `spatialpdvi.options.fit` checks what users give.

    Parameters
    ----------
    tolerance
        Largest stationarity of every global block, and of the mean residual of the posteriors; dimensionless, with
        the same meaning for any number of spots.
    relative_change
        Largest change of F over the last epoch, relative to the problem's scale.
    max_epochs
        Largest number of epochs.
    """

    tolerance: float = 1e-4
    relative_change: float = 1e-7
    max_epochs: int = 500

    def is_met(self, now: Evaluation, before: Evaluation) -> bool:
        """Return whether the point is stationary and F has settled."""
        settled = abs(now.neg_elbo - before.neg_elbo) <= self.relative_change * now.scale
        return bool(settled and now.worst <= self.tolerance)


class TraceRow(NamedTuple):
    """One epoch, epoch 0 being the start."""

    epoch: int
    seconds: float  # of the solver's steps so far, with the evaluations that they need (`Solver.needs_evaluation`)
    evaluation: Evaluation


class Underway(NamedTuple):
    """A run between two epochs; together with the state of the generator, all that it needs to resume."""

    state: State
    row: TraceRow  # of the last epoch


class Optimum(NamedTuple):
    """Where the loop ended."""

    phi: Any
    lam: Blocks
    state: State
    trace: list[TraceRow]
    stop: Stop


def optimise(
    engine: Engine,
    solver: Solver,
    start: tuple[Any, Blocks] | State | Underway,
    *,
    rule: StopRule,
    rng: np.random.Generator,
    on_epoch: Callable[[TraceRow], None] | None = None,
    on_state: Callable[[int, Callable[[], Underway]], None] | None = None,
) -> Optimum:
    """Run a solver until the rule is met.

    Parameters
    ----------
    engine
        Stores the patches of the problem.
    solver
        The solver to run.
    start
        ``(phi, lambda)`` to begin at, or the `State` or `Underway` of an earlier run to resume from. With the same
        solver, and the generator in the state that it had then, a resumed run gives the same bits as one long run. phi
        may be overwritten.
    rule
        When to stop.
    rng
        Chooses the batches.
    on_epoch
        ``on_epoch(row)`` is called after every evaluation, epoch 0 included.
    on_state
        ``on_state(epoch, underway)`` is called after every epoch except the last. It must neither change nor
        store what ``underway()`` returns, since the next epoch overwrites it. The trace of a run that resumes from such
        a value, saved and read again, begins with the row of that epoch.
    """
    trace: list[TraceRow] = []
    if isinstance(start, Underway):
        shared, seconds = engine.begin(solver, start.state), start.row.seconds
        trace.append(start.row)
    else:
        shared, seconds = engine.begin(solver, start), 0.0
    needed = 0.0  # seconds of the last evaluation, where the next steps need it

    def record(epoch: int) -> Evaluation:
        nonlocal needed
        clock = time.perf_counter()
        evaluation = engine.evaluate(shared.lam)
        needed = time.perf_counter() - clock if solver.needs_evaluation else 0.0
        trace.append(TraceRow(epoch, seconds, evaluation))
        if on_epoch is not None:
            on_epoch(trace[-1])
        return evaluation

    evaluation = trace[-1].evaluation if trace else record(0)
    stop = Stop.EPOCHS
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # too large a step ends in NOT_FINITE
        for epoch in range(trace[-1].epoch + 1, rule.max_epochs + 1):
            clock = time.perf_counter()
            shared = one_epoch(engine, solver, shared, evaluation, rng=rng)
            seconds += time.perf_counter() - clock + needed
            before, evaluation = evaluation, record(epoch)
            if not np.isfinite(evaluation.neg_elbo):
                stop = Stop.NOT_FINITE
                break
            if rule.is_met(evaluation, before):
                stop = Stop.CONVERGED
                break
            if on_state is not None and epoch < rule.max_epochs:
                on_state(epoch, partial(_gather, engine, shared, trace[-1]))
    state = engine.state(shared)
    return Optimum(state.phi, shared.lam, state, trace, stop)


def _gather(engine: Engine, shared: Any, row: TraceRow) -> Underway:
    return Underway(engine.state(shared), row)


def one_epoch(engine: Engine, solver: Solver, shared: Any, evaluation: Evaluation, *, rng: np.random.Generator) -> Any:
    """Visit every batch once and return what patches share after it.

    Parameters
    ----------
    engine, solver, rng
        As for `optimise`.
    shared
        What patches share before the epoch.
    evaluation
        Of the point where the epoch begins.
    """
    shared = solver.begin_epoch(engine.problem, shared, evaluation, engine.patch_states)
    for batch in solver.batches(engine.problem.n_patches, rng):
        shared = solver.merge(engine.problem, shared, engine.visit(shared, batch))
    return shared
