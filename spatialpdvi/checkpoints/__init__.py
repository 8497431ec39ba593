"""Save a fit while it runs, so that a fit that was killed resumes and ends with the same bits; nothing is pickled."""

from spatialpdvi.checkpoints.checkpoint import EVERY, Checkpoint
from spatialpdvi.checkpoints.codec import named_types, pack, same_shapes, unpack
from spatialpdvi.checkpoints.identity import digest

__all__ = ["EVERY", "Checkpoint", "digest", "named_types", "pack", "same_shapes", "unpack"]
