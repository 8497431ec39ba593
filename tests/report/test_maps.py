"""The maps of the page in a real browser: what is hovered, clicked, chosen and typed does what it should."""

import shutil

import anndata
import numpy as np
import pandas as pd
import pytest
from report.browser import BROWSER, Browser
from report.conftest import Page, change, report
from scipy.spatial import cKDTree

from spatialpdvi.report import page

pytestmark = [pytest.mark.cli, pytest.mark.skipif(BROWSER is None, reason="no chromium here")]

LABELS = ["<img src=x onerror=pwned=1>", "\"quoted\" & 'so'", "</script><script>pwned=1</script>", "Größe 日本"]
READY = "document.querySelector('canvas[data-drawn]')"
FADED = 38  # of 255


class Maps:
    """The page of a section, and what the file says."""

    def __init__(self, browser, path, page):
        self.browser, self.page = browser, page
        self.adata = anndata.read_h5ad(path)
        browser.events.clear()
        browser.open(path.with_name("report.html"), until=READY)
        browser.settle()

    def box(self, panel):
        """Left, top, width and height of a canvas in the window, after scrolling to it."""
        return self.browser.run(
            f"(() => {{ const canvas = document.querySelectorAll('canvas')[{panel}];"
            "canvas.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const {left, top, width, height} = canvas.getBoundingClientRect(); return [left, top, width, height]; })()"
        )

    def on_canvas(self, panel):
        """Where the spots are from the upper left corner of a canvas, (n, 2), as the picture has them."""
        _, _, width, height = self.box(panel)
        place = self.adata.obsm["spatial"][:, :2].astype(float)
        spacing = np.median(cKDTree(place).query(place, k=2)[0][:, 1])
        image = self.page.all("img")[0]
        size = np.array([int(image["width"]), int(image["height"])])
        per_unit = min(size / (np.ptp(place, axis=0) + 1.5 * spacing)) * min([width, height] / size)
        return (place - (place.min(axis=0) + place.max(axis=0)) / 2) * per_unit + np.array([width, height]) / 2

    def point(self, spot, panel):
        """Where a spot is in the window."""
        left, top, _, _ = self.box(panel)
        return self.on_canvas(panel)[spot] + [left, top]

    def hover(self, spot, panel):
        self.browser.mouse("mouseMoved", 1, 1)
        self.browser.mouse("mouseMoved", *self.point(spot, panel))
        return self.facts

    @property
    def facts(self):
        """The lines beside the pointer."""
        return self.browser.run(
            "document.querySelector('.facts').hidden ? null :"
            "[...document.querySelector('.facts').children].map((line) => line.textContent)"
        )

    def pixels(self, panel):
        """Red, green, blue and opacity of each spot's middle, (n, 4)."""
        at = np.floor(self.on_canvas(panel)).astype(int).tolist()
        return np.array(
            self.browser.run(
                f"(() => {{ const canvas = document.querySelectorAll('canvas')[{panel}];"
                # read from a copy: the browser would warn of reading the canvas itself often
                "const {width, height} = canvas, copy = new OffscreenCanvas(width, height);"
                "const context = copy.getContext('2d', {willReadFrequently: true}); context.drawImage(canvas, 0, 0);"
                "const {data} = context.getImageData(0, 0, width, height);"
                f"return {at}.map(([x, y]) => [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 4)]); }})()"
            )
        )

    @property
    def lit(self):
        """Whether each spot stands out, the same on every map, (n,)."""
        shown = [self.pixels(panel)[:, 3] for panel in range(len(self.layers))]
        for other in shown:
            assert np.array_equal(other, shown[0])
        assert set(shown[0]) <= {255, FADED}
        return shown[0] == 255

    @property
    def layers(self):
        return self.browser.run("[...document.querySelectorAll('.live select')].map((select) => select.value)")

    def choose(self, panel, layer):
        self.browser.run(
            f"(() => {{ const select = document.querySelectorAll('.live select')[{panel}]; select.value = '{layer}';"
            "select.dispatchEvent(new Event('change')); })()"
        )
        self.browser.settle()

    def obs(self, column):
        return self.adata.obs[column].to_numpy()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def rich(_once, tmp_path_factory):
    """A fitted section with hostile labels, and domains that share three states."""
    path = shutil.copy(_once / "one.h5ad", tmp_path_factory.mktemp("rich") / "one.h5ad")

    def enrich(adata):
        rng = np.random.default_rng(0)
        texts = np.array(LABELS, dtype=object)
        codes = np.arange(600) // 150
        adata.obs["annotation"] = pd.Categorical(np.where(np.arange(600) % 50 == 7, None, texts[codes]))
        adata.obs_names = [f"{i}<b>" for i in range(600)]
        adata.obsm["pdvi_state"] = rng.dirichlet([0.5, 0.5, 0.5], size=600)
        adata.uns["pdvi"]["composition"] = rng.dirichlet([1.0, 1.0, 1.0], size=4)
        adata.rename_categories("pdvi_domain", ["0", "<i>one</i>", "2", "3"])

    change(path, enrich)
    return path, report(path, options=["-n", "2"])


