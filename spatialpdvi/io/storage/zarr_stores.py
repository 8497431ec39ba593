"""Zarr stores in a folder, of formats 2 and 3: opened without running anything in them, made, and finished.

Zarr reads an array through the codecs that the store names. One of them, pickle, runs the contents of the store as a
program. Therefore the codecs of every array are checked before zarr opens it, and only codecs that are known to be
harmless are accepted.
"""

import itertools
import json
import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from spatialpdvi.io.storage.damage import reason_of
from spatialpdvi.io.storage.elements import encoding_type, is_array, is_hdf5
from spatialpdvi.io.storage.folders import entries
from spatialpdvi.io.storage.paths import is_node

__all__ = [
    "StoreError",
    "check_summary",
    "consolidate",
    "is_chunk",
    "make_store",
    "open_store",
    "quiet_zarr",
    "renew_summary",
    "whole",
    "writing_zarr",
]

_ARRAYS = {"zarr.json", ".zarray"}  # files that describe an array, in formats 3 and 2
_METADATA = {*_ARRAYS, ".zattrs", ".zgroup", ".zmetadata"}
_CODECS = {
    *("blosc", "bytes", "bz2", "crc32c", "endian", "gzip", "lz4", "lzma", "sharding_indexed", "shuffle", "transpose"),
    *("vlen-bytes", "vlen-utf8", "zlib", "zstd"),
}
_INNER = "blosc inside of another codec"  # where `CheckedStore` cannot check its chunks
_MOST_EMPTY = 1000  # chunks of zeros, which have no file, for each chunk that has one
_FEW = 1_000_000  # chunks that are looked up quickly
_TEXTS = {"vlen-bytes", "vlen-utf8"}
_OBJECTS = {"object", "pickle", "json2", "msgpack2", "vlen-array"}  # the first stands for no codec at all


