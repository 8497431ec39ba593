"""The option ``--dask``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster
    from spatialpdvi.runtime.progress import Progress

__all__ = ["connected"]


@contextmanager
def connected(where: str | None, progress: "Progress") -> "Iterator[Cluster | None]":
    """Connect to a Dask cluster while the ``with`` lasts; without one, yield None."""
    if where is None:
        yield None
        return
    from spatialpdvi.distributed import connect

    with connect(where) as cluster:
        count = len(cluster.workers())
        progress.message(f"Dask: {count} {'worker' if count == 1 else 'workers'} on {where}.")
        yield cluster
        sent, received = cluster.traffic.sent / 1e6, cluster.traffic.received / 1e6
        progress.message(f"Dask: {sent:,.1f} MB sent to the workers, {received:,.1f} MB received.")
