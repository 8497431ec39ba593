"""New names of domains from a table."""

import csv
import os.path
from pathlib import Path

from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.io.storage.damage import reason_of
from spatialpdvi.io.storage.paths import locate, why_unreadable

__all__ = ["read_names"]

_EXPECTED = "a CSV file with the columns domain and name"


def read_names(path: str | Path) -> dict[str, str]:
    r"""Read new names of domains by old ones from a CSV file with the columns ``domain`` and ``name``.

    Raises
    ------
    InputError
        Where the file cannot be read, lacks a column, or has a domain twice.

    Examples
    --------
    >>> _ = Path("names.csv").write_text("domain,name\n0,Cortex\n", encoding="utf-8")
    >>> spv.read_names("names.csv")
    {'0': 'Cortex'}
    """
    location = locate(path, option="names")
    try:
        with location.path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[value.strip() for value in row] for row in csv.reader(file, skipinitialspace=True) if row]
    except OSError as error:
        # asked only now, because a pipe can be read
        if os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises where a name is too long
            found, advice = "a folder", "Name the file in it."
        else:
            found, advice = why_unreadable(Path(path)) or (str(error.strerror), "")
        raise InputError(_EXPECTED, f"{found}: {str(path)!r}", advice, option="names") from error
    except (ValueError, csv.Error) as error:
        found = f"{str(path)!r}, which cannot be read ({reason_of(error)})"
        raise InputError(_EXPECTED, found, option="names") from error
    header, *rows = lines or [[]]
    if not {"domain", "name"} <= set(header):
        raise InputError(
            f"the columns domain and name in {str(path)!r}",
            f"columns: {list_keys(header)}",
            "The first line names the columns: domain,name.",
        )
    if not rows:
        raise InputError(f"a line for each domain to rename in {str(path)!r}", "only that of the columns' names")
    names: dict[str, str] = {}
    for row in rows:
        if any(row[len(header) :]) or len(row) < len(header):
            advice = "There are as many as in the first line; put a name that has commas into quotation marks."
            raise InputError(f"{len(header)} values in each line of {str(path)!r}", ",".join(map(repr, row)), advice)
        values = dict(zip(header, row, strict=False))
        if values["domain"] in names:
            twice = f"{values['domain']!r} twice"
            raise InputError(f"each domain once in {str(path)!r}", twice, "Remove one of its lines.")
        names[values["domain"]] = values["name"]
    return names
