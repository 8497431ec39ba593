"""Where the patches of a problem live, and who visits them: in this process, or on the workers of a cluster.

An engine may change *where* a visit is done, never *what* is done: halos are taken as they were when a batch began and
messages come back in the batch's order, so results have the same bits on any engine with any number of workers.
"""

from spatialpdvi.engines.base import Engine, PatchesLostError
from spatialpdvi.engines.local import LocalEngine

__all__ = ["Engine", "LocalEngine", "PatchesLostError"]
