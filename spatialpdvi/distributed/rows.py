"""Counts that the workers read: each takes parts of the rows from the file, which it must be able to see."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import scipy.sparse as sp

from spatialpdvi.distributed.client import Cluster
from spatialpdvi.runtime.rows import Rows
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["ClusterRows"]

_PARTS = 2  # of each worker, so that one that is slow does not keep all others waiting


class ClusterRows:
    """Rows on disk, gone over by the workers of a cluster; `spatialpdvi.runtime.rows.SpreadRows`."""

    def __init__(self, cluster: Cluster, rows: Rows) -> None:
        self._cluster, self._rows = cluster, rows
        self.shape = rows.shape

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order, read by this process."""
        return self._rows.blocks()

    def split(self, n_parts: int) -> Sequence[Rows]:
        """Parts that this process can hand on."""
        return self._rows.split(n_parts)

    def by_part(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``function(part, *arguments)`` on whichever worker is free."""
        parts = self._rows.split(_PARTS * len(self._cluster.workers()))
        return self._cluster.map(_on_one_thread, [(function, part, *arguments) for part in parts])


def _on_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    with single_threaded():
        return function(*arguments)
