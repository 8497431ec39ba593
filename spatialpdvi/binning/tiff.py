"""TIFF images of a chip, read piece by piece: masks of the tissue, and registered images shrunk to what can be shown.

Registered images of SAW (``*_regist.tif``, ``*_tissue_cut.tif``) lie in the frame of the matrix: the pixel in row y and
column x is the DNB (x, y) of the file. That is how geftools cuts a GEF by a mask, which has ``maxX - minX + 1`` columns
(bgefCreater.cpp and bgefCreater.h in github.com/STOmics/geftools), how stereopy draws spots over such an image
(``base_image`` of its scatter plots in github.com/STOmics/Stereopy), and what its developers say
(github.com/STOmics/SAW/issues/230). Of a GEM both geftools and cellbin2 (cellbin2/matrix/matrix.py in
github.com/STOmics/cellbin2) take the least x and y for the first pixel.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.errors import InputError, missing_package, option
from spatialpdvi.io.storage.damage import reading_file
from spatialpdvi.io.storage.paths import check_readable

__all__ = ["Tiff", "block_sums"]

_WHAT = "TIFF image"
_SHARE = 8  # of the memory: a piece takes at most one part in so many


class Piece(NamedTuple):
    """A part of an image."""

    row: int  # of its first pixel
    column: int
    pixels: np.ndarray  # (height, width, channels)


class Tiff:
    """The first page of a TIFF.

    Parameters
    ----------
    path
        The file.
    memory
        Bytes that reading may use.
    given
        The option that named it.

    Raises
    ------
    InputError
        Where it is no TIFF, has several pages or separate channels, or pieces that memory cannot hold.
    """

    def __init__(self, path: Path, *, memory: int, given: str) -> None:
        self.name = path.name
        self._path, self._memory = path, memory
        check_readable(path, f"a {_WHAT} for {option(given)}")
        if find_spec("tifffile") is None or find_spec("imagecodecs") is None:
            raise missing_package("tifffile and imagecodecs", f"to read {str(path)!r}", "'spatialpdvi[images]'")
        with path.open("rb") as file:
            if file.read(4) not in {b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"}:
                raise InputError(
                    f"{str(path)!r} to be a {_WHAT} for {option(given)}",
                    "another kind of file",
                    "Name a TIFF of SAW, such as SN_regist.tif or SN_tissue_cut.tif.",
                )
        import tifffile

        with reading_file(path, _WHAT), tifffile.TiffFile(path) as tiff:
            pages = len(tiff.series[0].pages)
            self._look(tiff.pages[0], pages)

    def pieces(self) -> Iterator[Piece]:
        """Yield the parts of the image, which cover it once."""
        import tifffile

        if self._is_mapped:
            with reading_file(self._path, _WHAT):
                mapped = tifffile.memmap(self._path, page=0, mode="r").reshape(self.height, self.width, self.channels)
            yield from self._cut(0, 0, mapped)
            return
        with reading_file(self._path, _WHAT):
            tiff = tifffile.TiffFile(self._path)
        with tiff:
            segments = tiff.pages[0].segments(maxworkers=1, buffersize=self._memory // _SHARE)
            while True:
                with reading_file(self._path, _WHAT):
                    segment = next(segments, None)
                if segment is None:
                    return
                data, (*_, row, column, _), _ = segment
                if data is not None:  # a segment that is not stored is 0
                    yield from self._cut(row, column, data[0, : self.height - row, : self.width - column])

    def _cut(self, row: int, column: int, pixels: np.ndarray) -> Iterator[Piece]:
        """Yield pieces so small that what is computed of them, at eight bytes a pixel, takes a part of the memory."""
        step = max(1, self._memory // _SHARE // 8 // max(1, pixels[:1].size))
        for first in range(0, pixels.shape[0], step):
            yield Piece(row + first, column, np.asarray(pixels[first : first + step]))

    def _look(self, page: Any, pages: int) -> None:
        self.height, self.width, self.channels = int(page.imagelength), int(page.imagewidth), int(page.samplesperpixel)
        self.dtype = page.dtype
        found = ""
        if pages > 1 or page.imagedepth > 1:
            found = f"{max(pages, page.imagedepth):,} pages"
        elif self.channels > 1 and page.planarconfig != 1:
            found = f"{self.channels} channels that are stored one after the other"
        elif self.dtype is None or self.dtype.kind not in "bu":
            found = f"pixels of {'an unknown type' if self.dtype is None else f'type {self.dtype}'}"
        if found:
            raise InputError(
                f"{str(self._path)!r} to be one image of 8 or 16 bits, grey or in colours",
                found,
                "Save the part to be used as a TIFF of its own.",
            )
        self._is_mapped = bool(page.is_memmappable)
        piece = int(np.prod(page.chunks)) * self.dtype.itemsize
        if not self._is_mapped and piece > self._memory // _SHARE:
            need = -(-_SHARE * piece // 10**9)
            raise InputError(
                f"{str(self._path)!r} to be stored in pieces that take a part in {_SHARE} of {option('memory')}",
                f"pieces of {piece / 1e9:.3g} GB",
                f"Give {option('memory', f'{need}GB')}, or save it in tiles.",
            )


def block_sums(piece: Piece, side: int, corner: tuple[int, int]) -> tuple[int, int, np.ndarray]:
    """Add up the pixels of a piece in squares.

    Parameters
    ----------
    piece
        Part of an image.
    side
        Of the squares, in pixels.
    corner
        x and y of the image's first pixel in the frame in which the corners of the squares are multiples of ``side``.

    Returns
    -------
    The row and the column of the first square, and the sums (rows, columns, channels) of uint64.
    """
    row, column = piece.row + corner[1], piece.column + corner[0]
    sums = piece.pixels
    for axis, first in enumerate((row, column)):
        n = sums.shape[axis]
        starts = np.arange(-(first % side), n, side).clip(0)
        sums = np.add.reduceat(sums, starts, axis=axis, dtype=np.uint64)
    return row // side, column // side, sums
