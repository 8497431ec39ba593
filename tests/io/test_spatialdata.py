"""Results in a table of a SpatialData store, which spatialdata made and reads; all other elements stay as they are."""

import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import zarr
from conftest import run
from zarr_samples import FORMATS, files_of

import spatialpdvi as spv
from spatialpdvi.errors import InputError
from spatialpdvi.io.results import writing
from spatialpdvi.io.results.writing import write_elements
from spatialpdvi.io.storage import folders
from spatialpdvi.io.storage.locks import claimed
from spatialpdvi.io.storage.paths import file_names, locate
from spatialpdvi.io.storage.temporary import lock_name

pytestmark = pytest.mark.cli

# both formats of stores, and what the installed releases of dask and zarr say about each other
with warnings.catch_warnings(action="ignore"):
    spatialdata = pytest.importorskip("spatialdata")

N, SIDE, TABLE, OTHER = 400, 20, "bins-100.counts", "segmented"
FIT = ["--k", 2, "--n-top-genes", 40, "--n-init", 1, "--states", "off"]
RESULTS = {
    ("obs", "pdvi_domain"): pd.Categorical(["0", "1"] * (N // 2)),
    ("obsm", "pdvi_posterior"): np.full((N, 2), 0.5, dtype=np.float32),
    ("uns", "pdvi"): {"params": {"k": 2}, "certificate": {"converged": True}},
}


def _table(coordinates, region, first):
    rng = np.random.default_rng(0)
    side = (coordinates[:, 0] > 100).astype(int)
    counts = rng.poisson(1 + 3 * np.eye(2)[side][:, np.arange(40) % 2]).astype(np.float32)
    obs = pd.DataFrame({"region": pd.Categorical([region] * len(side)), "id": np.arange(len(side)) + first})
    obs.index = [f"{region}{i}" for i in range(len(side))]
    adata = ad.AnnData(counts, obs=obs, obsm={"spatial": coordinates})
    return spatialdata.models.TableModel.parse(adata, region=region, region_key="region", instance_key="id")


def _write(path, version):
    """An image, shapes, points, and two tables, in a store of zarr's format 2 or 3."""
    import dask.dataframe as dd
    import geopandas as gpd
    from shapely import Point
    from spatialdata import models
    from spatialdata._io import format as formats
    from spatialdata._io import io_raster

    rng = np.random.default_rng(0)
    axis = np.arange(SIDE) * 10.0 + 5.0
    bins = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    cells = rng.uniform(0, 200, size=(700, 2))

    def circles(coordinates, first):
        points = [Point(*at) for at in coordinates]
        frame = gpd.GeoDataFrame({"radius": np.full(len(points), 4.0)}, geometry=points)
        return models.ShapesModel.parse(frame.set_index(np.arange(len(points)) + first))

    image = models.Image2DModel.parse(rng.integers(255, size=(3, 64, 64), dtype=np.uint8), dims=("c", "y", "x"))
    molecules = pd.DataFrame({"x": cells[:, 0], "y": cells[:, 1], "gene": pd.Categorical(["a"] * 700)})
    sdata = spatialdata.SpatialData(
        images={"he": image},
        points={"molecules": models.PointsModel.parse(dd.from_pandas(molecules, npartitions=1))},
        shapes={"bins": circles(bins, 7), "cells": circles(cells, 1)},
        tables={TABLE: _table(bins, "bins", 7), OTHER: _table(cells, "cells", 1)},
    )
    write_image = io_raster.write_image_ngff

    def one_size(*, storage_options, **others):
        # spatialdata 0.7.0 gives all chunks of an axis, of which dask from 2026 takes one
        if storage_options is not None:
            storage_options = {"chunks": tuple(sizes[0] for sizes in storage_options["chunks"])}
        return write_image(storage_options=storage_options, **others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(io_raster, "write_image_ngff", one_size)
        sdata.write(path, sdata_formats=formats.SpatialDataContainerFormatV01() if version == 2 else None)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return {}, tmp_path_factory


@pytest.fixture(params=FORMATS)
def store(request, written, tmp_path):
    made, folder = written
    if request.param not in made:
        made[request.param] = folder.mktemp("spatialdata") / "section.zarr"
        with warnings.catch_warnings(action="ignore"):
            _write(made[request.param], request.param)
    return shutil.copytree(made[request.param], tmp_path / "section.zarr")


def load(store):
    with warnings.catch_warnings(action="ignore"):
        return spatialdata.read_zarr(store)


def others_of(store, table=TABLE):
    """What is in the files that belong neither to the table nor to the summaries above it, and their places on disk."""
    return {
        name: (content, (store / name).stat().st_ino)
        for name, content in files_of(store).items()
        if not name.startswith(f"tables/{table}/") and len(Path(name).parts) > 2
    }


def assert_summary_is_right(store, tmp_path):
    """The summary is the one that spatialdata itself writes."""
    again = shutil.copytree(store, tmp_path / "again.zarr")
    with warnings.catch_warnings(action="ignore"):
        load(again).write_consolidated_metadata()
    for name in (".zmetadata", "zarr.json"):
        if (store / name).exists():
            assert json.loads((store / name).read_text()) == json.loads((again / name).read_text())
    shutil.rmtree(again)


def test_a_fit_goes_into_its_table_and_spatialdata_reads_it(store, tmp_path):
    before, files, attrs = load(store).tables[TABLE], others_of(store), {}
    for name in (TABLE, OTHER):
        attrs[name] = zarr.open_group(store / "tables" / name, mode="r").attrs.asdict()
    shown = run("fit", store, "--table", TABLE, *FIT).output
    assert f"written: {store / 'tables' / TABLE}" in shown
    sdata = load(store)
    table = sdata.tables[TABLE]
    assert table.obs["pdvi_domain"].cat.categories.tolist() == ["0", "1"]
    assert table.obsm["pdvi_posterior"].shape == (N, 2)
    assert table.uns["spatialdata_attrs"] == {"region": "bins", "region_key": "region", "instance_key": "id"}
    pd.testing.assert_frame_equal(table.obs[before.obs.columns], before.obs)
    np.testing.assert_array_equal(table.X, before.X)
    for name, found in attrs.items():
        assert zarr.open_group(store / "tables" / name, mode="r").attrs.asdict() == found
    assert set(sdata.images) | set(sdata.shapes) | set(sdata.points) == {"he", "bins", "cells", "molecules"}
    assert others_of(store) == files  # nothing was copied either
    assert_summary_is_right(store, tmp_path)
    values = spatialdata.get_values("pdvi_domain", sdata=sdata, element_name="bins", table_name=TABLE)
    assert values.index.tolist() == list(range(7, N + 7))
    in_shape = values["pdvi_domain"].to_numpy()
    np.testing.assert_array_equal(in_shape, table.obs["pdvi_domain"].to_numpy())
    assert [path.name for path in tmp_path.iterdir()] == ["section.zarr"]


@pytest.mark.parametrize("store", [pytest.param(2, marks=pytest.mark.longest), 3], indirect=True)
def test_every_command_that_writes_does_so_into_the_store(store, tmp_path):
    bins, cells = store / "tables" / TABLE, store / "tables" / OTHER
    run("fit", store, "--table", TABLE, *FIT, "--save-model", tmp_path / "model.npz")
    files = others_of(store)
    run("fit", store, "--table", TABLE, *FIT[2:], "--k", 3)  # over the first result
    run("label", "merge", store, "--table", TABLE, "-d", "0", "-d", "2", "--name", "both")
    run("markers", store, "--table", TABLE, "--store")
    assert others_of(store) == files
    run("predict", store, "--table", OTHER, "--model", tmp_path / "model.npz", "--key-added", "predicted")
    shown = run("transfer", store, "--table", TABLE, "--to", cells).output
    assert "700 of 700 spots have a domain" in shown
    sdata = load(store)
    assert sdata.tables[TABLE].obs["pdvi_domain"].cat.categories.tolist() == ["both", "1"]
    assert "pdvi_markers" in sdata.tables[TABLE].uns
    assert {"pdvi_domain", "predicted_domain"} <= set(sdata.tables[OTHER].obs)
    assert sdata.tables[OTHER].uns["spatialdata_attrs"]["region"] == "cells"
    assert_summary_is_right(store, tmp_path)
    run("plot", store, "--table", OTHER, "-o", tmp_path / "cells.png", "--dpi", 40)
    out = tmp_path / "out.h5ad"
    run("label", "rename", bins, "--from", "region", "-o", out)
    assert ad.read_h5ad(out).obs["pdvi_domain"].cat.categories.tolist() == ["bins 1", "bins 2"]


@pytest.mark.parametrize("store", [3], indirect=True)
@pytest.mark.parametrize("path", [["section.zarr", "--table", TABLE], [f"section.zarr/tables/{TABLE}"]])
def test_the_store_as_output_of_its_table_is_the_table(store, tmp_path, path):
    files, (first, *table) = others_of(store), path
    labels = tmp_path / "labels.csv"
    run("fit", tmp_path / first, *table, *FIT, "-o", store, "--labels", labels)
    assert others_of(store) == files
    assert len(pd.read_csv(labels)) == N
    run("label", "rename", tmp_path / first, *table, "--from", "region", "-o", store)
    assert load(store).tables[TABLE].obs["pdvi_domain"].cat.categories.tolist() == ["bins 1", "bins 2"]
    before = files_of(store)
    said = run("fit", tmp_path / first, *table, *FIT, "-o", store, "--slim", code=2).output
    assert "It would lose its counts." in said
    assert files_of(store) == before


@pytest.mark.parametrize("store", [3], indirect=True)
def test_the_only_table_is_an_output_of_its_store(store):
    shutil.rmtree(store / "tables" / OTHER)
    run("fit", store, *FIT, "-o", store / "tables" / TABLE)
    assert "pdvi_domain" in load(store).tables[TABLE].obs


@pytest.mark.parametrize("store", [3], indirect=True)
def test_two_tables_of_one_store_have_names_of_their_own(store, tmp_path):
    tables = [store / "tables" / TABLE, store / "tables" / OTHER]
    names = [f"section-{TABLE}", f"section-{OTHER}"]
    assert file_names([locate(table) for table in tables]) == [f"{name}.zarr" for name in names]
    assert file_names([locate(tables[0])]) == ["section.zarr"]
    run("fit", *tables, *FIT)
    run("report", *tables, "-o", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert all(f">{name}<" in page for name in names)


def test_python_writes_into_the_only_table(store):
    shutil.rmtree(store / "tables" / OTHER)
    spv.fit_file(store, spv.FitOptions(k=2, n_top_genes=40, n_init=1, states="off"))
    table = store / "tables" / TABLE
    with warnings.catch_warnings(action="ignore"):
        assert "pdvi_domain" in ad.read_zarr(table).obs


def test_a_store_without_a_summary_gets_none(store):
    version = 3 if (store / "zarr.json").exists() else 2
    if version == 2:
        (store / ".zmetadata").unlink()
    else:
        root = json.loads((store / "zarr.json").read_text())
        del root["consolidated_metadata"]
        (store / "zarr.json").write_text(json.dumps(root))
    table = store / "tables" / TABLE
    write_elements(table, table, RESULTS)
    assert "pdvi_domain" in load(store).tables[TABLE].obs
    assert not (store / ".zmetadata").exists()
    assert version == 2 or "consolidated_metadata" not in json.loads((store / "zarr.json").read_text())


def test_folders_keep_their_permissions(store):
    (store / "images" / "he").chmod(0o750)
    store.chmod(0o711)
    table = store / "tables" / TABLE
    write_elements(table, table, RESULTS)
    assert (store / "images" / "he").stat().st_mode & 0o777 == 0o750
    assert store.stat().st_mode & 0o777 == 0o711


@pytest.mark.parametrize("step", ["open_store", "_edit", "renew_summary"])
def test_a_failure_leaves_the_old_store(store, tmp_path, monkeypatch, step):
    before = files_of(store)
    table = store / "tables" / TABLE

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(writing, step, stop)
        with pytest.raises(KeyboardInterrupt):
            write_elements(table, table, RESULTS)
    assert files_of(store) == before
    assert [path.name for path in tmp_path.iterdir()] == ["section.zarr"]


@pytest.mark.parametrize("step", ["writing._edit", "writing.renew_summary", "folders._exchange"])
@pytest.mark.parametrize("store", [pytest.param(2, marks=pytest.mark.longest), 3], indirect=True)
def test_a_killed_writer_leaves_the_old_store(store, tmp_path, step):
    code = (
        "import os, signal, sys\n"
        "from spatialpdvi.io.results import writing\n"
        "from spatialpdvi.io.storage import folders\n"
        f"{step} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "writing.write_elements(sys.argv[1], sys.argv[1], {('uns', 'mine'): {'a': 1}})\n"
    )
    before, table = files_of(store), store / "tables" / TABLE
    done = subprocess.run([sys.executable, "-c", code, str(table)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert files_of(store) == before
    load(store)
    assert len(list(tmp_path.iterdir())) == 2  # and the folder that was not finished
    write_elements(table, table, RESULTS)
    assert list(tmp_path.iterdir()) == [store]
    assert "pdvi_domain" in load(store).tables[TABLE].obs


def test_a_writer_killed_after_the_exchange_leaves_the_new_store(store, tmp_path):
    code = (
        "import os, signal, sys\n"
        "from spatialpdvi.io.results import writing\n"
        "from spatialpdvi.io.storage import folders\n"
        "folders.remove_folder = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "writing.write_elements(sys.argv[1], sys.argv[1], {('uns', 'mine'): {'a': 1}})\n"
    )
    table, files = store / "tables" / TABLE, others_of(store)
    subprocess.run([sys.executable, "-c", code, str(table)], check=False)
    assert load(store).tables[TABLE].uns["mine"]["a"] == 1
    assert others_of(store) == files
    assert_summary_is_right(store, tmp_path)
    write_elements(table, table, RESULTS)
    assert list(tmp_path.iterdir()) == [store]
    assert others_of(store) == files


def test_two_runs_on_tables_of_one_store_exclude_each_other(store):
    one, other = store / "tables" / TABLE, store / "tables" / OTHER
    with claimed(one):
        assert lock_name(store).exists()
        code = "import sys\nfrom spatialpdvi.io.storage.locks import claimed\nwith claimed(sys.argv[1]): pass\n"
        done = subprocess.run([sys.executable, "-c", code, str(other)], capture_output=True, text=True, check=False)
        assert "another run at work on it" in done.stderr
    assert not lock_name(store).exists()


def refusal(store, table=TABLE):
    before = files_of(store)
    said = run("fit", store, "--table", table, *FIT, code=2).output
    assert "genes:" not in said  # before the work
    assert files_of(store) == before
    return said


def test_what_cannot_be_written_is_refused_before_the_work(store, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(folders, "_link", lambda *_: False)
        said = refusal(store)
        assert "gives no file two names, so that images would have to be copied. Write the table to a file" in said
    (store / "images" / "more").symlink_to(tmp_path)
    assert "found a link in it (images/more). Write the table to a file of its own, with --output." in refusal(store)
    (store / "images" / "more").unlink()
    os.mkfifo(store / "images" / "pipe")
    assert "found a pipe or device in it (images/pipe)" in run("fit", store, "--table", TABLE, *FIT, code=2).output
    (store / "images" / "pipe").unlink()
    name = next(path for path in (store / "images").rglob("*") if path.name in {"zarr.json", ".zarray"})
    content = name.read_text()
    name.write_text(content[:-20])
    assert "found an element whose metadata cannot be read" in refusal(store)
    name.write_text(content)
    assert "the name of one table of" in run("fit", store, *FIT, code=2).output


def test_a_table_takes_no_result_of_another_file(store, tmp_path):
    other = tmp_path / "other.h5ad"
    with warnings.catch_warnings(action="ignore"):
        ad.read_zarr(store / "tables" / TABLE).write_h5ad(other)
    before = files_of(tmp_path)
    for output in (store / "tables" / TABLE, store / "tables" / "new", store):
        said = run("fit", other, *FIT, "-o", output, code=2).output
        assert "Choose another --output." in said
    assert files_of(tmp_path) == before


def test_a_full_disk_is_one_sentence(store, monkeypatch):
    table, before = store / "tables" / TABLE, files_of(store)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "write", full)
    with pytest.raises(InputError, match=r"^There is no space left on the disk to write .*\. Nothing was changed\. "):
        write_elements(table, table, RESULTS)
    assert files_of(store) == before
