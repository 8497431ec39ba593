"""Copy an AnnData from HDF5 to zarr or back: matrices block by block, all else element by element."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pandas as pd
from anndata.io import write_elem

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.storage.atomic import disk_error
from spatialpdvi.io.storage.elements import column_order, is_array, is_group, is_hdf5, is_packed, read, read_column
from spatialpdvi.io.storage.zarr_stores import whole

__all__ = ["HEADER_BYTES", "convert", "convert_some", "converted_bytes", "some_bytes"]

_CHUNK = 1 << 18  # values of a chunk that is written; one in float32 fits the cache of HDF5
_BLOCK = 1 << 23  # values that are copied at once
_ENCODING = ("encoding-type", "encoding-version")
_CONTAINERS = {"", "anndata", "dict", "raw"}  # groups of elements; all others are elements, which anndata knows
# more than HDF5 spends on the headers of an element, which are groups, attributes and its heap of texts (about 1 kB)
HEADER_BYTES = 1 << 13

_OWN_KIND = (
    f"Remove it, or choose an {option('output')} of the input's own kind (.h5ad or .zarr), for which nothing is "
    "converted."
)
_WHOLE = f"Remove it, or write the whole section: leave out {option('slim')}."


def convert(source: Any, target: Any) -> None:
    """Copy all elements of an AnnData into an empty group of the other kind.

    Compressed arrays stay compressed, in HDF5 by gzip.

    Raises
    ------
    InputError
        Where an element is damaged.
    """
    target.attrs.update({name: source.attrs[name] for name in _ENCODING if name in source.attrs})
    for key in sorted(source):
        _copy_checked(source, target, key, _OWN_KIND)


def convert_some(source: Any, target: Any, pairs: Collection[tuple[str, str]]) -> None:
    """Copy ``obs`` and some elements of an AnnData into an empty group, as an AnnData without genes.

    The group may be of either kind. From HDF5 to HDF5, elements other than ``obs`` are copied as they are, also those
    that anndata does not know.

    Parameters
    ----------
    source, target
        The root groups.
    pairs
        Group, such as ``obsm``, and key of each element.

    Raises
    ------
    InputError
        Where an element is damaged.
    """
    target.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    write_elem(target, "obs", _read_table(source["obs"]))
    write_elem(target, "var", pd.DataFrame(index=pd.Index([], dtype=object)))
    for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
        group = target.create_group(name)
        group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
        for key in (key for of, key in pairs if of == name):
            if is_hdf5(source) and is_hdf5(target):
                source[name].copy(key, group, name=key)
            else:
                _copy_checked(source[name], group, key, _WHOLE)


def _read_table(table: Any) -> pd.DataFrame:
    """Read a table column by column, which also reads those that anndata 0.7 and other languages write."""
    index = table.attrs["_index"]
    name = index.decode() if isinstance(index, bytes) else str(index)
    names = pd.Index(np.asarray(read_column(table, index)).astype(str), dtype=object)
    columns = {key: read_column(table, key) for key in column_order(table) if key in table}
    return pd.DataFrame(columns, index=names.rename(None if name == "_index" else name))


def some_bytes(source: Any, pairs: Collection[tuple[str, str]]) -> int:
    """Return a generous estimate of the bytes that `convert_some` writes."""
    return converted_bytes(source["obs"]) + sum(converted_bytes(source[group][key]) for group, key in pairs)


def _copy_checked(source: Any, target: Any, key: str, advice: str) -> None:
    try:
        _copy_element(source[key], target, key)
    except (InputError, MemoryError):
        raise
    # Whatever h5py, zarr or anndata raise here, the element is damaged, unless the disk has failed.
    except Exception as error:
        if disk_error(error, key) is not None:
            raise
        reason = (str(error).splitlines() or ["no reason"])[0].rstrip(".")
        found = f"a damaged or unknown element ({reason})"
        raise InputError(f"to copy {f'{source.name}/{key}'.lstrip('/')}", found, advice) from error


def converted_bytes(source: Any) -> int:
    """Return a generous estimate of the bytes of all elements without compression."""
    if is_array(source):
        itemsize = source.dtype.itemsize if source.dtype.kind in "biuf" else HEADER_BYTES // 64
        return int(np.prod(source.shape)) * itemsize + HEADER_BYTES
    return HEADER_BYTES + sum(converted_bytes(source[key]) for key in source)


def _copy_element(element: Any, target: Any, key: str) -> None:
    kind = str(element.attrs.get("encoding-type", ""))
    if is_group(element) and kind in _CONTAINERS:
        convert(element, target.create_group(key))
    elif is_group(element) and kind.startswith(("csr", "csc")):
        group = target.create_group(key)
        shape = [int(length) for length in element.attrs["shape"]]
        group.attrs.update({name: element.attrs[name] for name in _ENCODING} | {"shape": shape})
        for name in ("data", "indices", "indptr"):
            _copy_array(whole(element)[name], group, name)
    elif is_array(element) and kind in {"", "array"} and element.dtype.kind in "biuf" and element.ndim:
        _copy_array(element, target, key)
    else:
        write_elem(target, key, read(element))


def _copy_array(source: Any, group: Any, key: str) -> None:
    chunks = _chunks_of(source.shape)
    if is_hdf5(group):
        packing = {"chunks": chunks, "compression": "gzip"} if is_packed(source) and source.size else {}
        copy = group.create_dataset(key, shape=source.shape, dtype=source.dtype, **packing)
    else:
        copy = group.create_array(key, shape=source.shape, dtype=source.dtype, chunks=chunks)
    copy.attrs.update({name: source.attrs[name] for name in _ENCODING if name in source.attrs})
    for rows in _rows(source.shape, chunks[0]):
        copy[rows] = source[rows]


def _chunks_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a chunk of whole rows."""
    width = max(1, int(np.prod(shape[1:])))
    return max(1, min(shape[0], _CHUNK // width)), *(max(1, length) for length in shape[1:])


def _rows(shape: tuple[int, ...], chunk: int) -> Iterator[slice]:
    """Blocks of whole chunks; no chunk is in two blocks."""
    width = max(1, int(np.prod(shape[1:])))
    step = chunk * max(1, _BLOCK // (chunk * width))
    for first in range(0, shape[0], step):
        yield slice(first, min(first + step, shape[0]))
