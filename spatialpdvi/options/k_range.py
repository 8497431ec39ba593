"""Which numbers of domains a user may ask for: one, a range of them, or `auto`."""

import re
from numbers import Integral
from typing import Any

from spatialpdvi.errors import InputError

__all__ = ["AUTO", "candidates", "read_k"]

AUTO = "auto"
_FEWEST, _MOST = 2, 20
_SPOTS_EACH = 20  # spots that a domain of `auto` has on average, at the least
_NUMBER = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")


def read_k(value: Any) -> int | str:
    """What `--k` asks for: a number, or ``"auto"``, or ``"a:b"`` for all of a, a + 1, ..., b.

    Raises
    ------
    InputError
        Where it is none of these, the number is below 2, or the range does not rise from 2 at the least.
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
    msg = (
        f"Expected `--k` to be a whole number of at least {_FEWEST}, a range a:b with {_FEWEST} <= a < b such as 4:15, "
        f"or {AUTO}, found {value!r}."
    )
    raise InputError(msg)


def candidates(k: str, n_spots: int) -> range:
    """Numbers of domains that a range or ``"auto"`` stands for, both ends included; ``auto`` is 2 to 20.

    ``auto`` leaves 20 spots a domain on average, and so ends earlier on a section of fewer than 400.

    Raises
    ------
    InputError
        Where the range goes beyond the number of spots, or there are too few spots for two numbers to choose from.
    """
    if k == AUTO:
        last = min(_MOST, n_spots // _SPOTS_EACH)
        if last <= _FEWEST:
            msg = (
                f"Expected at least {_SPOTS_EACH * (_FEWEST + 1)} spots with `--k {AUTO}`, found {n_spots}. Give a "
                "number or a range."
            )
            raise InputError(msg)
        return range(_FEWEST, last + 1)
    first, last = map(int, k.split(":"))
    if last > n_spots:
        msg = f"Expected `--k` to be at most the number of spots, {n_spots}, found {k}. Lower it."
        raise InputError(msg)
    return range(first, last + 1)


def _at_least_two(k: Any) -> int:
    if k < _FEWEST:
        msg = f"Expected `--k` to be at least {_FEWEST}, found {k}."
        raise InputError(msg)
    return int(k)
