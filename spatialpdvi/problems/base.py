"""All that a solver may ask of a finite-sum problem with local and global variables.

    F(phi, lambda) = sum_{b=1..B} f_b(phi_b, lambda)

phi_b is the local variable of patch b, and lambda is a NamedTuple of global blocks (m and rho of the Potts mixture).
Solvers combine blocks with `blockwise` and `total`, and never look inside phi, the halo or the statistics.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

__all__ = ["Blocks", "Evaluation", "Problem", "Statistics", "blockwise", "total"]

Blocks = Any  # a NamedTuple of float64 arrays, one per global block
Statistics = Any  # a NamedTuple of float64 arrays that add up over patches
_B = TypeVar("_B", bound=tuple[Any, ...])


def blockwise(function: Callable[..., np.ndarray], first: _B, *others: _B) -> _B:
    """Apply ``function`` to each block of one or several lambdas, or statistics, with blocks of equal shapes."""
    return type(first)(*(function(*arrays) for arrays in zip(first, *others, strict=True)))


def total(parts: Iterable[_B]) -> _B:
    """Return the sum, block by block and in their order, of several lambdas or of the statistics of several patches."""
    return blockwise(lambda *arrays: sum(arrays), *parts)


class Evaluation(NamedTuple):
    """The whole problem at one point (phi, lambda)."""

    neg_elbo: float  # F in nats; lower is better
    scale: float  # > 0; changes of F are compared with it. It does not depend on the origin of the data
    gradient: Blocks  # dF/dlambda
    curvature: Blocks  # L > 0, an upper bound of the second derivative, coordinate by coordinate
    # the curvature that one visit meets, sum_b L_b^2 / sum_b L_b: L/B where it is spread evenly, L where it is all in
    # one patch
    visit_curvature: Blocks
    stationarity: dict[str, float]  # by block, dimensionless distance from a stationary point, comparable for any n
    residual_mean: float  # mean over the local variables of their distance from their own optimum, 0..1
    residual_max: float  # the largest of these distances

    @property
    def worst(self) -> float:
        """The largest of the quantities that must vanish at a stationary point."""
        return max(*self.stationarity.values(), self.residual_mean)


class Problem(Protocol):
    """One finite-sum problem. Patches are numbered 0..B-1; its ``phi`` contains the local variables in any form."""

    n_patches: int

    def halo(self, phi: Any, patch: int) -> Any:
        """Copy the current local variables of other patches that patch ``patch`` depends on."""

    def statistics(self, phi: Any, patch: int, lam: Blocks) -> Statistics:
        """Compute the additive statistics of the patch: f_b as a function of lambda depends on nothing else.

        ``lam`` is where local variables that are not part of phi, but have a closed form, are at their optimum: the
        states of spots in a mixture of compositions.
        """

    def update_locals(self, phi: Any, patch: int, halo: Any, lam: Blocks) -> None:
        """Lower F over phi_b by one pass of exact coordinate steps with lambda fixed; phi_b is overwritten."""

    def augmented_globals(
        self, statistics: Statistics, patch: int, lam0: Blocks, dual: Blocks, inv_step: Blocks
    ) -> Blocks:
        """Argmin over lambda_b of ``f_b + <dual, lambda_b> + 1/2 |lambda_b - lambda_0|^2_{1/eta}`` with phi_b fixed."""

    def global_optimum(self, statistics: Statistics) -> Blocks:
        """Argmin of F over lambda, given the statistics summed over all patches."""

    def blend(self, lam: Blocks, target: Blocks, step: float) -> Blocks:
        """Natural-gradient step: ``(1 - step) lam + step target`` in natural parameters, 0 < step <= 1.

        Where expectations have no closed form, it is a step towards the minimiser of the linearised F.
        """

    def gradient(self, statistics: Statistics, patch: int, lam: Blocks) -> Blocks:
        """Gradient of f_b in lambda at ``lam``."""

    def evaluate(self, phi: Any, lam: Blocks, *, each: Callable[..., Iterable[Any]] = map) -> Evaluation:
        """F, its gradient, curvature and stationarity at (phi, lambda); ``each`` is `map` or a parallel form of it."""
