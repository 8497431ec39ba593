"""Failures of the disk while outputs are written, in words, and what had been written before them.

Of HDF5 this module knows how its errors tell that a disk is full.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator

from spatialpdvi.errors import InputError, ResourceError
from spatialpdvi.io.storage.paths import AnyPath, another, locate

__all__ = [
    "NO_SPACE",
    "clear_errors",
    "disk_error",
    "name_earlier",
]

NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EROFS, errno.EACCES, errno.EPERM}


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
        stop.args = (outcome,)
        raise


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
    if number in NO_SPACE:
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
