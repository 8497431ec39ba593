"""Long one-dimensional HDF5 datasets read on all cores: HDF5 itself decompresses its chunks one after the other."""

import zlib
from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np

from spatialpdvi.threads import n_threads

__all__ = ["read_range"]

_FEW = 1 << 20  # values: fewer are read as soon by HDF5


def read_range(dataset: h5py.Dataset, start: int = 0, stop: int | None = None) -> np.ndarray:
    """Values ``dataset[start:stop]`` of a 1-D dataset.

    Chunks with no filters but gzip and shuffle are read as they lie in the file and decompressed side by side, which
    zlib does without holding the interpreter; all else is left to HDF5.
    """
    stop = dataset.shape[0] if stop is None else stop
    if stop - start < _FEW or n_threads() < 2 or not _is_plain_gzip(dataset):
        return np.asarray(dataset[start:stop])
    size = dataset.chunks[0]
    out = np.empty(stop - start, dtype=dataset.dtype)

    def load(first: int) -> None:
        unfiltered, stored = dataset.id.read_direct_chunk((first,))
        # a filter may have been skipped for a chunk when it was written
        values = dataset[first : first + size] if unfiltered else _decoded(stored, dataset)
        low, high = max(first, start), min(first + size, stop)
        out[low - start : high - start] = values[low - first : high - first]

    with ThreadPoolExecutor(n_threads()) as pool:
        for _ in pool.map(load, range(start - start % size, stop, size)):
            pass  # an exception of a chunk is raised here
    return out


def _is_plain_gzip(dataset: h5py.Dataset) -> bool:
    filters = {
        dataset.id.get_create_plist().get_filter(i)[0] for i in range(dataset.id.get_create_plist().get_nfilters())
    }
    known = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE}
    return (
        dataset.chunks is not None
        and h5py.h5z.FILTER_DEFLATE in filters
        and filters <= known
        and dataset.dtype.kind in "iuf"
        and dataset.id.get_num_chunks() == -(-dataset.shape[0] // dataset.chunks[0])  # none left unwritten
    )


def _decoded(stored: bytes, dataset: h5py.Dataset) -> np.ndarray:
    width = dataset.dtype.itemsize
    raw = np.frombuffer(zlib.decompress(stored, bufsize=dataset.chunks[0] * width), dtype=np.uint8)
    if dataset.shuffle:
        raw = np.ascontiguousarray(raw.reshape(width, -1).T).ravel()
    values = raw.view(dataset.dtype)
    if values.size != dataset.chunks[0]:
        msg = f"a chunk of {values.size} values where {dataset.chunks[0]} belong"
        raise ValueError(msg)
    return values
