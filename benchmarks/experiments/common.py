"""Shared by the experiments: the search for a step, one style per solver, and output as JSON and Markdown."""

import io
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spatialpdvi.engines import LocalEngine
from spatialpdvi.fitting.loop import one_epoch
from spatialpdvi.plotting.save import save_figure
from spatialpdvi.problems.base import Evaluation, Problem
from spatialpdvi.solvers import SOLVERS, Solver, SolverSettings, make_solver
from spatialpdvi.solvers.base import State

__all__ = [
    "STEPS",
    "draw_families",
    "families",
    "first_true",
    "print_table",
    "r_data",
    "run_epochs",
    "save",
]

STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # dimensionless; above 1 all of them diverge or are limited to 1
REFERENCE = "p2dvi"  # the solver that is shown in every panel

_TITLES = {
    "pdvi": "primal-dual",
    "coordinate_ascent": "coordinate ascent",
    "natural_gradient": "natural gradient",
    "gradient": "gradient",
}
# four colours that remain distinct in grey and for readers who cannot tell red from green
_COLOURS = ("#0b6e99", "#d9711a", "#7b5ea7", "#3a9c5f", "#b3365b")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 3)))


def run_epochs(
    problem: Problem, solver: str | Solver, start: tuple[Any, Any], *, seed: int, **settings: Any
) -> Iterator[tuple[State, Evaluation]]:
    """Yield the state of a solver with these `SolverSettings` after epoch 0, 1, ... for as long as F is finite.

    The callback of `spatialpdvi.fitting.loop` receives only the posteriors; the experiments also need the globals.
    A solver that is given as an object instead of a name keeps its own settings.
    """
    if isinstance(solver, str):
        solver = make_solver(solver, SolverSettings(**settings))
    rng = np.random.default_rng(seed)
    engine = LocalEngine(problem)
    shared = engine.begin(solver, start)
    while np.isfinite((evaluation := engine.evaluate(shared.lam)).neg_elbo):
        yield engine.state(shared), evaluation
        shared = one_epoch(engine, solver, shared, evaluation, rng=rng)


def first_true(found: np.ndarray) -> int | None:
    """Index of the first true entry."""
    return int(found.argmax()) if found.any() else None


def families() -> dict[str, list[str]]:
    """Names of the solvers by module, both in the order of the registry."""
    found: dict[str, list[str]] = {}
    for name, solver in SOLVERS.items():
        found.setdefault(solver.__module__.rpartition(".")[2], []).append(name)
    return found


def draw_families(axes: Sequence[Axes], curves: dict[str, Any], *, labels: dict[str, str] | None = None) -> None:
    """Draw one panel per family of solvers, with the reference solver in grey in all of them.

    Parameters
    ----------
    axes
        One for each of the `families`.
    curves
        For each solver (x, y), or (x, y, low, high) for a curve with a band.
    labels
        Text of the legend for solvers that are not shown by name.
    """
    for ax, (family, names) in zip(axes, families().items(), strict=True):
        if REFERENCE not in names:
            x, y, *_ = curves[REFERENCE]
            ax.plot(x, y, color="0.65", linewidth=3.0, label=REFERENCE, zorder=1)
        for name, colour, dashes in zip(names, _COLOURS, _DASHES, strict=False):
            x, y, *band = curves[name]
            if band:
                ax.fill_between(x, *band, color=colour, alpha=0.18, linewidth=0)
            ax.plot(x, y, color=colour, linestyle=dashes, linewidth=1.6, label=(labels or {}).get(name, name))
        ax.set_title(_TITLES.get(family, family), fontsize=10)
        ax.grid(color="0.92", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(fontsize=7.5, frameon=False, handlelength=2.8, labelspacing=0.3)


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a Markdown table."""
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |", flush=True)


def r_data(package: str, name: str) -> pd.DataFrame | str:
    """Read a data set of an R package with Rscript, or say in one sentence what has to be installed for it."""
    advice = (
        f"{name} is skipped: it needs R and its package {package} (Debian: apt-get install r-cran-{package.lower()})."
    )
    if (rscript := shutil.which("Rscript")) is None:
        return advice
    code = f"data({name}, package = '{package}'); write.csv({name}, row.names = FALSE)"
    done = subprocess.run([rscript, "--vanilla", "-e", code], capture_output=True, text=True, check=False)
    return pd.read_csv(io.StringIO(done.stdout)) if done.returncode == 0 and done.stdout else advice


def save(folder: Path, name: str, record: dict[str, Any], figure: Figure) -> None:
    """Write ``name.json`` and ``name.png``; numbers have six digits, NaN and infinities become null."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_plain(record), indent=1, allow_nan=False)
    (folder / f"{name}.json").write_text(_joined_lists(text) + "\n")
    save_figure(figure, folder / f"{name}.png", dpi=130)
    print(f"\nWritten: {folder / name}.json and .png")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _joined_lists(text: str) -> str:
    """Put each list of numbers on one line, which readers and diffs need."""
    return re.sub(r"\[([^\[\]{}\"]*)\]", lambda found: f"[{' '.join(found[1].split())}]", text)
