"""What a user is told where memory has run out: how much was asked for, and what of the command to make smaller."""

import errno
import re

import click

__all__ = ["OutOfMemoryError", "is_out_of_memory", "out_of_memory"]

# options that memory goes with, and how a smaller demand is said
_SMALLER = {
    "n_pcs": "fewer components (--n-pcs)",
    "n_top_genes": "fewer genes (--n-top-genes)",
    "n_spots": "fewer spots (--n-spots)",
    "n_genes": "fewer genes (--n-genes)",
    "dpi": "a smaller --dpi",
}
_ASKED = re.compile(r"Unable to allocate (?P<size>\S+ \S+) for an array with shape (?P<shape>\([^)]*\))")


class OutOfMemoryError(MemoryError):
    """Memory ran out when something had been written; ``written`` is the sentence that says what."""

    def __init__(self, error: MemoryError, written: str) -> None:
        super().__init__(str(error))
        self.written = written


def is_out_of_memory(error: BaseException) -> bool:
    """Whether that is what an error of the library, or of the system, says."""
    if isinstance(error, ImportError):  # a library that found no room to be loaded
        return "failed to map segment" in str(error) or "annot allocate memory" in str(error)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def out_of_memory(error: BaseException) -> str:
    """The sentence, for the command that is running; an `OutOfMemoryError` says what was written before."""
    asked = _ASKED.search(str(error))
    found = f"none for {asked['size']} more (an array of {asked['shape']})" if asked else "none left"
    context = click.get_current_context(silent=True)
    options = [] if context is None else [parameter.name for parameter in context.command.params]
    smaller = [text for name, text in _SMALLER.items() if name in options]
    advice = ", ".join([*smaller, "or a machine with more memory"]) if smaller else "a machine with more memory"
    written = error.written if isinstance(error, OutOfMemoryError) else "Nothing was written."
    return f"Expected memory for what was asked, found {found}. Use {advice}. {written}"
