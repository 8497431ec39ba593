"""What is to be done: steps to tune, then runs; what is done already is taken from the store."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

from spatialpdvi.compare.bench import Bench
from spatialpdvi.compare.plan import Plan
from spatialpdvi.compare.runs import Run, has_step, run_solver
from spatialpdvi.compare.store import Store
from spatialpdvi.compare.tuning import COARSE, FINE, Tuning, search
from spatialpdvi.fitting.loop import StopRule, TraceRow
from spatialpdvi.runtime.progress import Progress, Stage

__all__ = ["FIRST_SEED", "do_runs", "explain_changes", "tune"]

FIRST_SEED = 0  # steps are tuned on its start, and its domains are kept for the maps


class _Job(NamedTuple):
    """One run that is asked for."""

    solver: str
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.solver}.seed{self.seed}"


def explain_changes(plan: Plan, store: Store) -> str | None:
    """A sentence on stored results that belong to another input or to other options; None where there are none."""
    entries: list[tuple[str, dict[str, Any]]] = [(job.name, {}) for job in _jobs(plan)]
    entries += [(_tuning_name(name), {"tune_epochs": plan.tune_epochs}) for name in _tuned(plan)]
    differing = [changes for name, more in entries if (changes := store.changes(name, **more))]
    if not differing:
        return None
    merged = {key: change for changes in differing for key, change in changes.items()}
    what = ", ".join(dict.fromkeys(_say(key, *change) for key, change in merged.items()))
    return f"{len(differing)} earlier results are not of this input and these options ({what}): they are made again."


def _say(key: str, then: Any, now: Any) -> str:
    """Size and time of a file mean nothing to a reader, in figures."""
    return (
        "the input file has changed" if key in ("input_size", "input_mtime_ns") else f"{key} was {then!r}, is {now!r}"
    )


def tune(plan: Plan, bench: Bench, *, store: Store, progress: Progress) -> dict[str, Tuning]:
    """Step of every solver that has one, by short runs from the first seed's start."""
    found: dict[str, Tuning] = {}
    for name in _tuned(plan):
        stored = store.load(_tuning_name(name), tune_epochs=plan.tune_epochs)
        if stored is not None:
            found[name] = Tuning.from_dict(stored)
    missing = [name for name in _tuned(plan) if name not in found]
    if missing:
        bench.prepared(FIRST_SEED)  # with stages of its own
        with progress.stage("tune") as stage:
            for position, name in enumerate(missing):
                found[name] = _tune_one(name, plan, bench, stage=stage, place=(position, len(missing)))
                store.save(_tuning_name(name), found[name].as_dict(), tune_epochs=plan.tune_epochs)
            stage.note(", ".join(f"{name} {found[name].step:.2g}" for name in missing))
    return {name: found[name] for name in _tuned(plan)}


def do_runs(
    plan: Plan, bench: Bench, *, steps: dict[str, float], store: Store, progress: Progress
) -> dict[str, list[Run]]:
    """Every solver from every seed's start, solver by solver in the order of the plan, seeds in order."""
    jobs = _jobs(plan)
    done: dict[_Job, Run] = {}
    for job in jobs:
        stored = store.load(job.name, step=steps.get(job.solver))
        if stored is not None:
            done[job] = Run(**stored)
    missing = [job for job in jobs if job not in done]
    if done:
        progress.message(f"{len(done)} of {len(jobs)} runs were done already and are kept.")
    if missing:
        bench.prepared(missing[0].seed)  # with stages of its own
        with progress.stage("runs") as stage:
            warm: set[str] = set()
            for job in missing:
                stage.advance(len(done), len(jobs))
                done[job] = _run_one(job, plan, bench, step=steps.get(job.solver), stage=stage, warm=warm)
                store.save(job.name, done[job].as_dict(), step=steps.get(job.solver))
            stage.note(f"{len(missing)} runs")
    return {name: [done[_Job(name, seed)] for seed in range(plan.n_seeds)] for name in plan.solvers}


def _jobs(plan: Plan) -> list[_Job]:
    """Seed by seed, since a start is made once and serves all solvers."""
    return [_Job(name, seed) for seed in range(plan.n_seeds) for name in plan.solvers]


def _tuned(plan: Plan) -> list[str]:
    return [name for name in plan.solvers if has_step(name)]


def _tuning_name(solver: str) -> str:
    return f"{solver}.tuning"


def _tune_one(name: str, plan: Plan, bench: Bench, *, stage: Stage, place: tuple[int, int]) -> Tuning:
    prepared, rule = bench.prepared(FIRST_SEED), _rule(plan, plan.tune_epochs)
    per_solver = len(COARSE) + len(FINE)
    tried = 0

    def objective(step: float) -> float:
        nonlocal tried
        stage.advance(place[0] * per_solver + tried, place[1] * per_solver)
        run = run_solver(prepared, name, seed=FIRST_SEED, rule=rule, step=step)
        tried += 1
        shown = "failed" if run.neg_elbo is None else f"F {run.neg_elbo:.6g}"
        stage.note(f"{name}, step {step:.2g}: {shown}")
        return math.nan if run.neg_elbo is None else run.neg_elbo

    return search(objective)


def _run_one(job: _Job, plan: Plan, bench: Bench, *, step: float | None, stage: Stage, warm: set[str]) -> Run:
    stage.note(f"{job.solver}, seed {job.seed}: start")
    prepared = bench.prepared(job.seed)
    if job.solver not in warm:
        # the first calls compile or load the kernels, which is no part of a solver's time
        run_solver(prepared, job.solver, seed=job.seed, rule=_rule(plan, 1), step=step)
        warm.add(job.solver)

    def on_epoch(row: TraceRow) -> None:
        e = row.evaluation
        stage.note(f"{job.solver}, seed {job.seed}: epoch {row.epoch}  F {e.neg_elbo:.6g}  gradient {e.worst:.1e}")

    run = run_solver(
        prepared, job.solver, seed=job.seed, rule=_rule(plan, plan.options.max_epochs), step=step, on_epoch=on_epoch
    )
    return run if job.seed == FIRST_SEED else replace(run, domains=None)


def _rule(plan: Plan, max_epochs: int) -> StopRule:
    return StopRule(plan.options.tol, plan.options.tol_objective, max_epochs)
