"""The quadratic against its formula written out, and solvers on it: its optimum and its rate are known."""

import re

import numpy as np
import pytest
from reference import central_difference

from spatialpdvi.engines import LocalEngine
from spatialpdvi.errors import InputError
from spatialpdvi.fitting.loop import Stop, StopRule, optimise
from spatialpdvi.problems.quadratic import Quadratic, QuadraticGlobals, QuadraticStatistics, random_quadratic
from spatialpdvi.solvers import SOLVERS, SolverSettings, make_solver

CONVERGENT = ("p2dvi", "pdvi", "cavi", "memoized")


def _written_out(forms, centres, phi, lam):
    """(Q1), one sample at a time."""
    total = 0.0
    for q, c, local in zip(forms, centres, phi, strict=True):
        z = np.concatenate([local, lam - c])
        total += 0.5 * z @ q @ z
    return total


def _case(n=30, p=2, d=3, n_patches=4, seed=0):
    """Forms, centres, the problem and a point that is no optimum of anything."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, p + d, p + d))
    forms = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(p + d)
    centres = rng.normal(size=(n, d))
    problem = Quadratic(forms, centres, n_local=p, n_patches=n_patches)
    return forms, centres, problem, rng.normal(size=(n, p)), QuadraticGlobals(rng.normal(size=d))


def _total(problem, phi, lam):
    parts = [problem.statistics(phi, b, lam) for b in range(problem.n_patches)]
    return QuadraticStatistics(*(sum(part) for part in zip(*parts, strict=True)))


@pytest.mark.parametrize("n_patches", [1, 4, 30])
def test_objective_and_gradient_are_the_written_out_ones(n_patches):
    forms, centres, problem, phi, lam = _case(n_patches=n_patches)
    evaluation = problem.evaluate(phi, lam)
    assert evaluation.neg_elbo == pytest.approx(_written_out(forms, centres, phi, lam.lam), rel=1e-12)
    numeric = central_difference(lambda x: _written_out(forms, centres, phi, x), lam.lam)
    np.testing.assert_allclose(evaluation.gradient.lam, numeric, rtol=1e-6)


@pytest.mark.parametrize("n_patches", [1, 4, 30])
def test_patches_sum_to_the_whole(n_patches):
    *_, problem, phi, lam = _case(n_patches=n_patches)
    parts = [problem.gradient(problem.statistics(phi, b, lam), b, lam).lam for b in range(n_patches)]
    np.testing.assert_allclose(sum(parts), problem.evaluate(phi, lam).gradient.lam, rtol=1e-10)


def test_the_hessian_of_a_term_is_that_of_its_samples():
    """A quadratic's value along any direction is half its Hessian's form, once the linear part cancels."""
    forms, centres, problem, phi, lam = _case(n=12, n_patches=3)
    rows, rng = slice(4, 8), np.random.default_rng(1)
    locals_, move = rng.normal(size=(4, 2)), rng.normal(size=3)
    values = [
        _written_out(forms[rows], centres[rows], phi[rows] + sign * locals_, lam.lam + sign * move)
        for sign in (1, -1, 0)
    ]
    direction = np.concatenate([locals_.ravel(), move])
    assert direction @ problem.term_hessian(1) @ direction == pytest.approx(values[0] + values[1] - 2 * values[2])


def test_locals_are_stationary_where_they_are_updated_and_untouched_elsewhere():
    forms, centres, problem, phi, lam = _case()
    before = phi.copy()
    assert problem.halo(phi, 1) is None
    problem.update_locals(phi, 1, None, lam)
    changed = (phi != before).any(axis=1)
    assert 0 < changed.sum() < phi.shape[0]
    numeric = central_difference(lambda x: _written_out(forms, centres, x, lam.lam), phi)
    assert np.abs(numeric[changed]).max() < 1e-6
    assert np.abs(numeric[~changed]).max() > 0.1


def test_augmented_globals_are_stationary_for_the_augmented_lagrangian():
    *_, problem, phi, lam0 = _case()
    rng = np.random.default_rng(5)
    dual, inv_step = QuadraticGlobals(rng.normal(size=3)), QuadraticGlobals(rng.uniform(0.5, 5.0, size=3))
    statistics = problem.statistics(phi, 2, lam0)
    lam = problem.augmented_globals(statistics, 2, lam0, dual, inv_step)
    slope = problem.gradient(statistics, 2, lam).lam + dual.lam + inv_step.lam * (lam.lam - lam0.lam)
    np.testing.assert_allclose(slope, 0.0, atol=1e-10)


def test_global_optimum_is_stationary_given_the_locals():
    forms, centres, problem, phi, lam = _case()
    lam = problem.global_optimum(_total(problem, phi, lam))
    numeric = central_difference(lambda x: _written_out(forms, centres, phi, x), lam.lam)
    np.testing.assert_allclose(numeric, 0.0, atol=1e-6)


def test_optimum_is_a_minimum_in_locals_and_globals_together():
    forms, centres, problem, *_ = _case()
    phi, lam = problem.optimum()
    evaluation = problem.evaluate(phi, lam)
    assert evaluation.worst < 1e-12
    assert evaluation.residual_max < 1e-7
    rng = np.random.default_rng(3)
    for _ in range(20):
        other = _written_out(forms, centres, phi + rng.normal(size=phi.shape), lam.lam + rng.normal(size=3))
        assert other > evaluation.neg_elbo > 0.0


def test_samples_that_agree_have_the_optimum_zero():
    problem = random_quadratic(n_samples=200, n_patches=7)
    phi, lam = problem.optimum()
    assert not lam.lam.any()
    assert not phi.any()
    assert problem.evaluate(phi, lam).neg_elbo == 0.0


def test_blend_is_a_straight_line():
    *_, problem, _, lam = _case()
    target = QuadraticGlobals(lam.lam + 1.0)
    np.testing.assert_allclose(problem.blend(lam, target, 0.25).lam, lam.lam + 0.25)


def test_curvature_is_a_diagonal_majoriser_that_follows_the_units():
    forms, centres, problem, phi, lam = _case()
    hessian = forms[:, 2:, 2:].sum(axis=0)
    bound = problem.evaluate(phi, lam).curvature.lam
    assert (bound >= np.diag(hessian)).all()
    assert np.linalg.eigvalsh(np.diag(bound) - hessian).min() > -1e-9
    scale = np.array([1.0, 1.0, 1.0, 10.0, 1000.0])
    scaled = Quadratic(forms * scale * scale[:, None], centres, n_local=2, n_patches=4)
    np.testing.assert_allclose(scaled.evaluate(phi, lam).curvature.lam, bound * scale[2:] ** 2)


@pytest.mark.parametrize("n_patches", [1, 30])
def test_a_visit_finds_its_share_of_the_curvature(n_patches):
    forms, centres, _, phi, lam = _case()
    alike = Quadratic(np.tile(forms[:1], (30, 1, 1)), centres, n_local=2, n_patches=n_patches).evaluate(phi, lam)
    np.testing.assert_allclose(alike.visit_curvature.lam, alike.curvature.lam / n_patches)
    alone = forms * np.where(np.arange(30) == 0, 1.0, 1e-9)[:, None, None]
    one = Quadratic(alone, centres, n_local=2, n_patches=n_patches).evaluate(phi, lam)
    np.testing.assert_allclose(one.visit_curvature.lam, one.curvature.lam, rtol=1e-6)


def test_stationarity_does_not_depend_on_units_or_on_how_often_samples_are_repeated():
    forms, centres, problem, phi, lam = _case()
    expected = problem.evaluate(phi, lam)
    scale = np.array([1.0, 1.0, 1.0, 10.0, 1000.0])
    scaled = Quadratic(forms * scale * scale[:, None], centres / scale[2:], n_local=2, n_patches=4)
    units = scaled.evaluate(phi, QuadraticGlobals(lam.lam / scale[2:]))
    twice = Quadratic(np.tile(forms, (2, 1, 1)), np.tile(centres, (2, 1)), n_local=2, n_patches=4)
    repeated = twice.evaluate(np.tile(phi, (2, 1)), lam)
    for found in (units, repeated):
        assert found.stationarity["lambda"] == pytest.approx(expected.stationarity["lambda"])
        assert found.residual_mean == pytest.approx(expected.residual_mean)
    assert 0.0 < expected.residual_mean <= expected.residual_max < 1.0


def test_the_problem_in_other_units_is_the_same_one():
    plain, other = (random_quadratic(n_samples=40, n_patches=4, spread=1.0, unit_ratio=ratio) for ratio in (1.0, 100.0))
    (phi, lam), (other_phi, other_lam) = plain.optimum(), other.optimum()
    np.testing.assert_allclose(other_lam.lam * np.geomspace(1.0, 100.0, 5), lam.lam, rtol=1e-9)
    np.testing.assert_allclose(other_phi, phi, rtol=1e-9)
    assert other.evaluate(other_phi, other_lam).neg_elbo == pytest.approx(plain.evaluate(phi, lam).neg_elbo)


def test_the_condition_number_and_the_sizes_are_what_was_asked_for():
    problem = random_quadratic(n_samples=50, n_local=2, n_global=4, condition=100.0, n_patches=3, seed=2, spread=1.0)
    forms = np.block([[problem._pp, problem._pl], [problem._pl.transpose(0, 2, 1), problem._ll]])
    np.testing.assert_allclose(np.linalg.cond(forms), 100.0)
    assert (problem.n_patches, problem.n_local, problem.n_global) == (3, 2, 4)
    assert sorted(rows.stop - rows.start for rows in problem._rows) == [16, 17, 17]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"n_patches": 51},
            "Expected `n_patches` to be between 1 and 50, found 51.",
        ),
        (
            {"n_global": 0},
            "Expected `n_local` to be between 1 and 4, found 5.",
        ),
        ({"condition": 0.5}, "Expected `condition` to be at least 1, found 0.5."),
        ({"unit_ratio": 0.0}, "Expected `unit_ratio` to be at least 1, found 0.0."),
    ],
)
def test_numbers_out_of_range_are_refused(wrong, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        random_quadratic(**{"n_samples": 50, "n_patches": 3} | wrong)


def test_profile_hessian_is_that_of_the_objective_at_the_best_locals():
    *_, problem, _, lam = _case()
    gap = problem.evaluate(problem.best_locals(lam), lam).neg_elbo - problem.evaluate(*problem.optimum()).neg_elbo
    away = lam.lam - problem.optimum()[1].lam
    assert 0.5 * away @ problem.profile_hessian() @ away == pytest.approx(gap, rel=1e-10)


def _profile_excess(problem, lam):
    """``min_phi F - F*`` and the size of its gradient: also CAVI's, whose gradient at its own locals is always 0."""
    phi = problem.best_locals(lam)
    at, best = problem.evaluate(phi, lam), problem.evaluate(*problem.optimum())
    return at.neg_elbo - best.neg_elbo, at.stationarity["lambda"]


