"""Every bad or odd input gives a right answer or one clear sentence: no traceback, no hang, no file touched."""

import hashlib
import json
import os
import selectors
import subprocess
import sys
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pytest
from anndata.io import read_elem

from corpus.cases import FIT, Case, every_case, section
from spatialpdvi.metrics.clustering import adjusted_rand_index

pytestmark = [pytest.mark.slow, pytest.mark.longest]
PATIENCE = 60.0  # seconds: every case takes less than two
OUTPUTS = {"out.h5ad", "out.zarr", "out.html", "out.png", "out.PNG", "out.svg", "out.pdf", "out.csv", "out"}


class Worker:
    """A process that runs command lines; a new one where it hung or crashed."""

    def __init__(self):
        self.process = None
        self.counts = {"right": 0, "not converged": 0, "refused": 0}

    def run(self, folder: Path, arguments: tuple[str, ...]) -> dict:
        if self.process is None:
            self._start()
        self.process.stdin.write(json.dumps({"folder": str(folder), "arguments": list(arguments)}) + "\n")
        self.process.stdin.flush()
        return json.loads(self._line("a reply"))

    def _start(self):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert self._line("a start") == "ready\n"

    def _line(self, what: str) -> str:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(PATIENCE):
                self.stop()
                pytest.fail(f"no {what} within {PATIENCE:.0f} s: a hang")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.process = None
            pytest.fail(f"the process ended with {code}: a crash")
        return line

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None


@pytest.fixture(scope="module")
def worker():
    running = Worker()
    yield running
    running.stop()
    print(", ".join(f"{name}: {count}" for name, count in running.counts.items()))  # with pytest -s


@pytest.fixture(scope="module")
def plain(worker, tmp_path_factory):
    """Domains of the plain section."""
    folder = tmp_path_factory.mktemp("plain")
    section().write_h5ad(folder / "in.h5ad")
    assert worker.run(folder, FIT)["code"] == 0
    return ad.read_h5ad(folder / "out.h5ad").obs["pdvi_domain"].to_numpy()


def _fingerprint(folder: Path) -> dict[str, str]:
    """What is in a folder, but for what a command is to write."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.split("/", maxsplit=1)[0] in OUTPUTS:
            continue
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[name] = "no regular file"
    return found


@pytest.mark.filterwarnings("ignore")  # what anndata says of what it is made to write
@pytest.mark.parametrize("case", every_case(), ids=lambda case: case.name.encode("unicode_escape").decode())
def test_a_right_answer_or_one_sentence(case: Case, worker, plain, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    case.make(folder)
    codes, same = (case.codes, case.same) if case.decide is None else case.decide(folder)
    before, around = _fingerprint(folder), set(tmp_path.iterdir())
    done = worker.run(folder, case.arguments)
    said = done["output"]
    assert done["crash"] is None, done["crash"]
    assert "Traceback" not in said, said
    assert done["code"] in codes, said
    assert _fingerprint(folder) == before
    assert set(tmp_path.iterdir()) == around
    assert not (folder / "trapped").exists()
    if done["code"] == 2:
        assert not OUTPUTS & {path.name for path in folder.iterdir()}, "something was written"
        errors = [line for line in said.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1, said
        assert case.error in errors[0]
        assert len(said) < 20_000
    elif case.check is not None:
        case.check(folder)
    elif case.arguments[0] == "fit":
        _check_result(folder / "out.h5ad", plain if same else None)
    worker.counts[{0: "right", 3: "not converged", 2: "refused"}[done["code"]]] += 1


def _check_result(path: Path, expected: np.ndarray | None) -> None:
    """By h5py: a file that anndata could not read before the fit it cannot read after it either."""
    with h5py.File(path) as file:
        (key,) = [name for name in file["obsm"] if name.endswith("_posterior")]
        posterior = file["obsm"][key][()]
        domains = read_elem(file["obs"][key.replace("_posterior", "_domain")])
    assert np.isfinite(posterior).all()
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-5)
    if expected is not None:
        assert adjusted_rand_index(np.asarray(domains).astype(int), expected.astype(int)) == 1.0
