"""Domains against the annotation: a heat-map of how each domain's spots are labelled."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from spatialpdvi.errors import InputError
from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.plotting.labels import Labels
from spatialpdvi.plotting.page import Place, inches
from spatialpdvi.plotting.panels import TEXT, add_heading, artist_width

__all__ = ["Confusion", "count_confusion", "draw_confusion"]

# Inches
_CELL, _CELL_HEIGHT, _NARROWEST, _LOWEST = 0.46, 0.25, 1.4, 1.0
_TICK = 0.28  # beside the longest label: its distance, and the name of the axis
_LONGEST = 24  # letters of a label that are shown
_DIGIT, _READABLE = 0.62, 3.0  # a digit's width, as a share of the size of its font; points


class Confusion(NamedTuple):
    """Labelled spots by domain and label, domains in an order in which the diagonal is heavy."""

    counts: NDArray[np.int64]  # (domains, labels)
    domains: list[str]
    labels: list[str]
    n_unlabelled: int


def count_confusion(domains: Labels, annotation: Labels) -> Confusion:
    """Spots of each domain (row) by label (column).

    Columns are in the order of the labels. Each label is paired with one domain, so that pairs share as many spots as
    they can, and the domain's row is at the place of the label's column: the diagonal is heavy. A domain in no pair
    follows that of its most frequent label.
    """
    both = (domains.codes >= 0) & (annotation.codes >= 0)
    if not both.any():
        msg = "Expected spots with a label, found none. Name a column with labels with --label-key."
        raise InputError(msg)
    shape = len(domains.names), len(annotation.names)
    counts = overlap(domains.codes[both], annotation.codes[both], shape=shape)
    place = [(int(row.argmax()), 1, -int(row.max())) for row in counts]
    for domain, label in zip(*linear_sum_assignment(counts, maximize=True), strict=True):
        if counts[domain, label] > 0:
            place[domain] = int(label), 0, 0
    order = sorted(range(shape[0]), key=place.__getitem__)
    names = [domains.names[row] for row in order]
    return Confusion(counts[order], names, list(annotation.names), int((~both).sum()))


def draw_confusion(place: Place, confusion: Confusion) -> Axes:
    """Shares of each domain's labelled spots by label as colours, with the numbers of spots in the cells.

    Parameters
    ----------
    place
        Where to draw.
    confusion
        As `count_confusion` returns it.
    """
    n_rows, n_columns = confusion.counts.shape
    names = [_short(name) for name in confusion.domains], [_short(name) for name in confusion.labels]
    width, height = max(_NARROWEST, _CELL * n_columns), max(_LOWEST, _CELL_HEIGHT * n_rows)
    left, below = _room(names[0]), _room(names[1])
    axes = place.add_chart((width, height + below), left=left, right=0.0, bottom=below)
    note = f"{confusion.n_unlabelled:,} spots without a label" if confusion.n_unlabelled else None
    head = add_heading(axes, place.heading("Domains and labels", note))
    place.keep_free(max(0.0, artist_width(head) - width))
    whole = confusion.counts.sum(axis=1, keepdims=True)
    share = np.divide(confusion.counts, whole, out=np.zeros(confusion.counts.shape), where=whole > 0)
    axes.imshow(share, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    size = _fitting_size(axes, confusion.counts)
    for row, column in np.argwhere(confusion.counts > 0) if size > _READABLE else ():
        colour = "white" if share[row, column] > 0.6 else "#333333"
        text = f"{confusion.counts[row, column]:,}"
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
    axes.set_xticks(range(n_columns), names[1], rotation=90, fontsize=TEXT, parse_math=False)
    axes.set_yticks(range(n_rows), names[0], fontsize=TEXT, parse_math=False)
    axes.set_ylabel("domain", fontsize=TEXT)
    axes.set_xlabel("label", fontsize=TEXT)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return axes


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _room(names: list[str]) -> float:
    """Inches for the longest of some names at an axis, and for the name of the axis."""
    font = FontProperties(size=TEXT)
    # the width is asked for, not the formula that a dollar would begin
    widths = [TextPath((0.0, 0.0), name.replace("$", "S"), prop=font).get_extents().width for name in names]
    return max(widths) / 72 + _TICK


def _fitting_size(axes: Axes, counts: NDArray[np.int64]) -> float:
    """Points of a font in which every number fits its cell."""
    width, height = inches(axes)
    longest = len(f"{counts.max():,}")
    return min(TEXT, 72 * 0.9 * width / counts.shape[1] / (_DIGIT * longest), 72 * 0.8 * height / counts.shape[0])
