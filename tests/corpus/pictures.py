"""What `plot` and `report` are given: results that lack parts or lie, hostile names, odd outputs."""

import functools
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd

from corpus.cases import EITHER, HOSTILE, OK, REFUSED, Case, section

KINDS = ("domains", "annotation", "confidence", "entropy", "agreement", "flow", "edges", "trace", "scan", "confusion")
KINDS = (*KINDS, "reliability", "overview")
NEEDS = {"flow": "graph", "edges": "graph", "scan": "scan"}
TEXTS = (
    *HOSTILE,
    "</script><script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "<!-- ",
    "]]>",
    "&lt;script&gt;&#x3C;",
    "javascript:alert(1)",
    "$x^{$",
    r"$\frac{",
    "\x1b[31mred\x07",
    "\ufffe\ud800".encode("utf-8", "replace").decode(),
)
HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
Change = Callable[[ad.AnnData], ad.AnnData | None]


def picture_cases() -> Iterator[Case]:
    """All of them."""
    for family in (_kinds, _spots, _names, _results, _outputs, _several):
        yield from family()


@functools.cache
def _fitted(n_side: int = 9) -> ad.AnnData:
    from spatialpdvi import fit

    adata = section(n_side=n_side)
    fit(adata, k=3, n_top_genes=20, n_init=2, save_graph=True)
    return adata


def _with(change: Change = lambda adata: None, *, n_side: int = 9, name: str = "in.h5ad") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        adata = _fitted(n_side).copy()
        changed = change(adata)  # an AnnData without spots counts as false
        (adata if changed is None else changed).write_h5ad(folder / name)

    return make


def _plot(name: str, make: Callable[[Path], None], codes: frozenset[int], *more: str, output: str = "out.png") -> Case:
    check = functools.partial(check_picture, name=output)
    return Case(f"plot: {name}", make, ("plot", "in.h5ad", "-o", output, *more), codes, check=check)


def _report(name: str, make: Callable[[Path], None], codes: frozenset[int], *more: str, file: str = "in.h5ad") -> Case:
    return Case(f"report: {name}", make, ("report", file, "-o", "out.html", *more), codes, check=check_page)


def _both(name: str, change: Change, codes: frozenset[int]) -> Iterator[Case]:
    yield _plot(name, _with(change), codes)
    yield _report(name, _with(change), codes)


def check_picture(folder: Path, *, name: str) -> None:
    """A whole picture of its kind."""
    content = (folder / name).read_bytes()
    assert content.startswith(HEADS[name.rpartition(".")[2].lower()])
    assert len(content) > 1000


