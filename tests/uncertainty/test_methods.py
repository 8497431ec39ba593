"""Methods of intervals against answers that are known: closed forms, finite differences, draws."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from scipy.stats import norm
from scipy.stats import t as student

from spatialpdvi.errors import InputWarning
from spatialpdvi.runtime.progress import Stage
from spatialpdvi.uncertainty import linear_response, methods
from spatialpdvi.uncertainty.blocks import BlockSums, _variance, block_sums, choose_blocks, spatial_blocks
from spatialpdvi.uncertainty.linear_response import Coupling, response_covariance
from spatialpdvi.uncertainty.methods import METHODS, Estimate, Evidence, _bias, _freedom, _mixing, estimate
from spatialpdvi.uncertainty.profile import Profile
from spatialpdvi.uncertainty.tables import contrast_bounds, expression_table, mean_bounds, share_bounds


def _lattice(side):
    return np.indices((side, side)).reshape(2, -1).T.astype(float)


def _evidence(*, side=20, k=3, g=4, seed=0, known=False, sharp=2.0, **changed):
    """A lattice in k stripes of overdispersed counts, with posteriors that are not quite sure."""
    rng = np.random.default_rng(seed)
    place = _lattice(side)
    codes = np.minimum((place[:, 0] * k / side).astype(np.int64), k - 1)
    exposure = rng.gamma(20.0, 50.0, size=len(codes)).round()
    rate = rng.gamma(2.0, 0.005, size=(k, g))[codes] * rng.gamma(4.0, 0.25, size=(len(codes), g))
    posterior = np.eye(k)[codes] if known else softmax(sharp * np.eye(k)[codes] + rng.normal(size=(len(codes), k)), 1)
    found = Evidence(
        values=rng.poisson(rate * exposure[:, None]).astype(float),
        exposure=exposure,
        codes=codes,
        posterior=posterior,
        calibrated=posterior,
        coordinates=place,
        sections=[np.arange(len(codes))],
    )
    return found._replace(**changed)


def _neighbours(side, weight):
    place = _lattice(side)
    near = np.abs(place[:, None] - place[None]).sum(axis=2) == 1
    return sp.csr_matrix(weight * near)


def test_blocks_are_compact_and_of_the_size_and_stay_in_their_section():
    place = np.concatenate([_lattice(20), _lattice(13)])
    sections = [np.arange(400), np.arange(400, 569)]
    blocks = spatial_blocks(place, sections, 12)
    sizes = np.bincount(blocks)
    assert sizes.min() >= 9
    assert sizes.max() <= 18
    assert not set(blocks[:400]) & set(blocks[400:])
    widest = max(np.ptp(place[blocks == block], axis=0).max() for block in range(sizes.size))
    assert widest <= 6
    np.testing.assert_array_equal(blocks, spatial_blocks(place, sections, 12))


def test_sums_of_blocks_are_those_of_their_spots():
    evidence = _evidence()
    blocks = spatial_blocks(evidence.coordinates, evidence.sections, 12)
    sums = block_sums(evidence.values, evidence.exposure, evidence.codes, 3, blocks)
    chosen = (blocks == 5) & (evidence.codes == evidence.codes[blocks == 5][0])
    np.testing.assert_allclose(sums.values[5, evidence.codes[chosen][0]], evidence.values[chosen].sum(axis=0))
    np.testing.assert_allclose(sums.totals()[1], np.bincount(evidence.codes, weights=evidence.exposure))
    assert (sums.effective() <= np.unique(blocks).size).all()


@pytest.mark.parametrize(("reach", "larger"), [(0.0, False), (6.0, True)])
def test_blocks_grow_until_they_reach_as_far_as_the_correlation(reach, larger):
    side = 40
    rng, place = np.random.default_rng(0), _lattice(side)
    field = rng.normal(size=(len(place), 30))
    if reach:
        distance = np.linalg.norm(place[:, None] - place[None], axis=2)
        field = np.linalg.cholesky(np.exp(-distance / reach) + 1e-6 * np.eye(len(place))) @ field
    values = 5.0 + 0.2 * field
    codes = np.zeros(len(place), dtype=np.int64)
    _, size = choose_blocks(values, np.ones(len(place)), codes, 1, coordinates=place, sections=[np.arange(len(place))])
    assert (size > 12) == larger


@pytest.mark.parametrize(("side", "larger"), [(10, False), (40, True)])
def test_blocks_do_not_grow_where_fewer_than_ten_would_be_left(side, larger):
    """Values rise across the whole section, so that blocks of any size are correlated."""
    place = _lattice(side)
    codes = np.zeros(len(place), dtype=np.int64)
    sections = [np.arange(len(place))]
    blocks, size = choose_blocks(place, np.ones(len(place)), codes, 1, coordinates=place, sections=sections)
    assert (size > 12) == larger
    np.testing.assert_array_equal(blocks, spatial_blocks(place, sections, size))


@pytest.mark.parametrize("values", [_lattice(40), 5.0 + np.random.default_rng(0).normal(size=(1600, 2))])
def test_empty_domains_and_quantities_that_do_not_vary_have_no_say_in_the_size_of_blocks(values):
    rest = {"coordinates": _lattice(40), "sections": [np.arange(1600)]}
    codes, ones = np.zeros(1600, dtype=np.int64), np.ones(1600)
    expected, size = choose_blocks(values, ones, codes, 1, **rest)
    found, same = choose_blocks(np.column_stack([values, np.zeros((1600, 5))]), ones, codes, 4, **rest)
    assert same == size
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n_blocks", [2, 3, 4])
def test_the_variance_of_equal_blocks_is_that_of_the_mean_of_their_means(n_blocks):
    means = np.random.default_rng(0).normal(size=(n_blocks, 1, 3))
    exposure = np.full((n_blocks, 1), 5.0)
    sums = BlockSums(5.0 * means, exposure)
    expected = means.var(axis=0, ddof=1) / n_blocks
    np.testing.assert_allclose(_variance(sums) / exposure.sum() ** 2, expected)


@pytest.fixture
def choose(monkeypatch):
    """Let blocks be given, and not chosen."""

    def set_blocks(blocks):
        size = round(blocks.size / (blocks.max() + 1))
        monkeypatch.setattr("spatialpdvi.uncertainty.methods.choose_blocks", lambda *_, **__: (blocks, size))

    return set_blocks


def test_the_variance_of_blocks_is_that_of_their_weighted_replicates(choose):
    evidence = _evidence(side=40, known=True)
    blocks = spatial_blocks(evidence.coordinates, evidence.sections, 12)
    choose(blocks)
    evidence = evidence._replace(values=evidence.values + 5.0)
    found = estimate(evidence, "blocks")
    rng = np.random.default_rng(0)
    sums = block_sums(evidence.values, evidence.exposure, evidence.codes, 3, blocks)
    weight = rng.exponential(size=(4000, sums.exposure.shape[0]))
    replicates = np.log(
        np.einsum("rb,bkg->rkg", weight, sums.values) / np.einsum("rb,bk->rk", weight, sums.exposure)[:, :, None]
    )
    factor = sums.effective() / (sums.effective() - 1)
    np.testing.assert_allclose(
        np.einsum("kkg->kg", found.covariance), factor[:, None] * replicates.var(axis=0), rtol=0.12
    )
    np.testing.assert_allclose(found.freedom, sums.effective() - 1)
    assert found.block_size == round(1600 / sums.exposure.shape[0])


def test_a_bootstrap_of_known_domains_has_the_same_variance():
    evidence = _evidence(side=40, known=True)
    evidence = evidence._replace(values=evidence.values + 5.0)
    closed, drawn = (np.einsum("kkg->kg", estimate(evidence, name).covariance) for name in ("blocks", "bootstrap"))
    np.testing.assert_allclose(drawn, closed, rtol=0.35)


def test_spots_of_a_block_change_their_domain_together_as_their_calibrated_posteriors_allow(choose):
    """A block's exponential weight times its chance of a half varies by 3/4, thrice the square of its mean."""
    rng, blocks, codes = np.random.default_rng(0), np.arange(800) // 4, np.arange(800) % 2
    counts = 1e6 * rng.normal(1.0, 0.1, size=200)
    evidence = Evidence(
        values=counts[blocks][:, None],
        exposure=np.full(800, 1e7),
        codes=codes,
        posterior=np.eye(2)[codes],
        calibrated=np.full((800, 2), 0.5),
        coordinates=np.zeros((800, 2)),
        sections=[np.arange(800)],
    )
    choose(blocks)
    found = estimate(evidence, "bootstrap").covariance
    np.testing.assert_allclose(found[[0, 1], [0, 1], 0], 3.0 * np.log(counts).var() / 200, rtol=0.2)


