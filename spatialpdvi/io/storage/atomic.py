"""Replace a file in one instant: on disk is the old one or the complete new one, never a mixture.

Knows nothing of HDF5 or AnnData; of zarr, which folders are its stores.
"""

import contextlib
import errno
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.folders import file_status
from spatialpdvi.io.storage.paths import is_node
from spatialpdvi.io.storage.temporary import create, hidden_name, remove_abandoned

__all__ = [
    "check_distinct",
    "check_output",
    "check_writable",
    "clear_errors",
    "describe_failure",
    "replacing",
    "resolve",
    "write_json",
    "write_text",
]

_OUTPUT = "--output"  # where another file is named, unless a caller says otherwise
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}


def check_output(source_path: str | Path, output_path: str | Path, *, n_bytes: int = 0, as_store: bool = False) -> None:
    """Whether a copy of the source can be written to the output: to be asked before hours of work.

    Parameters
    ----------
    source_path
        The file, or the folder of a zarr store, to be copied.
    output_path
        Where to; it may be the source itself, or a link.
    n_bytes
        What is added to the copy, as far as it is known.
    as_store
        Whether a zarr store will be written, in a folder.
    """
    target = resolve(output_path)
    try:
        # a store that is replaced by itself changes what it has to
        copied = 0 if as_store and target == resolve(source_path) else file_status(source_path)[0]
        needed = copied + n_bytes
    except OSError as error:
        msg = f"Expected the input at {_show(source_path)}, found it gone or not readable. Put it back, then run again."
        raise InputError(msg) from error
    check_writable(output_path, _OUTPUT, as_store=as_store)
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        msg = (
            f"Expected {_size(needed)} of free space to write {_show(output_path)}, found "
            f"{_size(free)}. The new file is complete before the old one goes: free some space, "
            "or choose an output on another disk."
        )
        raise InputError(msg)


def check_writable(path: str | Path, option: str, *, as_store: bool = False) -> None:
    """Whether a file, or a zarr store, can be written at ``path``; ``option`` is where another one is named."""
    target = resolve(path, option=option)
    (_check_store if as_store else _check_target)(target, path, option=option)
    _check_folder(target.parent, path, option=option)


def check_distinct(path: str | Path, option: str, others: Sequence[str | Path]) -> None:
    """Whether ``path``, given by ``option``, is none of the files that it must not replace, nor in a zarr store.

    Links are followed; a hard link is the same file under another name.
    """
    _check_outside(resolve(path, option=option), path, option=option)
    for other in others:
        if _is_same(path, other):
            msg = f"Expected {option} to be another file than {_show(other)}, found the same. Choose another {option}."
            raise InputError(msg)


def write_text(path: str | Path, text: str, *, option: str = _OUTPUT) -> None:
    """Write a small text file, all or nothing."""
    target = resolve(path, option=option)
    with clear_errors(path, option=option), replacing(target, target.parent) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, content: Any, *, option: str = _OUTPUT) -> None:
    """Write a small JSON file, all or nothing; numbers that JSON does not have (NaN, infinity) become null."""
    write_text(path, json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n", option=option)


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, np.ndarray):
        return _without_nan(content.tolist())
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _is_same(path: str | Path, other: str | Path) -> bool:
    # what cannot be looked at is for those to refuse who open it
    with contextlib.suppress(InputError, OSError, ValueError):
        return resolve(path) == resolve(other) or Path(path).samefile(other)
    return False


