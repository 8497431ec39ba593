"""The description of the domains of sections: its tables, and the forms in which they are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from spatialpdvi.io.results.tables import Tables

__all__ = ["TABLES", "Description"]

TABLES = ("sections", "domains", "composition", "contacts", "genes", "differences")
_SHARE = "share_"  # before the name of a condition


@dataclass(frozen=True, eq=False, kw_only=True)
class Description(Tables):
    """What `spatialpdvi.describe` finds. docs/outputs.md explains the columns of the tables.

    Parameters
    ----------
    sections
        A row for each section: where its neighbours are from, and the area of a spot.
    domains
        A row for each section and domain: spots, share and area.
    contacts
        A row for each section and ordered pair of domains that it has.
    composition
        A row for each section, domain and type; None where ``by`` was not given.
    genes
        A row for each section, domain and gene that was tested; None where none were.
    differences
        A row for each domain, and for each domain and type; None where ``condition`` was not given.
    no_p_values
        Why the differences have no p-values, as a sentence; empty where they have some, or are None.
    params
        The options, and the versions of the libraries.
    """

    names = TABLES
    sections: pd.DataFrame
    domains: pd.DataFrame
    contacts: pd.DataFrame
    composition: pd.DataFrame | None = None
    genes: pd.DataFrame | None = None
    differences: pd.DataFrame | None = None
    no_p_values: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)

    def content(self) -> dict[str, Any]:
        """Return everything as nested dicts and lists, as the JSON has it; tables are lists of rows."""
        rows = {name: table.to_dict("records") for name, table in self.tables().items()}
        if self.differences is not None:
            rows["differences"] = [_nested(row) for row in rows["differences"]]
        return {"params": dict(self.params), **rows, "no_p_values": self.no_p_values}

    def stored(self, sections: Sequence[str]) -> dict[str, Any]:
        """Return the tables of some sections as columns, to be stored in their file, and the options in ``params``.

        Tables without rows are left out, as are the differences, which are between all sections.
        """
        of_sections = {name: table for name, table in self.tables().items() if name != "differences"}
        return self.columns({name: table[table["section"].isin(sections)] for name, table in of_sections.items()})


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of differences with the shares in a dict of their own, and without a type where there is none."""
    shares = {name.removeprefix(_SHARE): value for name, value in row.items() if name.startswith(_SHARE)}
    others = {name: value for name, value in row.items() if not name.startswith(_SHARE)}
    return {name: value for name, value in others.items() if name != "type" or value} | {"shares": shares}
