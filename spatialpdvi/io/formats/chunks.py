"""Long one-dimensional arrays read on all cores: HDF5 itself decompresses its chunks one after the other."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import h5py
import numpy as np

from spatialpdvi.io.storage.elements import is_hdf5
from spatialpdvi.runtime.threads import n_threads

__all__ = ["read_range"]

_FEW = 1 << 20  # values: fewer are read as soon by HDF5


def read_range(dataset: Any, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Values ``dataset[start:stop]`` of a 1-D dataset of HDF5 or array of zarr.

    Zarr decompresses chunks side by side itself. Of HDF5 chunks with no filters but gzip and shuffle are read as they
    lie in the file and decompressed side by side, which zlib does without holding the interpreter; all else is left
    to HDF5.
    """
    stop = dataset.shape[0] if stop is None else stop
    if not is_hdf5(dataset) or stop - start < _FEW or n_threads() < 2 or not _is_plain_gzip(dataset):
        return np.asarray(dataset[start:stop])
    # asked once: h5py looks them up in the file each time
    size, shuffled = dataset.chunks[0], dataset.shuffle
    out = np.empty(stop - start, dtype=dataset.dtype)

    def load(first: int) -> None:
        unfiltered, stored = dataset.id.read_direct_chunk((first,))
        # a filter may have been skipped for a chunk when it was written
        values = dataset[first : first + size] if unfiltered else _decoded(stored, out.dtype, size, shuffled=shuffled)
        low, high = max(first, start), min(first + size, stop)
        out[low - start : high - start] = values[low - first : high - first]

    with ThreadPoolExecutor(n_threads()) as pool:
        for _ in pool.map(load, range(start - start % size, stop, size)):
            pass  # an exception of a chunk is raised here
    return out


def _is_plain_gzip(dataset: h5py.Dataset) -> bool:
    made = dataset.id.get_create_plist()
    filters = {made.get_filter(i)[0] for i in range(made.get_nfilters())}
    known = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE}
    return (
        dataset.chunks is not None
        and h5py.h5z.FILTER_DEFLATE in filters
        and filters <= known
        and dataset.dtype.kind in "iuf"
        and dataset.id.get_num_chunks() == -(-dataset.shape[0] // dataset.chunks[0])  # none left unwritten
    )


def _decoded(stored: bytes, kind: np.dtype, size: int, *, shuffled: bool) -> np.ndarray:
    """The ``size`` values of a chunk."""
    raw = np.frombuffer(zlib.decompress(stored, bufsize=size * kind.itemsize), dtype=np.uint8)
    if shuffled:
        raw = np.ascontiguousarray(raw.reshape(kind.itemsize, -1).T).ravel()
    values = raw.view(kind)
    if values.size != size:
        msg = f"a chunk of {values.size} values where {size} belong"
        raise ValueError(msg)
    return values
