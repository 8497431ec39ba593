"""What the stochastic solvers share: one tuned step, shuffled mini-batches, posteriors optimised at every visit."""

from typing import Any

import numpy as np

from spatialpdvi.problems.base import Blocks, Problem, Statistics
from spatialpdvi.solvers.base import Globals, SolverSettings, shuffled_batches

__all__ = ["MiniBatchSolver"]


class MiniBatchSolver:
    """Base class of the solvers that are tuned by `SolverSettings.step_size` alone."""

    options: tuple[str, ...] = ("batch_patches", "inner_rounds", "step_size")
    has_step = True
    sequential = False
    default_step = 0.1

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings
        self.step_size = settings.step_size or self.default_step

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Every patch once per epoch, in a new order."""
        return shuffled_batches(n_patches, self.settings.batch_patches, rng)

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """A patch has neither state nor message."""
        return None, None

    def outgoing(self, shared: Any) -> Globals:
        """Send the globals."""
        return Globals(shared.lam)

    def visit(self, problem: Problem, lam: Blocks, phi: Any, patch: int, halo: Any) -> Statistics:
        """Optimise the posteriors of a patch given the globals by `inner_rounds` sweeps; return their statistics."""
        for _ in range(self.settings.inner_rounds):
            problem.update_locals(phi, patch, halo, lam)
        return problem.statistics(phi, patch)