@pytest.fixture
def maps(browser, rich):
    """A fresh page, and no complaint and no request at the end."""
    opened = Maps(browser, *rich)
    yield opened
    assert browser.complaints == []
    assert browser.requests == []


def test_a_page_that_complains_or_asks_is_noticed(browser, tmp_path):
    path = tmp_path / "bad.html"
    policy = "<meta http-equiv=Content-Security-Policy content=\"script-src 'none'\">"
    for text, found in (
        ("<script>nothing()</script>", "complaints"),
        (f"{policy}<script>1</script>", "complaints"),
        ("<img src=http://elsewhere.invalid/x.png>", "requests"),
    ):
        browser.events.clear()
        path.write_text(f"<!DOCTYPE html>{text}")
        browser.open(path)
        assert getattr(browser, found)


def test_hover_shows_the_facts_of_the_spot(maps):
    gene = maps.page.tables["section-1-marker-genes"][0][4][1].split()[0]  # the first marker of the last domain
    maps.choose(1, "gene 3")
    counts = maps.adata.X.toarray()
    expression = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))[:, list(maps.adata.var_names).index(gene)]
    states = maps.adata.obsm["pdvi_state"]
    for spot in (0, 7, 123, 345, 599):
        label = maps.obs("annotation")[spot]
        order = [
            f"{state} ({states[spot, state]:.0%})" for state in np.argsort(-states[spot]) if states[spot, state] > 0.005
        ]
        assert maps.hover(spot, 1) == [
            f"{spot}<b>",
            f"annotation {'none' if pd.isna(label) else label}",
            f"domain {maps.obs('pdvi_domain')[spot]}",
            f"calibrated confidence {maps.obs('pdvi_confidence_calibrated')[spot]:.2f}",
            f"agreement of restarts {maps.obs('pdvi_agreement')[spot]:.2f}",
            f"state{'s' * (len(order) > 1)} {', '.join(order)}",
            "states of its domain",
            f"{gene} {expression[spot]:.1f}",
        ]
    assert maps.hover(0, 0)[-1] == "states of its domain"  # that map shows no gene
    left, top, _, _ = maps.box(0)
    maps.browser.mouse("mouseMoved", left + 1, top + 1)
    assert maps.facts is None


def test_the_domains_have_their_colours(maps):
    assert maps.layers == ["annotation", "domain", "confidence", "agreement"]
    colours = dict(zip(maps.adata.obs["pdvi_domain"].cat.categories, maps.adata.uns["pdvi_domain_colors"], strict=True))
    own = np.array([[int(colours[name][at : at + 2], 16) for at in (1, 3, 5)] for name in maps.obs("pdvi_domain")])
    assert np.array_equal(maps.pixels(1)[:, :3], own)
    unlabelled = pd.isna(maps.obs("annotation"))
    assert (maps.pixels(0)[unlabelled, :3] == 0xDE).all()
    assert maps.lit.all()


def test_a_click_on_a_map_lights_up_the_domain_everywhere(maps):
    domains = maps.obs("pdvi_domain")
    for panel in (1, 2):  # of domains, and of a number
        maps.browser.click(*maps.point(42, panel))
        assert np.array_equal(maps.lit, domains == domains[42])
        other = int(np.flatnonzero(domains != domains[42])[0])
        maps.browser.click(*maps.point(other, panel))
        assert np.array_equal(maps.lit, domains == domains[other])
        maps.browser.click(*maps.point(other, panel))
        assert maps.lit.all()
    maps.browser.click(*maps.point(42, 1))
    told = maps.browser.run("document.querySelector('.told').textContent")
    assert told.startswith(f"Domain {domains[42]} is lit up: {(domains == domains[42]).sum()} spots.")
    maps.browser.press("Escape")
    assert maps.lit.all()
    maps.browser.click(*maps.point(42, 0))  # on the annotation, the label
    assert np.array_equal(maps.lit, maps.obs("annotation") == maps.obs("annotation")[42])


