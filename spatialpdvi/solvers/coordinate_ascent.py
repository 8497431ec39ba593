"""CAVI, random-scan CAVI and memoised coordinate ascent: exact coordinate minimisation without a step size.

Cyclic CAVI (the reference; Bishop 2006, ch. 10; Blei, Kucukelbir and McAuliffe 2017):

    1  each patch b in turn:  phi_b <- one Gauss-Seidel sweep with lambda fixed
    2  lambda <- argmin F given the statistics of all patches

Memoised (Hughes and Sudderth 2013): the statistics of every patch are stored, so line 2 can follow each patch at once.

Random scan (Lavenant and Zanella 2024): one of the B + 1 factors phi_1, ..., phi_B, lambda is drawn uniformly and
replaced by its minimiser; an epoch is B + 1 draws. For log-concave targets, each draw contracts F - F* in expectation
by 1 - lambda*/(B + 1). Here a factor is the posteriors of a patch (one Gauss-Seidel sweep), not those of a single spot.

Guarantee: every line is an exact coordinate minimisation, so F never rises, and the limit is a stationary point.
A patch sees the posteriors of its neighbours as they are at its turn, because updating all patches at once from old
posteriors could raise F.
"""

from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.problems.base import Blocks, Problem, Statistics, total
from spatialpdvi.solvers.base import Globals, Solver, SolverSettings

__all__ = ["CAVI", "Memoized", "RandomScanCAVI", "Shared"]


class Shared(NamedTuple):
    """The state that all patches share."""

    lam: Blocks
    statistics: tuple[Statistics, ...]  # of every patch, in patch order


class CAVI(Solver):
    """Cyclic scan: first all posteriors, then the globals."""

    options: tuple[str, ...] = ()
    has_step = False
    needs_evaluation = False
    sequential = True
    fallback: Solver | None = None

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """Send the statistics of the patch; it has no state."""
        return None, problem.statistics(phi, patch, lam)

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Any:
        """Store the globals and the statistics of every patch."""
        return Shared(lam, tuple(messages))

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """All patches in one step, in order."""
        return [np.arange(n_patches)]

    def local(
        self, problem: Problem, shared: Globals, own: None, phi: Any, patch: int, halo: Any
    ) -> tuple[None, tuple[int, Statistics]]:
        """Line 1."""
        problem.update_locals(phi, patch, halo, shared.lam)
        return None, (patch, problem.statistics(phi, patch, shared.lam))

    def merge(self, problem: Problem, shared: Shared, messages: list[Any]) -> Shared:
        """Line 2. Statistics are summed anew in patch order: errors do not accumulate, whatever the order of visits."""
        current = _replaced(shared.statistics, messages)
        return Shared(problem.global_optimum(total(current)), current)


class Memoized(CAVI):
    """The globals are updated after every patch, with the stored statistics of all other patches."""

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """One patch per step, in a new order in each epoch."""
        return [np.array([b]) for b in rng.permutation(n_patches)]


class RandomScanCAVI(CAVI):
    """One uniformly drawn factor per step; an empty batch means that lambda was drawn."""

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """B + 1 draws with replacement."""
        draws = rng.integers(n_patches + 1, size=n_patches + 1)
        return [np.array([b]) if b < n_patches else np.array([], dtype=np.int64) for b in draws]

    def merge(self, problem: Problem, shared: Shared, messages: list[Any]) -> Shared:
        """Store the statistics of a patch; lambda changes only when it is drawn."""
        if not messages:
            return super().merge(problem, shared, messages)
        return shared._replace(statistics=_replaced(shared.statistics, messages))


def _replaced(statistics: tuple[Statistics, ...], messages: list[tuple[int, Statistics]]) -> tuple[Statistics, ...]:
    """The statistics of every patch, with those of visited patches replaced."""
    new = dict(messages)
    return tuple(new.get(patch, old) for patch, old in enumerate(statistics))
