r"""PD-VI and P2D-VI: primal-dual variational inference over a consensus of patches.

Algorithm 1 of Lyu, Yu, Ma and Shi, arXiv 2602.07632 (2026). Each patch b has a copy lambda_b of the globals, which a
dual variable and a quadratic penalty with step eta tie to the shared lambda_0.

    1  draw a batch S_t of patches
    2  each b in S_t:   (phi_b, lambda_b) = argmin f_b + <dual_b, lambda_b> + |lambda_b - lambda_0|^2 / (2 eta)
    3                   dual_b += (lambda_b - lambda_0) / eta
    4  h       += (1/B) sum_{b in S_t} (lambda_b - lambda_0)
    5  lambda_0 = mean_{b in S_t} lambda_b + h

Line 4 divides by B, the number of all patches; |S_t| in one lemma of the paper is a slip.

Oracle I (`PDVI`) has one scalar eta. Oracle II (`P2DVI`) has one per coordinate, eta = 1 / (c L), where L is the
curvature of a patch at that coordinate. Line 2 alternates exact closed forms for `inner_rounds` rounds.

Guarantee: with a constant step that is small enough relative to 1/L, the distance from a stationary point falls as
O(1/T) in general and linearly under strong convexity. At a fixed point every lambda_b is lambda_0, dual_b = -grad f_b,
the duals sum to 0, and h = 0.

Three points differ from the paper.

Duals start at -grad f_b(lambda_0), as the proofs in the paper assume. Its Algorithm 1 and its code start them at 0, and
then the first visits wander; `SolverSettings.duals` chooses.

L is the mean curvature that visits meet, weighted by curvature: sum_b L_b^2 / sum_b L_b. For a domain that is spread
evenly over the patches it is the mean L/B; for a domain in a single patch it is the L of that patch. With the mean,
small domains would take steps far too large for them and die out. Steps are updated every epoch. The duals do not
depend on eta, and h = eta * mean_b dual_b is rescaled with it, so a fixed point remains one.

How small is "small enough" is found during the run. Large steps escape poor optima (F ends lower), so c starts at 1;
but when almost all posteriors are 0 or 1, single spots can flip back and forth for ever. P2D-VI therefore multiplies c
by `CAUTION` after `PATIENCE` epochs without a better stationarity, if F rose in several of them: a fit that goes
straight down but slowly would only become slower. And steps that are too large can lose all that was gained: the loop
replaces such an epoch by one of coordinate ascent from the best point so far (`P2DVI.fallback`), and c is multiplied by
`RETREAT`.

Steps that the user fixed do not change. Nor do those of `SolverSettings.step_size`, s, which are constant as in the
paper: 1/eta = L / s, with L the largest curvature that a visit meets at the start, in each block (oracle II) or in all
of them (oracle I). With these, no epoch is replaced.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem, blockwise, total
from spatialpdvi.solvers.base import Solver, SolverSettings, shuffled_batches
from spatialpdvi.solvers.coordinate_ascent import CAVI

__all__ = ["P2DVI", "PDVI", "Shared"]


PATIENCE = 10  # epochs in a window; steps become smaller if stationarity is no better than in the window before
CAUTION = 1.5  # the factor by which they become smaller
RETREAT = 4.0  # the factor by which they become smaller after an epoch that gave up what was gained
MOST_CAUTION = 64.0  # the largest factor overall
_CIRCLING = 3  # epochs of a window in which F rises, at least: one that circles raises F about as often as it lowers it
_BETTER = 0.9  # "better" means below this multiple of the best stationarity in the window before


class Shared(NamedTuple):
    """The state that all patches share."""

    lam: Blocks  # lambda_0
    h: Blocks  # running correction, eta * mean of all duals
    inv_step: Blocks  # 1/eta, one number per coordinate (all equal for oracle I)
    caution: float = 1.0  # the factor of c
    previous: float = np.inf  # best stationarity of the window before
    best: float = np.inf  # best stationarity of this window
    waited: int = 0  # epochs of this window so far
    rises: int = 0  # of them, those in which F rose
    neg_elbo: float = np.inf  # F after the last epoch


class Outgoing(NamedTuple):
    """The part of the shared state that a patch reads."""

    lam: Blocks
    inv_step: Blocks


class P2DVI(Solver):
    """Algorithm 1 with oracle II: every coordinate has its own step."""

    options: tuple[str, ...] = (
        "batch_patches",
        "inner_rounds",
        "duals",
        "step_factor",
        "step_size",
        "step_mean",
        "step_log_variance",
    )
    has_step = False
    sequential = False
    grows_cautious = True

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings
        self.needs_evaluation = settings.step_size is None  # steps follow the curvature unless they are constant
        self.fallback: Solver | None = CAVI(settings) if self.grows_cautious and settings.step_size is None else None

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Blocks, None]:
        """Start the dual at -grad f_b(lambda_0), or at 0."""
        if self.settings.duals == "zero":
            return blockwise(np.zeros_like, lam), None
        gradient = problem.gradient(problem.statistics(phi, patch, lam), patch, lam)
        return blockwise(np.negative, gradient), None

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Shared:
        """Store the globals; the first `begin_epoch` sets the steps."""
        zeros = blockwise(np.zeros_like, lam)
        return Shared(lam, zeros, zeros)

    def begin_epoch(
        self, problem: Problem, shared: Shared, evaluation: Evaluation, patch_states: Callable[[], tuple[Any, ...]]
    ) -> Shared:
        """Set 1/eta from the curvature, and rescale h accordingly: ``h = eta * mean_b dual_b``."""
        if self.settings.step_size is not None and any(block.any() for block in shared.inv_step):
            return shared  # constant steps, set before the first epoch
        if self.grows_cautious:
            shared = _update_caution(shared, evaluation)
        inv_step = self._inverse_steps(shared, evaluation)
        h = blockwise(lambda duals, inverse: duals / problem.n_patches / inverse, total(patch_states()), inv_step)
        return shared._replace(h=h, inv_step=inv_step)

    def with_smaller_steps(self, shared: Shared, failed: Shared) -> Shared:
        """Raise c fourfold, to at most `MOST_CAUTION`, however small the factor of the user is."""
        most = max(MOST_CAUTION, MOST_CAUTION / self.settings.step_factor)
        return shared._replace(caution=min(RETREAT * failed.caution, most))

    def outgoing(self, shared: Shared) -> Outgoing:
        """Send the globals and the steps; only `merge` needs h."""
        return Outgoing(shared.lam, shared.inv_step)

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Line 1, without replacement within an epoch, so that every patch is visited equally often."""
        return shuffled_batches(n_patches, self.settings.batch_patches, rng)

    def local(
        self, problem: Problem, shared: Outgoing, own: Blocks, phi: Any, patch: int, halo: Any
    ) -> tuple[Blocks, Blocks]:
        """Lines 2 and 3."""
        lam = shared.lam
        for _ in range(self.settings.inner_rounds):
            problem.update_locals(phi, patch, halo, lam)
            statistics = problem.statistics(phi, patch, lam)
            lam = problem.augmented_globals(statistics, patch, shared.lam, own, shared.inv_step)
        dual = blockwise(_dual_step, own, lam, shared.lam, shared.inv_step)
        return dual, lam

    def merge(self, problem: Problem, shared: Shared, messages: list[Blocks]) -> Shared:
        """Lines 4 and 5."""
        copies, n = total(messages), len(messages)
        h = blockwise(lambda h, own, before: h + (own - n * before) / problem.n_patches, shared.h, copies, shared.lam)
        lam = blockwise(lambda own, h: own / n + h, copies, h)
        return shared._replace(lam=lam, h=h)

    def _inverse_steps(self, shared: Shared, evaluation: Evaluation) -> Blocks:
        """1/eta = c L, coordinate by coordinate, or L / s block by block, or the value that the user fixed."""
        size, factor = self.settings.step_size, shared.caution * self.settings.step_factor
        if size is None:
            inv_step = blockwise(lambda curvature: factor * curvature, evaluation.visit_curvature)
        else:
            inv_step = blockwise(lambda block: np.full_like(block, block.max() / size), evaluation.visit_curvature)
        steps = self.settings.steps + (None,) * (len(inv_step) - len(self.settings.steps))
        return type(inv_step)(
            *(
                block if step is None else np.full_like(block, 1.0 / step)
                for block, step in zip(inv_step, steps, strict=True)
            )
        )


