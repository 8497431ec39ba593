"""A prepared section run through the solver that the options name, from one start or from the best of all."""

from typing import NamedTuple

import numpy as np

from spatialpdvi.certificate import gradient_norm
from spatialpdvi.optimise import Optimum, StopRule, TraceRow, optimise
from spatialpdvi.options import SOLVER_OPTIONS, FitOptions
from spatialpdvi.preparation import Prepared
from spatialpdvi.progress import Stage
from spatialpdvi.solvers import Solver, SolverSettings, make_solver
from spatialpdvi.start import Start

__all__ = ["Solved", "solve", "solver_from", "stop_rule", "trace_columns"]


class Solved(NamedTuple):
    """Where the solver ended, and where it began."""

    optimum: Optimum
    ari: list[float]  # by epoch; empty without labels
    begun: Start


def solver_from(options: FitOptions) -> Solver:
    """Solver that the options name; one that it does not have is an `InputError`."""
    chosen = {name: getattr(options, name) for name in SOLVER_OPTIONS if getattr(options, name) is not None}
    settings = {name: value for name, value in chosen.items() if name not in ("step_mean", "step_log_variance")}
    steps = (options.step_mean, options.step_log_variance)
    return make_solver(options.solver, SolverSettings(steps=steps, **settings), given=chosen)


def stop_rule(options: FitOptions) -> StopRule:
    """When a fit with these options ends."""
    return StopRule(options.tol, options.tol_objective, options.max_epochs)


def solve(prepared: Prepared, solver: Solver, *, options: FitOptions, stage: Stage) -> Solved:
    """Run the solver from the start, or from that and every restart for the lowest F."""
    starts = [prepared.start]
    if options.restarts == "best":
        starts += prepared.other_starts()
    best = None
    for position, start in enumerate(starts):
        stage.advance(position, len(starts))
        found = _solve_from(start, prepared, solver, options=options, stage=stage)
        if best is None or _final(found) < _final(best):
            best = found
    assert best is not None  # there is always a start
    return best


def _final(found: Solved) -> float:
    """F at the end; infinite where it left the finite numbers."""
    f = found.optimum.trace[-1].evaluation.neg_elbo
    return f if np.isfinite(f) else np.inf


def _solve_from(start: Start, prepared: Prepared, solver: Solver, *, options: FitOptions, stage: Stage) -> Solved:
    ari: list[float] = []
    rule = stop_rule(options)

    def on_epoch(row: TraceRow, phi: np.ndarray) -> None:
        score = ""
        if prepared.codes is not None:
            ari.append(prepared.ari(phi))
            score = f"  ARI {ari[-1]:.3f}"
        e = row.evaluation
        stage.note(f"epoch {row.epoch}  F {e.neg_elbo:.6g}  gradient {e.worst:.1e} (to {rule.tolerance:.0e}){score}")

    optimum = optimise(
        prepared.problem,
        solver,
        prepared.initial(start),
        rule=rule,
        rng=np.random.default_rng(options.seed),
        on_epoch=on_epoch,
    )
    return Solved(optimum, ari, start)


def trace_columns(trace: list[TraceRow], ari: list[float]) -> dict[str, np.ndarray]:
    """Columns of equal length, one entry per epoch."""
    evaluations = [row.evaluation for row in trace]
    columns = {
        "epoch": np.array([row.epoch for row in trace]),
        "seconds": np.array([row.seconds for row in trace]),
        "neg_elbo": np.array([e.neg_elbo for e in evaluations]),
        "gradient_norm": np.array([gradient_norm(e) for e in evaluations]),
        "stationarity_mean": np.array([e.stationarity["mean"] for e in evaluations]),
        "stationarity_log_variance": np.array([e.stationarity["log_variance"] for e in evaluations]),
        "stationarity_posterior": np.array([e.residual_mean for e in evaluations]),
    }
    if ari:
        columns["ari"] = np.array(ari)
    return columns
