"""What `plot` and `report` are given: results that lack parts or lie, hostile names, odd outputs."""

import functools
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd

from corpus.cases import HOSTILE, OK, REFUSED, Case, section

KINDS = ("domains", "annotation", "confidence", "entropy", "agreement", "flow", "edges", "trace", "scan", "confusion")
KINDS = (*KINDS, "states", "composition", "reliability", "image", "overview")
LACKING = {"scan", "states", "composition", "image"}  # of a fit of one K, without states and an image
# parts of a file without which nothing is drawn, and those that single kinds need
NEEDED = {"places", "confidence", "domains", "summary"}
NEEDS = {"annotation": {"annotation", "confusion", "reliability"}, "graph": {"flow", "edges"}}
NEEDS |= {name: {name} for name in ("entropy", "agreement")}
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
def fitted(n_side: int = 9) -> ad.AnnData:
    """The plain section with a fit, not to be changed."""
    from spatialpdvi import fit

    adata = section(n_side=n_side)
    fit(adata, k=3, n_top_genes=20, n_init=2, save_graph=True)
    return adata


def _with(change: Change = lambda adata: None, *, n_side: int = 9, name: str = "in.h5ad") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        adata = fitted(n_side).copy()
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
    """The scripts of a page, and its other elements and attributes that could run or fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        if tag in {"iframe", "object", "embed", "link", "base", "form", "svg"}:
            self.found.append(tag)
        for key, value in attrs:
            address = (value or "").strip().lower()
            if key.startswith("on") or (key in {"href", "src"} and not address.startswith(("#", "data:image/png"))):
                self.found.append(f"{tag} {key}={value}")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            attributes, content = self.scripts[-1]
            self.scripts[-1] = (attributes, content + data)


def check_page(folder: Path) -> None:
    """A whole page in which nothing of the file has become markup: its scripts are its own and the data of maps."""
    from spatialpdvi.report.page import script_of_maps

    page = (folder / "out.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert page.rstrip().endswith("</html>")
    seen = _Page()
    seen.feed(page)
    seen.close()
    assert seen.found == []
    *data, own = seen.scripts
    assert own == ({}, script_of_maps())
    for attributes, content in data:
        assert attributes == {"type": "application/json", "class": "map-data"}
        assert json.loads(content)["layers"]
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
        yield _plot(f"{kind} of a fit", _with(), REFUSED if kind in LACKING else OK, *option)
        for name, lost in lacking.items():
            refused = name in NEEDED or kind in LACKING or kind in NEEDS.get(name, ())
            yield _plot(f"{kind} without {name}", _with(without(*lost)), REFUSED if refused else OK, *option)
    for kinds in ("", ",", "nothing", "overview,domains", "DOMAINS", "a\nb"):
        yield _plot(f"kinds {kinds!r}", _with(), REFUSED, "--kind", kinds)
    for gene, codes in (("gene0", OK), ("", REFUSED), ("GENE0", REFUSED), ("nothing", REFUSED), ("$x^{$", REFUSED)):
        yield _plot(f"gene {gene!r}", _with(), codes, "--gene", gene)
    for options in (
        ("--image",),
        ("--alpha", "0.5"),
        ("--image", "--alpha", "-1"),
        ("--gene", "gene0", "--layer", "no"),
    ):
        yield _plot(f"options {options}", _with(), REFUSED, *options)
    for kinds in ("domains,domains", ",".join(KINDS[:8] * 5)):
        yield _plot(f"kinds {kinds[:20]!r}", _with(), OK, "--kind", kinds)
    for name, lost in lacking.items():
        yield _report(f"without {name}", _with(without(*lost)), REFUSED if name in NEEDED else OK)
    yield _report("what was not fitted", bare, REFUSED)


def _spots() -> Iterator[Case]:
    def placed(number: float) -> Change:
        def change(adata: ad.AnnData) -> None:
            adata.obsm["spatial"][3, 1] = number

        return change

    for number in (np.nan, np.inf):
        yield from _both(f"a place at {number}", placed(number), REFUSED)
    for number, codes in ((1e300, REFUSED), (-1e300, REFUSED), (1e12, OK)):
        yield from _both(f"a place at {number}", placed(number), codes)
    shapes = {
        "all at one place": np.ones_like,
        "all on a line": lambda x: x * [1.0, 0.0],
        "tiny": lambda x: x * 1e-300,
        "denormal": lambda x: x * 5e-324,
        "huge": lambda x: x * 1e300,
        "in 3-D": lambda x: np.c_[x, x[:, 0]],
        "in 1-D": lambda x: x[:, :1],
        "in 4-D": lambda x: np.c_[x, x],
        "as texts": lambda x: pd.DataFrame(x.astype(str), index=fitted().obs_names, columns=["x", "y"]),
    }
    for name, value in shapes.items():
        change = lambda a, value=value: a.obsm.__setitem__("spatial", value(a.obsm["spatial"]))  # noqa: E731
        drawn = name in {"all at one place", "all on a line", "in 3-D"}
        yield from _both(f"places {name}", change, OK if drawn else REFUSED)
    for n in (0, 1, 2, 3):
        few = lambda a, n=n: a[:n].copy()  # noqa: E731
        yield from _both(f"{n} spots", few, OK if n else REFUSED)
        for kind in KINDS:
            yield _plot(
                f"{kind} of {n} spots", _with(few), OK if n and kind not in LACKING else REFUSED, "--kind", kind
            )

    def domains(values: Callable[[int], object]) -> Change:
        def change(adata: ad.AnnData) -> None:
            adata.obs["pdvi_domain"] = pd.Categorical(values(adata.n_obs))
            del adata.uns["pdvi_domain_colors"]

        return change

    for kind in KINDS:
        line, codes = ("--kind", kind), REFUSED if kind in LACKING else OK
        one = _with(domains(lambda n: ["0"] * n))
        yield _plot(f"{kind} of one domain", one, codes, *line)
        many = _with(domains(lambda n: [str(i % 300) for i in range(n)]), n_side=18)
        yield _plot(f"{kind} of 300 domains", many, codes, *line)
    yield _report("one domain", _with(domains(lambda n: ["0"] * n)), OK)
    yield _report("300 domains", _with(domains(lambda n: [str(i % 300) for i in range(n)]), n_side=18), OK)
    yield from _both("domains that are missing", domains(lambda n: [None] + ["0"] * (n - 1)), REFUSED)
    yield from _both("domains that are numbers", domains(lambda n: np.arange(n) % 3), OK)
    yield from _both("domains that are fractions", domains(lambda n: np.arange(n) % 3 / 2), REFUSED)
    for name in ("confidence", "entropy", "agreement", "confidence_calibrated"):
        for label, value in (("nan", np.nan), ("inf", np.inf), ("-7", -7.0), ("1e300", 1e300), ("texts", "high")):

            def change(adata: ad.AnnData, name: str = name, value: object = value) -> None:
                adata.obs[f"pdvi_{name}"] = value

            # the colours of a confidence go from 0 to 1, those of the others over what is there
            drawn = name in {"entropy", "agreement"} and label in {"-7", "1e300"}
            codes, kinds = OK if drawn else REFUSED, "confidence,entropy,agreement"
            yield _plot(f"{name} of {label}", _with(change), codes, "--kind", kinds)
            # a report has no map of the entropy
            yield _report(f"{name} of {label}", _with(change), OK if name == "entropy" else REFUSED)


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
        change, codes = renamed(text), OK if text.strip() else REFUSED  # a domain without a name is a spot without one
        yield _report(f"names {number}", _with(change), codes)
        yield _plot(f"names {number}", _with(change), codes, "--kind", "domains,annotation,confusion")
        yield _report(f"words {number}", _with(told(text)), OK)
        yield _report(f"gene key {number}", _with(), REFUSED, "--gene-key", text.replace("\0", ""))
        if text.strip() and len(text) < 200 and "/" not in text and "\0" not in text:
            file = f"{text}.h5ad"
            yield _report(f"file {number}", _with(name=file), OK, "--", file=f"./{file}")
    svg = ("--kind", "domains,annotation")
    for suffix in ("svg", "pdf"):
        for number, text in enumerate(TEXTS):
            make, codes = _with(renamed(text)), OK if text.strip() else REFUSED
            yield _plot(f"names {number} as {suffix}", make, codes, *svg, output=f"out.{suffix}")
    for number, colours in enumerate(
        (["red;background:url(http://x)"] * 3, ["</style>"] * 3, [""] * 3, ["#000"], [1, 2, 3])
    ):
        change = lambda a, colours=colours: a.uns.__setitem__("pdvi_domain_colors", np.array(colours))  # noqa: E731
        yield from _both(f"colours {number}", change, REFUSED)


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
        if path[1:] not in ABSENT:
            for command in (_report, _plot):
                codes = REFUSED if _is_refused(command, path[1:], None) else OK
                yield command(f"no {name}", _with(replaced(path, None)), codes)
        for kind, value in strangers.items():
            codes = REFUSED if _is_refused(_report, path[1:], kind) else OK
            yield _report(f"{name} as {kind}", _with(replaced(path, value)), codes)
            if path[1] in {"trace", "scores", "certificate", "params"} and kind != "a list":
                codes = REFUSED if _is_refused(_plot, path[1:], kind) else OK
                yield _plot(f"{name} as {kind}", _with(replaced(path, value)), codes, "--kind", "domains,trace")


def _parts() -> tuple[str, ...]:
    return ("params", "domain_mean", "log_variance", "noise_sd", "trace", "certificate", "scores", "stages")


# what a fit of one section from counts does not write
ABSENT = {("params", "sample_key"), ("params", "rep"), ("stages",)}


def _is_refused(command: Callable[..., Case], path: tuple[str, ...], kind: str | None) -> bool:
    """Whether a part of the summary that is missing (None) or of another type is refused: what is read is checked."""
    part, name = path[0], path[-1]
    if part == "trace":
        return True
    if path == ("scores",):
        return kind != "a dict"
    if path == ("scores", "baseline"):
        return kind in {"a text", "an array", "a list"}
    if part == "certificate" and command is _report:
        return (name, kind) not in {("tolerance", "a number"), ("reason", "a text")}
    if path == ("certificate",):
        return kind not in {None, "a dict"}
    if path == ("certificate", "tolerance"):  # drawn in the trace
        return kind not in {None, "a number"}
    return path == ("params", "spatial_key") and kind is not None


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
            yield _plot(f"{flag} {number}", plain, REFUSED, flag, key)
            if flag != "--sample-key":
                yield _report(f"{flag} {number}", plain, REFUSED, flag, key)
    for output in ("out.png", "out", "no/out.html", "", ".", "in.h5ad", "x" * 300 + ".html"):
        line = ("report", "in.h5ad", "-o", output)
        yield Case(f"report: output {output[:20]!r}", plain, line, REFUSED)
    for number, codes in (("-1", REFUSED), ("1.5", REFUSED), ("0", OK), (str(10**12), OK)):
        yield _report(f"-n {number}", plain, codes, "-n", number)
    for memory, codes in (("0", REFUSED), ("-1GB", REFUSED), ("nope", REFUSED), ("1B", OK)):
        yield _report(f"--memory {memory}", plain, codes, "--memory", memory)


def _several() -> Iterator[Case]:
    def two(folder: Path) -> None:
        _with(name="a.h5ad")(folder)
        _with(name="b.h5ad")(folder)

    page = ("-o", "out.html")
    yield Case("report: two files", two, ("report", "a.h5ad", "b.h5ad", *page), OK, check=check_page)
    yield Case("report: one twice", two, ("report", "a.h5ad", "./a.h5ad", *page), REFUSED)
    yield Case("report: one that is gone", two, ("report", "a.h5ad", "c.h5ad", *page), REFUSED)
    yield Case("report: none", two, ("report", *page), REFUSED)
