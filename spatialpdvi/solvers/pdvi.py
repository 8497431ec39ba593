r"""PD-VI and P2D-VI: primal-dual variational inference over a consensus of patches.

Lyu, Yu, Ma and Shi, arXiv 2602.07632 (2026), Algorithm 1. Each patch b keeps a copy lambda_b of the globals, tied to
the shared lambda_0 by a dual and a quadratic penalty of step eta.

    1  draw a batch S_t of patches
    2  each b in S_t:   (phi_b, lambda_b) = argmin f_b + <dual_b, lambda_b> + |lambda_b - lambda_0|^2 / (2 eta)
    3                   dual_b += (lambda_b - lambda_0) / eta
    4  h       += (1/B) sum_{b in S_t} (lambda_b - lambda_0)
    5  lambda_0 = mean_{b in S_t} lambda_b + h

Line 4 divides by B, the number of all patches; one lemma of the paper prints |S_t|, which is a slip.

Oracle I (`PDVI`) has one scalar eta; oracle II (`P2DVI`) one per coordinate, eta = 1 / (c L) with L the curvature of a
patch at that coordinate. Line 2 alternates exact closed forms for `inner_rounds` rounds.

Guarantee: O(1/T) to a stationary point in general, linear under strong convexity, with a constant step small enough
against 1/L. At a fixed point every lambda_b is lambda_0, dual_b = -grad f_b, the duals sum to 0 and h = 0.

Three things are ours.

Duals start at -grad f_b(lambda_0), as the paper's proofs assume (its code starts them at 0, and then the first visits
wander).

L is the curvature that a visit finds, averaged over visits by curvature: sum_b L_b^2 / sum_b L_b. For a domain that is
spread evenly over the patches it is the mean L/B, for one that lives in a single patch it is that patch's L: with the
mean, small domains take steps that are far too large for them, and die. Steps are refreshed every epoch; the duals do
not depend on eta, and h = eta * mean_b dual_b is rescaled with it, so a fixed point stays one.

"Small enough" is found while running. Large steps leave poor optima (F ends lower), so c starts at 1; but when
posteriors are all but hard, single spots can keep flipping for ever. So after `PATIENCE` epochs without a better
stationarity, P2D-VI multiplies c by `CAUTION`. Steps that the user fixed are left alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem, blockwise
from spatialpdvi.solvers.base import SolverSettings, shuffled_batches

__all__ = ["P2DVI", "PDVI", "Message", "Shared"]


PATIENCE = 10  # epochs of a window; without a better stationarity than in the one before, steps become smaller
CAUTION = 1.5  # by how much
MOST_CAUTION = 64.0  # in all: smaller steps would freeze a fit that is merely slow
_BETTER = 0.9  # of the stationarity of the window before


class Shared(NamedTuple):
    """What all patches see."""

    lam: Blocks  # lambda_0
    h: Blocks  # running correction, eta * mean of all duals
    inv_step: Blocks  # 1/eta, one number per coordinate (for oracle I all are equal)
    caution: float = 1.0  # what c is multiplied by
    previous: float = np.inf  # best stationarity of the window before
    best: float = np.inf  # and of this one
    waited: int = 0  # epochs of this window


class Outgoing(NamedTuple):
    """What a patch reads of it."""

    lam: Blocks
    inv_step: Blocks


class Message(NamedTuple):
    """What one visit tells the rest."""

    lam: Blocks  # lambda_b


class P2DVI:
    """Algorithm 1 with oracle II: a step of its own for every coordinate."""

    options: tuple[str, ...] = ("batch_patches", "inner_rounds", "step_factor", "step_mean", "step_log_variance")
    has_step = False
    sequential = False
    grows_cautious = True

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Blocks, None]:
        """The dual at -grad f_b(lambda_0)."""
        gradient = problem.gradient(problem.statistics(phi, patch), patch, lam)
        return blockwise(np.negative, gradient), None

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Shared:
        """Steps are set by the first `begin_epoch`."""
        nothing = blockwise(np.zeros_like, lam)
        return Shared(lam, nothing, nothing)

    def begin_epoch(
        self, problem: Problem, shared: Shared, evaluation: Evaluation, kept: Callable[[], tuple[Any, ...]]
    ) -> Shared:
        """Set 1/eta from the curvature, and h to match: ``h = eta * mean_b dual_b``."""
        if self.grows_cautious:
            shared = _watch(shared, evaluation)
        inv_step = self._inverse_steps(evaluation, shared.caution * self.settings.step_factor)
        mean_dual = blockwise(lambda *duals: sum(duals) / problem.n_patches, *kept())
        h = blockwise(np.divide, mean_dual, inv_step)
        return shared._replace(h=h, inv_step=inv_step)

    def outgoing(self, shared: Shared) -> Outgoing:
        """The globals and the steps; h is of the merge alone."""
        return Outgoing(shared.lam, shared.inv_step)

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Line 1, without replacement within an epoch: every patch is visited equally often."""
        return shuffled_batches(n_patches, self.settings.batch_patches, rng)

    def local(
        self, problem: Problem, shared: Outgoing, own: Blocks, phi: Any, patch: int, halo: Any
    ) -> tuple[Blocks, Message]:
        """Lines 2 and 3."""
        lam = shared.lam
        for _ in range(self.settings.inner_rounds):
            problem.update_locals(phi, patch, halo, lam)
            statistics = problem.statistics(phi, patch)
            lam = problem.augmented_globals(statistics, patch, shared.lam, own, shared.inv_step)
        dual = blockwise(_dual_step, own, lam, shared.lam, shared.inv_step)
        return dual, Message(lam)

    def merge(self, problem: Problem, shared: Shared, messages: list[Message]) -> Shared:
        """Lines 4 and 5."""
        total = blockwise(lambda *copies: sum(copies), *(message.lam for message in messages))
        h = blockwise(
            lambda h, total, lam0: h + (total - len(messages) * lam0) / problem.n_patches,
            shared.h,
            total,
            shared.lam,
        )
        lam = blockwise(lambda total, h: total / len(messages) + h, total, h)
        return shared._replace(lam=lam, h=h)

    def _inverse_steps(self, evaluation: Evaluation, factor: float) -> Blocks:
        """1/eta = c L, coordinate by coordinate, or what the user fixed; ``factor`` is c."""
        inv_step = blockwise(lambda curvature: factor * curvature, evaluation.visit_curvature)
        return self._fixed(inv_step)

    def _fixed(self, inv_step: Blocks) -> Blocks:
        """Replace the blocks whose step the user set."""
        steps = self.settings.steps + (None,) * (len(inv_step) - len(self.settings.steps))
        return type(inv_step)(
            *(
                block if step is None else np.full_like(block, 1.0 / step)
                for block, step in zip(inv_step, steps, strict=True)
            )
        )


