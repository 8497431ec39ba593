"""SIGTERM and SIGKILL at any moment: files are whole, SIGTERM leaves nothing behind and says what was written."""

import importlib
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import anndata
import pytest
from binning_samples import draw, write_gem
from click.testing import CliRunner
from conftest import interrupt_at

from spatialpdvi.cli import main
from spatialpdvi.cli.checkpoint import explain_how_to_resume
from spatialpdvi.cli.signals import TerminatedError, stop_on_sigterm

FIT = ("--k", "4", "--rep", "X_pca", "--n-init", "1")
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
ENDLESS = ("--solver", "svi-rm", "--tol", "1e-6", "--tol-objective", "1e-300", "--max-epochs", "1000000", "-v")


@pytest.fixture(autouse=True)
def _handler():
    """A process that has been stopped ignores the signal from then on; this one goes on."""
    old = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("sent", ENDING)
def test_a_stop_tells_what_was_written(toy_file, tmp_path, monkeypatch, sent):
    report = tmp_path / "report.json"
    command = importlib.import_module("spatialpdvi.cli.fit")
    monkeypatch.setattr(command, "report_result", lambda *_: signal.raise_signal(sent))
    result = CliRunner().invoke(main, ["fit", str(toy_file), *FIT, "--report", str(report), "-q"])
    assert result.exit_code == 128 + sent
    assert result.stderr == (
        f"Stopped by {sent.name}. {str(toy_file)!r} was written completely; {str(report)!r} was not written.\n"
    )
    assert list(tmp_path.iterdir()) == [toy_file]


@pytest.mark.parametrize(
    "dask", [pytest.param((), marks=pytest.mark.cli), pytest.param(("--dask", "local:1"), marks=pytest.mark.slow)]
)
def test_a_stop_says_how_to_go_on_and_ends_the_workers(toy_file, tmp_path, dask):
    before, folder = toy_file.read_bytes(), tmp_path / "kept"
    line = ["fit", str(toy_file), *FIT, *ENDLESS, "--checkpoint", str(folder), "--checkpoint-every", "2", *dask]
    code, stdout, stderr = interrupt_at(
        "fit: epoch 5", line, sent=signal.SIGTERM
    )  # waits for the workers' ends of pipes
    assert (code, stdout) == (143, "")
    said = re.search(
        r"Stopped by SIGTERM\. Nothing was written\. The checkpoint holds the fit up to epoch \d+\. "
        r"Resume it with: spatialpdvi (.*)\n$",
        stderr,
    )
    assert shlex.split(said[1]) == [*line, "--resume"]
    assert "Traceback" not in stderr, stderr
    assert toy_file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "section.h5ad"]


@pytest.mark.parametrize("given", [[], ["--resume"]])
def test_the_command_to_go_on_with_resumes_once(monkeypatch, given):
    monkeypatch.setattr(sys, "argv", ["spatialpdvi", "fit", "a b.h5ad", *given])
    said = "The checkpoint holds the fit up to epoch 4. Resume it with: spatialpdvi fit 'a b.h5ad' --resume"
    with (
        pytest.raises(KeyboardInterrupt, match=rf"^It was written\. {re.escape(said)}$"),
        explain_how_to_resume(SimpleNamespace(folder=None, saved="epoch 4")),
    ):
        raise KeyboardInterrupt("It was written.")


