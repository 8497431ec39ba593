"""Coarser domains of a finer fit compared with a direct fit of as many domains: ``python benchmarks/levels.py``.

Each real section is fitted with the annotated number of domains and with one, two and four more, which `spatialpdvi
label levels` unites to the annotated number. One seed.
"""

import warnings

import anndata
import click
import numpy as np
from sections import chosen, sections

import spatialpdvi as spv

MORE = (1, 2, 4)
HEADER = ("section", "K", "direct fit", *(f"level from {more} more" for more in MORE))


@click.command()
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@click.option("--seed", default=0, show_default=True)
def main(only: tuple[str, ...], seed: int) -> None:
    """Print a row of ARIs for each section, and their means."""
    warnings.simplefilter("ignore", spv.InputWarning)
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    rows = []
    for section in chosen(sections(), only):
        found = []
        for more in (0, *MORE):
            adata = anndata.read_h5ad(section.path)
            spv.fit(adata, k=section.k + more, seed=seed, **section.options)
            if more:
                spv.label(adata, spv.Levels([section.k]))
            key = f"pdvi_domain_L{section.k}" if more else "pdvi_domain"
            found.append(spv.evaluate(adata, label_key="annotation", domain_key=key)["ari"])
        rows.append(found)
        print(f"| {section.path.stem} | {section.k} | {_cells(found)} |", flush=True)
    print(f"| mean | | {_cells(np.mean(rows, axis=0))} |")


def _cells(values: list[float] | np.ndarray) -> str:
    direct, *levels = values
    return " | ".join([f"{direct:.3f}", *(f"{level:.3f} ({level - direct:+.3f})" for level in levels)])


if __name__ == "__main__":
    main()
