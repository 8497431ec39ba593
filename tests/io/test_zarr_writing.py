"""Results into zarr stores, and from one kind of storage into the other."""

import os
import shutil
import signal
import subprocess
import sys
import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from zarr_samples import FORMATS, assert_same, chunks_of, files_of, write_spatialdata, write_zarr

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats import converting
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results import writing
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.writing import check_output, write_elements
from spatialpdvi.io.storage import folders
from spatialpdvi.io.storage.temporary import ASIDE, hidden_name

pytestmark = pytest.mark.cli

KEYS = Keys()
N = 12
RESULTS = {
    ("obs", KEYS.domain): pd.Categorical(list("0101" * 3)),
    ("obs", KEYS.confidence): np.linspace(0.5, 1, N, dtype=np.float32),
    ("obsm", KEYS.posterior): np.full((N, 2), 0.5, dtype=np.float32),
    ("obsp", KEYS.connectivities): sp.csr_matrix(np.eye(N, k=1) + np.eye(N, k=-1)),
    ("uns", KEYS.uns): {
        "params": {"k": 2, "layer": "count", "whiten": True, "tol": 1e-4},
        "trace": {"epoch": np.arange(3), "neg_elbo": np.array([3.0, 2.0, 1.5])},
        "certificate": {"converged": True, "reason": "settled"},
        "names": np.array(["a", "b"], dtype=object),
    },
}


@pytest.fixture
def adata(make):
    """Something in every group, in every type that is usual."""
    adata = make()
    adata.obs["annotation"] = pd.Categorical(list("aabb" * 3), ordered=True)
    adata.obs["depth"] = np.arange(float(N))
    adata.obs["note"] = pd.Categorical([f"n{i}" for i in range(N)])
    adata.obs["kept"] = pd.array([True, None, False] * 4, dtype="boolean")
    adata.obs["n"] = pd.array([1, None, 3] * 4, dtype="Int64")
    adata.obsm["X_pca"] = np.random.default_rng(1).normal(size=(N, 3))
    adata.obsm["frame"] = pd.DataFrame({"a": np.arange(N), "b": list("xyz" * 4)}, index=adata.obs_names)
    adata.obsm["frame"]["b"] = adata.obsm["frame"]["b"].astype("category")
    adata.varm["loadings"] = np.ones((7, 2), dtype=np.float16)
    adata.obsp["mine"] = sp.csr_matrix(np.eye(N, k=1))
    adata.layers["dense"] = adata.X.toarray().astype(np.int32)
    adata.layers["columns"] = sp.csc_matrix(adata.X)
    adata.uns["mine"] = {
        "palette": np.array(["#000000", "#ffffff"], dtype=object),
        "k": 3,
        "share": 0.5,
        "on": np.True_,
        "text": "x",
        "nothing": None,
        "empty": {},
        "no numbers": np.zeros((0, 3)),
        "table": pd.DataFrame({"gene": [1, 2]}, index=["a", "b"]),
    }
    adata.raw = adata
    return adata


@pytest.fixture(scope="module")
def written():
    """Stores of `adata` by their format, once they are there: a copy is quicker than another one."""
    return {}


@pytest.fixture(params=FORMATS)
def store(request, adata, written, tmp_path, tmp_path_factory):
    version = request.param
    if version not in written:
        written[version] = write_zarr(tmp_path_factory.mktemp("written") / "section.zarr", adata, version)
    return shutil.copytree(written[version], tmp_path / "section.zarr")


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ad.read_zarr(path) if path.is_dir() else ad.read_h5ad(path)


def assert_results(found: ad.AnnData) -> None:
    for (group, key), value in RESULTS.items():
        stored = getattr(found, group)[key]
        assert_same(pd.Series(value, index=found.obs_names, name=key) if group == "obs" else value, stored)


@pytest.fixture(params=["the store itself", "another store", "over another store", "an h5ad"])
def output(request, store, tmp_path, make):
    path = store if request.param == "the store itself" else tmp_path / "out.zarr"
    if request.param == "over another store":
        write_zarr(path, make(), 2)
    return tmp_path / "out.h5ad" if request.param == "an h5ad" else path


def test_results_are_added_and_the_users_data_stay(store, output, adata, tmp_path):
    before = files_of(store)
    write_elements(store, output, RESULTS)
    found = load(output)
    assert list(found.obs) == [*adata.obs, KEYS.domain, KEYS.confidence]
    assert_results(found)
    write_elements(output, output, {}, remove=KEYS.all_pairs())
    assert_same(adata, load(output))
    if output != store:
        assert files_of(store) == before
    else:
        chunks = {name for name in before if not name.endswith((".json", ".zattrs", ".zmetadata"))}
        assert {name: before[name] for name in chunks} == {name: files_of(store)[name] for name in chunks}
    assert {path.name for path in tmp_path.iterdir()} <= {"section.zarr", output.name}


