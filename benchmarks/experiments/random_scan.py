"""Compare random-scan and cyclic coordinate ascent on Gaussian targets with the bound of Lavenant and Zanella (2024).

The target is N(0, Q^-1) with K blocks of coordinates, and q factorises over blocks. The optimal covariances
Q_kk^-1 do not depend on the means, so after one update of each block

    F(m) - F* = 1/2 m^T Q m,    and updating block k is    m_k <- -Q_kk^-1 sum_{l != k} Q_kl m_l

Let lambda* be the smallest eigenvalue of D^-1/2 Q D^-1/2, with D the block diagonal of Q. Theorem 2.2 states

    E[F(n) - F*] <= (1 - lambda*/K)^n (F(0) - F*)     for n updates of a block drawn uniformly.

The rate in the long run is also known here without sampling. An update is the Q-orthogonal projection P_k, so
E[F(n) - F*] = 1/2 trace E[N(n)] with N <- 1/K sum_k P_k N P_k, a symmetric operator on matrices whose largest
eigenvalue is the rate. A cyclic sweep is one product of all P_k; its rate is the square of its spectral radius.
"""

import time
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from common import print_table, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.sparse.linalg import LinearOperator, eigsh

BOUND, RANDOM, CYCLIC = "0.35", "#0b6e99", "#d9711a"


class Target(NamedTuple):
    """A Gaussian target with blocks of equal size."""

    title: str
    precision: np.ndarray  # Q (d, d)
    n_blocks: int  # K


@click.command()
@click.option("--blocks", default=20, show_default=True, help="Number of factors, K.")
@click.option("--size", default=2, show_default=True, help="Coordinates in a block.")
@click.option("--condition", default=1000.0, show_default=True, help="Condition number of the dense random Q.")
@click.option("--correlation", default=0.9, show_default=True, help="Off-diagonal of the second Q; its diagonal is 1.")
@click.option("--seeds", default=400, show_default=True, help="Number of runs of random scan.")
@click.option("--sweeps", default=150, show_default=True, help="Number of sweeps, each of K updates.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(
    *, blocks: int, size: int, condition: float, correlation: float, seeds: int, sweeps: int, output: Path
) -> None:
    """Print measured and proven contractions of F - F*; write random_scan.json and random_scan.png."""
    began = time.perf_counter()
    d = blocks * size
    equal = (1.0 - correlation) * np.eye(d) + correlation * np.ones((d, d))
    targets = {
        "dense": Target(f"dense Q, condition {condition:g}", _dense(d, condition), blocks),
        "equal": Target(f"all off-diagonals of Q {correlation:g}", equal, blocks),
    }
    record: dict[str, Any] = {"blocks": blocks, "size": size, "seeds": seeds, "sweeps": sweeps, "targets": {}}
    for name, target in targets.items():
        record["targets"][name] = {"title": target.title, **_measure(target, seeds=seeds, sweeps=sweeps)}
    _print(record)
    save(output, "random_scan", record, _draw(record))
    print(f"{time.perf_counter() - began:.0f} s")


def _dense(d: int, condition: float) -> np.ndarray:
    """A matrix with log-spaced eigenvalues in a random basis."""
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    return np.einsum("ae,e,be->ab", basis, np.geomspace(1.0 / condition, 1.0, d), basis)


def _measure(target: Target, *, seeds: int, sweeps: int) -> dict[str, Any]:
    q, k = target.precision, target.n_blocks
    d = q.shape[0]
    diagonal = np.zeros_like(q)
    for rows in _rows(target):
        diagonal[rows, rows] = q[rows, rows]
    # D^-1/2 Q D^-1/2 has the eigenvalues of L^-1 Q L^-T, where L is the Cholesky factor of D
    factor = np.linalg.cholesky(diagonal)
    values, vectors = np.linalg.eigh(np.linalg.solve(factor, np.linalg.solve(factor, q).T))
    worst = np.linalg.solve(factor.T, vectors[:, 0])
    anywhere = np.random.default_rng(1).normal(size=d)
    lambda_star = float(values[0])
    projections = _projections(target)
    return {
        "lambda_star": lambda_star,
        "bound": 1.0 - lambda_star / k,
        "exact_random": _exact_rate(projections, q),
        "exact_cyclic": _cyclic_rate(projections),
        "runs": {
            "worst start": _runs(target, projections, worst, seeds=seeds, sweeps=sweeps),
            "random start": _runs(target, projections, anywhere, seeds=seeds, sweeps=sweeps),
        },
    }


def _rows(target: Target) -> list[slice]:
    size = target.precision.shape[0] // target.n_blocks
    return [slice(k * size, (k + 1) * size) for k in range(target.n_blocks)]


def _projections(target: Target) -> np.ndarray:
    """Matrices (K, d, d) of the updates of the blocks, ``m <- P_k m``."""
    q = target.precision
    out = np.tile(np.eye(q.shape[0]), (target.n_blocks, 1, 1))
    for k, rows in enumerate(_rows(target)):
        out[k, rows] -= np.linalg.solve(q[rows, rows], q[rows])
    return out


