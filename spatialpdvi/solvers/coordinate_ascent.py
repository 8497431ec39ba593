"""CAVI, random-scan CAVI and memoised coordinate ascent: exact coordinate minimisers, no step size.

Cyclic CAVI (the reference; Bishop 2006, ch. 10; Blei, Kucukelbir and McAuliffe 2017):

    1  each patch b in turn:  phi_b <- one Gauss-Seidel sweep, lambda held
    2  lambda <- argmin F given the statistics of all patches

Memoised (Hughes and Sudderth 2013): the statistics of every patch are kept, so line 2 follows each patch at once.

Random scan (Lavenant and Zanella 2024): one of the B + 1 factors phi_1, ..., phi_B, lambda is drawn uniformly and
replaced by its minimiser; an epoch is B + 1 draws. For log-concave targets F - F* contracts by 1 - lambda*/(B + 1) a
draw in expectation. A factor is a patch's posteriors (one Gauss-Seidel sweep of them), not a single spot.

Guarantee: every line is an exact coordinate minimisation, so F never rises; the limit is a stationary point.
A patch sees its neighbours' posteriors as they are at its turn: updating all patches from old neighbours at once
could raise F.
"""

from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem, Statistics
from spatialpdvi.solvers.base import Globals, SolverSettings

__all__ = ["CAVI", "Memoized", "RandomScanCAVI", "Shared"]


class Shared(NamedTuple):
    """What all patches see."""

    lam: Blocks
    statistics: tuple[Statistics, ...]  # of every patch, in patch order


class CAVI:
    """Cyclic scan: all posteriors, then the globals."""

    options: tuple[str, ...] = ()
    has_step = False
    sequential = True

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """The patch's statistics at the start; nothing is kept of it."""
        return None, problem.statistics(phi, patch)

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Any:
        """The start, and the statistics of every patch."""
        return Shared(lam, tuple(messages))

    def begin_epoch(self, problem: Problem, shared: Any, evaluation: Evaluation, kept: Any) -> Any:
        """Nothing follows the curvature."""
        return shared

    def outgoing(self, shared: Any) -> Globals:
        """The globals."""
        return Globals(shared.lam)

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """All patches in one step, in order."""
        return [np.arange(n_patches)]

    def local(
        self, problem: Problem, shared: Globals, own: None, phi: Any, patch: int, halo: Any
    ) -> tuple[None, tuple[int, Statistics]]:
        """Line 1."""
        problem.update_locals(phi, patch, halo, shared.lam)
        return None, (patch, problem.statistics(phi, patch))

    def merge(self, problem: Problem, shared: Shared, messages: list[Any]) -> Shared:
        """Line 2. Statistics are summed afresh, in patch order: no drift, whatever the order of visits."""
        kept = list(shared.statistics)
        for patch, statistics in messages:
            kept[patch] = statistics
        total = type(kept[0])(*(sum(parts) for parts in zip(*kept, strict=True)))
        return Shared(problem.global_optimum(total), tuple(kept))


class Memoized(CAVI):
    """Globals follow every patch, through the kept statistics of all the others."""

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """One patch a step, in a new order each epoch."""
        return [np.array([b]) for b in rng.permutation(n_patches)]


class RandomScanCAVI(CAVI):
    """One uniformly drawn factor at a time; an empty batch is the draw of lambda."""

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """B + 1 draws with replacement."""
        draws = rng.integers(n_patches + 1, size=n_patches + 1)
        return [np.array([b]) if b < n_patches else np.array([], dtype=np.int64) for b in draws]

    def merge(self, problem: Problem, shared: Shared, messages: list[Any]) -> Shared:
        """Keep a patch's statistics; lambda moves in its own draw alone."""
        if not messages:
            return super().merge(problem, shared, messages)
        kept = list(shared.statistics)
        for patch, statistics in messages:
            kept[patch] = statistics
        return shared._replace(statistics=tuple(kept))
