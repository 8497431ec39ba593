"""The contract of a solver, its settings and its state, and what the stochastic solvers share.

One step updates a *batch* of patches. `local` updates one patch and may overwrite the local variables of that patch;
`merge` combines the messages of the patches, in the order of the batch, with the shared state. The loop around them is
`spatialpdvi.fitting.loop`. Where patches are stored is decided by `spatialpdvi.engines`: `init_patch` and `local` may
run in another thread, process or computer than the rest, so their arguments and results must be picklable.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem, Statistics

__all__ = ["Globals", "MiniBatchSolver", "Solver", "SolverSettings", "State", "shuffled_batches"]


@dataclass(frozen=True)
class SolverSettings:
    """Settings of solvers, of which each solver reads some. `spatialpdvi.options.fit` validates what users give.

    Parameters
    ----------
    batch_patches
        Patches that are updated in one step, all from the globals as they were when the step began.
    inner_rounds
        Alternations between posteriors and globals within one visit of a patch.
    step_factor
        c in ``1/eta = c * (curvature that one visit meets)``: larger values give smaller steps.
    duals
        Where the dual variables of PD-VI and P2D-VI start: "gradient", minus that of their patch, or "zero".
    steps
        Fixed scalar steps eta of P2D-VI, block by block, instead of the automatic ones; None leaves a block automatic.
    step_size
        The step of a solver whose ``has_step`` is true, dimensionless, > 0; None takes the default of the method.
    """

    batch_patches: int = 1
    inner_rounds: int = 3
    step_factor: float = 1.0
    duals: str = "gradient"
    steps: tuple[float | None, ...] = ()
    step_size: float | None = None


class Globals(NamedTuple):
    """The shared state that the patches of most solvers read."""

    lam: Blocks


class State(NamedTuple):
    """All that changes while a solver runs; together with the state of the random generator it is a checkpoint."""

    phi: Any  # the local variables of the problem
    shared: Any  # a NamedTuple of the solver; its field `lam` contains the global blocks
    own: tuple[Any, ...]  # the solver's state of each patch between visits


class Solver(Protocol):
    """A mini-batch method for a finite-sum problem."""

    options: tuple[str, ...]
    """The options that it reads, by their names in `spatialpdvi.options.fit.FitOptions`."""

    has_step: bool
    """Whether `SolverSettings.step_size` matters; such methods are tuned before they are compared."""

    needs_evaluation: bool
    """Whether its steps follow the evaluation of every epoch, whose time is then part of the solver's own."""

    sequential: bool
    """Whether the patches of a batch see each other's new local variables (coordinate methods) or not (Algorithm 1)."""

    fallback: "Solver | None"
    """A solver that never raises F. Its epochs replace those of this one that give up what was gained; None: nothing
    is replaced."""

    settings: SolverSettings

    def __init__(self, settings: SolverSettings) -> None: ...

    def with_smaller_steps(self, shared: Any, failed: Any) -> Any:
        """Return the shared state of a restart with smaller steps than ``failed`` has, that of a replaced epoch.

        It is called only where there is a `fallback`. A method without steps returns ``shared`` as it is.
        """
        return shared

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """Make the state of one patch at the start (phi, lambda), and its message."""

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Any:
        """Make the shared state at the start from the messages of all patches, in their order."""

    def begin_epoch(
        self, problem: Problem, shared: Any, evaluation: Evaluation, patch_states: Callable[[], tuple[Any, ...]]
    ) -> Any:
        """Adapt the shared state to the curvature; called before every epoch with the current evaluation.

        ``patch_states()`` returns the state of every patch; it costs traffic where patches are on other computers. A
        method whose steps do not follow the curvature returns ``shared`` as it is.
        """
        return shared

    def outgoing(self, shared: Any) -> Any:
        """Return the part of the shared state that `local` reads, which is all that is sent to a patch: the globals."""
        return Globals(shared.lam)

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Make the batches of one epoch, in which each patch occurs once on average."""

    def local(self, problem: Problem, shared: Any, own: Any, phi: Any, patch: int, halo: Any) -> tuple[Any, Any]:
        """Update one patch from its state ``own`` and from ``shared`` (see `outgoing`); return state and message."""

    def merge(self, problem: Problem, shared: Any, messages: list[Any]) -> Any:
        """Combine the messages of one batch, in its order, with the shared state."""


def shuffled_batches(n_patches: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Put all patches, in random order, into batches of ``size`` (the last ones may lack one patch).

    A batch has one patch from each of ``size`` runs of consecutive patches. Its patches are therefore far from each
    other in the section and depend little on each other's old posteriors; and where runs of patches are on different
    workers, every worker has a part of every batch.
    """
    runs = [rng.permutation(run) for run in np.array_split(np.arange(n_patches), min(size, n_patches))]
    return [np.array([run[turn] for run in runs if turn < run.size]) for turn in range(runs[0].size)]


class MiniBatchSolver(Solver):
    """Base class of the solvers that are tuned by `SolverSettings.step_size` alone."""

    options: tuple[str, ...] = ("batch_patches", "inner_rounds", "step_size")
    has_step = True
    needs_evaluation = False
    sequential = False
    fallback: Solver | None = None
    default_step = 0.1

    def __init__(self, settings: SolverSettings) -> None:
        self.settings = settings
        self.step_size = settings.step_size or self.default_step

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Every patch once per epoch, in a new order."""
        return shuffled_batches(n_patches, self.settings.batch_patches, rng)

    def n_batches(self, problem: Problem) -> int:
        """Number of batches T of an epoch, by which the sum over a batch estimates that over all patches.

        Each patch is in one of them, so that the mean over an epoch is the sum itself. The number of patches in the
        batch would not do: where the last batches lack a patch, all that they hold would count more.
        """
        return -(-problem.n_patches // min(self.settings.batch_patches, problem.n_patches))

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """A patch has neither state nor message."""
        return None, None

    def visit(self, problem: Problem, lam: Blocks, phi: Any, patch: int, halo: Any) -> Statistics:
        """Optimise the posteriors of a patch given the globals by `inner_rounds` sweeps; return their statistics."""
        for _ in range(self.settings.inner_rounds):
            problem.update_locals(phi, patch, halo, lam)
        return problem.statistics(phi, patch, lam)
