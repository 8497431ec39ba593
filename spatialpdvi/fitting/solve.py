"""The solver from one start, or from several for the lowest F; it goes on from a checkpoint where there is one."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spatialpdvi.checkpoints import Checkpoint, digest, named_types, same_shapes, unpack
from spatialpdvi.engines import Engine, PatchesLostError
from spatialpdvi.errors import InputWarning
from spatialpdvi.fitting.certificate import gradient_norm
from spatialpdvi.fitting.loop import Stop, StopRule, TraceRow, Underway, optimise
from spatialpdvi.fitting.prepare import Prepared
from spatialpdvi.initialization import Start
from spatialpdvi.metrics.clustering import ari_of_table
from spatialpdvi.options.fit import SOLVER_OPTIONS, FitOptions
from spatialpdvi.problems.base import Blocks, Evaluation
from spatialpdvi.runtime.progress import Stage
from spatialpdvi.solvers import Solver, SolverSettings, make_solver
from spatialpdvi.solvers.base import State

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["Solved", "engine_of", "solve", "solver_from", "stop_rule", "trace_columns"]


class Solved(NamedTuple):
    """Where the solver ended, and where it began."""

    position: int  # of the start: 0 for the prepared one, i for the i-th restart
    phi: np.ndarray
    lam: Blocks
    last: tuple[TraceRow, ...]  # of the trace, the last two rows
    stop: Stop
    columns: dict[str, np.ndarray]  # of the whole trace


class _Snapshot(NamedTuple):
    """All that a checkpoint holds."""

    position: int  # of the start under way
    best: Solved | None  # of the starts before
    run: Underway
    columns: dict[str, np.ndarray]  # of the trace so far
    rng: dict[str, Any]  # state of the generator


class _Job(NamedTuple):
    """What every start of a fit has in common."""

    prepared: Prepared
    engine: Engine
    solver: Solver
    options: FitOptions
    stage: Stage
    checkpoint: Checkpoint | None


_TYPES = (Evaluation, Solved, State, Stop, TraceRow, Underway, _Snapshot)


def solver_from(options: FitOptions) -> Solver:
    """Solver that the options name; an option that it does not have is an `InputError`."""
    chosen = {name: getattr(options, name) for name in SOLVER_OPTIONS if getattr(options, name) is not None}
    settings = {name: value for name, value in chosen.items() if name not in ("step_mean", "step_log_variance")}
    steps = (options.step_mean, options.step_log_variance)
    return make_solver(options.solver, SolverSettings(steps=steps, **settings), given=chosen)


def stop_rule(options: FitOptions) -> StopRule:
    """When a fit with these options ends."""
    return StopRule(options.tol, options.tol_objective, options.max_epochs)


@contextmanager
def engine_of(prepared: Prepared, cluster: "Cluster | None") -> Iterator[Engine]:
    """The prepared problem's patches on the workers of a cluster while the ``with`` lasts, or in this process."""
    if cluster is None:
        yield prepared.engine()
        return
    from spatialpdvi.distributed import ClusterEngine

    with closing(ClusterEngine(cluster, prepared.problem, codes=prepared.codes)) as engine:
        yield engine


def solve(
    prepared: Prepared,
    solver: Solver,
    options: FitOptions,
    *,
    stage: Stage,
    checkpoint: Checkpoint | None = None,
    engine: Engine | None = None,
) -> Solved:
    """Run the solver from the prepared start, or with ``restarts="best"`` from that and every restart.

    ``engine`` is where the patches live (`engine_of`), by default in this process. Where it loses some, the solver
    goes on from the last checkpoint, or begins the start anew: the result is the same.

    Raises
    ------
    InputError
        Where the checkpoint is of another fit, or damaged.
    """
    starts = [prepared.start]
    if options.restarts == "best":
        starts += prepared.other_starts()
    job = _Job(prepared, engine or prepared.engine(), solver, options, stage, checkpoint)
    begun = None if checkpoint is None else checkpoint.begin(_digests(prepared), _reader(job, len(starts)))
    first, best = (0, None) if begun is None else (begun.position, begun.best)
    for position, start in enumerate(starts[first:], start=first):
        stage.advance(position, len(starts))
        while True:
            try:
                found = _solve_one(job, position, start, begun=begun, best=best)
                break
            except PatchesLostError as lost:
                begun = None if checkpoint is None else checkpoint.last(_reader(job, len(starts)))
                if begun is not None and begun.position != position:
                    begun = None
                again = "the start" if begun is None else f"epoch {begun.run.row.epoch}"
                warnings.warn(f"{lost} The fit goes on from {again}.", InputWarning, stacklevel=2)
        begun = None
        if best is None or _final(found) < _final(best):
            best = found
    assert best is not None  # there is always a start
    if checkpoint is not None and best.stop is Stop.EPOCHS and len(starts) == 1:
        checkpoint.reached_the_limit()
    return best