def test_an_array_of_zeros_is_written_and_read(store, adata):
    """Zarr leaves out chunks of zeros by default, and a chunk that is missing has been lost."""
    flow = np.zeros((adata.n_obs, 2), dtype=np.float32)
    write_elements(store, store, {("obsm", KEYS.flow): flow})
    with H5adSource(store) as source:
        np.testing.assert_array_equal(source.obsm(KEYS.flow), flow)


@pytest.mark.parametrize("suffix", [".zarr", ".h5ad"])
def test_there_and_back(adata, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(converting, "_CHUNK", 16)
    monkeypatch.setattr(converting, "_BLOCK", 40)
    other = ".zarr" if suffix == ".h5ad" else ".h5ad"
    first, middle, last = tmp_path / f"a{suffix}", tmp_path / f"b{other}", tmp_path / f"c{suffix}"
    if suffix == ".zarr":
        write_zarr(first, adata, 3)
    else:
        adata.write_h5ad(first, compression="gzip")
    write_elements(first, middle, RESULTS)
    write_elements(middle, last, {})
    assert_same(adata, load(first))
    for path in (middle, last):
        found = load(path)
        assert_results(found)
        write_elements(path, path, {}, remove=KEYS.all_pairs())
        assert_same(adata, load(path))


def test_a_file_of_2020_becomes_a_store(file_of_2020, tmp_path):
    output = tmp_path / "new.zarr"
    write_elements(file_of_2020, output, RESULTS)
    found = load(output)
    assert set(found.obs["louvain"].dropna()) == {"T", "B"}
    assert_results(found)


def test_a_store_of_one_format_stays_of_it(store):
    version = zarr.open_group(store, mode="r").metadata.zarr_format
    write_elements(store, store, RESULTS)
    assert zarr.open_group(store, mode="r").metadata.zarr_format == version
    assert (store / "zarr.json").exists() == (version == 3)
    # the summary, which readers ask first, knows the results
    assert KEYS.posterior in zarr.open_group(store, mode="r")["obsm"]


def test_matrices_are_never_read_as_a_whole(store, tmp_path, monkeypatch):
    monkeypatch.setattr(converting, "_CHUNK", 8)
    monkeypatch.setattr(converting, "_BLOCK", 8)
    read = zarr.Array.__getitem__
    sizes = []

    def look(array, selection):
        values = read(array, selection)
        if array.path.startswith("X/") or array.path.startswith("layers/"):
            sizes.append(np.size(values))
        return values

    monkeypatch.setattr(zarr.Array, "__getitem__", look)
    write_elements(store, tmp_path / "out.h5ad", RESULTS)
    assert sizes
    assert max(sizes) <= 8


def test_values_in_place_are_not_copied(store):
    chunk = next(path for path in (store / "X" / "data").rglob("*") if path.is_file() and path.name in {"0", "0.0"})
    before = chunk.stat().st_ino
    write_elements(store, store, RESULTS)
    assert chunk.stat().st_ino == before


@pytest.mark.parametrize("links", [True, False])
def test_a_failure_leaves_the_old_store(store, tmp_path, monkeypatch, links):
    if not links:
        monkeypatch.setattr(folders, "_link", lambda *_: False)
    before = files_of(store)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writing, "consolidate", stop)
        with pytest.raises(KeyboardInterrupt):
            write_elements(store, store, RESULTS)
    assert files_of(store) == before
    assert [path.name for path in tmp_path.iterdir()] == ["section.zarr"]
    write_elements(store, store, RESULTS)
    assert_results(load(store))


def test_a_full_disk_is_one_sentence(store, monkeypatch):
    before = files_of(store)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "write", full)
    with pytest.raises(InputError, match=r"^There is no space left on the disk to write .*\. Nothing was changed\. "):
        write_elements(store, store, RESULTS)
    assert files_of(store) == before


