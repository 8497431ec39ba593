"""Charts without coordinates: convergence, number of domains, compositions, domains against labels, reliability."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, MultipleLocator, ScalarFormatter
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.errors import InputError, list_keys, option
from spatialpdvi.metrics.clustering import best_pairs, overlap
from spatialpdvi.plotting.labels import Labels, short
from spatialpdvi.plotting.page import TEXT, inches

__all__ = [
    "RELIABILITY_NOTE",
    "Confusion",
    "composition_size",
    "confusion_size",
    "count_confusion",
    "draw_composition",
    "draw_confusion",
    "draw_counts",
    "draw_reliability",
    "draw_scan",
    "draw_stationarity",
    "draw_trace",
    "no_labels",
]

Floats = NDArray[np.float64]

RELIABILITY_NOTE = "right: has its domain's most frequent label"

_ADVICE = "Give the {} that a fit has written."
_OBJECTIVE, _GRADIENT, _FOUND, _POSTERIORS, _GREY = "#3f6fb5", "#d9711a", "#2b8a4b", "#8e63b0", "#999999"
_DASHED: Any = (0, (4, 3))

# of the trace: key, name, colour
_BLOCKS = (
    ("stationarity_mean", "means", _GRADIENT),
    ("stationarity_log_variance", "variances", _FOUND),
    ("stationarity_posterior", "posteriors", _POSTERIORS),
)
_COMPOSITIONS = ("stationarity_composition", "compositions", _GRADIENT)  # instead of the first two, which are held
_LOWEST = 1e-3  # of the tolerance: below it stationarity is not drawn

_CELL, _CELL_HEIGHT, _NARROWEST, _LOWEST_TABLE = 0.46, 0.25, 1.4, 1.0  # inches
_DARK = 0.6  # share above which a cell is so dark that its count is white
_COMPOSITION_WIDTH = 3.6  # inches
_DIGIT, _READABLE = 0.62, 3.0  # a digit's width, as a share of the size of its font; points

# key of the columns, key of the error, name, colour, and the side of the bin that the bar stands on
_CURVES = (
    ("reliability", "ece", "posterior", _GRADIENT, -1),
    ("reliability_calibrated", "ece_calibrated", "calibrated", _OBJECTIVE, 0),
)
_COLUMNS = ("confidence", "correct", "spots")
_FEWEST = 10  # spots of a bin that joins the curve; a share of fewer is mostly chance and is drawn pale
_HISTOGRAM, _SPACE = 0.2, 0.07  # shares of the panel's height
_BAR = 0.04  # of the axis: two fill most of a bin


def draw_trace(axes: Axes, trace: Mapping[str, ArrayLike]) -> None:
    """Draw the objective and, on a logarithmic axis on the right, its gradient, both against epochs.

    Parameters
    ----------
    axes
        Where to draw.
    trace
        ``epoch``, ``neg_elbo`` and, where known, ``gradient_norm`` or ``stationarity``.
    """
    epoch = _draw_objective(axes, trace)
    key = "gradient_norm" if "gradient_norm" in trace else "stationarity"
    gradient = _column(trace, key) if key in trace else np.full(epoch.shape, np.nan)
    if not (gradient > 0).any():
        return
    right = _logarithmic(axes)
    _curve(right, epoch, np.where(gradient > 0, gradient, np.nan), colour=_GRADIENT)
    right.set_ylabel(key.replace("_", " "), fontsize=TEXT, color=_GRADIENT)


def draw_stationarity(axes: Axes, trace: Mapping[str, ArrayLike], *, tolerance: float | None) -> None:
    """Draw the objective and, on a logarithmic axis on the right, how far each block of unknowns is from stationary.

    Parameters
    ----------
    axes
        Where to draw.
    trace
        ``epoch``, ``neg_elbo`` and ``stationarity_mean``, ``stationarity_log_variance`` and
        ``stationarity_posterior`` (docs/outputs.md).
    tolerance
        Of the stopping rule: all three must fall below it. Drawn as a dashed line.
    """
    shown = (_COMPOSITIONS, _BLOCKS[-1]) if _COMPOSITIONS[0] in trace else _BLOCKS
    blocks = [(_column(trace, key), name, colour) for key, name, colour in shown]
    epoch = _draw_objective(axes, trace)
    right = _logarithmic(axes)
    for values, name, colour in blocks:
        _curve(right, epoch, np.where(values > 0, values, np.nan), colour=colour, label=name)
    if tolerance is not None and tolerance > 0:
        right.axhline(tolerance, color=_GREY, linewidth=0.8, linestyle=_DASHED, zorder=1, label="tolerance")
        # one block may be stationary to the last digit at the start, which would press all else together
        right.set_ylim(bottom=max(right.get_ylim()[0], _LOWEST * tolerance))
    right.set_ylabel("stationarity", fontsize=TEXT)
    # in the upper right corner all curves have fallen
    right.legend(loc="upper right", fontsize=TEXT, frameon=False, borderaxespad=0.2, handlelength=1.4)


_DECIDES = {"evidence": "share of the evidence", "found_again": "domains found again (net)"}


def draw_scan(axes: Axes, scan: Mapping[str, ArrayLike], k: int | None) -> None:
    """Draw what decides on the number of domains and, on the right, the complete bound, by number of domains.

    Parameters
    ----------
    axes
        Where to draw.
    scan
        ``k``, ``neg_elbo`` (nats), and ``evidence`` or ``found_again``, of equal length.
    k
        The chosen number of domains, marked by a bar; None for no mark.
    """
    counts = _column(scan, "k", length="k", what="scan")
    decides = "evidence" if "evidence" in scan else "found_again"
    found, objective = (_column(scan, name, length="k", what="scan") for name in (decides, "neg_elbo"))
    if k is not None:
        axes.axvline(k, color="#bbbbbb", linewidth=6, alpha=0.5, zorder=0)
    _curve(axes, counts, found, colour=_FOUND)
    axes.set_xlabel("number of domains", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_ylabel(_DECIDES[decides], fontsize=TEXT, color=_FOUND)
    _tidy(axes)
    right = axes.twinx()
    power, unit = _nats(objective)
    _curve(right, counts, objective / 10.0**power, colour=_OBJECTIVE)
    right.set_ylabel(f"complete negative ELBO ({unit})", fontsize=TEXT, color=_OBJECTIVE)
    right.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    _tidy(right)


class Confusion(NamedTuple):
    """Labelled spots by domain and label, domains in an order in which the diagonal is heavy."""

    counts: NDArray[np.int64]  # (domains, labels)
    domains: list[str]
    labels: list[str]
    n_unlabelled: int


def count_confusion(domains: Labels, annotation: Labels) -> Confusion:
    """Count the spots of each domain (row) by label (column).

    Columns are in the order of the labels. Each label is paired with one domain, so that the pairs share as many spots
    as possible, and the domain's row is at the place of the label's column: the diagonal is heavy. A domain without a
    partner follows that of its most frequent label.

    Raises
    ------
    InputError
        If no spot has a label.
    """
    shape = len(domains.names), len(annotation.names)
    counts = overlap(domains.codes, annotation.codes, shape=shape)
    if not counts.any():
        raise no_labels()
    place = [(int(row.argmax()), 1, -int(row.max())) for row in counts]
    for domain, label in best_pairs(counts):
        place[domain] = label, 0, 0
    order = sorted(range(shape[0]), key=place.__getitem__)
    names = [domains.names[row] for row in order]
    return Confusion(counts[order], names, list(annotation.names), domains.codes.size - int(counts.sum()))


def no_labels() -> InputError:
    """Return the error for an annotation without a single label."""
    advice = f"Name a column of obs with labels by {option('label_key')}."
    return InputError("spots with a label", "none", advice)


def confusion_size(confusion: Confusion) -> tuple[float, float]:
    """Return width and height in inches that suit a table of these counts."""
    n_rows, n_columns = confusion.counts.shape
    return max(_NARROWEST, _CELL * n_columns), max(_LOWEST_TABLE, _CELL_HEIGHT * n_rows)


def draw_confusion(axes: Axes, confusion: Confusion) -> None:
    """Draw the share of each label among a domain's labelled spots as colours, with numbers of spots in the cells."""
    counts = confusion.counts
    whole = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, whole, out=np.zeros(counts.shape), where=whole > 0)
    size = _fitting_size(axes, counts)
    numbers = counts if size > _READABLE else np.zeros_like(counts)
    draw_counts(axes, numbers, share, domains=confusion.domains, columns=confusion.labels, size=size)
    axes.set_aspect("auto")  # the panel is as large as suits the table, and its cells need not be square
    axes.set_xlabel("label", fontsize=TEXT)


