"""The one error a user can cause, and the warning beside it.

A message reads "Expected <thing> <condition>, found <value>. <What to do next.>". The command line prints it
without a traceback and exits with 2; every other exception is a bug of ours and keeps its traceback.
"""

from collections.abc import Iterable

__all__ = ["InputError", "InputWarning", "list_keys"]


class InputError(ValueError):
    """What the user gave cannot be used; the message says what was expected, found, and what to do."""


class InputWarning(UserWarning):
    """What the user gave is odd but usable; the message says how it was understood."""


def list_keys(keys: Iterable[str]) -> str:
    """Names of what there is, for the "found" half of an error: ``'X_pca', 'spatial'`` or ``none``."""
    return ", ".join(repr(key) for key in sorted(keys)) or "none"
