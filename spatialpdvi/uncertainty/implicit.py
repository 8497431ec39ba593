"""Compositional implicit variational inference (CI-VI) of any log density, by Algorithms 1 and 2 of its paper.

The posterior is approximated by a distribution of `spatialpdvi.uncertainty.semi_implicit`,

    q(z) = E_e N(z; m(e), L L^T),    e ~ N(0, s^2 I),    m a network,    parameters theta = (network, L).

With z_j = m(e_j) + L u_j for a pool of n pairs (u_j, e_j), and other draws e' of the same noise, the divergence from a
target p is a composition of two expectations,

    KL(q || p) = E_j log E_e' g_j + constant,    g_j = N(z_j; m(e'), L L^T) / p(z_j).

Its gradient E_j [E_e' grad g_j / y_j] needs y_j = E_e' g_j, and an estimate of that from the same draws is biased. An
iteration of CI-VI therefore draws K1 pairs and K2 noises for the gradient, makes an Adam step from theta_t to
theta_t+1, and lets y follow, with K3 fresh noises at a point that is extrapolated along the step,

    y <- (1 - beta) y + beta g(theta_t + (theta_t+1 - theta_t) / beta).

Everything is in logarithms. The pool is divided into chunks, of which one is in use: y has values for its pairs only,
and starts anew with the next chunk. Only columns of grad g that were drawn have a weight, and of these the sketch of
Algorithm 2 may take some.

Where paper and code differ: the covariance is parametrised by the logarithms of the diagonal of L; the second moment
of Adam decays with 1 - C_alpha t^(-2/5) (1 - gamma1)^2, as Theorem 1 has it (its proof has the square of C_alpha);
sizes K grow as in Theorem 1 or, as in the paper's experiments, do not; the last theta is returned and not a random one.
And g / y is limited. Its two estimates are from different noises, so that for a pair whose noise is far from all of
those behind y it can be 1e8. One such pair fills the second moments of Adam, and no further step is made for long.

This module knows a density by its values and gradients, and nothing of sections.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from spatialpdvi.errors import InputError
from spatialpdvi.runtime.rows import slices
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.uncertainty.semi_implicit import Family, LogDensity, Network, Ratios, log_mixture

__all__ = [
    "Adam",
    "ImplicitOptions",
    "ImplicitPosterior",
    "Schedule",
    "Trace",
    "composition_gradient",
    "follow",
    "implicit_steps",
    "schedule",
]

_BLOCK = 1 << 20  # densities of a point under a component that are in memory at once
_XI = 1e-8  # of Adam
_MOST = 300.0  # nats of g / y, of which Adam still has a square


@dataclass(frozen=True, kw_only=True)
class ImplicitOptions:
    """The family and the schedules of CI-VI.

    Attributes
    ----------
    hidden
        Units of each hidden layer.
    noise_dimensions, noise_scale
        Of e, the noise that is mixed over.
    covariance
        Whether L is diagonal or a lower triangle.
    iterations
        Number of Adam steps.
    pool, chunk, switch_every
        Pairs in the pool, pairs of it in use at a time, and the number of iterations until the next are.
    pairs, noises, tracked
        C in K = C t^growth for K1, K2 and K3: pairs and noises of a gradient, noises of an update of y.
    growth
        0.8 in Theorem 1; 0 leaves the sizes as they are.
    sketch
        At most so many of the pairs that were drawn are used in a gradient; by default all.
    limit
        Most that g / y may be in a gradient; infinite in the paper.
    step, step_covariance
        C_alpha of the network and of L.
    smoothing
        C_beta, the share of y that is new in each iteration; below 1.
    momentum, momentum_decay
        C_gamma and mu: the first moment of Adam decays with C_gamma mu^t.
    """

    hidden: tuple[int, ...] = (50, 50)
    noise_dimensions: int = 3
    noise_scale: float = 1.0
    covariance: Literal["diagonal", "full"] = "diagonal"
    iterations: int = 1000
    pool: int = 20_000
    chunk: int = 200
    switch_every: int = 10
    pairs: int = 100
    noises: int = 1000
    tracked: int = 1000
    growth: float = 0.0
    sketch: int | None = None
    limit: float = 10.0
    step: float = 1e-3
    step_covariance: float = 1e-3
    smoothing: float = 0.99
    momentum: float = 0.9
    momentum_decay: float = 0.999

    def __post_init__(self) -> None:
        checks = {
            "hidden": (all(n >= 1 for n in self.hidden), "numbers of at least 1"),
            "covariance": (self.covariance in {"diagonal", "full"}, "'diagonal' or 'full'"),
            "growth": (0 <= self.growth <= 1, "between 0 and 1"),
            "sketch": (self.sketch is None or self.sketch >= 1, "at least 1, or None"),
            "limit": (self.limit >= 1, "at least 1"),
            "smoothing": (0 < self.smoothing < 1, "above 0 and below 1"),
            "momentum": (0 <= self.momentum <= 1, "between 0 and 1"),
            "momentum_decay": (0 < self.momentum_decay < 1, "above 0 and below 1"),
            **{
                name: (0 < getattr(self, name) < math.inf, "above 0 and finite")
                for name in ("noise_scale", "step", "step_covariance")
            },
            "chunk": (1 <= self.chunk <= self.pool, "at least 1 and at most `pool`"),
        }
        for name in (field.name for field in fields(self) if field.type in {"int", int} and field.name not in checks):
            checks[name] = (getattr(self, name) >= 1, "at least 1")
        for name, (is_right, expected) in checks.items():
            if not is_right:
                raise InputError(expected, repr(getattr(self, name)), option=name)


class Schedule(NamedTuple):
    """The settings of one iteration; a pair of numbers is for the network and for L."""

    step: tuple[float, float]  # alpha
    smoothing: float  # beta
    first: float  # gamma1, decay of the first moment
    second: tuple[float, float]  # gamma2, decay of the second moment
    pairs: int  # K1
    noises: int  # K2
    tracked: int  # K3


def schedule(options: ImplicitOptions, t: int) -> Schedule:
    """Return the settings of iteration t = 1, 2, ... by Theorem 1."""
    constants = (options.step, options.step_covariance)
    first = options.momentum * options.momentum_decay**t
    step, covariance = (c * t**-0.2 for c in constants)
    second, of_covariance = (1.0 - min(1.0, c * t**-0.4 * (1.0 - first) ** 2) for c in constants)
    sizes = (math.ceil(c * t**options.growth) for c in (options.pairs, options.noises, options.tracked))
    return Schedule((step, covariance), options.smoothing, first, (second, of_covariance), *sizes)


class Trace(NamedTuple):
    """What each iteration of a fit was like, one value each."""

    objective: np.ndarray  # mean of log g over the pairs of the gradient: KL(q || p) - log integral of p, nats
    weight: np.ndarray  # mean of g / y over these pairs, 1 where y follows E g
    seconds: np.ndarray  # since the start of the first iteration


def composition_gradient(
    family: Family,
    theta: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    noises: np.ndarray,
    log_density: LogDensity,
    *,
    log_y: np.ndarray,
    weights: np.ndarray,
    limit: float = math.inf,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``sum_j weights_j grad g_j / y_j``, the gradient of E_j log E g_j where y_j is the inner expectation.

    Parameters
    ----------
    family, theta, pairs, noises, log_density
        As of `Ratios`.
    log_y
        Logarithms of y (n,).
    weights
        Share (n,) of each pair in the outer expectation; they sum to 1, with a sketch on average.
    limit
        Most that g / y may be.

    Returns
    -------
    The gradient (p,), and for each pair log g and g / y, (n,).
    """
    gradient, n = np.zeros(family.size), len(log_y)
    log_ratio, relative = np.empty(n), np.empty(n)
    for rows in slices(n, max(1, _BLOCK // len(noises))):
        ratios = Ratios(family, theta, (pairs[0][rows], pairs[1][rows]), noises, log_density)
        log_ratio[rows] = ratios.log_ratio
        relative[rows] = np.exp(np.minimum(log_ratio[rows] - log_y[rows], min(math.log(limit), _MOST)))
        on = weights[rows] * relative[rows]
        gradient += ratios.pull_back(on, on)
    return gradient, log_ratio, relative


def _log_ratio(
    family: Family,
    theta: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    noises: np.ndarray,
    log_density: LogDensity,
) -> np.ndarray:
    """Logarithms of g (n,) alone, in blocks."""
    return np.concatenate(
        [
            Ratios(family, theta, (pairs[0][rows], pairs[1][rows]), noises, log_density).log_ratio
            for rows in slices(len(pairs[0]), max(1, _BLOCK // len(noises)))
        ]
    )


def follow(log_y: np.ndarray, log_g: np.ndarray, smoothing: float) -> np.ndarray:
    """Return the logarithms (n,) of (1 - beta) y + beta g, the auxiliary update, from those of y and g."""
    return np.logaddexp(math.log1p(-smoothing) + log_y, math.log(smoothing) + log_g)


class Adam:
    """The primary update of Algorithm 1, with steps of their own for the network and for L."""

    def __init__(self, network: Network) -> None:
        self._first, self._second = np.zeros(network.size), np.zeros(network.size)
        self._block = (np.arange(network.size) >= network.network_size).astype(np.int64)  # L is behind the network

    def step(self, gradient: np.ndarray, now: Schedule) -> np.ndarray:
        """Return the change (p,) of theta for a gradient (p,)."""
        decay = np.take(now.second, self._block)
        self._first = now.first * self._first + (1.0 - now.first) * gradient
        self._second = decay * self._second + (1.0 - decay) * gradient**2
        return -np.take(now.step, self._block) * self._first / (np.sqrt(self._second) + _XI)


class ImplicitPosterior(NamedTuple):
    """A semi-implicit distribution, in the units of the target."""

    family: Family
    theta: np.ndarray  # (p,)
    mean: np.ndarray  # (d,) of the start; points are mean + scale w, with w from the family
    scale: np.ndarray  # (d, d) lower triangle
    trace: Trace

    def sample(self, n: int, seed: int | Sequence[int]) -> np.ndarray:
        """Draw n points (n, d), with another seed than that of the fit: its draws would be those of the fit's steps."""
        rng = np.random.default_rng(seed)
        with single_threaded():
            means, _ = self.family.forward(self.theta, self.family.noise(n, rng))
            inner = means + rng.normal(size=means.shape) @ self.family.lower(self.theta).T
            return self.mean + inner @ self.scale.T

    def log_density(self, points: np.ndarray, n_mixture: int, seed: int) -> np.ndarray:
        """Return the log density (n,) at points (n, d), the mixture estimated from ``n_mixture`` draws of its noise.

        The estimate is too low on average, by about the variance of the density's estimate over twice its square.
        """
        points = np.asarray(points, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.family.dimensions:
            raise InputError(f"points of shape (n, {self.family.dimensions})", f"shape {points.shape}")
        with single_threaded():
            lower = self.family.lower(self.theta)
            noises = self.family.noise(n_mixture, np.random.default_rng(seed))
            means, _ = self.family.forward(self.theta, noises)
            b = solve_triangular(lower, means.T, lower=True).T
            a = solve_triangular(self.scale @ lower, (points - self.mean).T, lower=True).T
            found = np.empty(len(points))
            for rows in slices(len(points), max(1, _BLOCK // n_mixture)):
                found[rows], _ = log_mixture(a[rows], b, lower)
        return found - np.log(np.diag(self.scale)).sum()


def implicit_steps(
    log_density: LogDensity,
    dimensions: int,
    *,
    options: ImplicitOptions,
    seed: int,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> Iterator[ImplicitPosterior]:
    """Approximate a posterior by CI-VI: yield the distribution after every iteration, each with the trace until then.

    Parameters
    ----------
    log_density
        Points (n, d) to the logarithm (n,) of the target up to a constant, and its gradients (n, d).
    dimensions
        d.
    options
        The family and the schedules.
    seed
        The same seed gives the same bits in one thread (`spatialpdvi.runtime.threads.single_threaded`), if the log
        density does.
    start
        A guess of the mean (d,), and of the standard deviations (d,) or of the covariance's lower Cholesky factor
        (d, d). Steps are measured in these units, so that a poor guess costs iterations. By default 0 and 1.

    Raises
    ------
    InputError
        The log density has another shape than its points, or is not finite; or the start does not fit.
    """
    mean, scale = _checked_start(start, dimensions)
    target = _in_units(log_density, mean, scale)
    family = Family(
        dimensions,
        hidden=options.hidden,
        noise_dimensions=options.noise_dimensions,
        noise_scale=options.noise_scale,
        is_full=options.covariance == "full",
    )
    rng = np.random.default_rng([seed, 0])
    theta = family.start(rng)
    adam = Adam(family)
    trace = Trace(*np.empty((3, options.iterations)))
    began = time.perf_counter()
    for t in range(1, options.iterations + 1):
        now = schedule(options, t)
        if (t - 1) % options.switch_every == 0:
            pairs = _chunk(family, options, (t - 1) // options.switch_every, seed)
            log_y = _log_ratio(family, theta, pairs, family.noise(now.tracked, rng), target)
        drawn, counts = np.unique(rng.integers(len(log_y), size=now.pairs), return_counts=True)
        weights = counts / now.pairs
        if options.sketch is not None and options.sketch < len(drawn):
            taken = np.sort(rng.choice(len(drawn), options.sketch, replace=False))
            drawn, weights = drawn[taken], weights[taken] * len(drawn) / options.sketch
        gradient, log_ratio, relative = composition_gradient(
            family,
            theta,
            (pairs[0][drawn], pairs[1][drawn]),
            family.noise(now.noises, rng),
            target,
            log_y=log_y[drawn],
            weights=weights,
            limit=options.limit,
        )
        move = adam.step(gradient, now)
        new = _log_ratio(family, theta + move / now.smoothing, pairs, family.noise(now.tracked, rng), target)
        log_y = follow(log_y, new, now.smoothing)
        theta = theta + move
        weights = weights / weights.sum()
        seconds = time.perf_counter() - began
        for values, value in zip(trace, (weights @ log_ratio, weights @ relative, seconds), strict=True):
            values[t - 1] = value
        yield ImplicitPosterior(family, theta, mean, scale, Trace(*(values[:t] for values in trace)))


def _chunk(family: Family, options: ImplicitOptions, number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs u (n, d) and e (n, noise dimensions) of a chunk; the pool is not in memory, but its chunks come again."""
    number %= -(-options.pool // options.chunk)
    n = min(options.chunk, options.pool - number * options.chunk)
    rng = np.random.default_rng([seed, 1, number])
    return rng.normal(size=(n, family.dimensions)), family.noise(n, rng)


def _checked_start(start: tuple[np.ndarray, np.ndarray] | None, dimensions: int) -> tuple[np.ndarray, np.ndarray]:
    mean, scale = (np.zeros(dimensions), np.ones(dimensions)) if start is None else start
    mean, scale = np.asarray(mean, dtype=np.float64), np.asarray(scale, dtype=np.float64)
    if mean.shape != (dimensions,) or scale.shape not in {(dimensions,), (dimensions, dimensions)}:
        raise InputError(
            f"a start of shapes ({dimensions},) and ({dimensions},) or ({dimensions}, {dimensions})",
            f"{mean.shape} and {scale.shape}",
        )
    scale = np.diag(scale) if scale.ndim == 1 else scale
    is_scale = np.isfinite(scale).all() and (np.diag(scale) > 0).all() and not np.triu(scale, 1).any()
    if not (np.isfinite(mean).all() and is_scale):
        raise InputError(
            "a start with finite means and positive standard deviations, or a lower Cholesky factor",
            f"mean {mean}, scale {scale}",
        )
    return mean, scale


def _in_units(log_density: LogDensity, mean: np.ndarray, scale: np.ndarray) -> LogDensity:
    """The target in the units of the start, checked."""
    log_volume = np.log(np.diag(scale)).sum()

    def target(inner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = log_density(mean + inner @ scale.T)
        if np.shape(values) != inner.shape[:1] or np.shape(gradients) != inner.shape:
            raise InputError(
                f"a log density that returns shapes ({len(inner)},) and {inner.shape} for {len(inner)} points",
                f"{np.shape(values)} and {np.shape(gradients)}",
            )
        if not (np.isfinite(values).all() and np.isfinite(gradients).all()):
            raise InputError(
                "a log density and gradients that are finite everywhere",
                f"{int((~np.isfinite(values)).sum())} values and {int((~np.isfinite(gradients)).sum())} derivatives "
                f"that are not, of {len(inner)} points",
                "Give a start nearer to the posterior, or change to coordinates in which the density has no edge.",
            )
        return values + log_volume, gradients @ scale

    return target
