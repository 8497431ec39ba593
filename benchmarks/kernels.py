"""Compare the compiled loops with a copy of as many bytes and a product of as many operations.

The data are a lattice of spots with mutual nearest neighbours, cut into the default number of patches. Every loop
passes over all patches. Each patch counts with the smallest of several wall times, since other programs can only add
to it. Bytes are those of the arrays that a pass has to read or write, each once; rows of neighbours come from the
cache and are not counted. Operations are additions, multiplications and divisions. An exponential counts as the 34
operations of its series.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click
import numba
import numpy as np
from threadpoolctl import threadpool_limits

from spatialpdvi.engines import LocalEngine
from spatialpdvi.graph.flow import border_directions
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.patches import make_patches
from spatialpdvi.graph.weights import weigh_edges
from spatialpdvi.initialization.start import start_from_labels
from spatialpdvi.kernels import mixture
from spatialpdvi.kernels.dispatch import brief_spin
from spatialpdvi.options.stages import default_n_patches
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsMixture, one_hot
from spatialpdvi.solvers import SolverSettings, make_solver

EXPONENTIAL = 34


class Case(NamedTuple):
    """One loop, with the bytes and operations of a pass over all patches."""

    name: str
    run: Callable[[int], object]  # takes the number of a patch
    bytes: float
    operations: float


@numba.njit(parallel=True)
def copy(source, target):
    """Copy loop of the STREAM benchmark."""
    for i in numba.prange(source.size):
        target[i] = source[i]


@click.command()
@click.option("--side", default=388, show_default=True, help="Spots along each side of the lattice.")
@click.option("--k", default=22, show_default=True)
@click.option("--d", default=15, show_default=True)
@click.option("--threads", default="1,2", show_default=True)
@click.option("--repeats", default=15, show_default=True)
def main(side: int, k: int, d: int, threads: str, repeats: int) -> None:
    """Print the milliseconds of each loop, those of its limits and the ratio, for every number of threads."""
    coordinates, labels, problem, start = _section(side, k, d)
    phi = one_hot(labels, k)
    cases = _cases(problem, phi, start.lam)
    n = len(phi)
    print(f"{n:,} spots, {d} float32 features, K {k}, {problem.n_patches} patches, fastest of {repeats} repeats\n")
    print("| loop | threads | MB | Mflop | ms | copy, ms | product, ms | time / limit |")
    print("|---|---|---|---|---|---|---|---|")
    for count in map(int, threads.split(",")):
        with brief_spin():
            numba.set_num_threads(count)
        with threadpool_limits(count):
            bandwidth, speed = _limits(phi.size, problem.n_patches, repeats)
            for case in cases:
                seconds = _least(case.run, problem.n_patches, repeats)
                moving, computing = case.bytes / bandwidth, case.operations / speed
                print(
                    f"| {case.name} | {count} | {case.bytes / 1e6:.0f} | {case.operations / 1e6:.0f} | "
                    f"{1e3 * seconds:.1f} | {1e3 * moving:.1f} | {1e3 * computing:.1f} | "
                    f"{seconds / max(moving, computing):.1f} |"
                )
            print(f"| copy {bandwidth / 1e9:.1f} GB/s, product {speed / 1e9:.0f} Gflop/s | {count} | | | | | | |")
    print("\n| stage | threads | wall, s | CPU, s |\n|---|---|---|---|")
    for count in map(int, threads.split(",")):
        numba.set_num_threads(count)
        for name, run in (
            ("border normals", lambda: border_directions(coordinates, labels, 100)),
            ("mutual neighbours", lambda: mutual_knn(coordinates, 10)),
        ):
            wall, cpu = np.min([_wall_and_cpu(run) for _ in range(3)], axis=0)
            print(f"| {name} | {count} | {wall:.2f} | {cpu:.2f} |")
        for batch in (1, 2):
            _, own, cut, begin = _section(side, k, d, batch=batch)
            fits = [_steps(cut, one_hot(own, k), begin.lam, threads=count, batch=batch) for _ in range(repeats)]
            what = f"ten epochs of a fit, {cut.n_patches} patches, {batch} at a time, fastest of each step"
            print(f"| {what} | {count} | {np.min(fits, axis=0).sum():.2f} | |")


def _section(side: int, k: int, d: int, *, batch: int = 1):
    """A section of square domains with noise, with rows in patch order."""
    rng = np.random.default_rng(0)
    axis = np.arange(float(side))
    coordinates = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    width = int(np.ceil(np.sqrt(k)))
    cell = (coordinates // (side / width)).astype(np.int64)
    labels = (cell[:, 0] * width + cell[:, 1]) % k
    x = (rng.normal(size=(k, d))[labels] + rng.normal(size=(labels.size, d))).astype(np.float32)
    pattern = mutual_knn(coordinates, 10)
    normals = border_directions(coordinates, labels, 100)
    graph = weigh_edges(pattern, coordinates, normals, features=x, tau=1.0, beta=1.0)
    patching = make_patches(coordinates, graph, default_n_patches(labels.size, batch))
    start = start_from_labels(x, labels, k)
    problem = PottsMixture(wrap_features(x[patching.order]), patching.patches, start.hyperparameters)
    return coordinates[patching.order], labels[patching.order], problem, start


def _cases(problem: PottsMixture, phi: np.ndarray, lam) -> list[Case]:
    n, k = phi.shape
    d = problem.features.shape[1]
    edges = sum(p.indices.size for p in problem.patches.values())
    graph = 12 * edges + 8 * n
    softmax = (EXPONENTIAL + 4) * n * k
    halos = [problem.halo(phi, b) for b in range(problem.n_patches)]
    terms = [problem._data_term(b, lam) for b in range(problem.n_patches)]
    scratch, ends = np.empty_like(phi), np.empty((2, n))

    def sweep(b: int) -> None:
        p = problem.patches[b]
        own = phi[p.start : p.stop]
        mixture.sweep_cells(terms[b], p.indptr, p.indices, p.weights, halos[b], *p.cells, own)

    def evaluate(b: int) -> None:
        p = problem.patches[b]
        rows = slice(p.start, p.stop)
        arguments = (p.indptr, p.indices, p.weights, halos[b], phi[rows], scratch[rows], *ends[:, rows])
        mixture.evaluate_spots(terms[b], *arguments)

    product = 2 * n * k * d
    return [
        Case("data term", lambda b: problem._data_term(b, lam), 4 * n * d + 8 * n * k, product),
        Case("sweep", sweep, 24 * n * k + graph, 2 * edges * k + softmax),
        Case("statistics", lambda b: problem.statistics(phi, b, lam), 4 * n * d + 8 * n * k, product),
        Case("evaluation", evaluate, 32 * n * k + graph, 2 * edges * k + softmax + 8 * n * k),
    ]


def _limits(size: int, parts: int, repeats: int) -> tuple[float, float]:
    """Bytes per second of a copy of ``size`` float64 in parts, and operations per second of a matrix product."""
    sources, targets = np.array_split(np.ones(size), parts), np.array_split(np.zeros(size), parts)
    square = np.ones((500, 500))
    moving = _least(lambda b: copy(sources[b], targets[b]), parts, repeats)
    return 16 * size / moving, 2 * 500**3 / _least(lambda _: square @ square, 1, 10 * repeats)


def _least(run: Callable[[int], object], parts: int, repeats: int) -> float:
    """Sum over parts of the fastest repeat, in seconds; the first round is left out, since it may compile."""
    times = [[_wall_and_cpu(lambda b=b: run(b))[0] for b in range(parts)] for _ in range(repeats + 1)]
    return float(np.min(times[1:], axis=0).sum())


def _wall_and_cpu(run: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def _steps(problem: PottsMixture, phi: np.ndarray, lam, *, threads: int, batch: int) -> np.ndarray:
    """Seconds of every step and evaluation of ten epochs, which are the same in every call."""
    engine, rng, seconds = LocalEngine(problem, threads=threads), np.random.default_rng(0), []
    solver = make_solver("p2dvi", SolverSettings(batch_patches=batch))
    shared = engine.begin(solver, (phi, lam))

    def timed(run: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        found = run()
        seconds.append(time.perf_counter() - began)
        return found

    for _ in range(10):
        evaluation = timed(lambda: engine.evaluate(shared.lam))  # noqa: B023 - called at once
        shared = solver.begin_epoch(problem, shared, evaluation, engine.patch_states)
        for patches in solver.batches(problem.n_patches, rng):
            shared = timed(lambda: solver.merge(problem, shared, engine.visit(shared, patches)))  # noqa: B023
    return np.array(seconds)


if __name__ == "__main__":
    main()
