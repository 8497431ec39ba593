"""Maps of labels and of values with their keys, and what stands above any panel.

A map says how much room its key needs on its right.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation, Text
from numpy.typing import NDArray

from spatialpdvi.palette import UNLABELLED
from spatialpdvi.plotting.labels import Labels
from spatialpdvi.plotting.marks import paint
from spatialpdvi.plotting.tissue import TEXT, Map, Tissue

__all__ = [
    "CONFIDENCE",
    "TEXT",
    "Heading",
    "Scale",
    "add_bar",
    "add_heading",
    "add_key",
    "artist_width",
    "draw_labels",
    "draw_values",
    "paint_labels",
    "tidy",
]

Floats = NDArray[np.float64]

_LINE = 12.5  # points from one line of a legend to the next
_BAR = 0.68  # inches that a colour bar takes with its distance from the map


class Heading(NamedTuple):
    """What stands above a panel."""

    title: str
    note: str | None  # smaller, below the title; where it is empty, its line stays free


class Scale(NamedTuple):
    """How values become colours."""

    label: str
    low: float | None  # None: a round number below all values
    high: float | None  # None: a round number above all values
    colours: str  # name of a matplotlib map of colours; dark is unsure on all of ours


CONFIDENCE = Scale("posterior of the domain", None, 1.0, "viridis")


def draw_labels(
    axes: Axes,
    tissue: Tissue,
    labels: Labels,
    *,
    colours: Sequence[str],
    heading: Heading,
) -> float:
    """A map of labels with its legend on the right.

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
    heading
        Printed above the map.

    Returns
    -------
    float
        Width of the legend with its distance from the axes, in inches.
    """
    for section in tissue.maps(axes):
        paint_labels(section, labels.codes, colours)
    return add_key(axes, tissue, labels, colours=colours, heading=heading)


def add_key(axes: Axes, tissue: Tissue, labels: Labels, *, colours: Sequence[str], heading: Heading) -> float:
    """Legend and heading of a map of labels; the room that they take on its right, in inches."""
    head = add_heading(axes, heading)
    handles = [_swatch(*entry) for entry in zip(colours, labels.names, strict=True)]
    if (labels.codes < 0).any():
        handles.append(_swatch(UNLABELLED, "unlabelled"))
    legend = _add_legend(axes, handles, height=tissue.size[1])
    return max(artist_width(legend), artist_width(head) - tissue.size[0])


def paint_labels(section: Map, codes: NDArray[np.int64], colours: Sequence[str]) -> None:
    """Spots of one section in the colours of their labels; -1 is unlabelled."""
    own = codes[section.chosen]
    known = own >= 0
    if not known.all():
        paint(section.axes, section.spots, ~known).set_facecolor(UNLABELLED)
    if known.any():
        drawn = paint(section.axes, section.spots, known)
        drawn.set_array(own[known])
        drawn.set_cmap(ListedColormap(list(colours)))
        drawn.set_clim(-0.5, len(colours) - 0.5)


def draw_values(axes: Axes, tissue: Tissue, values: Floats, *, scale: Scale, heading: Heading) -> float:
    """A map of one number for each spot (n,) with its colour bar on the right, as `draw_labels` does."""
    finite = values[np.isfinite(values)]
    # tenths; a map of one value has some range all the same
    low = float(np.floor(10 * finite.min(initial=0.9)) / 10) if scale.low is None else scale.low
    high = float(np.ceil(10 * finite.max(initial=low + 0.1)) / 10) if scale.high is None else scale.high
    for section in tissue.maps(axes):
        drawn = paint(section.axes, section.spots)
        drawn.set_array(values[section.chosen])
        drawn.set_cmap(scale.colours)
        drawn.set_clim(low, high)
    head = add_heading(axes, heading)
    return max(add_bar(axes, tissue, drawn, scale.label), artist_width(head) - tissue.size[0])


def add_bar(axes: Axes, tissue: Tissue, drawn: ScalarMappable, label: str) -> float:
    """A colour bar on the right of the map; the room that it takes, in inches."""
    bar_axes = axes.inset_axes((1 + 0.1 / tissue.size[0], 0.25, 0.12 / tissue.size[0], 0.5))
    bar = axes.figure.colorbar(drawn, cax=bar_axes)
    bar.set_label(label, fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT, length=2)
    bar.outline.set_visible(False)
    return _BAR


def add_heading(axes: Axes, heading: Heading) -> Annotation:
    """Write title and note; the wider one's artist."""
    above = _above(axes, 6 if heading.note is None else 18, heading.title)
    above.set_fontsize(10)
    if heading.note:
        above = _above(axes, 6, heading.note)
        above.set(fontsize=TEXT, color="#555555")
    return above


def _above(axes: Axes, points: float, text: str) -> Annotation:
    """Text so many points above the axes, whatever their height."""
    place = {"xycoords": "axes fraction", "textcoords": "offset points"}
    return axes.annotate(text, (0, 1), (0, points), va="bottom", **place)  # type: ignore[arg-type]


def _swatch(colour: str, name: str) -> Line2D:
    return Line2D([], [], linestyle="", marker="s", markersize=6.5, color=colour, label=name)


def _add_legend(axes: Axes, handles: list[Line2D], *, height: float) -> Legend:
    rows = max(1, int(72 * height / _LINE))
    legend = Legend(
        axes,
        handles,
        [str(handle.get_label()) for handle in handles],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
        ncols=-(-len(handles) // rows),
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
    axes.add_artist(legend)
    return legend


def artist_width(artist: Legend | Text) -> float:
    """Inches; text is as wide as its font makes it, which only a renderer knows."""
    figure = artist.figure
    assert figure is not None  # both are on axes
    return artist.get_window_extent().width / figure.dpi


def tidy(axes: Axes) -> None:
    """Small figures at the ticks, and no line above the chart."""
    axes.tick_params(labelsize=TEXT, length=3)
    axes.tick_params(which="minor", labelsize=TEXT, length=2)  # labelled on a logarithmic axis of less than a decade
    axes.spines["top"].set_visible(False)
