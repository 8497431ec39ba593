"""Spots off the tissue by a mask of the chip, and the image of the chip for what is shown."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.binning.external_sort import RowBlock
from spatialpdvi.binning.images import Library, expect_inside
from spatialpdvi.binning.records import Genes
from spatialpdvi.binning.sample import Sample
from spatialpdvi.binning.tiff import Tiff, block_sums
from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.section.background import IN_TISSUE

__all__ = ["MarkedSample", "TissueMask", "corner_of", "tissue_image"]

_HALF = 0.5  # of the DNBs of a square, from which it is on the tissue
_HIRES, _LOWRES = 2000, 600  # pixels of the longer side, about
_BRIGHTEST = 99.9  # percentile of an image of 16 bits that becomes white


def corner_of(tiff: Tiff, bounds: tuple[int, int, int, int] | None, *, is_placed: bool) -> tuple[int, int]:
    """Return the DNB (x, y) of the first pixel.

    Parameters
    ----------
    tiff
        The image.
    bounds
        The least x and y and the largest of all records of a GEM; None for a GEF, whose frame begins at 0. An image
        that is as large as the records of a GEM reach begins at the first of them; any other begins at 0.
    is_placed
        Whether the GEM says where its frame lies, so that SAW has written both; if not, the image may begin elsewhere,
        and there is a warning.
    """
    if bounds is None:
        return 0, 0
    low_x, low_y, high_x, high_y = bounds
    reach = high_x - low_x + 1, high_y - low_y + 1
    if (tiff.width, tiff.height) == reach:
        return low_x, low_y
    if not is_placed and (low_x, low_y) != (0, 0):
        text = (
            f"The first pixel of {tiff.name!r} is taken as the DNB (0, 0). The records begin at ({low_x:,}, "
            f"{low_y:,}), and the GEM has no #OffsetX; an image of {reach[0]:,} x {reach[1]:,} pixels would begin "
            "there."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return 0, 0


class TissueMask:
    """Which spots are on the tissue: squares of which at least half of the DNBs are, and cells whose centre is.

    Parameters
    ----------
    tiff
        The mask: 0 off the tissue, one other value on it. DNBs outside of it are off the tissue.
    side
        Of the squares in DNBs; None for cells.
    corner
        The DNB of the first pixel.
    memory
        Bytes that it may use.

    Raises
    ------
    InputError
        Where it is no mask, or would need more memory.
    """

    def __init__(self, tiff: Tiff, *, side: int | None, corner: tuple[int, int], memory: int) -> None:
        self.name = name = repr(tiff.name)  # for messages
        self._corner, self._shape = np.array(corner), np.array([tiff.width, tiff.height])
        self._side = side if side is not None and side > 1 else None
        # x and y of the first square and of the last, or of the first DNB and the last; a frame may begin below 0
        self._first = self._corner // (self._side or 1)
        self._last = (self._corner + self._shape - 1) // (self._side or 1)
        if tiff.channels > 1:
            raise InputError(f"{name} to be a mask with one channel", f"{tiff.channels} channels", _MASK_ADVICE)
        width, height = (int(n) for n in self._last - self._first + 1)
        if self._side is None:
            shape, kind = (height, -(-width // 8)), np.dtype(np.uint8)  # a bit for each DNB
        else:
            shape, kind = (height, width), np.min_scalar_type(self._side**2)
        need = int(np.prod(shape)) * kind.itemsize
        if 2 * need > memory:
            raise InputError(
                f"memory for the mask {name} in {option('memory')}",
                f"{2 * need / 1e9:.3g} GB to be needed",
                f"Give more, or a larger {option('bin_size')}.",
            )
        self._found = np.zeros(shape, dtype=kind)
        self._fill(tiff)

    def at(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return whether spots at ``places`` (n, 2) are on the tissue, and whether they are outside of the mask."""
        side = self._side or 1
        square = np.floor((places + 0.5) / side).astype(np.int64)
        outside = ((square < self._first) | (square > self._last)).any(axis=1)
        square = np.where(outside[:, None], self._first, square)
        column, row = (square - self._first).T
        if self._side is None:
            inside = (self._found[row, column >> 3] >> (7 - (column & 7))) & 1 == 1
        else:
            low = np.maximum(square * side, self._corner)
            high = np.minimum((square + 1) * side, self._corner + self._shape)
            inside = self._found[row, column] >= _HALF * np.prod(high - low, axis=1)
        return inside & ~outside, outside

    def _fill(self, tiff: Tiff) -> None:
        value = 0
        for piece in tiff.pieces():
            high = int(piece.pixels.max(initial=0))
            if value and high and high != value:
                self._refuse(value, high)
            value = value or high
            is_tissue = piece.pixels != 0
            if high and (piece.pixels[is_tissue] != high).any():
                self._refuse(int(piece.pixels[is_tissue].min()), high)
            if self._side is None:
                # bits of a byte that two tiles share are added
                byte, left = divmod(piece.column, 8)
                bits = np.packbits(np.pad(is_tissue[:, :, 0], ((0, 0), (left, 0))), axis=1)
                self._found[piece.row : piece.row + bits.shape[0], byte : byte + bits.shape[1]] |= bits
                continue
            row, column, sums = block_sums(
                piece._replace(pixels=is_tissue), self._side, (int(self._corner[0]), int(self._corner[1]))
            )
            column, row = column - int(self._first[0]), row - int(self._first[1])
            own = self._found[row : row + sums.shape[0], column : column + sums.shape[1]]
            own += sums[:, :, 0].astype(own.dtype)
        if not value:
            raise InputError(f"tissue in the mask {self.name}", "0 everywhere", _MASK_ADVICE)

    def _refuse(self, one: int, other: int) -> None:
        found = f"values {min(one, other)} and {max(one, other)} beside 0"
        raise InputError(f"{self.name} to be a mask of 0 and one other value", found, _MASK_ADVICE)