def test_a_killed_writer_leaves_nothing_under_the_name(store, tmp_path):
    code = (
        "import os, signal, sys\n"
        "from spatialpdvi.io.results import writing\n"
        "writing.consolidate = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "writing.write_elements(sys.argv[1], sys.argv[2], {})\n"
    )
    before = files_of(store)
    for output in (store, tmp_path / "out.zarr"):
        done = subprocess.run([sys.executable, "-c", code, str(store), str(output)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert files_of(store) == before
        assert not (tmp_path / "out.zarr").exists()
    left = [path for path in tmp_path.iterdir() if path != store]
    assert [path.suffix for path in left] == [".part"]  # the first one's was removed by the second
    write_elements(store, store, RESULTS)
    assert list(tmp_path.iterdir()) == [store]


@pytest.mark.parametrize("known", [True, False])
def test_folders_change_names(tmp_path, monkeypatch, known):
    if not known:
        monkeypatch.setattr(folders, "_exchange_names", lambda *_: False)
    target = tmp_path / "target"
    target.mkdir(mode=0o750)
    (target / "old").write_text("old")
    with folders.replacing_folder(target, tmp_path) as temporary:
        (temporary / "new").write_text("new")
    assert files_of(tmp_path) == {"target/new": b"new"}
    assert list(tmp_path.iterdir()) == [target]
    assert target.stat().st_mode & 0o777 == 0o750


def test_a_store_that_was_moved_aside_comes_back(store, tmp_path):
    """Where folders cannot change names in one instant, a kill between two steps leaves the old one elsewhere."""
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    aside = hidden_name(tmp_path, ASIDE)
    aside = aside.with_name(aside.name.replace(f"-{os.getpid()}-", f"-{int(dead.stdout)}-"))
    aside.mkdir()
    before = files_of(store)
    store.rename(aside / store.name)
    with H5adSource(store) as source:
        assert source.n_obs == N
    assert files_of(store) == before
    assert list(tmp_path.iterdir()) == [store]


def test_a_name_that_cannot_be_taken_gives_the_old_one_back(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_exchange_names", lambda *_: False)
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old")
    rename = folders.Path.rename

    def fail(path, other):
        if path.suffix == ".part":
            raise OSError(5, "Input/output error")
        return rename(path, other)

    with pytest.raises(OSError, match="Input/output"), folders.replacing_folder(target, tmp_path):
        monkeypatch.setattr(folders.Path, "rename", fail)
    assert files_of(tmp_path) == {"target/old": b"old"}
    assert list(tmp_path.iterdir()) == [target]


def refusal(source, output) -> str:
    with pytest.raises(InputError) as caught:
        check_output(source, output)
    return str(caught.value)


def test_other_folders_are_never_replaced(store, tmp_path, make):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos.zarr").mkdir()
    (tmp_path / "file.zarr").write_text("text")
    sdata = write_spatialdata(tmp_path / "sdata.zarr", {"cells": make()}, 3)
    before = files_of(tmp_path)
    for name, found in (
        ("photos", "a folder of something else"),
        ("photos.zarr", "a folder of something else"),
        ("file.zarr", "a file"),
        ("sdata.zarr", "a SpatialData store"),
    ):
        said = refusal(store, tmp_path / name)
        assert said.endswith(f"to be a zarr store of an AnnData to write, found {found}. Choose another `output`.")
    for inside in ("section.zarr/out.h5ad", "sdata.zarr/tables/more.zarr", "sdata.zarr/tables/cells"):
        assert "to be outside of zarr stores, found it in" in refusal(store, tmp_path / inside)
    check_output(sdata / "tables" / "cells", sdata / "tables" / "cells")  # a table may be updated where it is
    assert files_of(tmp_path) == before


def test_a_table_of_spatialdata_becomes_an_anndata(adata, tmp_path):
    sdata = write_spatialdata(tmp_path / "sdata.zarr", {"cells": adata}, 2)
    before = files_of(sdata)
    for name in ("out.zarr", "out.h5ad"):
        write_elements(sdata, tmp_path / name, RESULTS)
        assert_results(load(tmp_path / name))
    assert files_of(sdata) == before


@pytest.mark.parametrize("place", ["X/data", "uns/mine/palette", "varm/loadings"])
def test_an_element_that_cannot_be_converted(store, tmp_path, place):
    chunk = chunks_of(store, place)[0]
    chunk.write_bytes(chunk.read_bytes()[:-4])
    element = "X" if place == "X/data" else place
    with pytest.raises(InputError, match=rf"Expected to copy {element}, found a damaged or unknown element"):
        write_elements(store, tmp_path / "out.h5ad", RESULTS)
    assert list(tmp_path.iterdir()) == [store]
    write_elements(store, tmp_path / "out.zarr", RESULTS)


def test_room_is_asked_for_beforehand(store, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 100))
    assert "MB of disk space, and 0.0 MB are free." in refusal(store, tmp_path / "out.zarr")
    check_output(store, store)  # nothing is copied
