"""Copy an AnnData from HDF5 to zarr or back: matrices block by block, all else element by element."""

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.errors import option
from spatialpdvi.io.storage.damage import reading
from spatialpdvi.io.storage.disk import disk_error
from spatialpdvi.io.storage.elements import (
    AS_ANNDATA,
    AS_DICT,
    column_order,
    encoding,
    encoding_type,
    is_array,
    is_group,
    is_hdf5,
    is_packed,
    read,
    read_column,
    write,
)
from spatialpdvi.io.storage.zarr_stores import whole
from spatialpdvi.runtime.rows import slices

__all__ = ["HEADER_BYTES", "check_convertible", "convert", "convert_some", "converted_bytes", "some_bytes"]

_CHUNK = 1 << 18  # values of a chunk that is written; one in float32 fits the cache of HDF5
_BLOCK = 1 << 23  # values that are copied at once
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
    target.attrs.update(encoding(source))
    for key in sorted(source):
        with _copying(source, key, _OWN_KIND):
            _copy_element(source[key], target, key)


def check_convertible(source: Any) -> None:
    """Check before hours of work that `convert` can read all elements; matrices and plain arrays are not read.

    Raises
    ------
    InputError
        Where an element is damaged or unknown.
    """
    for key in sorted(source):
        with _copying(source, key, _OWN_KIND):
            element = source[key]
            if _is_container(element):
                check_convertible(element)
            elif not _is_sparse(element) and not _is_plain(element):
                read(element)


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
    target.attrs.update(AS_ANNDATA)
    with _copying(source, "obs", _WHOLE):
        write(target, "obs", _read_table(source["obs"]))
    write(target, "var", pd.DataFrame(index=pd.Index([], dtype=object)))
    for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
        group = target.create_group(name)
        group.attrs.update(AS_DICT)
        for key in (key for of, key in pairs if of == name):
            if is_hdf5(source) and is_hdf5(target):
                source[name].copy(key, group, name=key)
            else:
                with _copying(source[name], key, _WHOLE):
                    _copy_element(source[name][key], group, key)


def _read_table(table: Any) -> pd.DataFrame:
    """Read a table column by column, which also reads those that anndata 0.7 and other languages write."""
    index = table.attrs["_index"]
    name = index.decode() if isinstance(index, bytes) else str(index)
    names = pd.Index(np.asarray(read_column(table, index)).astype(str), dtype=object)
    columns = {key: read_column(table, key) for key in column_order(table) if key in table}
    return pd.DataFrame(columns, index=names.rename(None if name == "_index" else name))


def some_bytes(source: Any, pairs: Collection[tuple[str, str]]) -> int:
    """Return a generous estimate of the bytes that `convert_some` writes; raise as it does."""
    return _bytes_of(source, "obs", _WHOLE) + sum(_bytes_of(source[group], key, _WHOLE) for group, key in pairs)


def _copying(source: Any, key: str, advice: str) -> AbstractContextManager[None]:
    """Raise an `InputError` with this advice where the block, which copies an element of the source, fails."""
    return reading(
        f"to copy {f'{source.name}/{key}'.lstrip('/')}",
        "a damaged or unknown element ({reason})",
        advice,
        unless=lambda error: disk_error(error, key),
    )


def converted_bytes(source: Any, advice: str = _OWN_KIND) -> int:
    """Return a generous estimate of the bytes of all elements without compression; errors end with the advice.

    Raises
    ------
    InputError
        Where an element is damaged.
    """
    if is_array(source):
        if source.shape is None:  # of None, which HDF5 stores without a shape
            return HEADER_BYTES
        itemsize = source.dtype.itemsize if source.dtype.kind in "biuf" else HEADER_BYTES // 64
        return int(np.prod(source.shape)) * itemsize + HEADER_BYTES
    return HEADER_BYTES + sum(_bytes_of(source, key, advice) for key in source)


def _bytes_of(source: Any, key: str, advice: str) -> int:
    with _copying(source, key, advice):
        return converted_bytes(source[key], advice)


def _copy_element(element: Any, target: Any, key: str) -> None:
    if _is_container(element):
        convert(element, target.create_group(key))
    elif _is_sparse(element):
        group = target.create_group(key)
        group.attrs.update(encoding(element) | {"shape": [int(length) for length in element.attrs["shape"]]})
        for name in ("data", "indices", "indptr"):
            _copy_array(whole(element)[name], group, name)
    elif _is_plain(element):
        _copy_array(element, target, key)
    else:
        write(target, key, read(element))


def _is_container(element: Any) -> bool:
    """Whether this is a group of elements."""
    return is_group(element) and encoding_type(element) in _CONTAINERS


def _is_sparse(element: Any) -> bool:
    """Whether this is a sparse matrix."""
    return is_group(element) and encoding_type(element).startswith(("csr", "csc"))


def _is_plain(element: Any) -> bool:
    """Whether this is an array of numbers, whose values are copied as they are."""
    is_known = is_array(element) and encoding_type(element) in {"", "array"}
    return bool(is_known and element.dtype.kind in "biuf" and element.ndim)


def _copy_array(source: Any, group: Any, key: str) -> None:
    chunks = _chunks_of(source.shape)
    if is_hdf5(group):
        packing = {"chunks": chunks, "compression": "gzip"} if is_packed(source) and source.size else {}
        copy = group.create_dataset(key, shape=source.shape, dtype=source.dtype, **packing)
    else:
        copy = group.create_array(key, shape=source.shape, dtype=source.dtype, chunks=chunks)
    copy.attrs.update(encoding(source))
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
    return slices(shape[0], step)