def _run(problem, name, max_epochs, *, tolerance=1e-9, on_epoch=None, **settings):
    lam = QuadraticGlobals(np.random.default_rng(1).normal(size=problem.n_global))
    phi = problem.best_locals(lam)
    rule = StopRule(tolerance, max_epochs=max_epochs)
    solver = make_solver(name, SolverSettings(**settings))
    end = optimise(LocalEngine(problem), solver, (phi, lam), rule=rule, rng=np.random.default_rng(0), on_epoch=on_epoch)
    return lam, end


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("name", CONVERGENT)
def test_solvers_find_the_exact_optimum(name, spread):
    problem = random_quadratic(n_samples=400, n_patches=10, spread=spread)
    start, end = _run(problem, name, 300)
    assert end.stop is Stop.CONVERGED
    _, optimum = problem.optimum()
    np.testing.assert_allclose(end.lam.lam, optimum.lam, atol=1e-6)
    if name.endswith("dvi"):
        assert _profile_excess(problem, end.lam)[1] < 1e-6 * _profile_excess(problem, start)[1]


@pytest.mark.parametrize("name", SOLVERS)
def test_every_solver_of_the_registry_runs_on_a_problem_that_is_no_mixture(name):
    problem = random_quadratic(n_samples=400, n_patches=10)
    start, end = _run(problem, name, 30)
    assert np.isfinite(end.lam.lam).all()
    assert _profile_excess(problem, end.lam)[0] < _profile_excess(problem, start)[0]


@pytest.mark.parametrize("name", CONVERGENT)
def test_the_rate_is_linear(name):
    """log(F - F*) falls by the same amount over the first and the second half of the epochs, and clearly falls."""
    problem = random_quadratic(n_samples=400, n_patches=10)
    excess = []
    phi, lam = problem.optimum()
    best = problem.evaluate(phi, lam).neg_elbo
    _run(problem, name, 16, on_epoch=lambda row: excess.append(np.log(row.evaluation.neg_elbo - best)))
    slopes = -np.diff(excess[4:])
    first, second = np.array_split(slopes, 2)
    assert (slopes > 0).all()
    assert first.mean() > 0.3
    assert 0.5 < second.mean() / first.mean() < 2.0


def test_only_steps_that_follow_the_units_keep_their_pace():
    problem = random_quadratic(n_samples=400, n_patches=10, spread=1.0, unit_ratio=10.0)
    epochs = {}
    for name in ("p2dvi", "pdvi"):
        _, end = _run(problem, name, 3000, tolerance=1e-6)
        assert end.stop is Stop.CONVERGED
        epochs[name] = len(end.trace) - 1
    assert epochs["pdvi"] > 5 * epochs["p2dvi"]
