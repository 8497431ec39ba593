"""What the stochastic rivals share: one tuned step, shuffled mini-batches, locals optimised at every visit."""

from typing import Any

import numpy as np

from spatialpdvi.problems.base import Blocks, Problem, Statistics
from spatialpdvi.solvers.base import Globals, SolverSettings, shuffled_batches

__all__ = ["MiniBatchSolver"]


class MiniBatchSolver:
    """Base of the solvers whose only tuning is `SolverSettings.step_size`."""

    options: tuple[str, ...] = ("batch_patches", "inner_rounds", "step_size")
    has_step = True
    sequential = False
    default_step = 0.1

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings
        self.step_size = settings.step_size or self.default_step

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Every patch once an epoch, in a new order."""
        return shuffled_batches(n_patches, self.settings.batch_patches, rng)

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """Nothing is kept of a patch."""
        return None, None

    def outgoing(self, shared: Any) -> Globals:
        """The globals."""
        return Globals(shared.lam)

    def visit(self, problem: Problem, lam: Blocks, phi: Any, patch: int, halo: Any) -> Statistics:
        """Optimise a patch's locals given the globals by `inner_rounds` sweeps; returns their statistics."""
        for _ in range(self.settings.inner_rounds):
            problem.update_locals(phi, patch, halo, lam)
        return problem.statistics(phi, patch)
