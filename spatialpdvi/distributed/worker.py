"""What workers run: patches with their posteriors and duals are held here, between one visit and the next.

A worker's patches are by the name of their run, in a dictionary of the process. Nothing here outlives the process, so
a worker that died has nothing and says so.
"""

import platform
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.initialization import one_hot
from spatialpdvi.kernels.dispatch import alone_in_thread
from spatialpdvi.metrics.clustering import contingency
from spatialpdvi.problems.potts_mixture import Part, PottsMixture
from spatialpdvi.solvers.base import Solver

__all__ = [
    "NotHereError",
    "Parcel",
    "begin",
    "drop",
    "evaluate",
    "hold",
    "kept",
    "locals_of",
    "table",
    "unpacked",
    "versions",
    "visit",
]

_HELD: dict[str, dict[int, "_Held"]] = {}
_LOCK = threading.Lock()


class NotHereError(Exception):
    """The worker does not hold the patches: it is another than it was."""


class Parcel(NamedTuple):
    """A patch as it travels to its worker."""

    patch: int
    problem: PottsMixture  # of this patch alone
    phi: np.ndarray  # (n_b, K) float64; or (n_b,) labels of posteriors that are sure of them
    n_domains: int
    codes: np.ndarray | None  # (n_b,) known labels
    border: np.ndarray  # (n_border,) its rows that other patches see
    kept: Any  # of a run that goes on; None where it begins


class _Held:
    def __init__(self, parcel: Parcel) -> None:
        self.problem, self.codes, self.border, self.kept = parcel.problem, parcel.codes, parcel.border, parcel.kept
        self.phi = parcel.phi if parcel.phi.ndim == 2 else one_hot(parcel.phi, parcel.n_domains)


def hold(run: str, parcels: Sequence[Parcel]) -> None:
    """Keep patches under the name of a run."""
    with _LOCK:
        _HELD.setdefault(run, {}).update({parcel.patch: _Held(parcel) for parcel in parcels})


def drop(run: str) -> None:
    """Forget a run."""
    with _LOCK:
        _HELD.pop(run, None)


def unpacked(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Call with arguments that came in one piece; what is returned stays here."""
    function(*arguments)


def begin(run: str, solver: Solver, lam: Any) -> dict[int, Any]:
    """The messages with which a solver begins, by patch."""
    alone_in_thread()
    messages = {}
    for patch, held in _of(run).items():
        held.kept, messages[patch] = solver.init_patch(held.problem, held.phi, patch, lam)
    return messages


def visit(run: str, solver: Solver, sent: Any, halos: Sequence[tuple[int, np.ndarray]]) -> list[tuple[Any, np.ndarray]]:
    """Visit patches, given what each sees of others: their messages, and what others see of them now."""
    alone_in_thread()
    found = []
    for patch, halo in halos:
        held = _of(run)[patch]
        held.kept, message = solver.local(held.problem, sent, held.kept, held.phi, patch, halo)
        found.append((message, held.phi[held.border]))
    return found


def evaluate(run: str, lam: Any, halos: Sequence[tuple[int, np.ndarray]]) -> list[Part]:
    """Parts of the evaluation."""
    alone_in_thread()
    held = _of(run)
    return [held[patch].problem.evaluate_patch(held[patch].phi, patch, halo, lam) for patch, halo in halos]


def kept(run: str) -> dict[int, Any]:
    """What the solver keeps of the patches."""
    return {patch: held.kept for patch, held in _of(run).items()}


def locals_of(run: str) -> dict[int, np.ndarray]:
    """Posteriors (n_b, K) of the patches."""
    return {patch: held.phi for patch, held in _of(run).items()}


def table(run: str, n_labels: int) -> np.ndarray:
    """Spots (labels, domains) of the patches by known label and most probable domain."""
    total: Any = 0
    for held in _of(run).values():
        assert held.codes is not None  # or the driver would not ask
        own = contingency(held.codes, held.phi.argmax(axis=1), held.phi.shape[1])
        total = total + np.pad(own, ((0, n_labels - own.shape[0]), (0, 0)))
    return np.asarray(total)


def versions() -> dict[str, str]:
    """Versions on which the bits of a result depend."""
    return {name: version(name) for name in ("spatialpdvi", "numpy", "numba")} | {"python": platform.python_version()}


def _of(run: str) -> dict[int, _Held]:
    try:
        return _HELD[run]
    except KeyError:
        msg = "a worker that had to be started anew"
        raise NotHereError(msg) from None
