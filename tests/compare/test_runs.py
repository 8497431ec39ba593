"""The search for a step size."""

import math

import pytest

from spatialpdvi.compare.runs import COARSE, FINE, Tuning, search_step


def test_it_finds_the_best_step_to_a_quarter_of_a_power_of_ten():
    found = search_step(lambda step: (math.log10(step) - 1.3) ** 2)
    assert math.log10(found.step) == pytest.approx(1.25)
    assert [trial.step for trial in found.trials[: len(COARSE)]] == [10.0**p for p in range(-6, 5)]
    assert len(found.trials) == len(COARSE) + len(FINE)


def test_steps_that_fail_do_not_count():
    found = search_step(lambda step: -step if step < 0.05 else (math.nan if step < 1 else -math.inf))
    assert found.step == pytest.approx(0.01 * 10**0.5)


def test_of_equal_steps_the_smallest_is_taken():
    assert search_step(lambda step: -min(step, 1.0)).step == 1.0


def test_where_all_fail_the_smallest_step_is_taken():
    found = search_step(lambda step: math.inf)
    assert found.step == COARSE[0]
    assert len(found.trials) == len(COARSE)


def test_it_survives_json():
    import json

    found = search_step(lambda step: step if step < 1 else 2.0)
    assert Tuning.from_dict(json.loads(json.dumps(found.as_dict()))) == found
    failed = Tuning.from_dict({"step": 1.0, "trials": [{"step": 1.0, "neg_elbo": None}]})
    assert math.isnan(failed.trials[0].neg_elbo)
