"""Pictures of the description of domains: which domains touch, and what they are made of."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from spatialpdvi.palette import palette
from spatialpdvi.plotting.charts import composition_size, draw_composition
from spatialpdvi.plotting.labels import printable, short
from spatialpdvi.plotting.page import TEXT, Heading, Panel, draw_page

__all__ = ["composition_figure", "contacts_figure", "contacts_size", "draw_contacts"]

_MOST = 20  # sections of one picture
_CELL, _NARROWEST = 0.36, 1.6  # inches
_LETTERS = 6  # of the largest number that fits into a cell at the usual size of text
_LEGEND = 30  # lines of a column of the legend


def contacts_figure(contacts: pd.DataFrame) -> Figure:
    """Draw the contacts between domains, one panel for each section.

    Parameters
    ----------
    contacts
        The table of contacts of a `Description`.
    """

    def panel(name: str, table: pd.DataFrame) -> Panel:
        n_domains = table["domain"].nunique()
        return Panel(contacts_size(n_domains), partial(_contacts, table=table, name=name))

    return _figure(contacts, panel)


def composition_figure(composition: pd.DataFrame, by: str) -> Figure:
    """Draw the share of each type in each domain, one panel for each section.

    Parameters
    ----------
    composition
        The table of compositions of a `Description`.
    by
        The column of ``obs`` that the types are from.
    """
    types = list(dict.fromkeys(composition["type"]))
    colours = palette(len(types))
    last = list(dict.fromkeys(composition["section"]))[:_MOST][-1]

    def draw(axes: Axes, name: str, table: pd.DataFrame) -> Heading:
        shares = table.pivot(index="domain", columns="type", values="share")
        # a domain that a section does not have has no bar
        domains = [domain for domain in dict.fromkeys(table["domain"]) if shares.loc[domain].notna().any()]
        rows = shares.reindex(index=domains, columns=types).to_numpy()
        names = [printable(domain) for domain in domains]
        draw_composition(axes, rows, domains=names, colours=colours, what=printable(by))
        if name == last:
            handles = [
                Patch(color=colour, label=short(printable(kind))) for kind, colour in zip(types, colours, strict=True)
            ]
            legend = axes.legend(
                handles=handles,
                ncols=-(-len(handles) // _LEGEND),
                loc="upper left",
                bbox_to_anchor=(1.02, 1.0),
                fontsize=TEXT,
                frameon=False,
                borderaxespad=0.0,
            )
            for text in legend.get_texts():
                text.set_parse_math(False)
        return Heading(printable(name))

    def panel(name: str, table: pd.DataFrame) -> Panel:
        return Panel(composition_size(table["domain"].nunique()), partial(draw, name=name, table=table))

    return _figure(composition, panel)


def contacts_size(n_domains: int) -> tuple[float, float]:
    """Return width and height in inches that suit the contacts of so many domains."""
    side = max(_NARROWEST, _CELL * n_domains)
    return side, side


def draw_contacts(axes: Axes, table: pd.DataFrame) -> None:
    """Draw which share of a domain's border each other domain has as colours, with numbers of contacts in the cells.

    Parameters
    ----------
    axes
        Where to draw.
    table
        The contacts of one section: rows with ``domain``, ``other``, ``contacts`` and ``border_share``.
    """
    names = list(dict.fromkeys(table["domain"]))
    share, contacts = (
        table.pivot(index="domain", columns="other", values=value).reindex(index=names, columns=names).to_numpy()
        for value in ("border_share", "contacts")
    )
    axes.imshow(np.nan_to_num(share), cmap="Blues", vmin=0.0, vmax=1.0, interpolation="nearest")
    _write_numbers(axes, contacts, share)
    texts = [short(printable(name)) for name in names]
    axes.set_xticks(range(len(names)), texts, rotation=90, fontsize=TEXT, parse_math=False)
    axes.set_yticks(range(len(names)), texts, fontsize=TEXT, parse_math=False)
    axes.set_ylabel("domain", fontsize=TEXT)
    axes.set_xlabel("touches", fontsize=TEXT)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _contacts(axes: Axes, *, table: pd.DataFrame, name: str) -> Heading:
    draw_contacts(axes, table)
    return Heading(printable(name), "share of the border; number of contacts")


def _write_numbers(axes: Axes, contacts: NDArray[np.int64], share: NDArray[np.float64]) -> None:
    """Write the contacts into the cells, and a grey dash where a domain meets itself."""
    size = TEXT * min(1.0, _LETTERS / max(len(f"{contacts.max():,}"), 1))
    for row, column in np.ndindex(contacts.shape):
        if row == column:
            axes.text(column, row, "–", ha="center", va="center", fontsize=TEXT, color="#999999")
        elif contacts[row, column]:
            colour = "white" if share[row, column] > 0.6 else "#333333"
            text = f"{contacts[row, column]:,}"
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)


def _figure(table: pd.DataFrame, panel: Callable[[str, pd.DataFrame], Panel]) -> Figure:
    sections = dict.fromkeys(table["section"])
    shown = list(sections)[:_MOST]
    title = f"The first {_MOST} of {len(sections)} sections" if len(sections) > _MOST else None
    return draw_page([panel(name, table[table["section"] == name]) for name in shown], title=title)
