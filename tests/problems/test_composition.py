"""The mixture of compositions against formulas in plain NumPy, finite differences and the mixture that it contains."""

import pickle

import numpy as np
import pytest
from conftest import make_composition_toy, make_toy
from reference import central_difference, composition_emission, composition_neg_elbo
from scipy.optimize import minimize
from scipy.special import softmax

from spatialpdvi.kernels.globals import augmented_composition
from spatialpdvi.problems.base import blockwise
from spatialpdvi.problems.composition import CompositionGlobals, CompositionMixture, CompositionStatistics
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsGlobals


def _random_point(toy, seed=1):
    rng = np.random.default_rng(seed)
    lam = blockwise(lambda block: block + rng.normal(size=block.shape), toy.lam)
    return rng.dirichlet(np.ones(toy.phi.shape[1]), size=toy.phi.shape[0]), lam


def _total(problem, phi, lam):
    parts = [problem.statistics(phi, b, lam) for b in range(problem.n_patches)]
    return blockwise(lambda *own: sum(own), *parts)


@pytest.mark.parametrize("n_patches", [1, 5])
@pytest.mark.parametrize("n_states", [3, 5, 11])
def test_the_objective_is_the_written_out_one(n_patches, n_states):
    toy = make_composition_toy(side=7, n_patches=n_patches, n_states=n_states)
    for seed in (1, 2):  # what is known of the states at one point is of no use at the next
        phi, lam = _random_point(toy, seed)
        expected = composition_neg_elbo(phi, *lam, *toy.reference_arguments())
        assert toy.problem.evaluate(phi, lam).neg_elbo == pytest.approx(expected, rel=1e-12)


def test_the_gradient_is_that_of_the_written_out_objective():
    """States are at their optimum at every point, so that F has the gradient of fixed states (envelope theorem)."""
    toy = make_composition_toy(side=5, n_patches=3)
    phi, lam = _random_point(toy)
    gradient = toy.problem.evaluate(phi, lam).gradient
    for name in lam._fields:

        def objective(block, name=name):
            return composition_neg_elbo(phi, *lam._replace(**{name: block}), *toy.reference_arguments())

        numeric = central_difference(objective, getattr(lam, name))
        np.testing.assert_allclose(getattr(gradient, name), numeric, rtol=1e-5, atol=1e-5, err_msg=name)


