"""Run every solver on a strongly convex quadratic: linear rates, stalls and the gain of preconditioning.

All solvers are compared at ``min_phi F(phi, lambda)``, after their posteriors have been updated. The gradient in lambda
alone is 0 after every step of CAVI, and in every mini-batch method the locals of a patch are out of date.
"""

import time
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from common import STEPS, draw_families, families, first_true, print_table, run_epochs, save
from matplotlib.figure import Figure

from spatialpdvi.compare.runs import has_step
from spatialpdvi.problems.quadratic import Quadratic, QuadraticGlobals, random_quadratic
from spatialpdvi.solvers import SOLVERS

CASES = {
    "agree": ("samples agree,\nequal units", {}),
    "differ": ("samples and batches differ,\nunits differ tenfold", {"spread": 1.0, "unit_ratio": 10.0}),
}
REACHED = 1e-6  # gradient to which epochs are counted, relative to the start
LEAST = 1e-13  # relative to the gradient at the start; smaller values are rounding, as is F - F* below the square
SHOWN = 1e-13  # lower limit of the figure, relative to F - F* at the start
MOST_EPOCHS = 2000  # of the runs that count epochs to `REACHED`
LINEAR = 0.02  # decades per epoch; slower rates do not count as linear


class Run(NamedTuple):
    """Curves of one solver on one problem, by epoch."""

    objective: np.ndarray  # F - F* with the locals as the solver holds them
    excess: np.ndarray  # min_phi F - F*
    gradient: np.ndarray  # norm of the gradient of min_phi F in the metric of the curvature


