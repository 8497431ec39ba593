"""Proven rates of P2D-VI and PD-VI, and runs under the conditions of the proofs.

The paper's own rate (Theorem 4.6 (i), with the constants of its Theorem B.17 and Lemma B.19) is for PD-VI, a batch of m
of n patches and terms f_i that are mu-strongly convex and L-smooth in their local variables and lambda together. With

    eta <= min{ 1 / (200 L), 1 / (2 mu), m / (8 mu (n - m)) },    r = 1 + mu eta,    V = |gamma - lambda*|^2 + c_1 G

where gamma is the mean of the batch's copies of lambda, and G the mean squared distance of the terms' gradients from
those at the optimum, Lemma B.19 gives r E V+ <= V for every draw. `measure_theorem` checks it.

A rate that is less cautious is derived here. Let g_b = min_phi f_b, let each step draw one patch uniformly, and let
line 2 of Algorithm 1 be solved exactly. A visit leaves dual_b = -grad g_b(lambda_b), h is eta times the mean of the
duals, and lambda_0 - h after the visit is lambda_b. With s_c = -dual_c, w = lambda_0 - h therefore moves as

    z = w + eta (s_b - mean_c s_c);    w <- the p with p + eta grad g_b(p) = z;    s_b <- grad g_b(p)

which is Point-SAGA (Defazio 2016) in the metric 1/eta. In that metric, let w, p and z now denote the differences from
their values at the optimum lambda*, let a_c and q be s_c and grad g_b(p) minus their values at lambda*, and let all g_c
have curvatures in [mu, L]. Then <p, q> >= mu L / (mu + L) |p|^2 + 1 / (mu + L) |q|^2, and with z = p + q

    |z|^2 >= alpha |p|^2 + beta |q|^2,    alpha = 1 + 2 mu L / (mu + L),    beta = 1 + 2 / (mu + L)

and E|z|^2 <= |w|^2 + A with A = mean_c |a_c|^2, since a_b minus its mean has mean 0. With V = |w|^2 + B beta / alpha A,

    E V+ = E|p|^2 + beta / alpha E|q|^2 + (B - 1) beta / alpha A <= (|w|^2 + A) / alpha + (B - 1) beta / alpha A
        <= rho V,    rho = max(1 / alpha, 1 - (1 - 1 / beta) / B),    for any constant eta.

The shipped solvers differ from this: they visit every patch once per epoch and solve line 2 by a few alternations. Runs
under the conditions of the proof are compared with rho, and runs of the shipped solvers are shown beside them.
"""

from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from common import run_epochs

from spatialpdvi.engines import LocalEngine
from spatialpdvi.problems.base import Evaluation
from spatialpdvi.problems.quadratic import Quadratic, QuadraticGlobals, QuadraticStatistics
from spatialpdvi.solvers import SolverSettings
from spatialpdvi.solvers.base import State
from spatialpdvi.solvers.pdvi import P2DVI, PDVI

__all__ = ["PROVEN", "PROVEN_EPOCHS", "PROVEN_RUNS", "measure_contraction", "measure_theorem"]

PROVEN_RUNS, PROVEN_EPOCHS = 10, 25  # later epochs are dominated by rounding


class Bound(NamedTuple):
    """The proven contraction of V by one draw, and the quantities that it follows from."""

    mu: float
    L: float
    weight: float  # factor of A in V, B beta / alpha
    rho: float


class Drawing(P2DVI):
    """P2D-VI under the conditions of the proof: patches are drawn with replacement and steps are constant."""

    grows_cautious = False

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """One epoch: as many draws as there are patches."""
        return [np.array([b]) for b in rng.integers(n_patches, size=n_patches)]


class DrawingPDVI(Drawing, PDVI):
    """The same with the scalar step of PD-VI."""


PROVEN = {"p2dvi": Drawing, "pdvi": DrawingPDVI}