def test_domains_that_are_not_known_widen_every_interval_but_that_of_mean_field():
    sure, unsure = _evidence(sharp=20.0), _evidence(sharp=2.0)
    for name in ("blocks", "bootstrap"):
        widths = [np.einsum("kkg->kg", estimate(evidence, name).covariance).mean() for evidence in (sure, unsure)]
        assert widths[1] > widths[0]


def test_mean_field_of_known_domains_is_the_variance_of_a_mean():
    evidence = _evidence(known=True)._replace(exposure=np.ones(400), are_shares=True)
    found = estimate(evidence, "mean-field")
    values = evidence.values
    means = np.array([values[evidence.codes == k].mean(axis=0) for k in range(3)])
    noise = ((values - means[evidence.codes]) ** 2).sum(axis=0) / (400 - 3)
    np.testing.assert_allclose(found.mean, means)
    np.testing.assert_allclose(
        np.einsum("kkg->kg", found.covariance), noise / np.bincount(evidence.codes)[:, None], rtol=1e-10
    )
    assert np.abs(found.covariance[0, 1]).max() == 0.0


def test_linear_response_of_known_domains_is_mean_field_and_else_it_is_wider():
    graph = _neighbours(20, 0.2)
    known = _evidence(known=True, graph=graph)
    np.testing.assert_allclose(estimate(known, "linear-response").covariance, estimate(known, "mean-field").covariance)
    unsure = _evidence(graph=graph)
    wide, narrow = (
        np.einsum("kkg->kg", estimate(unsure, name).covariance) for name in ("linear-response", "mean-field")
    )
    assert (wide > narrow).all()


