"""Sections fitted together compared with each alone: ``python benchmarks/together.py A.h5ad B.h5ad --k 7``."""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from spatialpdvi import FitOptions, InputWarning, fit_file, fit_files

_CORRECTIONS = ("none", "center", "harmony")
HEADER = ("seed", "alone", *(f"`--correct {how}`" for how in _CORRECTIONS))


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--k", required=True, type=int, help="Number of domains.")
@click.option("--seeds", default=3, show_default=True)
def main(files: tuple[Path, ...], k: int, seeds: int) -> None:
    """Print one row per seed: the ARI of each section, fitted alone and together, and over the spots of all.

    FILES are sections with labels in obs["annotation"].
    """
    if len(files) < 2:
        msg = "Expected at least two FILES, found one."
        raise click.UsageError(msg)
    warnings.simplefilter("ignore", InputWarning)
    print(f"{', '.join(path.stem for path in files)}; K {k}.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    over_all = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            cells = [_alone(files, FitOptions(k=k, seed=seed), Path(folder))]
            together = [_together(files, FitOptions(k=k, seed=seed, correct=how), Path(folder)) for how in _CORRECTIONS]
            cells += [_cell(found["samples"]["ari"]) for found in together]
            over_all.append([found["ari"] for found in together])
            print(f"| {seed} | {' | '.join(cells)} |", flush=True)
    columns = list(zip(*over_all, strict=True))
    print(f"| over all | | {' | '.join(_cell(column) for column in columns)} |")
    print(f"| their mean | | {' | '.join(_cell([np.mean(column)]) for column in columns)} |")


def _alone(files: Sequence[Path], options: FitOptions, folder: Path) -> str:
    return _cell([fit_file(path, options, output=folder / "alone.h5ad").scores["ari"] for path in files])


def _together(files: Sequence[Path], options: FitOptions, folder: Path) -> dict[str, Any]:
    return fit_files(files, options, output=folder / "together").scores


def _cell(values: Sequence[float] | np.ndarray) -> str:
    return ", ".join(f"{value:.3f}" for value in values)


if __name__ == "__main__":
    main()
