"""The same fit on the workers of a Dask cluster (extra ``[dask]``): connection, engine, reading, what workers run.

The one room that imports dask, and only when a cluster is asked for.
"""

from spatialpdvi.cluster.connection import Cluster, connect
from spatialpdvi.cluster.engine import ClusterEngine
from spatialpdvi.cluster.reading import ClusterRows

__all__ = ["Cluster", "ClusterEngine", "ClusterRows", "connect"]
