"""One writer at a time: an output is locked from before the work until it is written.

The lock is one of the operating system on a hidden file beside the output, taken with the package `filelock`. It ends
with the process that holds it, however that ends, so a lock is never stale. The hidden file is removed with the lock;
after a process was killed it stays, unlocked, until the next run in that folder. Locks are advisory: they only keep
runs of this program apart.
"""

import contextlib
import errno
import os
import platform
import re
import stat
import time
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.storage.outputs import check_makes_files
from spatialpdvi.io.storage.paths import AnyPath, locate
from spatialpdvi.io.storage.temporary import lock_name

__all__ = ["claimed"]

_OWNER = re.compile(r"process \d+ on [\w.-]+, since [\d :-]+", re.ASCII)
_PATIENCE = 0.2  # seconds: a process that only tidies up holds a lock for an instant
_FOR_ALL = 0o666  # another user of the same folder must be able to open the lock file
# Where nothing can be written there is nothing to lock, and the checks of the output raise an error of their own.
_REFUSED_LATER = {errno.EACCES, errno.EDQUOT, errno.ENAMETOOLONG, errno.ENOSPC, errno.EPERM, errno.EROFS}
# The outputs that the running code has claimed: a function may claim again what its caller has claimed. Another thread
# starts with none, and is therefore refused as another process is.
_CLAIMED: ContextVar[frozenset[Path]] = ContextVar("claimed", default=frozenset())


@contextlib.contextmanager
def claimed(*outputs: AnyPath | None) -> Iterator[None]:
    """Keep other runs from writing to files, zarr stores and folders while the ``with`` block lasts.

    Enter it before hours of work. Links are followed. Where a disk has no locks, a warning says so and the work goes
    on.

    Parameters
    ----------
    outputs
        Paths, which need not exist yet; None is skipped.

    Raises
    ------
    InputError
        Where another run has claimed one of them, or no file can be made in its folder.
    """
    with contextlib.ExitStack() as stack:
        for output in outputs:
            location = None if output is None else locate(output)
            # where nothing can be written, the checks of the output say so
            if location is None or location.problem or location.kind == "device":
                continue
            place = location.real if location.store is None else location.spatialdata  # a table, with its whole store
            if place is not None and place not in _CLAIMED.get() and place.parent.is_dir():
                stack.enter_context(_locked(place, location.given))
                token = _CLAIMED.set(_CLAIMED.get() | {place})
                stack.callback(_CLAIMED.reset, token)
        yield


@contextlib.contextmanager
def _locked(target: Path, shown: str) -> Iterator[None]:
    file = lock_name(target)
    lock = _acquired(file, shown)
    try:
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):  # gone, or in another user's sticky folder
                file.unlink()  # while it is locked: whoever waits for it finds that it has no name any more
            lock.release()


def _acquired(file: Path, shown: str) -> BaseFileLock | None:
    """Lock a file; None where there are no locks."""
    lock = FileLock(file, timeout=_PATIENCE, mode=_FOR_ALL, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        owner = _owner(file)
        if owner is None and not os.path.lexists(file):  # no other run, or one that has just ended
            check_makes_files(file.parent, shown)
        raise InputError(
            f"{shown!r} to be free",
            f"another run at work on it{f' ({owner})' if owner else ''}",
            "Wait until that has ended, or give another name.",
            outcome="Nothing was changed.",
        ) from error
    except OSError as error:
        if os.path.lexists(file) or error.errno not in _REFUSED_LATER:
            _warn(shown, os.strerror(error.errno or 0).lower())
        if error.errno not in _REFUSED_LATER:
            _remove_file(file)  # made for a lock that the disk does not have
        return None
    _sign(file)
    return lock


def _remove_file(file: Path) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(file.lstat().st_mode):
            file.unlink()


def _sign(file: Path) -> None:
    """Write who holds the lock, for the error of the next process."""
    node = re.sub(r"[^\w.-]", "_", platform.node(), flags=re.ASCII) or "_"
    with contextlib.suppress(OSError):  # a full disk: the lock holds without
        file.write_text(f"process {os.getpid()} on {node}, since {time.strftime('%Y-%m-%d %H:%M:%S')}")


def _owner(file: Path) -> str | None:
    """Who holds the lock, where the file says so in the words of `_sign`."""
    with contextlib.suppress(OSError):
        text = file.read_bytes()[:512].decode(errors="replace")
        return text if _OWNER.fullmatch(text) else None
    return None


def _warn(shown: str, why: str) -> None:
    text = (
        f"{shown!r} cannot be locked ({why}), so nothing keeps a second run from writing there at the same time. Do "
        "not start another one."
    )
    warnings.warn(InputWarning(text), stacklevel=5)