@click.command()
@click.option("--samples", default=10_000, show_default=True, help="Number of samples.")
@click.option("--batch", default=100, show_default=True, help="Samples in a patch, which is the mini-batch.")
@click.option("--epochs", default=60, show_default=True)
@click.option("--condition", default=1000.0, show_default=True, help="Condition number of each sample's form.")
@click.option("--seed", default=0, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, samples: int, batch: int, epochs: int, condition: float, seed: int, output: Path) -> None:
    """Print rates, stalls and the gain of preconditioning; write quadratic.json and quadratic.png."""
    began = time.perf_counter()
    record: dict[str, Any] = {
        "samples": samples,
        "batch": batch,
        "epochs": epochs,
        "condition": condition,
        "seed": seed,
        "cases": {},
    }
    for case, (title, how) in CASES.items():
        problem = random_quadratic(n_samples=samples, n_patches=samples // batch, condition=condition, seed=seed, **how)
        record["cases"][case] = {"title": title, **measure_case(problem, epochs, seed)}
        _print_case(record["cases"][case])
    save(output, "quadratic", record, _draw(record))
    print(f"{time.perf_counter() - began:.0f} s")


def measure_case(problem: Quadratic, epochs: int, seed: int) -> dict[str, Any]:
    """Run all solvers on one problem, with the best of several steps; also the gain of preconditioning."""
    solvers = {}
    for name in SOLVERS:
        step_size, by_step, run = tuned_run(problem, name, epochs, seed)
        solvers[name] = {"step_size": step_size, "pilots": by_step, **_verdict(run), **run._asdict()}
    reached = {}
    for name in ("p2dvi", "pdvi"):
        long = run_quadratic(problem, name, step_size=None, epochs=MOST_EPOCHS, seed=seed, until=REACHED)
        reached[name] = first_true(long.gradient <= REACHED * long.gradient[0])
    gain = reached["pdvi"] / reached["p2dvi"] if all(reached.values()) else None
    return {"epochs_to_1e-6_of_the_gradient": reached, "gain_of_preconditioning": gain, "solvers": solvers}


def tuned_run(
    problem: Quadratic, name: str, epochs: int, seed: int
) -> tuple[float | None, dict[str, np.floating[Any]], Run]:
    """Run a solver with the best of several steps; also this step, and what each left of F - F* in a shorter run."""
    pilots = _pilots(problem, name, epochs=epochs, seed=seed) if has_step(name) else {}
    scores = {step: _pilot_score(pilot, epochs) for step, pilot in pilots.items()}
    step_size = min(scores, key=scores.__getitem__, default=None)
    by_step = {f"{step:g}": pilot.excess[-1] / pilot.excess[0] for step, pilot in pilots.items()}
    return step_size, by_step, run_quadratic(problem, name, step_size=step_size, epochs=epochs, seed=seed)


def _pilots(problem: Quadratic, name: str, *, epochs: int, seed: int) -> dict[float, Run]:
    """Runs of half of the epochs, by step."""
    return {step: run_quadratic(problem, name, step_size=step, epochs=epochs // 2, seed=seed) for step in STEPS}


def _pilot_score(run: Run, epochs: int) -> float:
    """F - F* at the end; runs that arrived rank first, earlier ones before later ones, and runs that diverged last."""
    if run.gradient[-1] <= LEAST * run.gradient[0]:
        return float(run.excess.size - epochs)
    return float(run.excess[-1]) if run.excess.size > epochs // 2 else np.inf


def run_quadratic(
    problem: Quadratic, name: str, *, step_size: float | None, epochs: int, seed: int, until: float = LEAST
) -> Run:
    """Run for ``epochs``, or until the gradient has fallen to ``until`` times that of the start."""
    phi, optimum = problem.optimum()
    best, hessian = problem.evaluate(phi, optimum), problem.profile_hessian()
    width = np.sqrt(problem.n_samples / best.curvature.lam)
    start = QuadraticGlobals(optimum.lam + np.random.default_rng(seed + 1).normal(size=width.size) * width)
    rows: list[tuple[float, float, float]] = []
    with np.errstate(over="ignore", invalid="ignore"):  # steps that are too large overflow
        states = run_epochs(problem, name, (problem.best_locals(start), start), step_size=step_size, seed=seed)
        for state, evaluation in islice(states, epochs + 1):
            away = state.shared.lam.lam - optimum.lam
            gradient = hessian @ away
            size = float(np.sqrt(np.sum(gradient**2 / best.curvature.lam / problem.n_samples)))
            rows.append((evaluation.neg_elbo - best.neg_elbo, 0.5 * float(away @ gradient), size))
            if size <= until * rows[0][2]:
                break
    return Run(*np.array(rows).T)


def _verdict(run: Run) -> dict[str, Any]:
    """Linear with a rate, stalled or still falling, judged by the second half of the epochs above rounding."""
    usable = run.excess[run.gradient > LEAST * run.gradient[0]]
    if usable.size < 4:
        return {"kind": f"done in {usable.size} epochs", "decades_per_epoch": None, "r2": None, "late_level": None}
    late = np.arange(usable.size // 2, usable.size)
    y = np.log10(usable[late])
    slope, intercept = np.polyfit(late, y, 1)
    scatter = y - slope * late - intercept
    r2 = 1.0 - scatter.var() / y.var() if y.var() > 0 else 0.0
    level = float(np.median(usable[late]) / run.excess[0])
    if slope < -LINEAR and r2 > 0.97:
        kind = "linear"
    elif slope > -LINEAR / 4 and level > 1e-12:
        kind = "stalls"
    else:
        kind = "falls, not linearly"
    return {"kind": kind, "decades_per_epoch": -slope, "r2": r2, "late_level": level}


def _print_case(case: dict[str, Any]) -> None:
    print("\n" + case["title"].replace("\n", " ") + "\n")
    rows = []
    for name, s in case["solvers"].items():
        rows.append(
            [
                name,
                "" if s["step_size"] is None else f"{s['step_size']:g}",
                s["kind"],
                "" if s["decades_per_epoch"] is None else f"{s['decades_per_epoch']:.3f}",
                f"{s['excess'][-1] / s['excess'][0]:.0e}",
                f"{s['gradient'][-1] / s['gradient'][0]:.0e}",
            ]
        )
    print_table(["solver", "step", "F - F*", "decades per epoch", "F - F* at the end", "gradient at the end"], rows)
    print("\nF - F* after half of the epochs, or where a run diverged, relative to the start, by step\n")
    tuned = {name: s["pilots"] for name, s in case["solvers"].items() if s["pilots"]}
    print_table(
        ["solver", *next(iter(tuned.values()))], [[n, *(f"{v:.0e}" for v in p.values())] for n, p in tuned.items()]
    )
    reached = case["epochs_to_1e-6_of_the_gradient"]
    gain = case["gain_of_preconditioning"]
    print(f"\nEpochs to 1e-6 of the gradient: {reached}; gain of preconditioning {gain and round(gain, 1)}")


def _draw(record: dict[str, Any]) -> Figure:
    columns = len(families())
    figure = Figure(figsize=(3.1 * columns, 6.4), layout="constrained")
    axes = figure.subplots(len(CASES), columns, sharex=True, sharey=True, squeeze=False)
    for row, case in zip(axes, record["cases"].values(), strict=True):
        solvers = case["solvers"]
        curves, labels = {}, {}
        for name, s in solvers.items():
            y = np.maximum(s["excess"] / s["excess"][0], SHOWN / 10)
            curves[name] = (np.arange(y.size), y)
            labels[name] = name if s["step_size"] is None else f"{name}, step {s['step_size']:g}"
        draw_families(row, curves, labels=labels)
        row[0].set_ylabel(f"{case['title']}\n\n" + r"$(F-F^*)\,/\,$start", fontsize=9)
        row[0].set_yscale("log")
        row[0].set_ylim(SHOWN, 1e4)  # leaves room for the legends
    for ax in axes[-1]:
        ax.set_xlabel("epochs", fontsize=9)
    figure.suptitle(
        f"Quadratic, {record['samples']:,} samples, condition {record['condition']:g}, "
        f"mini-batches of {record['batch']}; posteriors updated",
        fontsize=11,
    )
    return figure


if __name__ == "__main__":
    main()
