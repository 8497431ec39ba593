"""Run every solver from the same start on the same objective, and P2D-VI also without cross-patch edges.

``--visits`` instead compares visits that go on until their patch is at rest with single sweeps, on a hard section.
"""

import tempfile
import warnings
from pathlib import Path
from unittest import mock

import click
from sections import sections

from spatialpdvi import FitOptions, InputWarning, fit_file
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.options.fit import SOLVERS
from spatialpdvi.problems.composition import CompositionMixture
from spatialpdvi.problems.potts_mixture import PottsMixture
from spatialpdvi.synthetic import simulate_file


@click.command()
@click.option("--max-epochs", default=500, show_default=True)
@click.option("--all-sections", is_flag=True, help="Run on every real section, not only on 151673.")
@click.option("--visits", type=int, help="Spots of a hard simulated section on which visits are compared instead.")
@click.option("--seeds", default=2, show_default=True, help="Of the fits that compare visits.")
def main(max_epochs: int, *, all_sections: bool, visits: int | None, seeds: int) -> None:
    """Print F, its gap to the best, epochs, seconds in the solver, ARI and non-empty domains of every solver."""
    warnings.simplefilter("ignore", InputWarning)
    with tempfile.TemporaryDirectory() as folder:
        if visits is not None:
            _compare_visits(Path(folder), visits, seeds, max_epochs)
            return
        cases = [(s.path, s.k, s.options) for s in sections() if all_sections or s.path.stem == "dlpfc_151673"]
        embryo = Path(folder) / "embryo_20k.h5ad"
        simulate_file(embryo, n_spots=20_000, n_genes=8_000, k=20, seed=0, easy=True)
        for path, k, options in [*cases, (embryo, 20, {})]:
            print(f"\n{path.stem}, K {k}, seed 0, at most {max_epochs} epochs\n")
            print("| solver | edges | F | gap to the best | epochs | seconds | ARI | domains |")
            print("|---|---|---|---|---|---|---|---|")
            runs = {}
            for solver, cross in [*((s, True) for s in SOLVERS), ("p2dvi", False)]:
                chosen = FitOptions(k=k, solver=solver, cross_patch_edges=cross, max_epochs=max_epochs, **options)
                runs[solver, cross] = fit_file(path, chosen, output=Path(folder) / "out.h5ad")
            best = min(run.certificate.neg_elbo for (_, cross), run in runs.items() if cross)
            for (solver, cross), run in runs.items():
                c = run.certificate
                gap = f"{(c.neg_elbo - best) / abs(best):.1e}" if cross else "another objective"
                edges = "kept" if cross else "dropped"
                print(f"| {solver} | {edges} | {c.neg_elbo:.1f} | {gap} | {_end(run)} |", flush=True)


def _compare_visits(folder: Path, n_spots: int, seeds: int, max_epochs: int) -> None:
    hard = folder / "hard.h5ad"
    simulate_file(hard, n_spots=n_spots, n_genes=2 * n_spots // 5, k=15, seed=0)
    print(f"{n_spots:,} spots, K 15, 20 states, at most {max_epochs} epochs\n")
    print("| seed | visits | F | epochs | seconds | ARI | domains |")
    print("|---|---|---|---|---|---|---|")
    sweeps = {"go on": CompositionMixture._sweep, "single sweeps": PottsMixture._sweep}
    for seed in range(seeds):
        for name, sweep in sweeps.items():
            options = FitOptions(k=15, states=20, seed=seed, max_epochs=max_epochs)
            with mock.patch.object(CompositionMixture, "_sweep", sweep):
                run = fit_file(hard, options, output=folder / "out.h5ad")
            print(f"| {seed} | {name} | {run.certificate.neg_elbo:.3f} | {_end(run)} |", flush=True)


def _end(run: FitResult) -> str:
    """Epochs, seconds in the solver, ARI and non-empty domains."""
    c = run.certificate
    epochs = f"{c.epochs}" if c.converged else f"{c.epochs}, not converged"
    return f"{epochs} | {run.trace['seconds'][-1]:.2f} | {run.scores['ari']:.3f} | {(run.domain_sizes > 0).sum()}"


if __name__ == "__main__":
    main()
