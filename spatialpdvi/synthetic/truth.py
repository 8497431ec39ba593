"""What a simulated section would say without chance: the mean expression and the cells of its domains."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialpdvi.synthetic.cells import draw_cells
from spatialpdvi.synthetic.expression import draw_shares
from spatialpdvi.synthetic.options import Simulation
from spatialpdvi.synthetic.section import draw_section

__all__ = ["Truth", "simulation_truth"]

Floats = NDArray[np.float64]

_SECTIONS = 30  # over which the expectation is taken: its error is a fifth of the spread between sections


class Truth(NamedTuple):
    """The domains of a simulated section, as `simulate` draws them. Rows are in the order of the annotation."""

    section_mean: Floats  # (k, n_genes) counts per 10,000: the expectation given this section's cells and fields
    expected_mean: Floats  # (k, n_genes) the same over sections with this outline, these domains and these states
    spot_rate: Floats  # (n_spots, n_genes) expected counts of each spot, given its number of bursts
    cell_share: Floats  # (n_spots, n_states) share of each state among the cells of a spot
    composition: Floats  # (k, n_states) probability of each state in each domain


def simulation_truth(*, n_sections: int = _SECTIONS, **arguments: Any) -> Truth:
    """Return the truth behind ``simulate(**arguments)``.

    Parameters
    ----------
    n_sections
        Number of sections over which the expectation is taken, at least 1. Their bins and domains are those of this
        section; gradients, cells and depths are drawn anew.
    arguments
        Those of `spatialpdvi.simulate`.
    """
    drawn = draw_section(Simulation(**arguments))
    sources, cells, tissue = drawn.sources, drawn.cells, drawn.tissue
    n_spots, k = len(tissue.domain), len(tissue.names)
    everywhere = slice(0, n_spots)
    # a burst has one molecule and a Poisson number of others
    effect = np.diff(sources.cumulative, axis=1, prepend=0.0) * (1.0 + sources.burst)
    members = np.eye(k)[tissue.domain]
    rate = (sources.total[:n_spots, None] * sources.shares.of(everywhere)) @ effect
    rng = np.random.default_rng([drawn.frame.uns["simulation"]["seed"], 1])
    bursts = np.zeros((k, len(sources.cumulative)))
    for _ in range(n_sections):
        own = cells if drawn.composition is None else draw_cells(tissue, drawn.composition, rng)
        shares, _ = draw_shares(tissue, own, 1.0, rng)
        bursts += members.T @ shares.expected(everywhere)
    return Truth(
        section_mean=_per_10_000(members.T @ rate),
        expected_mean=_per_10_000(bursts @ effect),
        spot_rate=rate,
        cell_share=cells.share(everywhere),
        composition=np.eye(k) if drawn.composition is None else drawn.composition,
    )


def _per_10_000(counts: Floats) -> Floats:
    return np.asarray(1e4 * counts / counts.sum(axis=1, keepdims=True))
