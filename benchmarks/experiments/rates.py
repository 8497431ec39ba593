"""Compare claimed and measured rates: in general, under (strong) convexity, with locals and with a constant step.

*General* is a Gaussian mixture of overlapping clusters. *Strongly convex* is the quadratic whose samples and units
differ, and *convex* one whose samples are flat in some directions (condition number 1e8). Gradients are those of
``min_phi F(phi, lambda)``, computed on a copy with updated locals, because the gradient in lambda alone is 0 after
every step of CAVI. The rates of P2D-VI and PD-VI are compared with proven ones (`contraction`).
"""

import time
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from common import STEPS, draw_families, families, print_table, run_epochs, save
from contraction import PROVEN, PROVEN_EPOCHS, PROVEN_RUNS, measure_contraction, measure_theorem
from matplotlib.figure import Figure
from mixture import TUNING_SEED, Data, draw_mixture
from quadratic import CASES, SHOWN, measure_case, run_quadratic, tuned_run

from spatialpdvi.compare.runs import has_step
from spatialpdvi.problems.potts_mixture import one_hot
from spatialpdvi.problems.quadratic import Quadratic, random_quadratic
from spatialpdvi.solvers import SOLVERS, SolverSettings
from spatialpdvi.solvers.base import State
from spatialpdvi.solvers.pdvi import P2DVI, PDVI

SIZE = {"n": 4_000, "batch": 200, "d": 3, "k": 5}  # the clusters of the mixture overlap in three dimensions
SQUARED_LEAST = 1e-24  # relative to the squared gradient at the start; smaller values are rounding
EPOCHS = 60  # number of epochs on the quadratic
BATCH = 100  # samples in a patch of the quadratic
FLAT = 1e8  # condition number of a quadratic that is hardly more than convex
ARRIVED, ROUNDING = 1e-8, 1e-15  # relative to F - F* at the start
FALLS = 0.5  # ratio between quarters of a run; a gradient that falls less has reached its floor
FACTORS = (1.0, 10.0)  # values of c of the primal-dual methods, instead of a step and a tenth of it
FALLING = ("svi-rm", "sngvi")  # solvers with decreasing steps


class Claim(NamedTuple):
    """Claims of the authors of a method."""

    general: str
    convex: str
    strongly_convex: str
    local: str
    constant_step: str
    source: str


PRIMAL_DUAL = {"p2dvi": P2DVI, "pdvi": PDVI}
NONE = "none stated"
CLAIMS = {
    "p2dvi": Claim("O(1/T)", "O(1/T)", "linear", "yes", "yes", "Lyu et al. 2026"),
    "pdvi": Claim("O(1/T)", "O(1/T)", "linear", "yes", "yes", "Lyu et al. 2026"),
    "cavi": Claim(
        "F never rises",
        NONE,
        "linear (strongly log-concave)",
        "yes",
        "no step",
        "Bishop 2006; Blei et al. 2017; Arnese and Lacker 2024",
    ),
    "rs-cavi": Claim(
        NONE,
        "2KR² / (n + 2K) (log-concave)",
        "linear, (1 - λ*/K)^n (log-concave)",
        NONE,
        "no step",
        "Lavenant and Zanella 2024",
    ),
    "memoized": Claim("F never rises", NONE, NONE, "yes", "no step", "Hughes and Sudderth 2013"),
    "svi": Claim("O(1/T^.5)", NONE, NONE, "yes", "no, falling", "Table 1 of the paper; Hoffman et al. 2013"),
    "svi-rm": Claim("O(1/T^.5)", NONE, NONE, "yes", "no, falling", "Hoffman et al. 2013"),
    "pg-svi": Claim("O(1/T) to a noise level", NONE, NONE, NONE, "yes, to a noise level", "Khan et al. 2015, 2016"),
    "sngvi": Claim("O(1/T)", NONE, "O(1/T) (conjugate)", NONE, "no, falling", "Wu and Gardner 2024"),
    "sgd": Claim(
        "O(1/T^.5) to a noise level",
        "O(1/T^.5) to a noise level",
        "linear to a noise level",
        "yes",
        "yes, to a noise level",
        "Garrigos and Gower 2023; Bottou, Curtis and Nocedal 2018",
    ),
    "rmsprop": Claim(NONE, NONE, NONE, NONE, NONE, "Tieleman and Hinton 2012"),
    "adam": Claim("O(log T / T^.5)", NONE, NONE, "yes", "no, falling", "Zhang et al. 2022; Kingma and Ba 2015"),
    "cv": Claim(
        "O(1/T) (as SAGA)",
        "O(1/T) (as SAGA)",
        "linear (as SAGA)",
        NONE,
        "yes",
        "Wang et al. 2024; Defazio et al. 2014; Reddi et al. 2016",
    ),
}


