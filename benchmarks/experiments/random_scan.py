"""Compare random-scan and cyclic coordinate ascent with the bounds of Lavenant and Zanella (2024).

The target is N(0, Q^-1) with K blocks of coordinates, and q factorises over blocks. The optimal covariances
Q_kk^-1 do not depend on the means, so after one update of each block

    F(m) - F* = 1/2 m^T Q m,    and updating block k is    m_k <- -Q_kk^-1 sum_{l != k} Q_kl m_l

Let lambda* be the smallest eigenvalue of D^-1/2 Q D^-1/2, with D the block diagonal of Q. Theorem 2.2 states

    E[F(n) - F*] <= (1 - lambda*/K)^n (F(0) - F*)     for n updates of a block drawn uniformly          (2.1)
    E[F(n) - F*] <= 2 K R^2 / (n + 2K)                where only convexity is used                      (2.2)
    (lambda*/2) W^2(n) <= F(n) - F*                                                                     (2.3)

with the Wasserstein distance W^2 = m^T D m of means alone, and R the largest of sqrt(F(0) - F*) and W(n). Corollary 2.3
follows by Markov's inequality: F(n) - F* < epsilon with probability 1 - delta from n = K / lambda* log((F(0) - F*) /
(epsilon delta)) on.

The rate in the long run is also known here without sampling. An update is the Q-orthogonal projection P_k, so
E[F(n) - F*] = 1/2 trace E[N(n)] with N <- 1/K sum_k P_k N P_k, a symmetric operator on matrices whose largest
eigenvalue is the rate. A cyclic sweep is one product of all P_k; its rate is the square of its spectral radius.

Two more targets have no such shortcut. The third is the quadratic of `spatialpdvi.problems.quadratic`, on which the
shipped solver `rs-cavi` itself runs: its factors are the local variables of each patch, and lambda. The fourth is
log-concave and not Gaussian,

    U(x) = sum_k [a x_k^2 / 2 + log cosh(b x_k)] + c/2 sum_{k<l} (x_k - x_l)^2

with lambda* = a / (a + b^2 + c (K - 1)). Given the other means, q_k is proportional to exp(-a x^2 / 2 - log cosh(b x)
- c (K - 1) x^2 / 2 + h_k x) with h_k = c sum_{l != k} E x_l, whose normaliser and mean are integrals in one dimension.
"""

import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from common import print_table, run_epochs, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.interpolate import CubicHermiteSpline
from scipy.sparse.linalg import LinearOperator, eigsh

from spatialpdvi.problems.quadratic import QuadraticGlobals, random_quadratic

CLOSE, RARE = 1e-2, 0.1  # epsilon, relative to F(0) - F*, and delta of Corollary 2.3
SHIPPED_RUNS = 40
ROUNDING = 1e-12  # of F - F*, relative to the start
CURVED = {"a": 0.05, "b": 1.0, "c": 0.05}  # of the target that is not Gaussian
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
    record["shipped"] = _shipped(blocks, size, sweeps=sweeps)
    record["log_concave"] = _log_concave(blocks, seeds=seeds, sweeps=sweeps)
    _print(record)
    _print_bounds(record)
    save(output, "random_scan", record, _draw(record))
    print(f"{time.perf_counter() - began:.0f} s")


def _dense(d: int, condition: float) -> np.ndarray:
    """A matrix with log-spaced eigenvalues in a random basis."""
    basis, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    return np.einsum("ae,e,be->ab", basis, np.geomspace(1.0 / condition, 1.0, d), basis)


