"""Pictures of the description of domains: which domains touch, and what they are made of."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from spatialpdvi.palette import palette
from spatialpdvi.plotting.charts import composition_size, draw_composition, draw_counts
from spatialpdvi.plotting.labels import printable, short
from spatialpdvi.plotting.page import TEXT, Heading, Panel, draw_page

__all__ = ["composition_figure", "contacts_figure"]

_MOST = 20  # sections of one picture
_CELL, _NARROWEST = 0.36, 1.6  # inches
_LETTERS = 5  # of the largest number that fits into a cell at the usual size of text
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
        side = max(_NARROWEST, _CELL * n_domains)
        return Panel((side, side), partial(_draw_contacts, name=name, table=table))

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
        width, height = composition_size(table["domain"].nunique())
        axes.set_box_aspect(height / width)  # a legend that is longer than the panel would stretch it
        if name == last:
            kinds = short(map(printable, types))
            handles = [Patch(color=colour, label=kind) for kind, colour in zip(kinds, colours, strict=True)]
            legend = axes.legend(
                handles=handles,
                ncols=-(-len(handles) // _LEGEND),
                loc="upper left",
                bbox_to_anchor=(1.05, 1.0),
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


def _draw_contacts(axes: Axes, *, name: str, table: pd.DataFrame) -> Heading:
    """Draw which share of a domain's border each other domain has as colours, with numbers of contacts in the cells.

    ``table`` has the contacts of the section ``name``.
    """
    names = list(dict.fromkeys(table["domain"]))
    share, contacts = (
        table.pivot(index="domain", columns="other", values=value).reindex(index=names, columns=names).to_numpy()
        for value in ("border_share", "contacts")
    )
    size = TEXT * min(1.0, _LETTERS / len(f"{contacts.max():,}"))
    between = np.where(np.eye(len(names), dtype=bool), 0, contacts)
    texts = [printable(name) for name in names]
    draw_counts(axes, between, np.nan_to_num(share), domains=texts, columns=texts, size=size)
    for place in range(len(names)):  # where a domain meets itself
        axes.text(place, place, "–", ha="center", va="center", fontsize=TEXT, color="#999999")
    axes.set_xlabel("touches", fontsize=TEXT)
    return Heading(printable(name), "share of the border; number of contacts")


def _figure(table: pd.DataFrame, panel: Callable[[str, pd.DataFrame], Panel]) -> Figure:
    sections = dict.fromkeys(table["section"])
    shown = list(sections)[:_MOST]
    title = f"The first {_MOST} of {len(sections)} sections" if len(sections) > _MOST else None
    return draw_page([panel(name, table[table["section"] == name]) for name in shown], title=title)
