"""Command line, counts, components and labels, shared by the drivers of other tools; uses nothing of spatialpdvi."""

import argparse
from pathlib import Path

import numpy as np
import scanpy as sc

__all__ = ["arguments", "components", "counts", "select", "write"]

GENES = 3_000
COMPONENTS = 30


def arguments(**flags: str) -> argparse.Namespace:
    """Parse ``SECTION LABELS --k --seed`` and the switches in ``flags``, which maps names to help texts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("section", type=Path)
    parser.add_argument("labels", type=Path, help="Output file, one label per line.")
    parser.add_argument("--k", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    for name, text in flags.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    return parser.parse_args()


def counts(path: Path) -> sc.AnnData:
    """Read the section with its counts."""
    return sc.read_h5ad(path)


def select(section: sc.AnnData, n_genes: int = GENES) -> sc.AnnData:
    """Restrict the section to its highly variable genes, chosen from counts (seurat_v3)."""
    if section.n_vars <= n_genes:
        return section
    sc.pp.highly_variable_genes(section, flavor="seurat_v3", n_top_genes=n_genes)
    return section[:, section.var["highly_variable"]].copy()


def components(section: sc.AnnData, *, seed: int) -> np.ndarray:
    """Principal components (n_spots, 30) of the counts: 3,000 genes, normalised, log1p."""
    chosen = select(section)
    sc.pp.normalize_total(chosen)
    sc.pp.log1p(chosen)
    sc.pp.pca(chosen, n_comps=COMPONENTS, random_state=seed)
    return np.asarray(chosen.obsm["X_pca"])


def write(labels: np.ndarray, path: Path) -> None:
    """Write one label per line, in the order of the spots."""
    path.write_text("".join(f"{label}\n" for label in labels))
