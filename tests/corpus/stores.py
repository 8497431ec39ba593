"""Zarr stores that have lost something, lie, or hold programs: nothing in them is ever unpickled."""

import functools
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import anndata as ad
import numcodecs
import numpy as np
import zarr
from zarr_samples import FORMATS, chunks_of, lose, metadata_of, write_spatialdata, write_zarr

from corpus.cases import FIT, OK, REFUSED, Case, Contents, flipped, outcome, section

LINE = ("fit", "in.zarr", *FIT[2:])
MATRIX = ("X/data", "X/indices", "X/indptr")
ELEMENTS = ("", "X", *MATRIX, "obs", "obs/_index", "obs/annotation", "obs/annotation/codes", "var", "var/_index")
ELEMENTS = (*ELEMENTS, "obs/annotation/categories", "obsm", "obsm/spatial")
Change = Callable[[Path], object]


class Trap:
    """Says that it was unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch trapped",)


def store_cases() -> Iterator[Case]:
    """All of them, in both formats."""
    for version in FORMATS:
        for family in (_lost, _chunks, _metadata, _whole):
            yield from family(version)
    yield from _objects()


def _fit(
    name: str, version: int, change: Change, codes: frozenset[int], *, line: tuple[str, ...] = LINE, same: bool = False
) -> Case:
    def make(folder: Path) -> None:
        write_zarr(folder / "in.zarr", section(), version)
        change(folder / "in.zarr")

    return Case(f"zarr {version}: {name}", make, line, codes, same)


def _rewrite(element: str, **changes: object) -> Change:
    """Fields of an element's metadata changed; None removes one."""

    def change(store: Path) -> None:
        path = metadata_of(store, element)
        content = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return change


def _lost(version: int) -> Iterator[Case]:
    for element in ELEMENTS:
        gone = lambda store, element=element: metadata_of(store, element).unlink()  # noqa: E731
        yield _fit(f"no metadata of {element or 'the root'}", version, gone, REFUSED)
        for number, content in enumerate(("", "[]", "3", "{}", "null", "[" * 10**5, '{"zarr_format": 9}', "\udcff")):

            def broken(store: Path, element: str = element, content: str = content) -> None:
                metadata_of(store, element).write_bytes(content.encode("utf-8", "surrogateescape"))

            if number % 4 == len(element) % 4 or not element:
                yield _fit(f"metadata {number} of {element or 'the root'}", version, broken, REFUSED)
        if element:
            without = lambda store, element=element: lose(store, element)  # noqa: E731
            yield _fit(f"without {element}", version, without, REFUSED)
    if version == 2:
        for element in ("", "X", "obs", "var", "obsm"):
            bare = lambda store, element=element: (store / element / ".zattrs").unlink(missing_ok=True)  # noqa: E731
            needed = element in {"X", "obs", "var"}  # a matrix or a table is known by its attributes
            codes = REFUSED if needed else OK
            yield _fit(f"no attributes of {element or 'the root'}", version, bare, codes, same=not needed)


def _chunks(version: int) -> Iterator[Case]:
    ways: dict[str, Callable[[Path], object]] = {
        "missing": Path.unlink,
        "cut": lambda path: path.write_bytes(path.read_bytes()[:-5]),
        "empty": lambda path: path.write_bytes(b""),
        "of something else": lambda path: path.write_bytes(b"\x93NUMPY" * 9),
        "a pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
        "a folder": lambda path: (path.unlink(), path.mkdir()),
        "a link out": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
        "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    }
    for array in (*MATRIX, "obsm/spatial", "obs/_index", "var/_index", "obs/annotation/codes"):
        for how, way in ways.items():
            change = lambda store, array=array, way=way: way(chunks_of(store, array)[0])  # noqa: E731
            # lost chunks of a column stand for zeros, and nobody can tell; labels are for scores alone
            unseen = "annotation" in array and how in {"missing", "a folder"}
            yield _fit(f"a chunk of {array} {how}", version, change, OK if unseen else REFUSED, same=unseen)
    for seed in range(25):

        def turned(store: Path, seed: int = seed) -> None:
            files = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)
            path = files[seed * 7 % len(files)]
            path.write_bytes(flipped(seed)(bytearray(path.read_bytes())))

        case = _fit(f"bits flipped {seed}", version, turned, frozenset())
        yield case._replace(decide=functools.partial(_by_what_zarr_reads, version=version))


