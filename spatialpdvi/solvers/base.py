"""The contract of a solver, and what it carries from step to step.

One step updates a *batch* of patches. `local` does what belongs to one patch and may overwrite that patch's locals;
`merge` folds the patches' messages, in the batch's order, into what is shared. `spatialpdvi.fitting.loop` is the loop
of all solvers, and where patches live is the business of `spatialpdvi.engines`: `init_patch` and `local` may run
in another thread, process or computer than the rest, and what they are given and return may travel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from spatialpdvi.problems.base import Blocks, Evaluation, Problem

__all__ = ["Globals", "Solver", "SolverSettings", "State", "shuffled_batches"]


@dataclass(frozen=True)
class SolverSettings:
    """What may be set; each solver reads what concerns it. `spatialpdvi.options.fit` checks what users give.

    Parameters
    ----------
    batch_patches
        Patches updated in one step, all from the globals as they were when it began.
    inner_rounds
        Alternations of posteriors and globals within one visit of a patch.
    step_factor
        c in ``1/eta = c * (curvature that a visit of a patch finds)``: larger is more cautious.
    steps
        Fixed scalar steps eta, block by block, in place of the automatic ones; None leaves a block automatic.
    step_size
        The one step of a stochastic method (a solver whose ``has_step`` is true), dimensionless, > 0; None takes
        the method's default.
    """

    batch_patches: int = 1
    inner_rounds: int = 3
    step_factor: float = 1.0
    steps: tuple[float | None, ...] = ()
    step_size: float | None = None


class Globals(NamedTuple):
    """What most solvers' patches read of what is shared."""

    lam: Blocks


class State(NamedTuple):
    """All that changes while a solver runs; with the random generator's state it is a checkpoint."""

    phi: Any  # the problem's locals
    shared: Any  # the solver's own NamedTuple; its field `lam` holds the global blocks
    own: tuple[Any, ...]  # per patch, what the solver keeps of it between visits


class Solver(Protocol):
    """A mini-batch method for a finite-sum problem."""

    options: tuple[str, ...]
    """The user's options that it reads, by their names in `spatialpdvi.options.fit.FitOptions`."""

    has_step: bool
    """Whether `SolverSettings.step_size` matters: such methods are tuned before they are compared."""

    sequential: bool
    """Whether patches of one batch see each other's fresh locals (coordinate methods) or not (Algorithm 1)."""

    settings: SolverSettings

    def __init__(self, settings: SolverSettings) -> None: ...

    def init_patch(self, problem: Problem, phi: Any, patch: int, lam: Blocks) -> tuple[Any, Any]:
        """What the solver keeps of one patch at the start (phi, lambda), and what it tells the rest."""

    def init_shared(self, problem: Problem, lam: Blocks, messages: list[Any]) -> Any:
        """What is shared at the start, from the messages of all patches in their order."""

    def begin_epoch(
        self, problem: Problem, shared: Any, evaluation: Evaluation, kept: Callable[[], tuple[Any, ...]]
    ) -> Any:
        """Adapt what is shared to the curvature; called before every epoch with the problem as it stands.

        ``kept()`` fetches what is kept of every patch, which has to travel where patches live elsewhere.
        """

    def outgoing(self, shared: Any) -> Any:
        """The part of what is shared that `local` reads: all that has to travel to a patch."""

    def batches(self, n_patches: int, rng: np.random.Generator) -> list[np.ndarray]:
        """One epoch's batches: each patch occurs once."""

    def local(self, problem: Problem, shared: Any, own: Any, phi: Any, patch: int, halo: Any) -> tuple[Any, Any]:
        """Update one patch; returns what the solver keeps of it, and its message. ``shared`` is `outgoing`."""

    def merge(self, problem: Problem, shared: Any, messages: list[Any]) -> Any:
        """Fold the messages of one batch, in the batch's order, into what is shared."""


def shuffled_batches(n_patches: int, size: int, rng: np.random.Generator) -> list[np.ndarray]:
    """All patches in a new order, in batches of ``size`` (the last may be one smaller): each occurs once.

    A batch has one patch of each of ``size`` runs of consecutive patches. So its patches are far from each other in
    the section, where they see few of each other's old posteriors, and where runs of patches live on different
    workers, every worker has its part of every batch.
    """
    runs = [rng.permutation(run) for run in np.array_split(np.arange(n_patches), min(size, n_patches))]
    return [np.array([run[turn] for run in runs if turn < run.size]) for turn in range(runs[0].size)]
