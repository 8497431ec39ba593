"""Posteriors alone, the globals held: what a fitted model says of a section that it has not seen.

    1  each patch b in turn:  phi_b <- one Gauss-Seidel sweep, lambda held

Guarantee: every spot's update is the exact minimiser with all else held, so F never rises; the limit is stationary in
phi. No solver of the registry: it fits nothing.
"""

from typing import Any

from spatialpdvi.problems.base import Blocks, Problem
from spatialpdvi.solvers.base import Globals
from spatialpdvi.solvers.coordinate_ascent import CAVI

__all__ = ["Held"]


class Held(CAVI):
    """`CAVI` without its second line."""

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[None, None]:
        """Nothing is kept of a patch."""
        return None, None

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Globals:
        """The start."""
        return Globals(lam)

    def local(self, problem: Problem, shared: Globals, own: None, phi: Any, patch: int, halo: Any) -> tuple[None, None]:  # type: ignore[override]
        """Line 1."""
        problem.update_locals(phi, patch, halo, shared.lam)
        return None, None

    def merge(self, problem: Problem, shared: Any, messages: list[Any]) -> Any:
        """The globals stay."""
        return shared