@pytest.mark.parametrize("coupled", [False, True])
def test_linear_response_is_the_derivative_of_the_fixed_point(coupled):
    """The posteriors of a small mixture are solved anew with perturbed log posteriors, and differences are taken."""
    rng = np.random.default_rng(3)
    n, k, d = 25, 2, 2
    codes = rng.integers(k, size=n)
    x = rng.normal(size=(n, d)) + 2.5 * codes[:, None]
    graph, noise, prior = _neighbours(5, 0.15), np.full(d, 1.0), np.full(d, 1.0 / 9.0)
    slope = rng.normal(size=(n, k, 3))

    def solve(perturbation):
        phi, m = np.eye(k)[codes] * 0.8 + 0.1, None
        first = None
        for _ in range(4000):
            precision = phi.sum(axis=0)[:, None] * noise + prior
            m = (phi.T @ x) * noise / precision if coupled or first is None else first
            rho = -np.log(precision)
            first = m if first is None else first
            # rho is held at the fixed point's own value below, and has no response here
            offset = 0.5 * ((m**2) * noise).sum(axis=1)
            old, phi = phi, softmax((x * noise) @ m.T - offset + graph @ phi + perturbation, axis=1)
            if np.abs(phi - old).max() < 1e-14:
                break
        return phi, m, rho

    phi, m, rho = solve(np.zeros((n, k)))
    coupling = Coupling(x, m, rho, noise) if coupled else None
    found = response_covariance(phi, graph, slope, coupling)
    step = 1e-5
    for g in range(3):
        for domain in range(k):
            push = np.zeros((n, k))
            push[:, domain] = slope[:, domain, g]
            change = (solve(step * push)[0] - solve(-step * push)[0]) / (2 * step)
            expected = (slope[:, :, g] * change).sum(axis=0)
            np.testing.assert_allclose(found[:, domain, g], expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 0.5), (1.0, 1.0), (10.0, 0.0)])
def test_posteriors_stay_where_they_are_in_a_direction_in_which_they_are_no_minimum(weight, expected):
    """Two spots, half in each of two domains, move together: each pulls at the other with half the weight."""
    graph = sp.csr_matrix(weight * (1.0 - np.eye(2)))
    found = response_covariance(np.full((2, 2), 0.5), graph, np.ones((2, 2, 1)), None)
    np.testing.assert_allclose(found[:, :, 0], expected * np.array([[1.0, -1.0], [-1.0, 1.0]]))


def test_a_response_that_is_not_found_is_told(monkeypatch):
    phi, graph = _evidence(side=6).posterior, _neighbours(6, 0.1)
    slope = np.random.default_rng(0).normal(size=(36, 3, 5))
    monkeypatch.setattr(linear_response, "_MOST_STEPS", 2)
    with pytest.warns(
        InputWarning, match=r"^The response of the posteriors was not found within 2 steps, .* Try `method"
    ):
        response_covariance(phi, graph, slope, None)


def test_linear_response_does_not_depend_on_how_many_genes_are_solved_at_a_time(monkeypatch):
    phi, graph = _evidence(side=6).posterior, _neighbours(6, 0.1)
    slope = np.random.default_rng(0).normal(size=(36, 3, 5))
    single = np.concatenate([response_covariance(phi, graph, slope[:, :, [g]], None) for g in range(5)], axis=2)
    monkeypatch.setattr(linear_response, "_AT_A_TIME", 36 * 9 * 2)
    np.testing.assert_allclose(response_covariance(phi, graph, slope, None), single, rtol=1e-10)


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"linear-response", "implicit"}))
def test_an_empty_domain_has_no_interval_and_others_keep_theirs(method):
    evidence = _evidence()
    wider = evidence._replace(
        posterior=np.column_stack([evidence.posterior, np.zeros(400)]),
        calibrated=np.column_stack([evidence.calibrated, np.zeros(400)]),
    )
    found = estimate(wider, method)
    assert np.isnan(found.mean[3]).all()
    assert np.isnan(found.covariance[3]).all()
    assert np.isfinite(found.covariance[:3, :3]).all()
    _, low, high = contrast_bounds(found, [(0, 3), (0, 1)], 0.9)
    assert np.isnan(low[0]).all()
    assert (low[1] < high[1]).all()


