"""Posteriors with fixed globals: the prediction of a fitted model for another section.

    1  each patch b in turn:  phi_b <- one Gauss-Seidel sweep with lambda fixed

Guarantee: every update of a spot is an exact minimisation with all else fixed, so F never rises; the limit is
stationary in phi. It is not in the table of solvers, since it fits no globals.
"""

from typing import Any

from spatialpdvi.problems.base import Blocks, Problem
from spatialpdvi.solvers.base import Globals
from spatialpdvi.solvers.coordinate_ascent import CAVI

__all__ = ["FixedGlobals"]


class FixedGlobals(CAVI):
    """`CAVI` without its second line."""

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[None, None]:
        """A patch has neither state nor message."""
        return None, None

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Globals:
        """Store the globals."""
        return Globals(lam)

    def local(self, problem: Problem, shared: Globals, own: None, phi: Any, patch: int, halo: Any) -> tuple[None, None]:  # type: ignore[override]
        """Line 1."""
        problem.update_locals(phi, patch, halo, shared.lam)
        return None, None

    def merge(self, problem: Problem, shared: Any, messages: list[Any]) -> Any:
        """Change nothing."""
        return shared
