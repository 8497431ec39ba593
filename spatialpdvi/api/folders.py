"""Folders of results: those of several sections, and what `spatialpdvi describe` and `intervals` write."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import write_json, write_text
from spatialpdvi.io.storage.disk import clear_errors, name_earlier
from spatialpdvi.io.storage.outputs import check_output_folder
from spatialpdvi.io.storage.paths import Location, resolve

if TYPE_CHECKING:
    from pandas import DataFrame

    from spatialpdvi.description.tables import Description
    from spatialpdvi.uncertainty.tables import Intervals

__all__ = ["LAST_FILES", "check_folder", "made_folder", "write_description", "write_intervals"]

LAST_FILES = {"describe": "describe.json", "intervals": "intervals.png"}  # of a command's files, which no other has
_Write = Callable[[Path], None]
_PICTURES = ("contacts.png", "composition.png")
_SECTIONS = {".h5ad", ".zarr"}  # endings of a section, and hardly of a folder of sections


@contextmanager
def made_folder(path: str | Path | None, *, n_files: int) -> Iterator[None]:
    """Make the folder of several results where it does not exist, and remove it again if nothing is written into it.

    Parameters
    ----------
    path
        The folder; its parent must exist. None where the results go into the files that were read.
    n_files
        Number of the results, for errors.

    Raises
    ------
    InputError
        Where it cannot be made, or has the name of a file with a section or of standard output.
    """
    if path is not None:
        resolve(path)
    if path is None or Path(path).is_dir():
        yield
        return
    if Path(path).suffix.lower() in _SECTIONS:
        without = str(Path(path).with_suffix(""))
        advice = f"Each section is written into a file of its own name in it. Name it, for example, {without!r}."
        raise InputError(f"a folder, for {n_files} files", f"{str(path)!r}", advice, option="output")
    try:
        Path(path).mkdir()
    except OSError as error:
        raise InputError(
            f"a folder, for {n_files} files",
            repr(str(path)),
            f"It cannot be made ({error.strerror}). Choose another.",
            option="output",
        ) from error
    try:
        yield
    finally:
        if not any(Path(path).iterdir()):
            Path(path).rmdir()


def check_folder(path: str | Path, inputs: Sequence[Location], *, command: str) -> Path:
    """Return the folder; raise an `InputError` where a command cannot write its files into it. It need not exist.

    Parameters
    ----------
    path
        The folder; its parent must exist.
    inputs
        The fitted files; a zarr store among them must not be the folder.
    command
        "describe" or "intervals", whose tables have the same names: a folder holds those of one of them.
    """
    folder = check_output_folder(path, LAST_FILES[command], others=inputs)
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
