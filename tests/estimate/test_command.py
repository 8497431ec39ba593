"""The command: a table, a JSON that programs can read, and stages that a fit really has."""

import json
from dataclasses import replace

import pytest
from conftest import run

from spatialpdvi import FitOptions
from spatialpdvi.estimate.estimate import estimate_file
from spatialpdvi.estimate.machine import REFERENCE

pytestmark = pytest.mark.cli


@pytest.fixture
def known_speed(monkeypatch):
    """Take the speed of this machine as known; measuring it takes seconds."""
    monkeypatch.setattr("spatialpdvi.estimate.estimate.measure_speed", lambda: REFERENCE)


def test_table_and_json(toy_file, tmp_path):
    before = toy_file.read_bytes()
    shown = run("estimate", toy_file, "--k", 4, "--memory", "1GB", "--json", tmp_path / "estimate.json")
    assert toy_file.read_bytes() == before
    assert shown.stderr == ""
    content = json.loads((tmp_path / "estimate.json").read_text())
    assert set(content) == {
        "file",
        "n_spots",
        "n_genes",
        "n_values",
        "source",
        "storage",
        "reading",
        "memory_bytes",
        "in_memory_needs_bytes",
        "seconds",
        "total_seconds",
        "total_seconds_range",
        "peak_bytes",
        "peak_memory_bytes",
        "epochs",
        "epochs_range",
        "threads",
        "speed",
        "assumed",
    }
    assert (content["n_spots"], content["n_genes"], content["reading"]) == (600, 150, "in memory")
    assert content["memory_bytes"] == 10**9
    assert content["total_seconds"] == pytest.approx(sum(content["seconds"].values()))
    assert content["peak_memory_bytes"] == max(content["peak_bytes"].values())
    low, high = content["total_seconds_range"]
    assert low < content["total_seconds"] < high
    assert content["epochs_range"][0] < content["epochs"] < content["epochs_range"][1]
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("600 spots x 150 genes, ")
    least, most = f"{low:.0f}", f"{high:.0f}"
    few, many = content["epochs_range"]
    seconds = f"about {least}" if least == most else f"{least} to {most}"
    assert f"{seconds} s with {few} to {many} epochs" in lines
    assert [line.split()[0] for line in lines[2 : 2 + len(content["seconds"])]] == list(content["seconds"])
    assert lines[-1].startswith("counts: read in memory; as a whole they need ")
    assert lines[-1].endswith(", and the fit may use 1.0 GB")


@pytest.mark.usefixtures("known_speed")
def test_stages_are_those_of_a_fit(toy_file, tmp_path):
    report, estimate = tmp_path / "report.json", tmp_path / "estimate.json"
    for options in ((), ("--rep", "X_pca"), ("--states", 8, "--search", 1), ("--states", 8, "--init", "annotation")):
        common = (toy_file, "--k", 4, "--n-init", 1, *options)
        run("estimate", *common, "--json", estimate, "-q")
        run("fit", *common, "-o", tmp_path / "out.h5ad", "--report", report, "-q")
        stages = list(json.loads(estimate.read_text())["seconds"])
        assert stages == ["start-up", *json.loads(report.read_text())["seconds"]]


@pytest.mark.parametrize(("ends", "said"), [((5.6, 6.4), "about 6 s"), ((5.4, 6.4), "5 to 6 s")])
def test_ends_that_round_alike_are_one_number(toy_file, monkeypatch, ends, said):
    found = replace(estimate_file(toy_file, FitOptions(k=4)), seconds_range=ends)
    monkeypatch.setattr("spatialpdvi.estimate.estimate.estimate_file", lambda *_, **__: found)
    assert f"\n{said} with " in run("estimate", toy_file, "--k", 4).stdout


@pytest.mark.usefixtures("known_speed")
def test_the_graph_to_save_takes_time(toy_file, tmp_path):
    def seconds(*options):
        run("estimate", toy_file, "--k", 4, "--states", 8, *options, "--json", tmp_path / "estimate.json", "-q")
        return json.loads((tmp_path / "estimate.json").read_text())["seconds"]

    assert seconds("--save-graph")["graph"] > seconds()["graph"]


@pytest.mark.usefixtures("known_speed")
def test_block_by_block_and_without_markers(toy_file):
    shown = run("estimate", toy_file, "--k", 4, "--memory", "1KB", "--no-markers").stdout
    assert "counts: read block by block" in shown
    assert "markers" not in shown


@pytest.mark.usefixtures("known_speed")
def test_a_preset_is_that_of_the_fit(toy_file, tmp_path):
    def stages(*options):
        run("estimate", toy_file, "--k", 4, "--json", tmp_path / "a.json", *options)
        return list(json.loads((tmp_path / "a.json").read_text())["seconds"])

    published = stages("--preset", "paper", "--n-pcs", 5)
    assert published == stages("--states", "off", "--init", "kmeans", "--n-pcs", 5)
    assert set(stages("--states", 8)) - set(published) == {"states", "search"}
    shown = run("estimate", toy_file, "--k", 4, "--preset", "paper", "--n-top-genes", 9)
    assert shown.stderr.startswith("preset paper: --totals selected ")
    assert "one of paper" in run("estimate", toy_file, "--k", 4, "--preset", "other", code=2).stderr


def test_what_a_fit_refuses_is_refused(toy_file, tmp_path):
    assert "no such file" in run("estimate", tmp_path / "no.h5ad", "--k", 4, code=2).stderr
    assert "at least 2" in run("estimate", toy_file, "--k", 1, code=2).stderr
    assert "--layer" in run("estimate", toy_file, "--k", 4, "--layer", "no", code=2).stderr
    assert "found the same" in run("estimate", toy_file, "--k", 4, "--json", toy_file, code=2).stderr
    assert "Missing option '--k'" in run("estimate", toy_file, code=2).stderr
