"""Spots as markers that fill their share of the section: size and shape follow the spacing."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import allow_rasterization
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import PathCollection
from matplotlib.markers import MarkerStyle
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray
from scipy.spatial import cKDTree

__all__ = ["Marker", "SpotCollection", "Spots", "paint", "place_spots", "side_by_side"]

Floats = NDArray[np.float64]
# "s" (square) or "o" (disc), or a regular polygon of matplotlib: sides, 0, degrees by which it is turned
Marker = str | tuple[int, int, float]

_SAMPLE = 20_000  # spots whose neighbours are looked up
_WIDEST, _NARROWEST = 6.5, 1.8  # inches
_HIGHEST, _LOWEST = 4.2, 2.4
_APART = 0.1  # of a section's width: the space between two
# neighbours on a lattice are nearer than half-way to the second ring of a square one, at 1.41 spacings
_RING = 1.2
_OVERLAP = 1.0  # dots by which markers that tile overlap: half a dot each, or the paper shows through as a grid
_FULL = 0.9  # of the spacing, from which a spot is so wide that the section has no gaps
_TINY = 2.5  # dots: smaller discs and squares look alike, and squares are drawn faster
_ORDERED = 0.9  # mean resultant of the directions to neighbours: 1 on a lattice, near 0 for scattered cells


class Spots(NamedTuple):
    """Positions and markers of spots, and the size of their map."""

    position: Floats  # shape=(n, 2)
    spacing: float  # between neighbours, in units of the coordinates
    marker: Marker  # a square or hexagon that tiles on a lattice, else a disc
    size: tuple[float, float]  # width and height of the map in inches
    diameter: float | None = None  # of the markers, in units of the coordinates, where they do not fill the section
    alpha: float = 1.0  # of the markers: 1 hides what is below them

    def frame(self, axes: Axes) -> None:
        """Fit the section into axes of this size, with one scale for x and y, and y pointing down."""
        (x, y), scale = self._centre, self.units_per_inch
        axes.set_xlim(x - scale * self.size[0] / 2, x + scale * self.size[0] / 2)
        axes.set_ylim(y + scale * self.size[1] / 2, y - scale * self.size[1] / 2)
        # the scales are equal already; this keeps them so when the axes are resized
        axes.set_aspect("equal", adjustable="box")

    @property
    def on_map(self) -> Floats:
        """Positions on the map in inches from its upper left corner, (n, 2); y points down."""
        return np.asarray((self.position - self._centre) / self.units_per_inch + np.asarray(self.size) / 2)

    @property
    def _centre(self) -> Floats:
        return np.asarray((self.position.min(axis=0) + self.position.max(axis=0)) / 2)

    @property
    def area(self) -> float:
        """Marker size for matplotlib's scatter, in square points, of a marker as wide as the spacing."""
        return float((72 * self.width / self.units_per_inch) ** 2)

    @property
    def width(self) -> float:
        """The width of the marker as matplotlib defines it, in units of the coordinates."""
        if self.diameter is not None:
            return self.diameter
        if isinstance(self.marker, str):
            return self.spacing
        # matplotlib's width of a polygon is twice its circumradius; the spacing is twice its inradius
        return self.spacing / float(np.cos(np.pi / self.marker[0]))

    @property
    def units_per_inch(self) -> float:
        """Units of the coordinates per inch of the map."""
        extent = self.extent
        return float(max(extent[0] / self.size[0], extent[1] / self.size[1]))

    @property
    def extent(self) -> Floats:
        """Width and height with the spots at the edge, in units of the coordinates."""
        return np.asarray(np.ptp(self.position, axis=0) + 1.5 * self.spacing)

    def over_image(self, diameter: float | None, alpha: float) -> "Spots":
        """Return the same spots as they are drawn over an image: as wide as they are, so that it shows between them.

        Parameters
        ----------
        diameter
            Of a spot, in units of the coordinates, None where it is not known. Spots that fill the section still tile.
        alpha
            Of the markers, above 0 and at most 1.
        """
        if diameter is None or diameter >= _FULL * self.spacing:
            return self._replace(alpha=alpha)
        return self._replace(marker="o", diameter=diameter, alpha=alpha)

    def within(self, size: tuple[float, float]) -> "Spots":
        """Return the same spots on the largest map of their own shape that fits into ``size``, inches."""
        width, height = self.extent
        scale = min(size[0] / width, size[1] / height)
        return self._replace(size=(float(width * scale), float(height * scale)))


