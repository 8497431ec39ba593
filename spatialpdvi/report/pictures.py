"""Pictures of a report as PNG: charts, and maps without text, because the page itself has the legends."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.io.results.described import StoredIntervals
from spatialpdvi.palette import UNLABELLED, palette
from spatialpdvi.plotting.charts import composition_size, draw_composition, draw_reliability, draw_scan, draw_trace
from spatialpdvi.plotting.description import contacts_figure
from spatialpdvi.plotting.intervals import intervals_figure
from spatialpdvi.plotting.labels import Labels, check_labels, choose_colours
from spatialpdvi.plotting.maps import CONFIDENCE, draw_values, paint_labels
from spatialpdvi.plotting.tissue import Tissue, place_tissue
from spatialpdvi.report.content import Material

__all__ = [
    "LabelMap",
    "Maps",
    "Picture",
    "ValueMap",
    "composition_chart",
    "contacts_chart",
    "draw_maps",
    "gradient",
    "intervals_chart",
    "reliability_chart",
    "scan_chart",
    "trace_chart",
    "with_palette",
]

_LARGE = 50_000  # spots of a large map
_DPI, _LARGE_DPI = 200, 140  # of smaller maps, of large ones
_MOST_PIXELS = 8_000  # of a side: many domains in many sections have large tables
_CHART, _SQUARE = (4.8, 3.0), (3.7, 3.7)  # inches
_STOPS = 9  # of the gradient that stands for a colour map


class Picture(NamedTuple):
    """A PNG and its size on the page."""

    png: bytes
    width: int  # pixels of CSS
    height: int

    @property
    def uri(self) -> str:
        """The picture as an address that contains all of it."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


class LabelMap(NamedTuple):
    """A map of labels with its legend."""

    caption: str
    codes: NDArray[np.int64]  # (n,), into the names; -1 where unlabelled
    picture: Picture
    names: list[str]
    colours: list[str]  # #rrggbb, one for each name
    unlabelled: str | None  # colour of the spots without a label, where there are any


class ValueMap(NamedTuple):
    """A map of numbers with its scale."""

    caption: str
    unit: str
    values: NDArray[np.float64]  # (n,)
    picture: Picture
    low: float
    high: float
    gradient: list[str]  # #rrggbb, from low to high


class Maps(NamedTuple):
    """All maps of a section."""

    tissue: Tissue
    domains: LabelMap
    annotation: LabelMap | None
    confidence: ValueMap
    agreement: ValueMap | None
    colours: dict[str, str]  # of the domains that have spots, by name, in the order of their codes

    def code_of(self, domain: str) -> int:
        """Return the code of a domain on its map."""
        return list(self.colours).index(domain)


def draw_maps(material: Material) -> Maps:
    """Draw maps of domains, annotation, confidence and agreement, with several sections of a file side by side.

    Raises
    ------
    InputError
        If a colour of a domain in the file is not a colour.
    """
    fitted = material.fitted
    assert fitted.coordinates is not None  # they were read with the fit
    n = len(fitted.coordinates)
    tissue = place_tissue(fitted.coordinates[:, :2], fitted.samples)
    domains = check_labels(fitted.domains, n=n, what="domains")
    labels = None if fitted.annotation is None else check_labels(fitted.annotation, n=n, what="labels")
    order = [str(fitted.domains.categories[code]) for code in np.unique(fitted.domains.codes)]
    stored = {"colours": fitted.colours, "label_colours": fitted.label_colours}
    of_domains, of_labels = choose_colours(domains, labels, **stored)

    def of(caption: str, shown: Labels, colours: list[str]) -> LabelMap:
        def draw(axes: Axes) -> None:
            for section in tissue.maps(axes):
                paint_labels(section, shown.codes, colours)

        picture = _map(tissue, n, draw)[0]
        grey = UNLABELLED if (shown.codes < 0).any() else None
        return LabelMap(caption, shown.codes, picture, shown.names, colours, grey)

    key = material.fitted.label_key
    of_annotation = "Annotation" if key is None else f"Annotation (obs['{key}'])"
    unit = "posterior of the domain" if fitted.calibrated is None else "calibrated posterior of the domain"
    restarts = "Agreement of restarts", "share of restarts"
    return Maps(
        tissue=tissue,
        domains=of("Domains", domains, of_domains),
        annotation=None if labels is None or not labels.names else of(of_annotation, labels, of_labels),
        confidence=_values("Confidence", unit, tissue, fitted.shown_confidence),
        agreement=None if material.agreement is None else _values(*restarts, tissue, material.agreement),
        colours=dict(zip(order, of_domains, strict=True)),
    )