def test_a_domain_in_one_block_has_a_mean_and_no_interval(choose):
    evidence = _evidence()
    corner = evidence.codes.copy()
    corner[(evidence.coordinates < 2).all(axis=1)] = 2
    corner[(evidence.codes == 2)] = 1
    choose(spatial_blocks(evidence.coordinates, evidence.sections, 12))
    found = estimate(evidence._replace(codes=corner), "blocks")
    assert np.isfinite(found.mean[2]).all()
    assert np.isnan(mean_bounds(found, 0.9)[1][2]).all()


def test_a_domain_in_one_block_leaves_the_others_their_intervals(choose):
    evidence = _evidence()
    choose(blocks := spatial_blocks(evidence.coordinates, evidence.sections, 12))
    alone = blocks == 0
    posterior = np.where(alone[:, None], np.eye(4)[3], np.column_stack([evidence.calibrated, np.zeros(400)]))
    fourth = evidence._replace(codes=np.where(alone, 3, evidence.codes), posterior=posterior, calibrated=posterior)
    found = estimate(fourth, "blocks")
    values, exposure = np.where(alone[:, None], 0.0, evidence.values), np.where(alone, 0.0, evidence.exposure)
    expected = estimate(evidence._replace(values=values, exposure=exposure), "blocks")
    for method in ("blocks", "bootstrap"):
        alone = estimate(fourth, method).covariance
        assert np.isnan(alone[3]).all()
        assert np.isnan(alone[:, 3]).all()
    np.testing.assert_allclose(found.mean[:3], expected.mean)
    np.testing.assert_allclose(found.covariance[:3, :3], expected.covariance)


@pytest.mark.parametrize("are_shares", [False, True])
def test_an_empty_domain_that_spots_may_belong_to_leaves_the_others_their_intervals(are_shares):
    """A half of the calibrated posteriors of one domain, and a fifth of another's, are for a domain without spots."""
    evidence = _evidence()
    if are_shares:
        evidence = evidence._replace(values=np.eye(4)[np.arange(400) % 4], exposure=np.ones(400), are_shares=True)
    lost = np.array([0.5, 0.2, 0.0])[evidence.codes][:, None]
    wider = evidence._replace(
        posterior=np.column_stack([evidence.posterior, np.zeros(400)]),
        calibrated=np.column_stack([(1.0 - lost) * evidence.calibrated, lost]),
    )
    found, expected = estimate(wider, "blocks"), estimate(evidence, "blocks")
    np.testing.assert_allclose(found.covariance[:3, :3], expected.covariance)
    if are_shares:
        np.testing.assert_allclose(found.purity[:3], expected.purity)


def test_one_domain_has_an_interval_and_no_contrasts():
    evidence = _evidence(k=1)
    found = estimate(evidence, "blocks")
    _, low, high = mean_bounds(found, 0.9)
    assert (low < high).all()
    assert contrast_bounds(found, [], 0.9)[0].shape == (0, 4)


def test_a_gene_without_counts_has_an_upper_bound_of_a_few_molecules():
    evidence = _evidence(known=True)
    evidence.values[:, 0] = 0.0
    found = estimate(evidence, "blocks")
    _, low, high = mean_bounds(found, 0.9)
    total = np.bincount(evidence.codes, weights=evidence.exposure)
    molecules = np.exp(high[:, 0]) * total
    assert (molecules > 2.0).all()
    assert (molecules < 10.0).all()
    assert np.isfinite(low).all()


def test_bounds_enclose_the_mean_of_the_counts_though_they_are_about_another():
    found = Estimate(np.log([[0.5e-4, 0.5e-4]]), np.zeros((1, 1, 2)), np.full(1, np.inf))
    sums = np.array([[0.0, 2.0]]), np.array([1e4])
    table = expression_table(found, sums, of="domain", names=["a"], genes=["none", "some"], level=0.9)
    np.testing.assert_allclose(table[["mean", "lower", "upper"]], [[0.0, 0.0, 0.5], [2.0, 0.5, 2.0]])


def test_a_domain_in_one_and_a_half_blocks_has_the_freedom_of_two():
    np.testing.assert_array_equal(_freedom(np.array([1.4, 1.5, 1.9, 3.5])), [np.nan, 1.0, 1.0, 2.5])


