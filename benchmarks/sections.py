"""The real sections that the benchmarks share, with the number of domains of each."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import anndata
import click
import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.section.counts import find_counts
from spatialpdvi.synthetic import simulate_file

__all__ = ["PEERS", "Section", "among", "chosen", "labelled", "parts", "sections", "simulated", "thinned"]

PCS = {"rep": "X_pca", "n_pcs": 15}
_FEWEST = 200  # spots of a part
_SMALLEST = 0.01  # of the spots: a label that fewer have is no domain of a part, or of a file of one's own


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


def labelled(paths: Sequence[Path]) -> list[Section]:
    """Files of one's own, labelled in `obs["annotation"]`; where a fit finds no counts, `obsm["X_pca"]` is fitted."""
    found = []
    for path in paths:
        with H5adSource(path) as source:
            try:
                find_counts(source, None, memory=0)
                options: dict[str, Any] = {}
            except InputError:
                options = PCS
        found.append(Section(path, _n_domains(anndata.read_h5ad(path, backed="r")), options))
    return found


def chosen(found: Iterable[Section], only: Sequence[str]) -> list[Section]:
    """The sections that `--only` names, or all of them where it names none."""
    found = list(found)
    names = among([section.path.stem for section in found], only)
    return [section for section in found if section.path.stem in names]


def among(names: Sequence[str], only: Sequence[str]) -> list[str]:
    """The names that `--only` has, or all of them where it has none."""
    unknown = [name for name in only if name not in names]
    if unknown:
        msg = f"Expected sections among {', '.join(names)}, found {', '.join(unknown)}."
        raise click.BadOptionUsage("--only", msg)
    return [name for name in names if not only or name in only]


def parts(section: Section, folder: Path) -> Iterator[Section]:
    """Parts of a section that are tissue of their own, written to a folder one by one.

    These are its four halves, a random half of its spots and, where it has counts, a random half of its molecules. A
    default that was chosen on whole sections can be checked on them. Those with too few spots or one domain are left
    out.
    """
    whole = anndata.read_h5ad(section.path)
    x, y = np.asarray(whole.obsm["spatial"], dtype=float)[:, :2].T
    rng = np.random.default_rng(0)
    chosen = {
        "left": x < np.median(x),
        "right": x >= np.median(x),
        "low": y < np.median(y),
        "high": y >= np.median(y),
        "spots": rng.random(whole.n_obs) < 0.5,
        "molecules": np.ones(whole.n_obs, dtype=bool),
    }
    for name, spots in chosen.items():
        part = whole[spots].copy()
        k = _n_domains(part)
        if part.n_obs < _FEWEST or k < 2:
            continue
        if name == "molecules":
            if section.options:  # components alone
                continue
            _thin(part, 0.5, rng)
        path = folder / f"{section.path.stem}.{name}.h5ad"
        part.write_h5ad(path)
        yield Section(path, k, section.options)


def thinned(section: Section, share: float, folder: Path) -> Iterator[Section]:
    """The section with a random share of its molecules, written to a folder; nothing where it is components alone."""
    if section.options:
        return
    part = anndata.read_h5ad(section.path)
    _thin(part, share, np.random.default_rng(0))
    path = folder / f"{section.path.stem}.{share:g}.h5ad"
    part[_counts(part).sum(axis=1).A1 > 0].write_h5ad(path)
    yield Section(path, section.k, section.options)


def simulated(n_spots: int, folder: Path, only: Sequence[str] = ()) -> Iterator[Section]:
    """Sections that are as hard as tissue, with 6 to 14 domains in two contrasts, written to a folder one by one."""
    settings = {f"simulated_{k}_{signal}": (k, signal) for k, signal in product((6, 10, 14), (1.5, 2.0))}
    wanted = among(list(settings), only)
    for seed, (name, (k, signal)) in enumerate(settings.items()):
        if name not in wanted:
            continue
        path = folder / f"{name}.h5ad"
        simulate_file(path, n_spots=n_spots, n_genes=2_000, k=k, signal=signal, seed=seed)
        yield Section(path, k, {})


def _n_domains(section: anndata.AnnData) -> int:
    share = section.obs["annotation"].value_counts() / section.n_obs
    return int((share >= _SMALLEST).sum())


def _counts(part: anndata.AnnData) -> sp.csr_matrix:
    return sp.csr_matrix(part.layers.get("counts", part.X))


def _thin(part: anndata.AnnData, share: float, rng: np.random.Generator) -> None:
    """Keep every molecule with a given probability."""
    counts = _counts(part)
    counts.data = rng.binomial(np.rint(counts.data).astype(np.int64), share).astype(np.float32)
    counts.eliminate_zeros()
    if "counts" in part.layers:
        part.layers["counts"] = counts
    else:
        part.X = counts
