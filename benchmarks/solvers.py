"""Run every solver from the same start on the same objective, and P2D-VI also without cross-patch edges."""

import tempfile
import warnings
from pathlib import Path

import click
from sections import sections

from spatialpdvi import FitOptions, InputWarning, fit_file
from spatialpdvi.options.fit import SOLVERS
from spatialpdvi.synthetic import simulate_file


@click.command()
@click.option("--max-epochs", default=500, show_default=True)
@click.option("--all-sections", is_flag=True, help="Run on every real section, not only on 151673.")
def main(max_epochs: int, *, all_sections: bool) -> None:
    """Print F, its gap to the best, epochs, seconds in the solver, ARI and non-empty domains of every solver."""
    warnings.simplefilter("ignore", InputWarning)
    with tempfile.TemporaryDirectory() as folder:
        embryo = Path(folder) / "embryo_20k.h5ad"
        simulate_file(embryo, n_spots=20_000, n_genes=8_000, k=20, seed=0, easy=True)
        cases = [(s.path, s.k, s.options) for s in sections() if all_sections or s.path.stem == "dlpfc_151673"]
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
                epochs = f"{c.epochs}" if c.converged else f"{c.epochs}, not converged"
                print(
                    f"| {solver} | {'kept' if cross else 'dropped'} | {c.neg_elbo:.1f} | {gap} | {epochs} | "
                    f"{run.trace['seconds'][-1]:.2f} | {run.scores['ari']:.3f} | {(run.domain_sizes > 0).sum()} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
