"""Bad and odd inputs of `bin`: GEF, cell-bin GEF, GEM and folders of Space Ranger, whole, changed and broken."""

import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
from binning_samples import BARCODES, Molecules, as_dict, draw, write_cell_gef, write_gef, write_gem, write_space_ranger
from numpy.lib import recfunctions

from corpus.cases import HOSTILE, OK, REFUSED, Case, flipped

SAMPLE = draw(n=400, n_genes=8, side=60)
CUTS = (0, 1, 5, 20, 50, 80, 95, 99)
Make = Callable[[Path], None]
Counts = dict[tuple[str, str], int]  # by the name of the spot and the ID of the gene


def sample_cases() -> Iterator[Case]:
    """All of them."""
    for family in (_gef, _gef_values, _cell_gef, _gem, _gem_texts, _space_ranger, _options):
        yield from family()


def _bin(
    name: str,
    make: Make,
    codes: frozenset[int],
    *more: str,
    file: str = "in.gef",
    expected: Counts | None = None,
    error: str = "",
) -> Case:
    def check(folder: Path) -> None:
        check_binned(folder / "out.h5ad", expected)

    return Case(f"bin: {name}", make, ("bin", file, "-o", "out.h5ad", *more), codes, check=check, error=error)


def check_binned(path: Path, expected: Counts | None = None) -> None:
    """An AnnData of counts at places, those that are expected where it is known."""
    adata = ad.read_h5ad(path)
    assert adata.X.dtype == np.int32
    assert min(adata.shape) > 0
    assert adata.X.sum() > 0
    assert adata.X.data.min() > 0
    assert adata.obs_names.is_unique
    assert np.isfinite(adata.obsm["spatial"]).all()
    if expected is not None:
        assert as_dict(adata) == expected


def _damaged(write: Make, name: str, change: Callable[[bytearray], bytes | bytearray]) -> Make:
    def make(folder: Path) -> None:
        write(folder)
        path = folder / name
        path.write_bytes(change(bytearray(path.read_bytes())))

    return make