class PDVI(P2DVI):
    """Algorithm 1 with oracle I: one scalar step, set by the steepest coordinate of all blocks.

    The flat coordinates crawl by nature, which is no reason for a smaller step: this one grows no more cautious.
    """

    grows_cautious = False

    def _inverse_steps(self, evaluation: Evaluation, factor: float) -> Blocks:
        largest = max(factor * float(block.max()) for block in evaluation.visit_curvature)
        return self._fixed(blockwise(lambda block: np.full_like(block, largest), evaluation.curvature))


def _watch(shared: Shared, evaluation: Evaluation) -> Shared:
    """Be more cautious after a window of `PATIENCE` epochs that was no better than the one before it.

    Windows rather than the best so far: when a domain dies late, stationarity jumps and then falls again, slowly and
    steadily, which is no reason for smaller steps.
    """
    best, waited = min(shared.best, evaluation.worst), shared.waited + 1
    if waited < PATIENCE:
        return shared._replace(best=best, waited=waited)
    stalled = best > _BETTER * shared.previous
    caution = min(CAUTION * shared.caution, MOST_CAUTION) if stalled else shared.caution
    return shared._replace(caution=caution, previous=best, best=np.inf, waited=0)


def _dual_step(dual: np.ndarray, lam: np.ndarray, lam0: np.ndarray, inv_step: np.ndarray) -> np.ndarray:
    return dual + (lam - lam0) * inv_step