_MASK_ADVICE = "Name the mask of the tissue that SAW writes, SN_tissue_cut.tif."


class MarkedSample:
    """A sample whose spots are marked as on the tissue or off it, in ``obs['in_tissue']``."""

    def __init__(self, sample: Sample, mask: TissueMask) -> None:
        self._sample, self._mask = sample, mask
        self.n_values = sample.n_values
        self._n = self._n_tissue = self._n_outside = 0

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the counts, and then check that the mask belongs to the sample."""
        yield from self._sample.blocks()
        if self._n and not self._n_tissue:
            raise InputError(
                f"spots on the tissue of {self._mask.name}", "none", "Check that it belongs to this sample."
            )
        expect_inside(self._n_outside, self._n, f"the mask {self._mask.name}")

    def genes(self) -> Genes:
        """Return the genes."""
        return self._sample.genes()

    def obs(self, rows: np.ndarray) -> pd.DataFrame:
        """Return the table of spots with ``in_tissue``."""
        inside, outside = self._mask.at(self._sample.places(rows))
        self._n += inside.size
        self._n_tissue += int(inside.sum())
        self._n_outside += int(outside.sum())
        return self._sample.obs(rows).assign(**{IN_TISSUE: inside})

    def places(self, rows: np.ndarray) -> np.ndarray:
        """Return the coordinates."""
        return self._sample.places(rows)

    def facts(self) -> dict[str, Any]:
        """Return what is known of the sample, and the name of the mask."""
        return self._sample.facts()


def tissue_image(tiff: Tiff, *, corner: tuple[int, int], diameter: float | None, name: str) -> Library:
    """Shrink a registered image, piece by piece, so that ``obsm['spatial']`` times its scale factors are its pixels.

    Parameters
    ----------
    tiff
        The image; grey or in colours, of 8 or 16 bits.
    corner
        The DNB (x, y) of its first pixel; what is left of and above it is black.
    diameter
        Of a spot in DNBs; None where it is not known.
    name
        Of the section.

    Raises
    ------
    InputError
        Where the first pixel lies left of or above (0, 0), which is where ``uns['spatial']`` has it begin.
    """
    if min(corner) < 0:
        x, y = (max(0, -first) for first in corner)
        raise InputError(
            f"coordinates of at least 0 in a GEM for {option('image')}, as no pixel can lie left of or above (0, 0)",
            f"({corner[0]:,}, {corner[1]:,}) as the first",
            f"Add {x:,} to x and {y:,} to y of all its records, or leave out {option('image')}.",
        )
    width, height = tiff.width + corner[0], tiff.height + corner[1]
    side = max(1, round(max(width, height) / _HIRES))
    channels = 3 if tiff.channels >= 3 else 1
    sums = np.zeros((-(-height // side), -(-width // side), channels), dtype=np.uint64)
    for piece in tiff.pieces():
        row, column, own = block_sums(piece._replace(pixels=piece.pixels[:, :, :channels]), side, corner)
        sums[row : row + own.shape[0], column : column + own.shape[1]] += own
    rows, columns = (np.minimum(side, n - np.arange(0, n, side)) for n in (height, width))
    means = sums / (rows[:, None] * columns)[:, :, None]
    if tiff.dtype.itemsize > 1:
        lit = means[means > 0]
        means *= 255.0 / (float(np.percentile(lit, _BRIGHTEST)) if lit.size else 1.0)
    elif tiff.dtype.kind == "b":
        means *= 255.0
    hires = np.rint(np.broadcast_to(means, (*means.shape[:2], 3)).clip(0, 255)).astype(np.uint8)
    less = max(1, round(max(hires.shape) / _LOWRES))
    return Library(
        name=name,
        images={"hires": hires, "lowres": _shrunk(hires, less)},
        factors={
            "tissue_hires_scalef": 1.0 / side,
            "tissue_lowres_scalef": 1.0 / (side * less),
            **({} if diameter is None else {"spot_diameter_fullres": float(diameter)}),
        },
        metadata={"source_image_path": tiff.name},
    )


def _shrunk(image: np.ndarray, side: int) -> np.ndarray:
    height, width = image.shape[:2]
    sums = np.add.reduceat(image, np.arange(0, height, side), axis=0, dtype=np.float64)
    sums = np.add.reduceat(sums, np.arange(0, width, side), axis=1)
    rows, columns = (np.minimum(side, n - np.arange(0, n, side)) for n in (height, width))
    return np.rint(sums / (rows[:, None] * columns)[:, :, None]).astype(np.uint8)
