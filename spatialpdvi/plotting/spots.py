"""Spots as markers that fill their share of the section: size and shape follow the spacing."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.spatial import cKDTree

__all__ = ["Spots", "place_spots", "side_by_side"]

Floats = NDArray[np.float64]

_SAMPLE = 20_000  # spots that are asked for their neighbours
_WIDEST, _NARROWEST = 6.5, 1.8  # inches
_HIGHEST, _LOWEST = 4.2, 2.4
_APART = 0.1  # of a section's width: the space between two


class Spots(NamedTuple):
    """Where spots are, what they look like, and how large the map of them is."""

    position: Floats  # shape=(n, 2)
    spacing: float  # between neighbours, in units of the coordinates
    marker: str  # a square on a square lattice, else a disc
    size: tuple[float, float]  # width and height of the map in inches

    def frame(self, axes: Axes) -> None:
        """Fit the section into axes of that size, x and y in one scale, y downwards."""
        low, high = self.position.min(axis=0), self.position.max(axis=0)
        (x, y), scale = (low + high) / 2, self._units_per_inch
        axes.set_xlim(x - scale * self.size[0] / 2, x + scale * self.size[0] / 2)
        axes.set_ylim(y + scale * self.size[1] / 2, y - scale * self.size[1] / 2)

    @property
    def area(self) -> float:
        """Marker size for matplotlib's scatter: square points of a marker as wide as the spacing."""
        side = 72 * self.spacing / self._units_per_inch
        # Squares overlap by a hair, or the background shows through as a grid.
        return float((side * (1.04 if self.marker == "s" else 1.0)) ** 2)

    @property
    def _units_per_inch(self) -> float:
        extent = _extent(self.position, self.spacing)
        return float(max(extent[0] / self.size[0], extent[1] / self.size[1]))


def place_spots(position: Floats) -> Spots:
    """Spacing, marker and size of the map for spots at ``position``, shape (n, 2)."""
    distinct = np.unique(position[:, 0] + 1j * position[:, 1])
    distinct = np.column_stack([distinct.real, distinct.imag])
    spacing = 1.0
    if len(distinct) > 1:
        asked = distinct[:: -(-len(distinct) // _SAMPLE)]
        spacing = float(np.median(cKDTree(distinct).query(asked, k=[2])[0]))
    bins = (distinct - distinct[0]) / spacing
    on_lattice = (np.abs(bins - np.round(bins)) < 0.05).all(axis=1).mean()
    width, height = _extent(position, spacing)
    across = float(np.clip(_HIGHEST * width / height, _NARROWEST, _WIDEST))
    up = float(np.clip(across * height / width, _LOWEST, _HIGHEST))
    return Spots(position, spacing, "s" if on_lattice > 0.95 else "o", (across, up))


def side_by_side(position: Floats, sections: Sequence[NDArray[np.int64]]) -> Floats:
    """Positions (n, 2) of several sections, which may lie upon each other, moved apart in rows; of one as they are.

    Parameters
    ----------
    position
        (n, 2).
    sections
        Spots of each section, in reading order.
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


def _extent(position: Floats, spacing: float) -> Floats:
    """Width and height with the half spots at the edge, in units of the coordinates."""
    return np.asarray(np.ptp(position, axis=0) + 1.5 * spacing)
