"""On the command line: killed at any moment a fit goes on when the same line is run again; a full disk ends none."""

import hashlib
import random
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import anndata
import pytest
from checkpoints.conftest import same_elements
from conftest import interrupt_at, run

from spatialpdvi.synthetic import simulate_file

FIT = ("--k", "4", "--rep", "X_pca", "--states", "off", "--n-init", "1", "--tol", "1e-6", "--step-factor", "4")
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "kill.py"


def _same(a, b):
    """Whether two files hold the same result, to the bit."""

    class Result:
        def __init__(self, path):
            adata = anndata.read_h5ad(path)
            self.trace = adata.uns["pdvi"]["trace"]
            self._all = {
                (group, key): value
                for group in ("obs", "obsm", "uns")
                for key, value in dict(getattr(adata, group)).items()
            }

        def elements(self, *_, **__):
            return self._all

    same_elements(Result(a), Result(b))


@pytest.fixture(scope="module")
def straight(section, tmp_path_factory):
    path = tmp_path_factory.mktemp("straight") / "straight.h5ad"
    run("fit", section, *FIT, "-o", path, "-q")
    return path


@pytest.mark.cli
def test_a_fit_that_is_killed_goes_on_when_the_same_line_is_run_again(section, straight, folder, tmp_path):
    """At the moment of a signal a checkpoint is under way as often as not: one is written after every epoch."""
    moments, out = random.Random(3), tmp_path / "out.h5ad"
    line = ("fit", section, *FIT, "-o", out, "--checkpoint", folder, "--checkpoint-every", 1, "--resume", "-v")
    epochs = [0]
    for at in ("restarts", "epoch", "epoch"):
        said = "start: " if at == "restarts" else f"epoch {epochs[-1] + moments.randrange(2, 5)} "
        code, stdout, _ = interrupt_at(said, line, sent=signal.SIGKILL)
        assert (code, stdout) == (-signal.SIGKILL, "")
        assert not out.exists()
        names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
        assert names >= {"start.checkpoint"}
        if at == "epoch":
            epochs.append(int(said.split()[1]) - 2)  # at the least: the line comes before the checkpoint
            assert "fit.checkpoint" in names
    result = run(*line)
    begun = re.search(
        rf"The fit resumes from the checkpoint in {re.escape(repr(str(folder)))}: epoch (\d+)\.", result.stderr
    )
    assert int(begun[1]) >= epochs[-1]
    _same(out, straight)
    assert not folder.exists()


@pytest.mark.slow
def test_a_large_section_survives_kills_in_the_fit_and_in_writing(tmp_path):
    """Counts are read block by block, and the result goes into the user's own file."""
    section, straight = tmp_path / "section.h5ad", tmp_path / "straight.h5ad"
    simulate_file(section, n_spots=15_000, n_genes=60, k=5, depth=200, easy=True)
    fit = ["--k", "5", "--states", "off", "--memory", "1KB", "--n-init", "1"]
    run("fit", section, *fit, "-o", straight, "-q")
    before = hashlib.sha256(section.read_bytes()).digest()
    line = ["fit", section, *fit, "--checkpoint", tmp_path / "kept", "--checkpoint-every", 1, "--resume", "-v"]
    code, _, stderr = interrupt_at("fit: epoch 3 ", line, sent=signal.SIGKILL)
    assert code == -signal.SIGKILL, stderr
    assert hashlib.sha256(section.read_bytes()).digest() == before
    assert (tmp_path / "kept" / "fit.checkpoint").exists()
    interrupt_at("scores: ", line, sent=signal.SIGKILL)  # what follows the scores is the writing, which may be over
    if hashlib.sha256(section.read_bytes()).digest() != before:
        _same(section, straight)
    run(*line)
    _same(section, straight)
    assert {path.name for path in tmp_path.iterdir()} == {"section.h5ad", "straight.h5ad"}


@pytest.mark.slow
@pytest.mark.longest
def test_ten_kills_at_random_moments_of_a_larger_fit():
    if not BENCHMARK.exists():
        pytest.skip("benchmarks are not part of this copy")
    command = [sys.executable, BENCHMARK, "--n-spots", 20_000, "--n-genes", 500, "--k", 12, "--every", 2]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"10 kills and \d+ finished fits, each with the same bits", done.stdout)


@pytest.mark.cli
def test_ctrl_c_says_how_to_go_on(section, straight, folder, tmp_path):
    line = ["fit", str(section), *FIT, "-o", str(tmp_path / "out.h5ad"), "--checkpoint", str(folder)]
    line += ["--checkpoint-every", "2"]
    code, stdout, stderr = interrupt_at("fit: epoch 5", [*line, "-v"])
    assert (code, stdout) == (130, "")
    said = re.search(
        r"Interrupted\. Nothing was written\. The checkpoint holds the fit up to epoch \d+\. "
        r"Resume it with: spatialpdvi (.*)\n",
        stderr,
    )
    assert shlex.split(said[1]) == [*line, "-v", "--resume"]
    assert "Expected no checkpoint in" in run(*line, code=2).stderr
    result = run(*shlex.split(said[1]))
    assert f"The fit resumes from the checkpoint in {str(folder)!r}: epoch " in result.stderr
    _same(tmp_path / "out.h5ad", straight)


