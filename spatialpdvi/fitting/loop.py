"""The loop of every solver: choose a batch, visit it, merge, record, stop. It knows only a solver and an engine."""

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.engines.base import Engine, ignore_overflow
from spatialpdvi.problems.base import Blocks, Evaluation
from spatialpdvi.solvers.base import Solver, State

__all__ = ["Best", "Stop", "StopRule", "TraceRow", "Underway", "one_epoch", "optimise"]


_SAME = 1e-6  # of the problem's scale: a point is as good as the best if its F is less than this above
_NOISE = 1e-4  # of the problem's scale: F may rise by this, since large steps escape from poor optima


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
    best: "Best | None" = None  # the point with the lowest F; None where the solver has no fallback


class Best(NamedTuple):
    """The point with the lowest F so far, to which a run goes back where an epoch gives up what was gained."""

    begun: float  # F at the start
    lowest: float  # F here
    lam: Blocks
    phi: Any = None  # in a checkpoint; None where the point is that of the last epoch

    def is_given_up(self, now: Evaluation, *, ends: bool) -> bool:
        """Whether F has risen by half of what was gained, or a run would end above this point."""
        allowed = _SAME * now.scale if ends else 0.5 * (self.begun - self.lowest) + _NOISE * now.scale
        return not now.neg_elbo <= self.lowest + allowed  # NaN is given up as well


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
    best: Best | None = None
    if isinstance(start, Underway):
        shared, seconds, best = engine.begin(solver, start.state), start.row.seconds, start.best
        trace.append(start.row)
    else:
        shared, seconds = engine.begin(solver, start), 0.0
    needed = 0.0  # seconds of the last evaluation, where the next steps need it

    def evaluated() -> Evaluation:
        nonlocal needed
        clock = time.perf_counter()
        evaluation = engine.evaluate(shared.lam)
        needed = time.perf_counter() - clock if solver.needs_evaluation else 0.0
        return evaluation

    def record(epoch: int, evaluation: Evaluation) -> Evaluation:
        trace.append(TraceRow(epoch, seconds, evaluation))
        if on_epoch is not None:
            on_epoch(trace[-1])
        return evaluation

    evaluation = trace[-1].evaluation if trace else record(0, evaluated())
    if solver.fallback is not None:
        best = best or Best(evaluation.neg_elbo, evaluation.neg_elbo, shared.lam)
        engine.keep(best.phi)
    stop = Stop.EPOCHS
    with ignore_overflow():
        for epoch in range(trace[-1].epoch + 1, rule.max_epochs + 1):
            clock = time.perf_counter()
            shared = one_epoch(engine, solver, shared, evaluation, rng=rng)
            seconds += time.perf_counter() - clock + needed
            before, evaluation = evaluation, evaluated()
            if best is not None:
                ends = epoch == rule.max_epochs or rule.is_met(evaluation, before)
                if best.is_given_up(evaluation, ends=ends):
                    clock = time.perf_counter()
                    shared = _descend(engine, solver, best, failed=shared, evaluation=evaluation, rng=rng)
                    seconds += time.perf_counter() - clock + needed
                    evaluation = evaluated()
                if evaluation.neg_elbo < best.lowest:
                    best = best._replace(lowest=evaluation.neg_elbo, lam=shared.lam)
                    engine.keep()
            record(epoch, evaluation)
            if not np.isfinite(evaluation.neg_elbo):
                stop = Stop.NOT_FINITE
                break
            if rule.is_met(evaluation, before):
                stop = Stop.CONVERGED
                break
            if on_state is not None and epoch < rule.max_epochs:
                on_state(epoch, partial(_gather, engine, shared, trace[-1], best))
    state = engine.state(shared)
    return Optimum(state.phi, shared.lam, state, trace, stop)


def _gather(engine: Engine, shared: Any, row: TraceRow, best: Best | None) -> Underway:
    if best is not None:
        best = best._replace(phi=None if best.lowest == row.evaluation.neg_elbo else engine.kept())
    return Underway(engine.state(shared), row, best)


def _descend(
    engine: Engine, solver: Solver, best: Best, *, failed: Any, evaluation: Evaluation, rng: np.random.Generator
) -> Any:
    """Make an epoch of the fallback from the best point so far, and return there with smaller steps."""
    assert solver.fallback is not None  # there is a best point
    descended = one_epoch(
        engine, solver.fallback, engine.restart(solver.fallback, best.lam, kept=True), evaluation, rng=rng
    )
    return solver.with_smaller_steps(engine.restart(solver, descended.lam, kept=False), failed)


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
