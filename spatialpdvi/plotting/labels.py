"""Labels of any kind as codes and names."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from spatialpdvi.errors import InputError

__all__ = ["Labels", "printable", "read_labels"]


class Labels(NamedTuple):
    """A label per spot."""

    codes: NDArray[np.int64]  # shape=(n,), into `names`; -1 where unlabelled
    names: list[str]  # of those labels that some spot has


def read_labels(values: Any, *, n: int, what: str) -> Labels:
    """Codes and names of ``n`` labels; integers are their own names, and negative where missing.

    Parameters
    ----------
    values
        A pandas Categorical or Series, or an array; shape (n,).
    n
        Number of spots.
    what
        How an error calls the values.
    """
    if isinstance(values, pd.Series):
        values = values.array
    if np.shape(values) != (n,):
        msg = (
            f"Expected as many {what} as spots, {n}, found an array of shape {np.shape(values)}. "
            f"Give {what} and coordinates of the same spots."
        )
        raise InputError(msg)
    if isinstance(values, pd.Categorical):
        codes, names = np.asarray(values.codes, dtype=np.int64), values.categories
    else:
        codes, names = pd.factorize(np.asarray(values), sort=True)
        if np.issubdtype(names.dtype, np.number):
            negative = int((names < 0).sum())  # sorted, so these are the first
            codes, names = np.maximum(codes - negative, -1), names[negative:]
    used, codes_of_used = np.unique(codes, return_inverse=True)
    unlabelled = int(used[:1].sum() < 0)  # then -1 is the first, and it stays -1
    texts = [_text(names[code]) for code in used[unlabelled:]]
    return Labels(np.asarray(codes_of_used, dtype=np.int64) - unlabelled, texts)


def _text(name: Any) -> str:
    """Whole numbers that became floats beside missing values lose their ``.0``."""
    if isinstance(name, float | np.floating) and float(name).is_integer():
        return str(int(name))
    return printable(str(name))


def printable(text: str) -> str:
    """The text with ``?`` for what no font can draw: control characters, bytes that are no UTF-8."""
    return "".join(character if character.isprintable() else "?" for character in text)
