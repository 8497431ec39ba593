"""Posteriors alone, the globals held: what a fitted model says of a section that it has not seen.

    1  each patch b in turn:  phi_b <- one Gauss-Seidel sweep, lambda held

Guarantee: every spot's update is the exact minimiser with all else held, so F never rises; the limit is stationary in
phi. No solver of the registry: it fits nothing.
"""

from typing import Any, NamedTuple

from spatialpdvi.problems.base import Blocks, Problem
from spatialpdvi.solvers.base import State
from spatialpdvi.solvers.coordinate_ascent import CAVI

__all__ = ["Held"]


class _Shared(NamedTuple):
    lam: Blocks


class Held(CAVI):
    """`CAVI` without its second line."""

    def init(self, problem: Problem, phi: Any, lam: Blocks) -> State:
        """Nothing is kept of a patch."""
        return State(phi, _Shared(lam), (None,) * problem.n_patches)

    def local(self, problem: Problem, shared: Any, own: None, phi: Any, patch: int, halo: Any) -> tuple[None, None]:  # type: ignore[override]
        """Line 1."""
        problem.update_locals(phi, patch, halo, shared.lam)
        return None, None

    def merge(self, problem: Problem, shared: Any, messages: list[Any]) -> Any:
        """The globals stay."""
        return shared
