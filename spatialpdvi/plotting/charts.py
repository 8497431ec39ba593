"""Charts of curves: how the fit converged, and how many domains there are."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, ScalarFormatter
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.errors import InputError
from spatialpdvi.plotting.panels import TEXT, Heading, add_heading, tidy

__all__ = ["draw_scan", "draw_stationarity", "draw_trace"]

Floats = NDArray[np.float64]

_LOWEST = 1e-3  # of the tolerance: below it stationarity is not drawn
_OBJECTIVE, _GRADIENT, _FOUND = "#3f6fb5", "#d9711a", "#2b8a4b"
# of the trace: key, name, colour
_BLOCKS = (
    ("stationarity_mean", "means", "#d9711a"),
    ("stationarity_log_variance", "variances", "#2b8a4b"),
    ("stationarity_posterior", "posteriors", "#8e63b0"),
)


def draw_trace(axes: Axes, trace: Mapping[str, ArrayLike], *, heading: Heading) -> None:
    """The objective and, on a logarithmic axis on the right, its gradient, both against epochs.

    Parameters
    ----------
    axes
        Where to draw.
    trace
        ``epoch``, ``neg_elbo`` and, where known, ``gradient_norm`` or ``stationarity``.
    heading
        Printed above the chart.
    """
    epoch = _draw_objective(axes, trace, heading)
    key = "gradient_norm" if "gradient_norm" in trace else "stationarity"
    gradient = _column(trace, key) if key in trace else np.full(epoch.shape, np.nan)
    if not (gradient > 0).any():
        return
    right = _logarithmic(axes)
    _curve(right, epoch, np.where(gradient > 0, gradient, np.nan), colour=_GRADIENT)
    right.set_ylabel(key.replace("_", " "), fontsize=TEXT, color=_GRADIENT)


def draw_stationarity(axes: Axes, trace: Mapping[str, ArrayLike], *, tolerance: float | None, heading: Heading) -> None:
    """The objective and, on a logarithmic axis on the right, how far each block is from stationary, against epochs.

    Parameters
    ----------
    axes
        Where to draw.
    trace
        ``epoch``, ``neg_elbo`` and ``stationarity_mean``, ``stationarity_log_variance`` and
        ``stationarity_posterior`` (docs/outputs.md).
    tolerance
        Of the stop rule, below which all three had to fall; a dashed line.
    heading
        Printed above the chart.
    """
    blocks = [(_column(trace, key), name, colour) for key, name, colour in _BLOCKS]
    epoch = _draw_objective(axes, trace, heading)
    right = _logarithmic(axes)
    for values, name, colour in blocks:
        _curve(right, epoch, np.where(values > 0, values, np.nan), colour=colour, label=name)
    if tolerance is not None and tolerance > 0:
        right.axhline(tolerance, color="#999999", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1, label="tolerance")
    if tolerance is not None and tolerance > 0:
        # the start may be stationary in one block to the last digit, which would press all else together
        right.set_ylim(bottom=max(right.get_ylim()[0], _LOWEST * tolerance))
    right.set_ylabel("stationarity", fontsize=TEXT)
    # where F has fallen and the rest is falling
    right.legend(loc="upper right", fontsize=TEXT, frameon=False, borderaxespad=0.2, handlelength=1.4)


def _draw_objective(axes: Axes, trace: Mapping[str, ArrayLike], heading: Heading) -> Floats:
    """Epochs against the objective on the left axis; the epochs."""
    epoch, objective = _column(trace, "epoch"), _column(trace, "neg_elbo")
    power, unit = _nats(objective)
    _curve(axes, epoch, objective / 10.0**power, colour=_OBJECTIVE)
    add_heading(axes, heading)
    axes.set_xlabel("epoch", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.set_ylabel(f"negative ELBO ({unit})", fontsize=TEXT, color=_OBJECTIVE)
    axes.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    tidy(axes)
    return epoch


def _logarithmic(axes: Axes) -> Axes:
    """A second, logarithmic axis on the right."""
    right = axes.twinx()
    right.set_yscale("log")
    tidy(right)
    return right


def draw_scan(axes: Axes, scan: Mapping[str, ArrayLike], k: int | None, *, heading: Heading) -> None:
    """How many domains are found again and, on the right, the complete bound, both against the number of domains.

    Parameters
    ----------
    axes
        Where to draw.
    scan
        ``k``, ``found_again`` and ``neg_elbo`` (nats) of equal length.
    k
        Number of domains that was chosen, marked by a bar; None for no mark.
    heading
        Printed above the chart.
    """
    counts = _column(scan, "k", length="k", what="scan")
    found, objective = (_column(scan, name, length="k", what="scan") for name in ("found_again", "neg_elbo"))
    if k is not None:
        axes.axvline(k, color="#bbbbbb", linewidth=6, alpha=0.5, zorder=0)
    _curve(axes, counts, found, colour=_FOUND)
    add_heading(axes, heading)
    axes.set_xlabel("number of domains", fontsize=TEXT)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.set_ylabel("domains found again, net", fontsize=TEXT, color=_FOUND)
    tidy(axes)
    right = axes.twinx()
    power, unit = _nats(objective)
    _curve(right, counts, objective / 10.0**power, colour=_OBJECTIVE)
    right.set_ylabel(f"complete negative ELBO ({unit})", fontsize=TEXT, color=_OBJECTIVE)
    right.yaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    tidy(right)


def _nats(objective: Floats) -> tuple[int, str]:
    """Power of ten (of thousands) that a curve in nats is drawn in, and its unit."""
    largest = np.abs(objective[np.isfinite(objective)]).max(initial=1)
    power = 3 * int(np.log10(largest) // 3)
    return power, rf"$10^{{{power}}}$ nats" if power else "nats"


def _curve(axes: Axes, epoch: Floats, values: Floats, *, colour: str, label: str | None = None) -> None:
    known = np.isfinite(values)
    marker = "." if known.sum() < 40 else ""
    axes.plot(epoch[known], values[known], color=colour, linewidth=1.2, marker=marker, label=label)


def _column(table: Mapping[str, ArrayLike], key: str, *, length: str = "epoch", what: str = "trace") -> Floats:
    if key not in table:
        msg = (
            f"Expected a column {key!r} in the {what}, found {', '.join(sorted(table)) or 'none'}. "
            f"Give the {what} that a fit has written."
        )
        raise InputError(msg)
    values = np.asarray(table[key], dtype=np.float64)
    n = np.size(table[length])
    if values.shape != (n,):
        rows = "epochs" if length == "epoch" else f"rows of {length!r}"
        msg = (
            f"Expected columns of equal length in the {what}, found {n} {rows} and {key!r} of "
            f"shape {values.shape}. Give the {what} that a fit has written."
        )
        raise InputError(msg)
    return values