def _measure(target: Target, *, seeds: int, sweeps: int) -> dict[str, Any]:
    q, k = target.precision, target.n_blocks
    d, diagonal = q.shape[0], _diagonal(target)
    # D^-1/2 Q D^-1/2 has the eigenvalues of L^-1 Q L^-T, where L is the Cholesky factor of D
    factor = np.linalg.cholesky(diagonal)
    values, vectors = np.linalg.eigh(np.linalg.solve(factor, np.linalg.solve(factor, q).T))
    worst = np.linalg.solve(factor.T, vectors[:, 0])
    anywhere = np.random.default_rng(1).normal(size=d)
    lambda_star = float(values[0])
    projections = _projections(target)
    return {
        "lambda_star": lambda_star,
        "surely_from": k / lambda_star * np.log(1.0 / (CLOSE * RARE)),
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
    diagonal = _diagonal(target)
    distances = [start @ diagonal @ start / scale]  # W^2 / (2 (F(0) - F*)), the largest of all runs
    nearest = 1.0 / distances[0]  # the smallest (F - F*) / (W^2 / 2) of all runs, which (2.3) says is at least lambda*
    rare = [1.0]  # the gap that a share RARE of the runs exceeds
    for _ in range(sweeps):
        for block in range(k):
            m = np.einsum("sab,sb->sa", projections[rng.integers(k, size=seeds)], m)
            cyclic = projections[block] @ cyclic
        gaps = np.einsum("sa,ab,sb->s", m, q, m, optimize=True) / scale
        squares = np.einsum("sa,ab,sb->s", m, diagonal, m, optimize=True) / scale
        distances.append(squares.max())
        nearest = min(nearest, float(np.min(gaps[gaps > ROUNDING] / squares[gaps > ROUNDING], initial=nearest)))
        rare.append(float(np.quantile(gaps, 1.0 - RARE)))
        rows.append((gaps.mean(), gaps.std(ddof=1) / np.sqrt(seeds), cyclic @ q @ cyclic / scale))
    mean, error, cycle = np.array(rows).T
    one = np.einsum("kab,b->ka", projections, start)
    first = np.einsum("ka,ab,kb->k", one, q, one).mean() / scale
    radius = max(1.0, 2.0 * max(distances))  # R^2 / (F(0) - F*)
    n = k * np.arange(mean.size)
    close = np.flatnonzero(np.array(rare) < CLOSE)
    return {
        "random": mean,
        "random_se": error,
        "cyclic": cycle,
        "first_update_expected": first,
        "gap_by_distance": nearest,
        "over_convex": int(np.sum(mean > 2.0 * k * radius / (n + 2.0 * k))),
        "close_from": None if close.size == 0 else int(n[close[0]]),
    }


def _diagonal(target: Target) -> np.ndarray:
    """D, the diagonal blocks of Q."""
    diagonal = np.zeros_like(target.precision)
    for rows in _rows(target):
        diagonal[rows, rows] = target.precision[rows, rows]
    return diagonal


def _shipped(blocks: int, size: int, *, sweeps: int) -> dict[str, Any]:
    """F - F* of the shipped solver on a quadratic with as many factors, mean of its runs after every epoch."""
    problem = random_quadratic(
        n_samples=blocks - 1, n_patches=blocks - 1, n_local=size, n_global=size, condition=30.0, spread=1.0
    )
    phi, optimum = problem.optimum()
    lowest = problem.evaluate(phi, optimum).neg_elbo
    rng = np.random.default_rng(3)
    start = (phi + rng.normal(size=phi.shape), QuadraticGlobals(optimum.lam + rng.normal(size=size)))
    gaps = []
    for seed in range(SHIPPED_RUNS):
        states = run_epochs(problem, "rs-cavi", (start[0].copy(), start[1]), seed=seed)
        gaps.append([evaluation.neg_elbo - lowest for _, evaluation in islice(states, sweeps + 1)])
    relative = np.array(gaps) / gaps[0][0]
    mean, error = relative.mean(axis=0), relative.std(axis=0, ddof=1) / np.sqrt(SHIPPED_RUNS)
    lambda_star = _lambda_star(*_assembled(problem, blocks, size))
    return {"lambda_star": lambda_star, "runs": SHIPPED_RUNS, **_against(mean, error, lambda_star, blocks)}


def _assembled(problem: Any, blocks: int, size: int) -> tuple[np.ndarray, Target]:
    """Q of all local variables and lambda, lambda last, and its diagonal blocks."""
    d = blocks * size
    q, last = np.zeros((d, d)), slice(d - size, d)
    for b in range(problem.n_patches):
        term, own = problem.term_hessian(b), slice(b * size, (b + 1) * size)
        q[own, own], q[own, last], q[last, own] = term[:size, :size], term[:size, size:], term[size:, :size]
        q[last, last] += term[size:, size:]
    target = Target("", q, blocks)
    return _diagonal(target), target


def _lambda_star(diagonal: np.ndarray, target: Target) -> float:
    """The smallest eigenvalue of D^-1/2 Q D^-1/2."""
    factor = np.linalg.cholesky(diagonal)
    return float(np.linalg.eigvalsh(np.linalg.solve(factor, np.linalg.solve(factor, target.precision).T))[0])


def _against(mean: np.ndarray, error: np.ndarray, lambda_star: float, k: int) -> dict[str, Any]:
    """Means after every K updates, and how many of them (2.1) does not allow; rounding is left out."""
    n = k * np.arange(mean.size)
    allowed = (1.0 - lambda_star / k) ** n
    seen = mean > ROUNDING
    return {
        "bound": 1.0 - lambda_star / k,
        "measured": _slope(mean[seen], k),
        "random": mean,
        "over": int(np.sum((mean - 3.0 * error > allowed)[seen])),
    }


def _log_concave(k: int, *, seeds: int, sweeps: int) -> dict[str, Any]:
    """F - F* of random scans on the target that is not Gaussian."""
    moments = _moments(k)

    def objective(h: np.ndarray) -> np.ndarray:
        log_z, mean = moments(h)
        pairs = mean.sum(axis=1) ** 2 - np.sum(mean**2, axis=1)
        return np.asarray(np.sum(h * mean - log_z, axis=1) - 0.5 * CURVED["c"] * pairs)

    def update(h: np.ndarray, drawn: np.ndarray) -> None:
        own = np.arange(h.shape[0])
        mean = moments(h)[1]
        h[own, drawn] = CURVED["c"] * (mean.sum(axis=1) - mean[own, drawn])

    lowest = float(objective(np.zeros((1, k)))[0])  # U is even, and its minimiser over products is unique
    h = np.tile(2.0 + np.random.default_rng(4).normal(size=k), (seeds, 1))
    first, rng, rows = float(objective(h[:1])[0]) - lowest, np.random.default_rng(5), [(1.0, 0.0)]
    for _ in range(sweeps):
        for _ in range(k):
            update(h, rng.integers(k, size=seeds))
        gaps = (objective(h) - lowest) / first
        rows.append((gaps.mean(), gaps.std(ddof=1) / np.sqrt(seeds)))
    lambda_star = CURVED["a"] / (CURVED["a"] + CURVED["b"] ** 2 + CURVED["c"] * (k - 1))
    return {**CURVED, "lambda_star": lambda_star, "runs": seeds, **_against(*np.array(rows).T, lambda_star, k)}


def _moments(k: int) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Log normaliser and mean of a factor as functions of h, by quadrature over [-40, 40]."""
    x = np.linspace(-40.0, 40.0, 4001)
    base = -0.5 * (CURVED["a"] + CURVED["c"] * (k - 1)) * x**2 - np.logaddexp(CURVED["b"] * x, -CURVED["b"] * x)
    fields = np.linspace(-30.0, 30.0, 6001)
    exponent = base + fields[:, None] * x
    top = exponent.max(axis=1, keepdims=True)
    weight = np.exp(exponent - top)
    log_z = np.log(weight.sum(axis=1) * (x[1] - x[0])) + top[:, 0]
    curves = CubicHermiteSpline(fields, log_z, weight @ x / weight.sum(axis=1))  # the mean is the derivative of log Z
    slope = curves.derivative()
    return lambda h: (curves(h), slope(h))


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


def _print_bounds(record: dict[str, Any]) -> None:
    rows = []
    for target in record["targets"].values():
        for start, run in target["runs"].items():
            seen = "later" if run["close_from"] is None else run["close_from"]
            distance = [f"{target['lambda_star']:.4f}", f"{run['gap_by_distance']:.4f}"]
            rows.append([target["title"], start, run["over_convex"], *distance, f"{target['surely_from']:.0f}", seen])
    print(f"\nPoints above (2.2), and updates until {1 - RARE:.0%} of the runs are within {CLOSE:g} of the start\n")
    header = ["target", "start", "above (2.2)", "lambda*", "smallest 2 (F - F*) / W^2", "by Corollary 2.3", "seen"]
    print_table(header, rows)
    print("\nFactor of F - F* per update; `over` as above\n")
    rows = [
        [title, f"{s['lambda_star']:.2e}", f"{s['bound']:.6f}", f"{s['measured']:.6f}", s["over"]]
        for title, s in (("rs-cavi as shipped", record["shipped"]), ("log-concave", record["log_concave"]))
    ]
    print_table(["target", "lambda*", "bound", "measured", "over"], rows)


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
