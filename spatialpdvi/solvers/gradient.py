r"""First-order methods on the global blocks: SGD, RMSProp, Adam, and SGD with a control variate.

    1  draw a batch S_t of patches
    2  each b in S_t:  phi_b <- `inner_rounds` exact sweeps with lambda fixed;  g_b = grad f_b(lambda)
    3  g        = T sum_{b in S_t} g_b            an unbiased gradient of F at these posteriors; T batches in an epoch
    4  lambda  <- lambda - step(g), block by block

- `SGD`: step = s g / L, where L is the largest curvature of the block at the start. A constant s < 1 reaches a
  neighbourhood of a stationary point, whose size grows with s times the variance of the gradient (Robbins and Monro
  1951; Bottou, Curtis and Nocedal 2018).
- `RMSProp` (Tieleman and Hinton 2012): step = s w g / sqrt(v), where v is a running mean of g^2 (decay 0.9).
- `Adam` (Kingma and Ba 2015): step = s w m^ / (sqrt(v^) + eps), with decays 0.9 and 0.999 and bias correction.
- `ControlVariate`: SGD whose line 3 is  g = sum_b G_b + T sum_{b in S_t} (g_b - G_b),  where G_b is the
  gradient of patch b at its last visit. This is the joint control variate of Wang, Geffner and Domke (2024) without its
  Monte Carlo part: the expectations here are closed forms, so subsampling is the only noise. The gradient stays
  unbiased, its variance vanishes as the iterates settle, and a constant step converges linearly under strong convexity
  (SAGA; Defazio et al. 2014).

w is the width of the objective along the block, 1 / sqrt(the largest curvature at the start), so that one dimensionless
s (`SolverSettings.step_size`) suits all blocks.
"""

from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem, blockwise, total
from spatialpdvi.solvers.base import Globals, MiniBatchSolver

__all__ = ["SGD", "Adam", "ControlVariate", "RMSProp", "Shared"]

_RMS_DECAY = 0.9
_ADAM_DECAY = (0.9, 0.999)
_EPSILON = 1e-8  # eps of Adam, relative to a gradient of ordinary size, 1 / w


class Shared(NamedTuple):
    """The globals, and the running moments of the gradient."""

    lam: Blocks
    largest: Blocks | None  # largest curvature of each block at the start, broadcast over it
    first: Blocks  # running mean of g; for the control variate the sum of all stored gradients
    second: Blocks  # running mean of g^2
    t: int  # steps done


class SGD(MiniBatchSolver):
    """Plain stochastic gradient steps."""

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Shared:
        """Store the globals; the first `begin_epoch` reads the curvature."""
        nothing = blockwise(np.zeros_like, lam)
        return Shared(lam, None, nothing, nothing, 0)

    def begin_epoch(self, problem: Problem, shared: Shared, evaluation: Evaluation, patch_states: Any) -> Shared:
        """Fix the scale of every block once, from the curvature at the start, because the step is constant."""
        if shared.largest is not None:
            return shared
        largest = blockwise(lambda curvature: np.full_like(curvature, curvature.max()), evaluation.curvature)
        return shared._replace(largest=largest)

    def local(self, problem: Problem, shared: Globals, own: Any, phi: Any, patch: int, halo: Any) -> tuple[Any, Blocks]:
        """Line 2."""
        return None, problem.gradient(self.visit(problem, shared.lam, phi, patch, halo), patch, shared.lam)

    def merge(self, problem: Problem, shared: Shared, messages: list[Blocks]) -> Shared:
        """Lines 3 and 4."""
        scale = self.n_batches(problem)
        gradient = blockwise(lambda g: scale * g, total(messages))
        return self._descend(shared._replace(t=shared.t + 1), gradient)

    def _descend(self, shared: Shared, gradient: Blocks) -> Shared:
        lam = blockwise(lambda x, g, top: x - self.step_size * g / top, shared.lam, gradient, shared.largest)
        return shared._replace(lam=lam)


class RMSProp(SGD):
    """Steps divided by a running root mean square of the gradient."""

    def _descend(self, shared: Shared, gradient: Blocks) -> Shared:
        second = blockwise(lambda v, g: _RMS_DECAY * v + (1.0 - _RMS_DECAY) * g**2, shared.second, gradient)
        lam = blockwise(self._scaled, shared.lam, gradient, second, shared.largest)
        return shared._replace(lam=lam, second=second)

    def _scaled(self, x: np.ndarray, g: np.ndarray, v: np.ndarray, top: np.ndarray) -> np.ndarray:
        return x - self.step_size / np.sqrt(top) * g / (np.sqrt(v) + _EPSILON * np.sqrt(top))


class Adam(RMSProp):
    """RMSProp with momentum and bias correction."""

    def _descend(self, shared: Shared, gradient: Blocks) -> Shared:
        a, b = _ADAM_DECAY
        first = blockwise(lambda m, g: a * m + (1.0 - a) * g, shared.first, gradient)
        second = blockwise(lambda v, g: b * v + (1.0 - b) * g**2, shared.second, gradient)
        mean = blockwise(lambda m: m / (1.0 - a**shared.t), first)
        square = blockwise(lambda v: v / (1.0 - b**shared.t), second)
        lam = blockwise(self._scaled, shared.lam, mean, square, shared.largest)
        return shared._replace(lam=lam, first=first, second=second)


class ControlVariate(SGD):
    """SGD whose gradient is corrected by the gradient that every patch had at its last visit."""

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Blocks, Blocks]:
        """Store and send the gradient of the patch at the start."""
        gradient = problem.gradient(problem.statistics(phi, patch, lam), patch, lam)
        return gradient, gradient

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Blocks]) -> Shared:
        """Store the globals and the sum of all gradients."""
        return Shared(lam, None, total(messages), blockwise(np.zeros_like, lam), 0)

    def local(
        self, problem: Problem, shared: Globals, own: Blocks, phi: Any, patch: int, halo: Any
    ) -> tuple[Blocks, Blocks]:
        """Line 2; the message is the change of the patch's gradient since its last visit."""
        _, gradient = super().local(problem, shared, own, phi, patch, halo)
        return gradient, blockwise(np.subtract, gradient, own)

    def merge(self, problem: Problem, shared: Shared, messages: list[Blocks]) -> Shared:
        """Lines 3 and 4."""
        change, scale = total(messages), self.n_batches(problem)
        gradient = blockwise(lambda before, moved: before + scale * moved, shared.first, change)
        return self._descend(shared._replace(first=blockwise(np.add, shared.first, change), t=shared.t + 1), gradient)
