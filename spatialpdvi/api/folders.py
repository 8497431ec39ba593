"""The folders that `spatialpdvi describe` and `intervals` write: tables as CSV, and pictures."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import check_distinct, check_writable, clear_errors, write_json, write_text
from spatialpdvi.io.storage.paths import Location

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from spatialpdvi.description.tables import Description
    from spatialpdvi.uncertainty.tables import Intervals

__all__ = ["LAST_FILES", "check_folder", "write_description", "write_intervals"]

LAST_FILES = {"describe": "describe.json", "intervals": "intervals.png"}  # of a command's files, which no other has
_PICTURES = ("contacts.png", "composition.png")


def check_folder(path: str | Path, inputs: Sequence[Location], *, command: str) -> Path:
    """Raise an `InputError` where a command cannot write its files into the folder; it need not exist.

    Parameters
    ----------
    path
        The folder; its parent must exist.
    inputs
        The fitted files; a zarr store among them must not be the folder.
    command
        "describe" or "intervals", whose tables have the same names: a folder holds those of one of them.
    """
    folder = Path(path)
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError("a folder", f"the file {str(folder)!r}", option="output")
    check_distinct(folder, "output", inputs)
    check_writable(folder / LAST_FILES[command] if folder.is_dir() else folder, "output")
    for other in set(LAST_FILES) - {command}:
        if (folder / LAST_FILES[other]).exists():
            found = f"those of `spatialpdvi {other}` in {str(folder)!r}"
            raise InputError("a folder without the tables of another command", found, "Choose another folder.")
    return folder


def write_intervals(found: "Intervals", folder: Path) -> None:
    """Write the tables of intervals and their picture; each file appears as a whole, and the picture is the last.

    Tables of earlier intervals are removed where there is no such table any more.
    """
    from spatialpdvi.plotting.intervals import intervals_figure
    from spatialpdvi.uncertainty.tables import TABLES

    tables = found.tables()
    figures = {LAST_FILES["intervals"]: intervals_figure(tables, found.params)}
    _replace(folder, tables, figures, earlier=_csv(TABLES))


def write_description(found: "Description", folder: Path) -> None:
    """Write a description; each file appears as a whole, and the JSON is the last.

    Files of an earlier description are removed where this one has no such file, so that the folder shows one of them.
    """
    from spatialpdvi.description.tables import TABLES
    from spatialpdvi.plotting.description import composition_figure, contacts_figure

    figures = {"contacts.png": contacts_figure(found.contacts)}
    if found.composition is not None:
        figures["composition.png"] = composition_figure(found.composition, str(found.params["by"]))
    _replace(folder, found.tables(), figures, earlier={*_PICTURES, *_csv(TABLES)})
    write_json(folder / LAST_FILES["describe"], found.content())


def _replace(
    folder: Path, tables: Mapping[str, "DataFrame"], figures: Mapping[str, "Figure"], *, earlier: set[str]
) -> None:
    """Write tables and figures, by their names, in place of the files that an earlier run may have written."""
    from spatialpdvi.plotting.save import save_figure

    with clear_errors(folder):
        folder.mkdir(exist_ok=True)
        for name in earlier - {*figures, *_csv(tables)}:
            (folder / name).unlink(missing_ok=True)
    for name, table in tables.items():
        write_text(folder / f"{name}.csv", table.to_csv(index=False))
    for name, figure in figures.items():
        save_figure(figure, folder / name)


def _csv(tables: Iterable[str]) -> set[str]:
    """Names of the files of tables."""
    return {f"{name}.csv" for name in tables}
