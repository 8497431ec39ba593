"""How often intervals contain the truth, in simulated sections with fitted domains; and two sections of one tissue.

`coverage`: each replicate simulates a section, fits its domains, matches them to the true ones (the assignment with the
largest overlap) and counts how many intervals of domain means, contrasts and shares contain their true value. *Easy*
domains have a state each; *hard* ones are compositions of shared states with molecules that spread, and genes that
differ twice as much as by default, since fits find few of them otherwise. Two truths are compared: the expectation over
sections with the same domains (`expected`), and the mean of this section's own rates (`section`).

Where a fit has missed a domain, the assignment gives that domain to a fitted one that may have none of its spots.
`main` therefore compares each fitted domain with the expectation of the one that most of its spots are from, whether or
not another is compared with it too.

A gene counts in a domain if at least 10 of its molecules are expected there. A contrast needs both domains.
"""

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anndata as ad
import click
import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

import spatialpdvi as spv
from spatialpdvi import InputWarning
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.synthetic.truth import Truth, simulation_truth
from spatialpdvi.uncertainty.linear_response import Coupling
from spatialpdvi.uncertainty.methods import METHODS, Evidence, estimate
from spatialpdvi.uncertainty.tables import contrast_bounds, mean_bounds, share_bounds

SETTINGS: dict[str, dict[str, Any]] = {
    "easy": {"easy": True},
    "hard": {"easy": False, "signal": 2.0},
}
LEVELS = (0.5, 0.9, 0.95)
USUAL = tuple(name for name in METHODS if name != "implicit")  # which takes seconds for each gene
K_RANGE = (5, 6, 7, 8)
Z = {0.9: 1.6449, 0.95: 1.9600}  # quantiles of the normal distribution
FEWEST = 10.0  # expected molecules


class Replicate(NamedTuple):
    """A fitted section with its truth, domains in the order of the fit."""

    expression: Evidence
    composition: Evidence  # types of spots; in easy sections a domain has one
    truth: Truth
    match: np.ndarray  # (K,) the true domain of each fitted one
    main: np.ndarray  # (K,) the true domain of most of its spots
    jaccard: np.ndarray  # (K,) overlap with the match


@click.group()
def main() -> None:
    """Measure intervals of expression and composition."""
    warnings.simplefilter("ignore", InputWarning)


@main.command()
@click.option("--replicates", default=50, show_default=True, help="Of each setting.")
@click.option("--first", default=0, show_default=True, help="Seed of the first section.")
@click.option("--n-spots", default=2000, show_default=True)
@click.option("--genes", default=100, show_default=True, help="Of a section; hard ones have twice as many.")
@click.option("--tested", default=40, show_default=True, help="Genes whose intervals are counted.")
@click.option("--setting", "chosen", multiple=True, type=click.Choice(list(SETTINGS)), help="Default: all.")
@click.option("--method", "methods", multiple=True, type=click.Choice(list(METHODS)), help="Default: all but implicit.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write the numbers to this file.")
def coverage(
    *,
    replicates: int,
    first: int,
    n_spots: int,
    genes: int,
    tested: int,
    chosen: tuple[str, ...],
    methods: tuple[str, ...],
    path: Path | None,
) -> None:
    """Print a table of coverage and widths for each setting."""
    found = {}
    for setting in chosen or SETTINGS:
        rows: dict[str, list[dict[str, Any]]] = {method: [] for method in methods or USUAL}
        for seed in range(first, first + replicates):
            replicate = draw(setting, seed, n_spots=n_spots, n_genes=genes * (1 if setting == "easy" else 2))
            for method, own in rows.items():
                start = time.perf_counter()
                own.append(score(replicate, method, tested) | {"seconds": time.perf_counter() - start})
        found[setting] = {method: _average(own) for method, own in rows.items()}
        show(setting, replicates, found[setting])
        if path is not None:
            path.write_text(
                json.dumps({"replicates": replicates, "first": first, "n_spots": n_spots, "settings": found}, indent=1)
            )


