"""Spots on axes: markers that keep their size in units of the coordinates, whatever becomes of the axes."""

from typing import Any

import numpy as np
from matplotlib.artist import allow_rasterization
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.collections import PathCollection
from matplotlib.markers import MarkerStyle
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray

from spatialpdvi.plotting.spots import Marker, Spots

__all__ = ["SpotCollection", "paint"]

Floats = NDArray[np.float64]

_OVERLAP = 1.0  # dots by which markers that tile overlap: half a dot each, or the paper shows through as a grid
_TINY = 2.5  # dots: smaller discs and squares look alike, and squares are drawn faster


class SpotCollection(PathCollection):
    """Markers at ``offsets`` (n, 2) that are ``width`` units of the coordinates wide when they are drawn.

    matplotlib's own scatter has sizes in points: right on the axes that they were computed for, wrong after a zoom or
    in a layout that changes the axes.
    """

    def __init__(self, offsets: Floats, width: float, marker: Marker, **settings: Any) -> None:
        self._marker_path = _path(marker)
        self._tiny_path = _path("s" if marker == "o" else marker)
        super().__init__(self._marker_path, [1.0], offsets=offsets, linewidths=0, **settings)
        self._width = width
        self._overlap = 0.0 if marker == "o" else _OVERLAP
        self.set_transform(IdentityTransform())

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self, renderer: RendererBase) -> None:
        """Draw with the size that the width has on the axes now."""
        figure = self.figure
        if self.axes is not None and figure is not None:
            dots = self._width * abs(float(self.axes.transData.get_affine().get_matrix()[0, 0])) + self._overlap
            self.set_sizes(np.array([(dots * 72 / figure.dpi) ** 2]), figure.dpi)
            self.set_paths([self._tiny_path if dots < _TINY else self._marker_path])
        super().draw(renderer)


def paint(axes: Axes, spots: Spots, chosen: NDArray[np.bool_] | slice = slice(None)) -> SpotCollection:
    """Markers of the chosen spots, without a colour yet, on axes that are framed for all of them."""
    drawn = SpotCollection(
        spots.position[chosen],
        spots.width,
        spots.marker,
        offset_transform=axes.transData,
        # As pixels also in SVG and PDF: a million squares would make a file that nobody can open.
        rasterized=True,
    )
    axes.add_collection(drawn, autolim=False)
    return drawn


def _path(marker: Marker) -> Any:
    style = MarkerStyle(marker)
    return style.get_path().transformed(style.get_transform())
