"""Where a fit starts: restarts on smoothed features, their consensus, and the parameters that follow from it."""

from spatialpdvi.initialization.consensus import Consensus, consensus
from spatialpdvi.initialization.restarts import in_unit_range, kmeans_labels, mixture_labels, restart_labels
from spatialpdvi.initialization.start import Start, noise_rotation, one_hot, start_from_labels

__all__ = [
    "Consensus",
    "Start",
    "consensus",
    "in_unit_range",
    "kmeans_labels",
    "mixture_labels",
    "noise_rotation",
    "one_hot",
    "restart_labels",
    "start_from_labels",
]
