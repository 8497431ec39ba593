"""What is said of a file, or an element of one, that cannot be read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spatialpdvi.errors import InputError, ResourceError

__all__ = ["reading", "reading_file", "reason_of"]


def reason_of(error: BaseException) -> str:
    """Return the first line of what an error says, without its full stop; its type where it says nothing."""
    said = error.args[0] if isinstance(error, KeyError) and error.args else error  # as text, it would be quoted
    return (str(said).strip().splitlines() or [""])[0].rstrip(".") or type(error).__name__


@contextmanager
def reading(
    expected: str, found: str, advice: str, *, unless: Callable[[Exception], object] = lambda _: False
) -> Iterator[None]:
    """Turn whatever a library raises for damaged bytes into an `InputError`.

    Only reading may be inside the block, or errors of other work would be taken for damage.

    Parameters
    ----------
    expected, advice
        As of the `InputError`.
    found
        The same; ``{type}`` and ``{reason}`` in it stand for those of the error.
    unless
        Whether an error is no damage, and passes as it is.
    """
    try:
        yield
    except (InputError, MemoryError):  # have their own messages
        raise
    except Exception as error:
        if unless(error):
            raise
        found = found.format(type=type(error).__name__, reason=reason_of(error))
        raise InputError(expected, found, advice) from error


@contextmanager
def reading_file(path: Path, what: str, found: str = "it truncated or damaged ({reason})") -> Iterator[None]:
    """Do as `reading` for a whole file, which was to be ``what``; say too where it is not free, or not ours to read."""
    with reading(f"{str(path)!r} to be a complete {what}", found, "Copy or download it again."):
        try:
            yield
        except PermissionError as error:
            problem = f"There is no permission to read {str(path)!r}."
            raise ResourceError(problem, "Ask its owner for access.") from error
        except BlockingIOError as error:
            raise InputError(
                f"{str(path)!r} to be free",
                "it open for writing elsewhere",
                "Close it there (a notebook, another program), then run again.",
            ) from error