def test_legend_and_tables_light_up_the_domain(maps):
    domains = maps.obs("pdvi_domain")
    places = {
        "legend": "[...document.querySelectorAll('figure')[1].querySelectorAll('button')][1]",
        "table": "document.querySelectorAll('#section-1-domains [data-domain]')[1]",
        "genes": "document.querySelectorAll('#section-1-marker-genes [data-domain]')[1]",
    }
    for place in places.values():
        assert maps.browser.run(f"{place}.textContent") == "<i>one</i>"
        for lit in (domains == "<i>one</i>", np.ones(600, dtype=bool)):
            maps.browser.run(f"{place}.click()")
            maps.browser.settle()
            assert np.array_equal(maps.lit, lit)
            pressed = [maps.browser.run(f"{other}.getAttribute('aria-pressed')") for other in places.values()]
            assert pressed == [str(not lit.all()).lower()] * 3
    maps.browser.run(f"{places['table']}.focus()")
    maps.browser.press("Enter")
    assert np.array_equal(maps.lit, domains == "<i>one</i>")


def test_a_layer_changes_the_map_that_it_was_chosen_for(maps):
    before = [maps.pixels(panel) for panel in range(4)]
    states = maps.adata.obsm["pdvi_state"].argmax(axis=1)
    for layer in ("state", "gene 0", "confidence", "annotation"):
        maps.choose(1, layer)
        shown = maps.pixels(1)
        assert (shown != before[1]).any()
        if layer == "state":
            assert len(np.unique(np.column_stack([states, shown]), axis=0)) == 3
            maps.browser.click(*maps.point(42, 1))
            assert np.array_equal(maps.lit, states == states[42])
            maps.browser.press("Escape")
        if layer in maps.layers[:1] + maps.layers[2:]:
            assert np.array_equal(shown, before[["annotation", "", "confidence"].index(layer)])
    assert all(np.array_equal(maps.pixels(panel), before[panel]) for panel in (0, 2, 3))
    maps.choose(1, "domain")
    assert np.array_equal(maps.pixels(1), before[1])


def test_wheel_drag_and_double_click(maps):
    before = maps.pixels(1)
    spot = maps.point(200, 1)
    for _ in range(3):
        maps.browser.mouse("mouseWheel", *spot, deltaX=0, deltaY=-300)
    maps.browser.settle()
    assert (maps.pixels(1) != before).any()
    assert (maps.pixels(3) != maps.pixels(1)).any()
    maps.browser.mouse("mouseMoved", *(spot + 1))
    assert maps.facts[0] == "200<b>"  # it stayed under the pointer
    moved = spot + np.array([40, -30])
    maps.browser.mouse("mousePressed", *spot, button="left", clickCount=1)
    for share in (0.3, 0.6, 1.0):
        maps.browser.mouse("mouseMoved", *(spot + share * (moved - spot)), button="left")
    maps.browser.mouse("mouseReleased", *moved, button="left", clickCount=1)
    maps.browser.settle()
    maps.browser.mouse("mouseMoved", *(moved + 1))
    assert maps.facts[0] == "200<b>"  # it went with the pointer
    maps.browser.click(*moved, times=2)
    assert np.array_equal(maps.pixels(1), before)
    assert maps.lit.all()  # nothing was lit up by the drag or the double click


def test_the_wheel_leaves_the_whole_section_to_the_page(maps):
    spot, top = maps.point(200, 1), maps.browser.run("window.scrollY")
    maps.browser.mouse("mouseWheel", *spot, deltaX=0, deltaY=200)
    maps.browser.wait(f"window.scrollY > {top}")


def test_the_keyboard_does_the_same(maps):
    before, middle = maps.pixels(0), maps.on_canvas(0)
    _, _, width, height = maps.box(0)
    nearest = int(np.linalg.norm(middle - [width / 2, height / 2], axis=1).argmin())
    maps.browser.run("document.querySelector('canvas').focus()")
    for _ in range(3):
        maps.browser.press("+")
    assert (maps.pixels(0) != before).any()
    assert maps.facts[0] == f"{nearest}<b>"
    maps.browser.press("ArrowRight")
    assert maps.facts is None or maps.facts[0] != f"{nearest}<b>"
    maps.browser.press("0")
    assert np.array_equal(maps.pixels(0), before)
    maps.browser.press("Enter")
    assert np.array_equal(maps.lit, maps.obs("annotation") == maps.obs("annotation")[nearest])
    maps.browser.press("Escape")
    assert maps.lit.all()
    assert maps.facts is None