@main.command()
@click.argument("paths", nargs=2, type=click.Path(exists=True, path_type=Path))
@click.option("--k", default=7, show_default=True)
@click.option("--tested", default=60, show_default=True, help="Genes: those with the most molecules in both sections.")
@click.option("--label-key", default="annotation", show_default=True, help="Domains are matched by these labels.")
@click.option("--method", "methods", multiple=True, type=click.Choice(list(METHODS)), help="Default: all but implicit.")
def sections(paths: tuple[Path, Path], *, k: int, tested: int, label_key: str, methods: tuple[str, ...]) -> None:
    """Say how often the contrasts of one section are in the intervals of another one, that of the next tissue.

    The interval of a difference between sections counts the variances of both. If these were all that there is, the
    interval of one section alone would contain the other's estimate less often: for equal variances, one of 90 % in
    75.5 % of cases. `between` is the standard deviation between sections, in log2, beside the intervals' own: the
    median square of the differences, less what the variances explain.
    """
    fitted = [ad.read_h5ad(path) for path in paths]
    labels = [sorted(section.obs[label_key].dropna().unique()) for section in fitted]
    if labels[0] != labels[1] or len(labels[0]) != k:
        msg = f"Expected {k} labels that both sections have, since K is {k}, found {labels[0]} and {labels[1]}."
        raise click.UsageError(msg)
    genes = fitted[0].var_names.intersection(fitted[1].var_names)
    genes = genes[~(genes.duplicated() | genes.str.upper().str.startswith("MT-"))]
    results = [spv.fit(section, k=k, seed=0, save_graph=True) for section in fitted]
    sums = [np.asarray(_counts(section, genes).sum(axis=0)).ravel() for section in fitted]
    chosen = genes[np.argsort(-np.minimum(*sums), kind="stable")[:tested]]
    print("| domains | method | 90 % of differences | 95 % | 90 % of one section alone | between | median width |")
    print("|---|---|---|---|---|---|---|")
    for what in ("annotated", "fitted"):
        for method in methods or USUAL:
            if what == "annotated" and method in {"linear-response", "implicit"}:
                continue  # known domains do not respond
            own = [
                _contrasts(section, result, chosen, label_key, method=method, what=what)
                for section, result in zip(fitted, results, strict=True)
            ]
            print(f"| {what} | {method} | {' | '.join(_compared(*own))} |", flush=True)


