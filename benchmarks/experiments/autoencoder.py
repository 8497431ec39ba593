"""Autoencoders of digits with an implicit encoder, by CI-VI and its rivals, beside an ordinary Gaussian one.

The paper has MNIST, Fashion-MNIST and text. Here are the 1,797 digits of scikit-learn (8 x 8 pixels), binary at half of
the grey scale. The dimensions, K2 and the constants of Adam but the steps are those of Table 4; hidden layers are half
as wide. Every method gets the best step of the same grid: that of the lowest -ELBO of the validation images after a run
of full length, since a step that is too large can fail late. The mathematics is in `autoencoder_gradients.py`.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from autoencoder_gradients import METHODS, Estimate, Fit, estimate, steps
from common import print_table, save
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.uncertainty.implicit import ImplicitOptions

N_TRAIN, N_VALIDATION = 1200, 197  # of 1,797 images; the others are the test
DIMENSIONS = 10
SETTINGS: dict[str, Any] = {
    "hidden": (100, 100),  # 200 in the paper, whose images have 784 pixels
    "noise_dimensions": 10,
    "pairs": 50,  # 300 in the paper, of 60,000 images
    "noises": 30,
    "tracked": 30,
    "chunk": 20,
    "limit": np.inf,
    "smoothing": 0.999,
    "momentum": 0.2,
}
GRID = {  # C_alpha of the encoder's network, of s and of the decoder
    "published": (1e-5, 1e-4, 5e-4),
    **{f"{step:g}": (step, step, step) for step in (3e-4, 1e-3, 3e-3)},
}
SPLIT_SEED, PILOT_SEED, DRAW_SEED = 0, 1000, 1
FAILED = 26.0  # nats; without any use of z a fit is at 25.3, and what is above has failed and leaves the picture
SHOWN = 6  # images in a row of the picture
CURVE_DRAWS = 100  # importance draws, and noises of the bound, of a point of a curve
COLOURS = dict(zip(METHODS, ("#0b6e99", "#d9711a", "#7b5ea7", "0.35", "#3a9c5f"), strict=True))
DASHES: dict[str, Any] = dict(
    zip(METHODS, ("-", (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)), (0, (3, 3)), (0, (5, 1.5))), strict=True)
)


class Images(NamedTuple):
    """Binary images (n, 64)."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@click.command()
@click.option("--iterations", default=1200, show_default=True, help="Of each run; 24 are an epoch.")
@click.option("--seeds", default=3, show_default=True, help="Number of runs of each method.")
@click.option("--draws", default=500, show_default=True, help="Importance draws of each test image.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, iterations: int, seeds: int, draws: int, output: Path) -> None:
    """Print likelihoods and milliseconds; write autoencoder.json and autoencoder.png."""
    began = time.process_time()
    images = digits()
    at = sorted({int(t) for t in np.geomspace(min(24, iterations), iterations, 8)})
    record: dict[str, Any] = {
        "iterations": iterations,
        "images": [len(part) for part in images],
        "draws": draws,
        "at": at,
        "methods": {},
    }
    kept: dict[str, Fit] = {}
    with single_threaded():
        for method in METHODS:
            record["methods"][method], kept[method] = _method(method, images, at, seeds=seeds, draws=draws)
            print(f"{method}: {time.process_time() - began:.0f} s of the processor until here", flush=True)
    _print(record)
    save(output, "autoencoder", record, _draw(record, kept["CI-VI"], images))
    print(f"{time.process_time() - began:.0f} s of the processor")


def digits() -> Images:
    """Return the images, the same split in all runs."""
    data = load_digits().data >= 8
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data))
    return Images(*np.split(data[order].astype(np.float32), [N_TRAIN, N_TRAIN + N_VALIDATION]))


def fits(method: str, train: np.ndarray, step: str, iterations: int, seed: int) -> Any:
    """Yield the fits of a method with a step of the grid."""
    network, covariance, decoder = GRID[step]
    options = ImplicitOptions(**SETTINGS, iterations=iterations, step=network, step_covariance=covariance)
    yield from steps(method, train, options=options, step_decoder=decoder, dimensions=DIMENSIONS, seed=seed)


def last(method: str, train: np.ndarray, step: str, iterations: int, seed: int) -> Fit:
    """Return the fit after the last iteration."""
    *_, found = fits(method, train, step, iterations, seed)
    return found


def score(fit: Fit, images: np.ndarray, draws: int) -> float:
    """-ELBO, mean over the images, from at most so many draws."""
    return float(estimate(fit, images, min(CURVE_DRAWS, draws), DRAW_SEED).neg_elbo.mean())


def _method(method: str, images: Images, at: list[int], *, seeds: int, draws: int) -> tuple[dict[str, Any], Fit]:
    """Find the step; then curves, seconds and likelihoods of some seeds, and the last fit of the first."""
    pilot = {
        name: score(last(method, images.train, name, at[-1], PILOT_SEED), images.validation, draws) for name in GRID
    }
    step = min(pilot, key=lambda name: (np.isnan(pilot[name]), pilot[name]))
    curves, seconds, final, first = [], [], [], None
    for seed in range(seeds):
        curve, spent = [], []
        for t, fit in enumerate(fits(method, images.train, step, at[-1], seed), 1):
            spent.append(fit.seconds)
            if t in at:
                curve.append(score(fit, images.test, draws))
        curves.append(curve)
        seconds.append(float(np.mean(spent)))
        final.append(_summary(estimate(fit, images.test, draws, DRAW_SEED)))
        first = first or fit
    return {"pilot": pilot, "step": step, "neg_elbo": curves, "seconds": seconds, "final": final}, first