@click.command()
@click.option("--epochs", default=100, show_default=True, help="Number of epochs on the mixture.")
@click.option("--seeds", default=4, show_default=True, help="Number of mixtures.")
@click.option("--samples", default=10_000, show_default=True, help="Number of samples of the quadratic.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, epochs: int, seeds: int, samples: int, output: Path) -> None:
    """Print claimed and measured rates; write rates.json and rates.png."""
    began = time.perf_counter()
    title, how = CASES["differ"]
    problem = random_quadratic(n_samples=samples, n_patches=samples // BATCH, **how)
    solvers = measure_case(problem, EPOCHS, 0)["solvers"]
    guaranteed = {name: measure_contraction(problem, name) for name in PROVEN}
    record: dict[str, Any] = {
        "general": {**SIZE, "epochs": epochs, "seeds": seeds},
        "strongly_convex": {
            "title": title.replace("\n", " "),
            "guaranteed": guaranteed,
            "theorem": measure_theorem(problem),
        },
        "solvers": {},
    }
    general = _general(epochs, seeds)
    flat = random_quadratic(n_samples=samples, n_patches=samples // BATCH, condition=FLAT, spread=1.0)
    for name, claim in CLAIMS.items():
        record["solvers"][name] = {
            "claimed": claim._asdict(),
            "general": general[name],
            "convex": _convex(flat, name),
            "strongly_convex": _without(solvers[name], "gradient", "pilots"),
            "local": _local(solvers[name]),
            "constant_step": _constant_step(problem, name, solvers[name]),
        }
    _print(record)
    save(output, "rates", record, _draw(record))
    print(f"{time.perf_counter() - began:.0f} s")


def _without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key not in names}


# The general setting


def _general(epochs: int, seeds: int) -> dict[str, dict[str, Any]]:
    """Step, running minimum and exponent of each solver; steps are chosen on a draw that is not shown."""
    pilot = draw_mixture(**SIZE, seed=TUNING_SEED)
    draws = [draw_mixture(**SIZE, seed=seed) for seed in range(seeds)]
    found = {}
    for name in SOLVERS:
        step_size = _choose_step(pilot, name, epochs // 2) if has_step(name) else None
        runs = [_squared_gradients(data, name, step_size, epochs, seed) for seed, data in enumerate(draws)]
        whole = min(run.size for run in runs)
        lowest = [np.minimum.accumulate(run[:whole] / run[0]) for run in runs]
        # geometric mean, so that the slowest of the different problems does not dominate
        mean = np.exp(np.mean(np.log(np.maximum(lowest, SQUARED_LEAST)), axis=0))
        each = [_exponent(one) for one in lowest]
        found[name] = {"step_size": step_size, "exponent": _exponent(mean), "by_seed": each, "lowest": mean}
    return found


def _choose_step(pilot: Data, name: str, epochs: int) -> float:
    """The step with the smallest gradient in a shorter run; steps that diverge are not chosen."""

    def score(step_size: float) -> float:
        run = _squared_gradients(pilot, name, step_size, epochs, TUNING_SEED)
        return float(run.min()) if run.size == epochs + 1 else np.inf

    return min(STEPS, key=score)


def _squared_gradients(data: Data, name: str, step_size: float | None, epochs: int, seed: int) -> np.ndarray:
    """Squared gradient by epoch, for all epochs or until F becomes infinite."""
    start = (one_hot(data.start.labels, SIZE["k"]), data.start.lam)
    with np.errstate(over="ignore", invalid="ignore"):  # steps that are too large overflow
        states = run_epochs(data.problem, name, start, step_size=step_size, seed=seed)
        return np.array([_squared_gradient(data, state) for state, _ in islice(states, epochs + 1)])


def _squared_gradient(data: Data, state: State) -> float:
    """|grad min_phi F|^2 per spot in the metric of the curvature: twice the gain of coordinate-wise Newton steps."""
    problem, phi, lam = data.problem, state.phi.copy(), state.shared.lam
    for b in range(problem.n_patches):  # without edges one sweep reaches the minimum
        problem.update_locals(phi, b, problem.halo(phi, b), lam)
    now = problem.evaluate(phi, lam)
    parts = zip(now.gradient, now.curvature, strict=True)
    return float(sum(np.sum(g**2 / curvature) for g, curvature in parts)) / phi.shape[0]


def _exponent(lowest: np.ndarray) -> float:
    """The a of T^-a, from a line through the logarithms of the second half of the epochs above rounding."""
    epochs = np.flatnonzero(lowest > SQUARED_LEAST * lowest[0])[1:]
    late = epochs[epochs.size // 2 :]
    return float(-np.polyfit(np.log(late), np.log(lowest[late]), 1)[0]) if late.size > 2 else np.inf


# The convex and the strongly convex setting


def _convex(problem: Quadratic, name: str) -> dict[str, Any]:
    """The a of T^-a, and what is left of min_phi F - F* at its lowest."""
    step_size, _, run = tuned_run(problem, name, EPOCHS, 0)
    lowest = np.minimum.accumulate(run.excess / run.excess[0])
    return {"step_size": step_size, "exponent": _exponent(lowest), "level": lowest[-1]}


def _local(found: dict[str, Any]) -> dict[str, Any]:
    """F - F* at the end relative to the start, with the locals as the solver holds them."""
    level = float(np.abs(found["objective"][-1]) / found["objective"][0])
    return {"arrived": level <= ARRIVED, "level": level}


def _constant_step(problem: Quadratic, name: str, found: dict[str, Any]) -> dict[str, Any] | None:
    """Gradient at the end relative to the start, with the largest stable step and with a tenth of it."""
    if name in PRIMAL_DUAL:
        shipped = PRIMAL_DUAL[name]
        settings: dict[str, Any] = {f"c = {c:g}": shipped(SolverSettings(step_factor=c)) for c in FACTORS}
        runs = {
            label: run_quadratic(problem, s, step_size=None, epochs=EPOCHS, seed=0) for label, s in settings.items()
        }
    elif not has_step(name) or name in FALLING:
        return None
    else:
        largest = max(float(step) for step, level in found["pilots"].items() if level < 1.0)
        steps = (largest, largest / 10.0)
        runs = {f"{s:g}": run_quadratic(problem, name, step_size=s, epochs=EPOCHS, seed=0) for s in steps}
    quarters = {label: _quarters(run.gradient) for label, run in runs.items()}
    first, *_ = quarters.values()
    return {"floor": bool(first[-1] > FALLS * first[-2]), "levels": {label: q[-1] for label, q in quarters.items()}}


def _quarters(gradient: np.ndarray) -> list[float]:
    """Median of each quarter of a run, relative to the start."""
    return [float(np.median(quarter) / gradient[0]) for quarter in np.array_split(gradient, 4)]


# Output


def _print(record: dict[str, Any]) -> None:
    general = record["general"]
    print(
        f"\nGeneral: {general['seeds']} mixtures, {general['epochs']} epochs, the squared gradient falls as T^-a.",
        end=" ",
    )
    print(f"The other columns: a quadratic, {EPOCHS} epochs. Levels are relative to the start\n")
    header = [
        "solver",
        "general",
        "draws with a ≥ 1",
        "convex",
        "measured",
        "strongly convex",
        "measured",
        "locals",
        "measured",
    ]
    rows = []
    for name, s in record["solvers"].items():
        c = s["claimed"]
        convex = f"a = {s['convex']['exponent']:.1f}, {s['convex']['level']:.0e}"
        measured = [_general_cell(s["general"]), convex, _linear_cell(s["strongly_convex"]), _local_cell(s["local"])]
        claimed = [c["general"], c["convex"], c["strongly_convex"], c["local"]]
        pairs = [cell for pair in zip(claimed, measured, strict=True) for cell in pair]
        rows.append([name, *pairs, c["constant_step"], _constant_cell(s["constant_step"]), c["source"]])
    print_table([*header, "constant step", "measured", "source"], rows)
    t = record["strongly_convex"]["theorem"]
    print(
        f"\nTheorem 4.6 (i): mu {t['mu']:.2e}, L {t['L']:.0f}, eta {t['eta']:.2e}, r - 1 {t['r'] - 1:.1e}: "
        f"{t['decades_per_epoch']:.1e} decades of V per epoch, measured {t['measured_decades_per_epoch']:.1e}; "
        f"largest expected factor of a draw {t['one_draw']:.6f}"
    )
    print(f"\nContraction of V under the conditions of the proof, {PROVEN_RUNS} runs of {PROVEN_EPOCHS} epochs\n")
    rows = []
    for name, g in record["strongly_convex"]["guaranteed"].items():
        shipped = record["solvers"][name]["strongly_convex"]["decades_per_epoch"]
        decades = [g["decades_per_epoch"], g["measured_decades_per_epoch"], shipped]
        draws = [f"{g['rho']:.5f}", f"{g['one_draw']:.5f}"]
        over = f"{g['epochs_over']} of {PROVEN_EPOCHS}"
        rows.append([name, f"{g['mu']:.4f}", f"{g['L']:.3f}", *draws, *(f"{v:.2f}" for v in decades), over])
    header = ["solver", "mu", "L", "rho", "worst draw", "decades per epoch, proven", "measured", "F - F* as shipped"]
    print_table([*header, "epochs above the bound"], rows)


def _general_cell(found: dict[str, Any]) -> str:
    a, each = found["exponent"], found["by_seed"]
    fast = f"{sum(one >= 1.0 for one in each)} of {len(each)}"
    return f"{fast}, a = {a:.1f} ({min(each):.1f} to {max(each):.1f}), {found['lowest'][-1]:.0e}"


def _linear_cell(found: dict[str, Any]) -> str:
    if found["kind"] == "linear":
        return f"linear, {found['decades_per_epoch']:.2f}"
    return f"{found['kind']}, {found['late_level']:.0e}"


def _local_cell(found: dict[str, Any]) -> str:
    level = f"{found['level']:.0e}" if found["level"] > ROUNDING else f"< {ROUNDING:.0e}"
    return f"{'yes' if found['arrived'] else 'no'}, {level}"


def _constant_cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    levels = ", ".join(f"{level:.0e} ({label})" for label, level in found["levels"].items())
    return f"{'floor' if found['floor'] else 'no floor'}: {levels}"


def _draw(record: dict[str, Any]) -> Figure:
    columns = len(families())
    figure = Figure(figsize=(3.1 * columns, 6.8), layout="constrained")
    axes = figure.subplots(2, columns, sharex="row", sharey="row")
    general, convex = {}, {}
    for name, s in record["solvers"].items():
        lowest, excess = s["general"]["lowest"], s["strongly_convex"]["excess"]
        general[name] = (np.arange(1, lowest.size), lowest[1:])
        convex[name] = (np.arange(excess.size), np.maximum(excess / excess[0], SHOWN / 10))
    draw_families(axes[0], general, labels=_labels(record, "general"))
    draw_families(axes[1], convex, labels=_labels(record, "strongly_convex"))
    _finish_general(axes[0], record["general"])
    _finish_convex(axes[1], record["strongly_convex"])
    return figure


def _labels(record: dict[str, Any], setting: str) -> dict[str, str]:
    steps = {name: s[setting]["step_size"] for name, s in record["solvers"].items()}
    return {name: name if step is None else f"{name}, step {step:g}" for name, step in steps.items()}


def _finish_general(axes: np.ndarray, general: dict[str, Any]) -> None:
    epochs = np.array([1.0, general["epochs"]])
    for ax in axes:
        ax.plot(epochs, 1.0 / epochs, color="0.3", linewidth=0.9, linestyle=":", label="1/T")
        ax.legend(fontsize=7.5, frameon=False, handlelength=2.8, labelspacing=0.3)
        ax.set_xlabel("epochs T", fontsize=9)
    axes[0].set_xscale("log")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("General: Gaussian mixture\n\n" + r"$\min_{t\leq T}|\nabla|^2\,/\,$start", fontsize=9)


def _finish_convex(axes: np.ndarray, convex: dict[str, Any]) -> None:
    panel = next(ax for ax, names in zip(axes, families().values(), strict=True) if "p2dvi" in names)
    drawn = {str(line.get_label()).split(",")[0]: line.get_color() for line in panel.get_lines()}
    for name, g in convex["guaranteed"].items():
        epochs = np.array([0, EPOCHS])
        bound = 10.0 ** (-g["decades_per_epoch"] * epochs)
        panel.plot(epochs, bound, color=drawn[name], linewidth=0.9, linestyle=":", label=f"{name}, proven slope")
    panel.legend(fontsize=7.5, frameon=False, handlelength=2.8, labelspacing=0.3)
    for ax in axes:
        ax.set_xlabel("epochs", fontsize=9)
    axes[0].set_yscale("log")
    axes[0].set_ylim(SHOWN, 1e3)  # leaves room for the legends
    axes[0].set_ylabel("Strongly convex: quadratic\n\n" + r"$(F-F^*)\,/\,$start", fontsize=9)


if __name__ == "__main__":
    main()
