r"""Natural-gradient methods on the globals: SVI with a constant and a Robbins-Monro step, PG-SVI, SNGVI.

    1  draw a batch S_t of patches
    2  each b in S_t:  phi_b <- `inner_rounds` exact sweeps with lambda fixed
    3  lambda^  = argmin F given the statistics of S_t, scaled by the number of batches in an epoch
    4  lambda  <- (1 - s_t) lambda + s_t lambda^     in natural parameters

- `SVI`: s_t = s, constant (Hoffman, Blei, Wang and Paisley 2013). With a constant step it reaches a neighbourhood of a
  stationary point, whose size grows with s.
- `RobbinsMonroSVI`: s_t = s (1 + t)^-kappa with kappa = 0.7 (the same paper). It converges to a stationary point, since
  sum s_t = inf and sum s_t^2 < inf.
- `PGSVI`: the KL-proximal step of Khan, Baque, Fleuret and Fua (2015), lambda <- r lambda + (1 - r) lambda* with
  r = 1 / (1 + beta) and beta constant. The expectations of this model are closed forms, so the linearised term is exact
  and the step *is* that of SVI with s = beta / (1 + beta); a test shows equal bits. Where expectations have no closed
  form, line 4 is the `blend` of the problem: `benchmarks/experiments/proximal.py` has it for Gaussian processes.
- `SNGVI`: stochastic natural-gradient VI (Wu and Gardner, ICML 2024), who prove O(1/T) for conjugate likelihoods. Given
  phi, the Gaussians of the domains are conjugate and the natural-gradient step is again line 4, so this is SVI with a
  step that falls as 1/t: s_t = s 2 / (t + 2). With s = 1 the first step discards the start; a test shows that this step
  equals that of SVI.

Posteriors are optimised locally at each step, as in the P2D-VI paper for this non-conjugate model. Steps must satisfy
0 < s_t <= 1.
"""

from typing import Any, NamedTuple

from spatialpdvi.problems.base import Blocks, Problem, Statistics, blockwise, total
from spatialpdvi.solvers.base import Globals, MiniBatchSolver

__all__ = ["PGSVI", "SNGVI", "SVI", "RobbinsMonroSVI", "Shared"]

_FORGETTING = 0.7  # kappa, in (1/2, 1]


class Shared(NamedTuple):
    """The state that all patches share."""

    lam: Blocks
    t: int  # steps done


class SVI(MiniBatchSolver):
    """Constant step s, `SolverSettings.step_size`, 0 < s <= 1; larger values are taken as 1."""

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Shared:
        """Store the globals."""
        return Shared(lam, 0)

    def local(
        self, problem: Problem, shared: Globals, own: None, phi: Any, patch: int, halo: Any
    ) -> tuple[None, Statistics]:
        """Line 2."""
        return None, self.visit(problem, shared.lam, phi, patch, halo)

    def merge(self, problem: Problem, shared: Shared, messages: list[Statistics]) -> Shared:
        """Lines 3 and 4."""
        scale = self.n_batches(problem)
        everything = blockwise(lambda part: scale * part, total(messages))
        step = min(1.0, self.schedule(shared.t))
        return Shared(problem.blend(shared.lam, problem.global_optimum(everything), step), shared.t + 1)

    def schedule(self, t: int) -> float:
        """The step s_t, for t = 0, 1, ..."""
        return self.step_size


class RobbinsMonroSVI(SVI):
    """Falling step ``s (1 + t)^-0.7``; the larger s, `SolverSettings.step_size`, the longer s_t stays at 1."""

    default_step = 1.0

    def schedule(self, t: int) -> float:
        """The step s_t, for t = 0, 1, ..."""
        return self.step_size * (1.0 + t) ** -_FORGETTING


class PGSVI(SVI):
    """KL-proximal step; `SolverSettings.step_size` is beta > 0."""

    default_step = 0.1

    def schedule(self, t: int) -> float:
        """The step ``1 - r = beta / (1 + beta)``, the same for every t."""
        return self.step_size / (1.0 + self.step_size)


class SNGVI(SVI):
    """Step ``s 2 / (t + 2)``; `SolverSettings.step_size` is s."""

    default_step = 1.0

    def schedule(self, t: int) -> float:
        """The step s_t, for t = 0, 1, ..."""
        return self.step_size * 2.0 / (t + 2.0)
