"""Every command takes a zarr store where it takes an h5ad, and finds the same in it."""

import json
import re
import warnings

import anndata as ad
import numpy as np
import pytest
from click.testing import CliRunner
from zarr_samples import assert_same, files_of, write_spatialdata, write_zarr

from spatialpdvi.cli import main

pytestmark = pytest.mark.cli

COMPARE = ["--k", "4", "--solvers", "cavi", "--seeds", "1", "--n-init", "2"]
FIT = ["--k", "4", "--n-top-genes", "100", "--n-init", "2", "-q"]


def run(*arguments, code=0) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def refusal(*arguments) -> str:
    said = run(*arguments, code=2)
    assert re.fullmatch(r"Error: Expected .*\n", said), said
    return said


def load(path) -> ad.AnnData:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = ad.read_zarr(path) if path.is_dir() else ad.read_h5ad(path)
    for name in [name for name in adata.uns if name.startswith("pdvi") and name.endswith("pdvi")]:
        adata.uns[name]["trace"].pop("seconds")
        adata.uns[name]["params"].pop("memory", None)
    return adata


@pytest.fixture
def store(toy_section, tmp_path):
    return write_zarr(tmp_path / "store.zarr", toy_section, 3)


@pytest.fixture(scope="module")
def reference(toy_section, tmp_path_factory):
    """What a fit of the h5ad has written."""
    path = tmp_path_factory.mktemp("reference") / "section.h5ad"
    toy_section.write_h5ad(path)
    run("fit", path, *FIT)
    return path


@pytest.mark.parametrize(  # every two of the three together
    ("version", "memory", "output"),
    [
        (2, [], None),
        (3, ["--memory", "10KB"], None),
        (2, ["--memory", "10KB"], "out.zarr"),
        (3, [], "out.zarr"),
        (2, [], "out.h5ad"),
        (3, ["--memory", "10KB"], "out.h5ad"),
    ],
)
def test_a_fit_is_that_of_the_h5ad_to_the_bit(toy_section, reference, tmp_path, version, memory, output):
    store = write_zarr(tmp_path / "store.zarr", toy_section, version)
    before = files_of(store)
    run("fit", store, *FIT, *memory, *([] if output is None else ["-o", tmp_path / output]))
    assert_same(load(reference), load(tmp_path / (output or "store.zarr")))
    assert output is None or files_of(store) == before
    assert {path.name for path in tmp_path.iterdir()} == {"store.zarr", output or "store.zarr"}


def test_an_h5ad_becomes_a_store(toy_file, reference, tmp_path):
    before = toy_file.read_bytes()
    for _ in range(2):  # the second takes the place of the first
        run("fit", toy_file, *FIT, "-o", tmp_path / "out.zarr")
        assert_same(load(reference), load(tmp_path / "out.zarr"))
    assert toy_file.read_bytes() == before


def test_a_second_fit_of_the_same_store(store, reference):
    run("fit", store, *FIT)
    run("fit", store, *FIT)
    assert_same(load(reference), load(store))


def test_the_other_commands(reference, tmp_path):
    fitted = write_zarr(tmp_path / "section.zarr", ad.read_h5ad(reference), 2)
    before = files_of(fitted)
    for command in (["evaluate"], ["markers", "-n", "3"], ["markers", "-n", "3", "--memory", "10KB"]):
        assert run(*command, fitted) == run(*command, reference)
    for name, path in (("one", reference), ("other", fitted)):
        run("plot", path, "-o", tmp_path / f"{name}.png", "-q")
        run("estimate", path, "--k", "4", "--json", tmp_path / f"{name}.json", "-q")
        run("compare", path, *COMPARE, "-o", tmp_path / name, "-q")
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "other.png").read_bytes()
    one, other = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "other"))
    assert {name for name in one if one[name] != other[name]} <= {
        *("file", "seconds", "total_seconds", "total_seconds_range", "speed", "memory_bytes", "peak_bytes"),
        "peak_memory_bytes",
    }
    one, other = (json.loads((tmp_path / name / "compare.json").read_text()) for name in ("one", "other"))
    assert [run["neg_elbo"] for run in one["runs"]] == [run["neg_elbo"] for run in other["runs"]]
    assert files_of(fitted) == before
    run("markers", fitted, "--store", "-q")
    assert "pdvi_markers" in load(fitted).uns


def test_a_comparison_of_a_changed_store_begins_again(store, tmp_path):
    options = [*COMPARE, "-o", tmp_path / "runs"]
    run("compare", store, *options, "-q")
    kept = (tmp_path / "runs" / "runs").iterdir()
    times = {path: path.stat().st_mtime_ns for path in kept}
    run("compare", store, *options, "-q")
    assert times == {path: path.stat().st_mtime_ns for path in times}
    run("fit", store, *FIT)
    run("compare", store, *options, "-q")
    assert all(path.stat().st_mtime_ns > time for path, time in times.items())


def test_a_model_predicts_in_either(toy_section, tmp_path):
    one = write_zarr(tmp_path / "one.zarr", toy_section, 3)
    toy_section.write_h5ad(tmp_path / "two.h5ad")
    run("fit", one, *FIT, "--save-model", tmp_path / "model.npz")
    run("predict", tmp_path / "two.h5ad", "--model", tmp_path / "model.npz", "-q")
    options = ["--model", tmp_path / "model.npz", "--key-added", "again_pdvi", "-q"]
    run("predict", one, *options, "-o", tmp_path / "new.zarr")
    found, same = load(tmp_path / "new.zarr"), load(tmp_path / "two.h5ad")
    np.testing.assert_array_equal(found.obsm["again_pdvi_posterior"], same.obsm["pdvi_posterior"])


