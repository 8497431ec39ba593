"""Figure of maps: the annotation on the left, then every solver's domains of one seed in the annotation's colours."""

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.markers import MarkerStyle
from numpy.typing import NDArray

from spatialpdvi.compare.runs import Run
from spatialpdvi.palette import UNLABELLED
from spatialpdvi.plotting.colours import match_colours
from spatialpdvi.plotting.labels import read_labels
from spatialpdvi.plotting.panels import Heading, draw_labels
from spatialpdvi.plotting.spots import Spots, place_spots
from spatialpdvi.plotting.tissue import Section, Tissue

__all__ = ["draw_maps"]

# Inches
_GAP, _MARGIN, _HEAD = 0.25, 0.15, 0.38
_SCALE = 0.5  # of the size that a map has on a page of its own
_ASPECT = 1.8  # width to height that the figure comes near to, by its number of columns


def draw_maps(coordinates: NDArray[np.float64], annotation: Any | None, runs: Sequence[Run]) -> Figure:
    """Annotation with its legend, and the domains of every run, ARI in the title; a run that failed is grey.

    A domain has the colour of the label that it covers best; without labels, of the first solver's domain that it
    covers best.

    Parameters
    ----------
    coordinates
        (n, 2) or more columns, of which the first two are drawn.
    annotation
        Known labels (n,), where there are any.
    runs
        Of one seed, with their domains.
    """
    place = place_spots(coordinates[:, :2])
    spots = place._replace(size=(_SCALE * place.size[0], _SCALE * place.size[1]))
    labels = None if annotation is None else read_labels(annotation, n=len(coordinates), what="labels")
    domains = [np.array(run.domains) for run in runs]
    figure = Figure(figsize=(10, 5))
    FigureCanvasAgg(figure)
    boxes: list[tuple[Axes, float, float]] = []  # left and top in inches
    left, reference = _MARGIN, domains[0]
    if labels is not None and labels.names:
        reference = labels.codes
        axes = _add_map(figure, spots)
        colours = match_colours(domains[0], reference)[1]
        tissue = Tissue([Section("", slice(None), spots)], 1, spots.size)
        legend = draw_labels(axes, tissue, labels, colours=colours, heading=Heading("Annotation", None))
        boxes.append((axes, left, _HEAD))
        left += spots.size[0] + legend + _GAP
    maps = [_add_map(figure, spots) for _ in runs]
    widths = [_draw_run(maps[i], spots, run, domains[i], reference=reference) for i, run in enumerate(runs)]
    cell = max(spots.size[0], *widths) + _GAP, spots.size[1] + _HEAD
    columns = _count_columns(len(runs), left, cell)
    for position, axes in enumerate(maps):
        row, column = divmod(position, columns)
        boxes.append((axes, left + column * cell[0], _HEAD + row * cell[1]))
    across = left + columns * cell[0] - _GAP + _MARGIN
    up = -(-len(runs) // columns) * cell[1] + _MARGIN
    figure.set_size_inches(across, up)
    for axes, x, y in boxes:
        axes.set_position((x / across, 1 - (y + spots.size[1]) / up, spots.size[0] / across, spots.size[1] / up))
    return figure


def _count_columns(n: int, left: float, cell: tuple[float, float]) -> int:
    """Columns of n maps, right of ``left``, for which the figure is nearest to its aspect; rows are even."""

    def aspect(columns: int) -> float:
        return (left + columns * cell[0]) / (-(-n // columns) * cell[1])

    best = min(range(1, n + 1), key=lambda columns: abs(math.log(aspect(columns) / _ASPECT)))
    rows = -(-n // best)
    return -(-n // rows)


def _add_map(figure: Figure, spots: Spots) -> Axes:
    axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
    spots.frame(axes)
    return axes


def _draw_run(axes: Axes, spots: Spots, run: Run, domains: NDArray[np.int64], *, reference: NDArray[np.int64]) -> float:
    """The domains with their title; its width in inches, which only a renderer knows."""
    palette = np.array([*match_colours(domains, reference)[0], UNLABELLED])  # code -1 is the last
    x, y = spots.position.T
    axes.scatter(x, y, s=spots.area, c=palette[domains], marker=MarkerStyle(spots.marker), linewidths=0)
    axes.set_axis_off()
    title = axes.set_title(_title(run), fontsize=10, loc="left", pad=6, va="bottom")
    canvas = cast("FigureCanvasAgg", cast("Figure", axes.figure).canvas)
    renderer: RendererAgg = canvas.get_renderer()  # type: ignore[no-untyped-call]
    return title.get_window_extent(renderer).width / canvas.figure.dpi


def _title(run: Run) -> str:
    if run.failed:
        return f"{run.solver}  failed"
    return run.solver if run.ari is None else f"{run.solver}  ARI {run.ari:.3f}"
