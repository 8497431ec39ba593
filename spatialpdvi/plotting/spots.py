"""Spots as markers that fill their share of the section: size and shape follow the spacing."""

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

from spatialpdvi.runtime.rows import slices

__all__ = ["Marker", "SpotCollection", "Spots", "paint", "place_spots"]

Floats = NDArray[np.float64]
# "s" (square) or "o" (disc), or a regular polygon of matplotlib: sides, 0, degrees by which it is turned
Marker = str | tuple[int, int, float]

_SAMPLE = 20_000  # spots whose neighbours are looked up
_WIDEST, _NARROWEST = 6.5, 1.8  # inches
_HIGHEST, _LOWEST = 4.2, 2.4
# neighbours on a lattice are nearer than half-way to the second ring of a square one, at 1.41 spacings
_RING = 1.2
_OVERLAP = 1.0  # dots by which markers that tile overlap: half a dot each, or the paper shows through as a grid
_FULL = 0.9  # of the spacing, from which a spot is so wide that the section has no gaps
_TINY = 2.5  # dots: smaller discs and squares look alike, and squares are drawn faster
_ORDERED = 0.9  # mean resultant of the directions to neighbours: 1 on a lattice, near 0 for scattered cells
# of the distances to neighbours, in spacings, up to which markers tile: Visium has 0.004, as its pixels are whole, and
# Spatial Transcriptomics, whose spots are found one by one, 0.04 to 0.07
_EXACT = 0.035
_NEAREST = 1.0  # percent of the pairs of neighbours that overlap on a lattice that is not exact
_LARGE = 0.05  # inches from spot to spot, below which tiles overlap by so much of their width that none shows a crack
_WHOLE = 1_000_000  # places, from which neighbours are looked up in strips of the section
_STRIPS, _OF_STRIP = 8, 100_000  # strips, and places in each
_BLOCK = 1_000_000  # spots that are drawn at a time
_FINE = 0.75  # dots from spot to spot: below that, all markers are squares that overlap
_MOST_DOTS = 4  # along a side of a marker that may be hidden behind others


class Spots(NamedTuple):
    """Positions and markers of spots, and the size of their map."""

    position: Floats  # shape=(n, 2)
    spacing: float  # between neighbours, in units of the coordinates
    marker: Marker  # a square or hexagon that tiles on an exact lattice, else a disc
    size: tuple[float, float]  # width and height of the map in inches
    box: Floats  # shape=(2, 2): the smallest and the largest coordinates
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
        return np.asarray((self.box[0] + self.box[1]) / 2)

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
        return np.asarray(self.box[1] - self.box[0] + 1.5 * self.spacing)

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
    distinct = _distinct(position)
    spacing, marker, nearest = _lattice(distinct) if len(distinct) > 1 else (1.0, "s", None)
    # one axis after the other: NumPy is slow along a short one
    box = np.array([[axis.min() for axis in position.T], [axis.max() for axis in position.T]])
    spots = Spots(position, spacing, marker, (1.0, 1.0), box)
    width, height = spots.extent
    across = float(np.clip(_HIGHEST * width / height, _NARROWEST, _WIDEST))
    up = float(np.clip(across * height / width, _LOWEST, _HIGHEST))
    spots = spots._replace(size=(across, up))
    if nearest is None or spacing < _LARGE * spots.units_per_inch:
        return spots
    # tiles would overlap here and leave cracks there
    return spots._replace(marker="o", diameter=nearest)


def _distinct(position: Floats) -> Floats:
    """Return the places where there are spots (m, 2), by x and then by y, as `numpy.unique` does, which is slower."""
    places = position[:, 0] + 1j * position[:, 1]
    if not _ascend(places).all():
        places.sort()
        places = places[np.append(True, places[1:] != places[:-1])]
    return np.column_stack([places.real, places.imag])


