"""Maps of labels and of values, with their legends and colour bars."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from spatialpdvi.palette import UNLABELLED
from spatialpdvi.plotting.labels import Labels, short
from spatialpdvi.plotting.page import TEXT
from spatialpdvi.plotting.spots import paint
from spatialpdvi.plotting.tissue import Map, Tissue

__all__ = ["CONFIDENCE", "Scale", "add_bar", "add_legend", "draw_labels", "draw_values", "paint_labels"]

Floats = NDArray[np.float64]

_LINE = 12.5  # points from one line of a legend to the next


class Scale(NamedTuple):
    """How values become colours."""

    label: str
    low: float | None  # None: a round number below all values
    high: float | None  # None: a round number above all values
    colours: str  # name of a matplotlib colour map; dark stands for uncertain


CONFIDENCE = Scale("posterior of the domain", None, 1.0, "viridis")


def draw_labels(axes: Axes, tissue: Tissue, labels: Labels, *, colours: Sequence[str]) -> None:
    """Draw a map of labels with its legend on the right.

    Parameters
    ----------
    axes
        Where to draw.
    tissue
        Positions, markers and sections.
    labels
        Label of each spot.
    colours
        One per name of the labels.
    """
    for section in tissue.maps(axes):
        paint_labels(section, labels.codes, colours)
    add_legend(axes, tissue, labels, colours=colours)


def paint_labels(section: Map, codes: NDArray[np.int64], colours: Sequence[str]) -> None:
    """Draw the spots of one section in the colours of their labels; -1 is unlabelled."""
    own = codes[section.chosen]
    known = own >= 0
    if not known.all():
        paint(section.axes, section.spots, ~known).set_facecolor(UNLABELLED)
    if known.any():
        drawn = paint(section.axes, section.spots, known)
        drawn.set_array(own[known])
        drawn.set_cmap(ListedColormap(list(colours)))
        drawn.set_clim(-0.5, len(colours) - 0.5)


def draw_values(axes: Axes, tissue: Tissue, values: Floats, *, scale: Scale) -> None:
    """Draw a map of one number for each spot (n,) with its colour bar on the right, as `draw_labels` does."""
    finite = values[np.isfinite(values)]
    # in tenths; the range of a map of a single value must not be empty
    low = float(np.floor(10 * finite.min(initial=0.9)) / 10) if scale.low is None else scale.low
    high = float(np.ceil(10 * finite.max(initial=low + 0.1)) / 10) if scale.high is None else scale.high
    for section in tissue.maps(axes):
        drawn = paint(section.axes, section.spots)
        drawn.set_array(values[section.chosen])
        drawn.set_cmap(scale.colours)
        drawn.set_clim(low, high)
    add_bar(axes, tissue, drawn, scale.label)


def add_bar(axes: Axes, tissue: Tissue, drawn: ScalarMappable, label: str) -> None:
    """Add a colour bar on the right of a map."""
    bar_axes = axes.inset_axes((1 + 0.1 / tissue.size[0], 0.25, 0.12 / tissue.size[0], 0.5))
    bar = axes.figure.colorbar(drawn, cax=bar_axes)
    bar.set_label(label, fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT, length=2)
    bar.outline.set_visible(False)


def add_legend(axes: Axes, tissue: Tissue, labels: Labels, *, colours: Sequence[str]) -> None:
    """Add a legend on the right of a map, in as many columns as its height needs."""
    entries = list(zip(colours, labels.names, strict=True))
    if (labels.codes < 0).any():
        entries.append((UNLABELLED, "unlabelled"))
    rows = max(1, int(72 * tissue.size[1] / _LINE))
    legend = axes.legend(
        handles=[Line2D([], [], linestyle="", marker="s", markersize=6.5, color=colour) for colour, _ in entries],
        labels=short(name for _, name in entries),
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=-(-len(entries) // rows),
        fontsize=TEXT,
        frameon=False,
        borderaxespad=0.0,
        handlelength=1.0,
        handletextpad=0.4,
        columnspacing=1.0,
        labelspacing=_LINE / TEXT - 1.15,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # names are the user's own, dollars and all
