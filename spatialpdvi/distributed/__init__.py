"""The same fit on the workers of a Dask cluster (extra ``[dask]``): connection, engine, reading, what workers run.

The one room that imports dask, and only when a cluster is asked for.
"""

from spatialpdvi.distributed.client import Cluster, connect
from spatialpdvi.distributed.engine import ClusterEngine
from spatialpdvi.distributed.rows import ClusterRows

__all__ = ["Cluster", "ClusterEngine", "ClusterRows", "connect"]
