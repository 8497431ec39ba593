"""Write results into an h5ad file, a zarr store or an AnnData, element by element; the user's own data stay.

Arrays are stored without compression: gzip makes posteriors and features in float32 only a tenth smaller, and takes
thirty times as long as writing them.
"""

import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData, ImplicitModificationWarning
from anndata.io import sparse_dataset

from spatialpdvi.errors import InputError, ResourceError, option
from spatialpdvi.io.formats.converting import (
    HEADER_BYTES,
    check_convertible,
    convert,
    convert_some,
    converted_bytes,
    some_bytes,
)
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.opening import opened
from spatialpdvi.io.results.keys import PER_SPOT, Keys
from spatialpdvi.io.storage.atomic import copy_content, replacing, shares_blocks
from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.elements import AS_DICT, column_order, is_hdf5, quiet, write
from spatialpdvi.io.storage.folders import can_link, copy_folder, entries, file_status, replacing_folder
from spatialpdvi.io.storage.outputs import check_ending, check_makes_files, check_space, check_writable
from spatialpdvi.io.storage.paths import AnyPath, Location, locate, resolve
from spatialpdvi.io.storage.temporary import reserve
from spatialpdvi.io.storage.zarr_stores import (
    StoreError,
    check_summary,
    consolidate,
    is_chunk,
    make_store,
    open_store,
    quiet_zarr,
    renew_summary,
    writing_zarr,
)

__all__ = [
    "Pair",
    "append_counts",
    "apply_elements",
    "check_output",
    "check_parts",
    "marker_columns",
    "new_store",
    "write_elements",
]

Pair = tuple[str, str]  # group and key: ("obs", "pdvi_domain")

# All small headers of a fit are in one block. Its arrays then lie side by side, and when a second fit deletes them,
# they leave one gap that its own arrays fill (4 kB more per fit, instead of 12 to 20).
_META_BLOCK = 1 << 16  # bytes

# bytes of a new file, generous
_SPOT_BYTES = 200  # for each spot, beside its counts: name, place, and where its counts begin
_FRAME_BYTES = 1 << 20  # headers and names of genes

_CHANGED = "It has changed since it was read: run again."

# counts are small: most of their bytes are zeros, which shuffling brings together
_PACKED = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def check_output(
    source_path: AnyPath, output_path: AnyPath, *, n_bytes: int = 0, only: Collection[Pair] | None = None
) -> None:
    """Check before hours of work that `write_elements` can write a copy of the source to the output.

    Parameters
    ----------
    source_path
        The h5ad file or zarr store to copy.
    output_path
        Where to write it; it may be the source itself, or a link.
    n_bytes
        The bytes that are added to the copy, as far as they are known.
    only
        As for `write_elements`.

    Raises
    ------
    InputError
        Where it cannot.
    """
    source, target = _located(source_path, output_path)
    is_store = _as_store(source, target)
    try:
        copied = _copied_bytes(source, target, only)
    except OSError as error:
        problem = f"The input {source.given!r} is no longer there or not readable."
        raise ResourceError(problem, "Put it back, then run again.") from error
    if target.real == source.real and target.spatialdata is not None:
        _check_store(target)
    else:
        check_writable(target, as_store=is_store)
        if target.path.suffix != source.path.suffix:
            check_ending(target, "output")
    is_copy = source.kind == "file" and not is_store and only is None
    if is_copy and shares_blocks(source.path, target.real.parent):
        copied = 0
    check_space(target.spatialdata or target, copied + n_bytes)


def _copied_bytes(source: Location, target: Location, only: Collection[Pair] | None) -> int:
    """The bytes that a copy of the source takes, or a generous estimate where its elements are written anew."""
    is_store = _as_store(source, target)
    if only is None and (is_store or source.kind != "folder"):
        # when a store is replaced by itself, its files are not copied
        return 0 if is_store and target.real == source.real else file_status(source.table())[0]
    with opened(source.table()) as original:
        return _new_bytes(original, only)


def _new_bytes(original: Any, only: Collection[Pair] | None) -> int:
    """A generous estimate of the bytes of elements that are written anew, without compression."""
    return converted_bytes(original) if only is None else some_bytes(original, only)


