"""Small problems with known parts, and where the real tissue is."""

import gc
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import click.testing
import numpy as np
import pytest
import scipy.sparse as sp

from spatialpdvi.cli import main
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.patches import Patching, make_patches
from spatialpdvi.initialization.start import start_from_labels
from spatialpdvi.options import stages, states
from spatialpdvi.problems.composition import CompositionGlobals, CompositionMixture
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import Hyperparameters, PottsGlobals, PottsMixture, one_hot

# a shell has what it starts in the background ignore Ctrl-C, and so would all that the tests start and interrupt
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# what small sections have by default where a test is not about it: a search or hundreds of restarts take seconds, and
# some thousand fits are of toys with 400 to 1,000 spots
OF_TOYS = {(states, "_SPOTS_EACH"): 50, (states, "_SETS"): 3, (stages, "_MOST_RESTARTS"): 6}
# the same defaults, for code that a process of its own runs, and the command line with them
_SET = "; ".join(f"{where.__name__.rpartition('.')[2]}.{name} = {value}" for (where, name), value in OF_TOYS.items())
SET_DEFAULTS = f"from spatialpdvi.options import stages, states; {_SET}\n"
PROGRAM = f"""
if __name__ == "__main__":
    {SET_DEFAULTS}
    from spatialpdvi.cli import main

    main(prog_name="spatialpdvi")
"""
COMMAND = [sys.executable, "-c", PROGRAM]


@pytest.fixture(scope="session", autouse=True)
def defaults_of_toys():
    """Have small sections as few restarts and searches as large ones, and `states="auto"` want 50 spots of a state."""
    with pytest.MonkeyPatch.context() as patch:
        usual = {(module, name): getattr(module, name) for module, name in OF_TOYS}
        for where, value in OF_TOYS.items():
            patch.setattr(*where, value)
        yield usual


@pytest.fixture
def usual_defaults(defaults_of_toys, monkeypatch):
    """The states and restarts that users get by default, for a test that is about them."""
    for where, value in defaults_of_toys.items():
        monkeypatch.setattr(*where, value)


@pytest.fixture
def several_threads():
    """For a test that compares one thread, in a process of its own, with all of this one."""
    import numba

    if numba.config.NUMBA_NUM_THREADS == 1:
        pytest.skip("there is one thread here")


class Toy(NamedTuple):
    """A small Potts mixture and all that it was made of, rows in patch order."""

    problem: PottsMixture
    phi: np.ndarray
    lam: PottsGlobals
    x: np.ndarray
    r: np.ndarray  # dense
    hyper: Hyperparameters
    truth: np.ndarray
    patching: Patching

    def reference_arguments(self):
        return self.x, self.r, *self.hyper


def make_toy(
    *, side=12, k=3, d=4, n_patches=4, strength=0.4, signal=2.0, seed=0, start="noisy", cross=True, sparse=False
) -> Toy:
    """Vertical stripes on a lattice; ``start`` is "noisy" labels, "random" labels or "soft" random posteriors."""
    rng = np.random.default_rng(seed)
    axis = np.arange(side, dtype=float)
    coordinates = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = np.minimum((coordinates[:, 0] * k / side).astype(int), k - 1)
    x = (signal * rng.normal(size=(k, d)))[truth] + rng.normal(size=(truth.size, d))
    if sparse:
        x[rng.random(x.shape) < 0.5] = 0.0
    pattern = mutual_knn(coordinates, 4)
    weights = sp.triu(pattern).tocsr()
    weights.data = strength * (0.5 + rng.random(weights.nnz))
    graph = (weights + weights.T).tocsr()
    patching = make_patches(coordinates, graph, n_patches, keep_cross_edges=cross)
    x, truth = x[patching.order], truth[patching.order]
    labels = truth.copy()
    changed = rng.random(labels.size) < {"noisy": 0.3, "random": 1.0, "soft": 0.3}[start]
    labels[changed] = rng.integers(k, size=int(changed.sum()))
    begin = start_from_labels(x, labels, k)
    features = sp.csr_matrix(x) if sparse else x
    problem = PottsMixture(wrap_features(features), patching.patches, begin.hyperparameters)
    phi = rng.dirichlet(np.ones(k), size=labels.size) if start == "soft" else one_hot(labels, k)
    dense = patching.graph[patching.order][:, patching.order].toarray()
    return Toy(problem, phi, begin.lam, x, dense, begin.hyperparameters, truth, patching)


class CompositionToy(NamedTuple):
    """A small mixture of compositions and all that it was made of, rows in patch order."""

    problem: CompositionMixture
    phi: np.ndarray
    lam: CompositionGlobals
    x: np.ndarray
    r: np.ndarray  # dense
    hyper: Hyperparameters
    prior_weight: np.ndarray
    truth: np.ndarray

    def reference_arguments(self):
        return self.x, self.r, *self.hyper, self.prior_weight


