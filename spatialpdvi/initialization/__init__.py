"""Where a fit starts: restarts on smoothed features, their consensus, and the parameters that follow from it."""

from spatialpdvi.initialization.compositions import (
    Sample,
    search_compositions,
    search_sets,
    settle_labels,
    start_from_composition,
)
from spatialpdvi.initialization.consensus import Consensus, consensus, renumbered
from spatialpdvi.initialization.restarts import (
    in_unit_range,
    kmeans_labels,
    mixture_labels,
    restart_labels,
)
from spatialpdvi.initialization.search import Found
from spatialpdvi.initialization.start import Start, noise_rotation, one_hot, start_from_labels
from spatialpdvi.initialization.states import (
    States,
    are_distinct,
    distinctness,
    learn_states,
    means_of_spots,
    state_posterior,
    states_of_communities,
    trends_within,
    why_unfit,
)

__all__ = [
    "Consensus",
    "Found",
    "Sample",
    "Start",
    "States",
    "are_distinct",
    "consensus",
    "distinctness",
    "in_unit_range",
    "kmeans_labels",
    "learn_states",
    "means_of_spots",
    "mixture_labels",
    "noise_rotation",
    "one_hot",
    "renumbered",
    "restart_labels",
    "search_compositions",
    "search_sets",
    "settle_labels",
    "start_from_composition",
    "start_from_labels",
    "state_posterior",
    "states_of_communities",
    "trends_within",
    "why_unfit",
]