def test_patch_gradients_and_statistics_sum_to_the_whole():
    toy = make_composition_toy()
    phi, lam = _random_point(toy)
    problem = toy.problem
    parts = [problem.gradient(problem.statistics(phi, b, lam), b, lam) for b in range(problem.n_patches)]
    whole = problem.evaluate(phi, lam).gradient
    blockwise(lambda total, *own: np.testing.assert_allclose(sum(own), total, atol=1e-9), whole, *parts)
    total = _total(problem, phi, lam)
    np.testing.assert_allclose(total.members.sum(axis=1), phi.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(total.members.sum(axis=0), total.counts, rtol=1e-12)
    np.testing.assert_allclose(total.sums.sum(axis=0), toy.x.sum(axis=0), rtol=1e-9)


def test_one_sweep_is_a_gauss_seidel_pass_of_exact_minimisers():
    toy = make_composition_toy(side=6, n_patches=3, strength=1.5)
    phi, lam = _random_point(toy)
    emission = composition_emission(toy.x, *lam, toy.hyper.noise_sd)
    expected = phi.copy()
    for i in range(phi.shape[0]):
        logits = emission[i] + toy.r[i] @ expected
        expected[i] = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    for b in range(toy.problem.n_patches):
        toy.problem.update_locals(phi, b, toy.problem.halo(phi, b), lam)
    np.testing.assert_allclose(phi, expected, rtol=1e-10, atol=1e-14)


def test_with_held_states_a_visit_goes_on_until_its_patch_is_at_rest():
    toy = make_composition_toy(side=12, n_patches=2, strength=1.5, n_states=5)
    held = PottsGlobals(toy.lam.m, toy.lam.rho)
    settling = CompositionMixture(
        toy.problem.features, toy.problem.patches, toy.hyper, prior_weight=toy.problem.prior_weight, held=held
    )
    phi, lam = _random_point(toy)
    lam = lam._replace(m=held.m, rho=held.rho)
    once, value = phi.copy(), settling.evaluate(phi, lam).neg_elbo
    for b in range(settling.n_patches):
        toy.problem.update_locals(once, b, toy.problem.halo(once, b), lam)
        settling.update_locals(phi, b, settling.halo(phi, b), lam)
        lower = settling.evaluate(phi, lam).neg_elbo
        assert lower < value
        value = lower
    assert value < settling.evaluate(once, lam).neg_elbo
    residual, after_one = (settling.evaluate_patch(q, 1, settling.halo(q, 1), lam).residual_sum for q in (phi, once))
    assert residual < 0.05 * after_one


def test_unit_compositions_are_the_mixture_of_domains():
    """C = K and pi = identity: the same objective, sweep, statistics, gradient and copies as the Gaussian mixture."""
    plain = make_toy(strength=0.8, signal=1.0, start="soft")
    k = plain.phi.shape[1]
    features, patches = wrap_features(plain.x), plain.problem.patches
    problem = CompositionMixture(features, patches, plain.hyper, prior_weight=np.full(k, 1e-30))
    lam = CompositionGlobals(*plain.lam, 200.0 * np.eye(k))
    ours, theirs = problem.evaluate(plain.phi, lam), plain.problem.evaluate(plain.phi, plain.lam)
    assert ours.neg_elbo == pytest.approx(theirs.neg_elbo, rel=1e-12)
    assert ours.residual_mean == pytest.approx(theirs.residual_mean, rel=1e-10)
    np.testing.assert_allclose(ours.gradient.m, theirs.gradient.m, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(ours.visit_curvature.rho, theirs.visit_curvature.rho, rtol=1e-12)
    phi, other = plain.phi.copy(), plain.phi.copy()
    for b in range(problem.n_patches):
        problem.update_locals(phi, b, problem.halo(phi, b), lam)
        plain.problem.update_locals(other, b, plain.problem.halo(other, b), plain.lam)
        own, copy = problem.statistics(phi, b, lam), plain.problem.statistics(other, b, plain.lam)
        np.testing.assert_allclose(own.sums, copy.sums, rtol=1e-10, atol=1e-10)
        zeros, ones = blockwise(np.zeros_like, lam), blockwise(np.ones_like, lam)
        best = problem.augmented_globals(own, b, lam, zeros, ones)
        match = plain.problem.augmented_globals(
            copy, b, plain.lam, plain.lam._make(zeros[:2]), plain.lam._make(ones[:2])
        )
        np.testing.assert_allclose(best.m, match.m, rtol=1e-10)
        np.testing.assert_allclose(best.rho, match.rho, rtol=1e-10)
    np.testing.assert_allclose(phi, other, rtol=1e-9, atol=1e-14)


def test_the_global_optimum_is_stationary_and_minimal_with_fixed_states():
    toy = make_composition_toy(side=6, n_patches=3)
    phi, lam = _random_point(toy)
    statistics = _total(toy.problem, phi, lam)
    best = toy.problem.global_optimum(statistics)
    gradient = toy.problem._gradient(statistics, 1.0, best)
    for block in gradient:
        np.testing.assert_allclose(block, 0.0, atol=1e-9)
    # profiled states only lower F further
    before, after = (toy.problem.evaluate(phi, point) for point in (lam, best))
    assert after.neg_elbo < before.neg_elbo
    # a composition is as far from its optimum as the two distributions differ
    distance = 0.5 * np.abs(softmax(lam.theta, axis=1) - softmax(best.theta, axis=1)).sum(axis=1)
    assert before.stationarity["composition"] == pytest.approx(distance.max())


def test_the_curvature_of_logits_is_bounded_below_by_their_spots_and_a_thousandth_of_the_domain():
    """max(T pi, A, 1e-3 T): steps are small enough where pi is large, where it is too small, and where both are."""
    toy = make_composition_toy(side=8)
    phi, lam = _random_point(toy)
    problem = CompositionMixture(
        toy.problem.features, toy.problem.patches, toy.hyper, prior_weight=np.full(lam.m.shape[0], 1e-6)
    )
    lam.theta[:] = [[0.0, 0.0, 0.0, -12.0, -30.0], [3.0, 0.0, 0.0, -30.0, 0.0], [0.0, 3.0, -30.0, 0.0, 0.0]]
    spots = _total(problem, phi, lam).members + problem.prior_weight
    total, share = spots.sum(axis=1, keepdims=True), softmax(lam.theta, axis=1)
    bounds = np.stack([total * share, spots, np.broadcast_to(1e-3 * total, spots.shape)])
    assert set(bounds.argmax(axis=0).ravel()) == {0, 1, 2}
    np.testing.assert_allclose(problem.evaluate(phi, lam).curvature.theta, bounds.max(axis=0), rtol=1e-12)


def test_augmented_globals_minimise_the_augmented_lagrangian():
    toy = make_composition_toy(side=6)
    phi, lam0 = _random_point(toy)
    rng = np.random.default_rng(3)
    for b in range(4):
        dual = blockwise(lambda block: 5.0 * rng.normal(size=block.shape), lam0)
        inv_step = blockwise(lambda block: rng.uniform(0.1, 9.0, block.shape), lam0)
        statistics = toy.problem.statistics(phi, b, lam0)
        lam = toy.problem.augmented_globals(statistics, b, lam0, dual, inv_step)
        gradient = toy.problem.gradient(statistics, b, lam)
        for slope, mu, new, old, pull in zip(gradient, dual, lam, lam0, inv_step, strict=True):
            assert np.abs(slope + mu + (new - old) * pull).max() < 1e-9


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e7])
@pytest.mark.parametrize("far", [0.0, 30.0, 1e4])
def test_newtons_method_for_compositions_converges_from_anywhere(size, far):
    """Spots from none to ten million, logits far apart, steps from tiny to huge: a gradient of rounding size."""
    rng = np.random.default_rng(0)
    k, c = 20, 9
    weights = size * rng.dirichlet(np.full(c, 0.2), size=k) + 1e-3
    theta0, dual = far * rng.normal(size=(k, c)), size * rng.normal(size=(k, c))
    inv_step = np.exp(rng.uniform(-3.0, 3.0, (k, c))) * (1e-3 + 0.1 * size)
    theta = np.empty_like(theta0)
    augmented_composition(weights, dual, theta0, inv_step, theta)
    slope = weights.sum(axis=1, keepdims=True) * softmax(theta, axis=1) - weights + dual + (theta - theta0) * inv_step
    scale = weights.sum(axis=1).max() + np.abs(dual).max() + np.abs((theta - theta0) * inv_step).max()
    assert np.isfinite(theta).all()
    assert np.abs(slope).max() <= 1e-7 * scale


