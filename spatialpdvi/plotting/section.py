"""The panels of a section, laid out in inches so that spots, legends and titles never overlap."""

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import is_color_like
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.errors import InputError, expect_finite
from spatialpdvi.plotting.colours import match_colours
from spatialpdvi.plotting.labels import printable, read_labels
from spatialpdvi.plotting.panels import Heading, draw_confidence, draw_labels, draw_scan, draw_trace
from spatialpdvi.plotting.reliability import draw_reliability
from spatialpdvi.plotting.spots import Spots, place_spots

__all__ = ["plot_section"]

# Inches
_GAP, _MARGIN, _BOTTOM = 0.35, 0.15, 0.15
_ASPECT = 2.0  # width to height of the window that a figure is laid out for
_HEAD, _SCORES, _TITLE = 0.35, 0.17, 0.35  # above the maps: their names, a line of scores, the title
_CHART_WIDTH, _CURVE_WIDTH, _CHART_LEFT, _CHART_RIGHT, _CHART_BOTTOM = 3.2, 2.8, 0.85, 0.6, 0.35


def plot_section(
    coordinates: ArrayLike,
    domains: Any,
    *,
    annotation: Any | None = None,
    confidence: ArrayLike | None = None,
    trace: Mapping[str, ArrayLike] | None = None,
    k_scan: Mapping[str, ArrayLike] | None = None,
    k: int | None = None,
    scores: Mapping[str, Any] | None = None,
    calibration: Mapping[str, Any] | None = None,
    title: str | None = None,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a section: its annotation and domains, how sure they are and may be, and how the fit converged.

    A domain and the annotated label that it covers best have one colour, one domain per label, so
    that the two maps can be compared by eye; unlabelled spots are light grey. The y axis points
    down, as in an image.

    Parameters
    ----------
    coordinates
        Positions, shape (n, 2) or more columns, of which the first two are drawn.
    domains
        Domain of each spot, shape (n,): a pandas Categorical or Series, names, or integer codes.
    annotation
        Known label of each spot, shape (n,), missing or negative where there is none.
    confidence
        Largest posterior probability of each spot, shape (n,), between 0 and 1.
    trace
        Columns ``epoch``, ``neg_elbo`` (nats) and ``gradient_norm`` (or ``stationarity``) of equal
        length; missing values are left out.
    k_scan
        Columns ``k``, ``found_again`` and ``neg_elbo`` (nats) of equal length, where the number of domains was chosen.
    k
        The number that was chosen, which the scan's chart marks.
    scores
        Scores of the domains, of which ARI, NMI, CHAOS and PAS are printed where present.
    calibration
        As a fit stores it in ``scores['calibration']``: ``reliability`` and ``ece``, and where known both with
        ``_calibrated``. Without ``reliability`` nothing is drawn of it.
    title
        Heading of the figure.
    colours
        Colour of each domain by its name, any that matplotlib knows; chosen here by default.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with its own canvas; pyplot knows nothing of it.
    """
    position = _check_coordinates(coordinates)
    spots = place_spots(position[:, :2])
    domain = read_labels(domains, n=len(position), what="domains")
    label = None
    if annotation is not None:
        label = read_labels(annotation, n=len(position), what="labels")
    own = None if colours is None else _check_colours(colours, domain.names)
    of_domains, of_labels = match_colours(domain.codes, None if label is None else label.codes, colours=own)
    if position.shape[1] > 2:
        note = f"first 2 of {position.shape[1]} axes"
        title = f"{title} ({note})" if title else note.capitalize()
    line = _score_line(scores)
    reliable = calibration if calibration is not None and "reliability" in calibration else None
    noted = line is not None or reliable is not None
    blank = "" if noted else None  # the line stays free on the other panels
    page = _Page(spots)
    if label is not None:
        axes, heading = page.add_map(), Heading("Annotation", blank)
        page.keep_free(draw_labels(axes, spots, label, colours=of_labels, heading=heading))
    axes, heading = page.add_map(), Heading("Domains", line or blank)
    page.keep_free(draw_labels(axes, spots, domain, colours=of_domains, heading=heading))
    if confidence is not None:
        values = _check_confidence(confidence, len(position))
        heading = Heading("Confidence", blank)
        page.keep_free(draw_confidence(page.add_map(), spots, values, heading=heading))
    if trace is not None:
        draw_trace(page.add_chart(_CHART_WIDTH, right=_CHART_RIGHT), trace, heading=Heading("Convergence", blank))
    if k_scan is not None:
        axes, heading = page.add_chart(_CHART_WIDTH, right=_CHART_RIGHT), Heading("How many domains", blank)
        draw_scan(axes, k_scan, k, heading=heading)
    if reliable is not None:
        draw_reliability(page.add_chart(_CURVE_WIDTH, right=0.0), reliable)
    return page.finish(title, head=_HEAD + (_SCORES if noted else 0))


class _Panel:
    """Axes, where they are within their panel, and how wide that is; in inches."""

    def __init__(self, axes: Axes, *, left: float, bottom: float, size: tuple[float, float], right: float) -> None:
        self.axes, self.left, self.bottom, self.size = axes, left, bottom, size
        self.width = left + size[0] + right


class _Page:
    """A figure that grows to the right, panel by panel, and downwards where it would become too wide to be read."""

    def __init__(self, spots: Spots) -> None:
        self._figure = Figure(figsize=(10, 5))
        FigureCanvasAgg(self._figure)
        self._panels: list[_Panel] = []
        self._spots = spots

    def add_map(self) -> Axes:
        """Axes for a map; what stands beside it needs `keep_free`."""
        axes = self._add(left=0.0, bottom=0.0, size=self._spots.size, right=0.0)
        self._spots.frame(axes)
        return axes

    def keep_free(self, width: float) -> None:
        """Room of so many inches on the right of the last panel."""
        self._panels[-1].width += width

    def add_chart(self, width: float, *, right: float) -> Axes:
        """Axes for a chart, with room for an axis on the left, and so much on the right."""
        size = (width, self._spots.size[1] - _CHART_BOTTOM)
        return self._add(left=_CHART_LEFT, bottom=_CHART_BOTTOM, size=size, right=right)

    def finish(self, title: str | None, *, head: float) -> Figure:
        """The figure, as large as its panels, with ``head`` inches above every row of them."""
        row_height = _BOTTOM + self._spots.size[1] + head
        rows = self._rows(row_height)
        width = _width(rows)
        height = len(rows) * row_height + (_TITLE if title else 0)
        self._figure.set_size_inches(width, height)
        for number, row in enumerate(rows):
            x, y = _MARGIN, (len(rows) - 1 - number) * row_height + _BOTTOM
            for panel in row:
                box = (x + panel.left) / width, (y + panel.bottom) / height
                panel.axes.set_position((*box, panel.size[0] / width, panel.size[1] / height))
                x += panel.width + _GAP
        if title:
            place = {"x": _MARGIN / width, "y": 1 - 0.12 / height}
            # A name of a file is no formula, whatever signs are in it.
            self._figure.suptitle(printable(title), **place, ha="left", va="top", fontsize=12, parse_math=False)
        return self._figure

    def _rows(self, row_height: float) -> list[list[_Panel]]:
        """Panels in their order, in rows that make the figure as small as can be in a window of a fixed shape."""

        def size(rows: list[list[_Panel]]) -> tuple[float, int, float]:
            width = _width(rows)
            return max(width / _ASPECT, len(rows) * row_height), len(rows), width

        n = len(self._panels)
        breaks = (chosen for r in range(n) for chosen in combinations(range(1, n), r))
        layouts = ([self._panels[first:last] for first, last in pairwise((0, *chosen, n))] for chosen in breaks)
        return min(layouts, key=size)

    def _add(self, *, left: float, bottom: float, size: tuple[float, float], right: float) -> Axes:
        axes = self._figure.add_axes((0.1, 0.1, 0.8, 0.8))
        self._panels.append(_Panel(axes, left=left, bottom=bottom, size=size, right=right))
        return axes


def _width(rows: list[list[_Panel]]) -> float:
    """Of a figure with these rows, in inches."""
    return max(sum(panel.width + _GAP for panel in row) for row in rows) - _GAP + 2 * _MARGIN


def _score_line(scores: Mapping[str, Any] | None) -> str | None:
    """The scores to print, or None if there is none."""
    scores = scores or {}
    present = [key for key in ("ari", "nmi", "chaos", "pas") if key in scores]
    return "   ".join(f"{key.upper()} {float(scores[key]):.3f}" for key in present) or None


def _check_coordinates(coordinates: ArrayLike) -> NDArray[np.float64]:
    position = np.asarray(coordinates, dtype=np.float64)
    if position.ndim != 2 or position.shape[1] < 2 or len(position) == 0:
        msg = f"Expected coordinates of shape (spots, 2) or (spots, 3), found {position.shape}. Give one row per spot."
        raise InputError(msg)
    expect_finite(position)
    return position


def _check_colours(colours: Mapping[str, str], names: Sequence[str]) -> list[str]:
    for name in names:
        if not is_color_like(colours.get(name)):
            msg = (
                f"Expected a colour for each domain, found {colours.get(name)!r} for {name!r}. Give names or "
                "hexadecimal values that matplotlib knows."
            )
            raise InputError(msg)
    return [colours[name] for name in names]


def _check_confidence(confidence: ArrayLike, n: int) -> NDArray[np.float64]:
    values = np.asarray(confidence, dtype=np.float64)
    if values.shape != (n,):
        msg = (
            f"Expected one confidence per spot, {n} of them, found an array of shape "
            f"{values.shape}. Give confidence and coordinates of the same spots."
        )
        raise InputError(msg)
    return values
