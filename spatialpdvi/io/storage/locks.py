"""One writer at a time: an output is locked from before the work until it is written.

The lock is the system's (``flock``) on a hidden file beside the output: it ends with the process that holds it, however
that ends, so a lock is never stale. The hidden file is removed with the lock; that of a process which was killed stays,
unlocked, until the next run there. Locks are advisory: they tell runs of this program from each other, no others.
"""

import contextlib
import errno
import hashlib
import os
import platform
import re
import stat
import time
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.storage.paths import is_node

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["claimed", "remove_if_free"]

_NAME = re.compile(r"\.spatialpdvi-[0-9a-f]{12}\.lock")
_OWNER = re.compile(r"process \d+ on [\w.-]+, since [\d :-]+", re.ASCII)
_ATTEMPTS, _PAUSE = 5, 0.05  # who tidies up holds a lock for an instant: a look is not enough
# Where nothing can be made there is nothing to lock: the checks of the output say so in their own words.
_SAID_LATER = {
    errno.EACCES,
    errno.EDQUOT,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
# What the code that runs now has claimed: a function that claims what its caller has claimed goes on. Another thread
# starts with nothing, and so is refused as another process is.
_CLAIMED: ContextVar[frozenset[Path]] = ContextVar("claimed", default=frozenset())


@contextlib.contextmanager
def claimed(*outputs: str | Path | None) -> Iterator[None]:
    """Keep files, zarr stores and folders to ourselves while the ``with`` lasts; None is nothing.

    To be entered before hours of work. Links are followed. Of what cannot be locked (a disk without locks, Windows) a
    warning tells, and the work goes on.

    Raises
    ------
    InputError
        Where another run has claimed one of them.
    """
    with contextlib.ExitStack() as stack:
        for output in outputs:
            target = None if output is None else _target(output)
            if target is not None and target not in _CLAIMED.get():
                stack.enter_context(_locked(target, str(output)))
                token = _CLAIMED.set(_CLAIMED.get() | {target})
                stack.callback(_CLAIMED.reset, token)
        yield


def remove_if_free(path: Path) -> None:
    """Remove the lock file of a process that is gone; any other file, and a lock that is held, stays."""
    if fcntl is None or not _NAME.fullmatch(path.name) or not stat.S_ISREG(path.lstat().st_mode):
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, path):
            path.unlink()
    finally:
        os.close(descriptor)


def _target(output: str | Path) -> Path | None:
    """What to lock; None where nothing may be written, which the checks of the output say."""
    try:
        target = Path(output).resolve()
        mode = target.stat().st_mode if target.exists() else stat.S_IFREG
    except (OSError, RuntimeError, ValueError):
        return None
    is_device = not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
    return None if is_device or any(map(is_node, target.parents)) else target


@contextlib.contextmanager
def _locked(target: Path, shown: str) -> Iterator[None]:
    digest = hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()
    place = target.parent / f".spatialpdvi-{digest}.lock"
    descriptor = None
    try:
        descriptor = _acquire(place, shown)
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # gone, or in somebody else's sticky folder
                place.unlink()  # while it is locked: who waits for it looks whether it is still there
            os.close(descriptor)


def _acquire(place: Path, shown: str) -> int | None:
    """The open file that is locked, or None where there are no locks."""
    if fcntl is None:
        _warn(shown, "this system has none")
        return None
    owner = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE)
        try:
            descriptor = _open(place)
        except OSError as error:
            if os.path.lexists(place) or error.errno not in _SAID_LATER:
                _warn(shown, os.strerror(error.errno or 0).lower())
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(descriptor)
            os.close(descriptor)
        except OSError as error:
            os.close(descriptor)
            place.unlink(missing_ok=True)
            _warn(shown, os.strerror(error.errno or 0).lower())
            return None
        else:
            if _is_at(descriptor, place):
                _sign(descriptor)
                return descriptor
            os.close(descriptor)  # its last owner has removed it meanwhile
    msg = (
        f"Expected {shown!r} to be free, found another run at work on it{f' ({owner})' if owner else ''}. "
        "Wait until that has ended, or give another name. Nothing was changed."
    )
    raise InputError(msg)


def _open(place: Path) -> int:
    try:
        return os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except PermissionError:
        return os.open(place, os.O_RDONLY | os.O_NOFOLLOW)  # of another user, in a folder of both


def _is_at(descriptor: int, place: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), place.lstat())
    except FileNotFoundError:
        return False


def _sign(descriptor: int) -> None:
    """Write who holds the lock, for the sentence of the next one."""
    node = re.sub(r"[^\w.-]", "_", platform.node(), flags=re.ASCII) or "_"
    text = f"process {os.getpid()} on {node}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    with contextlib.suppress(OSError):  # a full disk: the lock holds without
        os.ftruncate(descriptor, 0)
        os.write(descriptor, text.encode())


def _owner(descriptor: int) -> str | None:
    with contextlib.suppress(OSError):
        text = os.read(descriptor, 512).decode(errors="replace")
        return text if _OWNER.fullmatch(text) else None
    return None


def _warn(shown: str, why: str) -> None:
    msg = (
        f"Expected a disk with locks for {shown!r}, found that it cannot be locked ({why}). Nothing keeps a second run "
        "from writing there at the same time: start no other one."
    )
    warnings.warn(msg, InputWarning, stacklevel=4)
