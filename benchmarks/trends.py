"""ARI with trends left in and removed, on simulated sections whose molecules decay from left to right.

Each gene loses molecules at a rate of its own, the absolute value of a normal deviate: at the right end of the section
``exp(-rate)`` of them are left. All states lose them alike, so that this is a trend and no domain.
"""

import warnings

import anndata
import click
import numpy as np
import scipy.sparse as sp

from spatialpdvi import InputWarning, fit
from spatialpdvi.synthetic import simulate

RATES = (0.0, 0.5, 1.0, 2.0)


@click.command()
@click.option("--spots", default=5_000, show_default=True)
@click.option("--genes", default=3_000, show_default=True)
@click.option("--draws", default=3, show_default=True, help="Simulated sections, of 8 domains.")
@click.option("--seeds", default=2, show_default=True, help="Fits of each section.")
def main(spots: int, genes: int, draws: int, seeds: int) -> None:
    """Print one row for each rate of decay: means and ranges of the ARI, and how large trends are."""
    warnings.simplefilter("ignore", InputWarning)
    print(f"{draws} sections of {spots:,} spots x {genes:,} genes, K 8, 20 states, signal 1.5, {seeds} seeds each\n")
    print("| sd of the rates | trends left in | removed | part of the variance within states |")
    print("|---|---|---|---|")
    sections = [simulate(n_spots=spots, n_genes=genes, k=8, signal=1.5, seed=draw) for draw in range(draws)]
    for sd in RATES:
        found = np.array(
            [
                [_fitted(decayed(section, sd, seed=draw), seed, detrend=detrend) for detrend in (False, True)]
                for draw, section in enumerate(sections)
                for seed in range(seeds)
            ]
        )
        ari, sizes = found[..., 0], found[:, 1, 1]
        cells = [f"{own.mean():.3f} ({own.min():.3f} to {own.max():.3f})" for own in ari.T]
        print(f"| {sd} | {' | '.join(cells)} | {sizes.min():.1%} to {sizes.max():.1%} |", flush=True)


def decayed(section: anndata.AnnData, sd: float, *, seed: int) -> anndata.AnnData:
    """Return a copy of a section that has lost molecules, more from left to right."""
    rng = np.random.default_rng(seed)
    counts = sp.csr_matrix(section.X).tocoo()
    place = section.obsm["spatial"][:, 0]
    place = (place - place.min()) / np.ptp(place)
    rate = np.abs(rng.normal(0.0, sd, section.n_vars))
    kept = rng.binomial(counts.data.astype(np.int64), np.exp(-rate[counts.col] * place[counts.row]))
    lost = section.copy()
    lost.X = sp.csr_matrix((kept.astype(np.float32), (counts.row, counts.col)), counts.shape)
    lost.X.eliminate_zeros()
    return lost


def _fitted(section: anndata.AnnData, seed: int, *, detrend: bool) -> tuple[float, float]:
    result = fit(section, k=8, states=20, seed=seed, detrend=detrend)
    return result.scores["ari"], result.params["detrended"]


if __name__ == "__main__":
    main()