def _read_zarr(store: Path) -> Contents:
    found: Contents = {}
    for name in ELEMENTS[1:]:
        try:
            element = zarr.open(store, path=name, mode="r")
            value = element[()] if isinstance(element, zarr.Array) else None
            attributes = sorted((key, str(one)) for key, one in element.attrs.items())
            found[name] = f"{attributes} {'' if value is None else (value.dtype, value.tolist())}"
        except Exception:  # noqa: BLE001 (whatever the library says of damage)
            found[name] = None
    return found


def _by_what_zarr_reads(folder: Path, *, version: int) -> tuple[frozenset[int], bool]:
    whole = folder.parent / "whole.zarr"
    write_zarr(whole, section(), version)
    before = _read_zarr(whole)
    shutil.rmtree(whole)
    codes, same = outcome(before, _read_zarr(folder / "in.zarr"), ("X", "obs/_index", "var/_index", "obsm/spatial"))
    return (OK | REFUSED if codes is OK else codes), same  # metadata that zarr does not look at are checked too


def _metadata(version: int) -> Iterator[Case]:
    for array in ("X/data", "X/indptr", "obsm/spatial", "obs/_index"):
        for shape in ([10**12], [0], [-1], [3], [81, 10**9], "wide", [1.5], [], [2**63]):
            yield _fit(f"{array} of shape {shape}", version, _rewrite(array, shape=shape), REFUSED)
        for kind in ("float16x", "|O", "object", "int128", 3, [["a", "|O"]], "<M8[ns]"):
            # texts are objects in format 2, with a codec of their own
            right = (version, array, kind) == (2, "obs/_index", "|O")
            change = _rewrite(array, **_typed(version, kind))
            yield _fit(f"{array} of type {kind}", version, change, OK if right else REFUSED, same=right)
        for chunks in ([0], [-1], [10**15], "all", []):
            field = {"chunks": chunks} if version == 2 else {"chunk_grid": _grid(chunks)}
            yield _fit(f"{array} in chunks of {chunks}", version, _rewrite(array, **field), REFUSED)
        for codec in ("pickle", "json2", "msgpack2", "unheard_of", "", "../../x", 3, None):
            yield _fit(f"{array} by {codec}", version, _rewrite(array, **_coded(version, codec)), REFUSED)
    yield _fit("a fill value that is a program", version, _rewrite("X/data", fill_value="__import__('os')"), REFUSED)
    # format 2 has its attributes in a file of their own
    codes = OK if version == 2 else REFUSED
    yield _fit("attributes that are a list", version, _rewrite("X", attributes=[1]), codes, same=version == 2)


def _typed(version: int, kind: object) -> dict[str, object]:
    return {"dtype": kind} if version == 2 else {"data_type": kind}


def _grid(chunks: object) -> dict[str, object]:
    return {"name": "regular", "configuration": {"chunk_shape": chunks}}


def _coded(version: int, codec: object) -> dict[str, object]:
    if version == 2:
        return {"filters": [{"id": codec}] if codec != "" else [{}]}
    return {"codecs": [{"name": f"numcodecs.{codec}" if isinstance(codec, str) else codec, "configuration": {}}]}


