"""Domains carried from large bins to small ones and to a million cells: seconds, peak memory, and agreement."""

import sys
import tempfile
import warnings
from pathlib import Path

import click
from processes import apart, describe_machine, run

__all__ = ["agreement", "make_cells", "table"]

_SIDE = 5  # small bins along a side of a large one
_DEPTH = 50.0  # molecules of a small bin, on average


def make_cells(folder: Path, n_bins: int, n_cells: int, k: int) -> None:
    """Write a fit of a square of bins with smooth random posteriors, and cells at random places of it.

    Parameters
    ----------
    folder
        Where ``bins.h5ad`` and ``cells.h5ad`` are written.
    n_bins
        About as many bins.
    n_cells, k
        Numbers of cells and of domains.
    """
    import numpy as np
    import pandas as pd
    from anndata import AnnData
    from scipy.ndimage import gaussian_filter

    rng, side = np.random.default_rng(0), round(n_bins**0.5)
    fields = np.stack([gaussian_filter(rng.normal(size=(side, side)), side / 25) for _ in range(k)], axis=-1)
    score = 8.0 * fields.reshape(-1, k) / fields.std()
    posterior, calibrated = (np.exp(part - part.max(axis=1, keepdims=True)) for part in (score, score / 3))
    axis = 100.0 * (np.arange(side) + 0.5)
    bins = AnnData(shape=(side * side, 1))
    bins.obsm["spatial"] = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    bins.obs["pdvi_domain"] = pd.Categorical.from_codes(posterior.argmax(axis=1), [str(i) for i in range(k)])
    for ending, values in (("", posterior), ("_calibrated", calibrated)):
        phi = (values / values.sum(axis=1, keepdims=True)).astype(np.float32)
        bins.obsm[f"pdvi_posterior{ending}"] = phi
        bins.obs[f"pdvi_confidence{ending}"] = phi.max(axis=1)
    bins.uns["pdvi"] = {"params": {"k": k}, "certificate": {"converged": True}, "trace": {}, "scores": {}}
    bins.write_h5ad(folder / "bins.h5ad")
    cells = AnnData(shape=(n_cells, 1))
    cells.obsm["spatial"] = rng.uniform(-100, 100.0 * side + 100, size=(n_cells, 2))
    cells.write_h5ad(folder / "cells.h5ad")


def agreement(n_bins: int, n_genes: int, k: int, seed: int) -> dict[str, float]:
    """Fit the large bins of a simulated section, and give the ARI of its small bins with their true domains.

    Parameters
    ----------
    n_bins
        About as many large bins, each of 25 small ones.
    n_genes, k, seed
        Of the simulation.

    Returns
    -------
    dict
        The share of small bins ``inside`` a large one that have its domain with ``borders="spots"``, and the ARI by how
        the small bins got their domains.
    """
    import numpy as np
    import scipy.sparse as sp
    from anndata import AnnData

    import spatialpdvi as spv
    from spatialpdvi.errors import InputWarning
    from spatialpdvi.metrics.clustering import adjusted_rand_index

    small = spv.simulate(n_spots=n_bins * _SIDE**2, n_genes=n_genes, k=k, seed=seed, depth=_DEPTH)
    step = np.diff(np.unique(small.obsm["spatial"][:, 0])).min()
    lattice = np.rint(small.obsm["spatial"] / step).astype(int) // _SIDE
    corners, of = np.unique(lattice, axis=0, return_inverse=True)
    of = of.ravel()
    members = sp.csr_matrix((np.ones(of.size), (of, np.arange(of.size))))
    large = AnnData(sp.csr_matrix(members @ small.X), var=small.var)
    large.obsm["spatial"] = (corners * _SIDE + (_SIDE - 1) / 2) * step
    model = spv.fit(large, k=k, seed=seed).model
    truth = small.obs["annotation"]
    found: dict[str, float] = {}
    for borders in ("spots", "smooth"):
        spv.transfer(large, small, borders=borders)
        found[borders] = adjusted_rand_index(truth, small.obs["pdvi_domain"])
        if borders == "spots":
            own = small.obs["pdvi_domain"].to_numpy() == large.obs["pdvi_domain"].to_numpy()[of]
            found["inside"] = float(own.mean())
    # There are warnings that small bins differ from the large ones, and that neighbours among them are hardly alike
    with warnings.catch_warnings(action="ignore", category=InputWarning):
        spv.predict(small, model=model)
        found["predict"] = adjusted_rand_index(truth, small.obs["pdvi_domain"])
        spv.fit(small, k=k, seed=seed)
    found["fit"] = adjusted_rand_index(truth, small.obs["pdvi_domain"])
    return found


def table(n_bins: int, n_cells: int, k: int) -> list[str]:
    """Return the lines of a table of seconds and memory, measured on one thread."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        apart(make_cells, folder, n_bins, n_cells, k)
        lines = ["| borders | cells | seconds | CPU seconds | peak memory |", "|---|---|---|---|---|"]
        for borders in ("spots", "smooth"):
            command = [
                sys.executable,
                "-m",
                "spatialpdvi",
                "transfer",
                folder / "bins.h5ad",
                "--to",
                folder / "cells.h5ad",
                "-q",
            ]
            cost = run([*command, "--borders", borders, "-o", folder / "out.h5ad"], threads=1)
            if cost.failure:
                raise SystemExit(cost.failure)
            peak = f"{cost.peak_bytes / 1e9:.2f} GB"
            lines.append(f"| {borders} | {n_cells:,} | {cost.seconds:.0f} | {cost.cpu_seconds:.0f} | {peak} |")
    return lines


@click.command()
@click.option("--n-bins", default=160_000, show_default=True, help="Bins of the fit from which cells take domains.")
@click.option("--n-cells", default=1_000_000, show_default=True, help="Cells.")
@click.option("--k", default=20, show_default=True, help="Domains.")
@click.option("--seeds", default=3, show_default=True, help="Simulated sections on which domains are compared.")
def main(n_bins: int, n_cells: int, k: int, seeds: int) -> None:
    """Print both tables."""
    print(f"{apart(describe_machine)}, one thread; K {k}.\n")
    print("\n".join(table(n_bins, n_cells, k)))
    print("\nARI of small bins of 50 molecules with their true domains; 25 in each of 1,000 large bins, K 8.\n")
    print("| seed | inside: share that agrees | spots | smooth | predict | own fit |\n|---|---|---|---|---|---|")
    for seed in range(seeds):
        found = apart(agreement, 1_000, 500, 8, seed)
        shown = [f"{found[name]:.3f}" for name in ("spots", "smooth", "predict", "fit")]
        print(f"| {seed} | {found['inside']:.3f} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
