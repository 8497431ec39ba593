"""Figure of convergence: objective, ARI and gradient as means over seeds, with bands of one standard deviation."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from spatialpdvi.compare.runs import Run
from spatialpdvi.compare.summary import best_by_seed, spread
from spatialpdvi.palette import palette
from spatialpdvi.plotting.page import TEXT

__all__ = ["band", "draw_convergence"]

Floats = NDArray[np.float64]
_POINTS = 400  # on an axis of time
_STYLES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")  # for solvers whose curves coincide


class Band(NamedTuple):
    """A curve with its spread, all of one shape."""

    x: Floats
    middle: Floats  # mean over seeds
    spread: Floats  # one sample sd; 0 for a single seed


class _Panel(NamedTuple):
    x: str  # column of the trace
    y: str  # column of the trace, or "gap"
    label: str
    floor: float | None = None  # with a floor the axis is logarithmic, and shows nothing below it


class _Look(NamedTuple):
    colour: str
    style: Literal["-", "--", ":", "-."]


_PANELS = (
    _Panel("epoch", "neg_elbo", "negative ELBO F (nats), seeds aligned"),
    _Panel("seconds", "neg_elbo", "negative ELBO F (nats), seeds aligned"),
    _Panel("epoch", "ari", "ARI"),
    _Panel("epoch", "gap", "F above the seed's best, of the scale (from 1e-8)", 1e-8),
    _Panel("seconds", "gap", "F above the seed's best, of the scale (from 1e-8)", 1e-8),
    _Panel("epoch", "gradient_norm", "gradient norm of the globals (from 1e-6)", 1e-6),
)


def band(xs: Sequence[Floats], ys: Sequence[Floats], grid: Floats) -> Band:
    """Compute mean and standard deviation over the runs of one solver, on a grid.

    A run that ended before others keeps its last value, because it has converged to that.

    Parameters
    ----------
    xs, ys
        One curve per run, x ascending.
    grid
        Values of x at which the curves are evaluated.
    """
    curves = np.array([np.interp(grid, x, y) for x, y in zip(xs, ys, strict=True)])
    return Band(grid, curves.mean(axis=0), spread(curves))


def draw_convergence(runs: Sequence[Run]) -> Figure:
    """Draw F against epochs and seconds, and ARI (with labels) and the gradient norm of the globals against epochs.

    Every seed has its own start, and therefore its own lowest F. Curves of F are moved so that the lowest F of each
    seed falls on the mean over seeds; otherwise the bands would show only the differences between seeds. Because
    solvers differ little in F, it is drawn a second time as the distance from the lowest F, relative to the scale of
    the problem, which unlike |F| does not depend on where zero is. Curves on a
    logarithmic axis are means of logarithms. Failed runs are left out, and the legend says so. The curve of a solver
    ends in a dot if all of its runs converged.

    Parameters
    ----------
    runs
        Of all solvers and seeds.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with its own canvas, which pyplot does not know.
    """
    names = list(dict.fromkeys(run.solver for run in runs))
    good = {name: [run for run in runs if run.solver == name and not run.failed] for name in names}
    with_ari = any("ari" in run.trace for run in runs)
    best = best_by_seed(runs)
    figure = Figure(figsize=(13, 7), layout="constrained")
    FigureCanvasAgg(figure)
    looks = {
        name: _Look(colour, _STYLES[position % len(_STYLES)])
        for position, (name, colour) in enumerate(zip(names, palette(len(names)), strict=True))
    }
    for axes, panel in zip(figure.subplots(2, 3).ravel(), _PANELS, strict=True):
        if panel.y == "ari" and not with_ari:
            axes.set_axis_off()
            continue
        for name in names:
            if good[name]:
                _draw(axes, panel, good[name], best=best, look=looks[name])
        _finish(axes, panel, [run for run in runs if not run.failed])
    handles = [_handle(name, looks[name], runs) for name in names]
    n_seeds = len({run.seed for run in runs})
    title = f"mean of {n_seeds} seeds, ± 1 sd" if n_seeds > 1 else "one seed"
    legend = figure.legend(handles=handles, loc="outside right upper", fontsize=TEXT, frameon=False, title=title)
    legend.get_title().set_fontsize(TEXT)
    return figure


def _draw(axes: Axes, panel: _Panel, runs: list[Run], *, best: dict[int, float], look: _Look) -> None:
    xs = [run.column(panel.x) for run in runs]
    ys = [_values(run, panel, best) for run in runs]
    curve = band(xs, ys, _grid(xs, panel.x))
    low, middle, high = curve.middle - curve.spread, curve.middle, curve.middle + curve.spread
    if panel.floor is not None:
        low, middle, high = 10.0**low, 10.0**middle, 10.0**high
    axes.plot(curve.x, middle, color=look.colour, linestyle=look.style, linewidth=1.3)
    axes.fill_between(curve.x, low, high, color=look.colour, alpha=0.12, linewidth=0)
    if all(run.converged for run in runs):
        axes.plot(curve.x[-1:], middle[-1:], color=look.colour, marker="o", markersize=4)


def _values(run: Run, panel: _Panel, best: dict[int, float]) -> Floats:
    """Return what the panel shows of a run; on a logarithmic axis, its decimal logarithm."""
    own, y = best[run.seed], run.column("neg_elbo" if panel.y == "gap" else panel.y)
    if panel.y == "gap":
        y = (y - own) / run.scale
    elif panel.y == "neg_elbo":
        y = y - own + np.mean(list(best.values()))
    return y if panel.floor is None else np.log10(np.maximum(y, panel.floor))


def _grid(xs: Sequence[Floats], name: str) -> Floats:
    """Return every epoch; or seconds: 0, and then evenly spaced logarithms from the end of the first epoch."""
    last = max(float(x[-1]) for x in xs)
    if name == "epoch":
        return np.arange(last + 1)
    return np.concatenate([[0.0], np.geomspace(_first(xs), last, _POINTS)])


def _first(xs: Sequence[Floats]) -> float:
    """Return when the fastest first epoch ended."""
    return min(float(x[1]) for x in xs)


def _finish(axes: Axes, panel: _Panel, runs: list[Run]) -> None:
    """Set scales and labels; epochs and seconds are logarithmic, but linear next to 0."""
    if runs:
        first = 1.0 if panel.x == "epoch" else _first([run.column(panel.x) for run in runs])
        linear = 10.0 ** np.floor(np.log10(first))  # a tick; labels of ticks below it would overlap
        axes.set_xscale("symlog", linthresh=linear, linscale=0.4)
        axes.set_xlim(left=0)
    axes.set_xlabel("epoch" if panel.x == "epoch" else "seconds in the solver", fontsize=TEXT)
    axes.set_ylabel(panel.label, fontsize=TEXT)
    if panel.floor is not None:
        axes.set_yscale("log")
        axes.set_ylim(bottom=panel.floor / 2)
    axes.tick_params(labelsize=TEXT, length=3)
    axes.spines[["top", "right"]].set_visible(False)


def _handle(name: str, look: _Look, runs: Sequence[Run]) -> Line2D:
    failed = [run.failed for run in runs if run.solver == name]
    label = f"{name} ({sum(failed)} of {len(failed)} failed)" if any(failed) else name
    return Line2D([], [], color=look.colour, linestyle=look.style, linewidth=1.6, label=label)