def test_shares_stay_between_0_and_1_and_a_type_that_all_spots_have_may_be_missing_in_a_few():
    evidence = _evidence(known=True)
    types = np.eye(3)[evidence.codes]
    found = estimate(evidence._replace(values=types, exposure=np.ones(400), are_shares=True), "blocks")
    share, low, high = share_bounds(found, 0.9)
    np.testing.assert_allclose(share, np.eye(3))
    assert low.min() == 0.0
    assert high.max() == 1.0
    assert (low.diagonal() < 1.0).all()
    assert (high[~np.eye(3, dtype=bool)] > 0.0).all()


def test_the_share_of_a_type_that_no_spot_has_is_as_sure_as_that_of_independent_spots():
    evidence = _evidence(k=1, g=1)
    found = estimate(evidence._replace(values=np.zeros((400, 1)), exposure=np.ones(400), are_shares=True), "blocks")
    share = 1.0 / 402.0
    np.testing.assert_allclose(found.chance, share * (1.0 - share) / 400.0)


def test_contrasts_know_that_domains_share_blocks():
    evidence = _evidence(known=True)
    found = estimate(evidence, "blocks")
    change, low, high = contrast_bounds(found, [(0, 1), (1, 0)], 0.9)
    np.testing.assert_allclose(change[0], -change[1])
    np.testing.assert_allclose(low[0], -high[1])
    np.testing.assert_allclose(change[0], (found.mean[0] - found.mean[1]) / np.log(2))
    # two means with a variance of 1 each and a correlation of 0.8: their difference has one of 1 + 1 - 1.6
    known = Estimate(np.array([[1.0], [0.5]]), np.array([[1.0, 0.8], [0.8, 1.0]])[:, :, None], np.full(2, np.inf))
    change, low, high = contrast_bounds(known, [(0, 1)], 0.9)
    assert change.item() == pytest.approx(0.5 / np.log(2))
    assert (low + high).item() / 2 == pytest.approx(0.5 / np.log(2))
    assert (high - low).item() / 2 == pytest.approx(norm.ppf(0.95) * np.sqrt(0.4) / np.log(2))


def test_the_freedom_of_a_contrast_is_weighed_by_variances_and_rounding_makes_no_variance_negative():
    """Welch and Satterthwaite; a correlation that is 1 but for rounding leaves no variance, and not a negative one."""
    unequal = Estimate(np.zeros((2, 1)), np.diag([4.0, 1.0])[:, :, None], np.array([3.0, 30.0]))
    _, low, high = contrast_bounds(unequal, [(0, 1)], 0.9)
    freedom = 25.0 / (16.0 / 3.0 + 1.0 / 30.0)
    assert (high - low).item() / 2 == pytest.approx(student.ppf(0.95, freedom) * np.sqrt(5.0) / np.log(2))
    alike = Estimate(np.ones((2, 1)), (np.ones((2, 2)) + 1e-15 * (1.0 - np.eye(2)))[:, :, None], np.full(2, np.inf))
    assert [bound.item() for bound in contrast_bounds(alike, [(0, 1)], 0.9)] == [0.0, 0.0, 0.0]


def test_equal_seeds_give_equal_bits_and_others_do_not():
    evidence = _evidence()
    first, second = (estimate(evidence, "bootstrap").covariance for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (estimate(evidence._replace(seed=1), "bootstrap").covariance != first).any()


def test_the_seed_is_that_of_the_steps_and_of_the_draws_of_the_implicit_method(monkeypatch):
    seeds = []

    class Fitted:
        def sample(self, n, seed):
            seeds.append(seed)
            return np.random.default_rng(seed).normal(size=(n, 3))

    monkeypatch.setattr(methods, "implicit_steps", lambda *_, seed, **__: seeds.append(seed) or [Fitted()])
    estimate(_evidence(g=1, graph=_neighbours(20, 0.1))._replace(seed=5), "implicit")
    of_steps, of_draws = seeds
    assert (of_steps, of_draws[0]) == (5, 5)
    draws = [np.random.default_rng(seed).normal(size=1000) for seed in ((5, 0), (5, 1), of_draws)]  # of steps: 0 and 1
    assert np.unique(draws).size == 3000


def _profile(*, known):
    evidence = _evidence(side=12, known=known, sharp=4.0, g=1)
    centre = (evidence.posterior.T @ evidence.values[:, 0]) / (evidence.posterior.T @ evidence.exposure)
    return evidence, Profile.of(
        evidence.values[:, 0],
        evidence.exposure,
        evidence.posterior,
        graph=_neighbours(12, 0.1),
        centre=centre,
        varied=np.arange(3),
        noise=float(np.var(evidence.values[:, 0] / np.sqrt(evidence.exposure))),
    )


def test_the_gradient_of_the_profile_objective_is_that_of_its_differences():
    _, profile = _profile(known=False)
    points = profile.centre * np.random.default_rng(0).uniform(0.8, 1.2, size=(5, 3))
    _, gradient = profile.evaluate(points)
    for k in range(3):
        step = 1e-4 * profile.centre[k] * np.eye(3)[k]
        difference = (profile.evaluate(points + step)[0] - profile.evaluate(points - step)[0]) / (2 * step[k])
        np.testing.assert_allclose(gradient[:, k], difference, rtol=2e-3, atol=2e-3 * np.abs(gradient).max())


def test_spots_of_which_a_thousandth_is_left_to_other_domains_are_held():
    phi = np.array([[0.9995, 0.0005], [0.9985, 0.0015], [0.3, 0.7], [0.0, 1.0]])
    rest = {"graph": sp.csr_matrix((4, 4)), "centre": np.ones(2), "varied": np.arange(2), "noise": 1.0}
    profile = Profile.of(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), phi, **rest)
    assert profile.values.tolist() == [2.0, 3.0]
    np.testing.assert_allclose(profile.held_sums, [0.9995, 4.0005])
    np.testing.assert_allclose(profile.held_exposure, [0.9995, 1.0005])