class Eliminated:
    """The quadratic as a function of lambda alone; a `Problem` in which one round solves line 2 exactly.

    Its local variables are an empty array.
    """

    def __init__(self, problem: Quadratic) -> None:
        self._whole = problem
        self.n_patches, self.n_samples = problem.n_patches, problem.n_samples
        self.augmented_globals, self.gradient = problem.augmented_globals, problem.gradient
        self.parts = _parts(problem)

    def halo(self, phi: np.ndarray, patch: int) -> None:
        """There are no locals."""

    def update_locals(self, phi: np.ndarray, patch: int, halo: None, lam: QuadraticGlobals) -> None:
        """There are no locals."""

    def statistics(self, phi: np.ndarray, patch: int, lam: QuadraticGlobals) -> QuadraticStatistics:
        """Hessian and linear term of g_b."""
        return self.parts[patch]

    def evaluate(self, phi: np.ndarray, lam: QuadraticGlobals, *, each: object = map) -> Evaluation:
        """Evaluate with the locals at their optimum, so that curvature and steps are those of the whole problem."""
        return self._whole.evaluate(self._whole.best_locals(lam), lam)


def _parts(problem: Quadratic) -> list[QuadraticStatistics]:
    """Hessian and linear term of every g_b, from its gradient, which is affine in lambda."""

    def gradients(at: np.ndarray) -> np.ndarray:
        lam = QuadraticGlobals(at)
        phi = problem.best_locals(lam)
        patches = range(problem.n_patches)
        return np.array([problem.gradient(problem.statistics(phi, b, lam), b, lam).lam for b in patches])

    at_zero = gradients(np.zeros(problem.n_global))
    columns = [gradients(unit) - at_zero for unit in np.eye(problem.n_global)]
    return [QuadraticStatistics(*part) for part in zip(np.stack(columns, axis=2), -at_zero, strict=True)]


def _bound(parts: list[QuadraticStatistics], inv_step: np.ndarray) -> Bound:
    root = 1.0 / np.sqrt(inv_step)
    curvatures = np.linalg.eigvalsh(np.array([root[:, None] * part.curvature * root for part in parts]))
    mu, top = float(curvatures.min()), float(curvatures.max())
    alpha, beta = 1.0 + 2.0 * mu * top / (mu + top), 1.0 + 2.0 / (mu + top)
    rho = max(1.0 / alpha, 1.0 - (1.0 - 1.0 / beta) / len(parts))
    return Bound(mu, top, len(parts) * beta / alpha, rho)


def measure_contraction(problem: Quadratic, name: str) -> dict[str, Any]:
    """The proven rate of V, and the rate of runs under the conditions of the proof.

    The expectation over the next draw is exact: all patches are tried from the state after each epoch. Along runs the
    geometric mean is compared with the bound (Jensen), since rare runs that miss a patch dominate the arithmetic mean.
    """
    eliminated, (_, optimum) = Eliminated(problem), problem.optimum()
    width = 1.0 / np.sqrt(np.diag(problem.profile_hessian()))
    solver = PROVEN[name](SolverSettings(inner_rounds=1))
    runs, one_draw = [], []
    for seed in range(PROVEN_RUNS):
        away = width * np.random.default_rng([seed, 1]).normal(size=width.size)
        states = run_epochs(eliminated, solver, (np.empty(0), QuadraticGlobals(optimum.lam + away)), seed=seed)
        first, *later = (state for state, _ in islice(states, PROVEN_EPOCHS + 1))
        distance = _Lyapunov(eliminated.parts, optimum, _constant([state.shared.inv_step.lam for state in later]))
        values = [distance(state) for state in (first, *later)]
        runs.append(np.divide(values, values[0]))
        for state, now in zip(later, values[1:], strict=True):
            after = [distance(_drawn(eliminated, solver, state, b)) for b in range(problem.n_patches)]
            one_draw.append(np.mean(after) / now)
    typical = np.exp(np.mean(np.log(runs), axis=0))
    epochs = np.arange(typical.size)
    return {
        **distance.bound._asdict(),
        "one_draw": max(one_draw),
        "decades_per_epoch": -problem.n_patches * np.log10(distance.bound.rho),
        "measured_decades_per_epoch": -np.polyfit(epochs, np.log10(typical), 1)[0],
        "epochs_over": int(np.sum(typical[1:] > distance.bound.rho ** (problem.n_patches * epochs[1:]))),
        "typical": typical,
    }


