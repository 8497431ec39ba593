"""What the drivers of peers share: their command line, counts, components, labels. Nothing of spatialpdvi's."""

import argparse
from pathlib import Path

import numpy as np
import scanpy as sc

__all__ = ["arguments", "components", "counts", "select", "write"]

GENES = 3_000
COMPONENTS = 30


def arguments(**flags: str) -> argparse.Namespace:
    """``SECTION LABELS --k --seed``, and ``flags``: the name of each with its help."""
    parser = argparse.ArgumentParser()
    parser.add_argument("section", type=Path)
    parser.add_argument("labels", type=Path, help="One label a line is written here.")
    parser.add_argument("--k", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    for name, text in flags.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    return parser.parse_args()


def counts(path: Path) -> sc.AnnData:
    """The section with its counts."""
    return sc.read_h5ad(path)


def select(section: sc.AnnData, n_genes: int = GENES) -> sc.AnnData:
    """The section with its highly variable genes alone, of counts (seurat_v3)."""
    if section.n_vars <= n_genes:
        return section
    sc.pp.highly_variable_genes(section, flavor="seurat_v3", n_top_genes=n_genes)
    return section[:, section.var["highly_variable"]].copy()


def components(section: sc.AnnData, *, seed: int) -> np.ndarray:
    """Counts to principal components: 3,000 genes, normalised, log1p, 30 components; shape (n_spots, 30)."""
    chosen = select(section)
    sc.pp.normalize_total(chosen)
    sc.pp.log1p(chosen)
    sc.pp.pca(chosen, n_comps=COMPONENTS, random_state=seed)
    return np.asarray(chosen.obsm["X_pca"])


def write(labels: np.ndarray, path: Path) -> None:
    """One label a line, in the order of the spots."""
    path.write_text("".join(f"{label}\n" for label in labels))