def draw_counts(
    axes: Axes,
    counts: NDArray[np.int64],
    share: Floats,
    *,
    domains: Sequence[str],
    columns: Sequence[str],
    size: float,
) -> None:
    """Draw a table with a row for each domain: shares as colours of square cells, with counts above 0 in the cells.

    Parameters
    ----------
    axes
        Where to draw.
    counts, share
        Of each cell, (K, C).
    domains, columns
        Names, K and C.
    size
        Of the font of the counts, points.
    """
    axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    for row, column in np.argwhere(counts > 0):
        colour = "white" if share[row, column] > _DARK else "#333333"
        axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", fontsize=size, color=colour)
    across, down = short(columns), short(domains)
    axes.set_xticks(range(len(across)), across, rotation=90, fontsize=TEXT, parse_math=False)
    axes.set_yticks(range(len(down)), down, fontsize=TEXT, parse_math=False)
    axes.set_ylabel("domain", fontsize=TEXT)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def composition_size(n_domains: int) -> tuple[float, float]:
    """Return width and height in inches that suit the compositions of so many domains."""
    return _COMPOSITION_WIDTH, max(_LOWEST_TABLE, _CELL_HEIGHT * n_domains)


def draw_composition(
    axes: Axes, composition: Floats, *, domains: Sequence[str], colours: Sequence[str], what: str = "states"
) -> None:
    """Draw the share of each state, or of each other type of spot, in each domain as a bar, the first domain on top.

    Parameters
    ----------
    axes
        Where to draw.
    composition
        Shares (K, C); rows sum to 1, or hold NaN where there is nothing to draw.
    domains
        Names, K.
    colours
        One for each state, C.
    what
        What the shares are of, for the axis.
    """
    composition = np.nan_to_num(composition)
    rows = np.arange(len(domains))
    left = np.zeros(len(domains))
    for state, colour in enumerate(colours):
        axes.barh(rows, composition[:, state], left=left, height=0.8, color=colour, linewidth=0)
        left += composition[:, state]
    axes.set_yticks(rows, short(domains), fontsize=TEXT, parse_math=False)
    axes.set_ylim(max(len(domains), 1) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.set_ylabel("domain", fontsize=TEXT)
    axes.set_xlabel(f"share of {what}", fontsize=TEXT, parse_math=False)
    _tidy(axes)
    axes.spines["right"].set_visible(False)


def draw_reliability(axes: Axes, calibration: Mapping[str, Any]) -> None:
    """Draw the share of spots with their domain's most frequent label by confidence, and the spots of every bin.

    On the diagonal a confidence is what it claims to be; below the diagonal it is too high. Bins of few spots are pale
    and not part of the curve.

    Parameters
    ----------
    axes
        Where to draw.
    calibration
        As a fit stores it (docs/outputs.md): ``reliability`` and ``ece``, and both with ``_calibrated`` where known.
    """
    axes.set_axis_off()
    above = _HISTOGRAM + _SPACE
    upper = axes.inset_axes((0.0, above, 1.0, 1.0 - above))
    lower = axes.inset_axes((0.0, 0.0, 1.0, _HISTOGRAM), sharex=upper)
    upper.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle=_DASHED, zorder=1)
    for key, error, name, colour, side in _CURVES:
        if key not in calibration:
            continue
        confidence, correct, spots = _bins(calibration, key)
        label = f"{name}, ECE {float(calibration[error]):.3f}"
        enough = spots >= _FEWEST
        curve = confidence[enough], correct[enough]
        upper.plot(*curve, color=colour, linewidth=1.2, marker="o", markersize=3.5, label=label)
        upper.plot(confidence[~enough], correct[~enough], "o", color=colour, alpha=0.35, markersize=2.5)
        # a bin of confidence is a tenth wide; a mean of exactly 1 belongs to the last
        middle = np.minimum(np.floor(confidence * 10), 9) / 10 + 0.05
        lower.bar(middle + _BAR * (side + 0.5), spots / spots.sum(), width=_BAR, color=colour)
    upper.set_xlim(-0.02, 1.02)  # room for the markers at the ends
    upper.set_ylim(-0.02, 1.04)
    upper.set_ylabel("share right", fontsize=TEXT)
    upper.legend(loc="best", fontsize=TEXT, frameon=False, borderaxespad=0.2, handlelength=1.4)
    upper.tick_params(labelbottom=False)
    lower.set_ylim(0, 1)
    lower.set_ylabel("share of spots", fontsize=TEXT)
    lower.set_xlabel("confidence", fontsize=TEXT)
    for part in (upper, lower):
        _tidy(part)
        part.spines["right"].set_visible(False)
        part.xaxis.set_major_locator(MultipleLocator(0.2))
    upper.yaxis.set_major_locator(MultipleLocator(0.2))
    lower.yaxis.set_major_locator(MultipleLocator(0.5))