def _broken(
    what: str,
    write: Make,
    name: str,
    *more: str,
    flips: int,
    read: Callable[[Path], Counts],
    file: str | None = None,
) -> Iterator[Case]:
    """A file cut off, with bytes too many, and with bits flipped; `read` is another reader of the same format."""
    file = file or name
    text = name.endswith(".gem")
    for share in CUTS:
        cut = _damaged(write, name, lambda c, share=share: c[: len(c) * share // 100])
        yield _bin(f"{what} cut after {share} %", cut, REFUSED, *more, file=file)
    # a text without its last line break is whole; HDF5 does not look behind its end
    short, behind = (OK, REFUSED) if text else (REFUSED, REFUSED if name.endswith(".gz") else OK)
    yield _bin(f"{what} one byte short", _damaged(write, name, lambda c: c[:-1]), short, *more, file=file)
    yield _bin(f"{what} bytes behind", _damaged(write, name, lambda c: c + b"more" * 99), behind, *more, file=file)

    def decide(folder: Path) -> tuple[frozenset[int], bool]:
        whole = folder.parent / "whole"
        whole.mkdir()
        write(whole)
        before = read(whole / name)
        shutil.rmtree(whole)
        try:
            return (OK if read(folder / name) == before else OK | REFUSED), False
        except Exception:  # noqa: BLE001 (whatever the libraries say of damage)
            return REFUSED, False

    def check(folder: Path) -> None:
        check_binned(folder / "out.h5ad", read(folder / name))

    for seed in range(flips):
        case = _bin(f"{what} bits flipped {seed}", _damaged(write, name, flipped(seed)), frozenset(), *more, file=file)
        yield case._replace(decide=decide, check=check)


def _sum(spots: Iterable[str], genes: Iterable[str], counts: Iterable[int]) -> Counts:
    found: Counts = {}
    for spot, gene, count in zip(spots, genes, counts, strict=True):
        found[spot, gene] = found.get((spot, gene), 0) + int(count)
    return {key: count for key, count in found.items() if count}


def _squares(x: Iterable[int], y: Iterable[int], size: int = 10) -> list[str]:
    return [f"{int(a) // size * size}_{int(b) // size * size}" for a, b in zip(x, y, strict=True)]


def _texts(values: np.ndarray) -> list[str]:
    texts = [value.decode("utf-8", "replace") for value in values]
    if any("\0" in text for text in texts):
        msg = "a null character in a name"
        raise ValueError(msg)
    return texts


def _read_gef(path: Path) -> Counts:
    with h5py.File(path) as file:
        records, genes = file[EXPRESSION][()], file[GENES][()]
    _texts(genes["geneName"])
    names = np.repeat(_texts(genes["geneID"]), genes["count"])
    return _sum(_squares(records["x"], records["y"]), names, records["count"])


def _read_cells(path: Path) -> Counts:
    with h5py.File(path) as file:
        cells, values, genes = (file[f"cellBin/{name}"][()] for name in ("cell", "cellExp", "gene"))
    _texts(genes["geneName"])
    names = _texts(genes["geneID"])
    spots = np.repeat(cells["id"], cells["geneCount"]).astype(str)
    return _sum(spots, [names[gene] for gene in values["geneID"]], values["count"])


def _read_gem(path: Path) -> Counts:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    lines = [line for line in text.split("\n") if line and not line.startswith("#")]
    head, *records = (line.split("\t") for line in lines)
    genes, x, y, counts = (
        [record[head.index(name)] for record in records] for name in ("geneID", "x", "y", "MIDCount")
    )
    return _sum(_squares(x, y), genes, counts)


def _read_matrix(path: Path) -> Counts:
    with h5py.File(path) as file:
        group = file["matrix"]
        data, indices, indptr = (group[name][()] for name in ("data", "indices", "indptr"))
        barcodes, genes = _texts(group["barcodes"][()]), _texts(group["features/id"][()])
        kinds = _texts(group["features/feature_type"][()])
        _texts(group["features/name"][()])
    spots = np.repeat(barcodes, np.diff(indptr))
    under_tissue = np.isin(spots, [barcode for i, barcode in enumerate(BARCODES) if i % 5])
    kept = under_tissue & (np.array(kinds)[indices] == "Gene Expression")
    return _sum(spots[kept], np.array(genes)[indices[kept]], data[kept])


def _edited(write: Make, change: Callable[[h5py.File], None], name: str = "in.gef") -> Make:
    def make(folder: Path) -> None:
        write(folder)
        with h5py.File(folder / name, "r+") as file:
            change(file)

    return make


def _table(name: str, change: Callable[[np.ndarray], np.ndarray | None]) -> Callable[[h5py.File], None]:
    """A table of a file changed as a whole; its attributes stay."""

    def edit(file: h5py.File) -> None:
        values, attributes = file[name][()], dict(file[name].attrs)
        changed = change(values)
        del file[name]
        file[name] = values if changed is None else changed
        file[name].attrs.update(attributes)

    return edit


def _put(field: str, value: object, rows: object = 3) -> Callable[[np.ndarray], None]:
    def change(values: np.ndarray) -> None:
        values[field][rows] = value

    return change


def _without(field: str) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: recfunctions.drop_fields(values, field)


def _retyped(field: str, kind: str, cast: Callable[[np.ndarray], np.ndarray] = lambda v: v):
    def change(values: np.ndarray) -> np.ndarray:
        types = [(name, kind if name == field else values.dtype[name]) for name in values.dtype.names]
        changed = np.zeros(values.shape, types)
        for name in values.dtype.names:
            changed[name] = cast(values[name]) if name == field else values[name]
        return changed

    return change


def _write_gef(molecules: Molecules = SAMPLE, **options: object) -> Make:
    return lambda folder: write_gef(folder / "in.gef", molecules, **options) and None


def _renamed(texts: list[str]) -> Molecules:
    return SAMPLE._replace(ids=texts, names=texts)


EXPRESSION, GENES = "geneExp/bin1/expression", "geneExp/bin1/gene"


def _gef() -> Iterator[Case]:
    """Square-bin GEF: its versions, and what is not one."""
    plain = _write_gef()
    for size in ("1", "10", "50", "7", "1000"):
        yield _bin(f"gef of bin {size}", plain, OK, "--bin", size, expected=SAMPLE.expected(int(size)))
    yield _bin("gef of old names", _write_gef(named=False), OK, "--bin", "10", expected=SAMPLE.expected(10))
    yield _bin("gef of coarse bins", _write_gef(bins=(1, 10)), OK, "--bin", "20", expected=SAMPLE.expected(20))
    yield _bin("gef with coarse bins alone", _write_gef(bins=(20,)), REFUSED, "--bin", "7")
    for kind in ("<u2", "<u4", "<i4", "<i8", "<f4", "<f8", ">u2"):
        make = _write_gef(count_type=kind)
        yield _bin(f"gef of counts {kind}", make, OK, "--bin", "10", expected=SAMPLE.expected(10))
    yield from _broken("gef", plain, "in.gef", "--bin", "10", flips=30, read=_read_gef)
    for name in ("geneExp", "geneExp/bin1", EXPRESSION, GENES):
        yield _bin(f"gef without {name}", _edited(plain, lambda f, name=name: f.__delitem__(name)), REFUSED)
        group = _edited(plain, lambda f, name=name: (f.__delitem__(name), f.create_group(name)))
        yield _bin(f"gef whose {name} is empty", group, REFUSED)
        number = _edited(plain, lambda f, name=name: (f.__delitem__(name), f.__setitem__(name, 3.0)))
        yield _bin(f"gef whose {name} is a number", number, REFUSED)
        for kind, link in (
            ("dangles", h5py.SoftLink("/nowhere")),
            ("leads to itself", h5py.SoftLink(f"/{name}")),
            ("leads out", h5py.ExternalLink("/etc/passwd", "/")),
        ):
            linked = _edited(plain, lambda f, name=name, link=link: (f.__delitem__(name), f.__setitem__(name, link)))
            yield _bin(f"gef whose {name} {kind}", linked, REFUSED)
    for name in ("bin0", "bin-5", "binX", "bin1 ", "bin99999999999999999999"):
        moved = _edited(plain, lambda f, name=name: f.move("geneExp/bin1", f"geneExp/{name}"))
        yield _bin(f"gef with {name}", moved, REFUSED)
    yield _bin("an AnnData", lambda folder: _anndata(folder / "in.gef"), REFUSED)
    yield _bin("an empty HDF5", lambda folder: h5py.File(folder / "in.gef", "w").close(), REFUSED)
    yield _bin("a square gef as cells", plain, REFUSED, "--cell-bin")


def _anndata(path: Path) -> None:
    ad.AnnData(np.ones((3, 2), "f4")).write_h5ad(path)


def _gef_values() -> Iterator[Case]:
    """Square-bin GEF: fields, types and numbers that no sequencer writes."""
    plain = _write_gef()

    same = SAMPLE.expected(10)

    def expression(name: str, change: object, codes: frozenset[int], expected: Counts | None = None) -> Case:
        make = _edited(plain, _table(EXPRESSION, change))
        return _bin(f"gef, {name}", make, codes, "--bin", "10", expected=expected)

    def genes(name: str, change: object, codes: frozenset[int], expected: Counts | None = None) -> Case:
        make = _edited(plain, _table(GENES, change))
        return _bin(f"gef, {name}", make, codes, "--bin", "10", expected=expected)

    for axis in ("x", "y"):
        yield expression(f"no {axis}", _without(axis), REFUSED)
        for value in (-(2**31), -(2**22) - 1, 2**22, 2**31 - 1):
            yield expression(f"{axis} at {value}", _put(axis, value), REFUSED)
        yield expression(f"{axis} at -5", _put(axis, -5), OK)
        for kind in ("<i1", "<u8", "<f8"):
            yield expression(f"{axis} as {kind}", _retyped(axis, kind), OK, same)
        for value in (np.nan, np.inf, 1e300, 0.5):
            change = _retyped(axis, "<f8", lambda v, value=value: np.where(np.arange(v.size) == 3, value, v))
            yield expression(f"{axis} at {value}", change, REFUSED)
        yield expression(f"{axis} as texts", _retyped(axis, "S8", lambda v: v.astype("S8")), REFUSED)
        huge = _retyped(
            axis, "<u8", lambda v: np.where(np.arange(v.size) == 3, np.uint64(2**64 - 1), v.astype(np.uint64))
        )
        yield expression(f"{axis} at 2^64 - 1", huge, REFUSED)
    yield expression("no counts", _without("count"), REFUSED)
    yield expression("counts of 0", _put("count", 0, slice(None)), REFUSED)
    yield expression("some counts of 0", _put("count", 0, slice(0, 50)), OK)
    for value in (-1.0, np.nan, np.inf, 0.5, 1e30, 2.0**31):
        change = _retyped("count", "<f8", lambda v, value=value: np.where(np.arange(v.size) == 3, value, v))
        yield expression(f"a count of {value}", change, REFUSED)
    yield expression("a sum beyond 2^31", _retyped("count", "<i8", lambda v: np.full(v.shape, 2**31 - 1)), REFUSED)
    yield expression("counts in pairs", lambda v: np.column_stack([v["x"], v["y"]]), REFUSED)
    yield expression("no records", lambda v: v[:0], REFUSED)
    yield expression("a record less", lambda v: v[:-1], REFUSED)
    yield expression("a record more", lambda v: np.append(v, v[-1:]), REFUSED)
    yield expression("every record twice at its place", lambda v: np.repeat(v, 1), OK)
    yield genes("no genes", lambda v: v[:0], REFUSED)
    yield genes("a gene less", lambda v: v[:-1], REFUSED)
    yield genes("no numbers of records", _without("count"), REFUSED)
    yield genes("numbers of records as texts", _retyped("count", "S8", lambda v: v.astype("S8")), REFUSED)
    yield genes("a gene of 2^32 - 1 records", _put("count", 2**32 - 1), REFUSED)
    negative = _retyped("count", "<i8", lambda v: v * np.where(np.arange(v.size) == 1, -1, 1))
    yield genes("a gene of fewer than no records", negative, REFUSED)

    def balanced(values: np.ndarray) -> np.ndarray:
        changed = _retyped("count", "<i8")(values)
        changed["count"][1] -= 10**6
        changed["count"][2] += 10**6
        return changed

    yield genes("genes that make up for each other", balanced, REFUSED)
    yield genes("records of genes as fractions", _retyped("count", "<f8", lambda v: v + 0.5), REFUSED)
    yield genes("records of genes as nan", _retyped("count", "<f8", lambda v: v * np.nan), REFUSED)
    yield genes("offsets that lie", _put("offset", 10**9, slice(None)), OK, same)
    yield genes("no IDs", _without("geneID"), OK)
    yield genes("neither IDs nor names", lambda v: _without("geneName")(_without("geneID")(v)), REFUSED)
    yield genes("numbers for IDs", _retyped("geneID", "<i4", lambda v: np.arange(v.size)), OK)
    yield genes("bytes that are no text", _put("geneName", b"\xff\xfe\x80", slice(0, 2)), OK)
    for number, text in enumerate(HOSTILE):
        names = [text.encode()[:64].decode("utf-8", "ignore"), *SAMPLE.ids[1:]]
        named = SAMPLE._replace(ids=SAMPLE.ids, names=names)
        yield _bin(
            f"gef, name {number}", lambda folder, m=named: _write_utf8(folder, m), OK, "--bin", "10", expected=same
        )
    yield _bin("gef, one name", _write_gef(SAMPLE._replace(names=["same"] * 8)), OK, "--bin", "10")
    yield _bin("gef, one ID", _write_gef(SAMPLE._replace(ids=["same"] * 8)), OK, "--bin", "10")
    yield _bin("gef, one of both", _write_gef(_renamed(["same"] * 8)), OK, "--bin", "10")
    yield _bin("gef, no text at all", _write_gef(_renamed([""] * 8)), OK, "--bin", "10")
    for name, value in (
        ("minX", "left"),
        ("minX", np.array([], "i4")),
        ("minX", np.array([np.nan])),
        ("minY", np.array([2**63], "u8")),
        ("resolution", np.array([-500])),
        ("resolution", b"500 nm \xff"),
        ("resolution", np.zeros((3, 3))),
        ("resolution", h5py.Empty("f4")),
    ):
        odd = _edited(plain, lambda f, name=name, value=value: f[EXPRESSION].attrs.__setitem__(name, value))
        yield _bin(f"gef, attribute {name} {str(value)[:20]}", odd, OK, "--bin", "10", expected=same)
    odd = _edited(plain, lambda f: f.attrs.__setitem__("version", "four"))
    yield _bin("gef, version in words", odd, OK, "--bin", "10", expected=same)


def _write_utf8(folder: Path, molecules: Molecules) -> None:
    names = [name.encode() for name in molecules.names]
    write_gef(folder / "in.gef", molecules._replace(names=names))


def _cell_gef() -> Iterator[Case]:
    def plain(folder: Path) -> None:
        write_cell_gef(folder / "in.gef", SAMPLE)

    def table(what: str, name: str, change: object, codes: frozenset[int]) -> Case:
        make = _edited(plain, _table(f"cellBin/{name}", change))
        return _bin(f"cells, {what}", make, codes, "--cell-bin", expected=SAMPLE.expected_cells())

    yield _bin("cells", plain, OK, "--cell-bin", expected=SAMPLE.expected_cells())
    yield _bin("cells as squares", plain, REFUSED)
    yield from _broken("cells", plain, "in.gef", "--cell-bin", flips=30, read=_read_cells)
    for name in ("cell", "cellExp", "gene"):
        without = _edited(plain, lambda f, name=name: f.__delitem__(f"cellBin/{name}"))
        yield _bin(f"cells without {name}", without, REFUSED, "--cell-bin")
        yield table(f"{name} empty", name, lambda v: v[:0], REFUSED)
        yield table(f"{name} as numbers", name, lambda v: np.arange(v.size), REFUSED)
        # the last cell has no counts
        yield table(f"{name} one less", name, lambda v: v[:-1], OK if name == "cell" else REFUSED)
    for field in ("id", "x", "y", "geneCount", "area"):
        codes = OK if field == "area" else REFUSED  # which is not needed
        yield table(f"no {field}", "cell", _without(field), codes)
        yield table(f"{field} as texts", "cell", _retyped(field, "S8", lambda v: v.astype("S8")), codes)
        nan = _retyped(field, "<f8", lambda v: np.where(np.arange(v.size) == 1, np.nan, v))
        yield table(f"{field} nan", "cell", nan, codes)
        huge = _retyped(field, "<f8", lambda v: np.where(np.arange(v.size) == 1, 1e300, v))
        yield table(f"{field} huge", "cell", huge, codes)
    yield table("one ID", "cell", _put("id", 7, slice(None)), REFUSED)
    yield table("counts of cells that lie", "cell", _put("geneCount", 2**16 - 1), REFUSED)
    negative = _retyped("geneCount", "<i8", lambda v: v * np.where(np.arange(v.size) == 1, -1, 1))
    yield table("a cell of fewer than no genes", "cell", negative, REFUSED)

    def balanced(values: np.ndarray) -> np.ndarray:
        changed = _retyped("geneCount", "<i8")(values)
        changed["geneCount"][0] -= 10**6
        changed["geneCount"][1] += 10**6
        return changed

    yield table("cells that make up for each other", "cell", balanced, REFUSED)
    yield table("cells by fractions", "cell", _retyped("geneCount", "<f8", lambda v: v + 0.5), REFUSED)
    yield table("genes beyond the last", "cellExp", _put("geneID", 10**6), REFUSED)
    yield table("genes below none", "cellExp", _retyped("geneID", "<i8", lambda v: np.full(v.shape, -1)), REFUSED)
    nan = _retyped("geneID", "<f8", lambda v: np.where(np.arange(v.size) == 1, np.nan, v))
    yield table("genes nan", "cellExp", nan, REFUSED)
    yield table("genes by fractions", "cellExp", _retyped("geneID", "<f8", lambda v: v * 0 + 0.5), REFUSED)
    yield table("no counts but 0", "cellExp", _put("count", 0, slice(None)), REFUSED)
    yield table(
        "counts of 2^31 in one gene", "cellExp", _retyped("count", "<u4", lambda v: np.full(v.shape, 2**31)), REFUSED
    )
    one = [_retyped("count", "<i8", lambda v: np.full(v.shape, 2**31 - 1)), _put("geneID", 1, slice(None))]

    def summed(values: np.ndarray) -> np.ndarray:
        changed = one[0](values)
        one[1](changed)
        return changed

    yield table("counts that add up to more than 2^31", "cellExp", summed, REFUSED)
    yield table("one name", "gene", _put("geneName", b"same", slice(None)), OK)


def _gem() -> Iterator[Case]:
    """GEM, whole and broken, plain and compressed."""
    for name in ("in.gem", "in.gem.gz"):

        def plain(folder: Path, name: str = name) -> None:
            write_gem(folder / name, SAMPLE, cells="CellID", named=True)

        yield _bin(f"{name}", plain, OK, "--bin", "10", file=name, expected=SAMPLE.expected(10))
        cells = SAMPLE.expected_cells()
        yield _bin(f"{name} of cells", plain, OK, "--cell-bin", file=name, expected=cells)
        yield from _broken(name, plain, name, "--bin", "10", flips=25, read=_read_gem)
    twice = _damaged(lambda folder: write_gem(folder / "in.gz", SAMPLE) and None, "in.gz", gzip.compress)
    yield _bin("gem compressed twice", twice, REFUSED, file="in.gz")

    def members(content: bytearray) -> bytes:
        text = gzip.decompress(bytes(content))
        return gzip.compress(text[: len(text) // 2]) + gzip.compress(text[len(text) // 2 :])

    parts = _damaged(lambda folder: write_gem(folder / "in.gz", SAMPLE) and None, "in.gz", members)
    yield _bin("gem in two members", parts, OK, "--bin", "10", file="in.gz", expected=SAMPLE.expected(10))
    bomb = b"geneID\tx\ty\tMIDCount\n" + b"g\t1\t1\t1\n" * 10**6
    packed = lambda folder: (folder / "in.gz").write_bytes(gzip.compress(bomb)) and None  # noqa: E731
    yield _bin("gem that grows", packed, OK, file="in.gz", expected={("0_0", "g"): 10**6})


def _gem_texts() -> Iterator[Case]:
    head = "geneID\tx\ty\tMIDCount\n"
    good = "g\t1\t1\t1\n" * 3

    def text(name: str, content: str | bytes, codes: frozenset[int], *more: str, total: int | None = None) -> Case:
        data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
        expected = None if total is None else {("0_0", "g"): total}
        make = lambda folder: (folder / "in.gem").write_bytes(data) and None  # noqa: E731
        return _bin(f"gem, {name}", make, codes, *more, file="in.gem", expected=expected)

    yield text("a head alone", head, REFUSED)
    yield text("comments alone", "#a=1\n#b=2\n", REFUSED)
    yield text("no head", good, REFUSED)
    yield text("no line at its end", head + good[:-1], OK, total=3)
    yield text("empty lines", head + "\n" + good + "\n\n", OK, total=3)
    yield text("lines of Windows", (head + good).replace("\n", "\r\n"), OK, total=3)
    yield text("lines of old Macs", (head + good).replace("\n", "\r"), REFUSED)
    yield text("commas", (head + good).replace("\t", ","), REFUSED)
    yield text("blanks", (head + good).replace("\t", " "), REFUSED)
    yield text("a mark of byte order", "\ufeff" + head + good, OK, total=3)
    yield text("UTF-16", (head + good).encode("utf-16"), REFUSED)
    yield text("bytes that are no text", head.encode() + b"\xff\xfe\t1\t1\t1\n", REFUSED)
    yield text("null characters", head + "g\0\t1\t1\t1\n", OK)
    yield text("a null character for a number", head + good + "g\t\0\t1\t1\n", REFUSED)
    yield text("quotes", head + '"g\t1\t1\t1\n"g"\t1\t1\t1\n', OK)
    yield text("a comment among records", head + good + "#g\t1\t1\t1\n", OK)
    yield text("a line of a megabyte in the head", "#" + "x" * 10**6 + "\n" + head + good, REFUSED)
    yield text("a gene of a megabyte", head + "x" * 10**6 + "\t1\t1\t1\n", OK)
    yield text("10,000 comments", "#a=1\n" * 10**4 + head + good, OK, total=3)
    yield text("10,000 columns", head[:-1] + "\tmore" * 10**4 + "\n" + good, REFUSED)
    yield text("a column twice", "geneID\tx\tx\ty\tMIDCount\ng\t1\t2\t1\t1\n", REFUSED)
    yield text("offsets in words", "#OffsetX=left\n#OffsetY=1e300\n" + head + good, OK, total=3)
    yield text("a chip of odd name", "#Stereo-seqChip=\u202e<script>\x1b\n" + head + good, OK, total=3)
    yield text("BinSize 50", "#BinSize=50\n" + head + good, REFUSED)
    yield text("BinSize ²", "#BinSize=²\n" + head + good, OK, total=3)
    yield text("no cells", head + good, REFUSED, "--cell-bin")
    for cell in ("-1", "1.5", "nan", "x", "", str(2**46), str(2**70)):
        content = head[:-1] + "\tCellID\n" + good.replace("\n", "\t1\n") + f"g\t1\t1\t1\t{cell}\n"
        yield text(f"cell {cell!r}", content, REFUSED, "--cell-bin")
    zeros = head[:-1] + "\tCellID\n" + good.replace("\n", "\t0\n")
    yield text("no cell but 0", zeros, REFUSED, "--cell-bin")
    for column in ("geneID", "x", "y", "MIDCount"):
        yield text(f"no column {column}", head.replace(column, "other") + good, REFUSED)
    for values in ("g\t1\t1", "g\t1", "g", "\t1\t1\t1", "g\t\t1\t1", "g\t1\t\t1", "g\t1\t1\t"):
        yield text(f"a record {values!r}", head + good + values + "\n", REFUSED)
    yield text("a field too many", head + good + "g\t1\t1\t1\t7\n", OK, total=4)
    for number in ("1.0", "1e0", "+1", " 1", "01"):
        yield text(f"a place at {number!r}", head + good + f"g\t{number}\t1\t1\n", OK, total=4)
        yield text(f"a count of {number!r}", head + good + f"g\t1\t1\t{number}\n", OK, total=4)
    for number in ("1.5", "nan", "inf", "-inf", "1e300", "0x10", "1_0", "one", "1,0", "9" * 400, "True", "NA"):
        yield text(f"a place at {number[:9]!r}", head + good + f"g\t{number}\t1\t1\n", REFUSED)
        yield text(f"a count of {number[:9]!r}", head + good + f"g\t1\t1\t{number}\n", REFUSED)
    for number in (2**22, -(2**22) - 1, 2**31, 2**63, 2**64):
        yield text(f"a place at {number}", head + good + f"g\t1\t{number}\t1\n", REFUSED)
    yield text("places below zero", head + good + "g\t-7\t-9\t1\n", OK)
    for number in (-1, 2**31, 2**63, 2**64):
        yield text(f"a count of {number}", head + good + f"g\t1\t1\t{number}\n", REFUSED)
    yield text("a sum beyond 2^31", head + f"g\t1\t1\t{2**31 - 1}\n" * 2, REFUSED)
    yield text("counts of 0", head + "g\t1\t1\t0\n", REFUSED)
    yield text("places true and false", head + "g\tTrue\tFalse\t1\n" * 3, REFUSED)
    yield text("counts true", head + "g\t1\t1\tTrue\n" * 3, REFUSED)
    for number, name in enumerate(HOSTILE):
        clean = name.replace("\n", " ").replace("\t", " ")
        yield text(f"gene {number}", head + good + f"{clean}\t1\t1\t1\n", OK if clean else REFUSED)


def _space_ranger() -> Iterator[Case]:
    """Folders of Visium; the counts are those of `filtered_feature_bc_matrix.h5`."""
    matrix, places = "outs/filtered_feature_bc_matrix.h5", "outs/spatial/tissue_positions.csv"
    factors = "outs/spatial/scalefactors_json.json"

    def plain(folder: Path) -> None:
        write_space_ranger(folder / "outs")

    def ranger(name: str, make: Make, codes: frozenset[int], *more: str) -> Case:
        return _bin(f"outs, {name}", make, codes, *more, file="outs")

    def positions(name: str, change: Callable[[str], str], codes: frozenset[int]) -> Case:
        def edit(content: bytearray) -> bytes:
            return change(content.decode()).encode("utf-8", "surrogateescape")

        return ranger(name, _damaged(plain, places, edit), codes)

    def edited(name: str, change: Callable[[h5py.File], None], codes: frozenset[int]) -> Case:
        return ranger(name, _edited(plain, change, matrix), codes)

    yield ranger("as it is", plain, OK)
    yield ranger("with --bin", plain, REFUSED, "--bin", "8")
    yield ranger("with --cell-bin", plain, REFUSED, "--cell-bin")
    yield from _broken("matrix", plain, matrix, flips=25, read=_read_matrix, file="outs")
    for lost in (matrix, places, "outs/spatial"):

        def without(folder: Path, lost: str = lost) -> None:
            plain(folder)
            path = folder / lost
            shutil.rmtree(path) if path.is_dir() else path.unlink()

        yield ranger(f"without {lost}", without, REFUSED)
    yield ranger("an empty folder", lambda folder: (folder / "outs").mkdir(), REFUSED)
    yield ranger("a link to itself", lambda folder: (folder / "outs").symlink_to("outs"), REFUSED)
    for name in ("data", "indices", "indptr", "shape", "barcodes", "features", "features/id", "features/name"):
        yield edited(f"without {name}", lambda f, name=name: f["matrix"].__delitem__(name), REFUSED)
        short = lambda f, name=name: _shorten(f, f"matrix/{name}")  # noqa: E731
        if name != "features":
            yield edited(f"{name} one short", short, REFUSED)
    yield edited("without genomes", lambda f: f["matrix/features"].__delitem__("genome"), OK)
    yield edited("indices beyond", lambda f: f["matrix/indices"].__setitem__(0, 10**6), REFUSED)
    yield edited("indices below zero", lambda f: f["matrix/indices"].__setitem__(0, -1), REFUSED)
    yield edited("indptr that falls", lambda f: f["matrix/indptr"].__setitem__(3, 0), REFUSED)
    yield edited("indptr beyond", lambda f: f["matrix/indptr"].__setitem__(-1, 10**6), REFUSED)
    yield edited("a shape that is a lie", lambda f: f["matrix/shape"].__setitem__(1, 10**9), REFUSED)
    yield edited("a count below zero", lambda f: f["matrix/data"].__setitem__(0, -3), REFUSED)
    yield edited("counts as fractions", lambda f: _set(f, "matrix/data", f["matrix/data"][()] + 0.5), REFUSED)
    yield edited("counts as texts", lambda f: _set(f, "matrix/data", [b"many"] * f["matrix/data"].size), REFUSED)
    yield edited("no counts", lambda f: _set(f, "matrix/data", f["matrix/data"][()] * 0), REFUSED)
    yield edited("one barcode", lambda f: _set(f, "matrix/barcodes", np.array([b"same"] * 20)), REFUSED)
    yield edited("no gene expression", lambda f: _set(f, "matrix/features/feature_type", [b"Other"] * 6), REFUSED)
    hostile = [name.encode() for name in HOSTILE if "\0" not in name][:6]
    yield edited("hostile genes", lambda f: _set(f, "matrix/features/name", hostile), OK)
    yield edited("one gene", lambda f: _set(f, "matrix/features/name", [b"same"] * 6), OK)
    yield positions("an empty table", lambda text: "", REFUSED)
    yield positions("a head alone", lambda text: text.splitlines()[0] + "\n", REFUSED)
    yield positions("half a table", lambda text: text[: len(text) // 2], REFUSED)
    yield positions("semicolons", lambda text: text.replace(",", ";"), REFUSED)
    yield positions("no barcodes", lambda text: text.replace("AAAC", "GGGG"), REFUSED)
    yield positions("every spot twice", lambda text: text + text.split("\n", 1)[1], REFUSED)
    yield positions("no tissue", lambda text: text.replace(",1,", ",0,"), REFUSED)
    yield positions("bytes that are no text", lambda text: text + "\udcff\udcfe\n", REFUSED)
    yield positions("a null character", lambda text: text.replace("AAAC0003", "AAAC\0003"), REFUSED)
    for number in ("nan", "inf", "1e400", "left", ""):
        changed = lambda text, number=number: text.replace(",103,", f",{number},")  # noqa: E731
        yield positions(f"a pixel at {number!r}", changed, REFUSED)
    yield positions("a pixel at 1e300", lambda text: text.replace(",103,", ",1e300,"), OK)
    yield positions("a pixel below zero", lambda text: text.replace(",103,", ",-103,"), OK)
    for name, content in (
        ("broken", "{"),
        ("a list", "[1, 2]"),
        ("texts", '{"a": "b"}'),
        ("nan", '{"a": NaN}'),
        ("deep", "[" * 10**5),
        ("empty", ""),
        ("an odd key", json.dumps({"a/b": 1.0, "": 2.0, "\0": 3.0, ".": 4.0})),
    ):
        make = _damaged(plain, factors, lambda _, content=content: content.encode())
        yield ranger(f"factors {name}", make, OK if name in {"nan", "an odd key"} else REFUSED)


def _shorten(file: h5py.File, name: str) -> None:
    _set(file, name, file[name][()][:-1])


def _set(file: h5py.File, name: str, value: object) -> None:
    del file[name]
    file[name] = value


def _options() -> Iterator[Case]:
    plain = _write_gef()
    for number in ("0", "-1", "4194304", "1" + "0" * 30, "1.5", "ten"):
        yield _bin(f"--bin {number}", plain, REFUSED, "--bin", number)
    for memory in ("0", "-1GB", "nope", "nan", "1e400GB", "1B"):
        codes = OK if memory == "1B" else REFUSED  # a size, if a small one
        yield _bin(f"--memory {memory}", plain, codes, "--memory", memory, error="" if codes is OK else "--memory")
    yield _bin("--bin and --cell-bin", plain, REFUSED, "--bin", "10", "--cell-bin")
    yield _bin("no file", lambda folder: None, REFUSED)
    yield _bin("an empty file", lambda folder: (folder / "in.gef").touch(), REFUSED)
    yield _bin("a pipe", lambda folder: os.mkfifo(folder / "in.gef"), REFUSED)
    yield _bin("a device", lambda folder: (folder / "in.gef").symlink_to("/dev/zero"), REFUSED)
    for number, data in enumerate(
        (b"\0" * 999, b"\x89PNG\r\n\x1a\n" * 99, b"\x1f\x8b", b"\x1f\x8b\x08" + b"\xff" * 99)
    ):
        binary = lambda folder, data=data: (folder / "in.gef").write_bytes(data) and None  # noqa: E731
        yield _bin(f"binary {number}", binary, REFUSED)
    for output in ("in.gef", ".", "", "no/out.h5ad", "/dev/full", "x" * 300, "in.gef/out.h5ad"):
        yield Case(f"bin: output {output[:9]!r}", plain, ("bin", "in.gef", "-o", output), REFUSED)
