"""The description of a section in words and few numbers, as the command prints it and the report shows it."""

from collections.abc import Mapping
from math import isfinite

import pandas as pd

__all__ = ["summary_rows", "text_of"]

_SHOWN = 3  # neighbours, types and genes of a domain
_FOUND = 0.05  # largest q-value of a gene that is shown


def summary_rows(tables: Mapping[str, pd.DataFrame], section: str, by: str | None) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: each domain of a section with its size, neighbours, main types and genes.

    Parameters
    ----------
    tables
        Of a `Description`: ``domains``, ``contacts``, and ``composition`` and ``genes`` where there are any.
    section
        Its name.
    by
        What the composition is of.
    """
    own = {name: table[table["section"] == section] for name, table in tables.items() if "section" in table}
    heads = ["domain", "spots", "share", "area", "touches (share of its border)"]
    heads += [f"{by}"] if "composition" in own else []
    heads += ["genes that vary within (Moran's I)"] if "genes" in own else []
    rows = []
    for domain in own["domains"].itertuples():
        if not domain.spots:
            continue
        of = {name: table[table["domain"] == domain.domain] for name, table in own.items() if "domain" in table}
        row = [str(domain.domain), f"{domain.spots:,}", f"{domain.share:.1%}", text_of(domain.area, ".4g")]
        row.append(_largest(of["contacts"], "other", "border_share", ".0%"))
        if "composition" in of:
            row.append(_largest(of["composition"], "type", "share", ".0%"))
        if "genes" in of:
            row.append(_largest(of["genes"][of["genes"]["q"] < _FOUND], "gene", "moran_i", ".2f"))
        rows.append(row)
    return heads, rows


def text_of(value: float | None, form: str = ".3f") -> str:
    """Return a number as text, or a dash where it is unknown or not finite."""
    return "–" if value is None or not isfinite(value) else f"{value:{form}}"


def _largest(table: pd.DataFrame, name: str, value: str, form: str) -> str:
    """The names of the rows with the largest values above 0, with these values; a dash where there are none."""
    best = table[table[value] > 0].nlargest(_SHOWN, value)
    return ", ".join(f"{row[name]} ({row[value]:{form}})" for _, row in best.iterrows()) or "–"