def measure_theorem(problem: Quadratic) -> dict[str, Any]:
    """The rate of Theorem 4.6 (i), and the same V along a run of PD-VI with the largest step that it allows."""
    eliminated, (_, optimum), n = Eliminated(problem), problem.optimum(), problem.n_patches
    curvatures = [np.linalg.eigvalsh(problem.term_hessian(b))[[0, -1]] for b in range(n)]
    mu, top = float(min(low for low, _ in curvatures)), float(max(high for _, high in curvatures))
    eta, share = min(1.0 / (200.0 * top), 1.0 / (2.0 * mu), 1.0 / (8.0 * mu * (n - 1))), 1.0 / n
    r, squares = 1.0 + mu * eta, (top * eta) ** 2
    room = (1.0 - 4.0 * squares) * (share - mu * eta * (1.0 - share)) - 16.0 * squares * share * r
    weight = 8.0 * eta**2 * (1.0 + eta * top) / room  # c_1
    at_optimum = np.array([part.curvature @ optimum.lam - part.pull for part in eliminated.parts])

    def distance(state: State) -> float:
        gamma = state.shared.lam.lam - state.shared.h.lam
        gradients = -np.array([dual.lam for dual in state.own])  # those in the local variables are 0 after every visit
        return float(
            np.sum((gamma - optimum.lam) ** 2) + weight * np.mean(np.sum((gradients - at_optimum) ** 2, axis=1))
        )

    width = 1.0 / np.sqrt(np.diag(problem.profile_hessian()))
    away = width * np.random.default_rng([0, 1]).normal(size=width.size)
    start = (np.empty(0), QuadraticGlobals(optimum.lam + away))
    steepest = float(eliminated.evaluate(*start).visit_curvature.lam.max())
    solver = DrawingPDVI(SolverSettings(inner_rounds=1, step_size=eta * steepest))
    states = [state for state, _ in islice(run_epochs(eliminated, solver, start, seed=0), PROVEN_EPOCHS + 1)]
    values = [distance(state) for state in states]
    one_draw = [
        np.mean([distance(_drawn(eliminated, solver, state, b)) for b in range(n)]) / now
        for state, now in zip(states[1:], values[1:], strict=True)
    ]
    return {
        "mu": mu,
        "L": top,
        "eta": eta,
        "r": r,
        "one_draw": max(one_draw),
        "decades_per_epoch": n * np.log10(r),
        "measured_decades_per_epoch": -np.polyfit(np.arange(len(values)), np.log10(values), 1)[0],
    }


def _drawn(problem: Eliminated, solver: P2DVI, state: State, patch: int) -> State:
    """The state after one more draw, of this patch."""
    engine = LocalEngine(problem)
    shared = engine.begin(solver, state)
    return engine.state(solver.merge(problem, shared, engine.visit(shared, np.array([patch]))))


def _constant(inv_steps: list[np.ndarray]) -> np.ndarray:
    """The same 1/eta in all epochs."""
    first, *others = inv_steps
    if any(not np.array_equal(other, first) for other in others):
        msg = "Expected constant steps, which the proof is about, found that they change. Switch off what adapts them."
        raise RuntimeError(msg)
    return first


class _Lyapunov:
    """V as defined in the docstring of the module."""

    def __init__(self, parts: list[QuadraticStatistics], optimum: QuadraticGlobals, inv_step: np.ndarray) -> None:
        self.bound = _bound(parts, inv_step)
        self._inv_step, self._lam = inv_step, optimum.lam
        self._gradients = np.array([part.curvature @ optimum.lam - part.pull for part in parts])

    def __call__(self, state: State) -> float:
        stored = -np.array([dual.lam for dual in state.own])
        w = state.shared.lam.lam + stored.mean(axis=0) / self._inv_step - self._lam
        spread = np.mean(np.sum((stored - self._gradients) ** 2 / self._inv_step, axis=1))
        return float(np.sum(w**2 * self._inv_step) + self.bound.weight * spread)
