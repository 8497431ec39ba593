"""What each panel shows; a map also says how much room it needs on its right."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.collections import PathCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.colours import UNLABELLED
from spatialpdvi.errors import InputError
from spatialpdvi.plotting.labels import Labels
from spatialpdvi.plotting.spots import Spots

__all__ = ["TEXT", "Heading", "add_heading", "draw_confidence", "draw_labels", "draw_scan", "draw_trace", "tidy"]

Floats = NDArray[np.float64]

TEXT = 8  # points
_LINE = 12.5  # points from one line of a legend to the next
_OBJECTIVE, _GRADIENT, _FOUND = "#3f6fb5", "#d9711a", "#2b8a4b"


class Heading(NamedTuple):
    """What stands above a panel."""

    title: str
    note: str | None  # smaller, below the title; where it is empty, its line stays free


def draw_labels(
    axes: Axes,
    spots: Spots,
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
    spots
        Positions and marker.
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
    known = labels.codes >= 0
    if not known.all():
        _scatter(axes, spots, ~known).set_facecolor(UNLABELLED)
    if known.any():
        drawn = _scatter(axes, spots, known)
        drawn.set_array(labels.codes[known])
        drawn.set_cmap(ListedColormap(list(colours)))
        drawn.set_clim(-0.5, len(colours) - 0.5)
    axes.set_axis_off()
    head = add_heading(axes, heading)
    handles = [_swatch(*entry) for entry in zip(colours, labels.names, strict=True)]
    if not known.all():
        handles.append(_swatch(UNLABELLED, "unlabelled"))
    legend = _add_legend(axes, handles, height=spots.size[1])
    return max(_width(legend), _width(head) - spots.size[0])


def draw_confidence(axes: Axes, spots: Spots, confidence: Floats, *, heading: Heading) -> float:
    """A map of posterior probabilities with its colour bar on the right, as `draw_labels` does."""
    drawn = _scatter(axes, spots, np.ones(len(confidence), dtype=bool))
    drawn.set_array(confidence)
    drawn.set_cmap("viridis")
    finite = confidence[np.isfinite(confidence)]
    lowest = float(np.floor(10 * finite.min(initial=0.9)) / 10)  # a round number below them all
    drawn.set_clim(lowest, 1)
    axes.set_axis_off()
    add_heading(axes, heading)
    bar_axes = axes.inset_axes((1 + 0.1 / spots.size[0], 0.25, 0.12 / spots.size[0], 0.5))
    bar = axes.figure.colorbar(drawn, cax=bar_axes)
    bar.set_label("posterior of the domain", fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT, length=2)
    bar.outline.set_visible(False)
    return 0.68


def draw_trace(axes: Axes, trace: Mapping[str, ArrayLike], *, heading: Heading) -> None:
    """The objective and, on a logarithmic axis on the right, its gradient, both against epochs.

    Parameters
    ----------
    axes
        Where to draw.
    trace
        ``epoch``, ``neg_elbo`` and, where known, ``gradient_norm`` or ``stationarity``.
    heading
        Printed above the chart.
    """
    epoch, objective = _column(trace, "epoch"), _column(trace, "neg_elbo")
    power, unit = _nats(objective)
    _curve(axes, epoch, objective / 10.0**power, colour=_OBJECTIVE)
    add_heading(axes, heading)
    axes.set_xlabel("epoch", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_ylabel(f"negative ELBO ({unit})", fontsize=TEXT, color=_OBJECTIVE)
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    tidy(axes)
    key = "gradient_norm" if "gradient_norm" in trace else "stationarity"
    gradient = _column(trace, key) if key in trace else np.full(epoch.shape, np.nan)
    if not (gradient > 0).any():
        return
    right = axes.twinx()
    right.set_yscale("log")
    _curve(right, epoch, np.where(gradient > 0, gradient, np.nan), colour=_GRADIENT)
    right.set_ylabel(key.replace("_", " "), fontsize=TEXT, color=_GRADIENT)
    tidy(right)


def draw_scan(axes: Axes, scan: Mapping[str, ArrayLike], k: int | None, *, heading: Heading) -> None:
    """How many domains are found again and, on the right, the complete bound, both against the number of domains.

    Parameters
    ----------
    axes
        Where to draw.
    scan
        ``k``, ``found_again`` and ``neg_elbo`` (nats) of equal length.
    k
        Number of domains that was chosen, marked by a bar; None for no mark.
    heading
        Printed above the chart.
    """
    counts = _column(scan, "k", length="k", what="scan")
    found, objective = (_column(scan, name, length="k", what="scan") for name in ("found_again", "neg_elbo"))
    if k is not None:
        axes.axvline(k, color="#bbbbbb", linewidth=6, alpha=0.5, zorder=0)
    _curve(axes, counts, found, colour=_FOUND)
    add_heading(axes, heading)
    axes.set_xlabel("number of domains", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_ylabel("domains found again, net", fontsize=TEXT, color=_FOUND)
    tidy(axes)
    right = axes.twinx()
    power, unit = _nats(objective)
    _curve(right, counts, objective / 10.0**power, colour=_OBJECTIVE)
    right.set_ylabel(f"complete negative ELBO ({unit})", fontsize=TEXT, color=_OBJECTIVE)
    right.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    tidy(right)


def _nats(objective: Floats) -> tuple[int, str]:
    """Power of ten (of thousands) that a curve in nats is drawn in, and its unit."""
    largest = np.abs(objective[np.isfinite(objective)]).max(initial=1)
    power = 3 * int(np.log10(largest) // 3)
    return power, rf"$10^{{{power}}}$ nats" if power else "nats"


def _scatter(axes: Axes, spots: Spots, chosen: NDArray[np.bool_]) -> PathCollection:
    x, y = spots.position[chosen].T
    # As pixels also in SVG and PDF: a million squares would make a file that nobody can open.
    return axes.scatter(x, y, s=spots.area, marker=spots.marker, linewidths=0, rasterized=True)


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


def _width(artist: Legend | Annotation) -> float:
    """Inches; text is as wide as its font makes it, which only a renderer knows."""
    canvas = cast("FigureCanvasAgg", cast("Figure", artist.figure).canvas)
    renderer: RendererAgg = canvas.get_renderer()  # type: ignore[no-untyped-call]
    return artist.get_window_extent(renderer).width / canvas.figure.dpi


def _curve(axes: Axes, epoch: Floats, values: Floats, *, colour: str) -> None:
    known = np.isfinite(values)
    marker = "." if known.sum() < 40 else ""
    axes.plot(epoch[known], values[known], color=colour, linewidth=1.2, marker=marker)


def tidy(axes: Axes) -> None:
    """Small figures at the ticks, and no line above the chart."""
    axes.tick_params(labelsize=TEXT, length=3)
    axes.tick_params(which="minor", labelsize=TEXT, length=2)  # labelled on a logarithmic axis of less than a decade
    axes.spines["top"].set_visible(False)


def _column(table: Mapping[str, ArrayLike], key: str, *, length: str = "epoch", what: str = "trace") -> Floats:
    if key not in table:
        msg = (
            f"Expected a column {key!r} in the {what}, found {', '.join(sorted(table)) or 'none'}. "
            f"Give the {what} that a fit has written."
        )
        raise InputError(msg)
    values = np.asarray(table[key], dtype=np.float64)
    n = np.size(table[length])
    if values.shape != (n,):
        rows = "epochs" if length == "epoch" else f"rows of {length!r}"
        msg = (
            f"Expected columns of equal length in the {what}, found {n} {rows} and {key!r} of "
            f"shape {values.shape}. Give the {what} that a fit has written."
        )
        raise InputError(msg)
    return values
