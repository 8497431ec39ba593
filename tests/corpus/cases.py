"""Bad and odd inputs, made one by one: a name, a folder filled, a command line, and what may come of it."""

import contextlib
import gzip
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.options.fit import FitOptions

OK, REFUSED = frozenset({0, 3}), frozenset({2})
Contents = dict[str, str | None]  # elements by their places in a file; None where they cannot be read
FIT = ("fit", "in.h5ad", "--k", "3", "-o", "out.h5ad", "--n-top-genes", "20", "--n-init", "1")


class Case(NamedTuple):
    """One input."""

    name: str
    make: Callable[[Path], None]  # fills an empty folder
    arguments: tuple[str, ...]
    codes: frozenset[int]  # exit codes that are right
    same: bool = False  # whether the domains must be those of the plain section
    check: Callable[[Path], None] | None = None  # of the folder, where the command has done its work
    error: str = ""  # part of the sentence, where the input is refused
    # of random damage: codes and same by what another reader makes of the folder
    decide: Callable[[Path], tuple[frozenset[int], bool]] | None = None


def section(*, n_side: int = 9, n_genes: int = 24, seed: int = 0) -> ad.AnnData:
    """Three stripes on a lattice, raw counts, labelled."""
    rng = np.random.default_rng(seed)
    axis = np.arange(float(n_side))
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = np.minimum((places[:, 0] * 3 / n_side).astype(int), 2)
    mean = rng.gamma(2.0, 2.0, size=(3, n_genes))
    counts = rng.poisson(mean[truth])
    return ad.AnnData(
        sp.csr_matrix(counts.astype(np.int32)),
        obs=pd.DataFrame(
            {"annotation": pd.Categorical(np.array(["a", "b", "c"])[truth])},
            index=[f"spot{i}" for i in range(truth.size)],
        ),
        var=pd.DataFrame(index=[f"gene{j}" for j in range(n_genes)]),
        obsm={"spatial": places},
    )


def every_case() -> list[Case]:
    """All of them; the names differ."""
    from corpus.forest import forest_cases
    from corpus.pictures import picture_cases
    from corpus.samples import sample_cases
    from corpus.stores import store_cases

    families = (_types, _shapes, _places, _values, _labels, _names, _extras, _hdf5, _paths, _options, _commands)
    cases = [
        case for family in (*families, sample_cases, store_cases, picture_cases, forest_cases) for case in family()
    ]
    assert len({case.name for case in cases}) == len(cases)
    return cases


def _with(change: Callable[[ad.AnnData], ad.AnnData | None]) -> Callable[[Path], None]:
    """The plain section, changed, as in.h5ad."""

    def make(folder: Path) -> None:
        adata = section()
        changed = change(adata)  # an AnnData without spots counts as false
        (adata if changed is None else changed).write_h5ad(folder / "in.h5ad")

    return make


def _edited(change: Callable[[h5py.File], None]) -> Callable[[Path], None]:
    """The plain section, its file changed as no library would."""

    def make(folder: Path) -> None:
        section().write_h5ad(folder / "in.h5ad")
        with h5py.File(folder / "in.h5ad", "r+") as file:
            change(file)

    return make


def _fit(
    name: str, make: Callable[[Path], None], codes: frozenset[int], *more: str, same: bool = False, error: str = ""
) -> Case:
    return Case(name, make, (*FIT, *more), codes, same, error=error)


def _set(**parts: object) -> Callable[[ad.AnnData], None]:
    def change(adata: ad.AnnData) -> None:
        for name, value in parts.items():
            setattr(adata, name, value(adata) if callable(value) else value)

    return change


