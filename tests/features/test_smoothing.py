"""Averages over neighbours, and the number of them that the data ask for."""

import numpy as np
import pytest

from spatialpdvi.features import smoothing
from spatialpdvi.features.smoothing import CANDIDATES, neighbor_averages, predictive_neighbors


def test_averages_over_a_spot_and_its_nearest():
    rng = np.random.default_rng(1)
    points, x = rng.random((50, 2)), rng.normal(size=(50, 3)).astype(np.float32)
    own, few, everything = neighbor_averages(x, points, (0, 6, 500), samples=[np.arange(50)])
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    for i in (0, 20, 49):
        np.testing.assert_allclose(few[i], x[np.argsort(distance[i])[:7]].mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(own, x)
    np.testing.assert_allclose(everything, np.tile(x.mean(axis=0), (50, 1)), atol=1e-6)


def _stripes(noise, *, side=40, width=10, seed=0):
    axis = np.arange(side, dtype=float)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    levels = np.random.default_rng(7).normal(size=(side // width, 4))
    x = levels[(points[:, 0] // width).astype(int)]
    return (x + noise * np.random.default_rng(seed).normal(size=x.shape)).astype(np.float32), points


def _scale(x, points, *, most=1000):
    return predictive_neighbors(x, points, samples=[np.arange(len(x))], most=most, seed=0)


def test_more_noise_asks_for_more_neighbours():
    found = [_scale(*_stripes(noise)) for noise in (0.05, 1.0, 5.0)]
    assert found[0] == min(CANDIDATES)
    assert found[0] < found[1] < found[2]


def test_the_scale_is_a_plain_leave_one_out_error():
    x, points = _stripes(1.5, side=20)
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    # ties by number, as documented
    order = np.lexsort((np.tile(np.arange(len(x)), (len(x), 1)), np.round(distance, 9)), axis=1)
    errors = {c: ((x - np.stack([x[o[:c]].mean(axis=0) for o in order])) ** 2).sum() for c in CANDIDATES}
    least = min(errors.values())
    expected = next(c for c in CANDIDATES if errors[c] <= 1.005 * least)
    assert _scale(x, points) == expected


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e6])
def test_the_unit_of_the_coordinates_does_not_matter(unit):
    x, points = _stripes(1.0)
    assert _scale(x, unit * points) == _scale(x, points)


def test_never_more_than_allowed_and_none_where_there_are_too_few():
    x, points = _stripes(5.0)
    assert _scale(x, points, most=10) <= 10
    assert _scale(x, points, most=3) == 0
    assert _scale(x[:4], points[:4], most=100) == 0


def test_the_error_is_estimated_on_random_spots(monkeypatch):
    monkeypatch.setattr(smoothing, "_SAMPLED", 200)
    drawn = []
    nearest_spots = smoothing.nearest_spots

    def noted(tree, own, n):
        drawn.append(own)
        return nearest_spots(tree, own, n)

    monkeypatch.setattr(smoothing, "nearest_spots", noted)
    places = np.random.default_rng(0).random((900, 2))
    features = np.random.default_rng(1).normal(size=(900, 3)) + 3 * places[:, :1]
    for seed in (0, 0, 1):
        predictive_neighbors(features, places, samples=[np.arange(900)], most=50, seed=seed)
    assert [own.size for own in drawn] == [200] * 3
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert drawn[0].max() > 600


def test_a_section_of_as_many_spots_as_the_largest_number_of_neighbours_takes_no_part():
    rng = np.random.default_rng(2)
    points = rng.random((325, 2))
    x = rng.normal(size=(325, 3)) + 3.0 * points[:, :1]
    alone = predictive_neighbors(x[25:], points[25:], samples=[np.arange(300)], most=25, seed=0)
    samples = [np.arange(25), np.arange(25, 325)]
    assert predictive_neighbors(x, points, samples=samples, most=25, seed=0) == alone
