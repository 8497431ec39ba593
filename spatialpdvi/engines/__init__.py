"""Where the patches of a problem are stored and visited: in this process, or on the workers of a Dask cluster.

An engine decides *where* a patch is visited and must not know *what* a visit does. Halos are taken as they were when
the batch began, and messages return in the order of the batch, so results have the same bits on any engine and with any
number of threads or workers.
"""

from spatialpdvi.engines.base import Engine, PatchesLostError, ignore_overflow
from spatialpdvi.engines.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "PatchesLostError", "ignore_overflow"]
