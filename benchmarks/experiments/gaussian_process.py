"""Compare PG-SVI with SGD and ADADELTA on Gaussian process classification, where expectations have no closed form.

Settings are those of Table 1 of the paper (Khan, Babanezhad, Lin, Schmidt and Sugiyama 2016), and for what it does not
say (start, diagonal of the kernel matrix, logarithms on the diagonal of the Cholesky factor) those of the authors'
program. Every method begins at the prior and gets the best setting of a grid, found in one pilot run each. The
mathematics is in `proximal.py`.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from common import first_true, print_table, r_data, run_epochs, save
from matplotlib.figure import Figure
from proximal import Bound, Dual, NaturalProblem, ProximalProblem, Root, RootProblem, logistic_expectations
from sklearn.datasets import load_digits

from spatialpdvi.problems.base import Blocks, blockwise
from spatialpdvi.solvers import SolverSettings
from spatialpdvi.solvers.gradient import SGD
from spatialpdvi.solvers.gradient import Shared as Moments
from spatialpdvi.solvers.natural_gradient import PGSVI

NEAR = 0.01  # of the best F: a run this close above it has arrived
ROUGHLY = 0.1
SHOWN = 60  # points of a curve, at most
MOST_STEPS = 2000  # of the search for the optimum
STATIONARY = 1e-7  # largest |alpha + a| and |gamma - w| at the optimum
ROUNDING = 1e-12  # of F
TUNING_SEED = 1000  # no seed of a curve
SPLIT_SEED = 0  # of the training rows, the same for all runs


# The rivals


class FallingSGD(SGD):
    """SGD with step ``scale / t^tau`` for t = 1, 2, ...; the paper has scale 1."""

    def __init__(self, scale: float, tau: float) -> None:
        super().__init__(SolverSettings(inner_rounds=1))
        self.scale, self.tau = scale, tau

    def begin_epoch(self, problem: Any, shared: Moments, evaluation: Bound, patch_states: Any) -> Moments:
        """Change nothing: the step does not follow the curvature."""
        return shared

    def _descend(self, shared: Moments, gradient: Root) -> Moments:
        step = self.scale * float(shared.t) ** -self.tau
        return shared._replace(lam=blockwise(lambda x, g: x - step * g, shared.lam, gradient))


class Adadelta(FallingSGD):
    """ADADELTA (Zeiler 2012): steps g RMS(earlier steps) / RMS(g), with running means of decay rho.

    The running mean of squared steps is in the field ``first`` of the state, that of squared gradients in ``second``.
    """

    def __init__(self, forgetting: float, epsilon: float) -> None:
        super().__init__(1.0, 0.0)
        self.forgetting, self.epsilon = forgetting, epsilon  # forgetting = 1 - rho

    def _descend(self, shared: Moments, gradient: Root) -> Moments:
        new, eps = self.forgetting, self.epsilon
        second = blockwise(lambda v, g: (1.0 - new) * v + new * g**2, shared.second, gradient)
        step = blockwise(lambda d, v, g: -np.sqrt((d + eps) / (v + eps)) * g, shared.first, second, gradient)
        first = blockwise(lambda d, s: (1.0 - new) * d + new * s**2, shared.first, step)
        return shared._replace(lam=blockwise(np.add, shared.lam, step), first=first, second=second)


# Data


class Setting(NamedTuple):
    """A data set of Table 1 of the paper, or digits in the place of USPS."""

    title: str
    n_train: int
    log_length: float  # of the kernel
    log_sd: float
    jitter: float  # added to the variance of each z_n; rows of Ionosphere are equal
    batch: int  # M
    n_draws: int  # S
    scaled_step: float  # beta N
    tau: float
    forgetting: float  # 1 - rho of ADADELTA


SETTINGS = {
    "sonar": Setting("Sonar", 165, -1.0, 6.0, 1e-4, 5, 2000, 0.1, 0.80, 1e-9),
    "ionosphere": Setting("Ionosphere", 280, 1.0, 2.5, 1e-2, 5, 500, 0.4, 0.51, 1e-6),
    "digits": Setting("digits, 3 or 5", 180, 1.5, 5.0, 1e-4, 5, 2000, 2.5, 0.85, 1e-10),
}


class Data(NamedTuple):
    """One data set with its kernels."""

    kernel: np.ndarray  # Sigma (n, n) of the training rows
    labels: np.ndarray  # (n,), -1 or 1
    cross: np.ndarray  # (N*, n), of test rows with training rows
    own: np.ndarray  # (N*,), of test rows with themselves
    test_labels: np.ndarray  # (N*,)


def read(name: str) -> Data | str:
    """Read one data set and make its kernels; a sentence where it is not here."""
    setting = SETTINGS[name]
    if name == "digits":
        images = load_digits()
        chosen = np.isin(images.target, (3, 5))
        x, y = images.data[chosen] / 16.0, np.where(images.target[chosen] == 3, 1.0, -1.0)
    else:
        table = r_data("mlbench", setting.title)
        if isinstance(table, str):
            return table
        x = table.drop(columns="Class").to_numpy(dtype=float)
        y = np.where(table["Class"].isin(["M", "good"]), 1.0, -1.0)
    order = np.random.default_rng(SPLIT_SEED).permutation(y.size)
    train, test = order[: setting.n_train], order[setting.n_train :]
    kernel = squared_exponential(x[train], x[train], setting)
    kernel.flat[:: train.size + 1] += setting.jitter
    own = np.full(test.size, np.exp(2.0 * setting.log_sd) + setting.jitter)
    return Data(kernel, y[train], squared_exponential(x[test], x[train], setting), own, y[test])


def squared_exponential(a: np.ndarray, b: np.ndarray, setting: Setting) -> np.ndarray:
    """Equation (34) of the paper."""
    squared = np.sum((a[:, None] - b[None]) ** 2, axis=2)
    return np.exp(2.0 * setting.log_sd - 0.5 * squared * np.exp(-2.0 * setting.log_length))


def log_loss(problem: Any, lam: Blocks, data: Data) -> float:
    """Mean of -log2 p(y*) over the test rows, in bits: 1 is as good as a coin."""
    m, v = problem.predict(lam, data.cross, data.own)
    return float(np.mean(-np.log2(logistic_expectations(data.test_labels * m, v).sigmoid)))


def optimum(data: Data) -> tuple[ProximalProblem, Dual]:
    """Minimise F with all rows and without samples, by natural-gradient steps that are halved where F rises."""
    problem = NaturalProblem(data.kernel, data.labels, n_patches=1, n_draws=0, seed=0)
    phi, lam = problem.start()
    f, step = problem.evaluate(phi, lam).neg_elbo, 0.5
    for _ in range(MOST_STEPS):
        target = problem.global_optimum(problem.statistics(phi, 0, lam))
        if max(np.abs(target.a - lam.a).max(), np.abs(target.w - lam.w).max()) < STATIONARY:
            return problem, lam
        new = problem.blend(lam, target, step)
        if (lower := problem.evaluate(phi, new).neg_elbo) <= f + ROUNDING * abs(f):
            lam, f, step = new, lower, min(0.5, 1.5 * step)
        else:
            step /= 2.0
    msg = (
        f"Expected a stationary point after {MOST_STEPS} steps, found |alpha + a| = {np.abs(target.a - lam.a).max():g}."
    )
    raise RuntimeError(msg)


# The experiment


class Method(NamedTuple):
    """One curve."""

    title: str
    problem: Callable[..., Any]  # of the kernel, the labels and the arguments of `_Sampled`
    solver: Callable[..., Any]  # of one point of the grid
    names: tuple[str, ...]  # of the settings in the grid
    grid: Callable[[Setting], list[tuple[float, ...]]]  # the published setting is its first point


def _betas(setting: Setting) -> list[tuple[float, ...]]:
    return [(factor * setting.scaled_step / setting.n_train,) for factor in (1.0, 0.1, 0.3, 3.0, 10.0)]


def _falling(setting: Setting) -> list[tuple[float, ...]]:
    return [(1.0, setting.tau), *product((1e-3, 1e-2, 1e-1, 1.0), (0.51, 0.8))]


def _adadelta(setting: Setting) -> list[tuple[float, ...]]:
    return [(setting.forgetting, 1e-8), *product((1e-5, 1e-3, 5e-2), (1e-8, 1e-5, 1e-3))]


def _proximal(beta: float) -> PGSVI:
    return PGSVI(SolverSettings(step_size=beta, inner_rounds=1))


PLAIN, WHITENED = partial(RootProblem, whitened=False), partial(RootProblem, whitened=True)
METHODS = {
    "pg-svi": Method("PG-SVI, equation (17)", ProximalProblem, _proximal, ("beta",), _betas),
    "pg-svi-natural": Method("PG-SVI, authors' program", NaturalProblem, _proximal, ("beta",), _betas),
    "sgd": Method("SGD", PLAIN, FallingSGD, ("scale", "tau"), _falling),
    "adadelta": Method("ADADELTA", PLAIN, Adadelta, ("1 - rho", "epsilon"), _adadelta),
    "sgd-whitened": Method("SGD, whitened", WHITENED, FallingSGD, ("scale", "tau"), _falling),
    "adadelta-whitened": Method("ADADELTA, whitened", WHITENED, Adadelta, ("1 - rho", "epsilon"), _adadelta),
}
# dark for PG-SVI, orange and red for the rivals, which are dashed where they know the prior
LINES: tuple[tuple[str, Any], ...] = (
    ("#0b6e99", (0, (4, 1.2))),
    ("#0b3c5d", "-"),
    ("#d9711a", "-"),
    ("#b3365b", "-"),
    ("#d9711a", (0, (1.5, 1.2))),
    ("#b3365b", (0, (1.5, 1.2))),
)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SETTINGS)), help="Data sets; repeatable. Default: all.")
@click.option("--passes", default=150, show_default=True, help="Passes through the data of each run.")
@click.option("--pilot-passes", default=20, show_default=True, help="Passes of the runs that choose a step.")
@click.option("--seeds", default=3, show_default=True, help="Runs of each method.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, only: tuple[str, ...], passes: int, pilot_passes: int, seeds: int, output: Path) -> None:
    """Print passes to the optimum by method and data set; write gaussian_process.json and gaussian_process.png."""
    began = time.perf_counter()
    record: dict[str, Any] = {"passes": passes, "pilot_passes": pilot_passes, "seeds": seeds, "data": {}, "skipped": []}
    for name in only or SETTINGS:
        data = read(name)
        if isinstance(data, str):
            record["skipped"].append(data)
            print(f"\n{data}", flush=True)
            continue
        record["data"][name] = measure(SETTINGS[name], data, passes=passes, pilot_passes=pilot_passes, seeds=seeds)
        _print(record["data"][name])
    if not record["data"]:
        msg = f"Expected at least one data set, found none. {' '.join(record['skipped'])}"
        raise click.ClickException(msg)
    save(output, "gaussian_process", record, _draw(record))
    print(f"{time.perf_counter() - began:.0f} s")


def measure(setting: Setting, data: Data, *, passes: int, pilot_passes: int, seeds: int) -> dict[str, Any]:
    """Run all methods on one data set, with the best setting of each grid."""
    exact, best = optimum(data)
    least = exact.evaluate(exact.start()[0], best).neg_elbo
    methods = {}
    for name, method in METHODS.items():
        grid = method.grid(setting)
        pilots = [
            run(method, point, setting, data, passes=pilot_passes, seed=TUNING_SEED, least=least, stop=_is_decided)
            for point in grid
        ]
        chosen = min(range(len(grid)), key=lambda i: _rank(pilots[i]))
        runs = [
            run(method, grid[chosen], setting, data, passes=passes, seed=seed, least=least) for seed in range(seeds)
        ]
        excess, losses = (np.array([getattr(one, curve) for one in runs]) for curve in ("excess", "log_loss"))
        methods[name] = {
            "title": method.title,
            "chosen": dict(zip(method.names, grid[chosen], strict=True)),
            # the published setting is the first
            "pilots": [
                {**dict(zip(method.names, point, strict=True)), "excess": pilot.excess[np.isfinite(pilot.excess)][-1]}
                for point, pilot in zip(grid, pilots, strict=True)
            ],
            "passes_to_1_%": [first_true(one <= NEAR) for one in excess],
            "passes_to_10_%": [first_true(one <= ROUGHLY) for one in excess],
            "after_10_passes": _at(excess, losses, min(10, passes)),
            "at_the_end": _at(excess, losses, passes),
            "excess": excess[:, _shown(passes)],
            "log_loss": losses[:, _shown(passes)],
            "cpu_seconds_per_pass": float(np.mean([one.seconds for one in runs])) / passes,
        }
    return {
        "title": setting.title,
        "n_train": data.labels.size,
        "n_test": data.test_labels.size,
        "batch": setting.batch,
        "draws": setting.n_draws,
        "neg_elbo": least,
        "log_loss": log_loss(exact, best, data),
        "methods": methods,
    }


class Run(NamedTuple):
    """Curves of one run, by pass, infinite from the pass in which it has overflowed."""

    excess: np.ndarray  # (F - F*) / F*
    log_loss: np.ndarray  # of the test rows, in bits
    seconds: float  # of the processor


def run(
    method: Method,
    point: tuple[float, ...],
    setting: Setting,
    data: Data,
    *,
    passes: int,
    seed: int,
    least: float,
    stop: Callable[[np.ndarray], bool] = lambda excess: False,
) -> Run:
    """Run one method with one setting from the prior; ``stop`` reads the excess so far after every pass."""
    n_patches = -(-data.labels.size // setting.batch)
    problem = method.problem(data.kernel, data.labels, n_patches=n_patches, n_draws=setting.n_draws, seed=seed)
    excess, losses = np.full((2, passes + 1), np.inf)
    began = time.process_time()
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # steps that are too large overflow
        states = run_epochs(problem, method.solver(*point), problem.start(), seed=seed)
        for t, (state, evaluation) in enumerate(islice(states, passes + 1)):
            excess[t] = evaluation.neg_elbo / least - 1.0
            losses[t] = log_loss(problem, state.shared.lam, data)
            if stop(excess[: t + 1]):
                break
    return Run(excess, losses, time.process_time() - began)


def _at(excess: np.ndarray, losses: np.ndarray, t: int) -> dict[str, float]:
    """Means over seeds after some passes."""
    return {"excess": float(excess[:, t].mean()), "log_loss": float(losses[:, t].mean())}


def _shown(passes: int) -> np.ndarray:
    """The passes of the curves, evenly spaced on the axis of the picture."""
    return np.unique(np.geomspace(1.0, passes + 1.0, SHOWN).round().astype(int)) - 1


def _is_decided(excess: np.ndarray) -> bool:
    """Whether a pilot has arrived, or is not below its start after five passes."""
    return bool(excess[-1] <= NEAR or (excess.size == 6 and excess[-1] >= excess[0]))


def _rank(pilot: Run) -> tuple[float, float]:
    """The sooner a pilot arrives, the better; of those that do not arrive, the lower its F at the end.

    Of equals, `min` takes the first of the grid, the published setting.
    """
    arrived = first_true(pilot.excess <= NEAR)
    return (np.inf if arrived is None else float(arrived)), float(pilot.excess[-1])


# Output


def _print(found: dict[str, Any]) -> None:
    print(
        f"\n{found['title']}: {found['n_train']} rows, {found['n_test']} test rows, M = {found['batch']}, "
        f"S = {found['draws']}. F* = {found['neg_elbo']:.2f} nats, log-loss at F* = {found['log_loss']:.3f} bits\n"
    )
    header = ["method", "chosen", "passes to 10 %", "to 1 %", "excess after 10", "at the end", "log-loss after 10"]
    header += ["at the end", "published setting, excess at the end of the pilot", "CPU seconds per pass"]
    rows = []
    for m in found["methods"].values():
        chosen = ", ".join(f"{name} {value:.2g}" for name, value in m["chosen"].items())
        row = [m["title"], chosen, _passes(m["passes_to_10_%"]), _passes(m["passes_to_1_%"])]
        when = m["after_10_passes"], m["at_the_end"]
        row += [*(f"{one['excess']:.2g}" for one in when), *(f"{one['log_loss']:.3f}" for one in when)]
        rows.append([*row, f"{m['pilots'][0]['excess']:.2g}", f"{m['cpu_seconds_per_pass']:.3f}"])
    print_table(header, rows)


def _passes(each: list[int | None]) -> str:
    """Passes of every seed, as a range."""
    arrived = [one for one in each if one is not None]
    if not arrived:
        return "never"
    text = f"{min(arrived)}" if min(arrived) == max(arrived) else f"{min(arrived)} to {max(arrived)}"
    return text if len(arrived) == len(each) else f"{text} ({len(arrived)} of {len(each)})"


def _draw(record: dict[str, Any]) -> Figure:
    columns = len(record["data"])
    figure = Figure(figsize=(1.2 + 3.6 * columns, 6.6), layout="constrained")
    axes = figure.subplots(2, columns, sharex=True, sharey="row", squeeze=False)
    passes = 1 + _shown(record["passes"])
    for (above, below), found in zip(axes.T, record["data"].values(), strict=True):
        for m, (colour, dashes) in zip(found["methods"].values(), LINES, strict=True):
            for ax, curve in ((above, "excess"), (below, "log_loss")):
                values = np.array(m[curve], dtype=float)  # after a pass that overflows, infinite: nothing is drawn
                ax.fill_between(passes, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0)
                ax.plot(passes, values.mean(axis=0), color=colour, linestyle=dashes, linewidth=1.6, label=m["title"])
        above.set_title(f"{found['title']}, {found['n_train']} rows", fontsize=10)
        above.axhline(NEAR, color="0.3", linewidth=0.9, linestyle=":")
        below.axhline(found["log_loss"], color="0.3", linewidth=0.9, linestyle=":")
        above.text(1.0, NEAR, "1 %", fontsize=7.5, color="0.3", va="bottom")
        below.set_xlabel("passes through the data + 1", fontsize=9)
        for ax in (above, below):
            ax.set_xscale("log")
            ax.axvline(11, color="0.8", linewidth=0.9, zorder=0)
            ax.grid(color="0.93", linewidth=0.6)
            ax.set_axisbelow(True)
            ax.tick_params(labelsize=8)
            ax.spines[["top", "right"]].set_visible(False)
        above.text(11, 1.5e-4, " 10 passes", fontsize=7.5, color="0.45")
    axes[0, 0].set_yscale("log")
    axes[0, 0].set_ylim(1e-4, 1e3)
    axes[1, 0].set_ylim(0.0, 1.6)
    axes[0, 0].set_ylabel(r"$(F-F^*)\,/\,F^*$", fontsize=9)
    axes[1, 0].set_ylabel("test log-loss (bits)\ndotted: at the best F", fontsize=9)
    legend = axes[0, 0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=3, fontsize=8, frameon=False, handlelength=3.0)
    return figure


if __name__ == "__main__":
    main()
