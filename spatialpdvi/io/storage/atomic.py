"""Replace a file in one instant: on disk is the old one or the complete new one, never a mixture.

Of HDF5 this module knows how its errors tell that a disk is full, and of zarr which folders are its stores.
"""

import contextlib
import errno
import importlib
import json
import math
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError, ResourceError
from spatialpdvi.io.storage.paths import AnyPath, Location, another, is_node, is_same, locate, resolve
from spatialpdvi.io.storage.temporary import create, hidden_name, remove_abandoned

__all__ = [
    "check_distinct",
    "check_ending",
    "check_makes_files",
    "check_output_folder",
    "check_space",
    "check_writable",
    "clear_errors",
    "copy_content",
    "disk_error",
    "hidden_beside",
    "name_earlier",
    "replacing",
    "shares_blocks",
    "synchronise",
    "write_json",
    "write_text",
]

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLONE = 0x40049409  # FICLONE of Linux, on all but a few kinds of processors, which do not know this number
_DEVICE = "a pipe or device"
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}


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


def check_output_folder(path: str | os.PathLike[str], file: str, *, others: Sequence[AnyPath] = ()) -> Path:
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
    folder = Path(path)
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
    return InputError("a folder", f"the file {str(path)!r}", option="output")


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
            f"Writing {location.given!r} takes {_size(n_bytes)} of disk space, and {_size(free)} are free.",
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
    if location.real.suffix not in {".h5ad", ".zarr"}:
        raise InputError(
            "a path that ends in .h5ad or .zarr",
            repr(location.given),
            "Its ending sets the format; give it one of these.",
            option=option,
        )


def write_text(path: AnyPath, text: str, *, option: str = "output") -> None:
    """Write a small text file, all or nothing; ``option`` is the option by which the user gave the path."""
    target = resolve(path, option=option)
    with clear_errors(path, option=option), replacing(target, target.parent) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: AnyPath, content: Any, *, option: str = "output") -> None:
    """Write a small JSON file as `write_text` does; numbers that JSON does not have (NaN, infinity) become null."""
    write_text(path, json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n", option=option)


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, np.ndarray):
        return _without_nan(content.tolist())
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@contextlib.contextmanager
def replacing(target: Path, like: Path) -> Iterator[Path]:
    """Give an empty hidden file beside the target; when the block ends well, it becomes the target.

    Parameters
    ----------
    target
        The file to appear or to be replaced (links resolved); its mode and owner are kept.
    like
        Where the permissions come from if there is no target yet.
    """
    temporary, mode, replaced = hidden_beside(target, like)
    try:
        create(temporary, mode)
        yield temporary
        synchronise(temporary)
        if replaced is not None:
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(temporary, replaced.st_uid, replaced.st_gid)
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:  # also Ctrl-C: no unfinished file stays
        temporary.unlink(missing_ok=True)
        raise
    # The new file is in place; some network disks cannot do this for folders, which is no failure.
    with contextlib.suppress(OSError):
        synchronise(target.parent)


def copy_content(source: Path, target: Path) -> None:
    """Copy a file into another one, new or to be overwritten.

    Where the disk can (btrfs, XFS, ZFS from 2.2 on), both files share their blocks until one of them is changed. This
    takes no time and no space, however large the file is.
    """
    if not _cloned(source, target):
        shutil.copyfile(source, target)


def shares_blocks(source: Path, folder: Path) -> bool:
    """Whether a copy of a file in this folder would share its blocks, and take no space."""
    probe = hidden_name(folder)
    try:
        create(probe, 0o600)  # it has the content of the source for a moment
        return _cloned(source, probe)
    except OSError:  # whoever writes there says why it cannot be done
        return False
    finally:
        probe.unlink(missing_ok=True)


def _cloned(source: Path, target: Path) -> bool:
    """Whether the target shares the blocks of the source now; False where the disk cannot do that."""
    if sys.platform != "linux":
        return False
    ioctl = importlib.import_module("fcntl").ioctl
    with source.open("rb") as original, target.open("wb") as copy:
        try:
            ioctl(copy.fileno(), _CLONE, original.fileno())
        except OSError:  # whatever the reason: if it is the disk, the copy fails with it too
            return False
    return True


def hidden_beside(target: Path, like: Path) -> tuple[Path, int, os.stat_result | None]:
    """Return a hidden name beside the target, the mode that its replacement gets, and the status of an old target."""
    replaced = target.stat() if target.exists() else None
    mode = stat.S_IMODE((replaced or like.stat()).st_mode)
    remove_abandoned(target.parent)
    return hidden_name(target.parent), mode, replaced


def synchronise(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def name_earlier() -> Iterator[list[AnyPath]]:
    """Add to an `InputError` or a `KeyboardInterrupt` which of several outputs had been written before it.

    Yields a list, to which the caller appends each output once it is there.
    """
    written: list[AnyPath] = []
    try:
        yield written
    except (InputError, KeyboardInterrupt) as stop:
        if not written:
            raise
        names = " and ".join(repr(locate(path).given) for path in written)
        outcome = f"{names} {'was' if len(written) == 1 else 'were'} written before; nothing else was."
        if isinstance(stop, InputError):
            raise stop.but(outcome=outcome) from stop
        raise type(stop)(outcome) from stop


@contextlib.contextmanager
def clear_errors(path: AnyPath, *, option: str | None = "output") -> Iterator[None]:
    """Turn failures of the disk while ``path`` is written into a `ResourceError`; all others pass."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: some of HDF5's
        failure = disk_error(error, path, option=option)
        if failure is None:
            raise
        raise failure from error


def disk_error(error: BaseException, path: AnyPath, *, option: str | None = "output") -> ResourceError | None:
    """Return the error to raise for a failure of the disk while ``path`` is written; None for any other failure."""
    number, location = _error_number(error), locate(path)
    shown, folder = repr(location.given), location.real.parent
    if number is None:
        return None
    if number in _NO_SPACE:
        problem, advice = (
            f"There is no space left on the disk to write {shown}.",
            f"Free some space or choose {another(option)}",
        )
    elif number in _NOT_ALLOWED:
        problem, advice = f"There is no permission to write {shown}.", f"Choose {another(option)}"
    elif number == errno.ENOENT and not folder.is_dir():  # whether it has ever been there is not known
        problem = f"There is no folder {str(folder)!r} to write {shown} into."
        advice = f"Create it, or choose {another(option)}"
    elif number == errno.ENOENT:
        problem, advice = f"The input, or the folder of {shown}, is no longer there.", "Put it back"
    else:
        problem, advice = f"Writing {shown} failed: {os.strerror(number).lower()}.", "Check the disk"
    return ResourceError(problem, f"{advice}, then run again.", outcome="Nothing was changed.")


def _error_number(error: BaseException | None) -> int | None:
    """The number of the operating system, which HDF5 hides in the text of its errors."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OSError) and error.errno:
            return error.errno
        inside = re.search(r"errno = (\d+)", str(error))
        if inside and isinstance(error, OSError | RuntimeError):
            return int(inside[1])
        error = error.__cause__ or error.__context__
    return None


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


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"