def make_composition_toy(
    *, side=12, k=3, n_states=5, d=4, n_patches=4, strength=0.4, signal=3.0, seed=0, held=False, start="noisy"
) -> CompositionToy:
    """Stripes that share states in different proportions; ``start`` is "noisy" labels or "soft" random posteriors."""
    rng = np.random.default_rng(seed)
    toy = make_toy(side=side, k=k, d=d, n_patches=n_patches, strength=strength, seed=seed, start=start)
    composition = rng.dirichlet(np.full(n_states, 0.3), size=k)
    state = np.array([rng.choice(n_states, p=composition[domain]) for domain in toy.truth])
    x = (signal * rng.normal(size=(n_states, d)))[state] + rng.normal(size=(state.size, d))
    begin = start_from_labels(x, state, n_states)
    prior_weight = np.full(n_states, 0.5)
    problem = CompositionMixture(
        wrap_features(x),
        toy.patching.patches,
        begin.hyperparameters,
        prior_weight=prior_weight,
        held=begin.lam if held else None,
    )
    theta = np.log(toy.phi.T @ one_hot(state, n_states) + prior_weight)
    lam = CompositionGlobals(*begin.lam, theta)
    return CompositionToy(problem, toy.phi, lam, x, toy.r, begin.hyperparameters, prior_weight, toy.truth)


def interrupt_at(said: str, arguments, *, sent=signal.SIGINT) -> tuple[int, str, str]:
    """Run the command line until a line of its progress holds ``said``, send a signal; exit code, stdout, stderr."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if said in line:
            break
    process.send_signal(sent)
    stdout, stderr = process.communicate(timeout=60)
    return process.returncode, stdout, stderr


def load_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Yield what imports the scripts of a folder by name; they are forgotten afterwards. Skip where it is missing."""
    if not folder.exists():
        pytest.skip("benchmarks are not part of this copy")
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module
    for script in folder.glob("*.py"):
        sys.modules.pop(script.stem, None)


def run(*arguments: object, code: int = 0) -> click.testing.Result:
    """Run a command in this process, which must end with this exit code; one with ``--threads`` is for `run_apart`."""
    done = click.testing.CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return done


def run_apart(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, where the number of threads has not been set yet."""
    command = [*COMMAND, *map(str, arguments)]
    free = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=free)
    assert done.returncode == 0, done.stderr
    return done


def loaded_by(code: str) -> set[str]:
    """Names of the modules that an interpreter of its own has loaded once it has run some code."""
    code += "\nimport sys\nprint()\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


class Cut:
    """A matrix that is handed out some rows at a time."""

    def __init__(self, matrix, step):
        self.matrix, self.step, self.shape = matrix, step, matrix.shape

    def blocks(self):
        for first in range(0, self.shape[0], self.step):
            yield self.matrix[first : first + self.step]


def plain_section(n=12, genes=7, seed=0):
    """Counts and places of spots at random, and nothing else."""
    import anndata as ad

    rng = np.random.default_rng(seed)
    adata = ad.AnnData(sp.csr_matrix(rng.poisson(2.0, size=(n, genes)).astype(np.float32)))
    adata.obsm["spatial"] = rng.random((n, 2))
    return adata


def seeds(few: int, many: int) -> list:
    """Seeds of random damage, for `parametrize`: ``few`` of them in the default tier, the rest among the slow tests."""
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(few, many))]


@pytest.fixture
def toy() -> Toy:
    return make_toy()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real labelled sections; tests that need it are skipped where it is not."""
    folder = Path(os.environ.get("SPATIALPDVI_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("no real sections here; point SPATIALPDVI_DATA at their folder")
    return folder


@pytest.fixture(scope="session")
def toy_section():
    """A simulated section of 600 spots, 150 genes and 4 domains, with ready PCs."""
    from spatialpdvi.synthetic import simulate

    section = simulate(n_spots=600, n_genes=150, k=4, seed=1, easy=True)
    counts = np.log1p(section.X.toarray())
    u, s, _ = np.linalg.svd(counts - counts.mean(axis=0), full_matrices=False)
    section.obsm["X_pca"] = u[:, :8] * s[:8]
    return section


@pytest.fixture
def toy_file(toy_section, tmp_path) -> Path:
    """The section on disk, a fresh copy for every test."""
    path = tmp_path / "section.h5ad"
    toy_section.write_h5ad(path)
    return path


# files of few tests that take a minute or more
LONG = {"test_benchmarks.py", "test_mosta.py", "test_snakemake.py", "test_tutorial.py"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Every test is in one tier: those marked ``cli``, those marked ``slow``, and all others.

    The longest files begin first, so that no worker waits for another in the end.
    """
    twice = [item.nodeid for item in items if item.get_closest_marker("cli") and item.get_closest_marker("slow")]
    if twice:
        msg = f"Expected tests in one tier, found these marked both cli and slow: {', '.join(twice)}."
        raise pytest.UsageError(msg)
    items.sort(key=lambda item: item.path.name not in LONG)


def pytest_collection_finish():
    """Collect garbage less often, and not among what the imports have made: a twentieth of the time of all tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
