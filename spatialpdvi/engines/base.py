"""The contract of an engine."""

from typing import Any, Protocol

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem
from spatialpdvi.solvers.base import Solver, State

__all__ = ["Engine", "PatchesLostError", "ignore_overflow"]


class PatchesLostError(Exception):
    """Patches were lost with their worker; the fit can resume from its last state, or begin again, on other workers."""


class Engine(Protocol):
    """The patches of one problem, with their local variables and the solver's state of each patch."""

    @property
    def problem(self) -> Problem:
        """The problem, for its closed forms of the globals; spots may be elsewhere."""

    def begin(self, solver: Solver, start: tuple[Any, Blocks] | State) -> Any:
        """Start at (phi, lambda), or resume from a state; return the shared state of the solver."""

    def restart(self, solver: Solver, lam: Blocks, *, kept: bool) -> Any:
        """Begin with another solver, at the present local variables or at the kept ones; return its shared state."""

    def keep(self, phi: Any = None) -> None:
        """Keep a copy of the local variables, the present ones unless some are given, in place of an earlier copy."""

    def kept(self) -> Any:
        """Return the local variables that were kept, which must not be changed."""

    def visit(self, shared: Any, batch: np.ndarray) -> list[Any]:
        """Let the solver visit the patches of a batch; return their messages in the order of the batch.

        Unless the solver is sequential, halos are taken as they were when the batch began.
        """

    def patch_states(self) -> tuple[Any, ...]:
        """Return the solver's state of each patch, in patch order."""

    def evaluate(self, lam: Blocks) -> Evaluation:
        """Evaluate the problem at the current local variables and ``lam``."""

    def table(self) -> np.ndarray | None:
        """Count the spots (labels, domains) with each known label and most probable domain; None without labels."""

    def state(self, shared: Any) -> State:
        """Return all that a run needs to resume. It must be read before the next visit, which may overwrite it."""


def ignore_overflow() -> np.errstate:
    """Return a context without NumPy's warnings: too large a step ends in `Stop.NOT_FINITE`.

    NumPy's settings are those of one thread, so every thread that visits patches must enter such a context.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")
