"""Scores of default settings (only --k given) on every real section, over seeds."""

import tempfile
import time
import warnings
from pathlib import Path

import click
import numpy as np
from sections import sections

from spatialpdvi import FitOptions, InputWarning, fit_file


@click.command()
@click.option("--seeds", default=3, show_default=True)
def main(seeds: int) -> None:
    """Print one row per section: means over seeds, and the range of ARI."""
    warnings.simplefilter("ignore", InputWarning)
    print(f"Seeds 0 to {seeds - 1}, default settings; ARI as mean [least-most].\n")
    print("| section | K | ARI of the start | ARI | NMI | CHAOS | PAS | epochs | converged | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for section in sections():
            began = time.perf_counter()
            results = [
                fit_file(
                    section.path,
                    FitOptions(k=section.k, seed=seed, **section.options),
                    output=Path(folder) / "out.h5ad",
                )
                for seed in range(seeds)
            ]
            seconds = (time.perf_counter() - began) / seeds
            ari = [r.scores["ari"] for r in results]
            start = [r.scores["baseline"]["ari"] for r in results]
            nmi, chaos, pas = (np.mean([r.scores[name] for r in results]) for name in ("nmi", "chaos", "pas"))
            epochs = np.mean([r.certificate.epochs for r in results])
            converged = sum(r.certificate.converged for r in results)
            print(
                f"| {section.path.stem} | {section.k} | {np.mean(start):.3f} | {np.mean(ari):.3f} "
                f"[{min(ari):.3f}-{max(ari):.3f}] | {nmi:.3f} | {chaos:.3f} | {pas:.3f} | {epochs:.0f} | "
                f"{converged}/{seeds} | {seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