def test_stores_and_files_in_one_fit(toy_section, tmp_path):
    left, right = toy_section[:300].copy(), toy_section[300:].copy()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "files").mkdir()
    left.write_h5ad(tmp_path / "left.h5ad")
    right.write_h5ad(tmp_path / "right.h5ad")
    write_zarr(tmp_path / "right.zarr", right, 3)
    run("fit", tmp_path / "left.h5ad", tmp_path / "right.h5ad", *FIT, "-o", tmp_path / "files")
    run("fit", tmp_path / "left.h5ad", tmp_path / "right.zarr", *FIT, "-o", tmp_path / "mixed")
    assert_same(load(tmp_path / "files" / "left.h5ad"), load(tmp_path / "mixed" / "left.h5ad"))
    assert_same(load(tmp_path / "files" / "right.h5ad"), load(tmp_path / "mixed" / "right.zarr"))


def test_a_simulation_can_be_a_store(tmp_path):
    for _ in range(2):
        run("simulate", tmp_path / "a.zarr", "--n-spots", "100", "--n-genes", "30", "--k", "3", "-q")
    run("simulate", tmp_path / "a.h5ad", "--n-spots", "100", "--n-genes", "30", "--k", "3", "-q")
    assert_same(ad.read_h5ad(tmp_path / "a.h5ad"), load(tmp_path / "a.zarr"))
    (tmp_path / "b.zarr").mkdir()
    assert "a folder of something else" in refusal("simulate", tmp_path / "b.zarr", "-q")


def test_a_table_of_spatialdata(toy_section, reference, tmp_path):
    sdata = write_spatialdata(tmp_path / "sdata.zarr", {"table": toy_section}, 3)
    before = files_of(sdata)
    run("fit", sdata, *FIT, "-o", tmp_path / "out.zarr")
    run("fit", sdata, "--table", "table", *FIT, "-o", tmp_path / "out.h5ad")
    for name in ("out.zarr", "out.h5ad"):
        assert_same(load(reference), load(tmp_path / name))
    report = sdata / "report.json"
    assert "to be outside of zarr stores" in refusal("fit", sdata, *FIT, "-o", tmp_path / "o.h5ad", "--report", report)
    assert files_of(sdata) == before
    run("fit", sdata, *FIT)  # into the table itself; more of this is in io/test_spatialdata.py
    assert_same(load(reference), load(sdata / "tables" / "table"))


@pytest.fixture(scope="module")
def several(toy_section, tmp_path_factory):
    """A folder with a store of two tables, a fitted h5ad, and the model of that; no test here changes it."""
    folder = tmp_path_factory.mktemp("several")
    run("simulate", folder / "a.h5ad", "--n-spots", "60", "--n-genes", "30", "--k", "3", "-q")
    run("fit", folder / "a.h5ad", "--k", "3", "--n-init", "2", "--save-model", folder / "m.npz", "-q")
    write_spatialdata(folder / "s.zarr", {"bins": toy_section, "cells": toy_section[:50].copy()}, 2)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        *(["fit", "--k", "3"], ["predict", "--model", "m.npz"], ["compare", "--k", "3", "-o", "out"]),
        *(["estimate", "--k", "3"], ["evaluate"], ["markers"], ["plot", "-o", "out.png"]),
    ],
    ids=lambda command: command[0],
)
def test_every_command_asks_for_one_table_of_several(several, command, monkeypatch):
    monkeypatch.chdir(several)
    before = files_of(several)
    assert "found 2: 'bins', 'cells'. Name one of these with --table." in refusal(*command, "s.zarr")
    assert "found no 'spots', but 'bins', 'cells'." in refusal(*command, "s.zarr", "--table", "spots")
    assert "found none among the sections: 'a.h5ad'. Leave out --table." in refusal(
        *command, "a.h5ad", "--table", "bins"
    )
    assert files_of(several) == before


def test_tables_of_several_spatialdata_stores(toy_section, tmp_path):
    stores = [
        write_spatialdata(tmp_path / f"{name}.zarr", {"cells": part.copy(), "bins": part[:9].copy()}, 3)
        for name, part in (("left", toy_section[:300]), ("right", toy_section[300:]))
    ]
    (tmp_path / "out").mkdir()
    run("fit", *stores, "--table", "cells", *FIT, "-o", tmp_path / "out", "--report", tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())["output"]
    assert written == [str(tmp_path / "out" / f"{name}.zarr") for name in ("left", "right")]
    found = [load(tmp_path / "out" / f"{name}.zarr") for name in ("left", "right")]
    assert [adata.n_obs for adata in found] == [300, 300]
    assert list(found[0].uns["pdvi"]["scores"]["samples"]["sample"]) == ["left", "right"]


def test_a_checkpoint_is_not_kept_in_a_store(store):
    before = files_of(store)
    assert "to be outside of zarr stores" in refusal("fit", store, *FIT, "--checkpoint", store)
    assert "to be outside of zarr stores" in refusal("fit", store, *FIT, "--save-model", store / "model.npz")
    assert "to be outside of zarr stores" in refusal("plot", store, "-o", store / "a.png", "-q")
    assert files_of(store) == before