def test_newtons_method_finds_the_minimum_that_a_library_finds():
    rng = np.random.default_rng(4)
    weights, theta0, dual = rng.gamma(2.0, size=(1, 6)), rng.normal(size=(1, 6)), rng.normal(size=(1, 6))
    inv_step = rng.uniform(0.1, 2.0, size=(1, 6))

    def objective(theta):
        total = weights.sum() * np.log(np.exp(theta).sum()) - (weights[0] - dual[0]) @ theta
        return total + 0.5 * inv_step[0] @ (theta - theta0[0]) ** 2

    theta = np.empty((1, 6))
    augmented_composition(weights, dual, theta0, inv_step, theta)
    best = minimize(objective, theta0[0], tol=1e-12)
    np.testing.assert_allclose(theta[0], best.x, atol=1e-5)
    assert objective(theta[0]) <= best.fun + 1e-12


def test_held_blocks_do_not_set_the_step_of_pdvi():
    """It takes the largest curvature of all blocks, and that of the states' means is larger than any other."""
    learnt, held = (make_composition_toy(held=held) for held in (False, True))
    curvature, of_held = (toy.problem.evaluate(toy.phi, toy.lam).visit_curvature for toy in (learnt, held))
    np.testing.assert_array_equal(curvature.theta, of_held.theta)
    assert max(of_held.m.max(), of_held.rho.max()) <= of_held.theta.max() < curvature.m.max()


