"""What the maps' script reads: places, names and numbers as the file has them, and never more rows than allowed."""

import base64
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.marker_genes import expression_tenths
from spatialpdvi.report.content import Gene, MappedGene, Material, genes_to_map
from spatialpdvi.report.layers import map_data
from spatialpdvi.report.pictures import draw_maps


def _material(place, *, domains=None, confidence=None, samples=None, **more):
    n = len(place)
    fitted = Fitted(
        coordinates=np.asarray(place, dtype=float),
        domains=pd.Categorical(np.arange(n) % 2 if domains is None else domains),
        confidence=np.full(n, 0.8) if confidence is None else confidence,
        calibrated=None,
        annotation=None,
        colours=None,
        summary={},
        samples=samples,
    )
    names = [f"spot {i}" for i in range(n)]
    return Material(path=Path("x.h5ad"), name="x", fitted=fitted, spot_names=names, **more)


def _unpacked(text):
    return zlib.decompress(base64.b64decode(text))


def _read(data):
    """The columns, as the script reads them."""
    raw, found, at = _unpacked(data["data"]), {}, 0
    for name, size in data["columns"]:
        found[name] = np.frombuffer(raw, f"<u{size}", data["rows"], at).astype(np.int64)
        at += -(-data["rows"] * size // 4) * 4
    assert at == len(raw)
    return found | {axis: np.cumsum(found[axis]) % 65_536 for axis in "xy"}


@pytest.fixture
def scattered():
    rng = np.random.default_rng(0)
    return rng.random((1000, 2)) * [300, 200] + [5000, -70]


def test_places_names_and_numbers_come_back(scattered):
    rng = np.random.default_rng(1)
    confidence, states = rng.random(1000), rng.dirichlet([0.3] * 5, size=1000)
    genes = [MappedGene("g", "0", rng.integers(0, 90, size=1000).astype(np.uint8))]
    material = _material(scattered, confidence=confidence, states=states, mapped=genes)
    data = map_data(material, draw_maps(material))
    columns, names = _read(data), _unpacked(data["names"]).decode().split("\n")
    order = np.array([int(name.removeprefix("spot ")) for name in names])
    assert sorted(order) == list(range(1000))
    place = np.column_stack([columns["x"], columns["y"]])
    scale = np.ptp(place, axis=0) / np.ptp(scattered, axis=0)
    assert scale[0] == pytest.approx(scale[1], rel=1e-4)
    moved = (scattered[order] - scattered.mean(axis=0)) * scale.mean()
    assert np.abs(moved - moved[0] - (place - place[0])).max() < 3  # of 65,536 steps
    assert (place <= data["size"]).all()
    assert np.array_equal(columns["domain"], 1 + order % 2)
    assert np.array_equal(columns["confidence"], np.rint(100 * confidence[order]))
    assert np.array_equal(columns["state"], 1 + states[order].argmax(axis=1))
    ranked = np.sort(states[order], axis=1)[:, ::-1]
    for place_of in range(3):
        assert np.array_equal(columns[f"share of state {place_of}"], np.rint(100 * ranked[:, place_of]))
    assert np.array_equal(columns["gene 0"], genes[0].tenths[order])


def test_squares_are_few_and_hold_every_spot(scattered):
    crowded = np.concatenate([scattered, np.full((400, 2), 5100.0) + np.arange(400)[:, None] * 1e-4])
    domains = np.repeat(["a", "b", "c"], [700, 300, 400])
    material = _material(crowded, domains=domains, confidence=np.linspace(0, 1, 1400))
    drawn = draw_maps(material)
    for most in (1, 20, 300):
        data = map_data(material, drawn, most=most)
        columns = _read(data)
        assert data["names"] is None
        assert 1 <= data["rows"] <= most
        assert columns["spots"].sum() == 1400
        assert np.average(columns["confidence"], weights=columns["spots"]) == pytest.approx(50, abs=0.5)
    whole = _read(map_data(material, drawn, most=1))
    assert (whole["domain"], whole["share of domain"]) == ([1], [50])


def test_spots_at_nearly_one_place_make_no_finer_squares(scattered):
    pairs = np.concatenate([scattered, scattered + 1e-12])
    material = _material(pairs)
    columns = _read(map_data(material, draw_maps(material), most=1500))
    assert columns["spots"].sum() == 2000
    assert (columns["spots"] >= 2).mean() > 0.9


def test_each_section_has_its_share_of_squares(scattered):
    samples = pd.Categorical(np.repeat(["many", "few"], [900, 100]))
    material = _material(scattered, samples=samples)
    data = map_data(material, draw_maps(material), most=200)
    few, many = data["sections"]
    assert (few["name"], many["name"]) == ("few", "many")
    assert few["start"] == 0
    assert many["start"] <= 20
    assert data["rows"] <= 200
    assert _read(data)["spots"][: many["start"]].sum() == 100


@pytest.mark.parametrize(
    ("shape", "step"), [("square", [[1, 0], [0, 1]]), ("tile", [[1, 0], [0.5, np.sqrt(0.75)]]), ("disc", None)]
)
def test_markers_follow_the_lattice(shape, step, scattered):
    place = scattered if step is None else np.indices((20, 20)).reshape(2, -1).T @ np.array(step)
    material = _material(place)
    (section,) = map_data(material, draw_maps(material))["sections"]
    assert section["shape"] == shape


def _gene(name):
    return Gene(name, 1.0, 0.9, 0.1)


def test_each_domain_has_the_first_gene_that_is_not_taken():
    markers = {"a": [_gene("x")], "b": [_gene("x"), _gene("twice"), _gene("y")], "c": []}
    chosen = genes_to_map(markers, {"a": 5, "b": 9, "c": 7}, known={"x", "y"})
    assert list(chosen.items()) == [("x", "a"), ("y", "b")]


def test_of_many_domains_the_largest_have_a_gene():
    markers = {str(k): [_gene(f"g{k}")] for k in range(40)}
    chosen = genes_to_map(markers, {str(k): k for k in range(40)}, known={f"g{k}" for k in range(40)})
    assert list(chosen) == [f"g{k}" for k in range(28, 40)]


def test_expression_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.7, size=(50, 8))
    counts[3] = 0
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    expected = np.rint(10 * np.log1p(1e4 * counts[:, [6, 2]] / total))
    found = expression_tenths(sp.csr_matrix(counts), np.array([6, 2]))
    assert np.array_equal(found, expected)
    assert found.dtype == np.uint8


