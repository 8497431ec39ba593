"""Checks of single options: the type of a value, and its range."""

import math
from collections.abc import Iterable
from dataclasses import Field
from numbers import Integral, Real
from typing import Any, get_args

from spatialpdvi.errors import InputError, option

__all__ = [
    "check_choice",
    "check_of",
    "check_range",
    "check_seed",
    "kind_of",
    "listed",
    "read_kind",
    "read_min_counts",
    "read_states",
    "read_value",
    "refuse_without_genes",
]

_LARGEST_SEED = 2**32 - 1  # the limit of NumPy's older generators, which scikit-learn uses
_AT_LEAST = {
    "n_top_genes": 1,
    "min_genes": 1,
    "n_pcs": 0,
    "smooth": 0,
    "n_init": 1,
    "n_neighbors": 1,
    "flow_neighbors": 2,
    "tau": 0,
    "beta": 0,
    "anisotropy": 0,
    "n_patches": 1,
    "batch_patches": 1,
    "inner_rounds": 1,
    "max_epochs": 1,
    # posteriors are stored as float32: a certificate recomputed from the file cannot be tighter than their digits
    "tol": 1e-6,
    "seed": 0,
    "search": 0,
}
_GROUPS = ("domain", "state")  # `of`: what is compared or described
_FEW = 5  # elements of a list that a message shows
_COLUMN = "Store it as a column of obs, and give the name of that column."
# what to do with an array that is given instead of the name of one
_STORED = {
    **dict.fromkeys(("mask", "init", "label_key", "sample_key"), _COLUMN),
    "rep": "Store it in obsm, and give the key under which it is there.",
    "spatial_key": "Store coordinates in obsm, and give their key; or name columns of obs in one text, such as 'x,y'.",
    "graph": "Store it in obsp, and give the key under which it is there.",
    "layer": "Store it in layers, and give the key under which it is there.",
}
_LARGEST = 2**31 - 1  # for whole numbers without a bound of their own
_FEWEST_STATES, _MOST_STATES = 2, 1_000
_AT_MOST = {
    "search": 10_000,
    "n_init": 1_000,
    "inner_rounds": 1_000,
    "seed": _LARGEST_SEED,
    "anisotropy": 1,
    # an edge of a hundred nats decides everything; sums of far larger ones are not finite
    "beta": 1_000_000,
    "tau": 1_000_000,
}
_POSITIVE = ("target_sum", "clip", "step_factor", "step_size", "step_mean", "step_log_variance", "tol_objective")


def kind_of(f: "Field[Any]") -> Any:
    """Return the type of an option's values, leaving None out."""
    return next(kind for kind in get_args(f.type) or (f.type,) if kind is not type(None))


def read_value(f: "Field[Any]", value: Any) -> Any:
    """Return the value of an option of a fit as `read_kind` does, or None where that is its default."""
    return None if value is None and get_args(f.type) else read_kind(f.name, value, kind_of(f))


def read_kind(name: str, value: Any, kind: Any) -> Any:
    """Return the value as Python's own number, text or truth value, so that it can be written as JSON.

    Raises
    ------
    InputError
        Where it has the wrong type: text for a number, 2.5 for a count, None.
    """
    if kind is bool:
        is_numpys = getattr(getattr(value, "dtype", None), "kind", "") == "b" and value.ndim == 0
        fits, wanted = isinstance(value, bool) or is_numpys, "True or False"
    elif kind is int:
        fits, wanted = isinstance(value, Integral) and not isinstance(value, bool), "a whole number"
    elif kind is float:
        fits, wanted = isinstance(value, Real) and not isinstance(value, bool), "a number"
    else:
        fits, wanted = isinstance(value, str), "text"
    if not fits:
        raise InputError(wanted, _shown(value), _STORED.get(name, "") if _is_many(value) else "", option=name)
    return value.item() if hasattr(value, "item") else value  # a number of NumPy, which would be imported to ask for it


def _is_many(value: Any) -> bool:
    """Whether a value has elements: an array, a data frame, a sparse matrix, a list."""
    return bool(getattr(value, "shape", ())) or isinstance(value, list | tuple)