def _types() -> Iterator[Case]:
    """The same counts in every type and format, in every place: the same domains."""
    formats = {
        "csr": sp.csr_matrix,
        "csc": sp.csc_matrix,
        "dense": lambda x: np.asarray(x.todense()),
        "fortran": lambda x: np.asfortranarray(x.todense()),
        "csr_array": sp.csr_array,
    }
    kinds = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
    for kind in kinds:
        for name, form in formats.items():
            yield _fit(
                f"counts {kind} {name}",
                _with(_set(X=lambda a, kind=kind, form=form: form(a.X.astype(np.dtype(kind))))),
                OK,
                same=True,
            )

    def in_layer(key: str, kind: str) -> Callable[[ad.AnnData], None]:
        def change(adata: ad.AnnData) -> None:
            adata.layers[key] = adata.X.astype(kind)
            adata.X = np.log1p(adata.X.toarray().astype("f4"))

        return change

    for key in ("count", "counts"):
        yield _fit(f"layer {key}", _with(in_layer(key, "f4")), OK, same=True)
    yield _fit("layer by name", _with(in_layer("raw counts", "i4")), OK, "--layer", "raw counts", same=True)
    yield _fit("layer of an odd name", _with(in_layer("zähler 🧬", "i4")), OK, "--layer", "zähler 🧬", same=True)
    yield _fit("layer that is not there", _with(in_layer("counts", "i4")), REFUSED, "--layer", "umi")

    def raw(adata: ad.AnnData) -> None:
        adata.raw = adata.copy()
        adata.X = np.log1p(adata.X.toarray().astype("f4"))

    yield _fit("counts in raw", _with(raw), OK, same=True)
    yield _fit("normalised alone", _with(_set(X=lambda a: np.log1p(a.X.toarray().astype("f4")))), REFUSED)
    yield _fit("booleans", _with(_set(X=lambda a: a.X > 2)), OK)
    yield _fit("half floats", _with(_set(X=lambda a: a.X.toarray().astype("f2"))), OK, same=True)
    yield _fit("complex", _edited(lambda f: _replace(f, "X/data", f["X/data"][()].astype("c16"))), REFUSED)
    yield _fit("texts as counts", _edited(lambda f: _replace(f, "X/data", [b"many"] * f["X/data"].size)), REFUSED)


def _replace(file: h5py.File, name: str, value: object) -> None:
    attributes = dict(file[name].attrs)
    del file[name]
    file[name] = value
    file[name].attrs.update(attributes)


def _shapes() -> Iterator[Case]:
    for n in range(6):  # three domains
        yield _fit(f"{n} spots", _with(lambda a, n=n: a[:n].copy()), OK if n >= 3 else REFUSED)
    for g in range(4):
        yield _fit(f"{g} genes", _with(lambda a, g=g: a[:, :g].copy()), OK if g >= 2 else REFUSED)
    for k in (1, 0, 82, 10**9):
        yield Case(f"K {k}", _with(lambda a: None), ("fit", "in.h5ad", "--k", str(k), "-o", "out.h5ad"), REFUSED)
    yield Case("K as many as spots", _with(lambda a: None), ("fit", "in.h5ad", "--k", "81", "-o", "out.h5ad"), OK)
    yield Case("K half the spots", _with(lambda a: None), ("fit", "in.h5ad", "--k", "40", "-o", "out.h5ad"), OK)


