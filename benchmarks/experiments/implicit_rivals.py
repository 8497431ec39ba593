"""Rivals of CI-VI on the same family: SIVI, UIVI and nested Monte Carlo, and what they are compared with.

All share the network, the noises, the pairs and the Adam of CI-VI. They differ in the gradient of the entropy alone:

- SIVI (Yin and Zhou 2018) puts the noise of a pair itself among the K that estimate the density: an upper bound of KL.
- UIVI (Titsias and Ruiz 2019) draws noises from q(e | z) by Hamiltonian Monte Carlo: unbiased, but for the chains.
- Nested Monte Carlo divides by the mean over the same noises: a lower bound of KL.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from spatialpdvi.uncertainty.implicit import (
    Adam,
    ImplicitOptions,
    ImplicitPosterior,
    Schedule,
    Trace,
    implicit_steps,
    schedule,
)
from spatialpdvi.uncertainty.semi_implicit import Family, LogDensity, Ratios

__all__ = ["METHODS", "hmc", "mean_field", "steps"]

METHODS = ("CI-VI", "CI-VI, as published", "SIVI", "UIVI", "nested, Adam", "nested, SGD")
BURN_IN, KEPT, LEAPS, ACCEPTED = 5, 5, 5, 0.9  # of the chains of UIVI, for each pair and iteration, as in its paper
Reverse: TypeAlias = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def steps(
    method: str,
    log_density: LogDensity,
    dimensions: int,
    *,
    options: ImplicitOptions,
    seed: int,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    sgd_step: float = 0.03,
) -> Iterator[ImplicitPosterior]:
    """Yield the distribution after every iteration of one of the methods, in the units of the start."""
    if method.startswith("CI-VI"):
        yield from implicit_steps(log_density, dimensions, options=options, seed=seed, start=start)
        return
    mean, scale = start or (np.zeros(dimensions), np.ones(dimensions))
    scale = np.diag(scale) if scale.ndim == 1 else scale
    family = Family(
        dimensions,
        hidden=options.hidden,
        noise_dimensions=options.noise_dimensions,
        noise_scale=options.noise_scale,
        is_full=options.covariance == "full",
    )

    def target(inner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = log_density(mean + inner @ scale.T)
        return values + np.log(np.diag(scale)).sum(), gradients @ scale

    rng = np.random.default_rng([seed, 0])
    theta, adam, hmc_step = family.start(rng), Adam(family), 0.5
    trace = Trace(*np.full((3, options.iterations), np.nan))
    began = time.perf_counter()
    for t in range(1, options.iterations + 1):
        now = schedule(options, t)
        pairs = rng.normal(size=(now.pairs, dimensions)), family.noise(now.pairs, rng)
        if method == "UIVI":
            gradient, objective, hmc_step = _unbiased(family, theta, pairs, target, step=hmc_step, rng=rng)
        else:
            gradient, objective = _nested(family, theta, pairs, now, target, rng=rng, has_own=method == "SIVI")
        theta = theta + (-sgd_step * t**-0.2 * gradient if method == "nested, SGD" else adam.step(gradient, now))
        trace.objective[t - 1], trace.seconds[t - 1] = objective, time.perf_counter() - began
        yield ImplicitPosterior(family, theta, mean, scale, Trace(*(values[:t] for values in trace)))


def _nested(
    family: Family,
    theta: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    now: Schedule,
    target: LogDensity,
    *,
    rng: np.random.Generator,
    has_own: bool,
) -> tuple[np.ndarray, float]:
    """Gradient and value of the mean of log(mean of g), with the noise of each pair among the others or without it."""
    ratios = Ratios(family, theta, pairs, family.noise(now.noises, rng), target)
    n, equal, log_mixture = now.pairs, np.full(now.pairs, 1.0 / now.pairs), ratios.log_mixture
    if not has_own:
        return ratios.pull_back(equal, equal), float(ratios.log_ratio.mean())
    diagonal = np.log(np.diag(ratios.lower)).sum()
    log_own = -0.5 * (pairs[0] ** 2).sum(axis=1) - diagonal - 0.5 * family.dimensions * math.log(2.0 * math.pi)
    log_others = log_mixture + math.log(now.noises)
    total = np.logaddexp(log_own, log_others)
    share = np.exp(log_own - total)
    gradient = ratios.pull_back(equal * (1.0 - share), equal)
    # at its own noise the density depends on theta by the determinant alone
    gradient[family.network_size : family.network_size + family.dimensions] -= share.sum() / n
    return gradient, float((total - math.log(now.noises + 1) - ratios.log_target).mean())


def _unbiased(
    family: Family,
    theta: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    target: LogDensity,
    *,
    step: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, float, float]:
    """Gradient of UIVI: the score of q(z) is the mean of the scores of q(z | e) over chains that start at e itself."""
    lower, noise = family.lower(theta), pairs[1]
    means, inputs = family.forward(theta, noise)
    points = means + pairs[0] @ lower.T
    values, score = target(points)

    def reverse(e: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Log q(e | z) up to a constant, its gradient, and L^-T L^-1 (z - m(e))."""
        found, received = family.forward(theta, e)
        a = solve_triangular(lower, (points - found).T, lower=True).T
        pull = gradient = solve_triangular(lower, a.T, lower=True, trans="T").T
        for layer, ((weights, _), below) in enumerate(zip(family.layers(theta)[::-1], received[::-1], strict=True)):
            gradient = gradient @ weights.T
            if layer < len(received) - 1:
                gradient = gradient * (below > 0)
        e2 = (e**2).sum(axis=1) / family.noise_scale**2
        return -0.5 * ((a**2).sum(axis=1) + e2), gradient - e / family.noise_scale**2, pull

    pull, step = chain_of_pulls(reverse, noise, step, rng)
    to_points = -(pull + score) / len(points)
    network, _ = family.backward(theta, inputs, to_points)
    full = np.concatenate([network, family.lower_gradient(lower, to_points.T @ pairs[0])])
    return full, float(-values.mean()), step