def test_hostile_labels_stay_texts(maps):
    for panel in range(4):
        maps.hover(20, panel)
    maps.browser.click(*maps.point(20, 0))
    assert maps.browser.run(
        "[...document.querySelectorAll('figure')[0].querySelectorAll('button')].map(x => x.textContent)"
    ) == sorted(LABELS)
    assert maps.facts[1] == f"annotation {LABELS[0]}"
    assert maps.browser.run("typeof pwned") == "undefined"
    assert maps.browser.run("[...document.images].every((image) => image.src.startsWith('data:image/png'))")
    assert maps.browser.run("document.scripts.length") == 2


def test_without_scripts_the_page_is_as_it_was_written(browser, rich):
    path, written = rich
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(path.with_name("report.html"))
        root = browser.call("DOM.getDocument")["root"]["nodeId"]
        found = Page(browser.call("DOM.getOuterHTML", nodeId=root)["outerHTML"])
        drawn = browser.run("[...document.images].map((image) => image.complete && image.getClientRects().length > 0)")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert found.headings == written.headings
    assert found.words.split() == written.words.split()
    assert found.tables == written.tables
    assert drawn == [True] * len(written.all("img"))


def test_on_paper_there_are_the_pictures(maps):
    shown = "[...document.querySelectorAll('%s')].map((found) => getComputedStyle(found).display !== 'none')"
    maps.browser.call("Emulation.setEmulatedMedia", media="print")
    assert maps.browser.run(shown % ".maps img, .maps figcaption") == [True] * 8
    assert maps.browser.run(shown % ".live, .tools") == [False] * 5
    maps.browser.call("Emulation.setEmulatedMedia", media="")
    assert maps.browser.run(shown % ".maps img, .maps figcaption") == [False] * 8
    assert maps.browser.run(shown % ".live, .tools") == [True] * 5


def test_sections_of_one_file_are_named(browser, fitted):
    def cut(adata):
        adata.obs["slice"] = pd.Categorical(np.where(np.arange(600) < 200, "front", "<b>"))
        adata.uns["pdvi"]["params"]["sample_key"] = "slice"

    change(fitted, cut)
    maps = Maps(browser, fitted, report(fitted, options=["--no-markers"]))
    _, _, width, height = maps.box(0)
    found = set()
    left, top, _, _ = maps.box(0)
    for x in np.linspace(5, width - 5, 12):
        for y in np.linspace(5, height - 5, 12):
            browser.mouse("mouseMoved", left + x, top + y)
            if maps.facts:
                name, section = maps.facts[:2]
                assert section == f"section {maps.adata.obs['slice'][name]}"
                found.add(section)
    assert found == {"section front", "section <b>"}
    assert browser.complaints == []


def test_more_spots_than_fit_are_squares(browser, fitted, monkeypatch):
    monkeypatch.setattr(page, "MOST_SPOTS", 100)
    monkeypatch.setattr(page, "_FEWEST", 1)
    maps = Maps(browser, fitted, report(fitted, options=["--no-markers"]))
    (data,) = maps.page.maps
    assert data["rows"] <= 100
    assert maps.page.source.count(maps.adata.obs_names[0]) <= 1  # no names of spots
    side = data["sections"][0]["side"]
    told = browser.run("document.querySelector('.told').textContent")
    assert told.startswith(
        f"These are 600 spots, too many to be in this page one by one: each square holds those within {side} "
    )
    place = maps.adata.obsm["spatial"][:, :2]
    spacing = np.median(cKDTree(place).query(place, k=2)[0][:, 1])
    square = np.floor((place - place.min(axis=0) + spacing / 2) / (side * spacing)).astype(int)
    for spot in (3, 300, 511):
        own = maps.adata.obs[(square == square[spot]).all(axis=1)]
        sizes = own["pdvi_domain"].value_counts()
        facts = maps.hover(spot, 1)
        assert facts[0] == f"{len(own)} spots"
        assert facts[2] in {
            f"domain {name} ({size / len(own):.0%})" for name, size in sizes.items() if size == sizes.max()
        }
        assert facts[3] == f"calibrated confidence {own['pdvi_confidence_calibrated'].mean():.2f}"
    assert browser.complaints == []