def check_parts(source: H5adSource, path: Location, target: Location, only: Collection[Pair] | None) -> None:
    """Check before hours of work that what `write_elements` copies can be read, as far as it has to be.

    Parameters
    ----------
    source, path
        The section, open, and where it is.
    target
        What will be written.
    only
        As for `write_elements`.

    Raises
    ------
    InputError
        Where an element is damaged or unknown.
    """
    is_file, is_store = is_hdf5(source.root), _as_store(path, target)
    if only is None:
        if is_file == is_store:
            with quiet():
                check_convertible(source.root)
        return
    for key in source.obs_keys():
        source.obs(key)
    if is_file and not is_store:
        return  # elements are copied as they are
    read = {"obsm": source.obsm, "obsp": source.obsp, "uns": source.uns}
    for group, key in only:
        read[group](key)


def write_elements(
    source_path: AnyPath,
    output_path: AnyPath,
    elements: Mapping[Pair, Any],
    *,
    remove: Sequence[Pair] = (),
    only: Collection[Pair] | None = None,
    spots: bytes | None = None,
) -> None:
    """Write a copy of an AnnData on disk with some elements added, replaced or removed, all or nothing.

    Whatever happens half-way (a full disk, Ctrl-C, a power cut), the output is either what it was or the complete new
    file. A link is followed and its target replaced; other hard links of the target keep the old contents.

    Parameters
    ----------
    source_path
        The h5ad file or zarr store to copy; unchanged, unless the output is the same file.
    output_path
        Where to write a zarr store if it ends in .zarr, or an h5ad file if it ends in .h5ad. If it has another ending,
        which must be that of the source, what is written is of the source's kind. A file that is replaced keeps its
        mode and owner.
    elements
        Values by (group, key); those of ``obs`` have n values, of ``obsm`` and ``obsp`` n rows.
    remove
        Pairs to delete where they exist.
    only
        Elements of the source that the copy has beside ``obs``, and no genes; by default the copy has everything.
    spots
        The `H5adSource.digest` of the source when it was read, if the elements are only right for those spots.

    Raises
    ------
    InputError
        Where the output cannot be written, or the source has changed since it was read.
    """
    source, target = _located(source_path, output_path)
    only = None if only is None else [pair for pair in only if pair not in {*remove, *elements}]
    check_output(source, target, n_bytes=sum(map(_n_bytes, elements.values())), only=only)
    if target.real == source.real and target.spatialdata is not None:
        with clear_errors(target):
            _write_table(source, target, elements, remove, spots)
        return
    write_copy = _write_store if _as_store(source, target) else _write_h5ad
    with clear_errors(target):
        write_copy(source, target, elements, remove, only, spots=spots)


def marker_columns(table: pd.DataFrame, keys: Keys, of: str) -> dict[Pair, Any]:
    """Return a table of marker genes of domains or states (``of``) as it is stored, as columns of equal length."""
    return {("uns", keys.markers_of(of)): {name: table[name].to_numpy() for name in table}}


@contextmanager
def new_store(output: AnyPath, *, n_spots: int, n_values: int, value_bytes: int) -> Iterator[Any]:
    """Open a new h5ad file, or a zarr store where the output ends in .zarr, which gets its name when it is complete.

    Parameters
    ----------
    output
        An existing file or store is replaced in the end, or left as it is where an error is raised.
    n_spots, n_values
        Spots and counts that will be written, at most. An `OSError` says that the disk has no room for such an h5ad
        file.
    value_bytes
        What a count and its column take in it, at most.
    """
    location = locate(output)
    target = resolve(location)
    if location.path.suffix == ".zarr":  # what a link leads to may have any name
        with replacing_folder(target, target.parent) as temporary, quiet(), writing_zarr():
            store = make_store(temporary)
            yield store
            consolidate(store)
        return
    with replacing(target, target.parent) as temporary:
        reserve(temporary, value_bytes * n_values + _SPOT_BYTES * n_spots + _FRAME_BYTES)
        with h5py.File(temporary, "w") as file:
            yield file


