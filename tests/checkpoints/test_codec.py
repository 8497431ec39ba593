import enum
import json
from typing import NamedTuple

import numpy as np
import pytest

from spatialpdvi.checkpoints import digest, named_types, pack, same_shapes, unpack


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: object
    right: object


class Stranger(NamedTuple):
    left: object


def _round(value, *, like=None):
    description, arrays = pack(value)
    return unpack(
        json.loads(json.dumps(description, allow_nan=False)), arrays, named_types(like or value, also=[Colour])
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**127 + 1,
        0.1,
        float("inf"),
        -0.0,
        5e-324,
        "text",
        [1, (2.0, None)],
        {"a": {"b": [Pair(1, (Pair(2, 3),))]}},
        Colour.RED,
        Pair((), []),
    ],
)
def test_a_value_comes_back_as_it_was(value):
    back = _round(value)
    assert back == value
    assert repr(back) == repr(value)  # types, and the sign of zero


def test_nan_comes_back():
    assert np.isnan(_round(float("nan")))


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, np.nan, np.inf, -0.0]),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.zeros((0, 3), dtype=np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.float64(0.1),
        np.int64(7),
        np.bool_(True),
    ],
)
def test_an_array_comes_back_to_the_bit(array):
    back = _round(Pair(array, 1)).left
    assert type(back) is type(array)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("value", [object(), {1: 2}, {1, 2}, np.array([object()]), b"bytes", 1j])
def test_what_cannot_be_described_is_refused(value):
    with pytest.raises(TypeError):
        pack((1, [value]))


def test_a_type_that_the_reader_does_not_name_is_refused():
    with pytest.raises(KeyError, match="Stranger"):
        _round(Stranger(1), like=Pair(1, 2))


@pytest.mark.parametrize(
    "description",
    [
        {},
        {"plain": 1, "float": "0x1p0"},
        {"array": "a9"},
        {"float": "high"},
        {"set": {"parts": []}},
        {"list": {}},
        [1],
        3,
    ],
)
def test_a_description_that_is_none_is_refused(description):
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        unpack(description, {}, {})


@pytest.mark.parametrize(
    ("value", "alike"),
    [
        (Pair(np.zeros(3), 1), True),
        (Pair(np.ones(3), 2.5), True),
        (Pair(None, 1), True),
        (Pair(np.zeros(4), 1), False),
        (Pair(np.zeros(3, dtype=np.float32), 1), False),
        (Pair([0.0] * 3, 1), False),
        (Pair(np.zeros(3), "1"), False),
        ((np.zeros(3), 1), False),
    ],
)
def test_shapes_are_compared(value, alike):
    assert same_shapes(value, Pair(np.zeros(3), 1)) is alike


def test_a_digest_tells_types_and_shapes_apart():
    zeros = np.zeros((2, 3))
    others = [zeros, zeros.T.copy(), zeros.astype(np.int64), zeros.ravel(), None, zeros[:0]]
    assert len({digest(other) for other in others}) == len(others)
    assert digest(zeros, None) != digest(None, zeros)
    rows = np.arange(6.0).reshape(2, 3)
    assert digest(np.asfortranarray(rows)) == digest(rows)  # the order in memory is no difference