def _whole(version: int) -> Iterator[Case]:
    """Stores that are in order, or odd as a whole."""
    nothing: Change = lambda store: None  # noqa: E731
    yield _fit("as it is", version, nothing, OK, same=True)
    to_store = ("fit", "in.zarr", *FIT[2:5], "out.zarr", *FIT[6:])
    yield _fit("to a store", version, nothing, OK, line=to_store)._replace(check=_check_store)
    yield _fit("to a file in itself", version, nothing, REFUSED, line=(*LINE[:5], "in.zarr/out.h5ad", *LINE[6:]))
    yield _fit("to a file in its X", version, nothing, REFUSED, line=(*LINE[:5], "in.zarr/X/out.h5ad", *LINE[6:]))
    over = lambda store: (store.parent / "mine.zarr").mkdir()  # noqa: E731
    to_mine = (*to_store[:5], "mine.zarr", *to_store[6:])
    yield _fit("over a folder of something else", version, over, REFUSED, line=to_mine)
    for command in ("evaluate", "plot", "report", "markers", "estimate", "bin"):
        more = {"plot": ("-o", "out.png"), "report": ("-o", "out.html"), "bin": ("-o", "out.h5ad")}.get(command, ())
        more = ("--k", "3") if command == "estimate" else more
        codes = OK if command == "estimate" else REFUSED
        yield _fit(f"{command} of what was not fitted", version, nothing, codes, line=(command, "in.zarr", *more))
    extras: dict[str, Change] = {
        "a text beside it": lambda store: (store / "README").write_text("hello"),
        "a pickle beside it": lambda store: (store / "X" / "data.pkl").write_bytes(pickle.dumps(Trap())),
        "an odd name": lambda store: (store / "größe \n").mkdir(),
        "a folder in a folder": lambda store: (store / "/".join("a" * 40)).mkdir(parents=True),
        "an empty summary": lambda store: (store / ".zmetadata").write_text("{}"),
        "a lying summary": lambda store: (store / ".zmetadata").write_text('{"metadata": {"X/.zarray": {}}}'),
    }
    for name, change in extras.items():
        yield _fit(name, version, change, OK, same=True)
    links: dict[str, Change] = {
        "a link out": lambda store: (store / "uns" / "link").symlink_to("/etc"),
        "a link to itself": lambda store: (store / "uns" / "link").symlink_to(store),
        "a link that dangles": lambda store: (store / "uns" / "link").symlink_to("nowhere"),
        "a pipe": lambda store: os.mkfifo(store / "uns" / "pipe"),
    }
    for name, change in links.items():
        yield _fit(name, version, change, REFUSED)

    def spatial(folder: Path) -> None:
        write_spatialdata(folder / "in.zarr", {"one": section(), "two": section()}, version)

    for name, more, codes in (
        ("no", (), REFUSED),
        ("one", ("--table", "one"), OK),
        ("a wrong", ("--table", "3"), REFUSED),
    ):
        yield Case(f"zarr {version}: tables, {name} chosen", spatial, (*LINE, *more), codes)
    for number, table in enumerate(("../one", "", ".", "one/X", "/etc", "x" * 300, "a\0b")):
        yield Case(f"zarr {version}: table {number}", spatial, (*LINE, "--table", table), REFUSED)
    yield Case(f"zarr {version}: an array", lambda folder: _array(folder / "in.zarr", version), LINE, REFUSED)
    yield Case(f"zarr {version}: an empty folder", lambda folder: (folder / "in.zarr").mkdir(), LINE, REFUSED)
    yield Case(
        f"zarr {version}: a text", lambda folder: (folder / "in.zarr").write_text("zarr") and None, LINE, REFUSED
    )

    def zipped(folder: Path) -> None:
        write_zarr(folder / "store", section(), version)
        shutil.make_archive(str(folder / "in"), "zip", folder / "store")
        (folder / "in.zip").rename(folder / "in.zarr")

    yield Case(f"zarr {version}: a zip", zipped, LINE, REFUSED)


def _check_store(folder: Path) -> None:
    posterior = ad.read_zarr(folder / "out.zarr").obsm["pdvi_posterior"]
    assert posterior.shape == (81, 3)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-5)


def _array(path: Path, version: int) -> None:
    zarr.create_array(path, data=np.ones(3), zarr_format=version)


def _objects() -> Iterator[Case]:
    """Arrays of pickled objects, which numcodecs would unpickle."""
    for place in ("obs/pickled", "uns/pickled", "X/pickled", "obsm/spatial", "obs/_index", "layers/counts"):

        def change(store: Path, place: str = place) -> None:
            shutil.rmtree(store / place, ignore_errors=True)
            (store / place).mkdir(parents=True)
            described = {
                "zarr_format": 2,
                "shape": [81],
                "chunks": [81],
                "dtype": "|O",
                "fill_value": None,
                "order": "C",
                "compressor": None,
                "filters": [{"id": "pickle", "protocol": 5}],
            }
            (store / place / ".zarray").write_text(json.dumps(described))
            values = np.array([Trap()] * 81, dtype=object)
            (store / place / "0").write_bytes(numcodecs.Pickle().encode(values))

        yield _fit(f"objects at {place}", 2, change, REFUSED)
        last = {"compressor": {"id": "pickle"}, "filters": None}
        swapped = lambda store, place=place, change=change, last=last: (change(store), _rewrite(place, **last)(store))  # noqa: E731
        yield _fit(f"objects by the compressor at {place}", 2, swapped, REFUSED)
