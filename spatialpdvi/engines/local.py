"""All patches in this process; threads visit the patches of a batch in parallel where they are large enough."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from spatialpdvi.engines.base import ignore_overflow
from spatialpdvi.kernels.dispatch import run_serially_in_this_thread
from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.problems.base import Blocks, Evaluation, Problem
from spatialpdvi.runtime.threads import n_threads
from spatialpdvi.solvers.base import Solver, State

__all__ = ["LocalEngine"]

_LARGE_PATCH = 20_000  # numbers in a patch's local variables; a smaller patch is done before another thread wakes up
_A = TypeVar("_A")
_B = TypeVar("_B")


class LocalEngine:
    """An `Engine` for a problem in memory.

    Parameters
    ----------
    problem
        The problem with all its patches.
    codes
        Codes (n,) of known labels in patch order; -1 where a spot has none.
    threads
        The largest number of threads; by default all that the process may use.
    """

    def __init__(self, problem: Problem, *, codes: np.ndarray | None = None, threads: int | None = None) -> None:
        self.problem = problem
        self._n_threads = n_threads() if threads is None else threads
        self._codes = codes
        self._n_labels = 0 if codes is None else int(codes.max(initial=-1)) + 1
        self._threads: ThreadPoolExecutor | None = None
        self._solver: Solver
        self._phi: Any
        self._kept: Any = None
        self._states: list[Any]

    def begin(self, solver: Solver, start: tuple[Any, Blocks] | State) -> Any:
        """Start or resume; phi is not copied, and visits overwrite it."""
        self._solver = solver
        self._phi = start[0]
        if self._threads is None and self._phi.size >= _LARGE_PATCH * self.problem.n_patches and self._n_threads > 1:
            self._threads = ThreadPoolExecutor(self._n_threads, "patches", initializer=run_serially_in_this_thread)
        if isinstance(start, State):
            self._states = list(start.own)
            return start.shared
        lam = start[1]
        started = list(
            self._each(lambda b: solver.init_patch(self.problem, self._phi, b, lam), range(self.problem.n_patches))
        )
        self._states = [state for state, _ in started]
        return solver.init_shared(self.problem, lam, [message for _, message in started])

    def restart(self, solver: Solver, lam: Blocks, *, kept: bool) -> Any:
        """Overwrite the present local variables with the kept ones, or begin at the present ones."""
        if kept:
            self._phi[...] = self._kept
        return self.begin(solver, (self._phi, lam))

    def keep(self, phi: Any = None) -> None:
        """Copy all local variables, over the copy before: a large section has no room for three of them."""
        source = self._phi if phi is None else phi
        if self._kept is None:
            self._kept = source.copy()
        else:
            self._kept[...] = source

    def kept(self) -> Any:
        """Return the copy itself."""
        return self._kept

    def visit(self, shared: Any, batch: np.ndarray) -> list[Any]:
        """Visit a batch; threads share its patches or, where it has only one patch, the spots of that patch."""
        patches, sent = [int(b) for b in batch], self._solver.outgoing(shared)
        if self._solver.sequential or len(patches) == 1:
            return [self._visit(sent, b, self.problem.halo(self._phi, b)) for b in patches]
        halos = [self.problem.halo(self._phi, b) for b in patches]
        return list(self._each(lambda visit: self._visit(sent, *visit), zip(patches, halos, strict=True)))

    def patch_states(self) -> tuple[Any, ...]:
        """Return the states themselves, not copies."""
        return tuple(self._states)

    def evaluate(self, lam: Blocks) -> Evaluation:
        """Evaluate patches in parallel."""
        return self.problem.evaluate(self._phi, lam, each=self._each)

    def table(self) -> np.ndarray | None:
        """Count all spots at once."""
        if self._codes is None:
            return None
        return overlap(self._codes, self._phi.argmax(axis=1), shape=(self._n_labels, self._phi.shape[1]))

    def state(self, shared: Any) -> State:
        """Return phi itself, not a copy, with the shared state and the states of patches."""
        return State(self._phi, shared, self.patch_states())

    def _visit(self, sent: Any, patch: int, halo: Any) -> Any:
        self._states[patch], message = self._solver.local(
            self.problem, sent, self._states[patch], self._phi, patch, halo
        )
        return message

    def _each(self, function: Callable[[_A], _B], items: Iterable[_A]) -> Iterable[_B]:
        if self._threads is None:
            return map(function, items)

        def quietly(item: _A) -> _B:
            with ignore_overflow():
                return function(item)

        return self._threads.map(quietly, items)
