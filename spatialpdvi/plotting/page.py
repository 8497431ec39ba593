"""Panels on a page: a figure as large as what is drawn on it, arranged by matplotlib's constrained layout."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.transforms import Bbox

from spatialpdvi.plotting.labels import printable

__all__ = ["TEXT", "Heading", "Panel", "draw_page", "inches", "write_title"]

TEXT = 8  # points

_TITLE, _HEADING = 12, 10  # points: of the page, of a panel
_NARROW = 2.0  # inches: narrower axes of the user's own have small letters above them
_PAD = 0.12  # inches around each panel
_ASPECT = 2.0  # width to height of the window that a page should fit into


class Heading(NamedTuple):
    """The text above a panel."""

    title: str
    note: str = ""  # in smaller letters below the title


class Panel(NamedTuple):
    """One picture of a page."""

    size: tuple[float, float]  # width and height of its axes in inches, without legends and labels
    draw: Callable[[Axes], Heading]


class _Drawn(NamedTuple):
    """A panel that has been drawn."""

    axes: list[Axes]  # its own, and a second y axis if there is one
    size: tuple[float, float]
    room: Bbox  # from the lower left corner of its axes, with everything that stands around them; inches

    @property
    def width(self) -> float:
        return self.room.width + 2 * _PAD

    @property
    def above(self) -> float:
        return self.room.y1 - self.size[1] + _PAD

    @property
    def below(self) -> float:
        return _PAD - self.room.y0


def draw_page(panels: Sequence[Panel], *, title: str | None = None, figure: Figure | None = None) -> Figure:
    """Draw panels from left to right, in as many rows as a window of the usual shape shows best.

    Parameters
    ----------
    panels
        At least one.
    title
        Printed above all panels.
    figure
        An empty figure to draw on; by default a new one with its own canvas, which pyplot does not know.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, as large as its panels.
    """
    if figure is None:
        figure = Figure()
        FigureCanvasAgg(figure)
    drawn = _draw(figure, panels)
    rows = _break_rows(drawn)
    width, height = _size(rows)
    grid = figure.add_gridspec(len(rows), 1, height_ratios=[_height(row) for row in rows])
    for number, row in enumerate(rows):
        widths = [panel.size[0] for panel in row]
        # an empty column on the right keeps the panels of a short row as wide as they are
        spare = max(width - _width(row), 1e-3)
        cells = grid[number].subgridspec(1, len(row) + 1, width_ratios=[*widths, spare])
        highest = max(panel.size[1] for panel in row)
        for column, panel in enumerate(row):
            for axes in panel.axes:
                axes.set_subplotspec(cells[0, column])
                axes.set_anchor("NW")
                if panel.size[1] < highest and axes.get_aspect() == "auto":
                    axes.set_box_aspect(panel.size[1] / panel.size[0])
    if title:
        # the name of a file is not a formula, whatever characters it contains
        text = figure.suptitle(printable(title), x=_PAD / width, ha="left", fontsize=_TITLE, parse_math=False)
        height += text.get_window_extent().height / figure.dpi + 2 * _PAD
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained", w_pad=_PAD, h_pad=_PAD, wspace=0.0, hspace=0.0)
    return figure


def inches(axes: Axes) -> tuple[float, float]:
    """Return the present width and height of axes."""
    box, dpi = axes.get_window_extent(), axes.figure.dpi
    return box.width / dpi, box.height / dpi


def write_title(axes: Axes, heading: Heading) -> None:
    """Write a heading as the title of axes of the user's own, in lines that are no wider than the axes."""
    # a score stays on the line of its name
    text = "\n".join(filter(None, (heading.title, re.sub(r" (?=-?\d)", "\N{NO-BREAK SPACE}", heading.note))))
    usual = axes.set_title(text, fontsize=TEXT if inches(axes)[0] < _NARROW else _HEADING, parse_math=False)
    axes.title = _Title(*usual.get_position(), text, wrap=True, parse_math=False)
    axes.title.update_from(usual)
    axes.title.axes = axes
    axes.title.set_figure(axes.figure)


