"""The objective and the closed forms of the mixture, against formulas in plain NumPy and against finite differences."""

import numpy as np
import pytest
from conftest import make_toy
from reference import best_phi, central_difference, neg_elbo

from spatialpdvi.graph.patches import Patch
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import (
    Hyperparameters,
    PottsGlobals,
    PottsMixture,
    Statistics,
    nearest_domain,
)


def _random_point(toy, seed=1):
    rng = np.random.default_rng(seed)
    lam = PottsGlobals(toy.lam.m + rng.normal(size=toy.lam.m.shape), toy.lam.rho + rng.normal(size=toy.lam.m.shape))
    return rng.dirichlet(np.ones(toy.phi.shape[1]), size=toy.phi.shape[0]), lam


def _total(problem, phi, lam):
    parts = [problem.statistics(phi, b, lam) for b in range(problem.n_patches)]
    return Statistics(*(sum(part) for part in zip(*parts, strict=True)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("n_patches", [1, 5])
def test_patches_and_halos_sum_to_the_objective_of_the_whole(n_patches, sparse):
    toy = make_toy(side=8, n_patches=n_patches, sparse=sparse)
    phi, lam = _random_point(toy)
    expected = neg_elbo(phi, *lam, *toy.reference_arguments())
    assert toy.problem.evaluate(phi, lam).neg_elbo == pytest.approx(expected, rel=1e-12)


def test_dropping_cross_patch_edges_drops_exactly_them():
    kept, dropped = make_toy(side=8), make_toy(side=8, cross=False)
    phi, lam = _random_point(kept)
    patch_of = np.concatenate([np.full(p.stop - p.start, b) for b, p in kept.problem.patches.items()])
    r = np.where(patch_of[:, None] == patch_of, kept.r, 0.0)
    assert kept.patching.n_dropped == 0
    assert dropped.patching.n_dropped == (np.count_nonzero(kept.r) - np.count_nonzero(r)) // 2 > 0
    expected = neg_elbo(phi, *lam, kept.x, r, *kept.hyper)
    # colours differ where edges do, so rows are matched through the user's order
    back = np.empty_like(kept.patching.order)
    back[kept.patching.order] = np.arange(back.size)
    same = phi[back[dropped.patching.order]]
    assert dropped.problem.evaluate(same, lam).neg_elbo == pytest.approx(expected, rel=1e-12)


def test_two_spots_two_domains_by_hand():
    """x = (1, -1), m = (1, -1), rho = 0, all sd 1, xi = 0, r = 2, phi = (3/4, 1/4), (1/2, 1/2)."""
    patch = Patch(
        0,
        2,
        1.0,
        np.array([0, 1, 2]),
        np.array([1, 0], np.int32),
        np.array([2.0, 2.0]),
        np.array([], int),
        np.array([0, 1, 2]),
    )
    one = np.ones(1)
    problem = PottsMixture(wrap_features(np.array([[1.0], [-1.0]])), (patch,), Hyperparameters(one, one, 0 * one))
    phi = np.array([[0.75, 0.25], [0.5, 0.5]])
    lam = PottsGlobals(np.array([[1.0], [-1.0]]), np.zeros((2, 1)))
    entropy = 0.75 * np.log(0.75) + 0.25 * np.log(0.25) + np.log(0.5)
    fit = 0.75 * 0.0 + 0.25 * 2.0 + 0.5 * 2.0 + 0.5 * 0.0  # 1/2 (m^2 + 1 - 2 x m) is 0 or 2
    prior = 0.5 * (2 + 2)
    potts = -2.0 * (0.75 * 0.5 + 0.25 * 0.5)
    assert problem.evaluate(phi, lam).neg_elbo == pytest.approx(entropy + fit + prior + potts, abs=1e-14)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradient_is_that_of_the_written_out_objective(sparse):
    toy = make_toy(side=5, n_patches=3, sparse=sparse)
    phi, lam = _random_point(toy)
    gradient = toy.problem.evaluate(phi, lam).gradient
    numeric_m = central_difference(lambda m: neg_elbo(phi, m, lam.rho, *toy.reference_arguments()), lam.m)
    numeric_rho = central_difference(lambda rho: neg_elbo(phi, lam.m, rho, *toy.reference_arguments()), lam.rho)
    np.testing.assert_allclose(gradient.m, numeric_m, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(gradient.rho, numeric_rho, rtol=1e-6, atol=1e-6)


def test_patch_gradients_sum_to_the_whole(toy):
    phi, lam = _random_point(toy)
    problem = toy.problem
    parts = [problem.gradient(problem.statistics(phi, b, lam), b, lam) for b in range(problem.n_patches)]
    for total, block in zip(map(sum, zip(*parts, strict=True)), problem.evaluate(phi, lam).gradient, strict=True):
        np.testing.assert_allclose(total, block, rtol=1e-10, atol=1e-10)


def test_shares_are_of_spots_and_sum_to_one():
    """A share of 1/n instead of n_b/n moves the fixed point while every label stays."""
    shares = [p.share for p in make_toy(side=7, n_patches=5).problem.patches.values()]
    sizes = [p.stop - p.start for p in make_toy(side=7, n_patches=5).problem.patches.values()]
    np.testing.assert_allclose(shares, np.array(sizes) / 49)


def test_global_optimum_is_stationary_and_minimal():
    toy = make_toy(side=6, n_patches=3)
    phi, lam = _random_point(toy)
    lam = toy.problem.global_optimum(_total(toy.problem, phi, lam))

    def objective(m, rho):
        return neg_elbo(phi, m, rho, *toy.reference_arguments())

    assert np.abs(central_difference(lambda m: objective(m, lam.rho), lam.m)).max() < 1e-6
    assert np.abs(central_difference(lambda rho: objective(lam.m, rho), lam.rho)).max() < 1e-6
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert objective(lam.m + 0.1 * rng.normal(size=lam.m.shape), lam.rho) > objective(*lam)
        assert objective(lam.m, lam.rho + 0.1 * rng.normal(size=lam.m.shape)) > objective(*lam)


def test_curvatures_are_bounds_and_a_visit_meets_the_share_of_its_patch():
    """In rho it is 1/2 at the optimum and below, and grows above; a visit meets sum_b L_b^2 / (sum_b L_b)^2 of it."""
    toy = make_toy(side=6, n_patches=3)
    phi, lam = _random_point(toy)
    counts = np.stack([toy.problem.statistics(phi, b, lam).counts for b in range(3)])[:, :, None]
    share = np.array([p.share for p in toy.problem.patches.values()])[:, None, None]
    own = counts / toy.hyper.noise_sd**2 + share / toy.hyper.prior_sd**2
    for away in (-3.0, 0.0, 2.0):
        found = toy.problem.evaluate(phi, lam._replace(rho=away - np.log(own.sum(axis=0))))
        np.testing.assert_allclose(found.curvature.m, own.sum(axis=0))
        np.testing.assert_allclose(found.curvature.rho, 0.5 * np.exp(max(0.0, away)))
        for whole, visit in zip(found.curvature, found.visit_curvature, strict=True):
            np.testing.assert_allclose(visit, whole * (own**2).sum(axis=0) / own.sum(axis=0) ** 2)


def test_a_posterior_that_is_no_number_shows_in_the_residuals():
    toy = make_toy(side=6, n_patches=3)
    toy.phi[0, 0] = np.nan
    found = toy.problem.evaluate(toy.phi, toy.lam)
    assert np.isnan([found.neg_elbo, found.residual_mean, found.residual_max]).all()


def test_one_sweep_is_a_gauss_seidel_pass_of_exact_minimisers():
    """Spot by spot in the order of rows, each takes its own optimum given all others as they are then."""
    toy = make_toy(side=6, n_patches=3, strength=1.5, start="soft")
    phi, lam = _random_point(toy)
    expected = phi.copy()
    for i in range(phi.shape[0]):
        expected[i] = best_phi(expected, i, *lam, toy.x, toy.r, toy.hyper.noise_sd)
    for b in range(toy.problem.n_patches):
        toy.problem.update_locals(phi, b, toy.problem.halo(phi, b), lam)
    np.testing.assert_allclose(phi, expected, rtol=1e-10, atol=1e-14)


def test_the_posterior_update_is_stationary_on_the_simplex():
    """At a spot's optimum F does not change to first order along any direction that keeps the sum."""
    toy = make_toy(side=4, n_patches=2, strength=1.0, signal=0.2)
    phi, lam, i = np.full_like(toy.phi, 1 / 3), toy.lam, 5
    phi[i] = best_phi(phi, i, *lam, toy.x, toy.r, toy.hyper.noise_sd)
    assert phi[i].min() > 0.05
    for k, other in ((0, 1), (1, 2), (2, 0)):
        values = []
        for amount in (1e-5, -1e-5):
            moved = phi.copy()
            moved[i, k] += amount
            moved[i, other] -= amount
            values.append(neg_elbo(moved, *lam, *toy.reference_arguments()))
        assert abs(values[0] - values[1]) / 2e-5 < 1e-7


def test_augmented_globals_minimise_the_augmented_lagrangian():
    """Gradient of f_b + dual.lambda + |lambda - lambda_0|^2 / 2 eta vanishes at the patch's copy."""
    toy = make_toy(side=6, n_patches=4)
    phi, lam0 = _random_point(toy)
    rng = np.random.default_rng(3)
    for b in range(4):
        dual = PottsGlobals(rng.normal(size=lam0.m.shape) * 5, rng.normal(size=lam0.m.shape))
        inv_step = PottsGlobals(rng.uniform(0.1, 9, lam0.m.shape), rng.uniform(0.01, 2, lam0.m.shape))
        statistics = toy.problem.statistics(phi, b, lam0)
        lam = toy.problem.augmented_globals(statistics, b, lam0, dual, inv_step)
        gradient = toy.problem.gradient(statistics, b, lam)
        for block in range(2):
            whole = gradient[block] + dual[block] + (lam[block] - lam0[block]) * inv_step[block]
            assert np.abs(whole).max() < 1e-9


@pytest.mark.parametrize("pull", [-1e6, -1.0, 0.0, 0.5, 1e3, 1e8])
def test_the_root_in_rho_is_found_from_extreme_duals(pull):
    toy = make_toy(side=6, n_patches=2)
    zero = np.zeros_like(toy.lam.m)
    inv_step = PottsGlobals(zero + 1, zero + 1e-3)
    statistics = toy.problem.statistics(toy.phi, 0, toy.lam)
    lam = toy.problem.augmented_globals(statistics, 0, toy.lam, PottsGlobals(zero, zero - pull), inv_step)
    gradient = toy.problem.gradient(statistics, 0, lam).rho - pull + (lam.rho - toy.lam.rho) * inv_step.rho
    assert np.isfinite(lam.rho).all()
    assert np.abs(gradient).max() <= 1e-9 * max(1.0, abs(pull))


@pytest.mark.parametrize("rho0", [-800.0, -300.0, 0.0, 30.0, 300.0, 800.0, 1e6])
def test_the_root_in_rho_is_found_from_any_distance(rho0):
    """Newton's method alone would need a step for each unit of rho, and e^800 overflows."""
    toy = make_toy(side=6, n_patches=2)
    zero = np.zeros_like(toy.lam.m)
    far = PottsGlobals(toy.lam.m, zero + rho0)
    statistics = toy.problem.statistics(toy.phi, 0, toy.lam)
    for step in (1e-3, 1.0, 1e3):
        inv_step = PottsGlobals(zero + 1, zero + step)
        lam = toy.problem.augmented_globals(statistics, 0, far, PottsGlobals(zero, zero), inv_step)
        gradient = toy.problem.gradient(statistics, 0, lam).rho + (lam.rho - rho0) * step
        scale = max(1.0, step * abs(rho0))
        assert np.abs(gradient).max() <= 1e-12 * scale


def test_the_distance_to_the_nearest_domain_is_in_noise_sd():
    hyper = Hyperparameters(np.array([1.0, 10.0]), np.ones(2), np.zeros(2))
    lam = PottsGlobals(np.array([[0.0, 0.0], [10.0, 0.0]]), np.zeros((2, 2)))
    spots = np.array([[0.0, 0.0], [3.0, 40.0], [6.0, 0.0], [10.0, -20.0]])
    np.testing.assert_allclose(nearest_domain(spots, lam, hyper), [0.0, 5.0, 4.0, 2.0])


def test_residual_and_stationarity_are_zero_exactly_at_a_fixed_point():
    toy = make_toy(side=8, strength=0.3)
    phi, lam = toy.phi, toy.lam
    assert toy.problem.evaluate(phi, lam).residual_mean > 1e-3
    for _ in range(500):
        for b in range(toy.problem.n_patches):
            toy.problem.update_locals(phi, b, toy.problem.halo(phi, b), lam)
        lam = toy.problem.global_optimum(_total(toy.problem, phi, lam))
    end = toy.problem.evaluate(phi, lam)
    assert max(*end.stationarity.values(), end.residual_max) < 1e-9
    for i in (0, 17, 63):
        np.testing.assert_allclose(phi[i], best_phi(phi, i, *lam, toy.x, toy.r, toy.hyper.noise_sd), atol=1e-9)


def test_stationarity_means_the_same_for_any_number_of_spots():
    """Ten copies of a section side by side: the same distances, ten times the gradient's data part."""
    small = make_toy(side=6, n_patches=1, strength=0.0)
    n, copies = small.x.shape[0], 10
    patch = small.problem.patches[0]
    none = patch._replace(
        indptr=np.zeros(n * copies + 1, int),
        indices=patch.indices[:0],
        weights=patch.weights[:0],
        stop=n * copies,
        colour_start=np.array([0, n * copies]),
    )
    hyper = small.hyper._replace(prior_sd=small.hyper.prior_sd * 1e6)  # a prior that does not weigh
    one = PottsMixture(wrap_features(small.x), (small.problem.patches[0],), hyper)
    ten = PottsMixture(wrap_features(np.tile(small.x, (copies, 1))), (none,), hyper)
    phi, lam = _random_point(small)
    a, b = one.evaluate(phi, lam), ten.evaluate(np.tile(phi, (copies, 1)), lam)
    assert b.stationarity["mean"] == pytest.approx(a.stationarity["mean"], rel=1e-6)
    assert b.residual_mean == pytest.approx(a.residual_mean, rel=1e-12)
    assert np.linalg.norm(b.gradient.m) == pytest.approx(10 * np.linalg.norm(a.gradient.m), rel=1e-6)


def test_changes_of_the_objective_are_compared_with_the_misfit_for_any_origin_of_the_data():
    """Adding a constant to the features changes F by orders of magnitude, but not its changes or their scale."""
    toy = make_toy(side=6, n_patches=3)
    offset = 1e4
    moved = toy.hyper._replace(prior_mean=toy.hyper.prior_mean + offset)
    far = PottsMixture(wrap_features(toy.x + offset), toy.problem.patches, moved)
    phi, lam = _random_point(toy)
    there = lam._replace(m=lam.m + offset)
    a, b = toy.problem.evaluate(phi, lam), far.evaluate(phi, there)
    assert abs(b.neg_elbo) > 1e3 * abs(a.neg_elbo)
    assert a.scale == b.scale == 0.5 * toy.x.size
    misfit = 0.5 * np.sum((toy.x - toy.lam.m[toy.phi.argmax(axis=1)]) ** 2 / toy.hyper.noise_sd**2)
    assert misfit == pytest.approx(a.scale)
