"""Where panels are drawn: on a page that grows with them, laid out in inches, or in axes that somebody gives."""

from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from spatialpdvi.plotting.labels import printable
from spatialpdvi.plotting.panels import Heading
from spatialpdvi.plotting.tissue import Tissue

__all__ = ["Given", "Page", "Place", "inches"]

# Inches
_GAP, _MARGIN, _BOTTOM = 0.35, 0.15, 0.15
_ASPECT = 2.0  # width to height of the window that a figure is laid out for
_TITLE = 0.35
_HEAD, _NOTE = 0.35, 0.17  # above the panels: their names, a line of notes
_CHART_LEFT, _CHART_BOTTOM = 0.85, 0.35


class Place(Protocol):
    """Where a panel is drawn."""

    def heading(self, title: str, note: str | None = None) -> Heading:
        """What a panel has to write above itself."""

    def add_map(self, tissue: Tissue) -> tuple[Axes, Tissue]:
        """Axes for the tissue, and the tissue with its size on them; what stands beside it needs `keep_free`."""

    def keep_free(self, width: float) -> None:
        """Room of so many inches on the right of the last panel."""

    def add_chart(
        self, size: tuple[float, float], *, right: float, left: float = _CHART_LEFT, bottom: float = _CHART_BOTTOM
    ) -> Axes:
        """Axes for a chart of so many inches, its bottom included, with room for ticks and their labels around it."""


class Given:
    """Axes of the user's own, in a layout of the user's own."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes

    def heading(self, title: str, note: str | None = None) -> Heading:
        """Nothing: it is the title of the axes, which the user may replace."""
        self._axes.set_title("\n".join(filter(None, (title, note))), fontsize=10)
        return Heading("", None)

    def add_map(self, tissue: Tissue) -> tuple[Axes, Tissue]:
        """The axes, and the tissue as large as they are now."""
        return self._axes, tissue.within(inches(self._axes))

    def keep_free(self, width: float) -> None:
        """Nothing: the layout is the user's."""

    def add_chart(
        self, size: tuple[float, float], *, right: float, left: float = _CHART_LEFT, bottom: float = _CHART_BOTTOM
    ) -> Axes:
        """The axes."""
        return self._axes


class _Panel:
    """Axes, where they are within their panel, and how wide that is; in inches."""

    def __init__(self, axes: Axes, *, left: float, bottom: float, size: tuple[float, float], right: float) -> None:
        self.axes, self.left, self.bottom, self.size = axes, left, bottom, size
        self.width = left + size[0] + right


class Page:
    """A figure that grows to the right, panel by panel, and downwards where it would become too wide to be read.

    Parameters
    ----------
    figure
        To draw on; by default one with its own canvas, of which pyplot knows nothing.
    noted
        Whether some panel has a note below its title; the line stays free on the others.
    """

    def __init__(self, figure: Figure | None = None, *, noted: bool = False) -> None:
        self._figure = Figure(figsize=(10, 5)) if figure is None else figure
        if figure is None:
            FigureCanvasAgg(self._figure)
        self._panels: list[_Panel] = []
        self._noted = noted

    def heading(self, title: str, note: str | None = None) -> Heading:
        """What a panel has to write above itself."""
        return Heading(title, note or ("" if self._noted else None))

    def add_map(self, tissue: Tissue) -> tuple[Axes, Tissue]:
        """Axes for the tissue, and the tissue; what stands beside it needs `keep_free`."""
        return self._add(left=0.0, bottom=0.0, size=tissue.size, right=0.0), tissue

    def keep_free(self, width: float) -> None:
        """Room of so many inches on the right of the last panel."""
        self._panels[-1].width += width

    def add_chart(
        self, size: tuple[float, float], *, right: float, left: float = _CHART_LEFT, bottom: float = _CHART_BOTTOM
    ) -> Axes:
        """Axes for a chart of so many inches, its bottom included, with room for ticks and their labels around it."""
        return self._add(left=left, bottom=bottom, size=(size[0], size[1] - bottom), right=right)

    def finish(self, title: str | None) -> Figure:
        """The figure, as large as its panels, with their headings above every row of them."""
        head = _HEAD + (_NOTE if self._noted else 0.0)
        rows = self._rows(head)
        width = _width(rows)
        height = _height(rows, head) + (_TITLE if title else 0)
        self._figure.set_size_inches(width, height)
        top = _height(rows, head)
        for row in rows:
            x = _MARGIN
            for panel in row:
                box = (x + panel.left) / width, (top - head - panel.size[1]) / height
                panel.axes.set_position((*box, panel.size[0] / width, panel.size[1] / height))
                x += panel.width + _GAP
            top -= _height([row], head)
        if title:
            place = {"x": _MARGIN / width, "y": 1 - 0.12 / height}
            # A name of a file is no formula, whatever signs are in it.
            self._figure.suptitle(printable(title), **place, ha="left", va="top", fontsize=12, parse_math=False)
        return self._figure

    def _rows(self, head: float) -> list[list[_Panel]]:
        """Panels in their order, in rows that make the figure as small as can be in a window of a fixed shape.

        Of all ways to break the line: the narrowest page for a number of rows is as wide as some row of it, and rows
        filled up to that width are no more than these.
        """

        def size(rows: list[list[_Panel]]) -> tuple[float, int, float]:
            width, height = _width(rows), _height(rows, head)
            return max(width / _ASPECT, height), len(rows), width

        n = len(self._panels)
        widths = {_width([self._panels[first:last]]) for first in range(n) for last in range(first + 1, n + 1)}
        return min((self._filled(width) for width in sorted(widths)), key=size)

    def _filled(self, width: float) -> list[list[_Panel]]:
        """Rows, each as full as the width allows, with one panel at the least."""
        rows = [[self._panels[0]]]
        for panel in self._panels[1:]:
            if _width([[*rows[-1], panel]]) <= width + 1e-9:
                rows[-1].append(panel)
            else:
                rows.append([panel])
        return rows

    def _add(self, *, left: float, bottom: float, size: tuple[float, float], right: float) -> Axes:
        # as large as it will be; where, `finish` knows
        across, up = self._figure.get_size_inches()
        axes = self._figure.add_axes((0.0, 0.0, size[0] / across, size[1] / up))
        self._panels.append(_Panel(axes, left=left, bottom=bottom, size=size, right=right))
        return axes


def inches(axes: Axes) -> tuple[float, float]:
    """Width and height of axes as they are now."""
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    return box.width / dpi, box.height / dpi


def _width(rows: list[list[_Panel]]) -> float:
    """Of a figure with these rows, in inches."""
    return max(sum(panel.width + _GAP for panel in row) for row in rows) - _GAP + 2 * _MARGIN


def _height(rows: list[list[_Panel]], head: float) -> float:
    """Of these rows, in inches."""
    return sum(max(panel.bottom + panel.size[1] for panel in row) + head + _BOTTOM for row in rows)
