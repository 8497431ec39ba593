"""The same fit on the workers of a Dask cluster (extra ``[dask]``): connection, engine, reading, worker functions.

No other package imports dask, and this one imports it only when a cluster is requested. It must not know solvers or
file formats: it carries them.
"""

from spatialpdvi.distributed.client import Cluster, connect
from spatialpdvi.distributed.engine import ClusterEngine
from spatialpdvi.distributed.rows import ClusterRows

__all__ = ["Cluster", "ClusterEngine", "ClusterRows", "connect"]
