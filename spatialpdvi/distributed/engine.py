"""Patches on the workers of a Dask cluster; only what is shared, messages and patch borders travel.

The driver keeps what patches see of each other, the posteriors of border spots: memory and traffic grow with the
patches' perimeter. A batch is one task for each worker that has patches in it. Everything is put together in the order
of patches, whoever answers first, and workers run the loops of one thread: the same bits as `LocalEngine`.
"""

import secrets
from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from spatialpdvi.distributed import worker as holding
from spatialpdvi.distributed.client import Cluster
from spatialpdvi.engines import PatchesLostError
from spatialpdvi.errors import InputError
from spatialpdvi.initialization import one_hot
from spatialpdvi.problems.base import Blocks, Evaluation
from spatialpdvi.problems.potts_mixture import PottsMixture
from spatialpdvi.solvers.base import Solver, State

__all__ = ["ClusterEngine"]

_MOST_LOSSES = 10  # of workers in one fit: more is no accident
_AT_ONCE = 64 << 20  # bytes of patches that travel in one task


class ClusterEngine:
    """An `Engine` whose patches live on workers.

    Parameters
    ----------
    cluster
        Whose workers get the patches, each a run of consecutive ones.
    problem
        With all its patches; of its features the workers get their own rows.
    codes
        Known labels (n,) in patch order, -1 where there is none.
    """

    def __init__(self, cluster: Cluster, problem: PottsMixture, *, codes: np.ndarray | None = None) -> None:
        self.problem = problem
        self._cluster = cluster
        self._codes = codes
        self._n_labels = 0 if codes is None else int(codes.max(initial=-1)) + 1
        patches = problem.patches.values()
        # rows that another patch sees, and where in them a patch finds its halo and its own
        self._rows = np.unique(np.concatenate([p.halo_rows for p in patches]))
        self._halos = [np.searchsorted(self._rows, p.halo_rows) for p in patches]
        self._owned = [slice(*np.searchsorted(self._rows, [p.start, p.stop])) for p in patches]
        self._border: np.ndarray  # (rows, K)
        self._home: dict[int, str] = {}  # worker of each patch
        self._solver: Solver
        self._run = ""
        self._losses = 0

    def begin(self, solver: Solver, start: tuple[Any, Blocks] | State) -> Any:
        """Phi stays as it is: workers get their rows of it."""
        self._solver = solver
        phi = start[0]
        kept = start.own if isinstance(start, State) else (None,) * self.problem.n_patches
        self._place(phi, kept)
        self._border = phi[self._rows]
        if isinstance(start, State):
            return start.shared
        lam = start[1]
        messages = self._collect(self._on_all(holding.begin, solver, lam))
        return solver.init_shared(self.problem, lam, messages)

    def visit(self, shared: Any, batch: np.ndarray) -> list[Any]:
        """One task for each worker; of a sequential solver one for each patch, one after the other."""
        patches, sent = [int(b) for b in batch], self._solver.outgoing(shared)
        if self._solver.sequential:
            return [message for b in patches for message in self._visit(sent, [b])]
        return self._visit(sent, patches)

    def kept(self) -> tuple[Any, ...]:
        """Fetched from the workers."""
        return tuple(self._collect(self._on_all(holding.kept)))

    def evaluate(self, lam: Blocks) -> Evaluation:
        """Parts are made by the workers."""
        homes = self._by_home(range(self.problem.n_patches))
        jobs = {worker: (self._run, lam, self._halos_of(own)) for worker, own in homes.items()}
        found = self._ask(holding.evaluate, jobs)
        parts = {b: part for worker, own in homes.items() for b, part in zip(own, found[worker], strict=True)}
        return self.problem.gather([parts[b] for b in sorted(parts)], lam)

    def table(self) -> np.ndarray | None:
        """Tables of the workers' spots, added up."""
        if self._codes is None:
            return None
        return np.sum(list(self._on_all(holding.table, self._n_labels).values()), axis=0)

    def state(self, shared: Any) -> State:
        """All posteriors come here, and what is kept."""
        phi = np.empty((self.problem.features.shape[0], self._border.shape[1]))
        for own in self._on_all(holding.locals_of).values():
            for b, rows in own.items():
                phi[self.problem.patches[b].start : self.problem.patches[b].stop] = rows
        return State(phi, shared, self.kept())

    def close(self) -> None:
        """Have the workers forget the patches."""
        if self._run:
            run, self._run = self._run, ""
            self._cluster.tell(holding.drop, dict.fromkeys(self._home.values()), run)

    def _place(self, phi: np.ndarray, kept: tuple[Any, ...]) -> None:
        """Give every patch to a worker that is there now."""
        n_patches = self.problem.n_patches
        self.close()
        self._run = secrets.token_hex(8)
        workers = self._cluster.workers()
        self._home = {b: workers[b * len(workers) // n_patches] for b in range(n_patches)}
        for worker, own in groupby(range(n_patches), key=self._home.__getitem__):
            load: list[holding.Parcel] = []
            size = 0
            for b in own:
                load.append(self._parcel(b, phi, kept[b]))
                size += load[-1].phi.nbytes + 4 * self.problem.features.shape[1] * len(load[-1].phi)
                if size > _AT_ONCE:
                    self._watched(self._cluster.send, holding.hold, worker, self._run, load)
                    load, size = [], 0
            self._watched(self._cluster.send, holding.hold, worker, self._run, load)

    def _parcel(self, b: int, phi: np.ndarray, kept: Any) -> holding.Parcel:
        p = self.problem.patches[b]
        own = phi[p.start : p.stop]
        labels = own.argmax(axis=1).astype(np.uint16)
        sure = bool((own == one_hot(labels, own.shape[1])).all())
        return holding.Parcel(
            patch=b,
            problem=self.problem.alone(b),
            phi=labels if sure else own,
            n_domains=own.shape[1],
            codes=None if self._codes is None else self._codes[p.start : p.stop],
            border=self._rows[self._owned[b]] - p.start,
            kept=kept,
        )

    def _visit(self, sent: Any, patches: list[int]) -> list[Any]:
        homes = self._by_home(patches)
        jobs = {worker: (self._run, self._solver, sent, self._halos_of(own)) for worker, own in homes.items()}
        found = self._ask(holding.visit, jobs)
        messages = {}
        for worker, own in homes.items():
            for b, (message, border) in zip(own, found[worker], strict=True):
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
        return self._ask(function, dict.fromkeys(dict.fromkeys(self._home.values()), (self._run, *arguments)))

    def _collect(self, found: dict[str, dict[int, Any]]) -> list[Any]:
        together = {b: value for own in found.values() for b, value in own.items()}
        return [together[b] for b in range(self.problem.n_patches)]

    def _ask(self, function: Any, jobs: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
        return dict(self._watched(self._cluster.run, function, jobs))

    def _watched(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Ask the cluster, and count how often workers leave."""
        try:
            return ask(*arguments)
        except PatchesLostError as lost:
            self._losses += 1
            if self._losses > _MOST_LOSSES:
                msg = (
                    f"Expected workers of `--dask {self._cluster.name}` to stay, found that they left {self._losses} "
                    "times. See their logs; they may need more memory."
                )
                raise InputError(msg) from lost
            raise
