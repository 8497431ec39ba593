"""Figures to files."""

import os
from pathlib import Path

from matplotlib.figure import Figure

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import clear_errors, replacing
from spatialpdvi.io.storage.paths import resolve

__all__ = ["save_figure"]

_LEAST_DPI = 20  # letters have a size then
_MOST_DPI = 2400
_MOST_PIXELS = (1 << 16) - 1  # of matplotlib's canvas
# Without the date of the day, the same figure gives the same file.
_METADATA: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: int = 150) -> None:
    """Write a figure as PNG, SVG or PDF, by the suffix: the whole file appears, or nothing does.

    Parameters
    ----------
    figure
        What `plot_section` returned, or any other figure.
    path
        File to write; its folder must exist. A file that is there is replaced.
    dpi
        Dots per inch, of the spots also in SVG and PDF.
    """
    target = resolve(Path(path))
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in _METADATA:
        msg = (
            f"Expected a picture that ends in .png, .svg or .pdf, found '{Path(path).name}'. "
            "Give it one of these endings."
        )
        raise InputError(msg)
    if not target.parent.is_dir():
        msg = (
            f"Expected a folder that exists for the picture, found '{target.parent}'. "
            "Make the folder first, or choose another one."
        )
        raise InputError(msg)
    if dpi < _LEAST_DPI:
        msg = f"Expected at least {_LEAST_DPI} dots per inch, found {dpi}. Give --dpi 150, for example."
        raise InputError(msg)
    pixels = dpi * max(figure.get_size_inches())
    if dpi > _MOST_DPI or pixels > _MOST_PIXELS:
        found = f"{dpi}" if dpi > _MOST_DPI else f"{dpi}, which makes {pixels:,.0f} pixels of one side"
        msg = (
            f"Expected --dpi of at most {_MOST_DPI:,}, and {_MOST_PIXELS:,} pixels along a side, found {found}. "
            "Give --dpi 300, for example."
        )
        raise InputError(msg)
    with clear_errors(target), replacing(target, like=target.parent) as unfinished:
        figure.savefig(unfinished, format=suffix, dpi=dpi, metadata=_METADATA[suffix])
