"""Tables of SpatialData stores: each is an AnnData in a folder of its own, and is read as one."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from spatialpdvi.errors import InputError, list_keys

__all__ = ["choose_tables", "is_node", "section_name", "table_path"]

_MARKS = ("zarr.json", ".zgroup")  # files that make a folder a zarr group, in its formats 3 and 2
_ROOMS = ("tables", "table")  # what their folder is called; the second by the first versions of SpatialData


def is_node(folder: Path) -> bool:
    """Whether a folder is a group of zarr."""
    with contextlib.suppress(OSError):  # where nobody may look
        return any((folder / mark).is_file() for mark in _MARKS)
    return False


def choose_tables(paths: Sequence[Path], table: str | None) -> list[Path]:
    """Paths of sections, those of SpatialData stores with their table ``table`` (the only one for None).

    Raises
    ------
    InputError
        Where a store does not have the table, or a table is named and none of the paths has any.
    """
    if table is None:
        return list(paths)
    if not any(map(_tables, paths)):
        msg = f"Expected a SpatialData store with `--table {table}`, found none in the input. Leave --table out."
        raise InputError(msg)
    return [table_path(path, table) for path in paths]


def table_path(path: str | Path, table: str | None = None) -> Path:
    """Folder of a table of a SpatialData store; the path itself where it is not of such a store.

    Raises
    ------
    InputError
        Where there is no table of that name, or there are several and none is named.
    """
    path = Path(path)
    tables = _tables(path)
    if not tables or (table is None and len(tables) == 1):
        return next(iter(tables.values()), path)
    if table in tables:
        return tables[table]
    found = f"{f'{len(tables)}:' if table is None else f'no {table!r}, but'} {list_keys(tables)}"
    msg = f"Expected the name of one table of {str(path)!r}, found {found}. Name one of these with --table."
    raise InputError(msg)


def section_name(path: str | Path) -> str:
    """Name of a file; of a table the name of its store, which tells sections apart where the tables' own do not."""
    path = Path(path)
    inside = path.parent.name in _ROOMS and is_node(path) and is_node(path.parent.parent)
    return path.parent.parent.name if inside else path.name


def _tables(path: Path) -> dict[str, Path]:
    """Folders of the tables by their names; none of what is no SpatialData store."""
    try:
        if not is_node(path) or (path / "obs").exists():
            return {}
        rooms = [path / room for room in _ROOMS if (path / room).is_dir()]
        return {table.name: table for room in rooms for table in sorted(room.iterdir()) if is_node(table)}
    except (OSError, ValueError):  # for those to refuse who open it
        return {}
