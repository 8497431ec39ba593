"""The whole comparison on one page: read, tune, run, table, pictures."""

from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from spatialpdvi.compare.bench import Bench
from spatialpdvi.compare.plan import Plan
from spatialpdvi.compare.runs import Run
from spatialpdvi.compare.store import Store, check_folder, identify
from spatialpdvi.compare.summary import markdown, summarise
from spatialpdvi.compare.tuning import Tuning
from spatialpdvi.compare.work import FIRST_SEED, do_runs, explain_changes, tune
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.section.section import Section
from spatialpdvi.io.storage.atomic import write_json, write_text
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.version import __version__

__all__ = ["Comparison", "compare_file"]


class Comparison(NamedTuple):
    """What was found; the files in the folder say the same."""

    runs: list[Run]
    tuning: dict[str, Tuning]
    rows: list[dict[str, Any]]  # of the table
    table: str  # Markdown


def compare_file(path: str | Path, plan: Plan, *, output: str | Path, progress: Progress | None = None) -> Comparison:
    """Run every solver of the plan on a section on disk, each seed from one start, and write table and pictures.

    Parameters
    ----------
    path
        Section to read; it is not written to.
    plan
        Solvers, seeds, and the options of the fit.
    output
        Folder for ``compare.json``, ``compare.md``, ``convergence.png``, ``maps.png`` and ``runs/``; made where it
        is missing. Runs that are there already, of the same input and options, are kept and not repeated.
    progress
        Where stages are shown; nothing is shown by default.

    Raises
    ------
    InputError
        Where the data or an option cannot be used, or the folder cannot be written.
    """
    progress = progress or Progress()
    folder = check_folder(output)
    with progress.stage("read") as stage:
        section, identity = _read(path, plan)
        stage.note(f"{section.coordinates.shape[0]:,} spots")
    store = Store(folder, identity)
    changed = explain_changes(plan, store)
    if changed:
        progress.message(changed)
    bench = Bench(section, plan.options, progress)
    tuning = tune(plan, bench, store=store, progress=progress)
    steps = {name: found.step for name, found in tuning.items()}
    by_solver = do_runs(plan, bench, steps=steps, store=store, progress=progress)
    runs = [run for of_solver in by_solver.values() for run in of_solver]
    comparison = Comparison(runs, tuning, rows := summarise(runs), markdown(rows))
    with progress.stage("write"):
        _write(comparison, folder, section, params=_params(path, plan, section))
    return comparison


def _read(path: str | Path, plan: Plan) -> tuple[Section, dict[str, Any]]:
    with H5adSource(path) as source:
        identity = identify(path, plan.options)  # before the data: a file that changes meanwhile is then another one
        section = read_inputs(source, plan.options)
    return section, identity


def _write(comparison: Comparison, folder: Path, section: Section, *, params: dict[str, Any]) -> None:
    from spatialpdvi.compare.convergence import draw_convergence
    from spatialpdvi.compare.maps import draw_maps
    from spatialpdvi.plotting import save_figure
    from spatialpdvi.plotting.spots import side_by_side

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
    first = [run for run in runs if run.seed == FIRST_SEED]
    position = side_by_side(section.coordinates[:, :2], section.spots_of_samples())
    save_figure(draw_maps(position, section.labels, first), folder / "maps.png")


def _public(run: Run) -> dict[str, Any]:
    """Without the domains, which are in the files of the runs; without a step where there is none."""
    return {
        key: value for key, value in run.as_dict().items() if key != "domains" and not (key == "step" and value is None)
    }


def _params(path: str | Path, plan: Plan, section: Section) -> dict[str, Any]:
    """Every option in force and what it met; options that are off are left out."""
    ours = {"seed", "solver", "key_added", "save_graph"}
    options = {name: value for name, value in plan.options.__dict__.items() if value is not None and name not in ours}
    libraries = ("anndata", "numba", "numpy", "scanpy", "scikit-learn", "scipy")
    return {
        "input": str(path),
        **options,
        "solvers": list(plan.solvers),
        "seeds": list(range(plan.n_seeds)),
        "tune_epochs": plan.tune_epochs,
        "n_spots": int(section.coordinates.shape[0]),
        "counts": section.counts_source or None,
        "label_key": section.label_key,
        "versions": {"spatialpdvi": __version__} | {name: version(name) for name in libraries},
    }
