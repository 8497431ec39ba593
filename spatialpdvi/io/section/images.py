"""The images of the tissue in ``uns['spatial']``, in the layout that scanpy and squidpy share.

``uns['spatial']`` has an entry for each section (a library, in the words of 10x): ``images`` with ``hires`` or
``lowres`` or both, and ``scalefactors`` with ``tissue_hires_scalef`` and ``tissue_lowres_scalef``, by which coordinates
are multiplied to give pixels of these images, and ``spot_diameter_fullres``, the diameter of a spot in the unit of the
coordinates.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning, list_keys, option
from spatialpdvi.io.formats.sources import Source

__all__ = ["IMAGES", "SIZES", "TissueImage", "read_images"]

IMAGES = "spatial"  # key of uns
SIZES = ("hires", "lowres")  # of an image, the larger one first
# the second sentence is left out where the image is all that is drawn (`own_names`)
_MAKE = (
    "`spatialpdvi bin`, scanpy and squidpy write it there: read the section again with its image. "
    f"Or draw without {option('image')}."
)
_BESIDE = (
    f"The images of a SpatialData store are beside its tables, and cannot be drawn. Draw without {option('image')}."
)


class TissueImage(NamedTuple):
    """An image of a section and where it lies."""

    pixels: np.ndarray  # (height, width) grey, or (height, width, 3 or 4) colours; uint8, or float from 0 to 1
    scale: float  # pixels of this image in a unit of the coordinates
    diameter: float | None  # of a spot, in the unit of the coordinates; None where it is not known


def read_images(
    source: Source, samples: pd.Categorical | None, *, section: str | None = None, fitted: Sequence[str] = ()
) -> dict[str, TissueImage]:
    """Read the image of each section that has one, by the name of the section.

    Parameters
    ----------
    source
        The section or sections.
    samples
        Section of each spot, (n,), whose names are keys of ``uns['spatial']``; None for a single section, whose only
        image has the name "" in the result.
    section
        The name of a single section, where it has one.
    fitted
        The names of all sections that were fitted together. The image of another one is not that of these spots.

    Raises
    ------
    InputError
        Where no section has an image, or one is not what scanpy and squidpy read.
    """
    libraries = source.uns(IMAGES) if source.uns_fields(IMAGES) else {}
    pictured = [str(name) for name, library in libraries.items() if _has_image(library)]
    if not pictured:
        advice = _BESIDE if "spatialdata_attrs" in source.uns_keys() else _MAKE
        raise InputError(
            f"an image of the tissue in uns['{IMAGES}'][section]['images'] of {source.name}", "none", advice
        )
    if samples is None:
        own = [name for name in pictured if name == section] or [name for name in pictured if name not in fitted]
        if len(own) != 1:
            raise InputError(
                f"one image of the tissue in {source.name}, which has one section"
                + (f", {section!r}" if section else ""),
                f"images of {list_keys(pictured)}",
                f"Name the column of obs whose values are these names with {option('sample_key')}."
                if section is None
                else "Select the section again from the sections with their images.",
            )
        return {"": _read(source, own[0], libraries[own[0]])}
    names = [str(name) for name in samples.categories]
    missing = [name for name in names if name not in pictured]
    if len(missing) == len(names):
        raise InputError(
            f"images in uns['{IMAGES}'] of {source.name} under the names of its sections ({list_keys(names)})",
            f"images of {list_keys(pictured)}",
            "Rename the keys, or the sections.",
        )
    if missing:
        text = f"{source.name} has no image of {list_keys(missing)} in uns['{IMAGES}']; drawn without one."
        warnings.warn(InputWarning(text), stacklevel=2)
    return {name: _read(source, name, libraries[name]) for name in names if name in pictured}


def _has_image(library: Any) -> bool:
    images = library.get("images") if isinstance(library, Mapping) else None
    return isinstance(images, Mapping) and any(size in images for size in SIZES)


def _read(source: Source, name: str, library: Mapping[str, Any]) -> TissueImage:
    where = f"uns['{IMAGES}'][{name!r}]"
    images, factors = library["images"], library.get("scalefactors")
    factors = factors if isinstance(factors, Mapping) else {}
    size = next(size for size in SIZES if size in images)
    key = f"tissue_{size}_scalef"
    scale = _positive(factors.get(key))
    if scale is None:
        raise InputError(
            f"a number above 0 under {key!r} in {where}['scalefactors'] of {source.name}",
            f"{factors.get(key)!r:.60}" if key in factors else "no such key",
            "It says how many pixels of the image a unit of the coordinates has. Read the section with "
            "its scale factors.",
        )
    pixels = _pixels(np.asarray(images[size]))
    if pixels is None:
        found = np.asarray(images[size])
        raise InputError(
            f"{where}['images'][{size!r}] of {source.name} to be an image, (height, width) or (height, width, 3)",
            f"an array of shape {found.shape} and type {found.dtype}",
            "Read the section again with its image.",
        )
    return TissueImage(pixels, scale, _positive(factors.get("spot_diameter_fullres")))


def _positive(value: Any) -> float | None:
    """Return a single number above 0 as a float, else None."""
    values = np.ravel(value if value is not None else ())
    if values.size != 1 or values.dtype.kind not in "iuf":
        return None
    number = float(values[0])
    return number if np.isfinite(number) and number > 0 else None


def _pixels(image: np.ndarray) -> np.ndarray | None:
    """Return grey or coloured pixels as uint8, or as float from 0 to 1; None where it is no image."""
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in {3, 4})) or not image.size:
        return None
    if image.dtype == np.uint8:
        return image
    if image.dtype.kind not in "buif":
        return None
    values = np.nan_to_num(image.astype(np.float32))
    # floats from 0 to 1 stay as they are; of other types, the brightest pixel is white
    brightest = float(values.max())
    is_share = image.dtype.kind == "f" and brightest <= 1.0
    return values.clip(0.0) if is_share else values.clip(0.0) / max(brightest, 1.0)
