"""Folders that are used as one file: their size, their copy, and their replacement in one instant.

This module knows nothing of zarr or AnnData.
"""

import contextlib
import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from spatialpdvi.io.storage.atomic import copy_content, hidden_beside, synchronise
from spatialpdvi.io.storage.temporary import ASIDE, create, hidden_name, remove_folder

__all__ = ["can_link", "copy_folder", "entries", "file_status", "replacing_folder"]

_HERE = -100  # AT_FDCWD of Linux
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
# The answers of disks that cannot link, or exchange two names.
_NOT_KNOWN = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EMLINK, errno.EXDEV}


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything in a folder and the folders in it, in the order of names; links are not followed."""
    with os.scandir(folder) as found:
        ordered = sorted(found, key=lambda entry: entry.name)
    for entry in ordered:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from entries(Path(entry.path))


def file_status(path: str | Path) -> tuple[int, int]:
    """Return the bytes of a file, or of all files in a folder, and when the newest was changed (nanoseconds)."""
    own = Path(path).stat()
    if not stat.S_ISDIR(own.st_mode):
        return own.st_size, own.st_mtime_ns
    size, newest = 0, own.st_mtime_ns
    for entry in entries(Path(path)):
        status = entry.stat(follow_symlinks=False)
        size += status.st_size if entry.is_file(follow_symlinks=False) else 0
        newest = max(newest, status.st_mtime_ns)
    return size, newest


def copy_folder(source: Path, target: Path, *, linked: Callable[[Path], bool], never_copied: bool = False) -> None:
    """Copy the files and folders in a folder into another one that exists; anything else is left out.

    Parameters
    ----------
    source, target
        The folders.
    linked
        Whether a file, by its path in the source, gets a second name instead of a copy, where the disk can do that. It
        is meant for a folder that will be removed, and for files that nobody writes to.
    never_copied
        Whether it is an error (OSError) where the disk cannot give such a file a second name. Folders then keep their
        permissions, too.
    """
    can_link = True
    for entry in entries(source):
        place = Path(entry.path).relative_to(source)
        copy = target / place
        if entry.is_dir(follow_symlinks=False):
            copy.mkdir()
            if never_copied:
                copy.chmod(stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode) | 0o700)
        elif entry.is_file(follow_symlinks=False):
            tried = can_link and linked(place)
            can_link = _link(entry.path, copy) if tried else can_link
            if tried and not can_link and never_copied:
                raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), entry.path)
            if not (tried and can_link):
                copy_content(Path(entry.path), copy)


def can_link(folder: Path) -> bool:
    """Whether files in a folder can be given a second name; a file is made there and removed to find out."""
    one, other = hidden_name(folder), hidden_name(folder)
    try:
        create(one, 0o600)
        return _link(str(one), other)
    finally:
        one.unlink(missing_ok=True)
        other.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(target: Path, like: Path) -> Iterator[Path]:
    """Give an empty hidden folder beside the target; when the block ends well, it becomes the target.

    Parameters
    ----------
    target
        The folder to appear or to be replaced (links resolved); its mode and owner are kept.
    like
        Where the permissions come from if there is no target yet.
    """
    with hidden_beside(target, like, remove_folder) as (temporary, mode, replaced):
        temporary.mkdir(mode=(mode | (mode & 0o444) >> 2) & 0o777 | 0o700)  # of a file: who may read it, may enter
        yield temporary
        _settle(temporary, replaced)
        if replaced is None:
            temporary.rename(target)
        else:
            temporary.chmod(mode | 0o700)
            _exchange(temporary, target)


def _link(source: str, copy: Path) -> bool:
    """Give a file a second name; whether the disk can do that."""
    try:
        os.link(source, copy, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NOT_KNOWN:
            raise
        return False
    return True


def _settle(folder: Path, owner: os.stat_result | None) -> None:
    """Wait until a folder has reached the disk, except files with a second name, which have reached it before."""
    for path in (folder, *(Path(entry.path) for entry in entries(folder))):
        status = path.lstat()
        is_new = stat.S_ISDIR(status.st_mode) or status.st_nlink == 1
        if is_new and owner is not None and (status.st_uid, status.st_gid) != (owner.st_uid, owner.st_gid):
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        if is_new:
            synchronise(path)


def _exchange(new: Path, old: Path) -> None:
    """Exchange the names of two folders, in one instant where the system can do that.

    Elsewhere the old one is moved aside first. If the process is killed before the new one has its name, the next
    `remove_abandoned` puts the old one back.
    """
    if _exchange_names(new, old):
        return
    aside = hidden_name(old.parent, ASIDE)
    aside.mkdir()
    try:
        old.rename(aside / old.name)
        try:
            new.rename(old)
        except BaseException:
            (aside / old.name).rename(old)
            raise
    finally:
        if old.exists():
            remove_folder(aside)


def _exchange_names(one: Path, other: Path) -> bool:
    """Whether the system has exchanged the names; False where it, or the disk, cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    names = [os.fsencode(one), os.fsencode(other)]
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        failed = library.renameat2(_HERE, names[0], _HERE, names[1], ctypes.c_uint(_EXCHANGE))
    elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(names[0], names[1], ctypes.c_uint(_EXCHANGE))
    else:
        return False
    if not failed:
        return True
    number = ctypes.get_errno()
    if number in _NOT_KNOWN:
        return False
    raise OSError(number, os.strerror(number), str(other))