def test_the_scale_of_a_gene_ends_at_its_highest_hundredth(scattered):
    tenths = np.r_[np.zeros(200), np.arange(1, 81).repeat(10)].astype(np.uint8)
    material = _material(scattered, mapped=[MappedGene("g", "0", tenths)])
    layer = map_data(material, draw_maps(material))["layers"][-1]
    assert layer["title"] == "g (marker of domain 0)"
    assert (layer["low"], layer["high"]) == (0, pytest.approx(np.percentile(tenths[tenths > 0], 99) / 10))


def test_a_calibrated_confidence_is_called_so(scattered):
    material = _material(scattered)
    calibrated = material.fitted._replace(calibrated=np.full(1000, 0.6))
    for fitted, word in ((material.fitted, "confidence"), (calibrated, "calibrated confidence")):
        own = replace(material, fitted=fitted)
        layer = map_data(own, draw_maps(own))["layers"][-1]
        assert (layer["title"], layer["word"]) == ("Confidence", word)
        assert layer["unit"] == word.replace("confidence", "posterior of the domain")


def test_a_square_has_the_share_of_its_own_spots_with_its_label():
    place = np.indices((20, 20)).reshape(2, -1).T
    domains = np.where((place[:, 0] % 2 == 0) & (place[:, 1] % 2 == 0), "few", "most")
    material = _material(place, domains=domains)
    data = map_data(material, draw_maps(material), most=100)
    columns = _read(data)
    assert set(columns["spots"]) == {4}
    assert {data["layers"][0]["names"][code - 1] for code in columns["domain"]} == {"most"}
    assert set(columns["share of domain"]) == {75}


def test_long_names_of_spots_and_of_domains_are_cut(scattered):
    """One name of each spot is on the page, and one of each domain."""
    long = "n" * 300
    material = _material(scattered, domains=pd.Categorical(np.where(np.arange(1000) % 2, long, "short")))
    material = replace(material, spot_names=[f"{i:03}{long}" for i in range(1000)])
    data = map_data(material, draw_maps(material))
    names = _unpacked(data["names"]).decode().split("\n")
    assert sorted(names) == [f"{i:03}{'n' * 76}…" for i in range(1000)]
    assert f"{'n' * 199}…" in data["layers"][0]["names"]
