"""Memory that runs out is one sentence and exit code 2, and files stay as they were."""

import errno
import re

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import run
from zarr_samples import files_of

from spatialpdvi.api import fitting
from spatialpdvi.cli import main
from spatialpdvi.cli.memory import is_out_of_memory
from spatialpdvi.compare import bench, comparison
from spatialpdvi.prediction import predict as prediction

pytestmark = pytest.mark.cli

FIT = ["--k", "4", "--n-top-genes", "100", "--n-init", "1"]
NEEDED = re.escape("There is not enough memory: an array of shape (1048576, 1073741824) needs 8.00 PiB more.")


def _too_much(*_, **__):
    return np.empty((1 << 20, 1 << 30))


def _run(*arguments, code=2):
    return run(*arguments, code=code)


def _sentence(result):
    """The last line of stderr: stages are told above it."""
    return result.stderr.splitlines()[-1]


@pytest.fixture
def fitted(toy_file):
    _run("fit", toy_file, *FIT, "--save-model", toy_file.with_name("model.npz"), "-q", code=0)
    return toy_file


def test_of_a_fit(toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "fit_section", _too_much)
    before = files_of(tmp_path)
    said = _sentence(_run("fit", toy_file, *FIT, "--report", tmp_path / "report.json"))
    assert re.fullmatch(rf"Error: {NEEDED} Nothing was written\. Use .*\.", said)
    assert "Use fewer components (--n-pcs), fewer genes (--n-top-genes), or a machine with more memory." in said
    assert files_of(tmp_path) == before


def test_after_the_result(toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr("spatialpdvi.io.storage.atomic.write_json", _too_much)
    report = tmp_path / "report.json"
    said = _sentence(_run("fit", toy_file, *FIT, "--report", report))
    assert f" {str(toy_file)!r} was written completely; {str(report)!r} was not written. Use " in said


def test_of_a_prediction(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "data_term", _too_much)
    before = files_of(tmp_path)
    said = _sentence(_run("predict", fitted, "--model", tmp_path / "model.npz"))
    assert re.search(rf"{NEEDED} Nothing was written\. Use a machine with more memory\.$", said)
    assert files_of(tmp_path) == before


def test_of_a_comparison(toy_file, tmp_path, monkeypatch):
    arguments = ["compare", toy_file, "--k", "4", "--rep", "X_pca", "--solvers", "cavi,memoized", "--seeds", "1"]
    original = comparison.run_solver

    def second_fails(prepared, name, **options):
        return original(prepared, name, **options) if name == "cavi" else _too_much()

    monkeypatch.setattr(comparison, "run_solver", second_fails)
    out = tmp_path / "out"
    said = _sentence(_run(*arguments, "-o", out))
    assert re.search(NEEDED, said)
    assert f" Finished runs were saved in {out}. Run the same command again to continue. Use " in said
    assert [path.name for path in (out / "runs").iterdir()] == ["cavi.seed0.json"]
    monkeypatch.setattr(bench, "raw_features", _too_much)
    assert re.search(NEEDED, _sentence(_run(*arguments, "-o", tmp_path / "other")))
    assert not (tmp_path / "other").exists()


def test_of_the_small_commands(fitted, tmp_path, monkeypatch):
    before = files_of(tmp_path)
    monkeypatch.setattr("spatialpdvi.metrics.section.domain_scores", _too_much)
    assert re.search(NEEDED, _sentence(_run("evaluate", fitted)))
    monkeypatch.setattr("spatialpdvi.plotting.plot_section", _too_much)
    said = _sentence(_run("plot", fitted, "-o", tmp_path / "picture.png"))
    assert "Use a smaller --dpi, or a machine with more memory." in said
    monkeypatch.setattr("spatialpdvi.synthetic.section.draw_blocks", _too_much)
    said = _sentence(_run("simulate", tmp_path / "new.h5ad"))
    assert "Use fewer spots (--n-spots), fewer genes (--n-genes), or a machine with more memory." in said
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        MemoryError("Allocation failed (probably too large)."),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ImportError("lib.so: failed to map segment from shared object"),
        RuntimeError("can't start new thread"),
    ],
)
def test_however_it_is_said(toy_file, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(fitting, "read_inputs", fail)
    assert "There is not enough memory. Nothing was written. Use" in _sentence(_run("fit", toy_file, *FIT))


def test_a_library_may_say_it_in_the_words_of_another():
    error = OSError("Could not find/load shared object file")
    error.__context__ = OSError("lib.so: failed to map segment from shared object")
    assert is_out_of_memory(error)
    assert not is_out_of_memory(OSError("Could not find/load shared object file"))
    assert not is_out_of_memory(RuntimeError("another"))


def test_a_file_that_memory_does_not_suffice_to_open_is_not_called_damaged(toy_file, monkeypatch):
    def fail(*_):
        try:
            _too_much()
        except MemoryError as error:
            error.add_note("as other libraries do")
            raise

    monkeypatch.setattr("spatialpdvi.io.formats.opening._check_anndata", fail)
    said = _sentence(_run("fit", toy_file, *FIT))
    assert re.search(NEEDED, said)
    assert "damaged" not in said
    assert "Nothing was written." in said


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), ImportError("no module named x")])
def test_other_errors_keep_their_traceback(toy_file, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(fitting, "read_inputs", fail)
    result = CliRunner().invoke(main, ["fit", str(toy_file), *FIT])
    assert result.exception is error
    assert result.exit_code == 1
