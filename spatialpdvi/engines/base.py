"""The contract of an engine."""

from typing import Any, Protocol

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem
from spatialpdvi.solvers.base import Solver, State

__all__ = ["Engine", "PatchesLostError"]


class PatchesLostError(Exception):
    """Patches are gone with the worker that held them, and others have room for them: begin again, or go on."""


class Engine(Protocol):
    """The patches of one problem with their locals and what a solver keeps of each."""

    @property
    def problem(self) -> Problem:
        """Its closed forms of the globals; what needs a patch's own spots may be elsewhere."""

    def begin(self, solver: Solver, start: tuple[Any, Blocks] | State) -> Any:
        """Begin at (phi, lambda), or go on from a state; returns what the solver's patches share."""

    def visit(self, shared: Any, batch: np.ndarray) -> list[Any]:
        """Have the solver visit the patches of a batch; their messages, in the batch's order.

        Unless the solver is sequential, halos are taken as they were when the batch began.
        """

    def kept(self) -> tuple[Any, ...]:
        """What the solver keeps of each patch."""

    def evaluate(self, lam: Blocks) -> Evaluation:
        """The problem as it stands."""

    def table(self) -> np.ndarray | None:
        """Spots (labels, domains) by known label and most probable domain; None without known labels."""

    def state(self, shared: Any) -> State:
        """All that a run needs to go on, gathered here: to be read before the next visit, which may overwrite it."""
