"""Replace a file in one instant: on disk is the old one or the complete new one, never a mixture."""

import contextlib
import importlib
import json
import math
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.paths import AnyPath, resolve
from spatialpdvi.io.storage.temporary import create, hidden_name, remove_abandoned

__all__ = [
    "copy_content",
    "hidden_beside",
    "replacing",
    "shares_blocks",
    "synchronise",
    "write_json",
    "write_text",
]

_CLONE = 0x40049409  # FICLONE of Linux, on all but a few kinds of processors, which do not know this number


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
    with hidden_beside(target, like, _remove_file) as (temporary, mode, replaced):
        create(temporary, mode)
        yield temporary
        synchronise(temporary)
        if replaced is not None:
            with contextlib.suppress(PermissionError):  # only root may give files away
                os.chown(temporary, replaced.st_uid, replaced.st_gid)
            temporary.chmod(mode)
        temporary.replace(target)


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


def _remove_file(path: Path) -> None:
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def hidden_beside(
    target: Path, like: Path, remove: Callable[[Path], None]
) -> Iterator[tuple[Path, int, os.stat_result | None]]:
    """Give a hidden name beside the target, the mode that its replacement gets, and the status of an old target.

    The block gives the new file or folder its name; whatever has the hidden name in the end is removed by ``remove``.
    """
    replaced = target.stat() if target.exists() else None
    mode = stat.S_IMODE((replaced or like.stat()).st_mode)
    remove_abandoned(target.parent)
    temporary = hidden_name(target.parent)
    try:
        yield temporary, mode, replaced
    finally:  # also after Ctrl-C: neither an unfinished one nor the one that was replaced stays
        remove(temporary)
    # The new one is in place; some network disks cannot do this for folders, which is no failure.
    with contextlib.suppress(OSError):
        synchronise(target.parent)


def synchronise(path: Path) -> None:
    """Wait until a file or folder has reached the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