def resolve(path: str | Path, *, option: str = _OUTPUT) -> Path:
    """The file behind a path and its links, whether or not it exists yet."""
    try:
        target = Path(path).resolve()
        target.exists()  # refuses a name that no file can have
    except (OSError, RuntimeError, ValueError) as error:
        too_long = isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG
        found = "a name that is too long" if too_long else "a link that leads nowhere"
        msg = f"Expected {_show(path)} to be the path of a file, found {found}. "
        msg += f"Choose another {option}."
        raise InputError(msg) from error
    return target


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
    replaced = target.stat() if target.exists() else None
    mode = stat.S_IMODE((replaced or like.stat()).st_mode)
    remove_abandoned(target.parent)
    temporary = hidden_name(target.parent)
    try:
        create(temporary, mode)
        yield temporary
        _synchronise(temporary)
        if replaced is not None:
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(temporary, replaced.st_uid, replaced.st_gid)
            temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:  # Ctrl-C as well: nothing is left behind
        temporary.unlink(missing_ok=True)
        raise
    # The new file is in place; that some network disks cannot do this for folders is no failure.
    with contextlib.suppress(OSError):
        _synchronise(target.parent)


@contextlib.contextmanager
def clear_errors(output_path: str | Path, *, option: str = _OUTPUT) -> Iterator[None]:
    """Turn failures that the disk is to blame for into the user's sentence; all others pass."""
    try:
        yield
    except InputError:
        raise
    except (OSError, RuntimeError) as error:  # RuntimeError: some of HDF5's
        msg = describe_failure(error, output_path, option=option)
        if msg is None:
            raise
        raise InputError(msg) from error


def describe_failure(error: BaseException, output_path: str | Path, *, option: str = _OUTPUT) -> str | None:
    """The sentence for a failure that the disk is to blame for; None for any other."""
    number = _error_number(error)
    if number is None:
        return None
    if number in _NO_ROOM:
        found, hint = "no room left for it", f"Free some space or choose another {option}"
    elif number in _NOT_ALLOWED:
        found, hint = "no permission to write there", f"Choose another {option}"
    elif number == errno.ENOENT:
        found, hint = "the input or the folder gone", "Put it back"
    else:
        found, hint = os.strerror(number).lower(), "Check the disk"
    return f"Expected to write {_show(output_path)}, found {found}. Nothing was changed. {hint}, then run again."


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


def _check_target(target: Path, output_path: str | Path, *, option: str) -> None:
    if not target.exists():
        return
    if target.is_dir():
        found = "a folder"
    elif not target.is_file():
        found = "a pipe or device"
    elif not os.access(target, os.W_OK):
        found = "a file that is write-protected"
    else:
        return
    msg = f"Expected {_show(output_path)} to be a file to write, found {found}. "
    msg += f"Choose another {option}."
    raise InputError(msg)


def _check_store(target: Path, output_path: str | Path, *, option: str) -> None:
    """Whether a folder is free, or an AnnData that may be replaced: nobody's other folder is."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        found = "a file"
    elif not is_node(target) or not ((target / "obs").is_dir() and (target / "var").is_dir()):
        found = "a SpatialData store" if (target / "tables").is_dir() else "a folder of something else"
    elif not os.access(target, os.W_OK):
        found = "a store that is write-protected"
    else:
        return
    msg = f"Expected {_show(output_path)} to be a zarr store of an AnnData to write, found {found}. "
    raise InputError(msg + f"Choose another {option}.")


def _check_outside(path: Path, output_path: str | Path, *, option: str) -> None:
    store = next((folder for folder in path.parents if is_node(folder)), None)
    if store is not None:
        msg = (
            f"Expected {_show(output_path)} to be outside of zarr stores, found it in {_show(store)}, which is not "
            f"changed. Choose another {option}."
        )
        raise InputError(msg)


def _check_folder(folder: Path, output_path: str | Path, *, option: str) -> None:
    _check_outside(folder / "file", output_path, option=option)
    if not folder.is_dir():
        msg = (
            f"Expected the folder of {_show(output_path)} to exist, found no {_show(folder)}. "
            f"Create it, or choose another {option}."
        )
        raise InputError(msg)
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
    reason = describe_failure(cause, output_path, option=option) if cause else None
    msg = reason or (f"Expected to write into the folder {_show(folder)}, found it read-only. Choose another {option}.")
    raise InputError(msg) from cause


def _synchronise(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:.1f} MB"


def _show(path: str | Path) -> str:
    return repr(str(path))