def _exact_rate(projections: np.ndarray, q: np.ndarray) -> float:
    """Factor by which one random update reduces E[F - F*] in the long run."""
    values, vectors = np.linalg.eigh(q)
    root, inverse = (vectors * values**0.5) @ vectors.T, (vectors * values**-0.5) @ vectors.T
    symmetric = root @ projections @ inverse
    d = q.shape[0]

    def average(flat: np.ndarray) -> np.ndarray:
        return (symmetric @ flat.reshape(d, d) @ symmetric).mean(axis=0).ravel()

    operator = LinearOperator((d * d, d * d), matvec=average, dtype=np.float64)
    # the leading eigenvector is positive semidefinite (Perron and Frobenius), so it is not orthogonal to the identity
    return float(eigsh(operator, k=1, which="LA", v0=np.eye(d).ravel(), tol=1e-10, return_eigenvectors=False)[0])


def _cyclic_rate(projections: np.ndarray) -> float:
    """The same factor per update of a cyclic sweep, as the geometric mean over its K updates."""
    sweep = np.eye(projections.shape[1])
    for p in projections:
        sweep = p @ sweep
    return float(np.abs(np.linalg.eigvals(sweep)).max() ** (2.0 / projections.shape[0]))


def _runs(
    target: Target, projections: np.ndarray, start: np.ndarray, *, seeds: int, sweeps: int
) -> dict[str, np.ndarray]:
    """F - F* relative to the start after every K updates: mean and standard error of random scans, and cyclic scan."""
    k, q = target.n_blocks, target.precision
    rng = np.random.default_rng(2)
    m = np.tile(start, (seeds, 1))
    cyclic = start.copy()
    rows = [(1.0, 0.0, 1.0)]
    scale = start @ q @ start
    for _ in range(sweeps):
        for block in range(k):
            m = np.einsum("sab,sb->sa", projections[rng.integers(k, size=seeds)], m)
            cyclic = projections[block] @ cyclic
        gaps = np.einsum("sa,ab,sb->s", m, q, m, optimize=True) / scale
        rows.append((gaps.mean(), gaps.std(ddof=1) / np.sqrt(seeds), cyclic @ q @ cyclic / scale))
    mean, error, cycle = np.array(rows).T
    one = np.einsum("kab,b->ka", projections, start)
    first = np.einsum("ka,ab,kb->k", one, q, one).mean() / scale
    return {"random": mean, "random_se": error, "cyclic": cycle, "first_update_expected": first}


def _slope(gaps: np.ndarray, n_blocks: int) -> float:
    """Contraction of one update, from a line through the logarithm of the second half."""
    late = np.arange(gaps.size // 2, gaps.size)
    return float(np.exp(np.polyfit(late, np.log(gaps[late]), 1)[0] / n_blocks))


def _print(record: dict[str, Any]) -> None:
    k = record["blocks"]
    rows = []
    for target in record["targets"].values():
        for start, run in target["runs"].items():
            n = k * np.arange(1, run["random"].size)
            over = run["random"][1:] - 3.0 * run["random_se"][1:] > target["bound"] ** n
            rows.append(
                [
                    target["title"],
                    start,
                    f"{target['lambda_star']:.2e}",
                    f"{target['bound']:.6f}",
                    f"{run['first_update_expected']:.6f}",
                    f"{target['exact_random']:.6f}",
                    f"{_slope(run['random'], k):.6f}",
                    f"{target['exact_cyclic']:.6f}",
                    f"{_slope(run['cyclic'], k):.6f}",
                    f"{over.sum()} of {n.size}",
                ]
            )
    print("\nFactor of F - F* per update; `over` counts sweeps whose mean minus 3 s.e. exceeds the bound\n")
    header = ["target", "start", "lambda*", "bound", "first update", "random, exact", "random, measured"]
    print_table([*header, "cyclic, exact", "cyclic, measured", "over"], rows)


def _draw(record: dict[str, Any]) -> Figure:
    figure = Figure(figsize=(9.0, 6.2), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True, sharey="row")
    for row, target in zip(axes, record["targets"].values(), strict=True):
        for ax, (start, run) in zip(row, target["runs"].items(), strict=True):
            _panel(ax, run, bound=target["bound"], n_blocks=record["blocks"])
            ax.set_title(f"{target['title']}; {start}", fontsize=10)
        row[0].set_ylabel(r"$(F-F^*)\,/\,$start", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel(f"updates / {record['blocks']} (sweeps)", fontsize=9)
    axes[0, 0].legend(fontsize=8, frameon=False)
    figure.suptitle(f"Coordinate ascent, {record['blocks']} factors, {record['seeds']} random scans", fontsize=11)
    return figure


def _panel(ax: Axes, run: dict[str, np.ndarray], *, bound: float, n_blocks: int) -> None:
    sweeps = np.arange(run["random"].size)
    low = np.maximum(run["random"] - 2.0 * run["random_se"], 1e-300)
    ax.plot(sweeps, bound ** (n_blocks * sweeps), color=BOUND, linewidth=1.4, linestyle=(0, (5, 2)), label="bound")
    ax.fill_between(sweeps, low, run["random"] + 2.0 * run["random_se"], color=RANDOM, alpha=0.25, linewidth=0)
    ax.plot(sweeps, run["random"], color=RANDOM, linewidth=1.6, label="random scan, mean and 2 s.e.")
    ax.plot(sweeps, run["cyclic"], color=CYCLIC, linewidth=1.6, linestyle=(0, (4, 1, 1, 1)), label="cyclic scan")
    ax.set_yscale("log")
    ax.grid(color="0.92", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


if __name__ == "__main__":
    main()
