"""Forest plots of intervals: log2 fold changes between domains, mean expression, and shares."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, LogLocator, MaxNLocator, NullFormatter

from spatialpdvi.io.results.described import read_intervals
from spatialpdvi.plotting.labels import printable, short
from spatialpdvi.plotting.page import TEXT, Heading, Panel, draw_page
from spatialpdvi.plotting.view import View

__all__ = ["intervals_figure", "intervals_panel", "intervals_panel_size"]

_MOST = 60  # rows of a panel
_WIDTH, _ROW = 3.2, 0.17  # inches
_COLOUR, _LIGHT = "#3f6fb5", "#9db4d8"  # of an interval without and with the value of no difference
_TITLES = {"contrasts": "Contrasts", "expression": "Mean expression", "composition": "Composition"}
_AXES = {"contrasts": "log2 fold change", "expression": "counts per 10,000", "composition": "share of the spots"}
_VALUES = {"contrasts": "log2_fold_change", "expression": "mean", "composition": "share"}


def intervals_figure(tables: Mapping[str, pd.DataFrame], params: Mapping[str, Any]) -> Figure:
    """Draw a panel for each table of intervals that has rows.

    Parameters
    ----------
    tables
        By their names, as `spatialpdvi.uncertainty.tables.Intervals` has them.
    params
        With the ``level`` and the ``method``.
    """
    panels = [
        Panel(intervals_size(tables[name]), partial(draw_intervals, table=tables[name], name=name, params=params))
        for name in _TITLES
        if name in tables and len(tables[name])
    ]
    return draw_page(panels)


def intervals_panel(view: View, axes: Axes) -> Heading:
    """Draw the stored contrasts of a section or, where it has one domain, the stored expression."""
    name, table, params = _usual(view)
    return draw_intervals(axes, table=table, name=name, params=params)


def intervals_panel_size(view: View) -> tuple[float, float]:
    """Return the size of `intervals_panel`."""
    return intervals_size(_usual(view)[1])


def _usual(view: View) -> tuple[str, pd.DataFrame, Mapping[str, Any]]:
    tables, params = read_intervals(view.source, view.keys)
    name = next(name for name in _TITLES if name in tables)
    return name, tables[name], params


def intervals_size(table: pd.DataFrame) -> tuple[float, float]:
    """Return width and height in inches that suit a table."""
    return _WIDTH, max(1.0, _ROW * min(len(table), _MOST))


def draw_intervals(axes: Axes, *, table: pd.DataFrame, name: str, params: Mapping[str, Any]) -> Heading:
    """Draw the estimate and the interval of each row, the first on top.

    Parameters
    ----------
    axes
        Where to draw.
    table
        With a column of estimates, ``lower`` and ``upper``.
    name
        "contrasts", "expression" or "composition".
    params
        With the ``level`` and the ``method``.
    """
    shown = table.head(_MOST)
    value, low, high = (shown[column].to_numpy(dtype=float) for column in (_VALUES[name], "lower", "upper"))
    rows = np.arange(len(shown))
    colours = [_COLOUR] * len(shown)
    if name == "contrasts":
        axes.axvline(0.0, color="#999999", linewidth=0.8)
        colours = [_COLOUR if lower > 0 or upper < 0 else _LIGHT for lower, upper in zip(low, high, strict=True)]
    if name == "expression" and (value > 0).any():
        positive = np.concatenate([value, high])
        smallest = positive[positive > 0].min() / 4
        low, value = np.maximum(low, smallest), np.maximum(value, smallest)
        drawn = np.concatenate([low, value, high])
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(_ticks(np.nanmax(drawn) / np.nanmin(drawn)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.hlines(rows, low, high, colors=colours, linewidth=1.6)
    axes.scatter(value, rows, s=14, c=colours, zorder=3)
    axes.set_yticks(rows, _labels(shown, name), fontsize=TEXT, parse_math=False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlabel(_AXES[name], fontsize=TEXT)
    axes.tick_params(axis="x", labelsize=TEXT)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    note = f"{100 * float(params['level']):g} % intervals, {params['method']}"
    if len(table) > _MOST:
        note += f"; the first {_MOST} of {len(table):,}"
    return Heading(_TITLES[name], note)


def _ticks(ratio: float) -> Locator:
    """Return ticks, at least two, of a logarithmic axis whose ends have this ratio."""
    if ratio < 5:
        return MaxNLocator(nbins=5, steps=[1, 2, 5, 10])
    return LogLocator(subs=(1.0, 2.0, 5.0) if ratio < 100 else (1.0,))


def _labels(table: pd.DataFrame, name: str) -> Sequence[str]:
    group = "state" if "state" in table else "domain"
    if name == "contrasts":
        gene, of = _texts(table["gene"]), _texts([*table[group], *table["other"]])
        columns = zip(table["gene"], table[group], table["other"], strict=True)
        return [f"{gene[what]}  {of[a]} / {of[b]}" for what, a, b in columns]
    key = "gene" if name == "expression" else "type"
    what, of = _texts(table[key]), _texts(table[group])
    return [f"{what[a]}  {of[b]}" for a, b in zip(table[key], table[group], strict=True)]


def _texts(names: Iterable[str]) -> dict[str, str]:
    """How each of the names is written, in few letters."""
    distinct = list(dict.fromkeys(names))
    return dict(zip(distinct, short(map(printable, distinct), 20), strict=True))