def _places() -> Iterator[Case]:
    def place(value: object) -> Callable[[Path], None]:
        def change(adata: ad.AnnData) -> None:
            x = adata.obsm["spatial"]
            adata.obsm["spatial"] = value(x) if callable(value) else value

        return _with(change)

    def one(number: float) -> Callable[[np.ndarray], np.ndarray]:
        def change(x: np.ndarray) -> np.ndarray:
            x[3, 1] = number
            return x

        return change

    def missing(adata: ad.AnnData) -> None:
        del adata.obsm["spatial"]

    yield _fit("no places", _with(missing), REFUSED)
    for name, number in (("nan", np.nan), ("inf", np.inf), ("-inf", -np.inf)):
        yield _fit(f"a place at {name}", place(one(number)), REFUSED)
    for name, factor in (("huge", 1e300), ("tiny", 1e-300), ("denormal", 5e-324)):
        yield _fit(f"{name} places", place(lambda x, factor=factor: x * factor), REFUSED, error="obsm['spatial']")
    for name, factor in (("large", 1e12), ("small", 1e-12)):
        yield _fit(f"{name} places", place(lambda x, factor=factor: x * factor), OK, same=True)
    yield _fit("large and small places", place(lambda x: x * 1e6 + 1e12), OK, same=True)
    yield _fit("places of whole numbers", place(lambda x: x.astype("i2")), OK, same=True)
    yield _fit("places in single precision", place(lambda x: x.astype("f4")), OK, same=True)
    yield _fit("places in 3-D", place(lambda x: np.c_[x, np.zeros(len(x))]), OK)
    yield _fit("places with 1 column", place(lambda x: x[:, :1]), REFUSED)
    yield _fit("places with 4 columns", place(lambda x: np.c_[x, x]), REFUSED)
    yield _fit(
        "places as texts",
        place(lambda x: pd.DataFrame(x.astype(str), columns=["x", "y"], index=[f"spot{i}" for i in range(len(x))])),
        REFUSED,
        error="obsm['spatial']",
    )
    yield _fit(
        "places in a table",
        place(lambda x: pd.DataFrame(x, columns=["x", "y"], index=[f"spot{i}" for i in range(len(x))])),
        OK,
        same=True,
    )
    yield _fit("sparse places", place(sp.csr_matrix), REFUSED, error="obsm['spatial']")
    yield _fit("all at one place", place(np.ones_like), OK)
    yield _fit("all on a line", place(lambda x: x * [1.0, 0.0]), OK)
    yield _fit("pairs at one place", place(lambda x: x // 2), OK)
    yield _fit("one far away", place(one(1e9)), OK)
    yield _fit("mirrored and turned places", place(lambda x: x[:, ::-1] * [-1.0, 1.0]), OK)


def _values() -> Iterator[Case]:
    def put(number: float, kind: str = "f8") -> Callable[[Path], None]:
        def change(adata: ad.AnnData) -> None:
            x = adata.X.toarray().astype(kind)
            x[5, 7] = number
            adata.X = sp.csr_matrix(x)

        return _with(change)

    for name, number in (("negative", -1.0), ("a half", 0.5), ("nan", np.nan), ("inf", np.inf), ("1e30", 1e30)):
        yield _fit(f"a count of {name}", put(number), REFUSED)
    yield _fit("a count of 2^24 + 1", put(2.0**24 + 1), REFUSED, error="raw counts")
    yield _fit("a count of 10^6", put(1e6), OK)
    yield _fit("a count of 1e-310", put(1e-310), REFUSED)
    yield _fit(
        "no counts at all", _with(_set(X=lambda a: sp.csr_matrix(a.shape, dtype="i4"))), REFUSED, error="raw counts"
    )
    yield _fit(
        "the same counts everywhere", _with(_set(X=lambda a: np.full(a.shape, 3, "i4"))), REFUSED, error="same count"
    )

    def emptied(rows: slice, columns: slice) -> Callable[[Path], None]:
        def change(adata: ad.AnnData) -> None:
            x = adata.X.toarray()
            x[rows, columns] = 0
            adata.X = sp.csr_matrix(x)

        return _with(change)

    yield _fit("empty spots", emptied(slice(3, 9), slice(None)), OK)
    yield _fit("one spot with counts", emptied(slice(1, None), slice(None)), OK)
    yield _fit("empty genes", emptied(slice(None), slice(2, 20)), OK)
    yield _fit("one gene with counts", emptied(slice(None), slice(1, None)), REFUSED, error="features")

    def explicit_zeros(adata: ad.AnnData) -> None:
        x = adata.X.copy()
        adata.X = sp.csr_matrix(
            (np.r_[x.data, 0], np.r_[x.indices, 23], np.r_[x.indptr[:-1], x.indptr[-1] + 1]), x.shape
        )

    yield _fit("zeros that are stored", _with(explicit_zeros), OK, same=True)


HOSTILE = (
    "<script>alert(1)</script>",
    "'; DROP TABLE spots; --",
    "../../etc/passwd",
    "a\nb",
    "tab\there",
    "",
    " ",
    "nan",
    "None",
    "0",
    "-1",
    "größe 🧠",
    "\u202eright to left",
    "x" * 5000,
    "%s %d {0} {x}",
    "$HOME `id` $(id)",
    "a/b",
    "\\",
    "[bold red]markup[/]",
)


def _labels() -> Iterator[Case]:
    for number, text in enumerate(HOSTILE):

        def rename(adata: ad.AnnData, text: str = text) -> None:
            adata.obs["annotation"] = adata.obs["annotation"].cat.rename_categories({"b": text})

        yield _fit(f"label {number}", _with(rename), OK, same=True)

    def obs(value: object) -> Callable[[Path], None]:
        def change(adata: ad.AnnData) -> None:
            adata.obs["annotation"] = value(adata) if callable(value) else value

        return _with(change)

    yield _fit("labels of numbers", obs(lambda a: a.obs["annotation"].cat.codes.to_numpy().astype(int)), OK, same=True)
    fractions = obs(lambda a: np.linspace(0, 1, a.n_obs))
    yield _fit("fractions that nobody has called labels", fractions, OK)
    yield _fit("labels of fractions", fractions, REFUSED, "--label-key", "annotation", error="obs['annotation']")
    yield _fit("labels of truth", obs(lambda a: np.arange(a.n_obs) % 2 == 0), OK, same=True)
    yield _fit("labels all missing", obs(lambda a: pd.Categorical([None] * a.n_obs, categories=["a"])), OK, same=True)
    yield _fit("labels some missing", obs(lambda a: a.obs["annotation"].where(np.arange(a.n_obs) % 3 > 0)), OK)
    yield _fit("one label", obs("same"), OK)
    yield _fit("a label for each spot", obs(lambda a: [f"l{i}" for i in range(a.n_obs)]), OK)
    yield _fit("ordered labels", obs(lambda a: a.obs["annotation"].cat.as_ordered()), OK, same=True)
    yield _fit(
        "categories nobody has", obs(lambda a: a.obs["annotation"].cat.add_categories(["d", "e"])), OK, same=True
    )
    yield _fit("a label key that is not there", _with(lambda a: None), REFUSED, "--label-key", "cell_type")
    yield _fit("start from labels", _with(lambda a: None), OK, "--init", "annotation")
    yield _fit("start from nothing", _with(lambda a: None), REFUSED, "--init", "nothing")
    yield _fit("samples by labels", _with(lambda a: None), OK, "--sample-key", "annotation")
    yield _fit(
        "samples, each of one spot",
        obs(lambda a: [f"l{i}" for i in range(a.n_obs)]),
        REFUSED,
        "--sample-key",
        "annotation",
        error="sections of several spots",
    )


def _names() -> Iterator[Case]:
    for number, text in enumerate(HOSTILE):

        def rename(adata: ad.AnnData, text: str = text) -> None:
            adata.obs_names = [text, *adata.obs_names[1:]]
            adata.var_names = [text, *adata.var_names[1:]]

        yield _fit(f"name {number}", _with(rename), OK, same=True)
    yield _fit(
        "names that repeat",
        _with(_set(obs_names=lambda a: ["s"] * a.n_obs, var_names=lambda a: ["g"] * a.n_vars)),
        OK,
        same=True,
    )
    for number, key in enumerate(("a/b", "..", "", "größe", " ", "../out", "a\nb", "%s")):
        yield _fit(f"key {number}", _with(lambda a: None), REFUSED, "--key-added", key, error="--key-added")
    for key in ("X", "x" * 300, "pdvi_domain"):
        yield _fit(f"key {key[:20]}", _with(lambda a: None), OK, "--key-added", key, same=True)


def _extras() -> Iterator[Case]:
    """What else is in the file: kept as it is, never looked into, never unpickled."""

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, ("touch trapped",)

    def uns(value: object) -> Callable[[Path], None]:
        return _with(lambda a: a.uns.__setitem__("extra", value))

    yield _fit("a pickle in uns", uns(np.frombuffer(pickle.dumps(Trap()), dtype="u1")), OK, same=True)
    yield _fit(
        "a pickle as text in uns",
        uns(pickle.dumps(Trap(), protocol=0).decode("latin-1").replace("\0", "")),
        OK,
        same=True,
    )
    deep: dict[str, object] = {}
    inner = deep
    for _ in range(40):
        inner["in"] = inner = {}
    yield _fit("deep uns", uns(deep), OK, same=True)
    yield _fit("a long text in uns", uns("x" * 10**6), OK, same=True)
    for name, value in (
        ("an earlier result of another shape", {"params": {"k": 99}}),
        ("uns['pdvi'] of a stranger", "mine"),
    ):
        make = _with(lambda a, value=value: a.uns.__setitem__("pdvi", value))
        yield _fit(name, make, REFUSED, error="uns['pdvi']")
    make = _with(lambda a: a.obs.__setitem__("pdvi_domain", 1.0))
    yield _fit("obs['pdvi_domain'] of a stranger", make, REFUSED, error="obs['pdvi_domain']")
    beside: dict[str, Callable[[h5py.File], object]] = {
        "opaque bytes beside X": lambda f: f.create_dataset("blob", data=np.void(b"\x00\xff" * 99)),
        "an unknown group": lambda f: f.create_group("extra/deeper"),
        "a soft link that dangles": lambda f: f.__setitem__("uns/link", h5py.SoftLink("/nowhere")),
        "a soft link to itself": lambda f: f.__setitem__("uns/link", h5py.SoftLink("/uns/link")),
        "an external link": lambda f: f.__setitem__("uns/link", h5py.ExternalLink("/etc/passwd", "/")),
        "a reference in obs": lambda f: f.create_dataset("obs/ref", data=f.ref, dtype=h5py.ref_dtype),
    }
    for name, change in beside.items():
        yield _fit(name, _edited(change), OK, same=True)
    yield _fit("X is an external link", _edited(lambda f: _relink(f, "X", h5py.ExternalLink("gone.h5", "/X"))), REFUSED)


def _relink(file: h5py.File, name: str, link: object) -> None:
    del file[name]
    file[name] = link


def flipped(seed: int) -> Callable[[bytearray], bytearray]:
    """What turns over one to five bits of a file."""

    def change(content: bytearray) -> bytearray:
        rng = np.random.default_rng(seed)
        for place in rng.integers(len(content), size=1 + seed % 5):
            content[place] ^= 1 << int(rng.integers(8))
        return content

    return change


def outcome(before: Contents, after: Contents, needed: tuple[str, ...]) -> tuple[frozenset[int], bool]:
    """What a fit may do with a damaged file: `before` and `after` are what another reader finds, by element.

    A file that reads as before is fitted as before. One whose needed elements cannot be read is refused. Of any other
    damage either may come, but a fit of the same counts and places must find the same domains.
    """
    if after == before:
        return OK, True
    elements = [name for name in before if not name.endswith(" attributes")]
    lost = [name for name in elements if name.startswith(needed) and after.get(name) is None]
    values = [name for name in elements if name.startswith(("X/", "obsm/spatial"))]
    return (REFUSED if lost else OK | REFUSED), all(after.get(name) == before[name] for name in values)


def _read_h5ad(path: Path) -> Contents:
    found: Contents = {}

    def walk(group: h5py.Group, prefix: str) -> None:
        for name in group:
            place = f"{prefix}{name}"
            found[place] = None
            with contextlib.suppress(Exception):  # whatever the library says of damage
                element = group[name]
                value = "" if isinstance(element, h5py.Group) else np.asarray(element[()])
                found[place] = str(value if isinstance(value, str) else (value.dtype, value.tolist()))
                if isinstance(element, h5py.Group):
                    walk(element, f"{place}/")
                found[f"{place} attributes"] = str(sorted((key, str(element.attrs[key])) for key in element.attrs))

    with contextlib.suppress(Exception), h5py.File(path) as file:
        walk(file, "")
    return found


def _by_what_h5py_reads(folder: Path) -> tuple[frozenset[int], bool]:
    whole = folder.parent / "whole.h5ad"
    section().write_h5ad(whole, compression="gzip")
    before = _read_h5ad(whole)
    whole.unlink()
    return outcome(before, _read_h5ad(folder / "in.h5ad"), ("X", "obs/", "var/", "obsm/spatial"))


def _hdf5() -> Iterator[Case]:
    def damaged(change: Callable[[bytearray], bytes | bytearray]) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            section().write_h5ad(folder / "in.h5ad", compression="gzip")
            path = folder / "in.h5ad"
            path.write_bytes(change(bytearray(path.read_bytes())))

        return make

    for share in (0, 1, 5, 20, 50, 80, 95, 99):
        yield _fit(f"cut after {share} %", damaged(lambda c, share=share: c[: len(c) * share // 100]), REFUSED)
    yield _fit("one byte short", damaged(lambda c: c[:-1]), REFUSED, error="truncated or damaged")
    yield _fit("bytes behind the end", damaged(lambda c: c + b"more" * 99), OK, same=True)
    for seed in range(60):
        yield _fit(f"bits flipped {seed}", damaged(flipped(seed)), frozenset())._replace(decide=_by_what_h5py_reads)
    for name, missing in (
        ("X", "X"),
        ("obs", "obs"),
        ("var", "var"),
        ("the index of obs", "obs/_index"),
        ("X/indptr", "X/indptr"),
        ("X/indices", "X/indices"),
        ("obsm", "obsm"),
        ("the categories", "obs/annotation/categories"),
        ("the codes", "obs/annotation/codes"),
    ):
        yield _fit(f"without {name}", _edited(lambda f, missing=missing: f.__delitem__(missing)), REFUSED)
    yield _fit("indices beyond the genes", _edited(lambda f: f["X/indices"].__setitem__(3, 10**6)), REFUSED)
    yield _fit("indices below zero", _edited(lambda f: f["X/indices"].__setitem__(3, -5)), REFUSED)
    yield _fit("row pointers that fall", _edited(lambda f: f["X/indptr"].__setitem__(5, 0)), REFUSED)
    yield _fit("row pointers beyond the data", _edited(lambda f: f["X/indptr"].__setitem__(-1, 10**7)), REFUSED)
    yield _fit("codes beyond the categories", _edited(lambda f: f["obs/annotation/codes"].__setitem__(0, 99)), REFUSED)
    yield _fit("a shape that is a lie", _edited(lambda f: f["X"].attrs.__setitem__("shape", [81, 10**9])), REFUSED)
    yield _fit(
        "an encoding from the future",
        _edited(lambda f: f["X"].attrs.__setitem__("encoding-version", "99.0.0")),
        OK,
        same=True,
    )
    yield _fit(
        "an unknown encoding", _edited(lambda f: f["X"].attrs.__setitem__("encoding-type", "marshmallow")), REFUSED
    )


def _paths() -> Iterator[Case]:
    def content(data: bytes) -> Callable[[Path], None]:
        return lambda folder: (folder / "in.h5ad").write_bytes(data) and None

    yield _fit("no file", lambda folder: None, REFUSED)
    yield _fit("an empty file", content(b""), REFUSED)
    yield _fit("a text", content(b"gene,spot\n1,2\n"), REFUSED)
    yield _fit("a picture", content(b"\x89PNG\r\n\x1a\n" + b"\0" * 500), REFUSED)
    yield _fit("a zip", content(b"PK\x03\x04" + b"\0" * 500), REFUSED)
    yield _fit("a pickle", content(pickle.dumps({"X": [1, 2]})), REFUSED)
    yield _fit("a gzipped h5ad", _gzipped, REFUSED)
    yield _fit("a folder", lambda folder: (folder / "in.h5ad").mkdir(), REFUSED)
    yield _fit("an h5 that is no AnnData", lambda folder: h5py.File(folder / "in.h5ad", "w").close(), REFUSED)
    yield _fit("a link to itself", lambda folder: (folder / "in.h5ad").symlink_to("in.h5ad"), REFUSED)
    yield _fit("a link to nowhere", lambda folder: (folder / "in.h5ad").symlink_to("gone.h5ad"), REFUSED)
    yield _fit("a pipe", lambda folder: os.mkfifo(folder / "in.h5ad"), REFUSED)
    yield _fit("a device", lambda folder: (folder / "in.h5ad").symlink_to("/dev/zero"), REFUSED)

    def linked(folder: Path) -> None:
        section().write_h5ad(folder / "real.h5ad")
        (folder / "in.h5ad").symlink_to("real.h5ad")

    yield _fit("a link to a section", linked, OK, same=True)
    for number, name in enumerate(
        ("größe 🧠.h5ad", "a b.h5ad", "a\nb.h5ad", "$(id).h5ad", "%s.h5ad", "'.h5ad", "a.b.c", "x" * 200)
    ):

        def make(folder: Path, name: str = name) -> None:
            section().write_h5ad(folder / name)

        yield Case(f"file name {number}", make, ("fit", name, *FIT[2:]), OK, same=True)
    plain = _with(lambda a: None)
    for name, output in (
        ("a folder that is not there", "nowhere/out.h5ad"),
        ("a folder", "."),
        ("a device", "/dev/full"),
        ("a name that is too long", "x" * 300),
        ("no name", ""),
    ):
        yield Case(f"output: {name}", plain, (*FIT[:4], "-o", output), REFUSED)
    for option in ("--report", "--save-model"):
        for name, output in (
            ("the input", "in.h5ad"),
            ("the output", "out.h5ad"),
            ("a folder", "."),
            ("nowhere", "no/x"),
        ):
            yield _fit(f"{option}: {name}", plain, REFUSED, option, output)


def _gzipped(folder: Path) -> None:
    section().write_h5ad(folder / "in.h5ad")
    path = folder / "in.h5ad"
    path.write_bytes(gzip.compress(path.read_bytes()))


def _options() -> Iterator[Case]:
    """Every number of a fit far out of its range, every choice unknown."""
    plain = _with(lambda a: None)
    unbounded = {
        "--target-sum",
        "--clip",
        "--step-factor",
        "--step-mean",
        "--step-log-variance",
        "--tol",
        "--tol-objective",
    }
    # options that name a part of the file
    parts = {"layer": "layers", "spatial-key": "obsm", "label-key": "obs", "sample-key": "obs", "rep": "obsm"}
    parts |= {"init": "obs", "graph": "obsp"}
    errors = {f"--{name}": f"{part}['no such thing']" for name, part in parts.items()}
    for f in fields(FitOptions):
        flag = "--" + f.name.replace("_", "-")
        kind = str(f.type)
        if f.name == "k" or "bool" in kind:
            continue
        if "int" in kind or "float" in kind:
            for value in ("-1", "nan", "1e400", "zero"):
                yield _fit(f"{flag} {value}", plain, REFUSED, flag, value, error=flag)
            codes = OK if flag in unbounded else REFUSED
            yield _fit(f"{flag} {10**20}", plain, codes, flag, str(10**20), error="" if codes is OK else flag)
        else:
            yield _fit(f"{flag} unknown", plain, REFUSED, flag, "no such thing", error=errors.get(flag, flag))
    yield _fit("--memory 0", plain, REFUSED, "--memory", "0GB")
    yield _fit("--dask nowhere", plain, REFUSED, "--dask", "here")
    yield _fit("--threads 0", plain, REFUSED, "--threads", "0")
    yield _fit("an option that there is not", plain, REFUSED, "--k-means", "3")


def _commands() -> Iterator[Case]:
    """Every other command, on what is no result."""
    plain = _with(lambda a: None)
    for command in (
        ("evaluate", "in.h5ad", "--domain-key", "pdvi_domain"),
        ("plot", "in.h5ad", "-o", "out.png"),
        ("markers", "in.h5ad", "-o", "out.csv"),
        ("predict", "in.h5ad", "--model", "in.h5ad", "-o", "out.h5ad"),
        ("predict", "in.h5ad", "--model", "gone.npz", "-o", "out.h5ad"),
        ("compare", "gone.h5ad", "--k", "3", "-o", "out"),
        ("estimate", "gone.h5ad", "--k", "3"),
        ("simulate", "out.h5ad", "--n-spots", "-5", "--n-genes", "10", "--k", "3"),
        ("simulate", "no/out.h5ad"),
    ):
        yield Case(" ".join(command), plain, command, REFUSED)
    yield Case("estimate", plain, ("estimate", "in.h5ad", "--k", "3"), OK)
    yield Case("evaluate", plain, ("evaluate", "in.h5ad", "--domain-key", "annotation"), OK)