def _shown(value: Any) -> str:
    """A value in a message: a table of numbers by its type and shape, anything else as Python writes it."""
    shape = getattr(value, "shape", ())
    if isinstance(shape, tuple) and shape:
        return f"{type(value).__name__} of {' x '.join(f'{size:,}' for size in shape)}"
    if isinstance(value, list | tuple) and len(value) > _FEW:
        return f"a {type(value).__name__} of {len(value):,}"
    return repr(value)


def listed(values: Any) -> tuple[Any, ...]:
    """Return the names, or the pairs, that were given; one text is one of them, and not its letters.

    Those of a set, which has no order, are sorted.
    """
    if isinstance(values, set | frozenset):
        return tuple(sorted(values, key=str))
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else (values,)


def refuse_without_genes(expected: str, **given: Any) -> None:
    """Raise where an option that says where genes are was given, and no genes are wanted.

    Parameters
    ----------
    expected
        What would have to be wanted, in words.
    given
        Values of the options by name; None for one that was not given.
    """
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{expected} with {option(name)}", "none", "Only genes are read from the counts.")


def check_range(name: str, value: Any) -> None:
    """Raise where a number is too small, too large or not finite; its type was checked before."""
    if value is None:
        return
    least = _AT_LEAST.get(name)
    if least is not None and not value >= least:  # NaN is none
        raise InputError(f"at least {least}", str(value), option=name)
    if least is not None and math.isinf(value):
        raise InputError("a finite number", str(value), option=name)
    if name in _POSITIVE and not (math.isfinite(value) and value > 0):
        raise InputError("a positive number", str(value), option=name)
    most = _AT_MOST.get(name, _LARGEST if isinstance(value, Integral) else math.inf)
    if isinstance(value, Real) and float(value) > most:
        raise InputError(f"at most {most}", str(value), option=name)


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise where the value of an option is none of the words that it may be."""
    if not isinstance(value, str) or value not in known:
        raise InputError(f"one of {', '.join(known)}", _shown(value), option=name)


def check_of(value: Any) -> None:
    """Raise where what is asked for are neither the domains nor the states that they share."""
    if value not in _GROUPS:
        raise InputError(" or ".join(_GROUPS), repr(value), "Choose one of them.", option="of")


def check_seed(value: Any) -> None:
    """Raise where a seed is no whole number, or none that NumPy takes."""
    if not 0 <= read_kind("seed", value, int) <= _LARGEST_SEED:
        raise InputError(f"a whole number from 0 to {_LARGEST_SEED}", str(value), option="seed")


def read_min_counts(value: Any) -> int | str | None:
    """Return a number of counts, ``"auto"`` or None.

    Parameters
    ----------
    value
        A whole number, text, or None.

    Raises
    ------
    InputError
        Where the value is none of these, or the number is below 1.
    """
    if value is None:
        return None
    found = _word_or_number(value, ("auto",), 1, _LARGEST)
    if found is None:
        raise InputError("a whole number of at least 1, or auto", repr(value), option="min_counts")
    return found


def read_states(value: Any) -> int | str:
    """Return a number of states, ``"auto"`` or ``"off"``.

    Parameters
    ----------
    value
        A whole number, or text.

    Raises
    ------
    InputError
        Where the value is none of these, or the number is below 2 or above 1,000.
    """
    found = _word_or_number(value, ("auto", "off"), _FEWEST_STATES, _MOST_STATES)
    if found is None:
        expected = f"a whole number from {_FEWEST_STATES} to {_MOST_STATES:,}, auto or off"
        raise InputError(expected, repr(value), option="states")
    return found


def _word_or_number(value: Any, words: tuple[str, ...], least: int, most: int) -> int | str | None:
    """Return one of the words, or a whole number in a range, which may be text too; None for all else."""
    text = str(value).strip().lower() if isinstance(value, str | Integral) and not isinstance(value, bool) else ""
    if text in words:
        return text
    return int(text) if text.isascii() and text.isdigit() and least <= int(text) <= most else None
