"""Coarser domains of a finer fit compared with a direct fit of as many domains: ``python benchmarks/levels.py``.

Each real section is fitted with the annotated number of domains and with four more, which `spatialpdvi label levels`
unites to the annotated number. One seed.
"""

import warnings

import anndata
import click
import numpy as np
from sections import sections

import spatialpdvi as spv

MORE = 4
HEADER = ("section", "K", "direct fit", f"fit with {MORE} more", "its level at K", "difference")


@click.command()
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@click.option("--seed", default=0, show_default=True)
def main(only: tuple[str, ...], seed: int) -> None:
    """Print a row of ARIs for each section, and their means."""
    warnings.simplefilter("ignore", spv.InputWarning)
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    rows = []
    for section in sections():
        if only and section.path.stem not in only:
            continue
        direct, fine = (anndata.read_h5ad(section.path) for _ in range(2))
        spv.fit(direct, k=section.k, seed=seed, **section.options)
        spv.fit(fine, k=section.k + MORE, seed=seed, **section.options)
        spv.label(fine, spv.Levels([section.k]))
        found = [
            spv.evaluate(adata, label_key="annotation", domain_key=key)["ari"]
            for adata, key in ((direct, "pdvi_domain"), (fine, "pdvi_domain"), (fine, f"pdvi_domain_L{section.k}"))
        ]
        rows.append([*found, found[2] - found[0]])
        print(f"| {section.path.stem} | {section.k} | {_cells(rows[-1])} |", flush=True)
    if rows:
        print(f"| mean | | {_cells(np.mean(rows, axis=0))} |")


def _cells(values: list[float] | np.ndarray) -> str:
    *scores, difference = values
    return " | ".join([*(f"{value:.3f}" for value in scores), f"{difference:+.3f}"])


if __name__ == "__main__":
    main()
