"""The folders that `spatialpdvi describe` and `intervals` write: tables as CSV, and pictures."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import (
    check_distinct,
    check_writable,
    clear_errors,
    name_earlier,
    write_json,
    write_text,
)
from spatialpdvi.io.storage.paths import Location

if TYPE_CHECKING:
    from pandas import DataFrame

    from spatialpdvi.description.tables import Description
    from spatialpdvi.uncertainty.tables import Intervals

__all__ = ["LAST_FILES", "check_folder", "write_description", "write_intervals"]

LAST_FILES = {"describe": "describe.json", "intervals": "intervals.png"}  # of a command's files, which no other has
_Write = Callable[[Path], None]
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
    from spatialpdvi.plotting.save import save_figure
    from spatialpdvi.uncertainty.tables import TABLES

    tables = found.tables()
    picture = partial(save_figure, intervals_figure(tables, found.params))
    _replace(folder, {**_csv(tables), LAST_FILES["intervals"]: picture}, earlier=TABLES)


def write_description(found: "Description", folder: Path) -> None:
    """Write a description; each file appears as a whole, and the JSON is the last.

    Files of an earlier description are removed where this one has no such file, so that the folder shows one of them.
    """
    from spatialpdvi.description.tables import TABLES
    from spatialpdvi.plotting.description import composition_figure, contacts_figure
    from spatialpdvi.plotting.save import save_figure

    files = _csv(found.tables())
    files["contacts.png"] = partial(save_figure, contacts_figure(found.contacts))
    if found.composition is not None:
        figure = composition_figure(found.composition, str(found.params["by"]))
        files["composition.png"] = partial(save_figure, figure)
    files[LAST_FILES["describe"]] = lambda path: write_json(path, found.content())
    _replace(folder, files, earlier=TABLES, pictures=_PICTURES)


def _csv(tables: Mapping[str, "DataFrame"]) -> dict[str, _Write]:
    """What writes each table as CSV, by the names of the files."""

    def write(table: "DataFrame", path: Path) -> None:
        write_text(path, table.to_csv(index=False))

    return {f"{name}.csv": partial(write, table) for name, table in tables.items()}


def _replace(
    folder: Path, files: Mapping[str, _Write], *, earlier: Iterable[str], pictures: Iterable[str] = ()
) -> None:
    """Write files, by their names, in place of the tables and pictures that an earlier run may have written."""
    with clear_errors(folder):
        folder.mkdir(exist_ok=True)
    with name_earlier() as written:
        for name, write in files.items():
            write(folder / name)
            written.append(folder / name)
        with clear_errors(folder):
            for name in {*pictures, *(f"{table}.csv" for table in earlier)} - set(files):
                (folder / name).unlink(missing_ok=True)
