"""Values of plain types, arrays and NamedTuples to a JSON description and named arrays, and back to the same bits.

Nothing is pickled: a description can name NamedTuples and enumerations of the table that the reader gives, and no
others.
"""

import enum
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np

__all__ = ["named_types", "pack", "same_shapes", "unpack"]


def pack(value: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Description that JSON can hold, and the arrays that it names.

    Takes None, bool, int, float, str, arrays and scalars of NumPy, and lists, tuples, NamedTuples, dicts with keys of
    str and enumerations of these. Floats are written by their digits to base 16, which hold infinity and NaN too.

    Raises
    ------
    TypeError
        For any other type: a state that cannot be written whole is not written.
    """
    arrays: dict[str, np.ndarray] = {}
    return _describe(value, arrays), arrays


def unpack(description: Any, arrays: Mapping[str, np.ndarray], types: Mapping[str, type]) -> Any:
    """The value that `pack` was given; ``types`` are `named_types`.

    Raises
    ------
    KeyError, TypeError, ValueError
        Where the description is not one of `pack`, or names an array or a type that is not there.
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
    """NamedTuples that occur in some values, and others, by the names that `pack` gives them."""
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
    """Whether a value is built as another is: types, lengths, shapes and dtypes; None is like anything."""
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
