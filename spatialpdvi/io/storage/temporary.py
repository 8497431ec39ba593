"""Hidden files and folders beside an output: their names, their space on the disk, and what killed processes left.

They are unfinished files, and the files that locks are on.
"""

import contextlib
import errno
import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import uuid
from pathlib import Path

from filelock import FileLock, Timeout

__all__ = ["ASIDE", "create", "hidden_name", "lock_name", "remove_abandoned", "remove_folder", "reserve"]

ASIDE = "old"  # ending of a folder that holds what is replaced until the new one has its name

_NAME = re.compile(r"\.spatialpdvi-(?P<place>[0-9a-f]{12})-(?P<pid>[1-9][0-9]*)-[0-9a-f]{12}\.(?P<kind>part|old)")
_LOCK = re.compile(r"\.spatialpdvi-[0-9a-f]{12}\.lock")
# The answers of disks that cannot set space aside: zeros have to be written.
_NOT_KNOWN = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
_ZEROS = bytes(1 << 20)


def hidden_name(folder: Path, kind: str = "part") -> Path:
    """Return a new name for an unfinished file, which tells where and by which process it is written."""
    return folder / f".spatialpdvi-{_place()}-{os.getpid()}-{secrets.token_hex(6)}.{kind}"


def lock_name(target: Path) -> Path:
    """Return the file that the lock of an output is on."""
    digest = hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()
    return target.parent / f".spatialpdvi-{digest}.lock"


def create(path: Path, mode: int) -> None:
    """Make an empty file, which must not exist yet, with the permissions of ``mode``."""
    # The user's umask applies, as to any file they make; the owner must be able to write.
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, (mode & 0o666) | 0o600))


def remove_abandoned(folder: Path) -> None:
    """Remove the hidden files and folders of processes that have ended, where that is certain.

    A folder that was moved aside for another one gets its name back if the other one has not taken it.

    On a shared disk the number of a process says nothing about the processes of other machines, and in a container
    nothing about those outside. Therefore only files of this machine, since it was started, and of this container are
    considered.
    """
    with contextlib.suppress(OSError):  # tidying up must not make a run fail
        for path in list(folder.iterdir()):
            found = _NAME.fullmatch(path.name)
            if found and found["place"] == _place() and not _runs(int(found["pid"])):
                with contextlib.suppress(OSError):
                    mode = path.lstat().st_mode
                    if stat.S_ISREG(mode):
                        path.unlink()
                    elif stat.S_ISDIR(mode):
                        if found["kind"] == ASIDE:
                            _put_back(path)
                        remove_folder(path)
            elif not found:
                with contextlib.suppress(OSError, Timeout):
                    _remove_lock(path)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)


def _remove_lock(path: Path) -> None:
    """Remove the lock file of a process that has ended; any other file, and a lock that is held, stays."""
    if _LOCK.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode):
        with FileLock(path, timeout=0, fallback_to_soft=False):
            path.unlink()


def _put_back(aside: Path) -> None:
    for path in list(aside.iterdir()):
        if not os.path.lexists(aside.parent / path.name):
            path.rename(aside.parent / path.name)


def reserve(path: Path, n_bytes: int) -> None:
    """Make sure that a file can grow by ``n_bytes``; an `OSError` says why it cannot.

    HDF5 does not survive a full disk: it fails again in every clean-up, and may end the process. The space is
    therefore taken and given back before HDF5 opens the file.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        size = os.fstat(descriptor).st_size
        try:
            _extend(descriptor, size, n_bytes)
            os.fsync(descriptor)  # some disks and quotas refuse only now
        finally:
            os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def _extend(descriptor: int, size: int, n_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, size, n_bytes)
        except OSError as error:
            if error.errno not in _NOT_KNOWN:
                raise
        else:
            return
    os.lseek(descriptor, size, os.SEEK_SET)
    left = n_bytes
    while left:
        left -= os.write(descriptor, _ZEROS[:left])


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process, or not the number of a process
        return True
    return True


@functools.cache
def _place() -> str:
    """Identify the machine, its present run and the container by 12 hexadecimal digits."""
    parts = [platform.node()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:  # not Linux: the network card tells machines of the same name apart
        parts.append(f"{uuid.getnode():x}")
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()
