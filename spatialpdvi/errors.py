"""The one error a user can cause, and the warning beside it.

A message reads "Expected <thing> <condition>, found <value>. <What to do next.>". The command line prints it
without a traceback and exits with 2; every other exception is a bug of ours and keeps its traceback.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["InputError", "InputWarning", "expect_finite", "list_keys"]


class InputError(ValueError):
    """What the user gave cannot be used; the message says what was expected, found, and what to do."""


class InputWarning(UserWarning):
    """What the user gave is odd but usable; the message says how it was understood."""


def list_keys(keys: Iterable[str]) -> str:
    """Names of what there is, for the "found" half of an error: ``'X_pca', 'spatial'`` or ``none``."""
    return ", ".join(repr(key) for key in sorted(keys)) or "none"


def expect_finite(position: "np.ndarray") -> None:
    """Refuse coordinates (n, 2|3) with NaN or infinity, given as an array rather than read from a file."""
    import numpy as np  # not at the top: the command line imports this module before it knows what to do

    finite = np.isfinite(position).all(axis=1)
    if not finite.all():
        n_bad = int((~finite).sum())
        msg = (
            f"Expected finite coordinates, found {n_bad} spots without. Remove these spots, or mend their coordinates."
        )
        raise InputError(msg)
