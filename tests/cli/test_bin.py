"""``spatialpdvi bin`` as a user runs it, and the fit of what it makes."""

import errno
import json
import os

import anndata
import h5py
import numpy as np
import pytest
import tifffile
from binning_samples import Molecules, as_dict, draw, write_cell_gef, write_gef, write_gem, write_space_ranger
from conftest import run
from documented import named, part, undocumented

pytestmark = pytest.mark.cli


@pytest.fixture(scope="module")
def tissue():
    """Two halves of a chip of 400 x 400 DNBs, each with genes of its own."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(400, size=(2, 60_000))
    gene = np.where(rng.random(x.size) < 0.8, 15 * (x >= 200), 0) + rng.integers(15, size=x.size)
    gene, x, y = np.unique(np.column_stack([gene, x, y]), axis=0).T
    names = [f"g{i}" for i in range(30)]
    return Molecules(names, names, x, y, gene, rng.integers(1, 4, size=x.size), np.zeros(x.size, int))


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_bin_then_fit(tissue, tmp_path, ending):
    path, out = write_gef(tmp_path / "sample.gef", tissue), tmp_path / f"sample.{ending}"
    said = run("bin", path, "--bin", "20", "-o", out).stdout
    assert "(400 spots x 30 genes, " in said
    run("fit", out, "--k", "2", "--report", tmp_path / "report.json", "-q")
    adata = anndata.read_zarr(out) if ending == "zarr" else anndata.read_h5ad(out)
    assert as_dict(adata) == tissue.expected(20)
    left = adata.obsm["spatial"][:, 0] < 200
    domains = adata.obs["pdvi_domain"].astype(int).to_numpy()
    assert max(np.mean(domains == left), np.mean(domains != left)) > 0.99
    assert json.loads((tmp_path / "report.json").read_text())["output"] == str(out)
    assert adata.uns["binning"]["bin_size"] == 20  # a fit leaves what is the user's


def test_quiet_says_nothing_and_a_second_run_replaces_the_first(tissue, tmp_path):
    path, out = write_gem(tmp_path / "sample.gem.gz", tissue), tmp_path / "out.h5ad"
    result = run("bin", path, "-o", out, "-q")
    assert (result.stdout, result.stderr) == ("", "")
    run("bin", path, "--bin", "100", "-o", out)
    assert as_dict(anndata.read_h5ad(out)) == tissue.expected(100)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.h5ad", "sample.gem.gz"]


def test_mask_and_image_are_named_and_followed_by_a_fit(tissue, tmp_path):
    path, out = write_gef(tmp_path / "SN.gef", tissue), tmp_path / "sample.h5ad"
    mask = np.zeros((400, 400), dtype=np.uint8)
    mask[:, 40:360] = 1
    tifffile.imwrite(tmp_path / "mask.tif", mask)
    tifffile.imwrite(tmp_path / "regist.tif", np.full((400, 400), 90, dtype=np.uint8), tile=(64, 64))
    options = ["--tissue", tmp_path / "mask.tif", "--image", tmp_path / "regist.tif"]
    said = run("bin", path, "--bin", "20", *options, "-o", out).stdout
    assert "obs['in_tissue'] with 320 spots on the tissue, the image of 'SN' in uns['spatial'])" in said
    run("fit", out, "--mask", "in_tissue", "--k", "2", "--n-init", "2", "--states", "off", "-q")
    adata = anndata.read_h5ad(out)
    assert adata.obs["pdvi_domain"].notna().sum() == 320
    assert list(adata.uns["spatial"]) == ["SN"]
    run("plot", out, "--image", "--gene", "g3", "-o", tmp_path / "a.png", "-q")
    text = part("What `spatialpdvi bin` writes")
    assert undocumented({key: adata.uns["binning"][key] for key in ("tissue", "image")}, text) == []
    assert "obs['in_tissue']" in text
    assert "uns['spatial'][library]" in text


@pytest.mark.parametrize("kind", ["squares", "cells", "text", "visium"])
def test_every_key_is_documented(tmp_path, kind):
    path, out, more = tmp_path / "sample", tmp_path / "out.h5ad", []
    if kind == "visium":
        write_space_ranger(path)
    elif kind == "cells":
        write_cell_gef(path, draw())
        more = ["--cell-bin"]
    else:
        (write_gef if kind == "squares" else write_gem)(path, draw())
    run("bin", path, *more, "-o", out, "-q")
    adata, text = anndata.read_h5ad(out), part("What `spatialpdvi bin` writes")
    names = [*adata.obs, *(f"{group}['{key}']" for group in ("var", "obsm", "uns") for key in getattr(adata, group))]
    assert [name for name in names if name not in named(text)] == []
    facts = adata.uns["binning"]
    factors = facts.pop("scale_factors", None)  # their names are those of Space Ranger
    assert undocumented(facts, text) == []
    assert (factors is not None) == (kind == "visium")
    layers = set(adata.layers) - {None}  # under which anndata 0.13 has X
    assert layers | set(adata.varm) | set(adata.obsp) | set(adata.varp) == set()


def test_wrong_uses_are_one_sentence_and_leave_all_as_it_was(tissue, tmp_path):
    path = write_gef(tmp_path / "sample.gef", tissue)
    before = path.read_bytes()
    for arguments, said in (
        (("-o", path), "to be another file than"),
        (("-o", tmp_path / "no" / "out.h5ad"), "Expected the folder of"),
        (("-o", tmp_path / "out.h5ad", "--bin", "0"), "from 1 to"),
        (("-o", tmp_path / "out.h5ad", "--bin", "50", "--cell-bin"), "found both"),
        (("-o", tmp_path / "out.h5ad", "--cell-bin"), "found a square-bin GEF"),
        (("-o", tmp_path / "out.h5ad", "--memory", "none"), "`--memory`"),
        (("-o", tmp_path), "found a folder"),
        (("-o", tmp_path / "s.txt"), "s.txt'. Its ending sets the format; give it one of these.\n"),
        (("-o", tmp_path / "s"), "Expected `--output` to be a path that ends in .h5ad or .zarr, found '"),
    ):
        message = run("bin", path, *arguments, code=2).stderr
        assert said in message
        assert "Traceback" not in message
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["sample.gef"]
    message = run("fit", path, "--k", "2", code=2).stderr
    assert "found a GEF of Stereo-seq. Make an AnnData of it with `spatialpdvi bin`." in message
    assert "Missing option" in run("bin", path, code=2).stderr


def test_a_damaged_input_leaves_the_old_output(tissue, tmp_path):
    path, out = write_gef(tmp_path / "sample.gef", tissue), tmp_path / "out.h5ad"
    run("bin", path, "-o", out)
    before = out.read_bytes()
    with h5py.File(path, "r+") as file:
        records = file["geneExp/bin1/expression"]
        values = records[:]
        values["x"][-1] = 1 << 30  # the last of all
        records[:] = values
    assert "DNBs of its origin" in run("bin", path, "-o", out, code=2).stderr
    assert out.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tissue, tmp_path):
    path = write_gef(tmp_path / "sample.gef", tissue)
    path.chmod(0)
    assert "no permission to read it" in run("bin", path, "-o", tmp_path / "out.h5ad", code=2).stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "Interrupted. Nothing was written."),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "There is no space left on the disk to write "),
        (MemoryError(), 2, "There is not enough memory. Nothing was written."),
    ],
)
@pytest.mark.parametrize("step", ["external_sort.Runs._gather", "external_sort._rows", "store._append"])
def test_nothing_is_left_of_a_run_that_ends_early(tissue, tmp_path, monkeypatch, error, code, said, step):
    path, out = write_gef(tmp_path / "sample.gef", tissue), tmp_path / "out.h5ad"
    run("bin", path, "-o", out)
    before = out.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr("spatialpdvi.binning.sample.records_within", lambda _: 2000)
    monkeypatch.setattr(f"spatialpdvi.binning.{step}", fail)
    assert said in run("bin", path, "-o", out, "--bin", "3", code=code).stderr
    assert out.read_bytes() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["out.h5ad", "sample.gef"]
