"""What a solver may ask of a finite-sum problem with local and global variables, and nothing more.

    F(phi, lambda) = sum_{b=1..B} f_b(phi_b, lambda)

phi_b is the local variable of patch b; lambda is a NamedTuple of global blocks (for the Potts mixture: m and rho).
Solvers combine blocks with `blockwise` and never look inside phi, halo or statistics.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

__all__ = ["Blocks", "Evaluation", "Problem", "Statistics", "blockwise"]

Blocks = Any  # a NamedTuple of float64 arrays, one per global block
Statistics = Any  # a NamedTuple of float64 arrays that add up over patches
_B = TypeVar("_B", bound=tuple[Any, ...])


def blockwise(function: Callable[..., np.ndarray], first: _B, *others: _B) -> _B:
    """Apply ``function`` to every block of one or several lambdas of one shape."""
    return type(first)(*(function(*arrays) for arrays in zip(first, *others, strict=True)))


class Evaluation(NamedTuple):
    """The whole problem at one point (phi, lambda)."""

    neg_elbo: float  # F, nats, lower is better
    scale: float  # > 0, what a change of F is held against; the same wherever the zero of the data is
    gradient: Blocks  # dF/dlambda
    curvature: Blocks  # upper bound of the second derivative, coordinate by coordinate; > 0
    visit_curvature: (
        Blocks  # what a visit finds of it: sum_b L_b^2 / sum_b L_b, L/B if spread evenly, L if in one patch
    )
    stationarity: dict[str, float]  # block name -> dimensionless distance from stationary, equal for any n
    residual_mean: float  # mean over local variables of the distance to their own optimum, 0..1
    residual_max: float

    @property
    def worst(self) -> float:
        """The largest of all that must vanish at a stationary point."""
        return max(*self.stationarity.values(), self.residual_mean)


class Problem(Protocol):
    """One finite-sum problem. Patches are numbered 0..B-1; ``phi`` is the problem's own container of locals."""

    n_patches: int

    def halo(self, phi: Any, patch: int) -> Any:
        """Copy of what patch ``patch`` sees of other patches' locals as they are now."""

    def statistics(self, phi: Any, patch: int) -> Statistics:
        """Additive statistics of the patch's locals: all that f_b depends on as a function of lambda."""

    def update_locals(self, phi: Any, patch: int, halo: Any, lam: Blocks) -> None:
        """Minimise F over phi_b by one pass of exact coordinate steps, lambda held; overwrites phi_b."""

    def augmented_globals(
        self, statistics: Statistics, patch: int, lam0: Blocks, dual: Blocks, inv_step: Blocks
    ) -> Blocks:
        """Argmin over lambda_b of ``f_b + <dual, lambda_b> + 1/2 |lambda_b - lambda_0|^2_{1/eta}``, phi_b held."""

    def global_optimum(self, statistics: Statistics) -> Blocks:
        """Argmin of F over lambda given the statistics summed over all patches."""

    def blend(self, lam: Blocks, target: Blocks, step: float) -> Blocks:
        """Natural-gradient step: ``(1 - step) lam + step target`` in natural parameters, 0 < step <= 1."""

    def gradient(self, statistics: Statistics, patch: int, lam: Blocks) -> Blocks:
        """Gradient of f_b in lambda at ``lam``."""

    def evaluate(self, phi: Any, lam: Blocks, *, each: Callable[..., Iterable[Any]] = map) -> Evaluation:
        """F, its gradient, curvature and stationarity at (phi, lambda); patches by ``each``, a `map`."""
