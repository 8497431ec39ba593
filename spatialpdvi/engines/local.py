"""All patches in this process; those of a batch are visited side by side by threads where that is worth it."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from spatialpdvi.kernels.dispatch import alone_in_thread
from spatialpdvi.metrics.clustering import contingency
from spatialpdvi.problems.base import Blocks, Evaluation, Problem
from spatialpdvi.runtime.threads import n_threads
from spatialpdvi.solvers.base import Solver, State

__all__ = ["LocalEngine"]

_WORTH = 20_000  # numbers in a patch's locals: with fewer a visit is over before another thread has woken up
_A = TypeVar("_A")
_B = TypeVar("_B")


class LocalEngine:
    """An `Engine` for a problem in memory.

    Parameters
    ----------
    problem
        With all its patches.
    codes
        Known labels (n,) in patch order, -1 where there is none.
    threads
        At the most; all that the process may use by default.
    """

    def __init__(self, problem: Problem, *, codes: np.ndarray | None = None, threads: int | None = None) -> None:
        self.problem = problem
        self._most = n_threads() if threads is None else threads
        self._codes = codes
        self._threads: ThreadPoolExecutor | None = None
        self._solver: Solver
        self._phi: Any
        self._kept: list[Any]

    def begin(self, solver: Solver, start: tuple[Any, Blocks] | State) -> Any:
        """Phi is taken over and overwritten."""
        self._solver = solver
        self._phi = start[0]
        if self._threads is None and self._phi.size >= _WORTH * self.problem.n_patches and self._most > 1:
            self._threads = ThreadPoolExecutor(self._most, "patches", initializer=alone_in_thread)
        if isinstance(start, State):
            self._kept = list(start.own)
            return start.shared
        lam = start[1]
        begun = list(
            self._each(lambda b: solver.init_patch(self.problem, self._phi, b, lam), range(self.problem.n_patches))
        )
        self._kept = [kept for kept, _ in begun]
        return solver.init_shared(self.problem, lam, [message for _, message in begun])

    def visit(self, shared: Any, batch: np.ndarray) -> list[Any]:
        """Threads take patches of a batch of several, and spots of a patch that is alone in its batch."""
        patches, sent = [int(b) for b in batch], self._solver.outgoing(shared)
        if self._solver.sequential or len(patches) == 1:
            return [self._visit(sent, b, self.problem.halo(self._phi, b)) for b in patches]
        halos = [self.problem.halo(self._phi, b) for b in patches]
        return list(self._each(lambda visit: self._visit(sent, *visit), zip(patches, halos, strict=True)))

    def kept(self) -> tuple[Any, ...]:
        """As they are."""
        return tuple(self._kept)

    def evaluate(self, lam: Blocks) -> Evaluation:
        """Patches side by side."""
        return self.problem.evaluate(self._phi, lam, each=self._each)

    def table(self) -> np.ndarray | None:
        """Counted over all spots at once."""
        return None if self._codes is None else contingency(self._codes, self._phi.argmax(axis=1), self._phi.shape[1])

    def state(self, shared: Any) -> State:
        """Phi itself, not a copy."""
        return State(self._phi, shared, self.kept())

    def _visit(self, sent: Any, patch: int, halo: Any) -> Any:
        self._kept[patch], message = self._solver.local(self.problem, sent, self._kept[patch], self._phi, patch, halo)
        return message

    def _each(self, function: Callable[[_A], _B], items: Iterable[_A]) -> Iterable[_B]:
        return map(function, items) if self._threads is None else self._threads.map(function, items)
