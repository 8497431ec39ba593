"""Run every solver on a Gaussian mixture with biased mini-batches, each of which is mostly from one cluster.

The model is the Potts mixture without edges. Every cluster has the weight 1/K, and the noise is known. A fit therefore
represents the mixture 1/K sum_k N(m_k, sigma0^2 + e^rho_k), which is compared with the truth 1/K sum_k N(c_k,
sigma0^2). The distance is the 2-Wasserstein distance between the two mixtures *as distributions over components* (Delon
and Desolneux 2020), an upper bound of the distance between their densities:

    W^2 = min over couplings w of sum_kl w_kl W2^2(N_k, N_l),   W2^2 = |m_k - c_l|^2 + sum_f (s_kf - t_lf)^2

for diagonal covariances with standard deviations s and t. Both sides have weights 1/K, so an extreme point of the
linear program is 1/K times a permutation (Birkhoff), and the optimal assignment solves it. Even a perfect fit does not
reach 0: the means of n/K spots differ from the truth by sigma0 sqrt(d K / n), which is printed as the floor.

With `--published` the setting is that of the paper's Figure 3 (appendix C.2): the start is a k-means clustering, noise
and prior follow from it, duals start at zero, and P2D-VI has one constant step for each block. The steps of all solvers
that have one are chosen from the same list. `densities.png` has the fitted densities in two dimensions, as Figure 1.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from common import STEPS, draw_families, families, print_table, run_epochs, save
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment

from spatialpdvi.compare.runs import has_step
from spatialpdvi.engines import LocalEngine
from spatialpdvi.fitting.loop import StopRule, Underway, optimise
from spatialpdvi.graph.patches import Patch
from spatialpdvi.initialization.restarts import kmeans_labels
from spatialpdvi.initialization.start import Start, start_from_labels
from spatialpdvi.plotting.save import save_figure
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsGlobals, PottsMixture, one_hot
from spatialpdvi.solvers import SOLVERS, SolverSettings, make_solver

PURITY = 0.9  # share of a batch that comes from one cluster
SEPARATION = 1.5  # sd of the true means in each feature, where the noise has sd 1
INFORMED = 0.15  # of the labels of the start are the true ones; the others are random, so that some are right too
FACTORS = (0.5, 1.0, 3.0, 10.0)  # values of c of P2D-VI; the default is shown with the other solvers
VARIED = ("#7b5ea7", "#3a9c5f", "#b3365b", "0.2")  # colours of other ways to run P2D-VI
SMALLEST = 1e-12  # nats per spot above the lowest F: below is rounding
ROOM = 1e3  # upper limit of W in the figure, with room for the legends
WIDER = (
    *STEPS,
    3.0,
    10.0,
    30.0,
    100.0,
)  # steps in the published setting, whose curvature is that of the worst coordinate
APART = 4.0  # sd of the true means whose densities are drawn: they can be told apart in two dimensions
TUNING_SEED = 1000  # steps are chosen on data that are not shown


class Data(NamedTuple):
    """Data drawn from a mixture, with rows in batch order."""

    problem: PottsMixture
    start: Start
    true_mean: np.ndarray  # (K, d)
    settings: dict[str, Any]  # of the primal-dual solvers


class Run(NamedTuple):
    """Curves of one solver on one draw, by epoch."""

    distance: np.ndarray  # W
    objective: np.ndarray  # F per spot


@click.command()
@click.option("--n", default=100_000, show_default=True, help="Number of spots.")
@click.option("--batch", default=1_000, show_default=True, help="Spots in a patch, which is the mini-batch.")
@click.option("--d", default=10, show_default=True, help="Number of features.")
@click.option("--k", default=5, show_default=True, help="Number of clusters.")
@click.option("--epochs", default=24, show_default=True)
@click.option("--seeds", default=5, show_default=True)
@click.option("--published", is_flag=True, help="In the setting of the paper.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, n: int, batch: int, d: int, k: int, epochs: int, seeds: int, published: bool, output: Path) -> None:
    """Print the distance to the true mixture for each solver; write mixture.json, mixture.png and densities.png.

    With --published the names are published_mixture.json and published_mixture.png, without densities.
    """
    began = time.perf_counter()
    size: dict[str, Any] = {"n": n, "batch": batch, "d": d, "k": k, "published": published}
    # as many batches with the same bias but a tenth of the work; steps are dimensionless
    pilot = draw_mixture(**size | {"n": n // 10, "batch": max(1, batch // 10)}, seed=TUNING_SEED)
    tuned = [name for name in SOLVERS if has_step(name, also_p2dvi=published)]
    steps = {name: _choose_step(pilot, name, epochs) if name in tuned else None for name in SOLVERS}
    factors = () if published else FACTORS
    runs: dict[str, list[Run]] = {name: [] for name in SOLVERS}
    by_factor: dict[float, list[Run]] = {c: [] for c in factors}
    shipped: list[Run] = []
    for seed in range(seeds):
        data = draw_mixture(**size, seed=seed)
        for name in SOLVERS:
            runs[name].append(_run(data, name, step_size=steps[name], epochs=epochs, seed=seed))
        for c in factors:
            by_factor[c].append(_run(data, "p2dvi", step_factor=c, epochs=epochs, seed=seed))
        shipped.append(_run_shipped(data, epochs=epochs, seed=seed))
    floor = float(np.sqrt(d * k / n))
    record = {**size, "seeds": seeds, "epochs": epochs, "purity": PURITY, "informed": INFORMED, "floor": floor}
    record["solvers"] = {name: {"step_size": steps[name], **_summary(runs[name])} for name in SOLVERS}
    record["p2dvi_others"] = {f"c = {c:g}": _summary(by_factor[c]) for c in factors}
    record["p2dvi_others"]["with fallback"] = _summary(shipped)
    _print(record)
    save(output, "published_mixture" if published else "mixture", record, _draw(record))
    if not published:
        save_figure(_densities(size | {"d": 2}, epochs), output / "densities.png", dpi=130)
    print(f"{time.perf_counter() - began:.0f} s")


def draw_mixture(
    *,
    n: int,
    batch: int,
    d: int,
    k: int,
    seed: int,
    separation: float = SEPARATION,
    purity: float = PURITY,
    published: bool = False,
) -> Data:
    """Draw equal clusters in batches with a share ``purity`` from one cluster, each cluster in turn."""
    rng = np.random.default_rng(seed)
    true_mean = separation * rng.normal(size=(k, d))
    n_batches = n // batch
    truth = rng.integers(k, size=n_batches * batch)
    main_cluster = np.repeat(rng.permutation(np.arange(n_batches) % k), batch)
    pure = rng.random(truth.size) < purity
    truth[pure] = main_cluster[pure]
    x = true_mean[truth] + rng.normal(size=(truth.size, d))
    patches = tuple(_without_edges(b * batch, batch, truth.size) for b in range(n_batches))
    if published:
        start = start_from_labels(x, kmeans_labels(x, k, seed=seed, n_init=1), k)
        return Data(PottsMixture(wrap_features(x), patches, start.hyperparameters), start, true_mean, {"duals": "zero"})
    labels = np.where(rng.random(truth.size) < INFORMED, truth, rng.integers(k, size=truth.size))
    start = start_from_labels(x, labels, k)
    # noise and prior are fixed at the truth: the clusters of the start are alike and cannot show them
    hyper = start.hyperparameters._replace(noise_sd=np.ones(d), prior_sd=np.full(d, separation))
    precision = np.bincount(labels, minlength=k)[:, None] + 1.0 / hyper.prior_sd**2
    start = start._replace(lam=PottsGlobals(start.lam.m, -np.log(precision)), hyperparameters=hyper)
    return Data(PottsMixture(wrap_features(x), patches, hyper), start, true_mean, {})


def _without_edges(first: int, size: int, n: int) -> Patch:
    """A patch of spots without edges, which all have one colour."""
    return Patch(
        start=first,
        stop=first + size,
        share=size / n,
        indptr=np.zeros(size + 1, dtype=np.int64),
        indices=np.empty(0, dtype=np.int32),
        weights=np.empty(0),
        halo_rows=np.empty(0, dtype=np.int64),
        colour_start=np.array([0, size]),
    )


def _distance(lam: PottsGlobals, data: Data) -> float:
    """W between the fitted mixture and the true one, whose noise has sd 1, both with equal weights."""
    true_mean, noise = data.true_mean, data.start.hyperparameters.noise_sd**2
    cost = np.sum((lam.m[:, None] - true_mean) ** 2, axis=2)
    cost += np.sum((np.sqrt(noise + np.exp(lam.rho)) - 1.0) ** 2, axis=1)[:, None]
    return float(np.sqrt(cost[linear_sum_assignment(cost)].mean()))


def _run(data: Data, name: str, *, epochs: int, seed: int, **settings: Any) -> Run:
    """Run all epochs, or fewer if F becomes infinite."""
    start = (one_hot(data.start.labels, data.true_mean.shape[0]), data.start.lam)
    states = run_epochs(data.problem, name, start, seed=seed, **data.settings, **settings)
    rows = []
    with np.errstate(over="ignore", invalid="ignore"):  # steps that are too large overflow
        for state, evaluation in islice(states, epochs + 1):
            rows.append((_distance(state.shared.lam, data), evaluation.neg_elbo / data.start.labels.size))
    return Run(*np.array(rows).T)


def _run_shipped(data: Data, *, epochs: int, seed: int) -> Run:
    """Run P2D-VI as a fit does: steps follow the curvature, duals start at gradients, and epochs have a fallback."""
    n, rng = data.start.labels.size, np.random.default_rng(seed)
    phi, lam = one_hot(data.start.labels, data.true_mean.shape[0]), data.start.lam
    rows = [(_distance(lam, data), data.problem.evaluate(phi, lam).neg_elbo / n)]

    def keep(epoch: int, underway: Callable[[], Underway]) -> None:
        run = underway()
        rows.append((_distance(run.state.shared.lam, data), run.row.evaluation.neg_elbo / n))

    rule = StopRule(tolerance=0.0, relative_change=0.0, max_epochs=epochs + 1)  # there is no call after the last epoch
    solver = make_solver("p2dvi")
    optimise(LocalEngine(data.problem), solver, (phi, lam), rule=rule, rng=rng, on_state=keep)
    return Run(*np.array(rows).T)


def _choose_step(pilot: Data, name: str, epochs: int) -> float:
    """The step with the lowest F at the end of a run on other data; the truth is not used."""

    def score(step_size: float) -> float:
        run = _run(pilot, name, step_size=step_size, epochs=epochs, seed=TUNING_SEED)
        return float(run.objective[-1]) if run.objective.size == epochs + 1 else np.inf

    return min(WIDER if pilot.settings else STEPS, key=score)


def _summary(runs: list[Run]) -> dict[str, Any]:
    whole = min(run.distance.size for run in runs)
    distance = np.array([run.distance[:whole] for run in runs])
    objective = np.array([run.objective[:whole] for run in runs])
    return {
        "distance": distance,
        "distance_mean": distance.mean(axis=0),
        "distance_sd": distance.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(whole),
        "distance_end": distance[:, -1],
        "objective_end": objective[:, -1],
        "objective": objective,
    }


def _print(record: dict[str, Any]) -> None:
    varied = {f"p2dvi, {how}": {"step_size": None, **s} for how, s in _others(record).items()}
    everything = {**record["solvers"], **varied}
    best = np.min([s["objective_end"] for s in everything.values()], axis=0)
    rows = []
    for name, s in everything.items():
        near = s["distance_mean"] < 2.0 * record["floor"]
        rows.append(
            [
                name,
                "" if s["step_size"] is None else f"{s['step_size']:g}",
                f"{s['distance_end'].mean():.4f} ± {s['distance_sd'][-1]:.4f}",
                f"{s['distance_end'].max():.4f}",
                int(np.sum(s["distance_end"] < 2.0 * record["floor"])),
                int(near.argmax()) if near.any() else "never",
                f"{np.mean(s['objective_end'] - best):.1e}",
            ]
        )
    print(f"\nAfter {record['epochs']} epochs, {record['seeds']} seeds; floor of W {record['floor']:.4f};", end=" ")
    print(f"default c of P2D-VI {SolverSettings().step_factor:g}\n")
    header = ["solver", "step", "W", "worst W", "seeds with W < 2 floors", "epochs to mean W < 2 floors"]
    print_table([*header, "F above the best, per spot"], rows)


def _others(record: dict[str, Any]) -> dict[str, Any]:
    """Runs of P2D-VI in other ways, without those of the default c, which is among the solvers."""
    return {how: s for how, s in record["p2dvi_others"].items() if how != f"c = {SolverSettings().step_factor:g}"}


def _fitted(data: Data, epochs: int) -> dict[str, PottsGlobals]:
    """Globals after some epochs of SVI with falling steps, of Algorithm 1, and of a fit as shipped."""

    def start() -> tuple[np.ndarray, PottsGlobals]:  # posteriors are overwritten
        return one_hot(data.start.labels, data.true_mean.shape[0]), data.start.lam

    of_p2dvi: dict[str, Any] = data.settings | ({"step_size": 1.0} if data.settings else {})
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "SVI, falling steps": ("svi-rm", {"step_size": 1.0}),
        "Algorithm 1": ("p2dvi", of_p2dvi),
    }
    found = {}
    for title, (name, settings) in runs.items():
        *_, (state, _) = islice(run_epochs(data.problem, name, start(), seed=0, **settings), epochs + 1)
        found[title] = state.shared.lam
    rule, rng = StopRule(max_epochs=epochs), np.random.default_rng(0)
    shipped = optimise(LocalEngine(data.problem), make_solver("p2dvi"), start(), rule=rule, rng=rng)
    return found | {"P2D-VI as shipped": shipped.lam}


def _densities(size: dict[str, Any], epochs: int) -> Figure:
    """Draw the true density of a mixture in two dimensions, and the fitted ones from our and the published start."""
    figure = Figure(figsize=(12.5, 6.6), layout="constrained")
    axes = figure.subplots(2, 4, sharex=True, sharey=True)
    for row, published in zip(axes, (False, True), strict=True):
        data = draw_mixture(**size | {"published": published, "separation": APART}, seed=0)
        highest = 0.0
        reach = np.abs(data.true_mean).max() + 3.0
        grid = np.stack(np.meshgrid(*2 * [np.linspace(-reach, reach, 200)]), axis=-1)
        panels = {"Truth": (data.true_mean, np.ones_like(data.true_mean))}
        for title, lam in _fitted(data, epochs).items():
            noise = data.start.hyperparameters.noise_sd
            panels[f"{title}, {'k-means' if published else '85 % random'}"] = (
                lam.m,
                np.sqrt(noise**2 + np.exp(lam.rho)),
            )
        for ax, (title, (mean, sd)) in zip(row, panels.items(), strict=True):
            away = (grid[..., None, :] - mean) / sd
            density = (np.exp(-0.5 * (away**2).sum(axis=-1)) / sd.prod(axis=-1)).mean(axis=-1) / (2.0 * np.pi)
            highest = highest or float(density.max())  # of the truth
            levels = np.linspace(0.0, highest, 13)
            ax.contourf(grid[..., 0], grid[..., 1], density, levels=levels, cmap="viridis", extend="max")
            ax.plot(*data.true_mean.T, "+", color="white")
            ax.set_title(title, fontsize=10)
            ax.set_aspect("equal")
    figure.suptitle(f"Densities after {epochs} epochs of biased mini-batches; true means are white", fontsize=11)
    return figure


def _draw(record: dict[str, Any]) -> Figure:
    """W above and F below, by epoch: medians, and for W the range of the seeds."""
    columns = len(families())
    figure = Figure(figsize=(3.1 * columns, 6.4), layout="constrained")
    axes = figure.subplots(2, columns, sharex=True, sharey="row")
    factors = _others(record)
    everything = {**record["solvers"], **factors}
    whole = min(s["objective"].shape[1] for s in everything.values())
    lowest = np.min([s["objective"][:, :whole].min(axis=1) for s in everything.values()], axis=0)
    distances, gaps, labels = {}, {}, {}
    for name, s in everything.items():
        epochs = np.arange(s["distance"].shape[1])
        median, low, high = (np.quantile(s["distance"], q, axis=0) for q in (0.5, 0.0, 1.0))
        distances[name] = (epochs, median, low, high)
        gap = np.median(np.maximum(s["objective"] - lowest[:, None], SMALLEST), axis=0)
        gaps[name] = (np.arange(gap.size), gap)
        labels[name] = name if s.get("step_size") is None else f"{name}, step {s['step_size']:g}"
    place = next(i for i, names in enumerate(families().values()) if "p2dvi" in names)
    for row, curves in zip(axes, (distances, gaps), strict=True):
        draw_families(row, curves, labels=labels)
        for how, colour in zip(factors, VARIED, strict=False):
            row[place].plot(*curves[how][:2], color=colour, linewidth=1.2, label=f"p2dvi, {how}")
        row[0].set_yscale("log")
    for ax in axes[0]:
        ax.axhline(record["floor"], color="0.3", linewidth=0.8, linestyle=":", label="typical perfect fit")
        ax.legend(fontsize=7.5, frameon=False, loc="upper right", handlelength=2.8, labelspacing=0.3)
    for ax in axes[1]:
        ax.get_legend().remove()
        ax.set_xlabel("epochs", fontsize=9)
    axes[0, 0].set_ylim(top=ROOM)
    axes[0, 0].set_ylabel("2-Wasserstein distance to the true mixture", fontsize=9)
    axes[1, 0].set_ylabel("F above the lowest, nats per spot", fontsize=9)
    start = "k-means start, noise and prior from it" if record["published"] else "85 % of the start's labels are random"
    figure.suptitle(
        f"Gaussian mixture, {record['n']:,} spots in {record['d']} features, {record['k']} clusters; mini-batches of "
        f"{record['batch']:,}, {record['purity']:.0%} of one cluster;\n{start}; median and range of {record['seeds']} "
        "seeds",
        fontsize=11,
    )
    return figure


if __name__ == "__main__":
    main()