class StoreError(ValueError):
    """What is wrong with a store: what was found in it, and what to do about it."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(f"{found}. {advice}")
        self.found, self.advice = found, advice


def open_store(folder: Path, *, writable: bool = False) -> Any:
    """Open a store and return its root group; each element is read from its own files.

    Consolidated metadata are not used: they may be out of date, and are not what is checked here.

    Raises
    ------
    StoreError
        Where it is no store, or has links, or codecs that are not known to be harmless.
    """
    import zarr

    from spatialpdvi.io.storage.zarr_chunks import CheckedStore

    if not is_node(folder):
        raise StoreError(*_no_group(folder))
    return zarr.open_group(
        CheckedStore(folder, read_only=not writable, blosc=_check_entries(folder)),
        mode="r+" if writable else "r",
        zarr_format=3 if (folder / "zarr.json").is_file() else 2,
        use_consolidated=False,
    )


def is_chunk(name: str) -> bool:
    """Whether a file of a store holds values; such a file is removed, never changed, when its array is replaced."""
    return name not in _METADATA


def make_store(folder: Path) -> Any:
    """Make a store in an empty folder, in the format that anndata writes, and return its root group."""
    import zarr
    from zarr.storage import LocalStore

    return zarr.open_group(LocalStore(folder), mode="w", zarr_format=_format(), use_consolidated=False)


def _format() -> Literal[2, 3]:
    """The format in which the installed anndata writes: 2 or 3."""
    import anndata

    # the setting is deprecated in anndata 0.13 and ends with 0.14, which writes format 3
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return 3 if getattr(anndata.settings, "zarr_write_format", 3) == 3 else 2


def consolidate(group: Any) -> None:
    """Consolidate the metadata of a store, as anndata does."""
    import zarr

    with quiet_zarr():
        zarr.consolidate_metadata(group.store, zarr_format=group.metadata.zarr_format)


def renew_summary(folder: Path) -> None:
    """Consolidate the metadata of a group anew, where they were consolidated before; only the summary is written."""
    import zarr
    from zarr.storage import LocalStore

    version = _summary_format(folder)
    if version is not None:
        with _other_files():
            zarr.consolidate_metadata(LocalStore(folder), zarr_format=version)


def check_summary(folder: Path) -> None:
    """Check that `renew_summary` will be able to read the metadata of everything in a group.

    Raises
    ------
    StoreError
        Where zarr cannot read some of them, because of damage or a codec that is not installed.
    """
    import zarr
    from zarr.storage import LocalStore

    version = _summary_format(folder)
    if version is None:
        return
    try:
        with _other_files():
            store = LocalStore(folder, read_only=True)
            group = zarr.open_group(store, mode="r", zarr_format=version, use_consolidated=False)
            for _ in group.members(max_depth=None):
                pass
    except MemoryError:
        raise
    # Whatever zarr raises here, it cannot read the metadata.
    except Exception as error:
        found = f"an element whose metadata cannot be read ({reason_of(error):.200})"
        raise StoreError(found, "Repair or remove it.") from error


def _summary_format(folder: Path) -> Literal[2, 3] | None:
    """The format of a group whose metadata are consolidated; None where they are not."""
    try:
        if (folder / "zarr.json").is_file():
            return 3 if json.loads((folder / "zarr.json").read_bytes()).get("consolidated_metadata") else None
    except (ValueError, AttributeError) as error:
        found = "damaged metadata in it (zarr.json)"
        raise StoreError(found, "Copy or download it again.") from error
    return 2 if (folder / ".zmetadata").is_file() else None


@contextmanager
def _other_files() -> Iterator[None]:
    """Hide the warning that parquet files, which hold points and shapes, are no zarr."""
    import zarr

    with quiet_zarr(), warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)
        yield


def whole(element: Any) -> Any:
    """Return the element itself after checking that no rows are missing, which cannot happen in an HDF5 file.

    In a zarr array, a chunk that is missing stands for zeros, but it may also have been lost. Rows of which all chunks
    are missing do not occur in the arrays of a section: coordinates, names, and the parts of sparse matrices.

    Raises
    ------
    ValueError
        Where rows are missing.
    """
    if is_hdf5(element):
        return element
    if is_array(element):
        _check_rows(element)
    elif encoding_type(element) == "nullable-string-array":  # names, as anndata writes them with pandas 3
        _check_rows(element["values"])
    elif encoding_type(element).startswith(("csr", "csc")) and element["data"].size:
        # a matrix of one column has no other column number than 0
        parts = ("data", "indptr") if min(element.attrs["shape"]) == 1 else ("data", "indices", "indptr")
        for name in parts:
            _check_rows(element[name])
    return element


@contextmanager
def writing_zarr() -> Iterator[None]:
    """Write every chunk, also one of zeros, so that a chunk that is missing has been lost (`whole`); without warnings.

    Zarr writes no chunk that holds nothing but zeros by default.
    """
    import zarr

    with quiet_zarr(), zarr.config.set({"array.write_empty_chunks": True}):
        yield


@contextmanager
def quiet_zarr() -> Iterator[None]:
    """Hide warnings of zarr and anndata that only concern programmers.

    They say that consolidated metadata are not part of format 3 yet (anndata writes them, and so do we), and that a
    later anndata will write shards by default.
    """
    import anndata

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part", UserWarning)
        if getattr(anndata.settings, "auto_shard_zarr_v3", False) is None:
            with anndata.settings.override(auto_shard_zarr_v3=False):
                yield
        else:
            yield


def _no_group(folder: Path) -> tuple[str, str]:
    if (folder / ".zarray").is_file():
        return "a zarr array and no group", "Write your data with AnnData.write_zarr."
    return "a folder that is no zarr store", "Name a file or a store, or write your data with AnnData.write_zarr."


def _check_entries(folder: Path) -> list[str]:
    """Paths of the arrays that blosc has compressed; raise an error for links, pipes and unknown codecs."""
    blosc = []
    for entry in entries(folder):
        place = Path(entry.path).relative_to(folder).as_posix()
        if entry.is_symlink():
            found = f"a link in it ({place})"
            raise StoreError(found, "Copy it with the files that links lead to (cp -rL).")
        if entry.is_file(follow_symlinks=False):
            if entry.name in _ARRAYS and "blosc" in _check_codecs(Path(entry.path), place):
                blosc.append(place.rpartition("/")[0])
        elif not entry.is_dir(follow_symlinks=False):
            found = f"a pipe or device in it ({place})"
            raise StoreError(found, "Copy or download it again.")
    return blosc


def _check_codecs(file: Path, place: str) -> set[str]:
    """The codecs of an array; none for a group."""
    try:
        described = json.loads(file.read_bytes())
        if described.get("node_type", "array") == "group":
            return set()
        codecs = set(_codecs_of(described))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        found = f"damaged metadata in it ({place})"
        raise StoreError(found, "Copy or download it again.") from error
    unknown = sorted(codecs - _CODECS)
    if unknown:
        array = place.rpartition("/")[0] or "the root"
        what = "an array of objects" if set(unknown) & _OBJECTS else f"an array with the unknown codec {unknown[0]!r}"
        found = f"{what} in it ({array})"
        raise StoreError(found, "Store numbers or texts in its place, or leave it out.")
    return codecs


def _codecs_of(described: dict[str, Any]) -> Iterator[str]:
    """Yield the names of an array's codecs, and ``object`` for an array of objects without a codec for texts."""
    if described["zarr_format"] == 3:
        *inner, last = _names(described["codecs"])
        yield from (_INNER if name == "blosc" else name for name in inner)
        yield last
        return
    filters = [_INNER if codec["id"] == "blosc" else codec["id"] for codec in described.get("filters") or ()]
    compressor = described.get("compressor")
    yield from filters
    if compressor is not None:
        yield compressor["id"]
    kinds = described["dtype"] if isinstance(described["dtype"], str) else json.dumps(described["dtype"])
    if "|O" in kinds and not _TEXTS & set(filters):
        yield "object"


def _names(codecs: Iterable[dict[str, Any] | str]) -> Iterator[str]:
    """Yield the names of codecs in format 3, also of those within shards."""
    for codec in codecs:
        if isinstance(codec, str):
            yield codec.removeprefix("numcodecs.")
            continue
        yield codec["name"].removeprefix("numcodecs.")
        settings = codec.get("configuration") or {}
        for inner in ("codecs", "index_codecs"):
            yield from _names(settings.get(inner) or ())


def _check_rows(array: Any) -> None:
    """Raise an error where all chunks of a row of chunks are missing."""
    if not array.size or not array.ndim:
        return
    folder = Path(array.store.root) / array.path
    sizes = array.shards or array.chunks
    counts = [-(-length // size) for length, size in zip(array.shape, sizes, strict=True)]
    _check_number(array, math.prod(counts), sum(1 for _ in entries(folder)))
    first, *others = map(range, counts)

    def is_there(row: int) -> bool:
        places = ((row, *columns) for columns in itertools.product(*others))
        return any((folder / array.metadata.encode_chunk_key(place)).is_file() for place in places)

    lost = sum(not is_there(row) for row in first)
    if lost:
        msg = f"{lost} of {len(first)} chunks of {array.path} are missing"
        raise ValueError(msg)


def _check_number(array: Any, n_chunks: int, n_files: int) -> None:
    """Raise an error for a shape that no array can have: looking for each of its chunks would never end."""
    if n_chunks > max(_FEW, _MOST_EMPTY * n_files):
        msg = f"{array.path} has the shape {array.shape}, but only {n_files:,} of its {n_chunks:,} chunks exist"
        raise ValueError(msg)
