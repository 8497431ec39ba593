"""Patches on the workers of a Dask cluster; only the shared state, messages and patch borders are sent.

This process stores the posteriors of border spots, through which patches depend on each other, so memory and traffic
grow with the perimeter of the patches. A batch is one task for each worker that has patches in it. Results are combined
in the order of the patches, whichever worker answers first, and the kernels of a worker run serially: the bits are
those of `LocalEngine`.
"""

import contextlib
import secrets
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from spatialpdvi.distributed import worker
from spatialpdvi.distributed.client import Cluster
from spatialpdvi.engines import PatchesLostError
from spatialpdvi.errors import ResourceError
from spatialpdvi.problems.base import Blocks, Evaluation
from spatialpdvi.problems.potts_mixture import PottsMixture, one_hot
from spatialpdvi.solvers.base import Solver, State

__all__ = ["ClusterEngine"]

_MOST_LOSSES = 10  # of workers in one fit; more than that is no accident
_LARGEST_TASK = 64 << 20  # bytes of patches that are sent in one task


class ClusterEngine:
    """An `Engine` whose patches are on workers.

    Parameters
    ----------
    cluster
        The cluster; each of its workers gets a run of consecutive patches.
    problem
        The problem with all its patches; workers get the features of their own rows only.
    codes
        Codes (n,) of known labels in patch order; -1 where a spot has none.
    """

    def __init__(self, cluster: Cluster, problem: PottsMixture, *, codes: np.ndarray | None = None) -> None:
        self.problem = problem
        self._cluster = cluster
        self._codes = codes
        self._n_labels = 0 if codes is None else int(codes.max(initial=-1)) + 1
        patches = problem.patches.values()
        # the rows that another patch depends on, and where among them the halo and the own rows of each patch are
        self._rows = np.unique(np.concatenate([p.halo_rows for p in patches]))
        self._halos = [np.searchsorted(self._rows, p.halo_rows) for p in patches]
        self._owned = [slice(*np.searchsorted(self._rows, [p.start, p.stop])) for p in patches]
        self._border: np.ndarray  # (rows, K)
        self._kept_border: np.ndarray  # (rows, K)
        self._home: dict[int, str] = {}  # worker of each patch
        self._solver: Solver
        self._run = ""
        self._losses = 0

    def begin(self, solver: Solver, start: tuple[Any, Blocks] | State) -> Any:
        """Start or resume; phi is not changed, since workers get copies of their rows."""
        self._solver = solver
        phi = start[0]
        states = start.own if isinstance(start, State) else (None,) * self.problem.n_patches
        self._place(phi, states)
        self._border = phi[self._rows]
        return start.shared if isinstance(start, State) else self._start(solver, start[1])

    def restart(self, solver: Solver, lam: Blocks, *, kept: bool) -> Any:
        """Begin again with the posteriors that the workers have, or have kept."""
        self._solver = solver
        if kept:
            self._on_all(worker.recall)
            self._border = self._kept_border.copy()
        return self._start(solver, lam)

    def keep(self, phi: Any = None) -> None:
        """Let workers keep a copy of their posteriors."""
        if phi is None:
            self._on_all(worker.keep, None)
            self._kept_border = self._border.copy()
            return
        homes = self._by_home(range(self.problem.n_patches))
        rows = {address: {b: self._rows_of(phi, b) for b in own} for address, own in homes.items()}
        self._run_jobs(worker.keep, {address: (self._run, parts) for address, parts in rows.items()})
        self._kept_border = phi[self._rows]

    def kept(self) -> np.ndarray:
        """Fetch the posteriors that the workers have kept."""
        return self._posteriors(kept=True)

    def visit(self, shared: Any, batch: np.ndarray) -> list[Any]:
        """Send one task to each worker; a sequential solver visits one patch after another, each in its own task."""
        patches, sent = [int(b) for b in batch], self._solver.outgoing(shared)
        if self._solver.sequential:
            return [message for b in patches for message in self._visit(sent, [b])]
        return self._visit(sent, patches)

    def patch_states(self) -> tuple[Any, ...]:
        """Fetch the states from the workers."""
        return tuple(self._collect(self._on_all(worker.patch_states)))

    def evaluate(self, lam: Blocks) -> Evaluation:
        """Combine the parts of the evaluation that the workers compute."""
        homes = self._by_home(range(self.problem.n_patches))
        jobs = {address: (self._run, lam, self._halos_of(own)) for address, own in homes.items()}
        found = self._run_jobs(worker.evaluate, jobs)
        parts = {b: part for address, own in homes.items() for b, part in zip(own, found[address], strict=True)}
        return self.problem.gather([parts[b] for b in sorted(parts)], lam)

    def table(self) -> np.ndarray | None:
        """Add up the tables of the workers."""
        if self._codes is None:
            return None
        return np.sum(list(self._on_all(worker.table, self._n_labels).values()), axis=0)

    def state(self, shared: Any) -> State:
        """Fetch all posteriors and states of patches from the workers."""
        return State(self._posteriors(kept=False), shared, self.patch_states())

    def close(self) -> None:
        """Free the memory of the workers."""
        if self._run:
            run, self._run = self._run, ""
            with contextlib.suppress(ResourceError):  # the scheduler is gone: the next task says so, if there is one
                self._cluster.run_without_waiting(worker.drop, dict.fromkeys(self._home.values()), run)

    def _start(self, solver: Solver, lam: Blocks) -> Any:
        return solver.init_shared(self.problem, lam, self._collect(self._on_all(worker.begin, solver, lam)))

    def _posteriors(self, *, kept: bool) -> np.ndarray:
        phi = np.empty((self.problem.features.shape[0], self._border.shape[1]))
        for own in self._on_all(worker.posteriors, kept).values():
            for b, rows in own.items():
                self._rows_of(phi, b)[:] = rows
        return phi

    def _rows_of(self, phi: np.ndarray, b: int) -> np.ndarray:
        """A view of the rows of a patch."""
        return phi[self.problem.patches[b].start : self.problem.patches[b].stop]

    def _place(self, phi: np.ndarray, states: tuple[Any, ...]) -> None:
        """Send every patch to a worker that is connected now."""
        n_patches = self.problem.n_patches
        self.close()
        self._run = secrets.token_hex(8)
        addresses = self._cluster.workers()
        self._home = {b: addresses[b * len(addresses) // n_patches] for b in range(n_patches)}
        for address, own in groupby(range(n_patches), key=self._home.__getitem__):
            load: list[worker.Parcel] = []
            size, first = 0, True
            for b in own:
                load.append(self._parcel(b, phi, states[b]))
                size += load[-1].phi.nbytes + 4 * self.problem.features.shape[1] * len(load[-1].phi)
                if size > _LARGEST_TASK:
                    self._count_losses(self._cluster.send, worker.store, address, self._run, load, first)
                    load, size, first = [], 0, False
            self._count_losses(self._cluster.send, worker.store, address, self._run, load, first)

    def _parcel(self, b: int, phi: np.ndarray, state: Any) -> worker.Parcel:
        p = self.problem.patches[b]
        own = self._rows_of(phi, b)
        labels = own.argmax(axis=1).astype(np.uint16)
        is_one_hot = bool((own == one_hot(labels, own.shape[1])).all())
        return worker.Parcel(
            patch=b,
            problem=self.problem.only(b),
            phi=labels if is_one_hot else own,
            n_domains=own.shape[1],
            codes=None if self._codes is None else self._codes[p.start : p.stop],
            border=self._rows[self._owned[b]] - p.start,
            state=state,
        )

    def _visit(self, sent: Any, patches: list[int]) -> list[Any]:
        homes = self._by_home(patches)
        jobs = {address: (self._run, self._solver, sent, self._halos_of(own)) for address, own in homes.items()}
        found = self._run_jobs(worker.visit, jobs)
        messages = {}
        for address, own in homes.items():
            for b, (message, border) in zip(own, found[address], strict=True):
                messages[b] = message
                self._border[self._owned[b]] = border
        return [messages[b] for b in patches]

    def _halos_of(self, patches: list[int]) -> list[tuple[int, np.ndarray]]:
        return [(b, self._border[self._halos[b]]) for b in patches]

    def _by_home(self, patches: Any) -> dict[str, list[int]]:
        homes: dict[str, list[int]] = {}
        for b in patches:
            homes.setdefault(self._home[b], []).append(b)
        return homes

    def _on_all(self, function: Any, *arguments: Any) -> dict[str, Any]:
        return self._run_jobs(function, dict.fromkeys(dict.fromkeys(self._home.values()), (self._run, *arguments)))

    def _collect(self, found: dict[str, dict[int, Any]]) -> list[Any]:
        together = {b: value for own in found.values() for b, value in own.items()}
        return [together[b] for b in range(self.problem.n_patches)]

    def _run_jobs(self, function: Any, jobs: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
        return dict(self._count_losses(self._cluster.run, function, jobs))

    def _count_losses(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of the cluster; raise an error where workers have left too often."""
        try:
            return call(*arguments)
        except PatchesLostError as lost:
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                raise ResourceError(
                    f"Workers of the Dask cluster {self._cluster.name!r} left {self._losses} times.",
                    "See their logs; they may need more memory.",
                ) from lost
            raise
