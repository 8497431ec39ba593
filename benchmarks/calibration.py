"""Calibration of the posteriors on every labelled section, over seeds, and their entropy at borders.

Prints one row per section with means over seeds. *Border* spots have a neighbour of another domain in the graph of the
fit. The last columns compare the mean entropy of their calibrated posterior with that of all other spots.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import anndata as ad
import click
import numpy as np
from processes import changes, set_option
from sections import Section, chosen, sections

from spatialpdvi import FitOptions, InputWarning, fit_file
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.metrics.calibration import is_of_majority

HEADER = (
    "section",
    "accuracy",
    "ECE",
    "calibrated",
    "Brier",
    "calibrated",
    "log loss",
    "calibrated",
    "temperature",
    "at borders",
    "border entropy",
    "interior entropy",
    "ratio",
)
_LEAST = 1e-6  # keeps the log loss finite if a spot with a confidence of 1 is wrong


@click.command()
@click.option("--seeds", default=5, show_default=True)
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@set_option
def main(seeds: int, only: tuple[str, ...], changed: tuple[str, ...]) -> None:
    """Print one row per section and the mean over sections."""
    warnings.simplefilter("ignore", InputWarning)
    options = changes(changed, fixed=("k", "seed"))
    print(f"Seeds 0 to {seeds - 1}, {options or 'default settings'}.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for section in chosen(sections(), only):
            output = Path(folder) / "out.h5ad"
            rows.append(np.mean([_numbers(section, seed, options, output) for seed in range(seeds)], axis=0))
            _show(section.path.stem, rows[-1])
    _show("mean", np.mean(rows, axis=0))


def _show(name: str, values: np.ndarray) -> None:
    places = (3, 3, 3, 3, 3, 2, 2, 1, 2, 2, 2, 1)
    cells = [f"{value:.{n}f}" for value, n in zip(values, places, strict=True)]
    print(f"| {' | '.join([name, *cells])} |", flush=True)


def _numbers(section: Section, seed: int, options: dict[str, Any], output: Path) -> list[float]:
    own = FitOptions(k=section.k, seed=seed, **(section.options | options))
    result = fit_file(section.path, own, output=output)
    assert result.calibration is not None  # the default start has restarts
    codes = ad.read_h5ad(section.path, backed="r").obs["annotation"].astype("category").cat.codes.to_numpy()
    scored = codes >= 0
    correct = is_of_majority(result.domains[scored], codes[scored].astype(np.int64))
    brier, loss = zip(
        *(_proper(values[scored], correct) for values in (result.confidence, result.calibration.confidence)),
        strict=True,
    )
    scores = result.scores["calibration"]
    errors = (scores["ece"], scores["ece_calibrated"])
    return [scores["accuracy"], *errors, *brier, *loss, result.calibration.temperature, *_borders(result)]


def _proper(confidence: np.ndarray, correct: np.ndarray) -> tuple[float, float]:
    """Brier score and log loss of confidences (n,), given which spots are correct (n,)."""
    p = np.clip(confidence.astype(np.float64), _LEAST, 1.0 - _LEAST)
    return float(((p - correct) ** 2).mean()), float(-np.log(np.where(correct, p, 1.0 - p)).mean())


def _borders(result: FitResult) -> tuple[float, float, float, float]:
    """Share of spots at borders, mean entropy of the calibrated posterior there and elsewhere, and their ratio."""
    assert result.calibration is not None
    phi = result.calibration.posterior.astype(np.float64)
    entropy = -(phi * np.log(phi, out=np.zeros_like(phi), where=phi > 0)).sum(axis=1)
    edges = result.graph.tocoo()
    border = np.zeros(entropy.size, dtype=bool)
    border[edges.row[result.domains[edges.row] != result.domains[edges.col]]] = True
    at, elsewhere = float(entropy[border].mean()), float(entropy[~border].mean())
    return float(border.mean()), at, elsewhere, at / elsewhere


if __name__ == "__main__":
    main()