def test_posteriors_of_domains_without_spots_are_those_of_the_fit_at_the_estimate():
    """Each spot is in part in a domain that has none, and whose mean does not vary."""
    evidence, whole = _profile(known=False)
    share = np.random.default_rng(0).uniform(0.0, 0.3, size=len(evidence.posterior))
    phi = np.column_stack([evidence.posterior * (1.0 - share[:, None]), share])
    assert np.bincount(phi.argmax(axis=1), minlength=4)[3] == 0
    values, exposure = evidence.values[:, 0], evidence.exposure
    profile = Profile.of(
        values,
        exposure,
        phi,
        graph=_neighbours(12, 0.0),  # so that phi is a fixed point whatever it is
        centre=np.append(whole.centre, np.nan),
        varied=np.arange(3),
        noise=whole.noise,
    )
    _, slope = profile.evaluate(profile.centre[None])
    expected = (phi[:, :3].T @ values - phi[:, :3].T @ exposure * whole.centre) / whole.noise
    np.testing.assert_allclose(slope[0], expected, rtol=1e-9, atol=1e-9)


def test_the_profile_of_known_domains_is_the_likelihood_of_means():
    evidence, profile = _profile(known=True)
    _, gradient = profile.evaluate(profile.centre[None])
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6 * evidence.exposure.sum() / profile.noise)
    far = profile.centre[None] * 1.1
    drop = profile.evaluate(far)[0] - profile.evaluate(profile.centre[None])[0]
    exposure = np.bincount(evidence.codes, weights=evidence.exposure)
    expected = -0.5 * (exposure * (far[0] - profile.centre) ** 2).sum() / profile.noise
    np.testing.assert_allclose(drop, expected, rtol=1e-6)


class _Shown(Stage):
    """What a stage is told."""

    def __init__(self):
        self.notes, self.done = [], []

    def note(self, text):
        self.notes.append(text)

    def advance(self, done, total):
        self.done.append(done / total)


def test_the_implicit_posterior_of_known_domains_is_mean_field():
    evidence = _evidence(known=True, g=2, graph=_neighbours(20, 0.1))
    shown = _Shown()
    exact, found = (
        np.einsum("kkg->kg", estimate(evidence, name, shown).covariance) for name in ("mean-field", "implicit")
    )
    np.testing.assert_allclose(np.sqrt(found), np.sqrt(exact), rtol=0.12)
    assert len(shown.notes) == len(shown.done) == 400  # by the slow method alone, which makes 200 steps for a gene
    assert shown.notes[249] == "1 of 2 genes, and 50 of 200 steps of the next"
    np.testing.assert_allclose(shown.done, np.arange(1, 401) / 400)


def test_the_mixing_of_a_domain_is_the_mean_posterior_of_its_molecules():
    evidence = _evidence()
    own = [evidence.codes == k for k in range(3)]
    expected = [np.average(evidence.calibrated[spots], axis=0, weights=evidence.exposure[spots]) for spots in own]
    np.testing.assert_allclose(_mixing(evidence), expected)


# a half of the misplaced spots from each of two domains
_MIXING = np.array([[0.7, 0.15, 0.15, 0.0], [0.1, 0.8, 0.0, 0.1], [0.0, 0.2, 0.6, 0.2], [0.1, 0.0, 0.1, 0.8]])


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_the_bias_of_mixed_domains_is_that_of_exchangeable_pure_means(noise):
    """Means x = C p + chance of many genes with known p: the bias (C - I) p has the mean square that is found."""
    rng = np.random.default_rng(0)
    pure = rng.normal(size=(4, 20_000))
    covariance = noise * np.diag([1.0, 4.0, 2.0, 0.0])
    means = 3.0 + _MIXING @ pure + np.sqrt(covariance) @ rng.normal(size=pure.shape)
    chance = np.repeat(covariance[:, :, None], pure.shape[1], axis=2)
    found = _bias(means, chance, _MIXING, np.ones(4))
    bias = (_MIXING - np.eye(4)) @ pure
    assert found.mean() == pytest.approx((bias**2).mean(), rel=0.15)
    np.testing.assert_allclose(found.mean(axis=1), (bias**2).mean(axis=1), rtol=0.3)