def append_counts(store: Any, counts: sp.csr_matrix, *, n_values: int) -> None:
    """Append rows to ``X`` of an open file or store, or begin it; it will have at most ``n_values`` values in all."""
    kind = np.int32 if n_values < np.iinfo(np.int32).max else np.int64  # of row pointers, which count all values
    counts.indptr = counts.indptr.astype(kind, copy=False)
    if "X" in store:
        sparse_dataset(store["X"]).append(counts)
    else:
        write(store, "X", counts, **(_PACKED if is_hdf5(store) else {}))


def _located(source_path: AnyPath, output_path: AnyPath) -> tuple[Location, Location]:
    """Return where source and output are; a SpatialData store that is both stands for its only table."""
    source, target = locate(source_path), locate(output_path)
    if source.real != target.real:
        return source, target
    source = source.only_table()
    return source, source


def _check_store(table: Location) -> None:
    """Check that a table of a SpatialData store can be updated where it is."""
    store, instead = table.spatialdata, f"Write the table to a file of its own, with {option('output')}."
    assert store is not None
    check_makes_files(store.parent, table.given)
    if not os.access(store, os.W_OK):
        raise InputError(f"the SpatialData store {str(store)!r} to be writable", "it write-protected", instead)
    expected = f"to write into the SpatialData store {str(store)!r}"
    for entry in entries(store):
        is_link = entry.is_symlink()
        if is_link or not (entry.is_file() or entry.is_dir()):
            found = f"{'a link' if is_link else 'a pipe or device'} in it ({Path(entry.path).relative_to(store)})"
            raise InputError(expected, found, instead)
    try:
        check_summary(store)
    except StoreError as error:
        raise InputError(expected, error.found, instead) from error
    if not can_link(store.parent):
        problem = f"The disk of {str(store)!r} gives no file two names, so that images would have to be copied."
        raise ResourceError(problem, instead)


def _as_store(source: Location, target: Location) -> bool:
    """Whether a zarr store is written, which is a folder."""
    ending = target.path.suffix
    return ending == ".zarr" if ending in {".zarr", ".h5ad"} and target.real != source.real else source.kind == "folder"


def _write_h5ad(
    source: Location,
    target: Location,
    elements: Mapping[Pair, Any],
    remove: Sequence[Pair],
    only: Collection[Pair] | None,
    *,
    spots: bytes | None,
) -> None:
    with replacing(target.real, source.table()) as temporary:
        # Open while it is copied, so that no other program writes to it meanwhile.
        with _checked(source, elements, spots) as original:
            if is_hdf5(original) and only is None:
                copy_content(source.path, temporary)
            else:
                reserve(temporary, _new_bytes(original, only))
                with h5py.File(temporary, "w") as copy, quiet(), quiet_zarr():
                    _convert(original, copy, only)
        reserve(temporary, _growth(elements))
        with h5py.File(temporary, "r+", meta_block_size=_META_BLOCK) as file, quiet():
            _edit(file, elements, remove)


def _write_store(
    source: Location,
    target: Location,
    elements: Mapping[Pair, Any],
    remove: Sequence[Pair],
    only: Collection[Pair] | None,
    *,
    spots: bytes | None,
) -> None:
    with replacing_folder(target.real, source.table()) as temporary, quiet(), writing_zarr():
        with _checked(source, elements, spots) as original:
            if is_hdf5(original) or only is not None:
                _convert(original, make_store(temporary), only)
            else:
                in_place = target.real == source.real
                copy_folder(source.table(), temporary, linked=lambda place: in_place and is_chunk(place.name))
        store = open_store(temporary, writable=True)
        _edit(store, elements, remove)
        consolidate(store)


def _convert(original: Any, copy: Any, only: Collection[Pair] | None) -> None:
    if only is None:
        convert(original, copy)
    else:
        convert_some(original, copy, only)


