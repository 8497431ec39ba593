"""Lack of memory as an error message: how much was needed, and which options of the command need less."""

import errno
import re

import click

from spatialpdvi.errors import ResourceError, option

__all__ = ["OutOfMemoryError", "is_out_of_memory", "out_of_memory"]

# options that memory grows with, and the advice to need less
_SMALLER = {
    "n_pcs": f"fewer components ({option('n_pcs')})",
    "n_top_genes": f"fewer genes ({option('n_top_genes')})",
    "n_spots": f"fewer spots ({option('n_spots')})",
    "n_genes": f"fewer genes ({option('n_genes')})",
    "dpi": f"a smaller {option('dpi')}",
}
_NEEDED = re.compile(r"Unable to allocate (?P<size>\S+ \S+) for an array with shape (?P<shape>\([^)]*\))")


class OutOfMemoryError(MemoryError):
    """Memory ran out after something had been written; ``outcome`` is the sentence that says what."""

    def __init__(self, error: MemoryError, outcome: str) -> None:
        super().__init__(str(error))
        self.outcome = outcome


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of a library, or of the system, means that there was not enough memory."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, RuntimeError):
        return "can't start new thread" in str(error)
    causes = (error, error.__context__) if isinstance(error, ImportError | OSError) else ()
    # of a library that could not be loaded, perhaps by another one that tells it in its own words
    return any(words in str(cause) for cause in causes for words in ("failed to map segment", "annot allocate memory"))


def out_of_memory(error: BaseException) -> ResourceError:
    """Return the error to show, with advice for the command that is running."""
    needed = _NEEDED.search(str(error))
    array = f": an array of shape {needed['shape']} needs {needed['size']} more" if needed else ""
    context = click.get_current_context(silent=True)
    options = [] if context is None else [parameter.name for parameter in context.command.params]
    smaller = [text for name, text in _SMALLER.items() if name in options]
    advice = f"Use {', '.join([*smaller, 'or ' * bool(smaller) + 'a machine with more memory'])}."
    outcome = error.outcome if isinstance(error, OutOfMemoryError) else "Nothing was written."
    return ResourceError(f"There is not enough memory{array}.", advice, outcome)
