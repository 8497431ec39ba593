"""Counts that the workers read: each reads parts of the rows from the file, which it must be able to open."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import scipy.sparse as sp

from spatialpdvi.distributed.client import Cluster
from spatialpdvi.runtime.rows import Rows
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["ClusterRows"]

_PARTS_PER_WORKER = 2  # so that a slow worker does not keep all others waiting


class ClusterRows:
    """Rows on disk that the workers of a cluster read; a `spatialpdvi.runtime.rows.SpreadRows`."""

    def __init__(self, cluster: Cluster, rows: Rows) -> None:
        self._cluster, self._rows = cluster, rows
        self.shape = rows.shape

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Read blocks of rows in order, in this process."""
        return self._rows.blocks()

    def split(self, n_parts: int) -> Sequence[Rows]:
        """Split the rows into parts that can be sent to workers."""
        return self._rows.split(n_parts)

    def by_part(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Run ``function(part, *arguments)`` for every part, on any free worker; return the results in order."""
        parts = self._rows.split(_PARTS_PER_WORKER * len(self._cluster.workers()))
        return self._cluster.map(_on_one_thread, [(function, part, *arguments) for part in parts])


def _on_one_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    with single_threaded():
        return function(*arguments)
