"""Runs of the solver: from one start, or from several for the lowest F, and from a checkpoint where there is one."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from spatialpdvi.checkpoints import Checkpoint, digest, named_types, same_shapes, unpack
from spatialpdvi.engines import Engine, PatchesLostError
from spatialpdvi.errors import InputWarning
from spatialpdvi.fitting.certificate import gradient_norm
from spatialpdvi.fitting.loop import Best, Stop, StopRule, TraceRow, Underway, optimise
from spatialpdvi.fitting.prepare import Prepared
from spatialpdvi.initialization.start import Start
from spatialpdvi.metrics.clustering import ari_of_table
from spatialpdvi.options.fit import SOLVER_OPTIONS, FitOptions
from spatialpdvi.problems.base import Blocks, Evaluation
from spatialpdvi.runtime.progress import Stage
from spatialpdvi.solvers import Solver, SolverSettings, make_solver
from spatialpdvi.solvers.base import State

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["SolverRun", "engine_of", "solve", "trace_columns"]


@dataclass(frozen=True, kw_only=True)
class SolverRun:
    """The solver, and what controls a run of it.

    Parameters
    ----------
    solver
        With its settings.
    rule
        When a run ends.
    every_restart
        Whether to run from every restart too, for the lowest F.
    seed
        Of the order in which patches are visited.
    """

    solver: Solver
    rule: StopRule
    every_restart: bool
    seed: int

    @classmethod
    def of(cls, options: FitOptions) -> Self:
        """Take the run from the options of a fit.

        Raises
        ------
        InputError
            Where the solver does not have one of the options.
        """
        chosen = {name: getattr(options, name) for name in SOLVER_OPTIONS if getattr(options, name) is not None}
        settings = {name: value for name, value in chosen.items() if name not in ("step_mean", "step_log_variance")}
        steps = (options.step_mean, options.step_log_variance)
        return cls(
            solver=make_solver(options.solver, SolverSettings(steps=steps, **settings), given=chosen),
            rule=StopRule(options.tol, options.tol_objective, options.max_epochs),
            every_restart=options.restarts == "best",
            seed=options.seed,
        )


class Solved(NamedTuple):
    """Where the solver ended, and which start it came from."""

    position: int  # of the start: 0 for the prepared one, i for the i-th restart
    phi: np.ndarray
    lam: Blocks
    last: tuple[TraceRow, ...]  # of the trace, the last two rows
    stop: Stop
    columns: dict[str, np.ndarray]  # of the whole trace


class _Snapshot(NamedTuple):
    """All that a checkpoint saves."""

    position: int  # of the current start
    best: Solved | None  # of the earlier starts
    run: Underway
    columns: dict[str, np.ndarray]  # of the trace so far
    rng: dict[str, Any]  # state of the generator


class _Job(NamedTuple):
    """What all starts of a fit share."""

    prepared: Prepared
    engine: Engine
    run: SolverRun
    stage: Stage
    checkpoint: Checkpoint | None


_TYPES = (Best, Evaluation, Solved, State, Stop, TraceRow, Underway, _Snapshot)


@contextmanager
def engine_of(prepared: Prepared, cluster: "Cluster | None") -> Iterator[Engine]:
    """Store the patches of a problem on the workers of a cluster while the ``with`` lasts, or in this process."""
    if cluster is None:
        yield prepared.engine()
        return
    from spatialpdvi.distributed import ClusterEngine

    with closing(ClusterEngine(cluster, prepared.problem, codes=prepared.codes)) as engine:
        yield engine


def solve(
    prepared: Prepared,
    run: SolverRun,
    *,
    stage: Stage,
    checkpoint: Checkpoint | None = None,
    engine: Engine | None = None,
) -> Solved:
    """Run the solver from the prepared start, or from that and every restart, and return the run with the lowest F.

    Parameters
    ----------
    prepared
        The problem and its starts.
    run
        The solver, and what controls its runs.
    stage
        Where epochs are shown.
    checkpoint
        Saves the state between epochs; the run resumes from the state that was saved before.
    engine
        Stores the patches (`engine_of`), by default in this process. If it loses patches, the solver resumes from the
        last checkpoint or begins again at the same start; the result is the same.

    Raises
    ------
    InputError
        Where the checkpoint belongs to another fit, or is damaged.
    """
    starts = [prepared.start]
    if run.every_restart:
        starts += prepared.other_starts()
    job = _Job(prepared, engine or prepared.engine(), run, stage, checkpoint)
    saved = None if checkpoint is None else checkpoint.begin(_digests(prepared), _reader(job, len(starts)))
    first, best = (0, None) if saved is None else (saved.position, saved.best)
    for position, start in enumerate(starts[first:], start=first):
        stage.advance(position, len(starts))
        while True:
            try:
                found = _solve_one(job, position, start, saved=saved, best=best)
                break
            except PatchesLostError as lost:
                saved = None if checkpoint is None else checkpoint.last(_reader(job, len(starts)))
                if saved is not None and saved.position != position:
                    saved = None
                resumed = "the start" if saved is None else f"epoch {saved.run.row.epoch}"
                warnings.warn(InputWarning(f"{lost} The fit goes on from {resumed}."), stacklevel=2)
        saved = None
        if best is None or _final(found) < _final(best):
            best = found
    assert best is not None  # there is always a start
    if checkpoint is not None and best.stop is Stop.EPOCHS and len(starts) == 1:
        checkpoint.reached_the_limit()
    return best


def trace_columns(trace: Sequence[TraceRow], ari: Sequence[float]) -> dict[str, np.ndarray]:
    """Return the trace as columns of equal length, one entry per epoch; ``ari`` is empty without known labels."""
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
    if "composition" in evaluations[0].stationarity:
        columns["stationarity_composition"] = np.array([e.stationarity["composition"] for e in evaluations])
    if ari:
        columns["ari"] = np.array(ari)
    return columns


def _solve_one(job: _Job, position: int, start: Start, *, saved: _Snapshot | None, best: Solved | None) -> Solved:
    """Run the solver from a start, or resume its run from a checkpoint; ``best`` is that of the earlier starts."""
    rule, rng = job.run.rule, np.random.default_rng(job.run.seed)
    rows: list[TraceRow] = []
    ari: list[float] = []
    if saved is not None:
        rng.bit_generator.state = saved.rng
        rows.append(saved.run.row)
        ari.extend(saved.columns.get("ari", ())[-1:])

    def on_epoch(row: TraceRow) -> None:
        rows.append(row)
        score, table = "", job.engine.table()
        if table is not None:
            ari.append(ari_of_table(table))
            score = f"  ARI {ari[-1]:.3f}"
        e = row.evaluation
        job.stage.note(
            f"epoch {row.epoch}  F {e.neg_elbo:.6g}  stationarity {e.worst:.1e} (to {rule.tolerance:.0e}){score}"
        )

    def columns() -> dict[str, np.ndarray]:
        now = trace_columns(rows, ari)
        # the first new row is the last that was saved
        return now if saved is None else {name: np.append(saved.columns[name], now[name][1:]) for name in now}

    def on_state(epoch: int, underway: Callable[[], Underway]) -> None:
        if job.checkpoint is not None:
            job.checkpoint.after_epoch(
                epoch, lambda: _Snapshot(position, best, underway(), columns(), dict(rng.bit_generator.state))
            )

    optimum = optimise(
        job.engine,
        job.run.solver,
        job.prepared.initial(start) if saved is None else saved.run,
        rule=rule,
        rng=rng,
        on_epoch=on_epoch,
        on_state=on_state,
    )
    return Solved(position, optimum.phi, optimum.lam, tuple(optimum.trace[-2:]), optimum.stop, columns())


def _reader(job: _Job, n_starts: int) -> Callable[[Any, dict[str, np.ndarray]], _Snapshot]:
    """A function that reads a checkpoint of this fit, and checks it against a state that the solver makes now."""

    def read(description: Any, arrays: dict[str, np.ndarray]) -> _Snapshot:
        here = job.prepared.engine()
        expected = here.state(here.begin(job.run.solver, job.prepared.initial()))
        found = unpack(description, arrays, named_types(expected, also=_TYPES))
        if not isinstance(found, _Snapshot) or not 0 <= found.position < n_starts:
            msg = "no start"
            raise ValueError(msg)
        lam = expected.shared.lam
        fits = same_shapes(found.run.state, expected) and same_shapes(found.run.row.evaluation.curvature, lam)
        if found.run.best is not None:
            fits = fits and same_shapes((found.run.best.phi, found.run.best.lam), (expected.phi, lam))
        if found.best is not None:
            fits = fits and same_shapes((found.best.phi, found.best.lam), (expected.phi, lam))
        if not fits:
            msg = "arrays of other shapes"
            raise ValueError(msg)
        np.random.default_rng().bit_generator.state = found.rng  # raises where it is not the state of a generator
        return found

    return read


def _digests(prepared: Prepared) -> dict[str, str]:
    """Digests of all that a solver is given."""
    patching, start = prepared.graph.patching, prepared.start
    restarts, fitted = prepared.initialization.restarts, prepared.initialization.fitted
    bounds = np.array([patch.start for patch in patching.patches])
    parts = {
        "features": (fitted,),
        "edges or patches": (patching.order, bounds, patching.graph),
        "start": (start.labels, *start.hyperparameters, *start.lam, *restarts),
        "labels to score against": (prepared.codes,),
    }
    return {name: digest(*arrays) for name, arrays in parts.items()}


def _final(found: Solved) -> float:
    """F at the end; infinity where it is not finite."""
    f = found.last[-1].evaluation.neg_elbo
    return f if np.isfinite(f) else np.inf
