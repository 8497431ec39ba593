"""Where a path leads, looked up once: links, zarr stores, and the tables of SpatialData stores.

Each table of a SpatialData store is an AnnData in a folder of its own, and is read as one.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.errors import option as option_named
from spatialpdvi.io.storage.temporary import remove_abandoned

__all__ = [
    "AnyPath",
    "Location",
    "another",
    "check_once",
    "check_readable",
    "choose_tables",
    "different_names",
    "file_names",
    "is_node",
    "is_same",
    "locate",
    "locate_all",
    "output_of",
    "resolve",
    "section_names",
    "why_unreadable",
]

_MARKS = ("zarr.json", ".zgroup")  # files that make a folder a zarr group, in its formats 3 and 2
_IN_MEMORY = "Functions for an object in memory have names without `_file`, or are `domain_table`."
_TABLES = ("tables", "table")  # names of the folder of the tables; the first versions of SpatialData used the second


@dataclass(frozen=True)
class Location:
    """A path that the user gave and what was found there, looked up once by `locate`.

    Attributes
    ----------
    given
        The path as the user wrote it, for messages.
    path
        The same path, to open it.
    real
        The path with all links followed; ``path`` where that is not possible.
    problem
        Why no file can have this path; empty where one can.
    kind
        ``"file"``, ``"folder"``, ``"device"`` (a pipe or device), or ``"missing"``.
    store
        The innermost zarr store or group in which it lies; None outside of all of them.
    tables
        Folders of the tables where this is a SpatialData store, in the order of their names.
    """

    given: str
    path: Path
    real: Path
    problem: str = ""
    kind: str = "missing"
    store: Path | None = None
    tables: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The file's name; for a table the name of its store, because tables of several stores share their names."""
        folder = self.path.parent
        is_table = folder.name in _TABLES and is_node(self.path) and is_node(folder.parent)
        return folder.parent.name if is_table else self.path.name

    @property
    def spatialdata(self) -> Path | None:
        """The SpatialData store of which this is a table; None for anything else."""
        folder = self.real.parent
        if folder.name not in _TABLES or not is_node(self.real) or not is_node(folder.parent):
            return None
        return None if (folder.parent / "obs").exists() else folder.parent

    def only_table(self) -> "Location":
        """Return the location of the table, where this is a SpatialData store with one, or else this one."""
        return locate(self.table()) if self.tables else self

    def table(self, name: str | None = None, *, by_option: bool = False) -> Path:
        """Return the path of the AnnData: a table of a SpatialData store, or else the path itself.

        Parameters
        ----------
        name
            The table; None for the only one.
        by_option
            Whether the user can name the table of this path by the option ``table``, for the advice of the error.

        Raises
        ------
        InputError
            Where there is no table of that name, or there are several and none is named.
        """
        tables = {folder.name: folder for folder in self.tables}
        if not tables or (name is None and len(tables) == 1):
            return next(iter(tables.values()), self.path)
        if name in tables:
            return tables[name]
        found = f"{f'{len(tables)}:' if name is None else f'no {name!r}, but'} {list_keys(tables)}"
        example = str(Path(self.given) / self.tables[0].parent.name / self.tables[0].name)
        raise InputError(
            f"the name of one table of {self.given!r}",
            found,
            f"Name one of these with {option_named('table')}. Its folder names it, too: {example!r}."
            if by_option
            else f"Give the folder of one of these, for example {example!r}.",
        )


AnyPath = str | Path | Location


def locate_all(paths: Sequence[AnyPath]) -> list[Location]:
    """Look up several paths.

    Raises
    ------
    InputError
        Where one path is given, and no list: the letters of a text would be taken for paths. Also for a table.
    """
    if isinstance(paths, AnyPath):
        found = repr(str(paths) if isinstance(paths, Path) else paths)
        raise InputError("a list of files", f"one, {found}", f"Give [{found}].")
    if not isinstance(paths, Iterable) or hasattr(paths, "columns"):
        raise InputError("a list of files", f"an object of type {type(paths).__name__}", _IN_MEMORY)
    return [locate(path) for path in paths]


def file_names(files: Sequence[Location]) -> list[str]:
    """Return the names of files; where several are tables of one store, with the names of the tables."""
    stores = [file.spatialdata for file in files]
    names = []
    for file, store in zip(files, stores, strict=True):
        name = Path(file.name)
        is_one_of_several = store is not None and stores.count(store) > 1
        names.append(f"{name.stem}-{file.real.name}{name.suffix}" if is_one_of_several else file.name)
    return names


def section_names(files: Sequence[Location]) -> list[str]:
    """Return the names of the sections in files: those of the files (`file_names`) without their endings."""
    return [Path(name).stem for name in file_names(files)]


def different_names(files: Sequence[Location]) -> list[str]:
    """Return the names of the sections in files (`section_names`), of which each has its own.

    Raises
    ------
    InputError
        Where two are the same, so that their sections could not be told apart, or two files are.
    """
    names = section_names(files)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError("files with different names", f"{', '.join(map(repr, repeated))} twice", "Rename one of them.")
    check_once(files)
    return names


def check_once(files: Sequence[Location]) -> None:
    """Check that no file is given twice, under whatever name.

    Raises
    ------
    InputError
        Where one is.
    """
    for first, other in combinations(files, 2):
        if is_same(first, other):
            again = "" if first.path == other.path else f", also as {str(other.path)!r}"
            raise InputError("each file once", f"{str(first.path)!r} twice{again}", "Leave one of them out.")


def is_same(path: Location, other: Location) -> bool:
    """Whether two paths lead to one file or folder; a hard link is the same file under another name."""
    # a file that cannot be examined is refused where it is opened
    with contextlib.suppress(OSError, ValueError):
        return path.real == other.real or path.path.samefile(other.path)
    return False


