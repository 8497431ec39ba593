"""Trends that states share: told from differences between states, shrunk where states disagree, removed by section."""

from types import SimpleNamespace

import numpy as np
import pytest

from spatialpdvi.features.trends import shared_trend, spot_covariates
from spatialpdvi.fitting.states import _part_within
from spatialpdvi.initialization.states import trends_within
from spatialpdvi.problems.potts_mixture import PottsGlobals
from spatialpdvi.runtime.threads import single_threaded

N, P, D, C = 900, 2, 3, 6


def _section(seed=0, slopes=None):
    """Covariates, states whose means follow the first of these, and the trend in each state (C, P, D)."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(N, P)).astype(np.float32)
    states = np.clip(np.searchsorted([-1, -0.5, 0, 0.5, 1], values[:, 0] + rng.normal(0, 0.7, N)), 0, C - 1)
    means = np.linspace(-5, 5, C)[:, None] * np.array([1.0, -1.0, 0.5])
    each = np.broadcast_to(rng.normal(size=(P, D)), (C, P, D)) if slopes is None else slopes
    x = means[states] + np.einsum("np,npd->nd", values, each[states]) + rng.normal(size=(N, D))
    return x, np.eye(C)[states], values, each


def test_the_trend_is_the_regression_within_states_and_not_between_them():
    x, posterior, values, each = _section()
    found = shared_trend(x, posterior, values)
    within = [part - (posterior @ np.linalg.lstsq(posterior, part, rcond=None)[0]) for part in (values, x)]
    regression = np.linalg.lstsq(*within, rcond=None)[0]
    shrunk = (found * regression).sum(axis=1) / (regression**2).sum(axis=1)
    np.testing.assert_allclose(found, shrunk[:, None] * regression, rtol=1e-5)
    assert (shrunk > 0.95).all()
    assert (shrunk <= 1.0).all()
    np.testing.assert_allclose(found, each[0], atol=0.15)
    between = np.linalg.lstsq(values - values.mean(axis=0), x - x.mean(axis=0), rcond=None)[0]
    assert np.abs(between - each[0]).max() > 1.0  # what a regression that knows of no states would remove


def test_soft_states_weigh_spots_by_their_posteriors():
    x, posterior, values, _ = _section()
    twice = shared_trend(np.r_[x, x], np.r_[0.3 * posterior, 0.7 * posterior], np.r_[values, values])
    np.testing.assert_allclose(twice, shared_trend(x, posterior, values), rtol=1e-6, atol=1e-9)


def test_trends_of_single_states_are_left():
    slopes = np.zeros((C, P, D))
    slopes[:, 0] = 1.0  # the first covariate moves all states alike
    slopes[:, 1] = np.array([2.0, -2.0, 2.0, -2.0, 2.0, -2.0])[:, None]  # the second each its own way
    x, posterior, values, _ = _section(slopes=slopes)
    found = shared_trend(x, posterior, values)
    np.testing.assert_allclose(found[0], 1.0, atol=0.3)
    np.testing.assert_allclose(found[1], 0.0, atol=0.05)


def test_a_covariate_that_does_not_vary_has_no_trend():
    x, posterior, values, _ = _section()
    values[:, 1] = 0.0
    found = shared_trend(x, posterior, values)
    assert (found[1] == 0.0).all()
    np.testing.assert_allclose(found[0], shared_trend(x, posterior, values[:, :1])[0], rtol=1e-6)


@pytest.mark.parametrize("totals", [None, np.r_[np.arange(1.0, 40.0), 1e6]])
def test_covariates_are_in_sd_of_their_own_section(totals):
    rng = np.random.default_rng(0)
    xyz = np.c_[rng.uniform(0, 500, (40, 2)) + 1e6, np.repeat([3.0, 8.0], 20)]  # each section has a height of its own
    sections = [np.arange(0, 20), np.arange(20, 40)]
    found = spot_covariates(xyz, sections, totals)
    assert found.values.shape == (40, 3 if totals is None else 4)
    assert (found.values[:, -1] == 0.0).all()
    for spots in sections:
        own = found.values[spots, -3:-1]
        expected = (xyz[spots, :2] - xyz[spots, :2].mean(axis=0)) / xyz[spots, :2].std(axis=0)
        np.testing.assert_allclose(own, expected, atol=1e-5)
    if totals is not None:
        first, logs = sections[0], np.log1p(totals)
        np.testing.assert_allclose(
            found.values[first, 0], (logs[first] - logs[first].mean()) / logs[first].std(), atol=1e-5
        )
        assert found.values[:, 0].max() == 3.0  # a million counts are drawn in


def test_a_spot_far_away_does_not_decide_what_the_others_are_told_from():
    xy = np.random.default_rng(0).uniform(size=(200, 2))
    alone = spot_covariates(xy, [np.arange(200)], np.arange(1.0, 201.0)).values
    beside = spot_covariates(np.r_[xy, [[-1e6, 0.5]]], [np.arange(201)], np.arange(1.0, 202.0)).values
    np.testing.assert_array_equal(beside[:200], alone)
    assert beside[200, 1] == -3.0


def test_every_section_drifts_by_its_own_trend():
    xy = np.random.default_rng(0).uniform(size=(30, 2))
    found = spot_covariates(xy, [np.arange(0, 10), np.arange(10, 30)], None)
    drift = found.times([np.zeros((2, 4)), np.ones((2, 4))])
    assert drift.shape == (30, 4)
    assert (drift[:10] == 0.0).all()
    np.testing.assert_allclose(drift[10:], np.repeat(found.values[10:].sum(axis=1)[:, None], 4, axis=1), rtol=1e-6)


@pytest.mark.parametrize("drift", [0.0, 1.0])
def test_what_changes_from_layer_to_layer_is_no_trend(drift):
    """Four states in four layers along x, in each of which all are shifted, as depth shifts the cells of a cortex."""
    rng = np.random.default_rng(0)
    xy = np.stack(np.meshgrid(np.arange(60.0), np.arange(40.0)), axis=-1).reshape(-1, 2)
    layer = (xy[:, 0] // 15).astype(int)
    states = np.where(rng.uniform(size=layer.size) < 0.6, layer, rng.integers(0, 4, layer.size))
    covariates = spot_covariates(xy, [np.arange(layer.size)], None)
    means = 20.0 * np.eye(4)
    x = means[states] + layer[:, None] + drift * covariates.values[:, :1] + rng.normal(size=(layer.size, 4))
    within_states = shared_trend(x, np.eye(4)[states], covariates.values)
    with single_threaded():
        (found,) = trends_within(x, PottsGlobals(means, np.zeros((4, 4))), np.ones(4), covariates, n_kinds=4, seed=0)
    assert (within_states[0] - drift > 0.9).all()
    np.testing.assert_allclose(found[0], drift, atol=0.35)
    np.testing.assert_allclose(found[1], 0.0, atol=0.1)


def test_sections_of_a_large_file_keep_their_trends_however_many_they_are(monkeypatch):
    """A trend is learnt from a sample of the file, in which each of many sections has few spots."""
    monkeypatch.setattr("spatialpdvi.initialization.states.LEARNT_FROM", 400)
    rng, n = np.random.default_rng(0), 8 * 150
    sections = np.array_split(np.arange(n), 8)
    xy, kind = rng.uniform(size=(n, 2)), rng.integers(4, size=n)
    covariates = spot_covariates(xy, sections, None)
    means = 20.0 * np.eye(4)
    x = means[kind] + covariates.values[:, :1] + rng.normal(size=(n, 4))
    with single_threaded():
        found = trends_within(x, PottsGlobals(means, np.zeros((4, 4))), np.ones(4), covariates, n_kinds=1, seed=0)
    np.testing.assert_allclose([trend[0] for trend in found], 1.0, atol=0.5)


def test_a_coordinate_that_only_rounding_moves_is_flat():
    places = np.column_stack([np.arange(50.0), 0.1 * np.ones(50) * 3])
    places[::2, 1] = 0.3
    found = spot_covariates(places, [np.arange(50)], None).values
    assert not found[:, 1].any()
    assert found[:, 0].std() == pytest.approx(1.0)


def test_the_part_of_trends_is_of_the_variance_within_states():
    """The noise within states is 1 in the coordinates of the states."""
    drift = np.random.default_rng(0).normal(size=(1_000, 3)).astype(np.float32)
    rotation = np.diag([1.0, 2.0, 0.5])
    size = (drift @ rotation).var(axis=0).sum()
    assert _part_within(drift, SimpleNamespace(rotation=rotation)) == pytest.approx(size / (size + 3.0), rel=1e-5)
