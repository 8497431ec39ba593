"""The sections of a fit, each on a map of its own, side by side."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from spatialpdvi.errors import InputError
from spatialpdvi.io.section.images import TissueImage
from spatialpdvi.plotting.histology import check_image, draw_image
from spatialpdvi.plotting.labels import Labels, check_labels, short
from spatialpdvi.plotting.page import TEXT
from spatialpdvi.plotting.spots import Spots, place_spots

__all__ = ["Cell", "Map", "Tissue", "place_tissue"]

Ints = NDArray[np.int64]

# inches
_BETWEEN, _NAME = 0.12, 0.2  # between two maps; above each map for its name
_LEAST = 0.05  # of a map in axes that are too small for the number of maps
_WIDEST, _HIGHEST = 9.0, 6.3  # all maps together, unless `_SMALLEST` makes them larger
_LETTER, _FEWEST = 0.7, 6  # width of a letter, as a share of the size of its font; letters of a name that are shown
_SMALLEST = 0.25  # least size of a map, as a share of the size that the section would have alone


class PlacedSection(NamedTuple):
    """The spots of one section."""

    name: str
    chosen: Ints | slice  # its spots among all spots
    spots: Spots
    image: TissueImage | None = None  # to be drawn below the spots


class Cell(NamedTuple):
    """Where the map of one section lies among all maps, in inches."""

    name: str
    chosen: Ints | slice
    spots: Spots  # with the size of this map
    left: float  # from the left edge of all maps
    top: float  # from the upper edge of all maps
    image: TissueImage | None = None


class Map(NamedTuple):
    """Axes for one section."""

    axes: Axes
    chosen: Ints | slice
    spots: Spots  # with the size of these axes


class Tissue(NamedTuple):
    """Sections in rows of maps of one size; a single section has one map.

    Every section is as large as its map allows, so that the scales of sections may differ.
    """

    sections: Sequence[PlacedSection]
    columns: int
    size: tuple[float, float]  # of all maps together, in inches

    @property
    def is_alone(self) -> bool:
        """Whether there is one section."""
        return len(self.sections) == 1

    def maps(self, axes: Axes) -> list[Map]:
        """Return framed axes for each section: the given axes for one section, for several smaller axes within them."""
        axes.set_axis_off()
        across, up = self.size
        cells, made = self.cells(), []
        most = max(_FEWEST, int(72 * (cells[0].spots.size[0] + _BETWEEN) / (_LETTER * TEXT)))
        for cell, name in zip(cells, short((cell.name for cell in cells), most, in_the_middle=True), strict=True):
            own = axes
            if not self.is_alone:
                width, height = cell.spots.size
                own = axes.inset_axes((cell.left / across, 1 - (cell.top + height) / up, width / across, height / up))
                own.set_axis_off()
                own.set_title(name, fontsize=TEXT, loc="left", pad=3, parse_math=False, color="#333333")
            cell.spots.frame(own)
            if cell.image is not None:
                draw_image(own, cell.image)
            made.append(Map(own, cell.chosen, cell.spots))
        return made

    def cells(self) -> list[Cell]:
        """Return where the map of each section lies, row by row."""
        if self.is_alone:
            (section,) = self.sections
            return [_cell(section, self.size, 0.0, 0.0)]
        width, height = self._cell()
        made = []
        for number, section in enumerate(self.sections):
            row, column = divmod(number, self.columns)
            left, top = column * (width + _BETWEEN), row * (height + _NAME) + _NAME
            made.append(_cell(section, (width, height), left, top))
        return made

    def over_images(self, images: Mapping[str, TissueImage], *, alpha: float) -> "Tissue":
        """Return the same sections over their images.

        Parameters
        ----------
        images
            By the name of the section, "" for a single one; a section without an image stays as it is.
        alpha
            Of the spots, above 0 and at most 1.

        Raises
        ------
        InputError
            Where most spots of a section lie outside of its image.
        """
        sections = []
        for section in self.sections:
            image = images.get(section.name)
            if image is not None:
                check_image(section.spots.position, image, section.name)
                spots = section.spots.over_image(image.diameter, alpha)
                section = section._replace(spots=spots, image=image)  # noqa: PLW2901
            sections.append(section)
        return self._replace(sections=sections)

    def within(self, size: tuple[float, float]) -> "Tissue":
        """Return the same sections on maps that fit into ``size``, in inches, as well as possible."""
        if self.is_alone:
            return self._replace(size=self.sections[0].spots.within(size).size)
        columns, _ = _best_grid(self.sections, size)
        return self._replace(columns=columns, size=size)

    def _cell(self) -> tuple[float, float]:
        rows = -(-len(self.sections) // self.columns)
        width = (self.size[0] - (self.columns - 1) * _BETWEEN) / self.columns
        return max(width, _LEAST), max(self.size[1] / rows - _NAME, _LEAST)


def _cell(section: PlacedSection, size: tuple[float, float], left: float, top: float) -> Cell:
    return Cell(section.name, section.chosen, section.spots._replace(size=size), left, top, section.image)


def place_tissue(position: NDArray[np.float64], samples: Any | None = None) -> Tissue:
    """Find maps for spots at ``position``.

    Parameters
    ----------
    position
        (n, 2).
    samples
        Section of each spot, (n,), if there are several.

    Raises
    ------
    InputError
        If there is not one section per spot.
    """
    found = None if samples is None else _read_samples(samples, len(position))
    if found is None or len(found.names) < 2:
        spots = place_spots(position)
        return Tissue([PlacedSection("", slice(None), spots)], 1, spots.size)
    chosen = [np.flatnonzero(found.codes == code) for code in range(len(found.names))]
    sections = [
        PlacedSection(name, own, place_spots(position[own])) for name, own in zip(found.names, chosen, strict=True)
    ]
    columns, scale = _best_grid(sections, (_WIDEST, _HIGHEST))
    scale = min(1.0, max(scale, _SMALLEST))
    rows = -(-len(sections) // columns)
    width, height = _largest(sections)
    size = columns * (scale * width + _BETWEEN) - _BETWEEN, rows * (scale * height + _NAME)
    return Tissue(sections, columns, size)


def _read_samples(samples: Any, n: int) -> Labels:
    found = check_labels(samples, n=n, what="samples")
    missing = int((found.codes < 0).sum())
    if missing:
        raise InputError(
            "the section of every spot", f"{missing:,} spots without one", "Name the sections of these spots, too."
        )
    return found


def _largest(sections: Sequence[PlacedSection]) -> tuple[float, float]:
    width, height = (float(max(section.spots.size[axis] for section in sections)) for axis in (0, 1))
    return width, height


def _best_grid(sections: Sequence[PlacedSection], size: tuple[float, float]) -> tuple[int, float]:
    """Return the number of columns that makes maps largest, with few empty places, and the scale of the maps."""
    width, height = _largest(sections)
    n = len(sections)

    def scale(columns: int) -> float:
        rows = -(-n // columns)
        across = (size[0] - (columns - 1) * _BETWEEN) / (columns * width)
        return float(max(0.0, min(1.0, across, (size[1] / rows - _NAME) / height)))

    columns = max(range(1, n + 1), key=lambda c: (round(scale(c), 6), -(-(-n // c) * c), c))
    return columns, scale(columns)
