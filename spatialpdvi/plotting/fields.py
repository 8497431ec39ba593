"""Flow directions and edge weights, over the domains in pale colours."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize, to_hex, to_rgb
from numpy.typing import NDArray

from spatialpdvi.plotting.labels import Labels
from spatialpdvi.plotting.maps import add_bar, add_legend, paint_labels
from spatialpdvi.plotting.tissue import Tissue

__all__ = ["choose_edges", "draw_edges", "draw_flow"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_APART = 0.11  # inches between two arrows: the least at which each can be read
_FILL = 0.85  # of that distance is an arrow's length, so that arrows do not touch
_PALE, _PALER = 0.55, 0.8  # share of white in the colours below strokes, below edges
_STROKE: dict[str, Any] = {"headwidth": 0.0, "headlength": 0.0, "headaxislength": 0.0}
_ARROW: dict[str, Any] = {"headwidth": 4.0, "headlength": 4.0, "headaxislength": 3.5}
_MOST = 200_000  # edges to draw; if there are more, most of them are shorter than two pixels
_WEIGHTS = "YlGnBu"  # dark stands for strong


class Edges(NamedTuple):
    """Edges to draw, weakest first, and how many there are in all."""

    ends: Ints  # (m, 2) spots, both in one section
    weights: Floats  # (m,)
    n_edges: int
    n_across: int  # of these, edges between sections, which lie on different maps

    @property
    def note(self) -> str:
        """How many edges are shown, in words."""
        n_within, shown = self.n_edges - self.n_across, len(self.weights)
        text = f"{shown:,} of {n_within:,} edges" if shown < n_within else f"{n_within:,} edges"
        return text + (f"; {self.n_across:,} between sections not shown" if self.n_across else "")


def draw_flow(axes: Axes, tissue: Tissue, flow: Floats, *, domains: Labels, colours: Sequence[str]) -> None:
    """Draw directions over the domains, one for each square of a grid: that of the spot nearest to its middle.

    Flow directions of a section in the plane are strokes, because g and -g give the same edge weights. Border normals
    of a section in space are arrows that are as long as their part in the plane: dots where a border faces the viewer.

    Parameters
    ----------
    axes
        Where to draw.
    tissue
        Positions, markers and sections.
    flow
        Unit vectors (n, 2) or (n, 3), 0 where undefined: these have no arrow.
    domains, colours
        Of the map below, which is drawn in pale colours.
    """
    pale = _with_white(colours, _PALE)
    shape = _ARROW if flow.shape[1] == 3 else _STROKE
    for section in tissue.maps(axes):
        paint_labels(section, domains.codes, pale)
        own = flow[section.chosen]
        apart = max(section.spots.spacing, _APART * section.spots.units_per_inch)
        shown = _thin(section.spots.position, np.any(own != 0, axis=1), apart)
        if not shown.size:
            continue
        x, y = section.spots.position[shown].T
        u, v = _FILL * apart * own[shown, :2].T
        # everything in units of the coordinates, in which y may point down
        settings = shape | {"angles": "xy", "scale_units": "xy", "scale": 1.0, "units": "xy", "width": 0.1 * apart}
        section.axes.quiver(x, y, u, v, pivot="mid", color="#222222", minlength=1.0, **settings)
    add_legend(axes, tissue, domains, colours=pale)


def choose_edges(tissue: Tissue, graph: sp.csr_matrix) -> Edges:
    """Choose the edges of a symmetric graph (n, n) to draw: at most two hundred thousand, at random."""
    upper = sp.triu(graph, k=1).tocoo()
    ends = np.stack([upper.row, upper.col], axis=1).astype(np.int64)
    weights = np.asarray(upper.data, dtype=np.float64)
    n_edges = len(weights)
    of = np.zeros(graph.shape[0], dtype=np.int64)
    for number, section in enumerate(tissue.sections):
        of[section.chosen] = number
    within = of[ends[:, 0]] == of[ends[:, 1]]
    kept = np.flatnonzero(within)
    if kept.size > _MOST:
        kept = np.random.default_rng(0).choice(kept, _MOST, replace=False)
    kept = kept[np.argsort(weights[kept], kind="stable")]
    return Edges(ends[kept], weights[kept], n_edges, n_edges - int(within.sum()))


def draw_edges(axes: Axes, tissue: Tissue, edges: Edges, *, domains: Labels, colours: Sequence[str]) -> None:
    """Draw edges over the domains as lines in the colour of their weight, strong ones on top.

    Parameters
    ----------
    axes
        Where to draw.
    tissue
        Positions, markers and sections.
    edges
        As `choose_edges` returns them.
    domains, colours
        Of the map below, which is drawn in pale colours.
    """
    n = len(domains.codes)
    position = np.empty((n, 2))
    # from the weakest to the strongest, because most weights are in the upper half of the possible range
    low, high = (float(edges.weights[0]), float(edges.weights[-1])) if edges.weights.size else (0.0, 1.0)
    norm = Normalize(low if low < high else 0.0, high)
    for section in tissue.maps(axes):
        paint_labels(section, domains.codes, _with_white(colours, _PALER))
        own = np.zeros(n, dtype=bool)
        own[section.chosen] = True
        position[section.chosen] = section.spots.position
        of = own[edges.ends[:, 0]]
        points = 72 * section.spots.spacing / section.spots.units_per_inch  # from spot to spot
        lines = LineCollection(
            list(position[edges.ends[of]]),
            linewidths=float(np.clip(0.2 * points, 0.25, 2.0)),
            capstyle="butt",
            cmap=_WEIGHTS,
            norm=norm,
            rasterized=True,
        )
        lines.set_array(edges.weights[of])
        section.axes.add_collection(lines, autolim=False)
    add_bar(axes, tissue, ScalarMappable(norm, _WEIGHTS), "edge weight")


def _thin(position: Floats, defined: NDArray[np.bool_], side: float) -> Ints:
    """Return, for each square of a grid, the defined spot nearest to its middle."""
    spots = np.flatnonzero(defined)
    cell = (position[spots] - position.min(axis=0)) / side + 0.5
    whole = np.floor(cell)
    off = ((cell - whole - 0.5) ** 2).sum(axis=1)
    order = np.lexsort((off, whole[:, 1], whole[:, 0]))
    whole = whole[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.any(whole[1:] != whole[:-1], axis=1)
    return np.sort(spots[order[first]])


def _with_white(colours: Sequence[str], share: float) -> list[str]:
    mixed = [share + (1 - share) * np.array(to_rgb(colour)) for colour in colours]
    return [to_hex((red, green, blue)) for red, green, blue in mixed]
