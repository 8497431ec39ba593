"""The number of domains as users write it: one number, a range, or `auto`."""

import re
from numbers import Integral
from typing import Any

from spatialpdvi.errors import InputError, option

__all__ = ["AUTO", "candidates", "read_k"]

AUTO = "auto"
_FEWEST, _MOST = 2, 20
_SPOTS_EACH = 20  # `auto` stops where domains would have fewer spots than this on average
_NUMBER = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


def read_k(value: Any) -> int | str:
    """Return a number of domains, ``"auto"``, or ``"a:b"``, which stands for a, a + 1, ..., b.

    Parameters
    ----------
    value
        A whole number, or text.

    Raises
    ------
    InputError
        Where the value is none of these, a number is below 2, or a range does not increase.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if text == AUTO:
            return AUTO
        if _NUMBER.fullmatch(text):
            return _at_least_two(int(text))
        found = _RANGE.fullmatch(text)
        if found is not None and _FEWEST <= int(found[1]) < int(found[2]):
            return f"{int(found[1])}:{int(found[2])}"
    elif isinstance(value, Integral) and not isinstance(value, bool):
        return _at_least_two(value)
    raise InputError(
        f"a whole number of at least {_FEWEST}, a range a:b with {_FEWEST} <= a < b such as 4:15, or {AUTO}",
        repr(value),
        option="k",
    )


def candidates(k: str, n_spots: int) -> range:
    """Return the numbers of domains that a range or ``"auto"`` stands for, both ends included.

    ``auto`` is 2 to 20. It ends earlier on a small section, so that domains have at least 20 spots on average.

    Parameters
    ----------
    k
        A range ``"a:b"``, or ``"auto"``.
    n_spots
        Number of spots of the section.

    Raises
    ------
    InputError
        Where the range exceeds the number of spots, or ``auto`` would leave fewer than two numbers to choose from.
    """
    if k == AUTO:
        last = min(_MOST, n_spots // _SPOTS_EACH)
        if last <= _FEWEST:
            raise InputError(
                f"at least {_SPOTS_EACH * (_FEWEST + 1)} spots with {option('k', AUTO)}",
                str(n_spots),
                "Give a number or a range.",
            )
        return range(_FEWEST, last + 1)
    first, last = map(int, k.split(":"))
    if last > n_spots:
        raise InputError(f"at most the number of spots, {n_spots}", k, "Choose a smaller number.", option="k")
    return range(first, last + 1)


def _at_least_two(k: Any) -> int:
    if k < _FEWEST:
        raise InputError(f"at least {_FEWEST}", str(k), option="k")
    return int(k)
