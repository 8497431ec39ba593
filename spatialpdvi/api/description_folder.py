"""The folder of `spatialpdvi describe`: tables as CSV, everything as JSON, and pictures."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import check_distinct, check_writable, clear_errors, write_json, write_text
from spatialpdvi.io.storage.paths import Location

if TYPE_CHECKING:
    from spatialpdvi.description.tables import Description

__all__ = ["JSON_FILE", "check_folder", "write_folder"]

JSON_FILE = "describe.json"
_PICTURES = ("contacts.png", "composition.png")


def check_folder(path: str | Path, inputs: Sequence[Location]) -> Path:
    """Raise an `InputError` where a description cannot be written into the folder; it need not exist.

    Parameters
    ----------
    path
        The folder; its parent must exist.
    inputs
        The files that are described; a zarr store among them must not be the folder.
    """
    folder = Path(path)
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError("a folder", f"the file {str(folder)!r}", option="output")
    check_distinct(folder, "output", inputs)
    check_writable(folder / JSON_FILE if folder.is_dir() else folder, "output")
    return folder


def write_folder(found: "Description", folder: Path) -> None:
    """Write a description; each file appears as a whole, and the JSON is the last.

    Files of an earlier description are removed where this one has no such file, so that the folder shows one of them.
    """
    from spatialpdvi.description.tables import TABLES
    from spatialpdvi.plotting.description import composition_figure, contacts_figure
    from spatialpdvi.plotting.save import save_figure

    figures = {"contacts.png": contacts_figure(found.contacts)}
    if found.composition is not None:
        figures["composition.png"] = composition_figure(found.composition, str(found.params["by"]))
    tables = {f"{name}.csv": table for name, table in found.tables().items()}
    with clear_errors(folder):
        folder.mkdir(exist_ok=True)
        for name in {*_PICTURES, *(f"{table}.csv" for table in TABLES)} - {*figures, *tables}:
            (folder / name).unlink(missing_ok=True)
    for name, table in tables.items():
        write_text(folder / name, table.to_csv(index=False))
    for name, figure in figures.items():
        save_figure(figure, folder / name)
    write_json(folder / JSON_FILE, found.content())
