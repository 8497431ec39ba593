"""The panels of a section, laid out in inches so that spots, legends and titles never overlap."""

from collections.abc import Mapping, Sequence
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
from spatialpdvi.plotting.panels import Heading, draw_confidence, draw_labels, draw_trace
from spatialpdvi.plotting.spots import Spots, place_spots

__all__ = ["plot_section"]

# Inches
_GAP, _MARGIN, _BOTTOM = 0.35, 0.15, 0.15
_HEAD, _SCORES, _TITLE = 0.35, 0.17, 0.35  # above the maps: their names, a line of scores, the title
_CHART_WIDTH, _CHART_LEFT, _CHART_RIGHT, _CHART_BOTTOM = 3.2, 0.6, 0.6, 0.35


def plot_section(
    coordinates: ArrayLike,
    domains: Any,
    *,
    annotation: Any | None = None,
    confidence: ArrayLike | None = None,
    trace: Mapping[str, ArrayLike] | None = None,
    scores: Mapping[str, Any] | None = None,
    title: str | None = None,
    colours: Mapping[str, str] | None = None,
) -> Figure:
    """Draw a section: its annotation, its domains, their confidence, and how the fit converged.

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
    scores
        Scores of the domains, of which ARI, NMI, CHAOS and PAS are printed where present.
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
    blank = None if line is None else ""  # the line stays free on the other panels
    page = _Page(spots)
    if label is not None:
        axes, heading = page.add_map(), Heading("Annotation", blank)
        page.keep_free(draw_labels(axes, spots, label, colours=of_labels, heading=heading))
    axes, heading = page.add_map(), Heading("Domains", line)
    page.keep_free(draw_labels(axes, spots, domain, colours=of_domains, heading=heading))
    if confidence is not None:
        values = _check_confidence(confidence, len(position))
        heading = Heading("Confidence", blank)
        page.keep_free(draw_confidence(page.add_map(), spots, values, heading=heading))
    if trace is not None:
        draw_trace(page.add_chart(), trace, heading=Heading("Convergence", blank))
    return page.finish(title, head=_HEAD + (_SCORES if line else 0))


class _Page:
    """A figure that grows to the right, panel by panel."""

    def __init__(self, spots: Spots) -> None:
        self._figure = Figure(figsize=(10, 5))
        FigureCanvasAgg(self._figure)
        self._right = _MARGIN  # where the next panel begins, in inches
        self._boxes: list[tuple[Axes, tuple[float, float, float, float]]] = []
        self._spots = spots

    def add_map(self) -> Axes:
        """Axes for a map; what stands beside it needs `keep_free`."""
        axes = self._add(self._right, _BOTTOM, *self._spots.size)
        self._spots.frame(axes)
        self._right += self._spots.size[0] + _GAP
        return axes

    def keep_free(self, width: float) -> None:
        """Room of so many inches before the next panel."""
        self._right += width

    def add_chart(self) -> Axes:
        """Axes for a chart, with room for an axis on either side."""
        left, bottom = self._right + _CHART_LEFT, _BOTTOM + _CHART_BOTTOM
        axes = self._add(left, bottom, _CHART_WIDTH, self._spots.size[1] - _CHART_BOTTOM)
        self._right = left + _CHART_WIDTH + _CHART_RIGHT + _GAP
        return axes

    def finish(self, title: str | None, *, head: float) -> Figure:
        """The figure, as large as its panels, with ``head`` inches above them."""
        width = self._right - _GAP + _MARGIN
        height = _BOTTOM + self._spots.size[1] + head + (_TITLE if title else 0)
        self._figure.set_size_inches(width, height)
        for axes, (left, bottom, across, up) in self._boxes:
            axes.set_position((left / width, bottom / height, across / width, up / height))
        if title:
            place = {"x": _MARGIN / width, "y": 1 - 0.12 / height}
            # A name of a file is no formula, whatever signs are in it.
            self._figure.suptitle(printable(title), **place, ha="left", va="top", fontsize=12, parse_math=False)
        return self._figure

    def _add(self, left: float, bottom: float, width: float, height: float) -> Axes:
        axes = self._figure.add_axes((0.1, 0.1, 0.8, 0.8))
        self._boxes.append((axes, (left, bottom, width, height)))
        return axes


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
