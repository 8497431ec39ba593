"""The table that explains the choice of the number of domains, for stdout."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from spatialpdvi.fitting.result import Scan

__all__ = ["print_scan"]

_COLUMNS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("K", "k", str),
    ("found again", "found_again", "{:.2f}".format),
    ("halves ARI", "split_ari", "{:.3f}".format),
    ("restarts ARI", "restart_ari", "{:.3f}".format),
    ("persistence", "persistence", "{:.3f}".format),
    ("smallest", "smallest", "{:,}".format),
    ("empty", "n_empty", str),
    ("smooth", "smooth", str),
    ("complete F", "neg_elbo", "{:.6g}".format),
    ("seconds", "seconds", "{:.1f}".format),
)


def print_scan(scan: "Scan") -> None:
    """Print one row for each number of domains, with a mark at the recommended one, and the reason below."""
    titles = [title for title, _, _ in _COLUMNS]
    rows = [
        [form(value) for (_, _, form), value in zip(_COLUMNS, row, strict=True)]
        for row in zip(*(scan.table[name] for _, name, _ in _COLUMNS), strict=True)
    ]
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    click.echo("  " + "  ".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)))
    for row in rows:
        mark = "> " if row[0] == str(scan.k) else "  "
        click.echo(mark + "  ".join(f"{value:>{width}}" for value, width in zip(row, widths, strict=True)))
    click.echo(f"recommended: {scan.k} domains. {scan.reason}")