class _Page(HTMLParser):
    """Elements and attributes of a page that could run or fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "iframe", "object", "embed", "link", "base", "form", "svg", "style2"}:
            self.found.append(tag)
        for key, value in attrs:
            address = (value or "").strip().lower()
            if key.startswith("on") or (key in {"href", "src"} and not address.startswith(("#", "data:image/png"))):
                self.found.append(f"{tag} {key}={value}")


def check_page(folder: Path) -> None:
    """A whole page in which nothing of the file has become markup."""
    page = (folder / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    seen = _Page()
    seen.feed(page)
    seen.close()
    assert seen.found == []
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\u202e]", page)


def _kinds() -> Iterator[Case]:
    """Each kind on a file that has what it needs, and on those that lack it."""

    def bare(folder: Path) -> None:
        section().write_h5ad(folder / "in.h5ad")

    def without(*names: str) -> Change:
        def change(adata: ad.AnnData) -> None:
            for name in names:
                group, _, key = name.partition("/")
                del getattr(adata, group)[key]

        return change

    lacking = {
        "annotation": ("obs/annotation",),
        "places": ("obsm/spatial",),
        "entropy": ("obs/pdvi_entropy",),
        "agreement": ("obs/pdvi_agreement",),
        "confidence": ("obs/pdvi_confidence",),
        "calibration": ("obs/pdvi_confidence_calibrated",),
        "graph": ("obsm/pdvi_flow", "obsp/pdvi_connectivities"),
        "colours": ("uns/pdvi_domain_colors",),
        "domains": ("obs/pdvi_domain",),
        "summary": ("uns/pdvi",),
        "posteriors": ("obsm/pdvi_posterior",),
    }
    for kind in KINDS:
        option = ("--kind", kind)
        yield _plot(f"{kind} of what was not fitted", bare, REFUSED, *option)
        yield _plot(f"{kind} of a fit", _with(), REFUSED if kind == "scan" else OK, *option)
        for name, lost in lacking.items():
            yield _plot(f"{kind} without {name}", _with(without(*lost)), EITHER, *option)
    for kinds in (
        "",
        ",",
        "nothing",
        "domains,domains",
        "overview,domains",
        ",".join(KINDS[:8] * 5),
        "DOMAINS",
        "a\nb",
    ):
        yield _plot(f"kinds {kinds[:20]!r}", _with(), EITHER, "--kind", kinds)
    for name, lost in lacking.items():
        yield _report(f"without {name}", _with(without(*lost)), EITHER)
    yield _report("what was not fitted", bare, REFUSED)


def _spots() -> Iterator[Case]:
    def placed(number: float) -> Change:
        def change(adata: ad.AnnData) -> None:
            adata.obsm["spatial"][3, 1] = number

        return change

    for number in (np.nan, np.inf):
        yield from _both(f"a place at {number}", placed(number), REFUSED)
    for number in (1e300, -1e300, 1e12):
        yield from _both(f"a place at {number}", placed(number), EITHER)
    shapes = {
        "all at one place": np.ones_like,
        "all on a line": lambda x: x * [1.0, 0.0],
        "tiny": lambda x: x * 1e-300,
        "denormal": lambda x: x * 5e-324,
        "huge": lambda x: x * 1e300,
        "in 3-D": lambda x: np.c_[x, x[:, 0]],
        "in 1-D": lambda x: x[:, :1],
        "in 4-D": lambda x: np.c_[x, x],
        "as texts": lambda x: pd.DataFrame(x.astype(str), index=_fitted().obs_names, columns=["x", "y"]),
    }
    for name, value in shapes.items():
        change = lambda a, value=value: a.obsm.__setitem__("spatial", value(a.obsm["spatial"]))  # noqa: E731
        yield from _both(f"places {name}", change, REFUSED if name in {"in 1-D", "in 4-D"} else EITHER)
    for n in (0, 1, 2, 3):
        few = lambda a, n=n: a[:n].copy()  # noqa: E731
        yield from _both(f"{n} spots", few, EITHER)
        for kind in KINDS:
            yield _plot(f"{kind} of {n} spots", _with(few), EITHER, "--kind", kind)

    def domains(values: Callable[[int], object]) -> Change:
        def change(adata: ad.AnnData) -> None:
            adata.obs["pdvi_domain"] = pd.Categorical(values(adata.n_obs))
            del adata.uns["pdvi_domain_colors"]

        return change

    for kind in KINDS:
        line = ("--kind", kind)
        one = _with(domains(lambda n: ["0"] * n))
        yield _plot(f"{kind} of one domain", one, EITHER, *line)
        many = _with(domains(lambda n: [str(i % 300) for i in range(n)]), n_side=18)
        yield _plot(f"{kind} of 300 domains", many, EITHER, *line)
    yield _report("one domain", _with(domains(lambda n: ["0"] * n)), EITHER)
    yield _report("300 domains", _with(domains(lambda n: [str(i % 300) for i in range(n)]), n_side=18), EITHER)
    yield from _both("domains that are missing", domains(lambda n: [None] + ["0"] * (n - 1)), REFUSED)
    yield from _both("domains that are numbers", domains(lambda n: np.arange(n) % 3), EITHER)
    yield from _both("domains that are fractions", domains(lambda n: np.arange(n) % 3 / 2), EITHER)
    for name in ("confidence", "entropy", "agreement", "confidence_calibrated"):
        for label, value in (("nan", np.nan), ("inf", np.inf), ("-7", -7.0), ("1e300", 1e300), ("texts", "high")):

            def change(adata: ad.AnnData, name: str = name, value: object = value) -> None:
                adata.obs[f"pdvi_{name}"] = value

            yield _plot(f"{name} of {label}", _with(change), EITHER, "--kind", "confidence,entropy,agreement")
            yield _report(f"{name} of {label}", _with(change), EITHER)


def _names() -> Iterator[Case]:
    """Names that are markup, control characters, formulas, or too long."""

    def renamed(text: str) -> Change:
        def change(adata: ad.AnnData) -> None:
            for column, old in (("annotation", "b"), ("pdvi_domain", "1")):
                if text not in adata.obs[column].cat.categories:
                    adata.obs[column] = adata.obs[column].cat.rename_categories({old: text})
            adata.var_names = [text, *adata.var_names[1:]]

        return change

    def told(text: str) -> Change:
        """In every text that the fit has left of itself."""

        def change(adata: ad.AnnData) -> None:
            summary = adata.uns["pdvi"]
            summary["params"] = {key: text if isinstance(v, str) else v for key, v in summary["params"].items()}
            summary["params"]["label_key"] = "annotation"
            summary["params"]["spatial_key"] = "spatial"
            found = summary["certificate"]
            summary["certificate"] = {key: text if isinstance(v, str) else v for key, v in found.items()}

        return change

    for number, text in enumerate(TEXTS):
        change = renamed(text)
        yield _report(f"names {number}", _with(change), EITHER)
        yield _plot(f"names {number}", _with(change), EITHER, "--kind", "domains,annotation,confusion")
        yield _report(f"words {number}", _with(told(text)), EITHER)
        yield _report(f"gene key {number}", _with(), EITHER, "--gene-key", text.replace("\0", ""))
        if text.strip() and len(text) < 200 and "/" not in text and "\0" not in text:
            file = f"{text}.h5ad"
            yield _report(f"file {number}", _with(name=file), OK, "--", file=f"./{file}")
    svg = ("--kind", "domains,annotation")
    for suffix in ("svg", "pdf"):
        for number, text in enumerate(TEXTS):
            make = _with(renamed(text))
            yield _plot(f"names {number} as {suffix}", make, EITHER, *svg, output=f"out.{suffix}")
    for number, colours in enumerate(
        (["red;background:url(http://x)"] * 3, ["</style>"] * 3, [""] * 3, ["#000"], [1, 2, 3])
    ):
        change = lambda a, colours=colours: a.uns.__setitem__("pdvi_domain_colors", np.array(colours))  # noqa: E731
        yield from _both(f"colours {number}", change, EITHER)


def _results() -> Iterator[Case]:
    """Every part of the summary missing, and of another type."""
    strangers = {
        "a number": 3.0,
        "a text": "high",
        "a dict": {"a": 1.0},
        "an array": np.full(3, np.nan),
        "a list": ["a"],
    }

    def replaced(path: tuple[str, ...], value: object) -> Change:
        def change(adata: ad.AnnData) -> None:
            place = adata.uns
            for key in path[:-1]:
                place = place[key]
            if value is None:
                del place[path[-1]]
            else:
                place[path[-1]] = value

        return change

    paths = [("pdvi", part) for part in _parts()]
    inner = (("trace", "epoch"), ("trace", "neg_elbo"), ("scores", "baseline"), ("params", "k"), ("params", "versions"))
    inner = (*inner, ("params", "label_key"), ("params", "spatial_key"), ("params", "rep"), ("certificate", "epochs"))
    inner = (*inner, ("certificate", "converged"), ("certificate", "tolerance"), ("certificate", "reason"))
    inner = (*inner, ("params", "seed"), ("params", "sample_key"), ("params", "n_genes"))
    paths += [("pdvi", *path) for path in inner]
    for path in paths:
        name = "/".join(path)
        if path[1:] != ("params", "sample_key"):
            yield _report(f"no {name}", _with(_tolerant(replaced(path, None))), EITHER)
            yield _plot(f"no {name}", _with(_tolerant(replaced(path, None))), EITHER)
        for kind, value in strangers.items():
            yield _report(f"{name} as {kind}", _with(replaced(path, value)), EITHER)
            if path[1] in {"trace", "scores", "certificate", "params"} and kind != "a list":
                yield _plot(f"{name} as {kind}", _with(replaced(path, value)), EITHER, "--kind", "domains,trace")


def _parts() -> tuple[str, ...]:
    return ("params", "domain_mean", "log_variance", "noise_sd", "trace", "certificate", "scores", "stages")


def _tolerant(change: Change) -> Change:
    """What is not there cannot be removed."""

    def wrapped(adata: ad.AnnData) -> None:
        try:
            change(adata)
        except KeyError:
            return

    return wrapped


def _outputs() -> Iterator[Case]:
    plain = _with()
    for output in (
        "out.bmp",
        "out",
        "out.png.gz",
        ".png",
        "no/out.png",
        "",
        ".",
        "..",
        "/dev/full",
        "x" * 300 + ".png",
    ):
        yield _plot(f"output {output[:20]!r}", plain, REFUSED, output=output)
    yield _plot("output in capitals", plain, OK, output="out.PNG")
    yield _plot("output in a file", plain, REFUSED, output="in.h5ad/out.png")
    yield _plot("output over the input", plain, REFUSED, output="in.h5ad")
    for dpi, codes in (
        ("0", REFUSED),
        ("-5", REFUSED),
        ("1", REFUSED),
        ("20", OK),
        (str(10**9), REFUSED),
        ("nan", REFUSED),
    ):
        yield _plot(f"--dpi {dpi}", plain, codes, "--dpi", dpi)
    for flag in ("--label-key", "--spatial-key", "--sample-key", "--key-added"):
        for number, key in enumerate(("gone", "", "a/b", "..", "größe\n", "x" * 300)):
            yield _plot(f"{flag} {number}", plain, EITHER, flag, key)
            if flag != "--sample-key":
                yield _report(f"{flag} {number}", plain, EITHER, flag, key)
    for output in ("out.png", "out", "no/out.html", "", ".", "in.h5ad", "x" * 300 + ".html"):
        line = ("report", "in.h5ad", "-o", output)
        yield Case(f"report: output {output[:20]!r}", plain, line, REFUSED)
    for number in ("-1", str(10**12), "0", "1.5"):
        yield _report(f"-n {number}", plain, EITHER, "-n", number)
    for memory in ("0", "-1GB", "nope", "1B"):
        yield _report(f"--memory {memory}", plain, EITHER, "--memory", memory)


def _several() -> Iterator[Case]:
    def two(folder: Path) -> None:
        _with(name="a.h5ad")(folder)
        _with(name="b.h5ad")(folder)

    page = ("-o", "out.html")
    yield Case("report: two files", two, ("report", "a.h5ad", "b.h5ad", *page), OK, check=check_page)
    yield Case("report: one twice", two, ("report", "a.h5ad", "./a.h5ad", *page), REFUSED)
    yield Case("report: one that is gone", two, ("report", "a.h5ad", "c.h5ad", *page), REFUSED)
    yield Case("report: none", two, ("report", *page), REFUSED)