def test_a_domain_that_nothing_is_confused_with_does_not_widen_the_intervals_of_others():
    mixing = np.array([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])
    chance = np.repeat(1e-4 * np.eye(3)[:, :, None], 1, axis=2)
    found = _bias(np.array([[1.0], [1.1], [9.0]]), chance, mixing, np.ones(3))
    assert found[2, 0] == 0.0
    assert 0.0 < found[0, 0] < 0.05**2


def test_domains_that_are_alike_have_no_bias_and_one_without_a_variance_adds_none():
    chance = np.repeat(0.1 * np.eye(4)[:, :, None], 2, axis=2)
    means = np.array([[1.0, 0.0], [1.0, 2.0], [1.0, 9.0], [1.0, -3.0]])
    assert (_bias(means, chance, _MIXING, np.ones(4))[:, 0] == 0.0).all()
    chance[3, 3] = np.inf
    found = _bias(means, chance, _MIXING, np.array([1.0, 1.0, 1.0, 0.0]))
    assert (found[3] == 0.0).all()
    assert (found[:3, 1] > 0.0).all()


def test_a_posterior_that_tells_no_domains_apart_gives_wide_intervals_and_not_infinite_ones():
    evidence = _evidence()
    alike = np.full((400, 3), 1 / 3)
    sure, unsure = (
        mean_bounds(estimate(evidence._replace(calibrated=phi), "blocks"), 0.9) for phi in (evidence.calibrated, alike)
    )
    assert np.isfinite(unsure[2]).all()
    assert (unsure[2] - unsure[1] >= sure[2] - sure[1]).all()


def test_misplaced_spots_can_only_add_to_a_type():
    """Of a domain of which three quarters are its own: a type that none of its spots has is rare in it, whatever
    others hold, and one that they all have is common."""
    evidence = _evidence(k=2, sharp=0.0)
    mixing = np.array([[0.75, 0.25], [0.25, 0.75]])
    types = np.eye(2)[evidence.codes]
    found = estimate(
        evidence._replace(values=types, exposure=np.ones(400), are_shares=True, calibrated=mixing[evidence.codes]),
        "blocks",
    )
    np.testing.assert_allclose(found.purity, 0.75)
    share, low, high = share_bounds(found, 0.9)
    near = student.ppf(0.95, found.freedom)[:, None] * np.sqrt(found.chance)
    np.testing.assert_allclose(share, np.eye(2))
    np.testing.assert_allclose(high[0, 1], near[0, 1] / 0.75)
    np.testing.assert_allclose(low[1, 1], 1.0 - near[1, 1] / 0.75)
    without = share_bounds(found._replace(chance=None, purity=None), 0.9)
    assert without[2][0, 1] > 2 * high[0, 1]
    assert (low >= without[1]).all()


def test_a_domain_with_nothing_of_its_own_has_the_bounds_without_purity():
    found = estimate(
        _evidence(known=True)._replace(values=np.eye(3)[np.arange(400) % 3], exposure=np.ones(400), are_shares=True),
        "blocks",
    )
    # a type that no spot has, and one that they all have, by 0 / 0
    found = found._replace(
        mean=np.tile([0.0, 1.0, 0.5], (3, 1)), chance=np.zeros_like(found.mean), purity=np.array([0.0, 0.5, 1.0])
    )
    _, low, high = share_bounds(found, 0.9)
    without = share_bounds(found._replace(chance=None, purity=None), 0.9)
    np.testing.assert_array_equal(low[0], without[1][0])
    np.testing.assert_array_equal(high[0], without[2][0])
    assert np.isfinite([low, high]).all()


def test_a_bootstrap_in_which_a_domain_loses_its_spots_is_finite():
    evidence = _evidence()
    calibrated = evidence.calibrated * [1.0, 1.0, 1e-9]
    calibrated /= calibrated.sum(axis=1, keepdims=True)
    assert np.isfinite(estimate(evidence._replace(calibrated=calibrated), "bootstrap").covariance).all()