def place_spots(position: Floats) -> Spots:
    """Find spacing, marker and size of the map for spots at ``position``, (n, 2)."""
    distinct = np.unique(position[:, 0] + 1j * position[:, 1])
    distinct = np.column_stack([distinct.real, distinct.imag])
    spacing, marker = _lattice(distinct) if len(distinct) > 1 else (1.0, "s")
    spots = Spots(position, spacing, marker, (1.0, 1.0))
    width, height = spots.extent
    across = float(np.clip(_HIGHEST * width / height, _NARROWEST, _WIDEST))
    up = float(np.clip(across * height / width, _LOWEST, _HIGHEST))
    return spots._replace(size=(across, up))


def _lattice(distinct: Floats) -> tuple[float, Marker]:
    """Return the median distance to the nearest neighbour, and the marker that tiles, from directions to neighbours."""
    sampled = distinct[:: -(-len(distinct) // _SAMPLE)]
    far, near = cKDTree(distinct).query(sampled, k=min(7, len(distinct)))
    spacing = float(np.median(far[:, 1]))
    row, column = np.nonzero((far > 0) & (far < _RING * spacing))
    x, y = (distinct[near[row, column]] - sampled[row]).T
    angle = np.arctan2(y, x)
    turn = {sides: np.exp(1j * sides * angle).mean() for sides in (4, 6)}
    sides = max(turn, key=lambda n: abs(turn[n]))  # for two spots both are 1, and the square is taken
    if abs(turn[sides]) < _ORDERED:
        return spacing, "o"
    # y points down on the map, so the lattice is turned the other way there
    degrees = -float(np.degrees(np.angle(turn[sides]))) / sides
    if sides == 4:
        return spacing, "s" if abs(degrees) < 0.5 else (4, 0, degrees + 45.0)
    return spacing, (6, 0, degrees)


def side_by_side(position: Floats, sections: Sequence[NDArray[np.int64]]) -> Floats:
    """Move several sections, which may overlap, apart into rows; a single one stays where it is.

    Parameters
    ----------
    position
        (n, 2).
    sections
        Spots of each section, in reading order.

    Returns
    -------
    numpy.ndarray
        The new positions, (n, 2).
    """
    if len(sections) == 1:
        return position
    cell = (1.0 + _APART) * np.max([np.ptp(position[spots], axis=0) for spots in sections], axis=0)
    columns = int(np.ceil(np.sqrt(len(sections) * cell[1] / max(cell[0], 1e-300))))
    columns = min(max(columns, 1), len(sections))
    moved = np.empty_like(position)
    for number, spots in enumerate(sections):
        row, column = divmod(number, columns)
        moved[spots] = position[spots] - position[spots].min(axis=0) + cell * [column, row]
    return moved


class SpotCollection(PathCollection):
    """Markers at ``offsets`` (n, 2) that are always ``width`` units of the coordinates wide.

    The sizes of matplotlib's own scatter are in points, which become wrong after a zoom or when the layout changes the
    axes.
    """

    def __init__(self, offsets: Floats, width: float, marker: Marker, *, opacity: float = 1.0, **settings: Any) -> None:
        self._marker_path = _path(marker)
        self._tiny_path = _path("s" if marker == "o" else marker)
        super().__init__(self._marker_path, [1.0], offsets=offsets, linewidths=0, **settings)
        self._width, self._opacity = width, opacity
        self._overlap = 0.0 if marker == "o" else _OVERLAP
        self.set_transform(IdentityTransform())

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self, renderer: RendererBase) -> None:
        """Draw with the size that corresponds to the width on the present axes."""
        figure = self.figure
        if self.axes is not None and figure is not None:
            dots = self._width * abs(float(self.axes.transData.get_affine().get_matrix()[0, 0])) + self._overlap
            self.set_sizes(np.array([(dots * 72 / figure.dpi) ** 2]), figure.dpi)
            self.set_paths([self._tiny_path if dots < _TINY else self._marker_path])
        if self._opacity >= 1:
            super().draw(renderer)
            return
        # drawn opaque and faded together: each by itself, markers that overlap would show as a grid
        agg: Any = renderer  # spots are always pixels, which only this renderer draws
        agg.start_filter()
        super().draw(renderer)
        agg.stop_filter(lambda image, _: (image * np.array([1, 1, 1, self._opacity], dtype=np.float32), 0, 0))


def paint(axes: Axes, spots: Spots, chosen: NDArray[np.bool_] | slice = slice(None)) -> SpotCollection:
    """Add markers of the chosen spots, still without a colour, to axes that are framed for all of them."""
    drawn = SpotCollection(
        spots.position[chosen],
        spots.width,
        spots.marker,
        opacity=spots.alpha,
        offset_transform=axes.transData,
        # pixels also in SVG and PDF: a million squares would make a file that nobody can open
        rasterized=True,
    )
    axes.add_collection(drawn, autolim=False)
    return drawn


def _path(marker: Marker) -> Any:
    style = MarkerStyle(marker)
    return style.get_path().transformed(style.get_transform())
