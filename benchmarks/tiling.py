"""Make large sections from a small one: thin copies side by side, written one at a time."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from anndata.io import read_elem, write_elem
from numpy.typing import NDArray

__all__ = ["tile"]

KEPT = 0.95  # share of the values that a copy keeps, drawn anew for each copy
_ACROSS = 4  # number of copies side by side in a row
_CHUNK = 1 << 17  # values in a chunk of the file
_LABELS = "annotation"


def tile(source: Path, target: Path, copies: int) -> None:
    """Write ``copies`` thin copies of ``source`` to ``target``, with one copy in memory at a time.

    Every copy, including the first, keeps 95 % of the values, so that spots have as many values in a section of any
    size. The copies do not touch: the gap between them is a fifth of the width of the section.
    """
    unfinished = target.with_suffix(".part")
    with h5py.File(source) as small, h5py.File(unfinished, "w") as large:
        large.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
        write_elem(large, "var", read_elem(small["var"]))
        obs = read_elem(small["obs"])[[_LABELS]]
        rows = np.tile(np.arange(len(obs)), copies)
        obs = obs.iloc[rows]
        obs.index = [f"spot{i}" for i in range(len(obs))]
        write_elem(large, "obs", obs)
        write_elem(large, "obsm", {"spatial": _beside(small["obsm/spatial"][()], copies)})
        for name in ("layers", "obsp", "varm", "varp", "uns"):
            write_elem(large, name, {})
        _copy_counts(small["X"], large.create_group("X"), copies)
    unfinished.rename(target)


def _beside(spatial: NDArray[np.float64], copies: int) -> NDArray[np.float64]:
    step = 1.2 * np.ptp(spatial, axis=0)
    return np.concatenate([spatial + step * divmod(copy, _ACROSS)[::-1] for copy in range(copies)])


def _copy_counts(small: Any, large: Any, copies: int) -> None:
    """Write the CSR matrix ``small`` below itself ``copies`` times, each copy thinned."""
    values, columns, start = small["data"][()], small["indices"][()], small["indptr"][()].astype(np.int64)
    spots, genes = (int(size) for size in small.attrs["shape"])
    large.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [spots * copies, genes]})
    how = {"shape": (0,), "maxshape": (None,), "chunks": (_CHUNK,), "compression": "gzip", "compression_opts": 1}
    data = large.create_dataset("data", dtype=values.dtype, **how)
    indices = large.create_dataset("indices", dtype=columns.dtype, **how)
    lengths, written = [np.zeros(1, np.int64)], 0
    for copy in range(copies):
        kept = np.random.default_rng(copy).random(values.size) < KEPT
        before = np.concatenate([[0], np.cumsum(kept)])
        lengths.append(written + before[start[1:]])
        total = written + int(before[-1])
        for dataset, array in ((data, values), (indices, columns)):
            dataset.resize((total,))
            dataset[written:total] = array[kept]
        written = total
    large.create_dataset("indptr", data=np.concatenate(lengths))