def trace_chart(trace: Mapping[str, ArrayLike]) -> Picture:
    """Draw F and its gradient against epochs."""
    return _chart(partial(draw_trace, trace=trace))


def scan_chart(scan: Mapping[str, ArrayLike], k: int) -> Picture:
    """Draw the scan that chose the number of domains."""
    return _chart(partial(draw_scan, scan=scan, k=k))


def composition_chart(composition: np.ndarray, domains: Sequence[str]) -> Picture:
    """Draw the share of each state in each domain."""
    colours = palette(composition.shape[1])
    draw = partial(draw_composition, composition=composition, domains=domains, colours=colours)
    width, height = composition_size(len(domains))
    return _chart(draw, size=(width + 1.0, height + 0.7))


def contacts_chart(contacts: pd.DataFrame) -> Picture:
    """Draw which domains touch, in each section of the table of contacts."""
    return _save(contacts_figure(contacts))


def intervals_chart(intervals: StoredIntervals) -> Picture:
    """Draw the intervals of expression, contrasts and composition."""
    return _save(intervals_figure(*intervals))


def reliability_chart(calibration: Mapping[str, Any]) -> Picture:
    """Draw the share of spots that are right by confidence."""
    return _chart(partial(draw_reliability, calibration=calibration), size=_SQUARE)


def gradient(name: str) -> list[str]:
    """Return colours of matplotlib's colour map of this name from low to high, as ``#rrggbb``."""
    return [to_hex(stop) for stop in colormaps[name](np.linspace(0, 1, _STOPS))]


def _values(caption: str, unit: str, tissue: Tissue, values: np.ndarray) -> ValueMap:
    picture, drawn = _map(tissue, len(values), partial(draw_values, tissue=tissue, values=values, scale=CONFIDENCE))
    low, high = drawn[0].get_clim()
    return ValueMap(caption, unit, values, picture, float(low), float(high), gradient(CONFIDENCE.colours))


def _map(tissue: Tissue, n_spots: int, draw: Callable[[Axes], None]) -> tuple[Picture, list[Collection]]:
    """Draw a map that fills its picture; legends and colour bars beside it are cut off, since the page writes them."""
    figure = Figure(figsize=tissue.size)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    draw(axes)
    maps = [axes] if tissue.is_alone else axes.child_axes
    drawn = [collection for own in maps for collection in own.collections]
    for spots in drawn:
        spots.set_antialiased(False)  # a few colours instead of thousands: a tenth of the bytes
    picture = _save(figure, dpi=_DPI if n_spots < _LARGE else _LARGE_DPI)
    return picture._replace(png=with_palette(picture.png)), drawn


def with_palette(png: bytes) -> bytes:
    """Return the same picture with a palette, in a third of the bytes, unless it has more than 256 colours."""
    from PIL import Image

    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGBA")).view(np.uint32)[..., 0]
    found, place = np.unique(pixels, return_inverse=True)
    if len(found) > 256:
        return png
    colours = found.view(np.uint8).reshape(-1, 4)
    picture = Image.fromarray(place.reshape(pixels.shape).astype(np.uint8))
    picture.putpalette(colours[:, :3].tobytes())
    file = io.BytesIO()
    # not optimised, which takes ten times as long for a fourteenth of the bytes
    picture.save(file, format="png", transparency=colours[:, 3].tobytes())
    return file.getvalue()


def _chart(draw: Callable[[Axes], None], *, size: tuple[float, float] = _CHART) -> Picture:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure.subplots())
    return _save(figure)


def _save(figure: Figure, *, dpi: int = _DPI) -> Picture:
    file, dpi = io.BytesIO(), min(dpi, int(_MOST_PIXELS / max(figure.get_size_inches())))
    # without the program's version, so that the same file gives the same page
    figure.savefig(file, format="png", dpi=dpi, transparent=True, metadata={"Software": None})
    width, height = (round(96 * inches) for inches in figure.get_size_inches())
    return Picture(file.getvalue(), width, height)
