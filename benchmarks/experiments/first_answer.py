"""How far are the solvers after a part of an epoch, and how soon do they arrive, by visits of patches.

The mixture of `mixture.py`, with patches that are random draws of all clusters or mostly of one cluster each, as the
patches of a section are, and with clusters that lie apart or overlap. A visit reads the spots of one patch; where these
come from a disk, it is what costs time. After some visits a solver's globals are judged by F with the best posteriors
for them, which without edges one sweep finds: what a user would have who stopped there and assigned all spots once.
"""

import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from common import print_table, save
from matplotlib.figure import Figure
from mixture import Data, draw_mixture

from spatialpdvi.engines import LocalEngine
from spatialpdvi.problems.base import Blocks
from spatialpdvi.problems.potts_mixture import one_hot
from spatialpdvi.solvers import SolverSettings, make_solver

SEPARATIONS = (1.5, 0.8, 0.5)  # sd of the true means in each feature, where the noise has sd 1
PURITIES = {"alike": 0.0, "of one cluster": 0.9}  # share of a patch that comes from one cluster
SHARES = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # epochs at which the solvers are compared
RIVALS: dict[str, tuple[str, dict[str, float]]] = {
    "P2D-VI, c = 1": ("p2dvi", {}),
    "P2D-VI, c = 10": ("p2dvi", {"step_factor": 10.0}),
    "CAVI": ("cavi", {}),
    "memoised": ("memoized", {}),
    "SVI, step 0.1": ("svi", {"step_size": 0.1}),
    "SVI, falling steps": ("svi-rm", {"step_size": 1.0}),
}
_COLOURS = ("#0b6e99", "#7b5ea7", "#d9711a", "#b3365b", "#3a9c5f", "0.4")


@click.command()
@click.option("--n", default=20_000, show_default=True, help="Number of spots.")
@click.option("--batch", default=200, show_default=True, help="Spots in a patch.")
@click.option("--d", default=10, show_default=True, help="Number of features.")
@click.option("--k", default=5, show_default=True, help="Number of clusters.")
@click.option("--epochs", default=20, show_default=True)
@click.option("--seeds", default=3, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, n: int, batch: int, d: int, k: int, epochs: int, seeds: int, output: Path) -> None:
    """Print which share of the descent is left after parts of an epoch; write first_answer.json and .png."""
    began = time.perf_counter()
    shares = [share for share in SHARES if share <= epochs]
    visits = [max(1, round(share * (n // batch))) for share in shares]
    record: dict[str, Any] = {"n": n, "batch": batch, "d": d, "k": k, "seeds": seeds, "epochs": shares, "left": {}}
    for kind, purity in PURITIES.items():
        for separation in SEPARATIONS:
            runs = []
            for seed in range(seeds):
                size = {"n": n, "batch": batch, "d": d, "k": k, "separation": separation, "purity": purity}
                runs.append(_left(draw_mixture(**size, seed=seed), visits, seed))  # type: ignore[arg-type]
            means = {name: np.mean([run[name] for run in runs], axis=0) for name in RIVALS}
            record["left"][f"{kind}, {separation:g}"] = means
            print(f"\nPatches {kind}, separation {separation:g}: share of the descent that is left, by epochs\n")
            print_table(["solver", *map(str, shares)], [[s, *(f"{x:.1e}" for x in left)] for s, left in means.items()])
    save(output, "first_answer", record, _draw(record))
    print(f"{time.perf_counter() - began:.0f} s")


def _left(data: Data, visits: list[int], seed: int) -> dict[str, np.ndarray]:
    """Share of the descent from the start to the lowest F of any solver that is left after some visits."""
    found = {name: _objectives(data, *rival, visits=visits, seed=seed) for name, rival in RIVALS.items()}
    start, lowest = _profile(data, data.start.lam), min(f.min() for f in found.values())
    return {name: (f - lowest) / (start - lowest) for name, f in found.items()}


def _objectives(data: Data, name: str, settings: dict[str, float], *, visits: list[int], seed: int) -> np.ndarray:
    """F of the globals of a solver, with the best posteriors for them, after some visits."""
    solver, engine = make_solver(name, SolverSettings(**settings)), LocalEngine(data.problem)  # type: ignore[arg-type]
    shared = engine.begin(solver, (one_hot(data.start.labels, data.start.n_domains), data.start.lam))
    rng, done, before = np.random.default_rng(seed), 0, data.start.lam
    found: list[float] = []
    while True:
        shared = solver.begin_epoch(data.problem, shared, engine.evaluate(shared.lam), engine.patch_states)
        for batch in solver.batches(data.problem.n_patches, rng):
            shared = solver.merge(data.problem, shared, engine.visit(shared, batch))
            done += len(batch)
            while done >= visits[len(found)]:
                # within a batch of all patches, CAVI's, the globals are those of before
                found.append(_profile(data, shared.lam if done == visits[len(found)] else before))
                if len(found) == len(visits):
                    return np.array(found)
            before = shared.lam


def _profile(data: Data, lam: Blocks) -> float:
    phi = np.full((data.problem.features.shape[0], data.start.n_domains), 1.0 / data.start.n_domains)
    for patch in range(data.problem.n_patches):
        data.problem.update_locals(phi, patch, data.problem.halo(phi, patch), lam)
    return data.problem.evaluate(phi, lam).neg_elbo


def _draw(record: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(len(PURITIES), len(SEPARATIONS), sharex=True, sharey=True)
    for ax, (title, means) in zip(axes.ravel(), record["left"].items(), strict=True):
        for (name, left), colour in zip(means.items(), _COLOURS, strict=True):
            ax.loglog(record["epochs"], np.maximum(left, 1e-9), "o-", color=colour, markersize=3, label=name)
        ax.axhline(1.0, color="0.8", linewidth=0.8, zorder=0)
        kind, separation = title.split(", ")
        ax.set_title(f"Patches {kind}, separation {separation}", fontsize=10)
        ax.set_ylim(3e-10, 30)
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel("Epochs")
    for ax in axes[:, 0]:
        ax.set_ylabel("Share of the descent left")
    axes[0, 0].legend(fontsize=7.5, frameon=False)
    return figure


if __name__ == "__main__":
    main()
