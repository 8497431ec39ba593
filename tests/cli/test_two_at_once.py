"""Two runs that would write to one file: the second says so at once, and changes nothing."""

import re
import shutil
import signal
import subprocess

import anndata
import pytest
from click.testing import CliRunner
from conftest import COMMAND
from holding import held
from zarr_samples import files_of, write_zarr

from spatialpdvi import Checkpoint, InputError, fit
from spatialpdvi.cli import main

pytestmark = pytest.mark.cli

FIT = ("--k", "4", "--n-top-genes", "100")
RUNS = {
    "fit into the input": ("fit in.h5ad", "in.h5ad"),
    "fit -o": ("fit in.h5ad -o out.h5ad", "out.h5ad"),
    "fit -o, a link": ("fit in.h5ad -o link.h5ad", "out.h5ad"),
    "fit into a store": ("fit in.zarr", "in.zarr"),
    "fit -o store": ("fit in.h5ad -o out.zarr", "out.zarr"),
    "fit several": ("fit in.h5ad two.h5ad -o folder", "folder/two.h5ad"),
    "fit --report": ("fit in.h5ad --report out.json", "out.json"),
    "fit --save-model": ("fit in.h5ad --save-model out.npz", "out.npz"),
    "fit --checkpoint": ("fit in.h5ad --checkpoint kept --resume", "kept"),
    "predict": ("predict in.h5ad --model model.npz", "in.h5ad"),
    "predict -o": ("predict in.h5ad --model model.npz -o out.h5ad", "out.h5ad"),
    "evaluate --report": ("evaluate in.h5ad --domain-key annotation --report out.json", "out.json"),
    "bin": ("bin sample.gem -o out.h5ad", "out.h5ad"),
    "bin to a store": ("bin sample.gem -o out.zarr", "out.zarr"),
    "markers -o": ("markers in.h5ad -o out.csv", "out.csv"),
    "markers --store": ("markers in.h5ad --store", "in.h5ad"),
    "plot": ("plot in.h5ad -o out.png", "out.png"),
    "report": ("report in.h5ad -o out.html", "out.html"),
    "simulate": ("simulate out.h5ad", "out.h5ad"),
    "compare": ("compare in.h5ad --k 4 -o out", "out"),
}


@pytest.fixture(scope="module")
def inputs(toy_section, tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    toy_section.write_h5ad(folder / "in.h5ad")
    toy_section.write_h5ad(folder / "two.h5ad")
    write_zarr(folder / "in.zarr", toy_section, 3)
    (folder / "link.h5ad").symlink_to("out.h5ad")
    (folder / "folder").mkdir()
    (folder / "sample.gem").write_text("geneID\tx\ty\tMIDCount\ng\t1\t1\t1\n")
    return folder


@pytest.fixture
def folder(inputs, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    shutil.copytree(inputs, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("run", RUNS)
def test_the_second_run_says_so_and_changes_nothing(folder, run):
    line, busy = RUNS[run]
    arguments = [*line.split(), *(FIT if line.startswith("fit") else ())]
    with held(folder / busy) as process:
        before = files_of(folder)
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 2, result.output
        assert re.fullmatch(
            rf"Error: Expected '.*' to be free, found another run at work on it \(process {process.pid} on .*\)\. "
            r"Nothing was changed\. Wait until that has ended, or give another name\.\n",
            result.stderr,
        )
        assert files_of(folder) == before
    assert not list(folder.rglob(".spatialpdvi*"))


def test_two_fits_into_one_file(toy_file):
    """The first is under way, and is stopped when the second has been refused."""
    endless = (
        "--rep",
        "X_pca",
        "--n-init",
        "1",
        "--solver",
        "svi-rm",
        "--tol",
        "1e-6",
        "--tol-objective",
        "1e-300",
        "--max-epochs",
        "1000000",
        "-v",
    )
    before = toy_file.read_bytes()
    command = [*COMMAND, "fit", str(toy_file), "--k", "4", *endless]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        next(line for line in first.stderr if "fit: epoch 3" in line)
        second = CliRunner().invoke(main, ["fit", str(toy_file), "--k", "4"])
        other = CliRunner().invoke(
            main,
            [
                *command[3:5],
                "--k",
                "4",
                "--rep",
                "X_pca",
                "--n-init",
                "1",
                "-o",
                str(toy_file.with_name("other.h5ad")),
                "-q",
            ],
        )
        first.send_signal(signal.SIGTERM)
        said = first.communicate(timeout=60)[1]
    assert (second.exit_code, other.exit_code, first.returncode) == (2, 0, 143)
    assert f"another run at work on it (process {first.pid} on" in second.stderr
    assert said.endswith("Stopped by SIGTERM. Nothing was written.\n")
    assert toy_file.read_bytes() == before
    assert sorted(path.name for path in toy_file.parent.iterdir()) == ["other.h5ad", "section.h5ad"]


def test_a_checkpoint_of_another_run_in_python(toy_section, tmp_path):
    adata = anndata.AnnData(toy_section.X, toy_section.obs, toy_section.var, obsm=dict(toy_section.obsm))
    with held(tmp_path / "kept"), pytest.raises(InputError, match=r"'.*kept' to be free"):
        fit(adata, k=4, rep="X_pca", n_init=1, checkpoint=Checkpoint(tmp_path / "kept"))
    assert list(adata.uns) == []
    fit(adata, k=4, rep="X_pca", n_init=1, checkpoint=Checkpoint(tmp_path / "kept", every=1))
    assert list(tmp_path.iterdir()) == []
