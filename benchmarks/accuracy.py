"""Scores of the default settings on every real section, over seeds.

`--set` changes an option, `--parts` fits parts of them, `--molecules` fits them with fewer molecules, and `--simulated`
fits sections whose domains are known. Files that are named are fitted instead of those in the folder of the real
sections.
"""

import tempfile
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import numpy as np
from processes import changes, set_option
from sections import PEERS, Section, chosen, labelled, parts, sections, simulated, thinned

from spatialpdvi import FitOptions, InputWarning, fit_file
from spatialpdvi.fitting.result import FitResult

HEADER = (
    "section",
    "K",
    "best peer",
    "k-means of smoothed features",
    "start",
    "ARI",
    "spread",
    "NMI",
    "CHAOS",
    "PAS",
    "smooth",
    "agreement",
    "ECE",
    "calibrated",
    "converged",
    "seconds",
)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--seeds", default=5, show_default=True)
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@set_option
@click.option(
    "--parts", "of_parts", is_flag=True, help="Fit parts: halves of each section, of its spots and of its molecules."
)
@click.option("--molecules", type=click.FloatRange(0, 1, min_open=True), help="Keep this share of the molecules.")
@click.option("--simulated", "n_spots", type=int, help="Fit simulated sections of so many spots instead.")
def main(
    files: tuple[Path, ...],
    seeds: int,
    only: tuple[str, ...],
    changed: tuple[str, ...],
    *,
    of_parts: bool,
    molecules: float | None,
    n_spots: int | None,
) -> None:
    """Print one row per section: means over seeds, and the spread (largest minus smallest) of the ARI.

    FILES are labelled sections of your own, with labels in obs["annotation"].
    """
    if files and n_spots is not None:
        msg = "Expected FILES or --simulated, found both."
        raise click.UsageError(msg)
    if of_parts and molecules is not None:
        msg = "Expected --parts or --molecules, found both."
        raise click.UsageError(msg)
    warnings.simplefilter("ignore", InputWarning)
    options = changes(changed, fixed=("k", "seed"))
    print(f"Seeds 0 to {seeds - 1}, {options or 'default settings'}. The ARI is a mean over seeds.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    means = []
    with tempfile.TemporaryDirectory() as folder:
        real = n_spots is None
        for whole in chosen(labelled(files) or sections(), only) if real else simulated(n_spots, Path(folder), only):
            fitted: Iterable[Section] = parts(whole, Path(folder)) if of_parts else [whole]
            if molecules is not None:
                fitted = thinned(whole, molecules, Path(folder))
            for section in fitted:
                row, ari = _row(section, seeds, options, Path(folder) / "out.h5ad")
                means.append(ari)
                print(f"| {' | '.join(row)} |", flush=True)
    print(f"\nMean ARI over sections: {np.mean(means):.4f}")


def _row(section: Section, seeds: int, options: dict[str, Any], output: Path) -> tuple[list[str], float]:
    began = time.perf_counter()
    results = [
        fit_file(section.path, FitOptions(k=section.k, seed=seed, **(section.options | options)), output=output)
        for seed in range(seeds)
    ]
    seconds = (time.perf_counter() - began) / seeds
    ari = [r.scores["ari"] for r in results]
    peer = "{:.3f} {}".format(*PEERS[section.path.stem]) if section.path.stem in PEERS else ""
    agreement = np.mean([r.agreement.mean() for r in results if r.agreement is not None])
    row = [section.path.stem, str(section.k), peer]
    row += [_mean(results, "trivial", "ari"), _mean(results, "baseline", "ari"), f"{np.mean(ari):.3f}"]
    row += [f"{np.ptp(ari):.3f}", *(_mean(results, name) for name in ("nmi", "chaos", "pas"))]
    row += ["/".join(dict.fromkeys(str(r.params["smooth"]) for r in results)), f"{agreement:.2f}"]
    row += [_mean(results, "calibration", name) for name in ("ece", "ece_calibrated")]
    row += [f"{sum(r.certificate.converged for r in results)}/{seeds}", f"{seconds:.1f}"]
    return row, float(np.mean(ari))


def _mean(results: list[FitResult], *path: str) -> str:
    values: list[Any] = [r.scores for r in results]
    for key in path:
        values = [value[key] for value in values]
    return f"{np.mean(values):.3f}"


if __name__ == "__main__":
    main()
