"""Fitted files that are made once, and pages taken apart."""

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pytest
from conftest import run

FEW = ["--n-top-genes", "100", "--n-init", "2"]
_VOID = {"img", "meta"}


class Page(HTMLParser):
    """A page as a reader finds it: elements, their attributes and texts, by section."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, text
        self.tables: dict[str, list[list[list[str]]]] = {}  # by the id of the section: tables of rows of cells
        self.declarations: list[str] = []
        self._open: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self._open == [], "elements that are never closed"

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        values = dict(attrs)
        assert len(values) == len(attrs), "an attribute twice"
        self.tags.append((tag, values))
        if tag not in _VOID:
            self._open.append((tag, values.get("id")))
        if tag == "table":
            self.tables.setdefault(self._section(), []).append([])
        elif tag == "tr":
            self._rows().append([])
        elif tag in {"td", "th"}:
            self._rows()[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if not self._open:
            assert not data.strip()
            return
        self.texts.append((self._open[-1][0], data))
        if any(tag in {"td", "th"} for tag, _ in self._open):
            self._rows()[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        msg = f"a comment: {data}"
        raise AssertionError(msg)

    def _section(self) -> str:
        return next(name for _, name in reversed(self._open) if name)

    def _rows(self) -> list[list[str]]:
        return self.tables[self._section()][-1]

    @property
    def words(self) -> str:
        """All that is read, but the style, the script and what the script reads."""
        return "".join(data for tag, data in self.texts if tag not in {"style", "script"})

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [values for name, values in self.tags if name == tag]

    @property
    def headings(self) -> list[str]:
        return [data for tag, data in self.texts if tag == "h3"]

    @property
    def captions(self) -> list[str]:
        return [data for tag, data in self.texts if tag == "figcaption"]

    @property
    def scripts(self) -> list[str]:
        return [data for tag, data in self.texts if tag == "script"]

    @property
    def maps(self) -> list[dict[str, Any]]:
        """What the script reads, a dict for each section."""
        return [json.loads(data) for data in self.scripts[:-1]]

    @property
    def commands(self) -> list[str]:
        return [data for tag, data in self.texts if tag == "code"]


def report(*files: Any, options: Any = ()) -> Page:
    """The page that the command makes of the files, beside the first of them."""
    output = Path(files[0]).with_name("report.html")
    run("report", *files, *options, "-o", output, "--quiet")
    return Page(output.read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def small_maps(monkeypatch):
    """Draw maps of fewer dots; what is drawn, and how large it is on the page, stays the same."""
    monkeypatch.setattr("spatialpdvi.report.pictures._DPI", 50)


@pytest.fixture(scope="session")
def _once(toy_section, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    path = folder / "one.h5ad"
    toy_section.write_h5ad(path)
    run("fit", path, "--k", "4", *FEW, "--quiet", "--save-model", folder / "model.npz")
    first = toy_section[:300].copy()
    second = toy_section[300:].copy()
    joint = folder / "joint"
    joint.mkdir()
    for name, part in (("left", first), ("right", second)):
        part.write_h5ad(joint / f"{name}.h5ad")
    run("fit", joint / "left.h5ad", joint / "right.h5ad", "--k", "3", *FEW, "--quiet")
    return folder


@pytest.fixture
def fitted(_once, tmp_path) -> Path:
    """A fitted section of 600 spots and 4 domains, a fresh copy for every test."""
    return Path(shutil.copy(_once / "one.h5ad", tmp_path / "one.h5ad"))


@pytest.fixture
def model(_once) -> Path:
    return _once / "model.npz"


@pytest.fixture
def joint(_once, tmp_path) -> list[Path]:
    """Two files of one fit."""
    return [Path(shutil.copy(_once / "joint" / f"{name}.h5ad", tmp_path)) for name in ("left", "right")]


def change(path: Path, edit: Any) -> None:
    adata = anndata.read_h5ad(path)
    edit(adata)
    adata.write_h5ad(path)


def posterior(path: Path) -> np.ndarray:
    return anndata.read_h5ad(path).obsm["pdvi_posterior"]
