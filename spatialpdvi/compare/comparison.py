"""A comparison of solvers: read the section, tune step sizes, run every solver from every start, write the results.

Finished work is saved at once, and a later call with the same input and options does not repeat it.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from spatialpdvi.compare.bench import Bench
from spatialpdvi.compare.plan import SHARED, ComparisonPlan
from spatialpdvi.compare.runs import COARSE, FINE, Run, Tuning, has_step, run_solver, search_step
from spatialpdvi.compare.store import Store, check_folder, identify
from spatialpdvi.compare.summary import markdown, summarise
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.loop import StopRule, TraceRow
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.section.section import Section
from spatialpdvi.io.storage.atomic import write_json, write_text
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.runtime.progress import Progress, Stage, progress_of
from spatialpdvi.version import library_versions

__all__ = ["Comparison", "compare_file"]

_FIRST_SEED = 0  # step sizes are tuned on its start, and the maps show its domains


class Comparison(NamedTuple):
    """The results, as they are also written to the folder."""

    runs: list[Run]
    tuning: dict[str, Tuning]
    rows: list[dict[str, Any]]  # of the table
    table: str  # Markdown


def compare_file(
    path: str | Path, plan: ComparisonPlan, *, output: str | Path, progress: Progress | bool | None
) -> Comparison:
    """Run every solver of a plan on a section, from the same start for each seed, and write a table and pictures.

    Parameters
    ----------
    path
        An h5ad file or a zarr store, which is not changed.
    plan
        Solvers, seeds, and the options of the fits.
    output
        Folder for ``compare.json``, ``compare.md``, ``convergence.png``, ``maps.png`` and ``runs/``. It is created if
        it does not exist. Finished runs in it that have the same input and options are not repeated.
    progress
        True shows the stages as lines on stderr; None shows nothing.

    Raises
    ------
    InputError
        Where the data or an option cannot be used, or the folder cannot be written.
    """
    progress = progress_of(progress)
    folder = check_folder(output)
    with progress.stage("read") as stage:
        section, identity = _read(path, plan)
        stage.note(f"{section.coordinates.shape[0]:,} spots")
    store = Store(folder, identity)
    changed = _explain_changes(plan, store)
    if changed:
        progress.message(changed)
    bench = Bench(section, plan.options, progress)
    tuning = _tune(plan, bench, store=store, progress=progress)
    steps = {name: found.step for name, found in tuning.items()}
    by_solver = _do_runs(plan, bench, steps=steps, store=store, progress=progress)
    runs = [run for of_solver in by_solver.values() for run in of_solver]
    comparison = Comparison(runs, tuning, rows := summarise(runs), markdown(rows))
    with progress.stage("write"):
        _write(comparison, folder, section, params=_params(path, plan, section))
    return comparison


def _read(path: str | Path, plan: ComparisonPlan) -> tuple[Section, dict[str, Any]]:
    location = locate(path)
    with H5adSource(location) as source:
        # identified before the data are read: a file that changes meanwhile then counts as another one
        identity = identify(location, plan.options)
        section = read_inputs(source, plan.options)
    return section, identity


def _write(comparison: Comparison, folder: Path, section: Section, *, params: dict[str, Any]) -> None:
    from spatialpdvi.compare.convergence import draw_convergence
    from spatialpdvi.compare.maps import draw_maps
    from spatialpdvi.plotting import save_figure

    runs = comparison.runs
    content = {
        "params": params,
        "table": comparison.rows,
        "tuning": {name: found.as_dict() for name, found in comparison.tuning.items()},
        "runs": [_public(run) for run in runs],
    }
    write_json(folder / "compare.json", content)
    write_text(folder / "compare.md", comparison.table)
    save_figure(draw_convergence(runs), folder / "convergence.png")
    first = [run for run in runs if run.seed == _FIRST_SEED]
    save_figure(draw_maps(section.coordinates, section.samples, section.labels, first), folder / "maps.png")


def _public(run: Run) -> dict[str, Any]:
    """Return a run without its domains, which are in the file of the run, and without a step size if it has none."""
    return {
        key: value for key, value in run.as_dict().items() if key != "domains" and not (key == "step" and value is None)
    }


def _params(path: str | Path, plan: ComparisonPlan, section: Section) -> dict[str, Any]:
    """Return all options that are set, and facts about the section."""
    options = {name: getattr(plan.options, name) for name in SHARED}
    return {
        "input": str(path),
        **{name: value for name, value in options.items() if value is not None},
        "solvers": list(plan.solvers),
        "seeds": list(range(plan.n_seeds)),
        "tune_epochs": plan.tune_epochs,
        "constant_steps": plan.constant_steps,
        "n_spots": int(section.coordinates.shape[0]),
        "counts": section.counts_source or None,
        "label_key": section.label_key,
        "versions": library_versions(),
    }


class _Job(NamedTuple):
    """A run of the plan."""

    solver: str
    seed: int

    @property
    def name(self) -> str:
        """Name of the file of the run."""
        return f"{self.solver}.seed{self.seed}"


def _explain_changes(plan: ComparisonPlan, store: Store) -> str | None:
    """Return a message about stored results of another input or other options, or None where there are none."""
    entries: list[tuple[str, dict[str, Any]]] = [(job.name, {}) for job in _jobs(plan)]
    entries += [(_tuning_name(name), {"tune_epochs": plan.tune_epochs}) for name in _with_step(plan)]
    differing = [changes for name, more in entries if (changes := store.changes(name, **more))]
    if not differing:
        return None
    merged = {key: change for changes in differing for key, change in changes.items()}
    what = ", ".join(dict.fromkeys(_describe_change(key, *change) for key, change in merged.items()))
    return f"{len(differing)} earlier results have another input or other options ({what}) and are computed again."


def _describe_change(key: str, then: Any, now: Any) -> str:
    """Return what changed, in words."""
    return (
        "the input file has changed" if key in ("input_size", "input_mtime_ns") else f"{key} was {then!r}, is {now!r}"
    )


def _tune(plan: ComparisonPlan, bench: Bench, *, store: Store, progress: Progress) -> dict[str, Tuning]:
    """Find the step size of every solver that has one, by short runs from the start of the first seed."""
    found: dict[str, Tuning] = {}
    for name in _with_step(plan):
        stored = store.load(_tuning_name(name), tune_epochs=plan.tune_epochs)
        if stored is not None:
            found[name] = Tuning.from_dict(stored)
    missing = [name for name in _with_step(plan) if name not in found]
    if missing:
        bench.prepared(_FIRST_SEED)  # shows its own stages
        with progress.stage("tune") as stage:
            for position, name in enumerate(missing):
                found[name] = _tune_one(name, plan, bench, stage=stage, place=(position, len(missing)))
                store.save(_tuning_name(name), found[name].as_dict(), tune_epochs=plan.tune_epochs)
            stage.note(", ".join(f"{name} {found[name].step:.2g}" for name in missing))
    return {name: found[name] for name in _with_step(plan)}


def _do_runs(
    plan: ComparisonPlan, bench: Bench, *, steps: dict[str, float], store: Store, progress: Progress
) -> dict[str, list[Run]]:
    """Run every solver from the start of every seed, and return the runs by solver in the order of the plan."""
    jobs = _jobs(plan)
    done: dict[_Job, Run] = {}
    for job in jobs:
        stored = store.load(job.name, step=steps.get(job.solver))
        if stored is not None:
            done[job] = Run(**stored)
    missing = [job for job in jobs if job not in done]
    if done:
        progress.message(f"{len(done)} of {len(jobs)} runs were finished before and are not repeated.")
    if missing:
        bench.prepared(missing[0].seed)  # shows its own stages
        with progress.stage("runs") as stage:
            warm: set[str] = set()
            for job in missing:
                stage.advance(len(done), len(jobs))
                done[job] = _run_one(job, plan, bench, step=steps.get(job.solver), stage=stage, warm=warm)
                store.save(job.name, done[job].as_dict(), step=steps.get(job.solver))
            stage.note(f"{len(missing)} runs")
    return {name: [done[_Job(name, seed)] for seed in range(plan.n_seeds)] for name in plan.solvers}


def _jobs(plan: ComparisonPlan) -> list[_Job]:
    """Return the runs seed by seed, since the start of a seed is prepared once for all solvers."""
    return [_Job(name, seed) for seed in range(plan.n_seeds) for name in plan.solvers]


def _with_step(plan: ComparisonPlan) -> list[str]:
    return [name for name in plan.solvers if has_step(name, also_p2dvi=plan.constant_steps)]


def _tuning_name(solver: str) -> str:
    return f"{solver}.tuning"


def _tune_one(name: str, plan: ComparisonPlan, bench: Bench, *, stage: Stage, place: tuple[int, int]) -> Tuning:
    prepared, rule = bench.prepared(_FIRST_SEED), _rule(plan, plan.tune_epochs)
    per_solver = len(COARSE) + len(FINE)
    tried = 0

    def objective(step: float) -> float:
        nonlocal tried
        stage.advance(place[0] * per_solver + tried, place[1] * per_solver)
        run = run_solver(prepared, name, seed=_FIRST_SEED, rule=rule, step=step, duals=plan.options.duals)
        tried += 1
        shown = "failed" if run.neg_elbo is None else f"F {run.neg_elbo:.6g}"
        stage.note(f"{name}, step {step:.2g}: {shown}")
        return math.nan if run.neg_elbo is None else run.neg_elbo

    return search_step(objective)


def _run_one(job: _Job, plan: ComparisonPlan, bench: Bench, *, step: float | None, stage: Stage, warm: set[str]) -> Run:
    stage.note(f"{job.solver}, seed {job.seed}: start")
    prepared = bench.prepared(job.seed)
    if job.solver not in warm:
        # the first calls compile or load the kernels, which must not count as time of the solver
        run_solver(prepared, job.solver, seed=job.seed, rule=_rule(plan, 1), step=step, duals=plan.options.duals)
        warm.add(job.solver)

    def on_epoch(row: TraceRow) -> None:
        e = row.evaluation
        stage.note(f"{job.solver}, seed {job.seed}: epoch {row.epoch}  F {e.neg_elbo:.6g}  gradient {e.worst:.1e}")

    run = run_solver(
        prepared,
        job.solver,
        seed=job.seed,
        rule=_rule(plan, plan.options.max_epochs),
        step=step,
        duals=plan.options.duals,
        on_epoch=on_epoch,
    )
    return run if job.seed == _FIRST_SEED else replace(run, domains=None)


def _rule(plan: ComparisonPlan, max_epochs: int) -> StopRule:
    return StopRule(plan.options.tol, plan.options.tol_objective, max_epochs)
