"""Convert plain values, arrays and NamedTuples to a JSON description and named arrays, and back to the same bits.

Nothing is pickled: a description can only name NamedTuples and enumerations that the reader lists.
"""

import enum
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np

__all__ = ["named_types", "pack", "same_shapes", "unpack"]


def pack(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Convert a value to a description that JSON can hold, and the arrays that it names.

    Parameters
    ----------
    value
        None, bool, int, float, str, arrays and scalars of NumPy, enumerations, and lists, tuples, NamedTuples and dicts
        (with keys of str) of these. Floats are written as hexadecimal numbers, which include infinity and NaN.

    Raises
    ------
    TypeError
        For any other type: a state that cannot be written completely is not written.
    """
    arrays: dict[str, np.ndarray] = {}
    return _describe(value, arrays), arrays


def unpack(description: Any, arrays: Mapping[str, np.ndarray], types: Mapping[str, type]) -> Any:
    """Return the value that `pack` was given.

    Parameters
    ----------
    description, arrays
        As `pack` returned them.
    types
        The NamedTuples and enumerations that may occur (`named_types`).

    Raises
    ------
    KeyError, TypeError, ValueError
        Where `pack` has not made the description, or it names an array or a type that does not exist.
    """
    (kind, content), *more = description.items()
    if more:
        msg = f"{len(more) + 1} kinds of one value"
        raise ValueError(msg)
    if kind == "plain":
        return content
    if kind == "float":
        return float.fromhex(content)
    if kind == "array":
        return arrays[content]
    if kind == "scalar":
        return arrays[content][()]
    if kind == "enum":
        return types[content[0]][content[1]]  # type: ignore[index]
    if kind == "dict":
        return {key: unpack(part, arrays, types) for key, part in content.items()}
    parts = [unpack(part, arrays, types) for part in content["parts"]]
    if kind == "list":
        return parts
    if kind == "tuple":
        return tuple(parts) if content["type"] is None else types[content["type"]](*parts)
    msg = f"a value of kind {kind!r}"
    raise ValueError(msg)


def named_types(*values: Any, also: Iterable[type] = ()) -> dict[str, type]:
    """Return the NamedTuples that occur in values, and those in ``also``, by the names that `pack` gives them."""
    found = {_name(kind): kind for kind in also}
    left = list(values)
    while left:
        value = left.pop()
        if isinstance(value, tuple | list):
            left.extend(value)
            if hasattr(value, "_fields"):
                found[_name(type(value))] = type(value)
        elif isinstance(value, dict):
            left.extend(value.values())
    return found


def same_shapes(value: Any, like: Any) -> bool:
    """Whether two values have the same types, lengths, shapes and dtypes; None matches anything."""
    if value is None or like is None:
        return True
    if isinstance(like, np.ndarray):
        return isinstance(value, np.ndarray) and (value.shape, value.dtype) == (like.shape, like.dtype)
    if isinstance(like, tuple):
        alike = type(value) is type(like) and len(value) == len(like)
        return alike and all(same_shapes(a, b) for a, b in zip(value, like, strict=True))
    return isinstance(value, Number) and isinstance(like, Number)


def _describe(value: Any, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            msg = f"array of {value.dtype}"
            raise TypeError(msg)
        name = f"a{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array" if isinstance(value, np.ndarray) else "scalar": name}
    if isinstance(value, enum.Enum):
        return {"enum": [_name(type(value)), value.name]}
    if value is None or isinstance(value, bool | int | str):
        return {"plain": value}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, list):
        return {"list": {"parts": [_describe(part, arrays) for part in value]}}
    if isinstance(value, tuple):
        kind = _name(type(value)) if hasattr(value, "_fields") else None
        return {"tuple": {"type": kind, "parts": [_describe(part, arrays) for part in value]}}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _describe(part, arrays) for key, part in value.items()}}
    msg = f"value of type {type(value).__name__}"
    raise TypeError(msg)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