def _contrasts(
    section: ad.AnnData, result: FitResult, genes: pd.Index, label_key: str, *, method: str, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """Log2 fold changes and the halves of 90 % intervals between all pairs of labels, (pairs, genes) each."""
    counts = _counts(section, genes).toarray().astype(np.float64)
    totals = np.asarray(_counts(section).sum(axis=1)).ravel().astype(np.float64)
    labels = section.obs[label_key].astype("category").cat.remove_unused_categories()
    known = (labels.cat.codes >= 0).to_numpy()
    names = sorted(labels.cat.categories)
    true = labels.cat.set_categories(names).cat.codes.to_numpy().astype(np.int64)
    codes = section.obs["pdvi_domain"].cat.codes.to_numpy().astype(np.int64)
    posterior = section.obsm["pdvi_posterior"].astype(np.float64)
    calibrated = section.obsm["pdvi_posterior_calibrated"].astype(np.float64)
    k = posterior.shape[1]
    overlap = np.zeros((len(names), k))
    np.add.at(overlap, (true[known], codes[known]), 1)
    rows, match = linear_sum_assignment(-overlap)
    graph = sp.csr_matrix(section.obsp["pdvi_connectivities"])
    keep = np.arange(len(codes))
    if what == "annotated":
        keep, codes, match = np.flatnonzero(known), true, np.arange(len(names))
        posterior = calibrated = np.eye(len(names))[true]
    evidence = Evidence(
        values=counts[keep],
        exposure=totals[keep],
        codes=codes[keep],
        posterior=posterior[keep],
        calibrated=calibrated[keep],
        coordinates=np.asarray(section.obsm["spatial"], dtype=np.float64)[keep],
        sections=[np.arange(keep.size)],
        graph=graph,
        coupling=None if what == "annotated" else _coupling(result),
    )
    found = estimate(evidence, method)
    if found.block_size:
        print(f"<!-- {what}, {method}: blocks of {found.block_size} spots -->")
    pairs = [(int(match[a]), int(match[b])) for a in range(len(rows)) for b in range(a)]
    change, low, high = contrast_bounds(found, pairs, 0.9)
    return change, (high - low) / 2.0


def _counts(section: ad.AnnData, genes: pd.Index | None = None) -> sp.csr_matrix:
    """The counts where the fit found them, of these genes or of all."""
    where = section.uns["pdvi"]["params"]["counts"]
    held = section.raw.to_adata() if where == "raw.X" else section
    held = held if genes is None else held[:, genes]
    return sp.csr_matrix(held.layers[where.split("'")[1]] if where.startswith("layers") else held.X)


def _coupling(result: FitResult) -> Coupling | None:
    """How means respond to posteriors, for `linear-response`; None where domains share states, whose means are held."""
    if result.states is not None:
        return None
    features = np.asarray(result.features, dtype=np.float64)
    noise = 1.0 / result.hyperparameters.noise_sd**2
    return Coupling(features, result.domain_mean, result.log_variance, noise)


def _compared(first: tuple[np.ndarray, np.ndarray], second: tuple[np.ndarray, np.ndarray]) -> list[str]:
    """The cells of a row: how often differences are within the intervals, and what they leave over."""
    (a, half_a), (b, half_b) = first, second
    both = np.hypot(half_a, half_b)
    apart = np.abs(a - b)
    inside = (float((apart <= both * factor).mean()) for factor in (1.0, Z[0.95] / Z[0.9]))
    alone = np.mean([(apart <= half).mean() for half in (half_a, half_b)])
    left = np.median(apart**2) / 0.455 - np.median((both / Z[0.9]) ** 2)  # 0.455 is the median of a squared normal
    between = float(np.sqrt(max(left, 0.0)))
    return [*(f"{share:.3f}" for share in inside), f"{alone:.3f}", f"{between:.3f}", f"{np.median(2 * half_a):.3f}"]


def draw(setting: str, seed: int, *, n_spots: int, n_genes: int) -> Replicate:
    """Simulate and fit a section, and match its domains to the true ones."""
    k = K_RANGE[seed % len(K_RANGE)]
    arguments = {**SETTINGS[setting], "n_spots": n_spots, "n_genes": n_genes, "k": k, "seed": seed}
    section = spv.simulate(**arguments)
    truth = simulation_truth(**arguments)
    true = section.obs["annotation"].cat.codes.to_numpy().astype(np.int64)
    counts = section.X.toarray().astype(np.float64)
    result = spv.fit(section, k=k, seed=0, save_graph=True)
    overlap = np.zeros((k, k))
    np.add.at(overlap, (result.domains, true), 1)
    rows, match = linear_sum_assignment(-overlap)
    common = overlap[rows, match]
    jaccard = common / (overlap.sum(axis=1)[rows] + overlap.sum(axis=0)[match] - common)
    assert result.calibration is not None  # the default start has restarts
    expression = Evidence(
        values=counts,
        exposure=counts.sum(axis=1),
        codes=result.domains,
        posterior=result.posterior.astype(np.float64),
        calibrated=result.calibration.posterior.astype(np.float64),
        coordinates=np.asarray(section.obsm["spatial"]),
        sections=[np.arange(n_spots)],
        graph=result.graph,
        coupling=_coupling(result),
        seed=seed,
    )
    composition = expression._replace(values=_types(truth, seed), exposure=np.ones(n_spots), are_shares=True)
    return Replicate(expression, composition, truth, match, overlap.argmax(axis=1), jaccard)


def score(replicate: Replicate, method: str, tested: int) -> dict[str, Any]:
    """Return shares of intervals that contain the truth, and median widths, of one replicate."""
    truth, evidence = replicate.truth, replicate.expression
    found = estimate(evidence._replace(values=evidence.values[:, :tested]), method)
    k = evidence.n_groups
    exposure = np.bincount(evidence.codes, weights=evidence.exposure, minlength=k)
    pairs = [(a, b) for a in range(k) for b in range(a)]
    first, second = np.array(pairs).T
    row: dict[str, Any] = {"jaccard": replicate.jaccard.mean()}
    for name, own, match in (
        ("expected", truth.expected_mean, replicate.match),
        ("section", truth.section_mean, replicate.match),
        ("main", truth.expected_mean, replicate.main),
    ):
        mean = own[match][:, :tested] / 1e4
        log_truth, enough = np.log(mean), truth.expected_mean[match][:, :tested] / 1e4 * exposure[:, None] >= FEWEST
        both = enough[first] & enough[second]
        change = (log_truth[first] - log_truth[second]) / np.log(2.0)
        for level in LEVELS:
            row |= _counted(f"mean, {name}", level, mean_bounds(found, level), log_truth, enough)
            row |= _counted(f"contrast, {name}", level, contrast_bounds(found, pairs, level), change, both)
        _, low, high = mean_bounds(found, 0.9)
        inside = (low <= log_truth) & (log_truth <= high)
        for what, domains in (("matched", replicate.jaccard > 0.8), ("missed", replicate.jaccard < 0.6)):
            chosen = enough & domains[:, None]
            row[f"mean, {name}, {what}"] = float(inside[chosen].mean()) if chosen.any() else np.nan
    return row | _shares(replicate, method)


def _shares(replicate: Replicate, method: str) -> dict[str, float]:
    found = estimate(replicate.composition, method)
    row = {}
    for name, match in (("expected", replicate.match), ("main", replicate.main)):
        expected = replicate.truth.composition[match]
        for level in LEVELS:
            chosen = np.ones(expected.shape, dtype=bool)
            row |= _counted(f"share, {name}", level, share_bounds(found, level), expected, chosen)
    return row


def _counted(
    name: str, level: float, bounds: tuple[np.ndarray, ...], truth: np.ndarray, chosen: np.ndarray
) -> dict[str, float]:
    _, low, high = bounds
    inside = ((low <= truth) & (truth <= high))[chosen]
    return {f"{name}, {level}": float(inside.mean()), f"{name}, {level}, width": float(np.median((high - low)[chosen]))}


def _types(truth: Truth, seed: int) -> np.ndarray:
    """A type for each spot, drawn from its cells as one-hot rows (n, n_states): an annotation by cell type."""
    rng = np.random.default_rng([seed, 2])
    above = truth.cell_share.cumsum(axis=1) > rng.random((len(truth.cell_share), 1))
    return np.eye(truth.cell_share.shape[1])[above.argmax(axis=1)]


def _average(rows: list[dict[str, Any]]) -> dict[str, float]:
    # of a section without a domain of some kind, the share of such domains is NaN
    known = {name: [row[name] for row in rows if not np.isnan(row[name])] for name in rows[0]}
    return {name: float(np.mean(values)) if values else float("nan") for name, values in known.items()}


def show(setting: str, replicates: int, found: dict[str, dict[str, float]]) -> None:
    """Print the table of a setting."""
    jaccard = next(iter(found.values()))["jaccard"]
    print(f"\n{setting}: {replicates} sections, mean overlap (Jaccard) of fitted and true domains {jaccard:.2f}\n")
    print("| method | quantity | 50 % | 90 % | 95 % | median width of 90 % | seconds |\n|---|---|---|---|---|---|---|")
    for method, row in found.items():
        for name in _names(row):
            cells = [f"{row[f'{name}, {level}']:.3f}" for level in LEVELS]
            print(
                f"| {method} | {name} | {' | '.join(cells)} | {row[f'{name}, 0.9, width']:.3f} | {row['seconds']:.2f} |"
            )
    for method, row in found.items():
        parts = [f"{what} {row[f'mean, expected, {what}']:.3f}" for what in ("matched", "missed")]
        print(
            f"{method}: 90 % of means in domains with an overlap above .8 and below .6: {', '.join(parts)}", flush=True
        )


def _names(row: dict[str, float]) -> Iterator[str]:
    suffix = f", {LEVELS[0]}"
    return (name.removesuffix(suffix) for name in row if name.endswith(suffix))


if __name__ == "__main__":
    main()
