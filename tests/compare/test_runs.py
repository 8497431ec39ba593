"""A run from a prepared start, and the search for a step size."""

import math

import pytest

from spatialpdvi import FitOptions
from spatialpdvi.compare.bench import Bench
from spatialpdvi.compare.comparison import _Job, _run_one, _tune_one
from spatialpdvi.compare.plan import ComparisonPlan
from spatialpdvi.compare.runs import COARSE, FINE, Tuning, run_solver, search_step
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.loop import StopRule
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.runtime.progress import NO_STAGE, Progress

BRIEF = StopRule(1e-9, 1e-12, 3)


@pytest.fixture
def bench(toy_file):
    options = FitOptions(k=4, rep="X_pca", n_init=1, smooth=4)
    with H5adSource(toy_file) as source:
        return Bench(read_inputs(source, options), options, Progress())


def test_domains_of_a_run_are_in_the_order_of_the_file(bench, toy_section):
    run = run_solver(bench.prepared(0), "cavi", seed=0, rule=BRIEF)
    assert adjusted_rand_index(run.domains, toy_section.obs["annotation"].cat.codes) == pytest.approx(run.ari)
    assert run.ari > 0.3


def test_the_seed_of_a_run_is_that_of_its_random_numbers(bench):
    traces = [run_solver(bench.prepared(0), "p2dvi", seed=seed, rule=BRIEF).trace["neg_elbo"] for seed in (0, 1, 0)]
    assert traces[0] == traces[2] != traces[1]
    assert traces[0][0] == traces[1][0]


def test_duals_are_those_of_the_plan_in_runs_and_trials(bench):
    runs, trials = [], []
    for duals in (None, "zero"):
        plan = ComparisonPlan(options=FitOptions(k=4, duals=duals, max_epochs=2), tune_epochs=1)
        runs.append(_run_one(_Job("p2dvi", 0), plan, bench, step=None, stage=NO_STAGE, warm={"p2dvi"}))
        trials.append(_tune_one("pdvi", plan, bench, stage=NO_STAGE, place=(0, 1)).trials[0])
    assert runs[0].neg_elbo != runs[1].neg_elbo
    assert trials[0].neg_elbo != trials[1].neg_elbo


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
