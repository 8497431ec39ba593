"""No command replaces a file of the user's by mistake, and what it says of its files is true."""

import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager

import anndata
import click
import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import SET_DEFAULTS
from zarr_samples import files_of

from spatialpdvi.api import fitting
from spatialpdvi.cli import common, main
from spatialpdvi.errors import InputWarning

pytestmark = pytest.mark.cli

FIT = ["--k", "4", "--n-top-genes", "100", "--n-init", "2"]


def _refusal(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, result.output
    assert re.fullmatch(r"Error: (Expected|There is no) .*\n", result.stderr), result.stderr
    return result.stderr


@pytest.fixture
def fitted(toy_file):
    """The section with a result in it that was not computed, only written."""
    adata = anndata.read_h5ad(toy_file)
    rng = np.random.default_rng(0)
    adata.obs["pdvi_domain"] = rng.integers(0, 3, adata.n_obs).astype(str)
    adata.obs["pdvi_confidence"] = rng.random(adata.n_obs)
    trace = {"epoch": np.arange(3), "neg_elbo": np.array([3.0, 2.0, 1.0]), "gradient_norm": np.array([1.0, 0.1, 0.01])}
    adata.uns["pdvi"] = {"params": {"k": 3}, "certificate": {"converged": True}, "trace": trace, "scores": {"ari": 0.5}}
    adata.write_h5ad(toy_file)
    return toy_file


@pytest.mark.parametrize("name", ["the same path", "a link", "a hard link", "another spelling"])
def test_a_report_never_replaces_the_section(toy_file, tmp_path, name):
    report = {
        "the same path": toy_file,
        "a link": tmp_path / "link",
        "a hard link": tmp_path / "hard",
        "another spelling": tmp_path / ".." / tmp_path.name / toy_file.name,
    }[name]
    if name == "a link":
        report.symlink_to(toy_file)
    elif name == "a hard link":
        report.hardlink_to(toy_file)
    before = files_of(tmp_path)
    sentence = (
        f"Error: Expected `--json` to be another file than {str(toy_file)!r}, found the same. Choose another --json.\n"
    )
    assert _refusal("fit", toy_file, *FIT, "--report", report) == sentence
    assert _refusal("evaluate", toy_file, "--domain-key", "annotation", "--report", report) == sentence
    assert files_of(tmp_path) == before


def test_a_report_never_replaces_the_output(toy_file, tmp_path):
    before = files_of(tmp_path)
    out = tmp_path / "out.h5ad"
    assert "another file than" in _refusal("fit", toy_file, *FIT, "-o", out, "--report", out)
    assert files_of(tmp_path) == before


def test_a_picture_never_replaces_the_section(fitted, tmp_path):
    slim = shutil.copy(fitted, tmp_path / "slim.h5ad")
    section = fitted.rename(tmp_path / "section.png")
    before = files_of(tmp_path)
    assert "Expected `--output` to be another file than" in _refusal("plot", section, "-o", section)
    words = ("plot", slim, "--gene", "Mbp", "--counts", section, "-o", section)
    assert "Expected `--output` to be another file than" in _refusal(*words)
    assert files_of(tmp_path) == before


def test_a_file_size_limit_ends_in_one_sentence(toy_file, tmp_path):
    before = files_of(tmp_path)
    code = (
        f"{SET_DEFAULTS}"
        "import resource, sys\n"
        "import spatialpdvi.io.results.writing as writing\n"
        "from spatialpdvi.cli import main\n"
        "real = writing.write_elements\n"
        "def write(*arguments, **keywords):\n"
        f"    resource.setrlimit(resource.RLIMIT_FSIZE, ({toy_file.stat().st_size + 8192},) * 2)\n"
        "    real(*arguments, **keywords)\n"
        "writing.write_elements = write\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "fit", str(toy_file), *FIT, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert re.fullmatch(
        r"Error: There is no space left on the disk to write '.*'\. Nothing was changed\. .*\n", done.stderr
    ), done.stderr
    assert (done.returncode, done.stdout) == (2, "")
    assert files_of(tmp_path) == before


def _interrupt_in(monkeypatch, target, name):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(target, name, stop)


def test_an_interruption_tells_what_was_written(toy_file, tmp_path, monkeypatch):
    report = tmp_path / "report.json"
    arguments = ["fit", str(toy_file), *FIT, "--report", str(report), "-q"]
    module = importlib.import_module("spatialpdvi.cli.fit")
    with monkeypatch.context() as patch:
        _interrupt_in(patch, module, "report_result")
        result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 130
    assert result.stderr == (
        f"Interrupted. {str(toy_file)!r} was written completely; {str(report)!r} was not written.\n"
    )
    assert "pdvi" in anndata.read_h5ad(toy_file).uns


def test_an_interruption_within_the_write_is_told_by_the_file(toy_file, tmp_path, monkeypatch):
    from spatialpdvi.io.storage import atomic

    real, out = atomic.synchronise, tmp_path / "out.h5ad"

    def stop_at_the_folder(path):
        if path.is_dir():
            raise KeyboardInterrupt
        real(path)

    monkeypatch.setattr(atomic, "synchronise", stop_at_the_folder)
    result = CliRunner().invoke(main, ["fit", str(toy_file), *FIT, "-o", str(out), "-q"])
    assert (result.exit_code, result.stderr) == (130, f"Interrupted. {str(out)!r} was written completely.\n")
    assert "pdvi" in anndata.read_h5ad(out).uns


def test_an_interruption_before_the_write(toy_file, monkeypatch):
    before = toy_file.read_bytes()
    _interrupt_in(monkeypatch, fitting, "fit_section")
    result = CliRunner().invoke(main, ["fit", str(toy_file), *FIT, "-q"])
    assert (result.exit_code, result.stderr) == (130, "Interrupted. Nothing was written.\n")
    assert toy_file.read_bytes() == before


def test_a_report_that_fails_does_not_deny_the_result(toy_file, tmp_path, monkeypatch):
    from spatialpdvi.io.storage import atomic

    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    report = tmp_path / "report.json"
    monkeypatch.setattr(atomic.Path, "write_text", refuse)
    assert _refusal("fit", toy_file, *FIT, "--report", report, "-q") == (
        f"Error: There is no space left on the disk to write {str(report)!r}. The result was written to "
        f"{str(toy_file)!r}; the JSON file was not written. Free some space or choose another --json, then run again.\n"
    )
    assert list(tmp_path.iterdir()) == [toy_file]
    assert "pdvi" in anndata.read_h5ad(toy_file).uns


def test_quiet_and_verbose_at_once(toy_file):
    assert "Expected at most one of --quiet and --verbose, found both." in _refusal("fit", toy_file, *FIT, "-q", "-v")


@pytest.mark.parametrize("quiet", [False, True])
def test_warnings_about_locks_are_printed_unless_all_is_to_be_quiet(monkeypatch, capsys, quiet):
    @contextmanager
    def claimed(*_):
        warnings.warn(InputWarning("There are no locks here."), stacklevel=2)
        yield

    monkeypatch.setattr("spatialpdvi.io.storage.locks.claimed", claimed)
    with click.Context(main, info_name="fit") as context:
        context.params["quiet"] = quiet
        with common.name_written():
            assert capsys.readouterr().err == ("" if quiet else "Warning: There are no locks here.\n")


def test_a_display_without_stderr(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with common.display(quiet=False, verbose=False) as progress, progress.stage("fit") as stage:
        stage.note("half")
        progress.message("a line")
    assert list(progress.seconds) == ["fit"]


def test_a_file_without_permission_is_refused_in_our_words(toy_file, monkeypatch):
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK and access(path, mode))
    assert "found no permission to read it. Ask its owner" in _refusal("fit", toy_file, *FIT)


def test_a_killed_fit_is_tidied_up_by_the_next(toy_file, tmp_path):
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from spatialpdvi.io.storage.atomic import replacing\n"
        "with replacing(Path(sys.argv[1]), Path(sys.argv[1])) as temporary:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(toy_file)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    assert CliRunner().invoke(main, ["fit", str(toy_file), *FIT, "-q"]).exit_code == 0
    assert list(tmp_path.iterdir()) == [toy_file]


@pytest.mark.parametrize("name", ["$x^{.h5ad", r"a\frac{.h5ad", "a$b$c.h5ad", b"caf\xe9.h5ad", "two\nlines.h5ad"])
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_a_picture_of_a_file_of_any_name(fitted, tmp_path, name, suffix):
    section = fitted.rename(tmp_path / os.fsdecode(name))
    picture = section.with_suffix(f".{suffix}")
    result = CliRunner().invoke(main, ["plot", str(section), "--kind", "domains", "--dpi", "40", "-o", str(picture)])
    assert result.exit_code == 0, result.output
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("element", "value", "found"),
    [
        ("uns/pdvi", 3.0, "an object of type float."),
        ("uns/pdvi/trace", 3.0, "no dict 'trace' in it"),
        ("uns/pdvi/k_scan", 3.0, "no dict 'k_scan' in it"),
        ("uns/pdvi/scores", "high", "no dict 'scores' in it"),
        ("uns/pdvi/trace/epoch", "first", "no column of numbers in its trace under 'epoch'"),
        ("uns/pdvi/scores/ari", "high", "no number in its scores under 'ari'"),
        ("obs/pdvi_confidence", np.full(600, np.nan), "600 spots with NaN or infinity"),
        ("obs/pdvi_confidence", np.array(["high"] * 600, dtype=object), "values of type"),
        ("obs/pdvi_confidence", np.full(600, -7.0), "-7, which is not between 0 and 1"),
    ],
)
def test_a_picture_of_a_result_that_is_none(fitted, tmp_path, element, value, found):
    with h5py.File(fitted, "r+") as file:
        if element in file:
            del file[element]
        group, _, key = element.rpartition("/")
        anndata.io.write_elem(file[group], key, value)  # anndata 0.13 takes no path for a key
    sentence = _refusal("plot", fitted, "-o", tmp_path / "a.png")
    assert "to hold the result of a fit, found " + found in sentence
    assert list(tmp_path.iterdir()) == [fitted]


def test_dots_that_no_picture_can_hold(fitted, tmp_path):
    assert (
        "Expected `--dpi` to be at most 2,400, and to make at most 65,535 pixels along a side, found 1000000."
        in _refusal("plot", fitted, "-o", tmp_path / "a.png", "--dpi", 10**6)
    )


def test_seeds_that_no_simulation_takes(tmp_path):
    for seed in (-1, 2**32):
        assert "--seed" in _refusal("simulate", tmp_path / "a.h5ad", "--seed", seed)
    assert list(tmp_path.iterdir()) == []