def chain_of_pulls(
    reverse: Reverse, noise: np.ndarray, step: float, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """The mean of the last values of the third result of ``reverse`` along chains of noises, and the next step.

    Hamiltonian chains of q(e | z), one from the own noise of each pair, as in the paper of UIVI.

    Parameters
    ----------
    reverse
        Of noises (n, .): log q(e | z) up to a constant (n,), its gradient, and what is averaged.
    noise
        Where the chains begin.
    step
        Of the leaps; it follows the rate of acceptance.
    rng
        Random generator.
    """
    log_p, gradient, pull = reverse(noise)
    held, rates = np.zeros_like(pull), []
    for draw in range(BURN_IN + KEPT):
        momentum = rng.standard_normal(noise.shape, dtype=noise.dtype)
        e, g, energy = noise, gradient, log_p - 0.5 * (momentum**2).sum(axis=1)
        for _ in range(LEAPS):
            momentum = momentum + 0.5 * step * g
            e = e + step * momentum
            new_log_p, g, new_pull = reverse(e)
            momentum = momentum + 0.5 * step * g
        accepted = np.log(rng.random(len(e))) < new_log_p - 0.5 * (momentum**2).sum(axis=1) - energy
        noise, gradient = (np.where(accepted[:, None], new, old) for new, old in ((e, noise), (g, gradient)))
        log_p, pull = np.where(accepted, new_log_p, log_p), np.where(accepted[:, None], new_pull, pull)
        rates.append(accepted.mean())
        if draw >= BURN_IN:
            held += pull / KEPT
    return held, step * (1.02 if np.mean(rates) > ACCEPTED else 0.96)


def mean_field(features: np.ndarray, labels: np.ndarray, prior_sd: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean (d,) and standard deviations (d,) of the best Gaussian with a diagonal covariance for a logistic regression.

    E log(1 + exp(eta)) is an integral in one dimension, by Gauss and Hermite.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    d = features.shape[1]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        m, s = flat[:d], np.exp(flat[d:])
        sd = np.sqrt(features**2 @ s**2)
        eta = (features @ m)[:, None] + sd[:, None] * nodes
        p = 0.5 * (1.0 + np.tanh(0.5 * eta))
        value = (np.logaddexp(0.0, eta) @ weights).sum() - labels @ (features @ m)
        value += 0.5 * ((m**2 + s**2) / prior_sd**2).sum() - flat[d:].sum()
        by_m = features.T @ (p @ weights - labels) + m / prior_sd**2
        by_variance = 0.5 * features.T**2 @ ((p * (1 - p)) @ weights) + 0.5 / prior_sd**2
        return value, np.concatenate([by_m, 2.0 * by_variance * s**2 - 1.0])

    found = minimize(objective, np.zeros(2 * d), jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-13})
    return found.x[:d], np.exp(found.x[d:])


def hmc(
    log_density: LogDensity,
    mean: np.ndarray,
    factor: np.ndarray,
    *,
    chains: int,
    draws: int,
    seed: int,
) -> tuple[np.ndarray, float]:
    """Draws (chains, draws, d) by Hamiltonian Monte Carlo, after as many that are dropped, and the largest split R-hat.

    Chains start at twice the spread of a Gaussian with this mean and Cholesky factor, in whose units they move. Each
    takes a random share of the step at every draw: a step that suits the centre of a skewed posterior rejects all moves
    in its tail, and a chain that starts there would never leave it.
    """
    rng = np.random.default_rng(seed)

    def target(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = log_density(mean + w @ factor.T)
        return values, gradients @ factor

    w, step = 2.0 * rng.normal(size=(chains, len(mean))), 0.3
    log_p, gradient = target(w)
    found = np.empty((chains, draws, len(mean)))
    rate = np.full(chains, ACCEPTED)  # of acceptance in the last draws, by chain
    for draw in range(2 * draws):
        momentum = rng.normal(size=w.shape)
        energy = log_p - 0.5 * (momentum**2).sum(axis=1)
        e, g, length = w, gradient, step * rng.uniform(0.1, 1.0, size=(chains, 1))
        for _ in range(rng.integers(5, 20)):
            momentum = momentum + 0.5 * length * g
            e = e + length * momentum
            new_log_p, g = target(e)
            momentum = momentum + 0.5 * length * g
        accepted = np.log(rng.random(chains)) < new_log_p - 0.5 * (momentum**2).sum(axis=1) - energy
        w, gradient = (np.where(accepted[:, None], new, old) for new, old in ((e, w), (g, gradient)))
        log_p = np.where(accepted, new_log_p, log_p)
        rate = 0.95 * rate + 0.05 * accepted
        if draw < draws:
            step *= 1.02 if rate.min() > 0.7 else 0.98
        else:
            found[:, draw - draws] = w
    half = draws // 2
    halves = found[:, : 2 * half].reshape(2 * chains, half, len(mean))
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = halves.mean(axis=1).var(axis=0, ddof=1)
    rhat = np.sqrt((within * (1 - 1 / half) + between) / within).max()
    return mean + found @ factor.T, float(rhat)