@pytest.mark.parametrize("held", [False, True])
def test_stochastic_natural_gradient_steps_are_without_bias(held):
    """The mean over patches of A, e^-rho and m e^-rho after a step by one patch is that of the step with all spots."""
    toy = make_composition_toy(held=held)
    problem, phi = toy.problem, toy.phi
    sums = [problem.statistics(phi, b, toy.lam) for b in range(problem.n_patches)]

    def step(statistics):
        lam = problem.blend(toy.lam, problem.global_optimum(statistics), 0.3)
        return np.exp(lam.theta), np.exp(-lam.rho), lam.m * np.exp(-lam.rho)

    single = [step(CompositionStatistics(*(problem.n_patches * part for part in patch))) for patch in sums]
    whole = step(_total(problem, phi, toy.lam))
    for blocks, expected in zip(zip(*single, strict=True), whole, strict=True):
        np.testing.assert_allclose(np.mean(blocks, axis=0), expected, rtol=1e-12)
    assert not np.allclose(single[0][0], whole[0], rtol=0.1)


def test_a_step_averages_the_spots_of_each_domain_in_each_state():
    toy = make_composition_toy()
    phi, lam = _random_point(toy)
    target = toy.problem.global_optimum(_total(toy.problem, phi, lam))
    expected = 0.7 * np.exp(lam.theta) + 0.3 * np.exp(target.theta)
    np.testing.assert_allclose(np.exp(toy.problem.blend(lam, target, 0.3).theta), expected, rtol=1e-12)


def test_held_states_stay_and_have_no_gradient():
    toy = make_composition_toy(held=True)
    phi, lam = toy.phi, toy.lam
    statistics = _total(toy.problem, phi, lam)
    dual, ones = blockwise(np.zeros_like, lam), blockwise(np.ones_like, lam)
    best = toy.problem.global_optimum(statistics)
    moved = (best, toy.problem.blend(lam, best, 0.5), toy.problem.augmented_globals(statistics, 0, lam, dual, ones))
    for new in moved:
        np.testing.assert_array_equal(new.m, lam.m)
        np.testing.assert_array_equal(new.rho, lam.rho)
        assert not np.allclose(new.theta, lam.theta)
    evaluation = toy.problem.evaluate(phi, lam)
    assert not evaluation.gradient.m.any()
    assert evaluation.stationarity["mean"] == evaluation.stationarity["log_variance"] == 0.0
    assert evaluation.stationarity["composition"] > 0.0


@pytest.mark.parametrize("held", [False, True])
def test_a_patch_alone_and_a_pickled_problem_compute_the_same(held):
    toy = make_composition_toy(held=held)
    copy = pickle.loads(pickle.dumps(toy.problem))
    phi, lam = _random_point(toy)
    assert copy.evaluate(phi, lam).neg_elbo == toy.problem.evaluate(phi, lam).neg_elbo
    for b, p in toy.problem.patches.items():
        alone = pickle.loads(pickle.dumps(toy.problem.only(b)))
        own, halo = phi[p.start : p.stop].copy(), toy.problem.halo(phi, b)
        ours, theirs = alone.evaluate_patch(own, b, halo, lam), toy.problem.evaluate_patch(phi, b, halo, lam)
        assert ours.neg_elbo == theirs.neg_elbo
        blockwise(np.testing.assert_array_equal, ours.statistics, theirs.statistics)


def test_spots_far_from_every_state_stay_finite():
    """At 1e4 noise sd every state's likelihood underflows; relative to the best state it does not."""
    toy = make_composition_toy(side=5, n_patches=2)
    x = toy.x.copy()
    x[0] *= 1e4
    problem = CompositionMixture(wrap_features(x), toy.problem.patches, toy.hyper, prior_weight=toy.prior_weight)
    evaluation = problem.evaluate(toy.phi, toy.lam)
    expected = composition_neg_elbo(toy.phi, *toy.lam, x, toy.r, *toy.hyper, toy.prior_weight)
    assert evaluation.neg_elbo == pytest.approx(expected, rel=1e-12)


def test_tiny_posteriors_of_states_are_no_error():
    toy = make_composition_toy()
    phi, lam = _random_point(toy)
    far = lam._replace(m=np.where(np.arange(lam.m.shape[0])[:, None] > 0, lam.m + 12.0, lam.m))
    expected = toy.problem.state_posterior(phi, far)
    assert (expected == 0).any()
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(toy.problem.state_posterior(phi, far), expected)
