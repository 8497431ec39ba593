"""What can be written where: checks of outputs before hours of work. Nothing is written but probes of folders.

Of zarr this module knows which folders are its stores.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from spatialpdvi.errors import InputError, ResourceError
from spatialpdvi.io.storage.disk import disk_error
from spatialpdvi.io.storage.paths import AnyPath, Location, another, is_node, is_same, locate, resolve
from spatialpdvi.io.storage.temporary import create, hidden_name
from spatialpdvi.runtime.memory import show_size

__all__ = [
    "check_distinct",
    "check_ending",
    "check_is_folder",
    "check_makes_files",
    "check_output_folder",
    "check_space",
    "check_writable",
    "not_a_folder",
]

_DEVICE = "a pipe or device"


def check_writable(path: AnyPath, option: str | None = "output", *, as_store: bool = False) -> None:
    """Check before hours of work that a file, or a zarr store, can be written.

    Parameters
    ----------
    path
        The file or store, which need not exist yet.
    option
        The option by which the user gave the path (``"save_model"``), for the advice of errors; None for no option.
    as_store
        Whether a zarr store will be written, which is a folder.

    Raises
    ------
    InputError
        Where it cannot.
    """
    location = locate(path)
    target = resolve(location, option=option)
    found = _not_a_store(target) if as_store else _not_a_file(target)
    if location.kind == "device":
        found = _DEVICE
    if found:
        what = "a zarr store of an AnnData" if as_store else "a file"
        raise InputError(f"{location.given!r} to be {what} to write", found, f"Choose {another(option)}.")
    _check_outside(location, option)
    check_makes_files(target.parent, location.given, option)


def check_output_folder(path: AnyPath, file: str, *, others: Sequence[AnyPath] = ()) -> Path:
    """Return the folder that the option ``output`` names, after a check that results can be written into it.

    Parameters
    ----------
    path
        The folder. It need not exist, but its parent must.
    file
        The name of one of the results.
    others
        Files that the command reads; a zarr store among them must not be the folder.

    Raises
    ------
    InputError
        Where they cannot.
    """
    folder = locate(path, option="output").path
    check_is_folder(folder)
    check_distinct(folder, "output", others)
    check_writable(folder / file if folder.is_dir() else folder)
    return folder


def check_is_folder(folder: Path) -> None:
    """Raise an `InputError` where a folder of the option ``output`` is something else; it need not exist."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise not_a_folder(folder)


def not_a_folder(path: Path) -> InputError:
    """Return the error for a file in the place of a folder of the option ``output``."""
    return InputError("a folder", f"the file {str(path)!r}", "Choose another one, or remove the file.", option="output")


def check_space(path: AnyPath, n_bytes: int) -> None:
    """Check that the disk of an output has ``n_bytes`` left.

    Raises
    ------
    ResourceError
        Where it has not.
    """
    location = locate(path)
    free = shutil.disk_usage(location.real.parent).free
    if free < n_bytes:
        raise ResourceError(
            f"Writing {location.given!r} takes {show_size(n_bytes)} of disk space, and {show_size(free)} are free.",
            "The old file is removed only when the new one is complete. Free some space, or choose an output on "
            "another disk.",
        )


def check_distinct(path: AnyPath, option: str, others: Sequence[AnyPath]) -> None:
    """Check that a path, given by ``option``, is none of the other files, and not in a zarr store.

    Links are followed; a hard link is the same file under another name.

    Raises
    ------
    InputError
        Where it is one of them, or in a store.
    """
    location = locate(path)
    resolve(location, option=option)
    if location.spatialdata is None:  # a table may be an output where it is also the input, which `check_output` knows
        _check_outside(location, option)
    for other in map(locate, others):
        if is_same(location, other):
            raise InputError(
                f"another file than {other.given!r}", "the same", f"Choose {another(option)}.", option=option
            )


def check_ending(path: AnyPath, option: str | None) -> None:
    """Check that the ending of a new file says its format; ``option`` is the option by which the user gave the path."""
    location = locate(path)
    if location.path.suffix not in {".h5ad", ".zarr"}:  # what a link leads to may have any name
        raise InputError(
            "a path that ends in .h5ad or .zarr",
            repr(location.given),
            "Its ending sets the format; give it one of these.",
            option=option,
        )


def check_makes_files(folder: Path, shown: str, option: str | None = "output") -> None:
    """Raise an `InputError` where no file, which messages call ``shown``, can be made in a folder."""
    if not folder.is_dir():
        advice = f"Create it, or choose {another(option)}."
        raise InputError(f"the folder of {shown!r} to exist", f"no {str(folder)!r}", advice)
    cause: OSError | None = None
    if os.access(folder, os.W_OK | os.X_OK):
        # Quotas, network disks and root's powers: only creating a file shows what is allowed.
        try:
            probe = hidden_name(folder)
            create(probe, 0o600)
            probe.unlink()
        except OSError as error:
            cause = error
        else:
            return
    if cause is not None and cause.errno == errno.ENOENT and folder.is_dir():  # as /proc answers
        problem = f"No file can be made in the folder {str(folder)!r}."
        raise ResourceError(problem, f"Choose {another(option)}.") from cause
    failure = None if cause is None else disk_error(cause, shown, option=option)
    raise failure or ResourceError(f"The folder {str(folder)!r} is read-only.", f"Choose {another(option)}.") from cause


def _not_a_file(target: Path) -> str:
    """Why a path is not a file that may be replaced or made; empty where it is one."""
    if not target.exists():
        return ""
    if target.is_dir():
        return "a folder"
    if not target.is_file():
        return _DEVICE
    return "" if os.access(target, os.W_OK) else "a file that is write-protected"


def _not_a_store(target: Path) -> str:
    """Why a folder is neither free nor an AnnData that may be replaced; empty where it is."""
    if not os.path.lexists(target):
        return ""
    if not target.is_dir():
        return "a file"
    if not is_node(target) or not ((target / "obs").is_dir() and (target / "var").is_dir()):
        return "a SpatialData store" if (target / "tables").is_dir() else "a folder of something else"
    return "" if os.access(target, os.W_OK) else "a store that is write-protected"


def _check_outside(location: Location, option: str | None) -> None:
    if location.store is not None:
        raise InputError(
            f"{location.given!r} to be outside of zarr stores",
            f"it in {str(location.store)!r}, which is not changed",
            f"Choose {another(option)}.",
        )
