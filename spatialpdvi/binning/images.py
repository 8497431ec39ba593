"""The image of the tissue as it is written into ``uns['spatial']``, in the layout of scanpy and squidpy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.damage import reading_file

__all__ = ["Library", "check_inside", "expect_inside", "read_picture", "spacing_of"]

_OUTSIDE = 0.01  # share of the spots that may lie outside of a mask or an image
_SAMPLE = 20_000  # spots whose neighbours are looked up


class Library(NamedTuple):
    """An image of one section and its scale."""

    name: str
    images: Mapping[str, np.ndarray]  # by size, "hires" or "lowres": (height, width, 3) uint8
    factors: Mapping[str, float]  # tissue_hires_scalef, spot_diameter_fullres and so on
    metadata: Mapping[str, str]

    def with_diameter(self, spot: float) -> "Library":
        """Return the same with the diameter of a spot, where it has none."""
        return self._replace(factors={"spot_diameter_fullres": spot, **self.factors})

    @property
    def key(self) -> str:
        """Its name as a key of a file, in which slashes would part groups."""
        return self.name.replace("/", "_").replace("\0", "").strip(".") or "tissue"

    def entry(self) -> dict[str, Any]:
        """Return the entry of ``uns['spatial']``."""
        images, factors, metadata = dict(self.images), dict(self.factors), dict(self.metadata)
        return {"images": images, "scalefactors": factors, "metadata": metadata}


def check_inside(library: Library, places: np.ndarray) -> None:
    """Raise an `InputError` where more than a hundredth of spots at ``places``, (n, 2), lie outside of the image."""
    scale = library.factors["tissue_hires_scalef"]
    reach = library.factors.get("spot_diameter_fullres", 0.0) / 2  # the last squares end beyond the image
    height, width = library.images["hires"].shape[:2]
    pixel = scale * places
    outside = int(((pixel < -scale * reach) | (pixel > np.array([width, height]) + scale * reach)).any(axis=1).sum())
    expect_inside(outside, len(places), f"the image of {library.name!r}")


def expect_inside(n_outside: int, n: int, of: str) -> None:
    """Raise an `InputError` where more than a hundredth of the spots lie outside of a mask or an image."""
    if n_outside > _OUTSIDE * n:
        raise InputError(
            f"spots within {of}, of which a pixel is a DNB",
            f"{n_outside:,} of {n:,} outside",
            "Take the file that SAW has registered to this matrix.",
        )


def spacing_of(places: np.ndarray) -> float:
    """Return the median distance of spots at ``places``, (n, 2), to the nearest other one, at least 1."""
    if len(places) < 2:
        return 1.0
    chosen = places[:: -(-len(places) // _SAMPLE)]
    return max(1.0, float(np.median(cKDTree(places).query(chosen, k=2)[0][:, 1])))


def read_picture(path: Path) -> np.ndarray:
    """Read a PNG or another small picture, (height, width, 3) uint8."""
    from PIL import Image

    with reading_file(path, "picture"), Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))
