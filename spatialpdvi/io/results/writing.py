"""Results into an h5ad, a zarr store or an AnnData, element by element; what is the user's stays as it is.

Arrays are stored without compression: posteriors and features in float32 shrink by a tenth only,
and gzip costs thirty times the time of writing them.
"""

import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from anndata import AnnData, ImplicitModificationWarning
from anndata.io import write_elem

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.converting import convert, converted_bytes
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.legacy import column_order, legacy_bytes, modernise, quiet
from spatialpdvi.io.formats.opening import opened
from spatialpdvi.io.storage import atomic
from spatialpdvi.io.storage.atomic import clear_errors, replacing, resolve
from spatialpdvi.io.storage.elements import is_hdf5
from spatialpdvi.io.storage.folders import copy_folder, replacing_folder
from spatialpdvi.io.storage.paths import table_path
from spatialpdvi.io.storage.temporary import reserve
from spatialpdvi.io.storage.zarr_stores import consolidate, is_chunk, make_store, open_store, quiet_zarr

__all__ = ["Pair", "apply_elements", "check_output", "write_elements", "write_store"]

Pair = tuple[str, str]  # group and key: ("obs", "pdvi_domain")

# All small headers of a fit in one block: its arrays then lie side by side, and what a second fit
# deletes is one gap that its own arrays fill (4 kB more per fit, instead of 12 to 20).
_META_BLOCK = 1 << 16  # bytes

# More than HDF5 spends on the headers of an element: groups, attributes, the heap of its texts (a kilobyte or so).
_HEADERS = 1 << 13  # bytes
_PER_SPOT = {"obs", "obsm", "obsp"}


def check_output(source_path: str | Path, output_path: str | Path, *, n_bytes: int = 0) -> None:
    """`spatialpdvi.io.storage.atomic.check_output`, for what `write_elements` makes of these paths."""
    source = table_path(source_path)
    atomic.check_output(source, output_path, n_bytes=n_bytes, as_store=_as_store(source, output_path))


def write_elements(
    source_path: str | Path,
    output_path: str | Path,
    elements: Mapping[Pair, Any],
    *,
    remove: Sequence[Pair] = (),
) -> None:
    """Write a copy of an AnnData on disk with some elements added, replaced or removed, all or nothing.

    The output is either what it was or the complete new file, whatever happens half-way: a full
    disk, Ctrl-C, a power cut. A link is followed and its target replaced; other hard links of the
    target keep the old contents.

    Parameters
    ----------
    source_path
        The h5ad or zarr store to copy; unchanged, unless the output is the same file.
    output_path
        Where to write: a zarr store where it ends in .zarr, an h5ad where it ends in .h5ad, else, and of the source
        itself, what the source is. Mode and owner of a file that is replaced are kept.
    elements
        Values by (group, key); those of ``obs`` have n values, of ``obsm`` and ``obsp`` n rows.
    remove
        Pairs to delete where they exist.
    """
    source, target = table_path(source_path), resolve(output_path)
    check_output(source, output_path, n_bytes=sum(map(_n_bytes, elements.values())))
    write = _write_store if _as_store(source, output_path) else _write_h5ad
    with clear_errors(output_path):
        write(source, target, elements, remove)


def write_store(target: Path, adata: AnnData) -> None:
    """Write a new zarr store, all or nothing."""
    with clear_errors(target), replacing_folder(target, target.parent) as temporary, quiet(), quiet_zarr():
        store = make_store(temporary)
        write_elem(store, "/", adata)
        consolidate(store)


def _as_store(source: Path, output_path: str | Path) -> bool:
    """Whether a zarr store is written, which is a folder."""
    target, ending = resolve(output_path), Path(output_path).suffix
    return ending == ".zarr" if ending in {".zarr", ".h5ad"} and target != resolve(source) else source.is_dir()


def _write_h5ad(source: Path, target: Path, elements: Mapping[Pair, Any], remove: Sequence[Pair]) -> None:
    with replacing(target, source) as temporary:
        # Open while it is copied: no other program writes to it meanwhile.
        with _checked(source, elements) as original:
            if is_hdf5(original):
                shutil.copyfile(source, temporary)
            else:
                reserve(temporary, converted_bytes(original))
                with h5py.File(temporary, "w") as copy, quiet(), quiet_zarr():
                    convert(original, copy)
        reserve(temporary, _growth(temporary, elements))
        with h5py.File(temporary, "r+", meta_block_size=_META_BLOCK) as file, quiet():
            modernise(file)
            _edit(file, elements, remove)


