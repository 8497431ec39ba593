"""The real sections that the benchmarks share, with the number of domains of each."""

import os
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PEERS", "Section", "sections"]

PCS = {"rep": "X_pca", "n_pcs": 15}


class Section(NamedTuple):
    """A labelled file with its number of domains and the options that it needs."""

    path: Path
    k: int
    options: dict[str, Any]


_K = {
    "dlpfc_151673": 7,
    "dlpfc_151676": 7,
    "dlpfc_151508_pca_only": 7,
    "dlpfc_151509_pca_only": 7,
    "dlpfc_151670_pca_only": 5,
    "dlpfc_151674_pca_only": 7,
    "her2st_H1": 6,
    "her2st_C1": 3,
    "her2st_D1": 3,
    "merfish_hypothalamus_m0.09": 8,
    "merfish_hypothalamus_m0.14_79g": 8,
    "merfish_hypothalamus_m0.24_75g": 8,
    "seqfish_mouse_embryo2_z2": 21,
    "st_mob_rep12": 4,
    "starmap_mpfc_BZ5": 4,
    "stereoseq_drosophila_E14_16h_a_S01": 5,
    "stereoseq_drosophila_E14_16h_a_S03": 5,
}


# highest mean ARI of any other tool that we measured on the file, with one setting per technology, and its name
PEERS = {
    "dlpfc_151673": (0.600, "GraphST, tied GMM, refined"),
    "dlpfc_151676": (0.508, "GraphST, tied GMM, refined"),
    "her2st_H1": (0.461, "tied GMM, averaged PCs"),
    "merfish_hypothalamus_m0.09": (0.575, "spatialleiden (7 domains)"),
    "starmap_mpfc_BZ5": (0.869, "NichePCA, k-means"),
}


def sections() -> list[Section]:
    """Real sections whose files exist."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SPATIALPDVI_DATA", default))
    all_of_them = (Section(folder / f"{name}.h5ad", k, PCS if "pca_only" in name else {}) for name, k in _K.items())
    found = [section for section in all_of_them if section.path.exists()]
    if not found:
        msg = f"Expected labelled sections in {folder}, found none. Set SPATIALPDVI_DATA to their folder."
        raise SystemExit(msg)
    return found