def test_the_command_to_go_on_with_keeps_files_that_begin_with_a_dash(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spatialpdvi", "fit", "--k", "3", "--", "-odd.h5ad"])
    with (
        pytest.raises(KeyboardInterrupt, match=r" spatialpdvi fit --k 3 --resume -- -odd\.h5ad$"),
        explain_how_to_resume(SimpleNamespace(folder=None, saved="epoch 4")),
    ):
        raise KeyboardInterrupt("It was written.")


@pytest.mark.parametrize(
    ("sent", "error"),
    [*((number, TerminatedError) for number in ENDING), (signal.SIGINT, KeyboardInterrupt)],
)
def test_the_second_signal_of_a_pair_does_not_cut_the_tidying_up_short(sent, error):
    """`timeout` sends it to the process and to its group; Ctrl-C is pressed repeatedly."""
    done = []

    def run():
        with stop_on_sigterm():
            try:
                signal.raise_signal(sent)
            finally:
                signal.raise_signal(sent)
                done.append(True)

    with pytest.raises(error) as caught:
        run()
    signal.raise_signal(sent)
    assert type(caught.value) is error
    assert done == [True]


def test_pressing_again_and_again_stops_what_a_library_has_kept_from_stopping(monkeypatch):
    """As a library that swallows all exceptions while it is imported does; after ten seconds one is heeded again."""
    now, stopped = [0.0], []
    monkeypatch.setattr("spatialpdvi.cli.signals.time", SimpleNamespace(monotonic=lambda: now[0]))

    def run():
        with stop_on_sigterm():
            for _ in range(4):
                try:
                    signal.raise_signal(signal.SIGINT)
                except KeyboardInterrupt:
                    stopped.append(now[0])
                now[0] += 7.5  # seconds

    run()
    assert stopped == [0.0, 15.0]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_is_ignored_stays_so(sent):
    """As `nohup` and the background of a shell have it."""
    signal.signal(sent, signal.SIG_IGN)
    with stop_on_sigterm():
        signal.raise_signal(sent)
    assert signal.getsignal(sent) == signal.SIG_IGN


@pytest.mark.parametrize(("sent", "error"), [(signal.SIGTERM, TerminatedError), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_that_comes_in_a_finaliser_is_not_lost(sent, error):
    class Last:
        def __del__(self):
            signal.raise_signal(sent)

    went_on = []

    def run():
        with stop_on_sigterm():
            Last()
            went_on.append(True)  # Python has dropped what was raised
            time.sleep(30)

    with pytest.raises(error) as caught:
        run()
    assert type(caught.value) is error
    assert went_on == [True]


def test_what_else_a_finaliser_raises_is_told_as_ever(monkeypatch):
    class Last:
        def __del__(self):
            raise ValueError

    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    with stop_on_sigterm():
        Last()
    assert [type(what.exc_value) for what in told] == [ValueError]


def test_without_a_signal_the_handler_is_as_it_was():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.fixture(scope="module")
def ready(toy_section, tmp_path_factory):
    """A section, the same fitted, a model, and a sample to bin."""
    folder = tmp_path_factory.mktemp("ready")
    toy_section.write_h5ad(folder / "plain.h5ad")
    line = ["fit", str(folder / "plain.h5ad"), *FIT, "-o", str(folder / "fitted.h5ad"), "-q"]
    assert CliRunner().invoke(main, [*line, "--save-model", str(folder / "model.npz")]).exit_code == 0
    write_gem(folder / "sample.gem", draw(n=20_000))
    return folder


COMMANDS = {
    "fit": ("fit", "{}/plain.h5ad", *FIT, "-o", "out.h5ad"),
    "predict": ("predict", "{}/plain.h5ad", "--model", "{}/model.npz", "-o", "out.h5ad"),
    "bin": ("bin", "{}/sample.gem", "--bin", "10", "-o", "out.h5ad"),
    "report": ("report", "{}/fitted.h5ad", "-o", "out.html"),
}


def _contents(path):
    """What is in a file, but for seconds and dates."""
    if path.suffix == ".html":
        return len(path.read_text()), path.read_text().endswith("</html>\n")
    adata = anndata.read_h5ad(path)
    values = {name: adata.obsm[name].tobytes() for name in adata.obsm}
    return values | {"X": adata.X.toarray().tobytes(), "uns": sorted(adata.uns), "obs": list(adata.obs)}


@pytest.mark.slow
@pytest.mark.longest
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", COMMANDS)
def test_at_random_moments_files_are_whole(ready, tmp_path, command, sent):
    line = [sys.executable, "-m", "spatialpdvi", *(part.format(ready) for part in COMMANDS[command])]
    out = tmp_path / line[-1]
    started = time.monotonic()
    subprocess.run(line, check=True, capture_output=True, cwd=tmp_path)
    lasted = time.monotonic() - started
    new, old = _contents(out), b"what was there before"
    moments = random.Random(f"{command} {sent}")
    ends = set()
    for _ in range(8):
        out.write_bytes(old)
        with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
            time.sleep(lasted * moments.uniform(0.05, 1.0))
            process.send_signal(sent)
            stderr = process.communicate(timeout=60)[1]
        ends.add(process.returncode)
        assert out.read_bytes() == old or _contents(out) == new
        assert "Traceback" not in stderr, stderr
        if sent == signal.SIGTERM:
            assert list(tmp_path.iterdir()) == [out]
            # before the program has begun, or after its end, nobody is there to say anything
            assert process.returncode in {0, 143, -signal.SIGTERM}
            assert (process.returncode == 143) == ("Stopped by SIGTERM. " in stderr)
    assert ends - {0}
    subprocess.run(line, check=True, capture_output=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == [out]
    assert _contents(out) == new
