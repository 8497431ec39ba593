"""The image of the tissue below a map."""

import warnings

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.section.images import TissueImage

__all__ = ["check_image", "draw_image"]

_PIXELS = "The coordinates, multiplied by the scale factor of the image, have to be its pixels"
_LEAST = 0.05  # of the longer side of the image, from which spots may be a part of its tissue
_MOST_OUTSIDE = 0.5  # of the spots of a section, or its coordinates are not those of the image


def check_image(position: NDArray[np.float64], image: TissueImage, name: str) -> None:
    """Check that spots at ``position``, (n, 2), have the coordinates of the image of a section.

    Where most lie outside of it, that is an `InputError`; where all lie in a small part of it, there is a warning.
    """
    height, width = image.pixels.shape[:2]
    place = image.scale * position
    low, high = place.min(axis=0), place.max(axis=0)
    reach = f"columns {low[0]:.6g} to {high[0]:.6g} and rows {low[1]:.6g} to {high[1]:.6g}"
    of = f" of {name!r}" if name else ""
    outside = ((place < -0.5) | (place > np.array([width, height]) - 0.5)).any(axis=1)
    if outside.mean() > _MOST_OUTSIDE:
        raise InputError(
            f"spots{of} within their image of {width:,} x {height:,} pixels",
            f"{outside.sum():,} of {outside.size:,} outside ({reach})",
            f"{_PIXELS}; name those that are with {option('spatial_key')}.",
        )
    if (high - low).max() < _LEAST * max(width, height):
        text = (
            f"The spots{of} cover {reach} of their image of {width:,} x {height:,} pixels. {_PIXELS}; check that "
            f"{option('spatial_key')} names those that are."
        )
        warnings.warn(InputWarning(text), stacklevel=2)


def draw_image(axes: Axes, image: TissueImage) -> None:
    """Draw the part of an image that axes show, whose limits are in units of the coordinates; y points down."""
    height, width = image.pixels.shape[:2]
    (left, right), (bottom, top) = (sorted(scale) for scale in (axes.get_xlim(), axes.get_ylim()))
    # the centre of pixel i lies at i / scale, as in scanpy and squidpy
    columns = _range(left, right, image.scale, width)
    rows = _range(bottom, top, image.scale, height)
    if columns[0] >= columns[1] or rows[0] >= rows[1]:
        return
    x, y = (np.array(ends) - 0.5 for ends in (columns, rows))
    axes.imshow(
        image.pixels[slice(*rows), slice(*columns)],
        extent=(x[0] / image.scale, x[1] / image.scale, y[1] / image.scale, y[0] / image.scale),
        cmap="gray",  # where there is no colour: from black to white, whatever part of the image is drawn
        vmin=0,
        vmax=255 if image.pixels.dtype == np.uint8 else 1,
        zorder=0,
    )


def _range(low: float, high: float, scale: float, n: int) -> tuple[int, int]:
    """Return the first pixel that lies between two coordinates, and the one after the last."""
    return max(0, int(np.floor(low * scale + 0.5))), min(n, int(np.ceil(high * scale + 0.5)))