def _ascend(places: NDArray[np.complex128]) -> NDArray[np.bool_]:
    """Whether each place but the first comes after the one before it, by x and then by y."""
    x, y = places.real, places.imag
    return np.asarray((x[1:] > x[:-1]) | ((x[1:] == x[:-1]) & (y[1:] > y[:-1])))


def _lattice(distinct: Floats) -> tuple[float, Marker, float | None]:
    """Return the median distance to the nearest neighbour, and the marker that tiles, from directions to neighbours.

    The third value is the distance that hardly any neighbours fall below, on a lattice that is not exact; else None.
    """
    strips, n_sampled = [distinct], _SAMPLE
    if len(distinct) > _WHOLE:  # consecutive places are neighbours, since they are sorted
        firsts = np.linspace(0, len(distinct) - _OF_STRIP, _STRIPS).astype(np.int64)
        strips, n_sampled = [distinct[first : first + _OF_STRIP] for first in firsts], _SAMPLE // _STRIPS
    found = [_nearest(strip, n_sampled) for strip in strips]
    far, steps = (np.concatenate(parts) for parts in zip(*found, strict=True))
    spacing = float(np.median(far[:, 1]))
    is_near = (far > 0) & (far < _RING * spacing)
    x, y = steps[is_near].T
    angle = np.arctan2(y, x)
    turn = {sides: np.exp(1j * sides * angle).mean() for sides in (4, 6)}
    sides = max(turn, key=lambda n: abs(turn[n]))  # for two spots both are 1, and the square is taken
    if abs(turn[sides]) < _ORDERED:
        return spacing, "o", None
    is_exact = far[is_near].std() <= _EXACT * spacing
    nearest = None if is_exact else float(np.percentile(far[is_near], _NEAREST))
    # y points down on the map, so the lattice is turned the other way there
    degrees = -float(np.degrees(np.angle(turn[sides]))) / sides
    if sides == 4:
        return spacing, "s" if abs(degrees) < 0.5 else (4, 0, degrees + 45.0), nearest
    return spacing, (6, 0, degrees), nearest


