"""Hostile texts stay texts, and files are never replaced by mistake."""

import re

import anndata
import numpy as np
import pandas as pd
import pytest
from report.conftest import change, report, run
from zarr_samples import write_zarr

pytestmark = pytest.mark.cli

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</title></style></script><b>",
    "javascript:alert(1)",
    "&lt;i&gt; $x$ %s {0} \\",
    "\u202eevil\x00\x1b[31m\ud7ff",
]
# All that a page may be made of.
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "section", "footer", "nav", "h1", "h2", "h3", "h4"),
    *("p", "a", "div", "span", "b", "figure", "figcaption", "img", "ul", "li", "table", "thead", "tbody", "tr", "th"),
    *("td", "dl", "dt", "dd", "pre", "code", "script"),
}
ATTRIBUTES = {
    *("class", "id", "style", "href", "src", "alt", "width", "height", "lang", "charset", "name", "content"),
    *("http-equiv", "type", "data-layer", "data-domain"),
}


def _expect_harmless(page):
    assert {tag for tag, _ in page.tags} <= TAGS
    assert {name for _, values in page.tags for name in values} <= ATTRIBUTES
    assert all(values["href"].startswith("#") for values in page.all("a"))
    assert all(values["src"].startswith("data:image/png;base64,") for values in page.all("img"))
    for _, values in page.tags:
        assert re.fullmatch(
            r"background:(#[0-9a-f]{6}|linear-gradient\(to right(,#[0-9a-f]{6}){9}\))",
            values.get("style") or "background:#000000",
        )
    for layer in (layer for data in page.maps for layer in data["layers"]):
        assert all(text.isprintable() for text in (layer["title"], layer["word"], *layer.get("names", ())))
    assert "\x00" not in page.source
    assert "\x1b" not in page.source
    assert "\u202e" not in page.source


def _as_shown(text):
    return "".join(sign if sign.isprintable() else "?" for sign in text)


@pytest.fixture
def hostile(fitted, tmp_path):
    """A fitted file whose every text is hostile, its own name too."""

    def spoil(adata):
        texts = np.array(HOSTILE[:6], dtype=object)
        adata.obs["annotation"] = pd.Categorical(texts[np.arange(600) % 6])
        adata.obs[HOSTILE[0].replace("/", "|")] = adata.obs["annotation"]
        adata.var_names = [f"{HOSTILE[i % 6]}{i}" for i in range(adata.n_vars)]
        kept = adata.uns["pdvi"]
        kept["certificate"]["reason"] = HOSTILE[0]
        kept["params"] |= {"counts": HOSTILE[1], "evil": HOSTILE[3], "label_key": HOSTILE[0].replace("/", "|")}
        kept["params"]["versions"]["numpy"] = HOSTILE[2]
        kept["scores"]["samples"] = {"sample": np.array(HOSTILE[:2], dtype=object), "ari": np.array([0.1, 0.2])}
        kept["k_scan"] = {"k": np.array([3, 4]), "found_again": np.array([1.0, 2.0]), "neg_elbo": np.array([2.0, 1.0])}
        kept["k_choice"] = {"asked": HOSTILE[4], "reason": HOSTILE[1]}
        adata.rename_categories("pdvi_domain", texts[:4])

    change(fitted, spoil)
    # a name that a shell and a browser could both stumble over
    return fitted.rename(tmp_path / "<img src=x onerror='alert(1)'>&\" $(id).h5ad")


def test_hostile_texts_stay_texts(hostile):
    page = report(hostile)
    _expect_harmless(page)
    for text in HOSTILE[:6]:
        assert _as_shown(text) in page.words
    shown = [data for tag, data in page.texts if tag in {"li", "span", "td", "b", "dd", "p", "h1", "title"}]
    assert HOSTILE[0] in shown  # whole, in one piece, as the name of a domain or label
    assert page.words.count(hostile.stem) >= 2
    for text in (*HOSTILE[:4], hostile.stem):
        assert text not in page.source


def test_hostile_texts_of_several_sections_stay_texts(hostile, joint):
    page = report(joint[0], hostile)
    _expect_harmless(page)
    assert hostile.stem in [row[0] for row in page.tables["summary"][0]]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_labels_alone(fitted, text):
    text = text.replace("\x00", "")  # no file can hold it
    change(fitted, lambda adata: adata.obs.insert(0, "bad\u202e", pd.Categorical([text, "fine"] * 300)))
    page = report(fitted, options=["--label-key", "bad\u202e", "--no-markers"])
    _expect_harmless(page)
    assert _as_shown(text) in page.words


