"""The section that a fit needs, read from its source and checked."""

from typing import TYPE_CHECKING

import scipy.sparse as sp

from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.section import Section, read_section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.memory import free_memory, parse_size

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["read_inputs"]


def read_inputs(source: Source, options: FitOptions, cluster: "Cluster | None" = None) -> Section:
    """Section that a fit with these options needs, read and checked; counts are left to a ``cluster`` to read."""
    memory = free_memory() if options.memory is None else parse_size(options.memory)
    section = read_section(
        source,
        layer=options.layer,
        spatial_key=options.spatial_key,
        label_key=options.label_key,
        rep=options.rep,
        init=options.init,
        graph=options.graph,
        sample=options.sample_key,
        memory=memory if cluster is None else 0,
    )
    if cluster is None or section.counts is None or isinstance(section.counts, sp.csr_matrix):
        return section
    from spatialpdvi.distributed import ClusterRows

    return section._replace(counts=ClusterRows(cluster, section.counts))
