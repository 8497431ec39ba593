"""Figures are written to files here."""

import os
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.storage.atomic import replacing
from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.outputs import check_writable
from spatialpdvi.io.storage.paths import resolve

__all__ = ["save_figure"]

_USUAL_DPI = 150
_LEAST_DPI = 20  # with fewer dots, letters have no size
_MOST_DPI = 2400
_MOST_PIXELS = (1 << 16) - 1  # of a side of matplotlib's canvas
# without the date, and with names in SVG that are not random, the same figure gives the same file
_METADATA: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}


def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: int | None = None) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the name: the whole file appears, or nothing does.

    Parameters
    ----------
    figure
        The figure that `plot_section` returned, or any other.
    path
        File to write, in a folder that exists. An existing file is replaced.
    dpi
        Dots per inch, in SVG and PDF those of the spots; by default 150, or as many as so large a figure can have.

    Raises
    ------
    InputError
        If the ending of the name is another one, the folder does not exist, nothing can be written there, or the
        picture would have too few or too many dots.
    """
    target = resolve(Path(path))
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in _METADATA:
        expected = "a picture whose name ends in .png, .svg or .pdf"
        raise InputError(expected, f"'{Path(path).name}'", "Give it one of these endings.")
    if not target.parent.is_dir():
        raise InputError(
            "an existing folder for the picture", f"'{target.parent}'", "Make the folder first, or choose another one."
        )
    check_writable(Path(path))
    most = min(_MOST_DPI, int(_MOST_PIXELS / max(figure.get_size_inches())))
    if dpi is None:
        dpi = min(_USUAL_DPI, most)
    if dpi < _LEAST_DPI:
        advice = f"Give {option('dpi', _USUAL_DPI)}, for example."
        raise InputError(f"at least {_LEAST_DPI}", f"{dpi}", advice, option="dpi")
    if dpi > most:
        pixels = dpi * max(figure.get_size_inches())
        found = f"{dpi}" if dpi > _MOST_DPI else f"{dpi}, which makes {pixels:,.0f} pixels along a side"
        expected = f"at most {_MOST_DPI:,}, and to make at most {_MOST_PIXELS:,} pixels along a side"
        raise InputError(expected, found, f"Give {option('dpi', min(300, most))}, for example.", option="dpi")
    same_names = mpl.rc_context({"svg.hashsalt": "spatialpdvi"})
    with clear_errors(target), replacing(target, like=target.parent) as unfinished, same_names:
        figure.savefig(unfinished, format=suffix, dpi=dpi, metadata=_METADATA[suffix])