class PDVI(P2DVI):
    """Algorithm 1 with oracle I: one scalar step for all blocks, set by the steepest coordinate.

    By default it follows the curvature, 1/eta = c L. `SolverSettings.step_size` makes it constant. Flat coordinates
    make slow progress with either, which is no reason for smaller steps, so c does not grow.
    """

    options: tuple[str, ...] = ("batch_patches", "inner_rounds", "duals", "step_factor", "step_size")
    has_step = True
    grows_cautious = False

    def _inverse_steps(self, shared: Shared, evaluation: Evaluation) -> Blocks:
        size = self.settings.step_size
        largest = max(float(block.max()) for block in evaluation.visit_curvature)
        inverse = self.settings.step_factor * largest if size is None else largest / size
        return blockwise(lambda block: np.full_like(block, inverse), evaluation.curvature)


def _update_caution(shared: Shared, evaluation: Evaluation) -> Shared:
    """Increase the caution after a window of `PATIENCE` epochs that circled and was no better than the window before.

    Windows are compared, and not the best value so far: when a domain dies out late, stationarity jumps and then falls
    again, slowly and steadily, which is no reason for smaller steps.
    """
    shared = shared._replace(
        best=min(shared.best, evaluation.worst),
        waited=shared.waited + 1,
        rises=shared.rises + (evaluation.neg_elbo > shared.neg_elbo),
        neg_elbo=evaluation.neg_elbo,
    )
    if shared.waited < PATIENCE:
        return shared
    caution = shared.caution
    if shared.rises >= _CIRCLING and shared.best > _BETTER * shared.previous:
        caution = max(caution, min(CAUTION * caution, MOST_CAUTION))
    return shared._replace(caution=caution, previous=shared.best, best=np.inf, waited=0, rises=0)


def _dual_step(dual: np.ndarray, lam: np.ndarray, lam0: np.ndarray, inv_step: np.ndarray) -> np.ndarray:
    return dual + (lam - lam0) * inv_step
