"""The functions that workers run; patches with their posteriors and duals are stored here between visits.

The patches of a worker are in a dictionary of its process, by the name of their run. Nothing outlives the process, so a
worker that was restarted has no patches and raises `NotStoredError`.
"""

import platform
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.engines import ignore_overflow
from spatialpdvi.kernels.dispatch import run_serially_in_this_thread
from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.problems.potts_mixture import Part, PottsMixture, one_hot
from spatialpdvi.solvers.base import Solver
from spatialpdvi.version import library_versions

__all__ = [
    "NotStoredError",
    "Parcel",
    "begin",
    "call_unpacked",
    "drop",
    "evaluate",
    "keep",
    "patch_states",
    "posteriors",
    "recall",
    "store",
    "table",
    "versions",
    "visit",
]

_STORED: dict[str, dict[int, "_Patch"]] = {}
_LOCK = threading.Lock()


class NotStoredError(Exception):
    """The worker does not have the patches, because its process was restarted."""


class Parcel(NamedTuple):
    """A patch as it is sent to its worker."""

    patch: int
    problem: PottsMixture  # of this patch alone
    phi: np.ndarray  # (n_b, K) float64; or (n_b,) labels, where every posterior is 1 for its label
    n_domains: int
    codes: np.ndarray | None  # (n_b,) known labels
    border: np.ndarray  # (n_border,) the rows that other patches depend on
    state: Any  # the solver's state of the patch in a run that resumes; None at the start


class _Patch:
    def __init__(self, parcel: Parcel) -> None:
        self.problem, self.codes, self.border, self.state = parcel.problem, parcel.codes, parcel.border, parcel.state
        self.phi = parcel.phi if parcel.phi.ndim == 2 else one_hot(parcel.phi, parcel.n_domains)
        self.kept: np.ndarray | None = None


def store(run: str, parcels: Sequence[Parcel], first: bool) -> None:  # noqa: FBT001 - arguments are sent by place
    """Store patches under the name of a run, beside those of earlier tasks unless these are the first."""
    with _LOCK:
        patches = _STORED.setdefault(run, {}) if first else _patches(run)
        patches.update({parcel.patch: _Patch(parcel) for parcel in parcels})


def drop(run: str) -> None:
    """Free the patches of a run."""
    with _LOCK:
        _STORED.pop(run, None)


def call_unpacked(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call a function with arguments that were sent as one object; its result is not sent back."""
    function(*arguments)


def begin(run: str, solver: Solver, lam: Any) -> dict[int, Any]:
    """Initialise the patches of a run; return their first messages by patch."""
    run_serially_in_this_thread()
    messages = {}
    for number, patch in _patches(run).items():
        patch.state, messages[number] = solver.init_patch(patch.problem, patch.phi, number, lam)
    return messages


def visit(run: str, solver: Solver, sent: Any, halos: Sequence[tuple[int, np.ndarray]]) -> list[tuple[Any, np.ndarray]]:
    """Visit patches, given their numbers and halos; return their messages and the new posteriors of their borders."""
    run_serially_in_this_thread()
    found = []
    with ignore_overflow():
        for number, halo in halos:
            patch = _patches(run)[number]
            patch.state, message = solver.local(patch.problem, sent, patch.state, patch.phi, number, halo)
            found.append((message, patch.phi[patch.border]))
    return found


def evaluate(run: str, lam: Any, halos: Sequence[tuple[int, np.ndarray]]) -> list[Part]:
    """Compute the parts of the evaluation that come from patches, given their numbers and halos."""
    run_serially_in_this_thread()
    stored = _patches(run)
    with ignore_overflow():
        return [stored[number].problem.evaluate_patch(stored[number].phi, number, halo, lam) for number, halo in halos]


def patch_states(run: str) -> dict[int, Any]:
    """Return the solver's state of each patch."""
    return {number: patch.state for number, patch in _patches(run).items()}


def posteriors(run: str, kept: bool) -> dict[int, np.ndarray | None]:  # noqa: FBT001 - arguments are sent by place
    """Return the posteriors (n_b, K) of each patch, the present or the kept ones."""
    return {number: patch.kept if kept else patch.phi for number, patch in _patches(run).items()}


def keep(run: str, phi: dict[int, np.ndarray] | None) -> None:
    """Keep a copy of the posteriors of each patch, the present ones unless some are given."""
    for number, patch in _patches(run).items():
        patch.kept = (patch.phi if phi is None else phi[number]).copy()


def recall(run: str) -> None:
    """Go back to the posteriors that were kept."""
    for patch in _patches(run).values():
        assert patch.kept is not None  # the loop keeps a point before it goes back to one
        patch.phi = patch.kept.copy()


def table(run: str, n_labels: int) -> np.ndarray:
    """Count the spots (labels, domains) of all patches with each known label and most probable domain."""
    total: Any = 0
    for patch in _patches(run).values():
        assert patch.codes is not None  # the engine asks only where there are labels
        total += overlap(patch.codes, patch.phi.argmax(axis=1), shape=(n_labels, patch.phi.shape[1]))
    return np.asarray(total)


def versions() -> dict[str, str]:
    """Return the versions on which the bits of a result depend."""
    found = library_versions()
    return {name: found[name] for name in ("spatialpdvi", "numpy", "numba")} | {"python": platform.python_version()}


def _patches(run: str) -> dict[int, _Patch]:
    try:
        return _STORED[run]
    except KeyError:
        msg = "A worker was restarted and no longer has its patches."
        raise NotStoredError(msg) from None