def _draw_objective(axes: Axes, trace: Mapping[str, ArrayLike]) -> Floats:
    """Draw the objective against epochs on the left axis, and return the epochs."""
    epoch, objective = _column(trace, "epoch"), _column(trace, "neg_elbo")
    power, unit = _nats(objective)
    _curve(axes, epoch, objective / 10.0**power, colour=_OBJECTIVE)
    axes.set_xlabel("epoch", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_ylabel(f"negative ELBO ({unit})", fontsize=TEXT, color=_OBJECTIVE)
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    _tidy(axes)
    return epoch


def _logarithmic(axes: Axes) -> Axes:
    right = axes.twinx()
    right.set_yscale("log")
    _tidy(right)
    return right


def _nats(objective: Floats) -> tuple[int, str]:
    """Return the power of ten (of thousands) that a curve in nats is drawn in, and its unit."""
    largest = np.abs(objective[np.isfinite(objective)]).max(initial=1)
    power = 3 * int(np.log10(largest) // 3)
    return power, rf"$10^{{{power}}}$ nats" if power else "nats"


def _curve(axes: Axes, epoch: Floats, values: Floats, *, colour: str, label: str | None = None) -> None:
    known = np.isfinite(values)
    marker = "." if known.sum() < 40 else ""
    axes.plot(epoch[known], values[known], color=colour, linewidth=1.2, marker=marker, label=label)


def _tidy(axes: Axes) -> None:
    """Make the labels of ticks small, and remove the line above the chart."""
    axes.tick_params(labelsize=TEXT, length=3)
    axes.tick_params(which="minor", labelsize=TEXT, length=2)  # labelled on a logarithmic axis of less than a decade
    axes.spines["top"].set_visible(False)


def _column(table: Mapping[str, ArrayLike], key: str, *, length: str = "epoch", what: str = "trace") -> Floats:
    if key not in table:
        raise InputError(f"a column {key!r} in the {what}", list_keys(table), _ADVICE.format(what))
    values = np.asarray(table[key], dtype=np.float64)
    n = np.size(table[length])
    if values.shape != (n,):
        rows = "epochs" if length == "epoch" else f"rows of {length!r}"
        found = f"{n} {rows} and {key!r} of shape {values.shape}"
        raise InputError(f"columns of equal length in the {what}", found, _ADVICE.format(what))
    return values


def _bins(calibration: Mapping[str, Any], key: str) -> list[Floats]:
    table = calibration[key]
    columns = [np.asarray(table.get(name, ()), dtype=np.float64) for name in _COLUMNS]
    if columns[0].ndim != 1 or not columns[0].size or len({column.shape for column in columns}) > 1:
        shapes = ", ".join(f"{name!r} of shape {column.shape}" for name, column in zip(_COLUMNS, columns, strict=True))
        raise InputError(f"columns of equal length in {key!r}", shapes, _ADVICE.format("calibration"))
    return columns


def _fitting_size(axes: Axes, counts: NDArray[np.int64]) -> float:
    """Return the size, in points, of a font in which every number fits its cell."""
    width, height = inches(axes)
    longest = len(f"{counts.max():,}")
    return min(TEXT, 72 * 0.9 * width / counts.shape[1] / (_DIGIT * longest), 72 * 0.8 * height / counts.shape[0])