class _Title(Text):
    """A title that is broken into lines whenever it is drawn, because a layout makes axes narrower after that."""

    def _get_wrap_line_width(self) -> float:
        """Return the width of the axes; matplotlib's own text is as wide as the figure."""
        return 0.0 if self.axes is None else float(self.axes.get_window_extent().width)


def _draw(figure: Figure, panels: Sequence[Panel]) -> list[_Drawn]:
    """Draw all panels in one row, where axes have their final width, and measure them with their headings."""
    widths, heights = zip(*(panel.size for panel in panels), strict=True)
    figure.set_size_inches(sum(widths), max(heights))
    grid = figure.add_gridspec(
        1, len(panels), width_ratios=widths, left=0.0, right=1.0, bottom=0.0, top=1.0, wspace=0.0
    )
    groups, headings = [], []
    for column, panel in enumerate(panels):
        before = len(figure.axes)
        headings.append(panel.draw(figure.add_subplot(grid[0, column])))
        groups.append(figure.axes[before:])
    noted = any(heading.note for heading in headings)
    for group, heading in zip(groups, headings, strict=True):
        _add_heading(group[0], heading, noted=noted)
    return [_measure(group, panel.size) for group, panel in zip(groups, panels, strict=True)]


def _measure(group: list[Axes], size: tuple[float, float]) -> _Drawn:
    dpi = group[0].figure.dpi
    group = [axes for axes in group if axes.get_subplotspec() is not None]  # axes within axes follow them
    own = group[0].get_window_extent()
    around = Bbox.union([box for box in (axes.get_tightbbox() for axes in group) if box is not None])
    left, below = (around.x0 - own.x0) / dpi, (around.y0 - own.y0) / dpi
    right, above = (around.x1 - own.x1) / dpi, (around.y1 - own.y1) / dpi
    return _Drawn(group, size, Bbox([[left, below], [size[0] + right, size[1] + above]]))


def _add_heading(axes: Axes, heading: Heading, *, noted: bool) -> None:
    """Write title and note above the axes; where another panel has a note, the line of the note stays free."""
    _write_above(axes, heading.title, 18 if noted else 6).set_fontsize(_HEADING)
    if heading.note:
        _write_above(axes, heading.note, 6).set(fontsize=TEXT, color="#555555")


def _write_above(axes: Axes, text: str, points: float) -> Annotation:
    place = {"xycoords": "axes fraction", "textcoords": "offset points"}
    written = axes.annotate(text, (0, 1), (0, points), va="bottom", **place)  # type: ignore[arg-type]
    written.set_parse_math(False)  # it may be a name of the user's own
    return written


def _break_rows(panels: list[_Drawn]) -> list[list[_Drawn]]:
    """Put panels in their order into rows that make the page as small as possible in a window of a fixed shape.

    Among all ways to break the line, the narrowest page with a given number of rows is as wide as one of its rows,
    and rows that are filled up to that width are not more than these.
    """

    def cost(rows: list[list[_Drawn]]) -> tuple[float, int, float]:
        width, height = _size(rows)
        return max(width / _ASPECT, height), len(rows), width

    n = len(panels)
    widths = {_width(panels[first:last]) for first in range(n) for last in range(first + 1, n + 1)}
    return min((_fill(panels, width) for width in sorted(widths)), key=cost)


def _fill(panels: list[_Drawn], width: float) -> list[list[_Drawn]]:
    """Break the line where the next panel does not fit into the width."""
    rows = [panels[:1]]
    for panel in panels[1:]:
        if _width([*rows[-1], panel]) <= width + 1e-9:
            rows[-1].append(panel)
        else:
            rows.append([panel])
    return rows


def _size(rows: list[list[_Drawn]]) -> tuple[float, float]:
    return max(map(_width, rows)), sum(map(_height, rows))


def _width(row: list[_Drawn]) -> float:
    return sum(panel.width for panel in row)


def _height(row: list[_Drawn]) -> float:
    highest = max(panel.size[1] for panel in row)
    # panels hang from the top of their row, so a short one has room for its labels below itself
    below = max(panel.below - (highest - panel.size[1]) for panel in row)
    return max(panel.above for panel in row) + highest + max(below, _PAD)