@pytest.mark.parametrize("colour", ["red;background:url(http://x.invalid)", "#12345", "</style><script>", ""])
def test_a_colour_that_is_none_is_refused(fitted, colour):
    def spoil(adata):
        adata.uns["pdvi_domain_colors"] = np.array([colour] * 4, dtype=object)

    change(fitted, spoil)
    refused = run("report", fitted, "-o", fitted.with_name("page.html"), "-q", code=2)
    assert refused.stderr.startswith("Error: Expected a colour for each domain, found ")
    assert refused.stderr.count("\n") == 1
    assert not fitted.with_name("page.html").exists()


def test_colours_by_name_are_drawn(fitted):
    def spoil(adata):
        adata.uns["pdvi_domain_colors"] = np.array(["red", "C1", "0.5", "#ABCDEF80"], dtype=object)

    change(fitted, spoil)
    page = report(fitted, options=["--no-markers"])
    _expect_harmless(page)
    assert {"class": "swatch", "style": "background:#ff0000"} in page.all("span")


def test_a_file_that_was_not_fitted_is_one_sentence(toy_file, tmp_path):
    refused = run("report", toy_file, "-o", tmp_path / "page.html", code=2)
    assert re.fullmatch(
        r"Error: Expected a fitted section .*, found columns: 'annotation'\. Run `spatialpdvi fit` first, .*\n",
        refused.stderr,
    )
    assert not (tmp_path / "page.html").exists()


def test_one_of_several_that_was_not_fitted_leaves_no_page(fitted, toy_section, tmp_path):
    other = tmp_path / "other.h5ad"
    toy_section.write_h5ad(other)
    (tmp_path / "page.html").write_text("the old one")
    assert str(other) in run("report", fitted, other, "-o", tmp_path / "page.html", code=2).stderr
    assert (tmp_path / "page.html").read_text() == "the old one"


def test_a_second_run_replaces_the_first_with_the_same(fitted):
    first, second = report(fitted), report(fitted)
    assert first.source == second.source
    assert sorted(path.name for path in fitted.parent.iterdir()) == ["one.h5ad", "report.html"]


@pytest.mark.parametrize("name", ["page.h5ad", "page", "page.html.gz", "one.h5ad"])
def test_an_output_that_is_no_page_is_refused(fitted, tmp_path, name):
    before = fitted.read_bytes()
    refused = run("report", fitted, "-o", tmp_path / name, code=2)
    assert refused.stderr.startswith("Error: Expected `--output` to be a file that ends in .html, found ")
    assert fitted.read_bytes() == before


@pytest.mark.parametrize("kind", ["symlink", "hardlink"])
def test_a_page_never_replaces_a_section(fitted, tmp_path, kind):
    page = tmp_path / "page.html"
    page.symlink_to(fitted) if kind == "symlink" else page.hardlink_to(fitted)
    before = fitted.read_bytes()
    refused = run("report", fitted, "-o", page, code=2)
    assert "to be another file than" in refused.stderr
    assert fitted.read_bytes() == before


def test_a_page_is_not_written_into_a_store(fitted, tmp_path):
    store = write_zarr(tmp_path / "one.zarr", anndata.read_h5ad(fitted), 3)
    refused = run("report", store, "-o", store / "page.html", code=2)
    assert "outside of zarr stores" in refused.stderr


def test_a_folder_that_is_not_there(fitted, tmp_path):
    assert "Expected the folder of" in run("report", fitted, "-o", tmp_path / "no" / "page.html", code=2).stderr


def test_names_without_end_are_cut(fitted):
    endless = pd.Categorical([f"{i % 2}{'x' * 100_000}" for i in range(600)])
    change(fitted, lambda adata: adata.obs.insert(0, "long", endless))
    change(fitted, lambda adata: adata.rename_categories("pdvi_domain", [f"{i}{'y' * 100_000}" for i in range(4)]))
    page = report(fitted, options=["--label-key", "long", "--no-markers"])
    assert "x" * 198 + "…" in page.source
    assert "x" * 200 not in page.source
    assert "y" * 200 not in page.source