def trace_columns(trace: Sequence[TraceRow], ari: Sequence[float]) -> dict[str, np.ndarray]:
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


def _solve_one(job: _Job, position: int, start: Start, *, begun: _Snapshot | None, best: Solved | None) -> Solved:
    """Run the solver from a start, or go on with what was begun from it; ``best`` is of the starts before."""
    rule, rng = stop_rule(job.options), np.random.default_rng(job.options.seed)
    rows: list[TraceRow] = []
    ari: list[float] = []
    if begun is not None:
        rng.bit_generator.state = begun.rng
        rows.append(begun.run.row)
        ari.extend(begun.columns.get("ari", ())[-1:])

    def on_epoch(row: TraceRow) -> None:
        rows.append(row)
        score, table = "", job.engine.table()
        if table is not None:
            ari.append(ari_of_table(table))
            score = f"  ARI {ari[-1]:.3f}"
        e = row.evaluation
        job.stage.note(
            f"epoch {row.epoch}  F {e.neg_elbo:.6g}  gradient {e.worst:.1e} (to {rule.tolerance:.0e}){score}"
        )

    def columns() -> dict[str, np.ndarray]:
        now = trace_columns(rows, ari)
        # the first row of now is the last of what was begun
        return now if begun is None else {name: np.append(begun.columns[name], now[name][1:]) for name in now}

    def on_state(epoch: int, run: Callable[[], Underway]) -> None:
        if job.checkpoint is not None:
            job.checkpoint.after_epoch(
                epoch, lambda: _Snapshot(position, best, run(), columns(), dict(rng.bit_generator.state))
            )

    optimum = optimise(
        job.engine,
        job.solver,
        job.prepared.initial(start) if begun is None else begun.run,
        rule=rule,
        rng=rng,
        on_epoch=on_epoch,
        on_state=on_state,
    )
    return Solved(position, optimum.phi, optimum.lam, tuple(optimum.trace[-2:]), optimum.stop, columns())


def _reader(job: _Job, n_starts: int) -> Callable[[Any, dict[str, np.ndarray]], _Snapshot]:
    """How a checkpoint of this fit is read: checked against a state that the solver makes now."""

    def read(description: Any, arrays: dict[str, np.ndarray]) -> _Snapshot:
        here = job.prepared.engine()
        like = here.state(here.begin(job.solver, job.prepared.initial()))
        found = unpack(description, arrays, named_types(like, also=_TYPES))
        if not isinstance(found, _Snapshot) or not 0 <= found.position < n_starts:
            msg = "no start"
            raise ValueError(msg)
        lam = like.shared.lam
        alike = same_shapes(found.run.state, like) and same_shapes(found.run.row.evaluation.curvature, lam)
        if found.best is not None:
            alike = alike and same_shapes((found.best.phi, found.best.lam), (like.phi, lam))
        if not alike:
            msg = "arrays of other shapes"
            raise ValueError(msg)
        np.random.default_rng().bit_generator.state = found.rng  # refuses what is none
        return found

    return read


def _digests(prepared: Prepared) -> dict[str, str]:
    """Of all that a solver is given."""
    patching, start = prepared.patching, prepared.start
    bounds = np.array([patch.start for patch in patching.patches])
    parts = {
        "features": (prepared.fitted,),
        "edges or patches": (patching.order, bounds, patching.graph),
        "start": (start.labels, *start.hyperparameters, *start.lam, *prepared.restarts),
        "labels to score against": (prepared.codes,),
    }
    return {name: digest(*arrays) for name, arrays in parts.items()}


def _final(found: Solved) -> float:
    """F at the end; infinite where it left the finite numbers."""
    f = found.last[-1].evaluation.neg_elbo
    return f if np.isfinite(f) else np.inf
