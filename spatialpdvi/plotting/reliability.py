"""How far a confidence can be believed: the share of spots that are right among those that are so sure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator
from numpy.typing import NDArray

from spatialpdvi.errors import InputError
from spatialpdvi.plotting.panels import TEXT, Heading, add_heading, tidy

__all__ = ["RELIABILITY_NOTE", "draw_reliability"]

RELIABILITY_NOTE = "right: has its domain's most frequent label"

_COLUMNS = ("confidence", "correct", "spots")
# key of the columns, of the error, name, colour, and the side of the bin that the bar stands on
_CURVES = (
    ("reliability", "ece", "posterior", "#d9711a", -1),
    ("reliability_calibrated", "ece_calibrated", "calibrated", "#3f6fb5", 0),
)
_FEWEST = 10  # spots of a bin that joins the curve; a share of fewer is chance, and is drawn pale
_HISTOGRAM, _SPACE = 0.2, 0.07  # shares of the panel's height
_BAR = 0.04  # of the axis: two fill most of a bin


def draw_reliability(axes: Axes, calibration: Mapping[str, Any], *, heading: Heading) -> None:
    """Confidence against the share of spots with their domain's most frequent label, and the spots of every bin.

    On the diagonal a confidence is what it says; below it is too sure. Bins of few spots are pale and off the curve.

    Parameters
    ----------
    axes
        Where to draw.
    calibration
        As a fit stores it (docs/outputs.md): ``reliability`` and ``ece``, and both with ``_calibrated`` where known.
    heading
        Printed above the chart.
    """
    axes.set_axis_off()
    above = _HISTOGRAM + _SPACE
    upper = axes.inset_axes((0.0, above, 1.0, 1.0 - above))
    lower = axes.inset_axes((0.0, 0.0, 1.0, _HISTOGRAM), sharex=upper)
    add_heading(axes, heading)
    upper.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for key, error, name, colour, side in _CURVES:
        if key not in calibration:
            continue
        confidence, correct, spots = _columns(calibration, key)
        label = f"{name}, ECE {float(calibration[error]):.3f}"
        enough = spots >= _FEWEST
        curve = confidence[enough], correct[enough]
        upper.plot(*curve, color=colour, linewidth=1.2, marker="o", markersize=3.5, label=label)
        upper.plot(confidence[~enough], correct[~enough], "o", color=colour, alpha=0.35, markersize=2.5)
        # a bin of confidence is a tenth wide; a mean of exactly 1 is of the last
        middle = np.minimum(np.floor(confidence * 10), 9) / 10 + 0.05
        lower.bar(middle + _BAR * (side + 0.5), spots / spots.sum(), width=_BAR, color=colour)
    upper.set_xlim(-0.02, 1.02)  # room for the markers at the ends
    upper.set_ylim(-0.02, 1.04)
    upper.set_ylabel("share right", fontsize=TEXT)
    upper.legend(loc="best", fontsize=TEXT, frameon=False, borderaxespad=0.2, handlelength=1.4)
    upper.tick_params(labelbottom=False)
    lower.set_ylim(0, 1)
    lower.set_ylabel("spots", fontsize=TEXT)
    lower.set_xlabel("confidence", fontsize=TEXT)
    for part in (upper, lower):
        tidy(part)
        part.spines["right"].set_visible(False)
        part.xaxis.set_major_locator(MultipleLocator(0.2))
    upper.yaxis.set_major_locator(MultipleLocator(0.2))
    lower.yaxis.set_major_locator(MultipleLocator(0.5))


def _columns(calibration: Mapping[str, Any], key: str) -> list[NDArray[np.float64]]:
    table = calibration[key]
    columns = [np.asarray(table.get(name, ()), dtype=np.float64) for name in _COLUMNS]
    if columns[0].ndim != 1 or not columns[0].size or len({column.shape for column in columns}) > 1:
        shapes = ", ".join(f"{name!r} of shape {column.shape}" for name, column in zip(_COLUMNS, columns, strict=True))
        msg = f"Expected columns of equal length in {key!r}, found {shapes}. Give what a fit has written."
        raise InputError(msg)
    return columns
