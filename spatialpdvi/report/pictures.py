"""Pictures of a report as PNG: maps without a word in them, since the page writes the legends, and charts."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from spatialpdvi.errors import InputError
from spatialpdvi.palette import UNLABELLED
from spatialpdvi.plotting.charts import draw_scan, draw_trace
from spatialpdvi.plotting.colours import match_colours
from spatialpdvi.plotting.labels import read_labels
from spatialpdvi.plotting.panels import CONFIDENCE, Heading, draw_values, paint_labels
from spatialpdvi.plotting.reliability import draw_reliability
from spatialpdvi.plotting.tissue import Tissue, place_tissue
from spatialpdvi.report.content import Material

__all__ = ["LabelMap", "Maps", "Picture", "ValueMap", "draw_maps", "reliability_chart", "scan_chart", "trace_chart"]

_DPI, _LARGE_DPI = 200, 140  # of maps with more spots than these
_LARGE = 50_000
# Inches: the size of a chart, and what is free on the left, at the bottom, on the right and at the top.
_CHART, _SQUARE = (4.8, 3.0), (3.7, 3.7)
_LEFT, _BOTTOM, _RIGHT, _TOP = 0.8, 0.45, 0.65, 0.07
_NO_WORDS = Heading("", None)
_STOPS = 9  # of the gradient that stands for a colour map


class Picture(NamedTuple):
    """A PNG and its size on the page."""

    png: bytes
    width: int  # pixels of CSS
    height: int


class LabelMap(NamedTuple):
    """A map of labels with its legend."""

    picture: Picture
    names: list[str]
    colours: list[str]  # #rrggbb, one for each name
    unlabelled: str | None  # colour of the spots without a label, where there are any


class ValueMap(NamedTuple):
    """A map of numbers with its scale."""

    picture: Picture
    low: float
    high: float
    gradient: list[str]  # #rrggbb, from low to high


class Maps(NamedTuple):
    """All maps of a section."""

    domains: LabelMap
    annotation: LabelMap | None
    confidence: ValueMap
    agreement: ValueMap | None
    colours: dict[str, str]  # of the domains that have spots, by name


def draw_maps(material: Material) -> Maps:
    """Maps of domains, annotation, confidence and agreement; several sections of a file side by side.

    Raises
    ------
    InputError
        Where the colours that the file holds are none.
    """
    fitted = material.fitted
    assert fitted.coordinates is not None  # it was read with a key for them
    position, n = fitted.coordinates[:, :2], len(fitted.coordinates)
    if fitted.samples is None:
        tissue = place_tissue(position)
    else:
        names = [str(name) for name in fitted.samples.categories]
        tissue = place_tissue(position, names=names, codes=np.asarray(fitted.samples.codes))
    domains = read_labels(fitted.domains, n=n, what="domains")
    labels = None if fitted.annotation is None else read_labels(fitted.annotation, n=n, what="labels")
    own = None if fitted.colours is None else _as_hex(fitted.colours, [str(name) for name in fitted.domains.unique()])
    order = [str(fitted.domains.categories[code]) for code in np.unique(fitted.domains.codes)]
    of_domains, of_labels = match_colours(
        domains.codes,
        None if labels is None else labels.codes,
        colours=None if own is None else [own[name] for name in order],
    )

    def of(names: Any, colours: list[str]) -> LabelMap:
        def draw(axes: Axes) -> None:
            for section in tissue.maps(axes):
                paint_labels(section, names.codes, colours)

        picture = _map(tissue, n, draw)[0]
        return LabelMap(picture, names.names, colours, UNLABELLED if (names.codes < 0).any() else None)

    return Maps(
        domains=of(domains, of_domains),
        annotation=None if labels is None or not labels.names else of(labels, of_labels),
        confidence=_values(tissue, material.confidence),
        agreement=None if material.agreement is None else _values(tissue, material.agreement),
        colours=dict(zip(order, of_domains, strict=True)),
    )


def trace_chart(trace: Mapping[str, ArrayLike]) -> Picture:
    """F and its gradient against epochs."""
    return _chart(lambda axes: draw_trace(axes, trace, heading=_NO_WORDS))


def scan_chart(scan: Mapping[str, ArrayLike], k: int) -> Picture:
    """What chose the number of domains."""
    return _chart(lambda axes: draw_scan(axes, scan, k, heading=_NO_WORDS))


def reliability_chart(calibration: Mapping[str, Any]) -> Picture:
    """How far confidences can be believed."""
    return _chart(lambda axes: draw_reliability(axes, calibration, heading=_NO_WORDS), size=_SQUARE, right=_TOP)


def _values(tissue: Tissue, values: np.ndarray) -> ValueMap:
    picture, drawn = _map(
        tissue,
        len(values),
        lambda axes: draw_values(axes, tissue, values, scale=CONFIDENCE, heading=_NO_WORDS),
    )
    low, high = drawn[0].get_clim()
    stops = colormaps[CONFIDENCE.colours](np.linspace(0, 1, _STOPS))
    return ValueMap(picture, float(low), float(high), [to_hex(stop) for stop in stops])


def _map(tissue: Tissue, n_spots: int, draw: Any) -> tuple[Picture, list[Collection]]:
    """The map alone; what the drawing puts outside of its axes falls off the edge."""
    figure = Figure(figsize=tissue.size)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw(axes)
    maps = [axes] if tissue.is_alone else axes.child_axes
    drawn = [collection for own in maps for collection in own.collections]
    for spots in drawn:
        spots.set_antialiased(False)  # a few colours instead of thousands: a tenth of the bytes
    return _save(figure, dpi=_DPI if n_spots < _LARGE else _LARGE_DPI), drawn


def _chart(draw: Any, *, size: tuple[float, float] = _CHART, right: float = _RIGHT) -> Picture:
    """A chart alone; a heading of its own falls off the edge, as of a map."""
    width, height = size
    figure = Figure(figsize=size)
    FigureCanvasAgg(figure)
    wide, high = (width - _LEFT - right) / width, (height - _BOTTOM - _TOP) / height
    axes = figure.add_axes((_LEFT / width, _BOTTOM / height, wide, high))
    draw(axes)
    return _save(figure)


def _save(figure: Figure, *, dpi: int = _DPI) -> Picture:
    file = io.BytesIO()
    # without the program's version, so that the same file gives the same page
    figure.savefig(file, format="png", dpi=dpi, transparent=True, metadata={"Software": None})
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(file.getvalue(), width, height)


def _as_hex(colours: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Colours of the file as ``#rrggbb``, which is all that may reach a style of the page."""
    found = {}
    for name in names:
        try:
            found[name] = to_hex(colours[name])
        except (KeyError, ValueError):
            msg = (
                f"Expected a colour for each domain, found {colours.get(name)!r:.60} for {name!r:.60}. Give names or "
                "hexadecimal values that matplotlib knows."
            )
            raise InputError(msg) from None
    return found