@pytest.mark.cli
def test_ctrl_c_before_anything_is_kept(section, folder, tmp_path):
    line = ["fit", str(section), *FIT, "-o", str(tmp_path / "out.h5ad"), "--checkpoint", str(folder), "--resume"]
    code, _, stderr = interrupt_at("There is no checkpoint", line)
    assert code == 130
    assert stderr.endswith("Interrupted. Nothing was written.\n")
    assert not folder.exists()


@pytest.mark.cli
def test_a_disk_that_fills_up_is_told_once_and_the_fit_goes_on(section, straight, folder, tmp_path):
    code = (
        "import resource, sys\n"
        "from spatialpdvi.checkpoints import checkpoint\n"
        "from spatialpdvi.cli import main\n"
        "real, calls = checkpoint.write_archive, []\n"
        "def write(path, *arguments, **keywords):\n"
        "    calls.append(path)\n"
        "    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (8192 if len(calls) > 3 else hard, hard))\n"
        "    try: real(path, *arguments, **keywords)\n"
        "    finally: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "checkpoint.write_archive = write\n"
        "main(sys.argv[1:])\n"
    )
    out = tmp_path / "out.h5ad"
    line = ["fit", str(section), *FIT, "-o", str(out), "--checkpoint", str(folder), "--checkpoint-every", "2"]
    done = subprocess.run([sys.executable, "-c", code, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (told,) = re.findall("Warning: .*", done.stderr)
    assert told == (
        f"Warning: There is no space left on the disk to write {str(folder / 'fit.checkpoint')!r}. The fit goes on, "
        "and tries to save again after 2 epochs; the last checkpoint is of epoch 4."
    )
    _same(out, straight)
    assert not folder.exists()


@pytest.mark.cli
def test_a_limit_of_epochs_leaves_the_checkpoint_and_says_so(section, straight, folder, tmp_path):
    line = ("fit", section, *FIT, "-o", tmp_path / "out.h5ad", "--checkpoint", folder, "--checkpoint-every", 3)
    result = run(*line, "--max-epochs", 5, code=3)
    assert f"The checkpoint stays in {folder}. Resume it with a larger --max-epochs and --resume." in result.stderr
    run(*line, "--resume")
    _same(tmp_path / "out.h5ad", straight)


@pytest.mark.cli
def test_the_checkpoint_stays_until_report_and_model_are_written(section, folder, tmp_path, monkeypatch):
    import importlib

    from spatialpdvi import InputError

    def refuse(*_, **__):
        raise InputError("space on the disk", "none")

    line = ("fit", section, *FIT, "-o", tmp_path / "out.h5ad", "--checkpoint", folder, "--checkpoint-every", 3)
    line += ("--report", tmp_path / "report.json", "--resume")
    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("spatialpdvi.cli.fit"), "report_result", refuse)
        run(*line, code=2)
    assert len(list(folder.iterdir())) == 2
    run(*line)
    assert (tmp_path / "report.json").exists()
    assert not folder.exists()


@pytest.mark.parametrize("given", [["--resume"], ["--checkpoint-every", "5"]])
def test_options_of_a_checkpoint_without_one(section, given):
    assert run("fit", section, *FIT, *given, code=2).stderr == (
        f"Error: Expected --checkpoint with {given[0]}, found none. Name the folder of the checkpoint.\n"
    )


@pytest.mark.parametrize("given", ["--json", "--labels", "--save-model"])
def test_the_folder_of_the_checkpoint_is_no_other_output(section, tmp_path, given):
    both = tmp_path / "both"
    said = run("fit", section, *FIT, given, both, "--checkpoint", both, code=2).stderr
    assert (
        said
        == f"Error: Expected `{given}` to be another file than {str(both)!r}, found the same. Choose another {given}.\n"
    )
    assert not both.exists()


def test_the_help_says_how_often():
    from spatialpdvi.checkpoints import EVERY

    assert f"Number of epochs between two checkpoints. Default: {EVERY}." in " ".join(
        run("fit", "--help-all").stdout.split()
    )


def test_a_number_of_epochs_that_is_none(section, folder):
    result = run("fit", section, *FIT, "--checkpoint", folder, "--checkpoint-every", 0, code=2)
    assert "Expected `--checkpoint-every` to be a whole number of at least 1, found 0." in result.stderr