def _write_store(source: Path, target: Path, elements: Mapping[Pair, Any], remove: Sequence[Pair]) -> None:
    with replacing_folder(target, source) as temporary, quiet(), quiet_zarr():
        with _checked(source, elements) as original:
            if is_hdf5(original):
                convert(original, make_store(temporary))
            else:
                in_place = target == resolve(source)
                copy_folder(source, temporary, linked=lambda name: in_place and is_chunk(name))
        store = open_store(temporary, writable=True)
        _edit(store, elements, remove)
        consolidate(store)


@contextmanager
def _checked(source: Path, elements: Mapping[Pair, Any]) -> Iterator[Any]:
    with H5adSource(source) as original:
        _check_lengths(elements, original.n_obs, original.name)
    with opened(source) as file:
        yield file


def apply_elements(adata: AnnData, elements: Mapping[Pair, Any], *, remove: Sequence[Pair] = ()) -> None:
    """Do to an AnnData in memory what `write_elements` does to a file.

    Parameters
    ----------
    adata
        Changed in place; a view becomes an AnnData of its own.
    elements, remove
        As for `write_elements`.
    """
    _check_lengths(elements, adata.n_obs, "the AnnData")
    with warnings.catch_warnings():
        # Results are asked for in this very object: that a view is copied for it is meant.
        warnings.simplefilter("ignore", ImplicitModificationWarning)
        for (group, key), value in elements.items():
            getattr(adata, group)[key] = value
    for group, key in remove:
        if (group, key) not in elements and key in getattr(adata, group):
            del getattr(adata, group)[key]


def _edit(file: Any, elements: Mapping[Pair, Any], remove: Sequence[Pair]) -> None:
    # All deletions come first, so that HDF5 fills the room they leave instead of growing.
    for group, key in dict.fromkeys([*remove, *elements]):
        if group in file and key in file[group]:
            del file[group][key]
    for group, key in elements:
        _require_group(file, group)
        write_elem(file[group], key, elements[group, key])
    removed = {key for group, key in remove if group == "obs"}
    added = [key for group, key in elements if group == "obs"]
    _order_columns(file["obs"], added, removed)


def _require_group(file: Any, name: str) -> None:
    if name not in file:
        file.create_group(name).attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})


def _order_columns(obs: Any, added: Sequence[str], removed: set[str]) -> None:
    """Columns in their old order, new ones last: what is not in this list, anndata does not see."""
    old = column_order(obs)
    gone = removed - set(added)
    columns = [key for key in dict.fromkeys([*old, *added]) if key not in gone]
    if columns != old:
        obs.attrs["column-order"] = np.array(columns, dtype=h5py.string_dtype()) if is_hdf5(obs) else columns


def _check_lengths(elements: Mapping[Pair, Any], n_spots: int, name: str) -> None:
    for (group, key), value in elements.items():
        if group not in _PER_SPOT:
            continue
        n_rows = np.shape(value)[0]
        if n_rows != n_spots:
            msg = (
                f"Expected {name} to have the {n_rows:,} spots of {group}[{key!r}], "
                f"found {n_spots:,}. It has changed since it was read: run again."
            )
            raise InputError(msg)


def _n_bytes(value: Any) -> int:
    if isinstance(value, Mapping):
        return sum(map(_n_bytes, value.values()))
    if hasattr(value, "indptr"):
        return sum(int(part.nbytes) for part in (value.data, value.indices, value.indptr))
    return int(getattr(value, "nbytes", 0))


def _growth(path: Path, elements: Mapping[Pair, Any]) -> int:
    """Bytes by which a file grows, a generous estimate."""
    with h5py.File(path, "r") as file:
        old_tables = legacy_bytes(file)
    values = elements.values()
    return old_tables + sum(map(_n_bytes, values)) + _HEADERS * sum(map(_n_elements, values)) + 4 * _META_BLOCK


def _n_elements(value: Any) -> int:
    """Groups and arrays that a value is stored as."""
    if isinstance(value, Mapping):
        return 1 + sum(map(_n_elements, value.values()))
    return 4 if hasattr(value, "indptr") else 3 if hasattr(value, "categories") else 1
