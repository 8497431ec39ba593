"""Every operation on eight numbers against NumPy: partial rows, extremes, NaN."""

import numpy as np
import pytest

from spatialpdvi.kernels import simd as lanes
from spatialpdvi.kernels.dispatch import compiled


@compiled
def _exp(values, out):
    for i in range(0, values.size, lanes.WIDTH):
        left = values.size - i
        lanes.store(out, i, left, lanes.exp(lanes.load(values, i, left, 0.0)))


@compiled
def _log(values, out):
    for i in range(0, values.size, lanes.WIDTH):
        left = values.size - i
        lanes.store(out, i, left, lanes.log(lanes.load(values, i, left, 1.0)))


@compiled
def _copy(values, count, out):
    lanes.store(out, 4, count, lanes.load(values, 0, 8, 0.0))


@compiled
def _fold(values, missing):
    whole = lanes.load(values, 0, values.size, missing)
    return lanes.pairwise_sum(whole), lanes.largest(whole)


@compiled
def _arithmetic(a, b, out):
    x, y = lanes.load(a, 0, 8, 0.0), lanes.load(b, 0, 8, 0.0)
    lanes.store(out, 0, 8, lanes.plus(x, y))
    lanes.store(out, 8, 8, lanes.minus(x, y))
    lanes.store(out, 16, 8, lanes.over(x, y))
    lanes.store(out, 24, 8, lanes.upper(x, y))
    lanes.store(out, 32, 8, lanes.fma(x, y, lanes.fill(2.0)))


@pytest.mark.parametrize("count", [-9, -1, *range(9), 17])
def test_a_store_writes_the_lanes_that_exist_and_nothing_else(count):
    values, out = np.arange(8) + 0.5, np.full(16, np.nan)
    _copy(values, count, out)
    written = min(max(count, 0), 8)
    np.testing.assert_array_equal(out[4 : 4 + written], values[:written])
    assert np.isnan(out[:4]).all()
    assert np.isnan(out[4 + written :]).all()


def test_exponential_is_within_a_unit_and_a_half_in_the_last_place():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [-rng.exponential(20.0, 100_003), -np.linspace(0.0, 708.0, 20_001), -(2.0 ** -np.arange(99))]
    )
    out = np.empty_like(values)
    _exp(values, out)
    exact = np.exp(values.astype(np.longdouble))
    assert np.max(np.abs(out - exact) / np.spacing(np.exp(values))) < 1.5


def test_logarithm_is_within_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    values = np.concatenate(
        [10.0 ** rng.uniform(-307.0, 308.0, 100_003), rng.uniform(0.5, 2.0, 50_000), 1.0 + 1e-9 * rng.normal(size=1000)]
    )
    values = np.append(values, [1.0, 2.0**-1022, np.sqrt(0.5), np.sqrt(2.0)])
    out = np.empty_like(values)
    _log(values, out)
    exact = np.log(values.astype(np.longdouble))
    assert np.max(np.abs(out - exact) / np.spacing(np.abs(np.log(values)) + 1e-300)) < 2.0
    _log(np.array([np.nan]), out[:1])
    assert np.isnan(out[0])


def test_exponential_of_extremes():
    values = np.array([0.0, -0.0, -708.5, -1e308, -np.inf, np.nan])
    out = np.empty_like(values)
    _exp(values, out)
    np.testing.assert_array_equal(out, [1.0, 1.0, 0.0, 0.0, 0.0, np.nan])


@pytest.mark.parametrize("count", range(1, 9))
def test_lanes_beyond_the_count_are_neither_read_nor_written(count):
    values = -1.0 - np.arange(count)
    total, top = _fold(values, 0.0)
    assert total == values.sum()
    assert top == (-1.0 if count == 8 else 0.0)
    assert _fold(values, -np.inf)[1] == -1.0
    room = np.full(count + 3, 7.0)
    _exp(values, room[:count])
    np.testing.assert_array_equal(room[count:], 7.0)
    np.testing.assert_allclose(room[:count], np.exp(values), rtol=1e-15)


def test_arithmetic_agrees_with_numpy():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=8), rng.normal(size=8)
    out = np.empty(40)
    _arithmetic(a, b, out)
    np.testing.assert_array_equal(out[:32], np.concatenate([a + b, a - b, a / b, np.maximum(a, b)]))
    np.testing.assert_allclose(out[32:], a * b + 2.0, rtol=1e-15)