def _summary(of: Estimate) -> dict[str, float]:
    """Means over the images; ``error`` is the standard error of the log likelihood's mean by the draws."""
    return {
        "log_likelihood": float(of.log_likelihood.mean()),
        "error": float(np.sqrt(of.variance.sum()) / len(of.variance)),
        "bias": float(0.5 * of.variance.mean()),
        "neg_elbo": float(of.neg_elbo.mean()),
        "gap": float((of.neg_elbo + of.log_likelihood).mean()),
        "effective": float(of.effective.mean()),
        "spread": float(of.spread.mean()),
    }


def _print(record: dict[str, Any]) -> None:
    def cell(found: dict[str, Any], name: str) -> str:
        values = [of[name] for of in found["final"]]
        return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"

    print_table(["-ELBO of the validation, pilot", *GRID], [
        [method, *(f"{value:.2f}" for value in found["pilot"].values())] for method, found in record["methods"].items()
    ])  # fmt: skip
    print()
    print_table(
        ["method", "step", "-ELBO of the test", "log likelihood", "its error, bias", "gap", "effective draws",
         "variance by e", "ms per iteration"],
        [
            [method, found["step"], cell(found, "neg_elbo"), cell(found, "log_likelihood"),
             f"{max(of['error'] for of in found['final']):.4f}, {max(of['bias'] for of in found['final']):.4f}",
             cell(found, "gap"), cell(found, "effective"), cell(found, "spread"),
             f"{1e3 * np.median(found['seconds']):.1f}"]
            for method, found in record["methods"].items()
        ],
    )  # fmt: skip
    print()
    epoch = SETTINGS["pairs"] / record["images"][0]
    print_table(
        ["-ELBO of the test, mean of the seeds, after epochs", *(f"{t * epoch:.0f}" for t in record["at"])],
        [
            [method, *(f"{value:.2f}" for value in np.mean(found["neg_elbo"], axis=0))]
            for method, found in record["methods"].items()
        ],
    )


def _draw(record: dict[str, Any], fit: Fit, images: Images) -> Figure:
    """-ELBO by epoch and by seconds, and what the decoder of CI-VI makes."""
    figure = Figure(figsize=(12, 4), layout="constrained")
    by_epoch, by_second, shown = figure.subplots(1, 3, gridspec_kw={"width_ratios": [1.15, 1.15, 1]})
    epoch = SETTINGS["pairs"] / record["images"][0]
    at = np.array(record["at"])
    all_curves = np.concatenate([found["neg_elbo"] for found in record["methods"].values()])
    bottom = np.nanmin(all_curves)
    for ax, label in ((by_epoch, "epoch"), (by_second, "seconds of the processor")):
        for method, found in record["methods"].items():
            x = at * (epoch if ax is by_epoch else np.median(found["seconds"]))
            curves, colour = np.array(found["neg_elbo"]), COLOURS[method]
            ax.plot(x, np.median(curves, axis=0), color=colour, linestyle=DASHES[method], linewidth=1.6, label=method)
            ax.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        ax.set(xscale="log", xlabel=label, ylim=(bottom - 0.4, FAILED))
        ax.grid(color="0.92", linewidth=0.6)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    by_epoch.set_ylabel("-ELBO of a test image, nats")
    by_epoch.legend(fontsize=8, frameon=False, handlelength=2.8)
    rows = {"test": images.test[:SHOWN], **_made(fit, images.test[:SHOWN])}
    sheet = np.full((9 * len(rows) - 1, 9 * SHOWN - 1), 0.5)
    for i, row in enumerate(rows.values()):
        for j, image in enumerate(row):
            sheet[9 * i : 9 * i + 8, 9 * j : 9 * j + 8] = image.reshape(8, 8)
    shown.imshow(sheet, cmap="gray_r", vmin=0, vmax=1)
    shown.set_xticks([])
    shown.set_yticks([9 * i + 3.5 for i in range(len(rows))], list(rows), fontsize=8)
    shown.tick_params(length=0)
    shown.set_title("CI-VI", fontsize=10)
    return figure


def _made(fit: Fit, images: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities of pixels given draws of the encoder for some images, and given draws of the prior."""
    rng = np.random.default_rng(DRAW_SEED)
    points = [fit.draw(images, 1, rng)[0][:, 0], rng.standard_normal((len(images), DIMENSIONS), dtype=np.float32)]
    logits = [fit.model.decoder.forward(fit.theta.decoder, z)[0] for z in points]
    return dict(zip(("reconstructed", "from the prior"), (0.5 * (1.0 + np.tanh(0.5 * x)) for x in logits), strict=True))


if __name__ == "__main__":
    main()