def locate(path: AnyPath, *, option: str | None = None) -> Location:
    """Look up where a path leads; a `Location` is returned as it is, and a path that leads nowhere is no error.

    Parameters
    ----------
    path
        The path.
    option
        The option by which the user gave it, for the error; None for the section itself.

    Raises
    ------
    InputError
        Where this is no path.
    """
    if isinstance(path, Location):
        return path
    if not isinstance(path, str | os.PathLike):
        advice = _IN_MEMORY if option is None else ""
        raise InputError("the path of a file", f"an object of type {type(path).__name__}", advice, option=option)
    given, path = str(path), Path(path)
    try:
        if path.suffix == ".zarr" and not os.path.lexists(path) and path.parent.is_dir():
            remove_abandoned(path.parent)  # a process that was killed may have left the store under another name
        real = path.resolve()
        kind = _kind(path)
    except (OSError, RuntimeError, ValueError) as error:
        return Location(given, path, path, problem=_problem(error))
    store = next((folder for folder in real.parents if is_node(folder)), None)
    return Location(given, path, real, kind=kind, store=store, tables=_tables(path) if kind == "folder" else ())


def output_of(source: Location, output: AnyPath | None) -> Location:
    """Return where the result of a section goes: for None, or a SpatialData store and its table, the section itself."""
    target = source if output is None else locate(output)
    is_table = source.spatialdata == target.real or (target.spatialdata == source.real and len(source.tables) == 1)
    return source if is_table else target


def resolve(path: AnyPath, *, option: str | None = "output") -> Path:
    """Return the file behind a path and its links, whether or not it exists yet.

    Parameters
    ----------
    path
        Where the file is or will be.
    option
        The option by which the user gave it, for the advice of the error; None for no option.

    Raises
    ------
    InputError
        Where no file can have this path, or it is ``-``, which other programs take for standard output.
    """
    location = locate(path)
    if location.given == "-":
        raise InputError(
            "a file to write to",
            "'-'",
            f"Results are not written to standard output, which has the summary of a command alone. Choose "
            f"{another(option)}, the name of a file.",
        )
    if location.problem:
        raise InputError(f"{location.given!r} to be the path of a file", location.problem, f"Choose {another(option)}.")
    return location.real


def another(option: str | None) -> str:
    """Return what to choose instead of a path: another value of the option by which it was given."""
    return f"another {'path' if option is None else option_named(option)}"


def is_node(folder: Path) -> bool:
    """Whether a folder is a group of zarr."""
    with contextlib.suppress(OSError):  # a folder without permission
        return any((folder / mark).is_file() for mark in _MARKS)
    return False


def why_unreadable(path: Path) -> tuple[str, str] | None:
    """Say why there is no file at a path that can be read, and what to do; None where there is one."""
    try:
        status = path.stat()
    except PermissionError:
        return "no permission to read it", "Ask its owner for access."
    except (OSError, ValueError):  # ValueError: a null character in the name
        with contextlib.suppress(OSError, ValueError):
            target = str(path.readlink())
            return f"a link to {target!r}, which is not there", "Mend the link, or give the container that folder."
        return "no such file", "Check the path for a typing error."
    if not stat.S_ISREG(status.st_mode):
        return "a pipe or device", "Save the data as a file first."
    if not os.access(path, os.R_OK):
        return "no permission to read it", "Ask its owner for access."
    return None if status.st_size else ("an empty file", "Copy or download it again.")


def check_readable(path: Path, what: str = "") -> None:
    """Raise an `InputError`, which says ``what`` is expected, a section or other, where no file can be read."""
    what = what or ("a zarr store" if path.suffix == ".zarr" else "an h5ad file")
    problem = why_unreadable(path)
    if problem is not None:
        raise InputError(f"{str(path)!r} to be {what}", *problem)


def choose_tables(paths: Sequence[Path], table: str | None) -> list[Path]:
    """Return the paths of sections, those of SpatialData stores with their table ``table`` (the only one for None).

    Raises
    ------
    InputError
        Where a path leads to nothing that can be read, a store does not have the table, none is named of a store with
        several, or one is named and none of the paths has any.
    """
    locations = locate_all(paths)
    for location in locations:
        if location.kind != "folder":
            check_readable(location.path)
    if table is None:
        for location in locations:
            location.table(by_option=True)
        return list(paths)
    if not any(location.tables for location in locations):
        raise InputError(
            f"a SpatialData store with {option_named('table', table)}",
            f"none among the sections: {list_keys(map(str, paths))}",
            f"Leave out {option_named('table')}. Of another input, give the folder of the table: "
            f"{str(Path('cells.zarr') / 'tables' / table)!r}.",
        )
    return [location.table(table, by_option=True) for location in locations]


def _kind(path: Path) -> str:
    """What there is at a path, with its links: those of /dev/stdout end in the name of a pipe, at which nothing is."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "device"


def _problem(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return "a name that is too long"
    if isinstance(error, PermissionError):
        return "no permission to look there"
    return "a null character in it" if isinstance(error, ValueError) else "a link that leads nowhere"


def _tables(path: Path) -> tuple[Path, ...]:
    """Folders of the tables; none where this is no SpatialData store."""
    try:
        if not is_node(path) or (path / "obs").exists():
            return ()
        folders = [path / name for name in _TABLES if (path / name).is_dir()]
        return tuple(table for folder in folders for table in sorted(folder.iterdir()) if is_node(table))
    except (OSError, ValueError):  # whoever opens the store says why it cannot be read
        return ()