def _write_table(
    source: Location, target: Location, elements: Mapping[Pair, Any], remove: Sequence[Pair], spots: bytes | None
) -> None:
    """Write into a table of a SpatialData store, by a new folder for the store in which all else has a second name."""
    store = target.spatialdata
    assert store is not None
    table = target.real.relative_to(store)

    def is_linked(place: Path) -> bool:
        in_table = place.is_relative_to(table)
        # the summaries of the metadata, which are written anew, lie in the folders that hold the table
        return is_chunk(place.name) if in_table or place.parent in table.parents else True

    with replacing_folder(store, store) as temporary, quiet(), writing_zarr():
        with _checked(source, elements, spots):
            copy_folder(store, temporary, linked=is_linked, never_copied=True)
        _edit(open_store(temporary / table, writable=True), elements, remove)
        for folder in (table, *table.parents):
            renew_summary(temporary / folder)


@contextmanager
def _checked(source: Location, elements: Mapping[Pair, Any], spots: bytes | None) -> Iterator[Any]:
    """The open root of the source, which has as many spots as the elements, and those of the digest if it is given."""
    with H5adSource(source) as original:
        _check_lengths(elements, original.n_obs, original.name)
        if spots is not None and original.digest() != spots:
            raise InputError(f"{original.name} to have the spots that were read, in their order", "others", _CHANGED)
        yield original.root


def apply_elements(adata: AnnData, elements: Mapping[Pair, Any], *, remove: Sequence[Pair] = ()) -> None:
    """Add, replace and remove elements of an AnnData in memory, as `write_elements` does in a file.

    Parameters
    ----------
    adata
        Changed in place; a view becomes an AnnData of its own.
    elements, remove
        As for `write_elements`.
    """
    _check_lengths(elements, adata.n_obs, "the AnnData")
    with warnings.catch_warnings():
        # The results are wanted in this very object, so a view has to be copied.
        warnings.simplefilter("ignore", ImplicitModificationWarning)
        for (group, key), value in elements.items():
            getattr(adata, group)[key] = value
    for group, key in remove:
        if (group, key) not in elements and key in getattr(adata, group):
            del getattr(adata, group)[key]


def _edit(file: Any, elements: Mapping[Pair, Any], remove: Sequence[Pair]) -> None:
    # All deletions come first, so that HDF5 fills the gaps that they leave instead of growing.
    for group, key in dict.fromkeys([*remove, *elements]):
        if group in file and key in file[group]:
            del file[group][key]
    for group, key in elements:
        _require_group(file, group)
        write(file[group], key, elements[group, key])
    removed = {key for group, key in remove if group == "obs"}
    added = [key for group, key in elements if group == "obs"]
    _order_columns(file["obs"], added, removed)


def _require_group(file: Any, name: str) -> None:
    if name not in file:
        file.create_group(name).attrs.update(AS_DICT)


def _order_columns(obs: Any, added: Sequence[str], removed: set[str]) -> None:
    """Keep the columns in their old order, with new ones last; anndata ignores columns that are not listed."""
    old = column_order(obs)
    gone = removed - set(added)
    columns = [key for key in dict.fromkeys([*old, *added]) if key not in gone]
    if columns != old:
        obs.attrs["column-order"] = np.array(columns, dtype=h5py.string_dtype()) if is_hdf5(obs) else columns


def _check_lengths(elements: Mapping[Pair, Any], n_spots: int, name: str) -> None:
    for (group, key), value in elements.items():
        if group not in PER_SPOT:
            continue
        n_rows = np.shape(value)[0]
        if n_rows != n_spots:
            raise InputError(
                f"{name} to have the {n_rows:,} spots of {group}[{key!r}]",
                f"{n_spots:,}",
                _CHANGED,
            )


def _n_bytes(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_n_bytes, value.values()))
    if hasattr(value, "indptr"):
        return sum(int(part.nbytes) for part in (value.data, value.indices, value.indptr))
    return int(getattr(value, "nbytes", 0))


def _growth(elements: Mapping[Pair, Any]) -> int:
    """A generous estimate of the bytes by which a file grows."""
    values = elements.values()
    return sum(map(_n_bytes, values)) + HEADER_BYTES * sum(map(_n_elements, values)) + 4 * _META_BLOCK


def _n_elements(value: Any) -> int:
    """The number of groups and arrays that a value is stored as."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_n_elements, value.values()))
    return 4 if hasattr(value, "indptr") else 3 if hasattr(value, "categories") else 1
