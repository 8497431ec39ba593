"""Write a sample to a new h5ad file or zarr store, block by block, all or nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import anndata as ad
import h5py
import numpy as np
from anndata.io import write_elem

from spatialpdvi.binning.external_sort import RowBlock
from spatialpdvi.binning.sample import Sample
from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import clear_errors, replacing
from spatialpdvi.io.storage.elements import is_hdf5
from spatialpdvi.io.storage.folders import replacing_folder
from spatialpdvi.io.storage.paths import AnyPath, resolve
from spatialpdvi.io.storage.temporary import reserve
from spatialpdvi.io.storage.zarr_stores import consolidate, make_store, quiet_zarr

__all__ = ["UNS_KEY", "Written", "write_sample"]

UNS_KEY = "binning"
_VALUE_BYTES = 8  # a count and its column
_SPOT_BYTES = 200  # generous: name, place, and where its counts begin
_HEADERS = 1 << 20  # bytes
_EMPTY = ("layers", "obsp", "varm", "varp")
# counts are small: most of their bytes are zeros, which shuffling brings together
_PACKED = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


class Written(NamedTuple):
    """The size of a sample that was written."""

    n_spots: int
    n_genes: int
    n_values: int


def write_sample(output: AnyPath, sample: Sample, facts: Mapping[str, Any], *, name: str) -> Written:
    """Write counts in ``X`` (CSR int32), ``obs``, ``var``, ``obsm['spatial']`` and ``uns['binning']``.

    Parameters
    ----------
    output
        A zarr store where it ends in .zarr, else an h5ad file; an existing one is replaced.
    sample
        Its blocks are read here.
    facts
        For ``uns['binning']``, in addition to those of the sample.
    name
        The name of the input in messages.
    """
    with clear_errors(output), _new_store(output, sample.n_values) as store:
        n_spots, n_values = _write_spots(store, sample, name)
        table = sample.genes().table()
        write_elem(store, "var", table)
        write_elem(store, "uns", {UNS_KEY: {**sample.facts(), **facts}})
        for key in _EMPTY:
            write_elem(store, key, {})
        store.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    return Written(n_spots, len(table), n_values)


@contextmanager
def _new_store(output: AnyPath, n_values: int) -> Iterator[Any]:
    target = resolve(output)
    if target.suffix == ".zarr":
        with replacing_folder(target, target.parent) as temporary, quiet_zarr():
            store = make_store(temporary)
            yield store
            consolidate(store)
        return
    with replacing(target, target.parent) as temporary:
        reserve(temporary, n_values * (_VALUE_BYTES + _SPOT_BYTES // 8) + _HEADERS)
        with h5py.File(temporary, "w") as file:
            yield file


def _write_spots(store: Any, sample: Sample, name: str) -> tuple[int, int]:
    """Write counts, names and places block by block; return the numbers of spots and values."""
    n_spots = n_values = 0
    for block in sample.blocks():
        counts, obs = _with_long_rows(block, sample.n_values), sample.obs(block.rows)
        spatial = sample.places(block.rows)
        if not n_spots:
            write_elem(store, "X", counts, dataset_kwargs=_PACKED if is_hdf5(store) else {})
            write_elem(store, "obs", obs, dataset_kwargs=_growing(store, 1))
            write_elem(store, "obsm", {"spatial": spatial}, dataset_kwargs=_growing(store, 2))
        else:
            ad.io.sparse_dataset(store["X"]).append(counts)
            table = store["obs"]
            _append(table[str(table.attrs["_index"])], obs.index.to_numpy())
            for column in obs:
                _append(table[column], obs[column].to_numpy())
            _append(store["obsm"]["spatial"], spatial)
        n_spots += block.rows.size
        n_values += counts.nnz
    if not n_spots:
        raise InputError(
            f"molecules in {name}",
            "none in any spot",
            "Check that this is the right file.",
        )
    return n_spots, n_values


def _growing(store: Any, n_axes: int) -> dict[str, Any]:
    """The options that make arrays of HDF5 extensible; arrays of zarr always are."""
    return {"maxshape": (None,) * n_axes} if is_hdf5(store) else {}


def _append(array: Any, values: np.ndarray) -> None:
    before = array.shape[0]
    array.resize((before + len(values), *array.shape[1:]))
    array[before:] = values


def _with_long_rows(block: RowBlock, n_values: int) -> Any:
    """The counts, with row pointers of a type that can count all values of the matrix."""
    kind = np.int32 if n_values < np.iinfo(np.int32).max else np.int64
    block.counts.indptr = block.counts.indptr.astype(kind, copy=False)
    return block.counts