def _nearest(places: Floats, n_sampled: int) -> tuple[Floats, Floats]:
    """Return the distances (m, 7) from some places to the nearest, also to themselves, and the steps (m, 7, 2)."""
    sampled = places[:: -(-len(places) // n_sampled)]
    far, near = cKDTree(places).query(sampled, k=min(7, len(places)))
    return far, places[near] - sampled[:, None]


class SpotCollection(PathCollection):
    """Markers at ``offsets`` (n, 2) that are always ``width`` units of the coordinates wide.

    The sizes of matplotlib's own scatter are in points, which become wrong after a zoom or when the layout changes the
    axes.
    """

    def __init__(self, offsets: Floats, width: float, marker: Marker, *, opacity: float = 1.0, **settings: Any) -> None:
        self._square, self._is_disc = _path("s"), marker == "o"
        self._marker_path = self._square if marker == "s" else _path(marker)
        super().__init__(self._marker_path, [1.0], offsets=offsets, linewidths=0, **settings)
        self._width, self._opacity = width, opacity
        self._inner = width if isinstance(marker, str) else width * float(np.cos(np.pi / marker[0]))  # across its sides
        self._overlap = 0.0 if self._is_disc else _OVERLAP
        self.set_transform(IdentityTransform())

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self, renderer: RendererBase) -> None:
        """Draw with the size that corresponds to the width on the present axes."""
        figure = self.figure
        if self.axes is not None and figure is not None:
            scale = abs(float(self.axes.transData.get_affine().get_matrix()[0, 0]))
            dots = self._width * scale + self._overlap
            is_tiny = self._is_disc and dots < _TINY
            if self._inner * scale < _FINE:  # markers narrower than a dot would be rounded to nothing, disc or not
                dots, is_tiny = self._inner * scale + _OVERLAP, True
            self.set_sizes(np.array([(dots * 72 / figure.dpi) ** 2]), figure.dpi)
            self.set_paths([self._square if is_tiny else self._marker_path])
        if self._opacity >= 1:
            self._draw_spots(renderer)
            return
        # drawn opaque and faded together: each by itself, markers that overlap would show as a grid
        agg: Any = renderer  # spots are always pixels, which only this renderer draws
        agg.start_filter()
        self._draw_spots(renderer)
        agg.stop_filter(lambda image, _: (image * np.array([1, 1, 1, self._opacity], dtype=np.float32), 0, 0))

    def _draw_spots(self, renderer: RendererBase) -> None:
        """Draw the spots; very many are drawn block by block, without those that others hide: the same pixels."""
        offsets, values, figure = np.asarray(self.get_offsets()), self.get_array(), self.get_figure()
        if len(offsets) <= _BLOCK or figure is None or not self.get_visible():
            super().draw(renderer)
            return
        seen = self._seen(renderer)
        n = len(offsets) if seen is None else seen.size
        n_blocks = max(1, -(-n // _BLOCK))
        for rows in slices(n, max(1, -(-n // n_blocks))):  # of about equal size
            chosen: Any = rows if seen is None else seen[rows]
            part = PathCollection(
                self.get_paths(),
                self.get_sizes(),
                offsets=offsets[chosen],
                offset_transform=self.get_offset_transform(),
            )
            part.axes = self.axes
            part.set_figure(figure)
            part.update_from(self)
            part.set_array(None if values is None else values[chosen])
            part.draw(renderer)
        self.stale = False

    def _seen(self, renderer: RendererBase) -> NDArray[np.integer] | None:
        """Find the spots, ascending, of which at least a pixel is seen; None where that is not known.

        The edges of squares are rounded to whole pixels, so that each pixel has the colour of the last spot on it.
        """
        offsets, side = np.asarray(self.get_offsets()), float(np.asarray(self.get_transforms())[0, 0, 0])
        (across, up), edge = map(int, renderer.get_canvas_width_height()), _MOST_DOTS
        shape = up + 2 * edge, across + 2 * edge  # with a margin that nobody sees
        if self.get_paths()[0] is not self._square or side > _MOST_DOTS or np.prod(shape) > _MOST_DOTS * len(offsets):
            return None
        last = np.full(shape, -1, dtype=np.int32).ravel()
        (scale_x, _, shift_x), (_, scale_y, shift_y), _ = self.get_offset_transform().get_affine().get_matrix()
        most, half = int(np.ceil(side)), side / 2
        for rows in slices(len(offsets), _BLOCK):
            x, y = offsets[rows].T
            # in the order in which matplotlib computes: the last bit can decide to which pixel an edge is rounded
            if self.get_array() is None:  # one colour: all markers have the same pixels around their rounded centres
                left, top = np.floor(scale_x * x + (shift_x + 0.5)), np.floor((up + 0.5 - shift_y) - scale_y * y)
                right, bottom = left + 1, top + 1
            else:
                x, y = scale_x * x + shift_x, up - (scale_y * y + shift_y)
                left, right, top, bottom = (np.floor(end + 0.5) for end in (x - half, x + half, y - half, y + half))
            there = (left >= -edge) & (right < across + edge) & (top >= -edge) & (bottom < up + edge)
            spots = np.flatnonzero(there).astype(np.int32)
            corner = ((top[there] + edge) * shape[1] + left[there] + edge).astype(np.int64)
            width, height = ((far - near)[there] for near, far in ((left, right), (top, bottom)))
            for down, along in np.ndindex(most, most):
                on = (height > down) & (width > along)
                np.maximum.at(last, corner[on] + (down * shape[1] + along), spots[on] + np.int32(rows.start))
        seen = np.unique(last[last >= 0])
        # a single spot would be drawn as one colour for all, which is rounded in another way
        return seen if seen.size > 1 else seen.repeat(2)


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