def test_the_profile_has_its_slope_where_the_posteriors_are_those_of_the_fit():
    """At the centre the fixed point of the posteriors is the fit itself, with its edges."""
    rng, n = np.random.default_rng(0), 30
    half = sp.triu(sp.random(n, n, 0.2, random_state=0), 1)
    phi, values, exposure = rng.dirichlet(np.ones(3), n), rng.normal(size=n), rng.random(n)
    centre, graph = rng.normal(size=3), (half + half.T).tocsr()
    profile = Profile.of(values, exposure, phi, graph=graph, centre=centre, varied=np.arange(3), noise=2.0)
    _, slope = profile.evaluate(centre[None])
    np.testing.assert_allclose(slope[0], (phi.T @ values - phi.T @ exposure * centre) / 2.0, atol=1e-4)


def test_the_bias_is_right_where_much_of_the_difference_is_chance():
    rng = np.random.default_rng(0)
    pure = rng.normal(size=(4, 20_000))
    means = _MIXING @ pure + np.sqrt(0.3) * rng.normal(size=pure.shape)
    chance = np.repeat(0.3 * np.eye(4)[:, :, None], pure.shape[1], axis=2)
    expected = (((_MIXING - np.eye(4)) @ pure) ** 2).mean()
    assert _bias(means, chance, _MIXING, np.ones(4)).mean() == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(("small", "larger"), [(1, True), (2, False)])
def test_blocks_stop_growing_where_the_median_domain_has_few_and_not_where_a_single_one_has(small, larger):
    """Values rise across the whole section; of its three domains one, or two, lie in a corner of 25 spots."""
    place = _lattice(40)
    codes = np.zeros(len(place), dtype=np.int64)
    codes[place[:, 0] >= 20] = 1
    if small == 2:
        codes[:] = 0
        codes[(place >= 35).all(axis=1)] = 1
    codes[(place < 5).all(axis=1)] = 2
    _, size = choose_blocks(place, np.ones(len(place)), codes, 3, coordinates=place, sections=[np.arange(len(place))])
    assert (size > 12) == larger


@pytest.mark.parametrize(("n", "sizes"), [(18, [18]), (19, [9, 10])])
def test_a_piece_of_one_and_a_half_blocks_stays_whole(n, sizes):
    place = np.column_stack([np.arange(n), np.zeros(n)])
    assert np.bincount(spatial_blocks(place, [np.arange(n)], 12)).tolist() == sizes


@pytest.mark.parametrize("n_typed", [2, 6])
def test_domains_without_a_typed_spot_do_not_keep_blocks_small(n_typed):
    """Types that vary over tiles of 10 x 10 spots, known in two of six stripes, or in all."""
    place = _lattice(60)
    codes = (place[:, 0] // 10).astype(np.int64)
    tile = (place // 10).astype(np.int64) @ [6, 1]
    values = np.eye(2)[np.random.default_rng(0).integers(2, size=36)[tile]]
    exposure = (codes < n_typed).astype(float)
    given = (values * exposure[:, None], exposure, codes, 6)
    _, size = choose_blocks(*given, coordinates=place, sections=[np.arange(3600)])
    assert size >= 48


def test_blocks_of_spots_that_all_lack_a_type_are_the_smallest():
    place = _lattice(30)
    given = (np.zeros((900, 2)), np.zeros(900), np.arange(900) % 3, 3)
    assert choose_blocks(*given, coordinates=place, sections=[np.arange(900)])[1] == 12


def test_spots_without_exposure_say_nothing_about_the_noise():
    """Types are known at a tenth of the spots, and intervals are as wide as those from these spots alone."""
    evidence = _evidence(side=30, known=True)
    typed = np.random.default_rng(1).random(900) < 0.1
    per_spot = ("values", "exposure", "codes", "posterior", "calibrated", "coordinates")
    alone = evidence._replace(**{name: getattr(evidence, name)[typed] for name in per_spot})
    exposure = evidence.exposure * typed
    among = evidence._replace(values=evidence.values * typed[:, None], exposure=exposure)
    some = [estimate(own._replace(sections=[np.arange(len(own.codes))]), "mean-field") for own in (alone, among)]
    np.testing.assert_allclose(some[0].mean, some[1].mean)
    np.testing.assert_allclose(some[0].covariance, some[1].covariance)


@pytest.mark.parametrize("method", METHODS)
def test_a_gene_without_a_count_has_a_wide_interval_or_none(method):
    """Its noise was nothing, and its contrasts were as sure as they were wrong."""
    evidence = _evidence(side=12, g=2, graph=_neighbours(12, 0.1))
    evidence.values[:, 1] = 0.0
    spread = np.sqrt(np.einsum("kkg->kg", estimate(evidence, method).covariance))
    assert (spread[:, 0] < 1.0).all()
    if method in {"blocks", "bootstrap"}:
        assert (spread[:, 1] > 1.0).all()
    else:
        assert np.isnan(spread[:, 1]).all()
