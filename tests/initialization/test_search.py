"""States, and the search for the lowest F of compositions, on sections whose domains are known."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import softmax

from spatialpdvi.features.projection import learn_limit
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import scale_weights
from spatialpdvi.initialization import compositions as module
from spatialpdvi.initialization import landscape as landscape_module
from spatialpdvi.initialization import search
from spatialpdvi.initialization.compositions import Sample, search_compositions, search_sets
from spatialpdvi.initialization.consensus import match_labels
from spatialpdvi.initialization.landscape import Fit, Landscape, Places, lacking, members, profiles
from spatialpdvi.initialization.search import composition_labels, lowest
from spatialpdvi.initialization.states import are_distinct, learn_states, told_of_neighbors
from spatialpdvi.kernels import search as search_kernels
from spatialpdvi.kernels.dispatch import run_serially_in_this_thread
from spatialpdvi.kernels.search import fit_two_within
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.options.states import n_deciding_sets, n_state_sets, search_rounds, states_of_section
from spatialpdvi.problems.composition import CompositionGlobals
from spatialpdvi.problems.potts_mixture import nearest_domain, one_hot
from spatialpdvi.runtime.rows import slices, some_rows


def _section(seed=0, side=30, k=4, n_states=6, d=5, apart=4.0):
    """Stripes that are compositions of the same well separated states."""
    rng = np.random.default_rng(seed)
    axis = np.arange(side, dtype=float)
    xy = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = np.minimum((xy[:, 0] * k / side).astype(int), k - 1)
    shares = np.array([0.7, 0.13, 0.07, 0.04, 0.03, 0.03])
    composition = np.array([np.roll(shares, domain) for domain in range(k)])
    states = np.array([rng.choice(n_states, p=composition[domain]) for domain in truth])
    x = apart * rng.normal(size=(n_states, d))[states] + rng.normal(size=(truth.size, d))
    return xy, truth, x


def _landscape(seed=0, **settings):
    xy, truth, x = _section(seed, **settings)
    states = learn_states(x, 6, seed=seed)
    likelihood = module._likelihood(states)
    graph = scale_weights(mutual_knn(xy, 10), beta=1.0)
    return Landscape(likelihood, Places(xy), graph, 4, module._prior_weight(states)), states, truth, xy, graph


def test_states_are_those_of_the_section_and_distinct():
    states = learn_states(_section()[2], 6, seed=0)
    assert states.lam.m.shape == (6, 5)
    assert states.share.sum() == pytest.approx(1.0)
    assert are_distinct([states])
    assert 0.0 <= states.ambiguity < 0.1
    within = states.features - states.lam.m[((states.features[:, None] - states.lam.m) ** 2).sum(axis=2).argmin(axis=1)]
    np.testing.assert_allclose(np.cov(within.T), np.eye(5), atol=0.25)  # W makes the noise a unit matrix


def test_states_that_single_spots_do_not_tell_apart_are_found_out():
    assert not are_distinct([learn_states(_section(apart=0.3)[2], 6, seed=0)])


@pytest.mark.usefixtures("usual_defaults")
@pytest.mark.parametrize(
    ("n", "k", "n_states"), [(399, 4, 0), (400, 4, 20), (499, 23, 0), (500, 23, 25), (959, 4, 20), (960, 4, 24)]
)
def test_auto_needs_twenty_spots_for_each_state(n, k, n_states):
    assert states_of_section(n, k) == n_states


def test_what_states_tell_of_their_neighbours_is_the_mutual_information():
    xy, _, x = _section(apart=12.0)  # every state is certain
    states = learn_states(x, 6, seed=0)
    m = states.lam.m
    of = ((states.features[:, None] - m) ** 2).sum(axis=2).argmin(axis=1)
    distance = np.linalg.norm(xy[:, None] - xy, axis=2) + 1e-9 * np.arange(len(xy))
    np.fill_diagonal(distance, np.inf)
    near = distance.argsort(axis=1)[:, :10]
    joint = np.array([[np.mean((of == a)[:, None] & (of[near] == b)) for b in range(6)] for a in range(6)])
    apart = joint.sum(axis=1)[:, None] * joint.sum(axis=0)
    expected = np.sum(joint[joint > 0] * np.log(joint[joint > 0] / apart[joint > 0]))
    everywhere = [np.arange(len(xy))]
    told = told_of_neighbors([states], xy, samples=everywhere, seed=0)
    assert told == pytest.approx(expected, abs=1e-3)
    assert told > 0.2
    shuffled = np.random.default_rng(0).permutation(xy)
    assert told_of_neighbors([states], shuffled, samples=everywhere, seed=0) < 0.03
    # sections on top of each other: neighbours are of the same one
    twice = states._replace(features=np.vstack([states.features, states.features]))
    both = [np.arange(len(xy)), len(xy) + np.arange(len(xy))]
    double = told_of_neighbors([twice], np.vstack([xy, xy]), samples=both, seed=0)
    assert double == pytest.approx(told, abs=1e-9)
    alone = [np.array([spot]) for spot in range(len(xy))]
    assert told_of_neighbors([states], xy, samples=alone, seed=0) == 0.0


def test_far_spots_are_drawn_in_along_their_own_line():
    x = np.random.default_rng(0).normal(size=(500, 3))
    x[0] = [1e6, -1e6, 0.0]
    limit = learn_limit(x)
    near = limit.apply(x)
    distance = np.sqrt((((x - limit.centre) / limit.spread) ** 2).sum(axis=1))
    inside = distance <= limit.limit
    assert inside.mean() == pytest.approx(0.99, abs=0.002)
    np.testing.assert_allclose(near[inside], (x - limit.centre)[inside])
    assert np.linalg.norm(near[0] / limit.spread) == pytest.approx(limit.limit)
    np.testing.assert_allclose(near[0, 0] / near[0, 1], (x[0] - limit.centre)[0] / (x[0] - limit.centre)[1])


def test_blocks_of_a_large_section_are_the_whole(monkeypatch):
    landscape, _, truth, _, graph = _landscape()
    data_term = landscape.as_given(landscape.states.domain_term(landscape.fit(truth[landscape.order]).composition))

    def found():
        own = learn_states(_section()[2], 6, seed=0)
        again, fitted = _landscape()[0], _landscape()[0].fit(truth[landscape.order], rounds=3)
        return own.features, own.distance, again.responsibility, fitted.phi, module.settle_labels(data_term, graph)

    whole = found()
    monkeypatch.setattr("spatialpdvi.initialization.landscape.slices", lambda n: slices(n, 77))
    monkeypatch.setattr("spatialpdvi.initialization.states.slices", lambda n: slices(n, 77))
    monkeypatch.setattr("spatialpdvi.initialization.compositions.slices", lambda n: slices(n, 77))
    monkeypatch.setattr("spatialpdvi.features.projection.slices", lambda n: slices(n, 77))
    for block, expected in zip(found(), whole, strict=True):
        np.testing.assert_allclose(block, expected, rtol=1e-6, atol=1e-9)
    assert adjusted_rand_index(whole[-1], truth) > 0.9


def test_a_fit_of_a_large_section_holds_three_arrays_of_posteriors(monkeypatch):
    k, rng = 20, np.random.default_rng(0)
    xy = np.stack(np.meshgrid(np.arange(150.0), np.arange(150.0)), axis=-1).reshape(-1, 2)
    likelihood = rng.random((xy.shape[0], k)).astype(np.float32)
    graph = scale_weights(mutual_knn(xy, 6), beta=1.0)
    landscape = Landscape(likelihood, Places(xy), graph, k, np.full(k, 1.0))
    labels = rng.integers(k, size=xy.shape[0])
    landscape.fit(labels, rounds=1)  # what is compiled is not measured
    landscape = Landscape(likelihood, Places(xy), graph, k, np.full(k, 1.0))
    monkeypatch.setattr("spatialpdvi.initialization.landscape.slices", lambda n: slices(n, 1000))
    tracemalloc.start()
    try:
        landscape.fit(labels, rounds=2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 2.5 < peak / likelihood.size / 8 < 3.5


def test_shares_of_a_large_section_are_learnt_from_some_of_its_spots(monkeypatch):
    rng = np.random.default_rng(0)
    states = rng.choice(3, p=[0.6, 0.3, 0.1], size=9000)
    likelihood = np.where(states[:, None] == np.arange(3), 1.0, 1e-6)
    whole = landscape_module._share_without_domains(likelihood)
    monkeypatch.setattr(landscape_module, "_COUNTED", 1000)
    some = landscape_module._share_without_domains(likelihood)
    np.testing.assert_array_equal(some, landscape_module._share_without_domains(some_rows(likelihood, 0, 1000)))
    np.testing.assert_allclose(some, whole, atol=0.05)
    np.testing.assert_allclose(whole, [0.6, 0.3, 0.1], atol=0.02)
    stripes = np.where(np.arange(9000) % 9 < 3, 0, 1)  # of a lattice: every ninth spot is in the first
    share = landscape_module._share_without_domains(np.where(stripes[:, None] == np.arange(3), 1.0, 1e-6))
    np.testing.assert_allclose(share, [1 / 3, 2 / 3, 0.0], atol=0.05)


def test_equal_spots_stay_finite():
    states = learn_states(np.ones((100, 3)), 4, seed=0)
    assert np.isfinite(states.features).all()
    assert np.isfinite(states.rotation).all()
    assert not are_distinct([states])


def test_the_landscapes_objective_is_that_of_the_problem():
    """Differences of F between two points: the states' own terms, which are constant, are left out of one of them."""
    from spatialpdvi.graph.patches import make_patches
    from spatialpdvi.initialization.compositions import start_from_composition
    from spatialpdvi.problems.features import wrap_features

    landscape, states, truth, xy, graph = _landscape()
    patching = make_patches(xy, graph, 3)
    start = start_from_composition(states, truth, 4)
    problem = start.problem(wrap_features(states.features[patching.order]), patching.patches)
    rng = np.random.default_rng(0)
    values = []
    for _ in range(2):
        phi, pi = rng.dirichlet(np.ones(4), size=truth.size), rng.dirichlet(np.ones(6), size=4)
        lam = CompositionGlobals(*states.lam, np.log(pi))
        values.append(
            (
                problem.evaluate(phi[patching.order], lam).neg_elbo,
                landscape.neg_elbo(np.ascontiguousarray(phi[landscape.order]), pi),
            )
        )
    (a, b), (c, d) = values
    assert a - c == pytest.approx(b - d, rel=1e-9)


def test_a_fit_never_raises_the_objective():
    landscape, *_ = _landscape()
    rng = np.random.default_rng(1)
    fit = landscape.fit(rng.integers(4, size=landscape.n), rounds=1)
    for _ in range(30):
        before = fit.phi.copy()
        after = landscape.go_on(fit, rounds=1)
        np.testing.assert_array_equal(fit.phi, before)  # a fit that is continued stays as it is
        assert after.neg_elbo <= fit.neg_elbo + 1e-9 * abs(fit.neg_elbo)
        fit = after


def test_the_search_finds_the_domains_from_random_labels():
    """The starts alone are poor; proposals lower F until it is no higher than where the truth itself leads."""
    landscape, _, truth, *_ = _landscape()
    rng = np.random.default_rng(3)
    starts = [rng.integers(4, size=landscape.n) for _ in range(3)]
    before, after = (lowest(landscape, starts, rounds=rounds, seed=0) for rounds in (0, 15))
    assert before.ended_at == before.started_at == after.started_at
    assert after.ended_at < before.ended_at
    assert after.n_proposed >= after.n_accepted > 0
    best = landscape.fit(truth[landscape.order])
    assert after.ended_at <= best.neg_elbo + 1.0
    assert adjusted_rand_index(truth, after.labels) > 0.85 > adjusted_rand_index(truth, before.labels)


def test_what_a_cut_promises_is_the_change_of_f_where_no_other_domain_touches(monkeypatch):
    landscape, _, truth, xy, graph = _landscape()
    left = truth < 2
    apart = sp.csr_matrix(graph.multiply(left[:, None] == left))  # no edge leaves either domain
    landscape = Landscape(landscape.as_given(landscape.states.relative), Places(xy), apart, 3, landscape.prior_weight)
    labels = np.where(left, 0, 1)[landscape.order]
    base = landscape.fit(labels, rounds=1)
    base = base._replace(phi=np.eye(3)[labels], labels=labels)
    spots = np.flatnonzero(labels == 0)
    given = []

    def kept(*arguments):  # of the fit within the domain, the compositions and posteriors
        given.extend(arguments[-2:])
        return fit_two_within(*arguments)

    monkeypatch.setattr(search, "fit_two_within", kept)
    change, second = search._cut(landscape, base, 0, spots, truth[landscape.order][spots] == 1)
    assert adjusted_rand_index(truth[landscape.order][spots], second) > 0.9
    (composition, posterior), phi, both = given, base.phi.copy(), base.composition.copy()
    phi[spots, 0], phi[spots, 2] = 1.0 - posterior, posterior
    both[[0, 2]] = composition
    before = landscape.neg_elbo(base.phi, base.composition) - landscape.priors(base.composition)[2]
    assert change == pytest.approx(landscape.neg_elbo(phi, both) - before, rel=1e-9)
    assert change < 0.0


def _random_fit(landscape, seed=0):
    """A fit whose posteriors are anything, so that no term vanishes."""
    rng = np.random.default_rng(seed)
    fit = landscape.fit(rng.integers(landscape.k, size=landscape.n), rounds=2)
    return fit._replace(phi=rng.dirichlet(np.ones(landscape.k), landscape.n))


def test_what_a_union_costs_is_the_change_of_f():
    landscape, *_ = _landscape()
    base = _random_fit(landscape)
    found, three = members(landscape.states, base.phi, base.composition), landscape.with_domains(3)
    before, costs = landscape.neg_elbo(base.phi, base.composition), search.unions(landscape, base)
    assert len(costs) == 6
    for (a, b), cost in costs.items():
        others = [domain for domain in range(4) if domain not in (a, b)]
        phi = np.ascontiguousarray(np.column_stack([base.phi[:, others], base.phi[:, a] + base.phi[:, b]]))
        joint = np.vstack([base.composition[others], landscape.composed(found[a] + found[[b]])])
        assert cost == pytest.approx(three.neg_elbo(phi, joint) - before, rel=1e-9)


def test_what_a_domain_of_another_fit_promises_is_the_change_of_f_of_hard_labels():
    landscape, _, truth, *_ = _landscape()
    base = landscape.fit(truth[landscape.order])
    other = landscape.fit(np.random.default_rng(2).integers(4, size=landscape.n))
    five, promised = landscape.with_domains(5), search._inserted(landscape, base, [other])
    assert promised
    for change, _, region in promised:
        (domain,) = np.unique(other.labels[region])
        composition = np.vstack([base.composition, other.composition[domain]])
        after = np.where(region, 4, base.labels)
        before = landscape.neg_elbo(np.eye(4)[base.labels], base.composition)
        prior = landscape.priors(other.composition)[domain]  # left out
        assert change == pytest.approx(five.neg_elbo(np.eye(5)[after], composition) - before - prior, rel=1e-9)


def _searching(landscape, fits):
    """A search whose kept fits are these, the best first."""
    searching = search._Search(landscape, np.random.default_rng(0))
    searching.fits = sorted(fits, key=landscape.rank)
    return searching


def test_rounds_go_on_from_the_next_best_fit_where_the_best_gives_no_better_one(monkeypatch):
    landscape, *_ = _landscape()
    fit, bases = landscape.fit(np.random.default_rng(0).integers(4, size=landscape.n), rounds=1), []
    searching = _searching(landscape, [fit._replace(neg_elbo=fit.neg_elbo + more) for more in (2.0, 0.0, 1.0)])
    monkeypatch.setattr(searching, "_improve", lambda base: bases.append(base.neg_elbo - fit.neg_elbo))
    searching.propose(5)
    np.testing.assert_allclose(bases, [0.0, 1.0, 2.0])


def test_of_fits_that_are_the_same_the_best_is_kept():
    landscape, _, truth, *_ = _landscape()
    fit = landscape.fit(truth[landscape.order], rounds=1)
    searching = _searching(landscape, [])
    for more in (0.0, 0.4, 0.0):
        searching._keep(fit._replace(neg_elbo=fit.neg_elbo + more))
    assert [own.neg_elbo for own in searching.fits] == [fit.neg_elbo]
    searching._keep(fit._replace(neg_elbo=fit.neg_elbo + 0.6))  # too far above
    searching._keep(fit._replace(labels=3 - fit.labels))  # other domains
    assert len(searching.fits) == 3


@pytest.mark.parametrize(("better", "accepted"), [(1.5, 0), (0.5, 1)])
def test_a_proposal_is_accepted_where_it_is_better_than_every_fit(better, accepted, monkeypatch):
    """It may be better than the fit that it changes, and no more."""
    landscape, _, truth, *_ = _landscape()
    fit = landscape.fit(truth[landscape.order], rounds=1)
    best, base = (fit._replace(neg_elbo=value) for value in (1.0, 2.0))
    searching = _searching(landscape, [best, base])
    proposal = search._Proposal(-1.0, fit.labels == 3, 0, 1)
    monkeypatch.setattr(searching, "_proposals", lambda _: [proposal])
    monkeypatch.setattr(landscape, "fit", lambda *_, **__: fit._replace(neg_elbo=better, labels=3 - fit.labels))
    assert searching._improve(base)
    assert (searching.n_proposed, searching.n_accepted) == (1, accepted)


def test_a_domain_of_another_fit_is_new_where_it_is_a_part_of_one():
    landscape, _, truth, *_ = _landscape()
    united = np.where(truth == 1, 0, truth)[landscape.order]
    base, other = landscape.fit(united), landscape.fit(truth[landscape.order])
    regions = [region for _, _, region in search._inserted(landscape, base, [other])]
    assert [np.unique(other.labels[region]).tolist() for region in regions] == [[0], [1]]


def test_cuts_are_at_another_scale_every_round_and_leave_no_tiny_domain(monkeypatch):
    landscape, _, truth, *_ = _landscape()
    base = landscape.fit(truth[landscape.order])
    searching, clustered = _searching(landscape, [base]), []
    second = [9, 10, -9, -10]  # spots of a half of each domain, or of its other half

    def cut(landscape, base, domain, spots, half):
        return -1.0, np.arange(spots.size) < second[domain] % spots.size

    monkeypatch.setattr(search, "_cluster", lambda profile, *_: clustered.append(profile) or np.zeros(len(profile)))
    monkeypatch.setattr(search, "_cut", cut)
    for _ in range(4):
        assert [domain for _, domain, _ in searching._cuts(base)] == [1, 3]
    scales = list(profiles(landscape, (8, 20, 45)))
    for turn in range(4):
        np.testing.assert_array_equal(clustered[4 * turn], scales[turn % 3][base.labels == 0])


@pytest.mark.parametrize(("promised", "n_made"), [(0.019, 1), (0.021, 0)])
def test_what_promises_a_much_higher_f_is_not_proposed(promised, n_made, monkeypatch):
    landscape, _, truth, *_ = _landscape()
    base = landscape.fit(truth[landscape.order], rounds=1)
    searching, region = _searching(landscape, [base]), base.labels == 3
    monkeypatch.setattr(searching, "_cuts", lambda _: [(promised * landscape.n - 3.0, 0, region)])
    monkeypatch.setattr(searching, "_foreign", lambda _: [(promised * landscape.n - 2.0, -1, region)])
    monkeypatch.setattr(search, "unions", lambda *_: {(1, 0): 2.0, (3, 2): 3.0})
    made = searching._proposals(base)
    assert [(own.kept, own.freed) for own in made] == [(3, 2), (1, 0)][: 2 * n_made]  # not the domain that is cut


def test_a_proposal_is_made_once():
    landscape, _, truth, *_ = _landscape()
    base = landscape.fit(np.random.default_rng(0).integers(4, size=landscape.n))
    searching = _searching(landscape, [base, landscape.fit(truth[landscape.order])])
    first, again = (searching._proposals(base) for _ in range(2))
    assert first
    assert not {own.key for own in first} & {own.key for own in again}


def test_fits_that_lack_domains_do_not_say_which_proposals_are_cut_short(monkeypatch):
    """Most have a lower F than the best fit, so that every proposal would be given up, and one has a higher F."""
    landscape, _, truth, *_ = _landscape()
    best = landscape.fit(np.random.default_rng(0).integers(4, size=landscape.n))
    two = np.where(truth < 2, 0, 1)[landscape.order]
    changes = [1e3, *(-1e3 - number for number in range(10))]
    lacks = [best._replace(labels=two, neg_elbo=best.neg_elbo + change) for change in changes]
    searching, limits, fitted = _searching(landscape, [best, *lacks]), [], landscape.fit

    def kept(labels, **options):
        limits.append(options["known"])
        return fitted(labels, **options)

    monkeypatch.setattr(landscape, "fit", kept)
    searching.propose(1)
    assert limits == [landscape.rank(best)] * len(limits) != []


def test_a_lower_f_of_fewer_domains_is_no_better_fit_without_a_price(monkeypatch):
    landscape, _, truth, *_ = _landscape()
    best = landscape.fit(np.random.default_rng(0).integers(4, size=landscape.n))
    two = np.where(truth < 2, 0, 1)[landscape.order]
    lacks, searching = best._replace(labels=two, neg_elbo=best.neg_elbo - 1e3), _searching(landscape, [best])
    monkeypatch.setattr(landscape, "fit", lambda *_, **__: lacks)
    assert not searching._improve(best)
    assert searching.n_proposed > 0 == searching.n_accepted
    landscape.price = 400.0
    searching = _searching(landscape, [best])
    assert searching._improve(best)
    assert searching.n_proposed == searching.n_accepted == 1


def test_a_fit_that_is_best_though_it_was_cut_short_is_finished(monkeypatch):
    """It lacks fewer domains than the others, which have a lower F."""
    landscape, _, truth, *_ = _landscape()
    three = landscape.fit(np.where(truth == 3, 2, truth)[landscape.order])
    fits = [three._replace(neg_elbo=three.neg_elbo - 1e4 - number) for number in range(12)]
    searching, fitted = _searching(landscape, fits), landscape.fit
    monkeypatch.setattr(landscape, "fit", lambda labels, **_: fitted(truth[landscape.order], rounds=1))
    searching.propose(1)
    assert landscape.rank(searching.best)[0] == 0
    assert searching.best.neg_elbo == pytest.approx(fitted(truth[landscape.order]).neg_elbo, abs=0.1)


def test_of_fits_about_as_good_none_is_chosen_that_lacks_more_domains():
    labels, lower = np.arange(400) % 4, np.arange(400) % 3
    full, other, lacks = (
        Fit(value, own, np.eye(4)[own], np.eye(4)) for value, own in ((9.0, labels), (10.0, labels), (5.0, lower))
    )
    varied = {9.0: 8.0, 10.0: 7.0, 5.0: 1.0}
    landscape = SimpleNamespace(
        n=400,
        k=4,
        rank=lambda fit: (lacking(fit.labels, 4), fit.neg_elbo),
        smooth_functions=np.ones((400, 1)),
        varied=lambda fit: varied[fit.neg_elbo],
    )
    assert _searching(landscape, [full, other, lacks]).chosen is other


@pytest.mark.parametrize(
    ("sizes", "n_lacking"), [((500, 485, 49, 50), 0), ((500, 504, 39, 41), 1), ((504, 500, 40, 40), 2)]
)
def test_a_domain_counts_as_found_with_fifteen_percent_of_the_average_one(sizes, n_lacking):
    """Of 1,084 spots and four domains these are 40.65 spots."""
    assert lacking(np.repeat(np.arange(4), sizes), 4) == n_lacking


def test_where_the_average_domain_has_few_spots_half_as_many_are_enough():
    """Of 240 spots and 30 domains the average one has eight."""
    even, few = np.repeat(np.arange(30), 8), np.repeat(np.arange(20), 12)
    assert lacking(even, 30) == 0
    assert lacking(few, 30) == 10


def test_two_domains_are_not_cut_since_no_others_could_become_one(monkeypatch):
    landscape, _, truth, *_ = _landscape()
    two = landscape.with_domains(2)
    monkeypatch.setattr(search._Search, "_cuts", lambda *_: pytest.fail("a cut that no union can follow"))
    starts = [np.where(truth < border, 0, 1) for border in (1, 2, 3)]
    found = lowest(two, starts, rounds=3, seed=0)
    assert found.ended_at <= min(two.fit(labels[two.order]).neg_elbo for labels in starts)


def test_a_fit_far_above_the_limit_is_cut_short(monkeypatch):
    landscape, *_ = _landscape()
    labels = np.random.default_rng(1).integers(4, size=landscape.n)
    rounds, sweep_ = [], search_kernels.sweep_relative
    monkeypatch.setattr(landscape_module, "fit_domains", search_kernels.fit_domains.steps)
    near = landscape.fit(labels, rounds=16).neg_elbo - 0.005 * landscape.n
    for limit in (np.inf, -1e9, near):
        monkeypatch.setattr(
            search_kernels, "sweep_relative", lambda *given, limit=limit: (rounds.append(limit), sweep_(*given))
        )
        landscape.fit(labels, known=(4, limit))
    assert rounds.count(-1e9) == 16 < rounds.count(np.inf)
    assert rounds.count(near) > 16  # it may still come down to the limit


def test_a_fit_that_lacks_more_domains_than_are_known_to_be_possible_is_cut_short():
    """Of its four domains one has no spots from the start."""
    landscape, *_ = _landscape()
    labels = np.random.default_rng(1).integers(3, size=landscape.n)
    rounds = [8, 9, 150]
    brief, one_more, whole = (landscape.fit(labels, rounds=most) for most in rounds)
    assert landscape.rank(brief)[0] == landscape.rank(whole)[0] == 1
    assert whole.neg_elbo < one_more.neg_elbo < brief.neg_elbo
    assert landscape.fit(labels, known=(0, np.inf)).neg_elbo == brief.neg_elbo
    assert landscape.fit(labels, known=(1, np.inf)).neg_elbo == whole.neg_elbo


def test_the_price_of_a_domain_is_a_twentieth_of_what_domains_explain():
    landscape, _, truth, *_ = _landscape()
    fits = [landscape.fit(labels[landscape.order]) for labels in (truth, np.minimum(truth, 1))]
    one = landscape.with_domains(1)
    single = one.neg_elbo(np.ones((landscape.n, 1)), one.composed(landscape.responsibility.sum(axis=0)[None]))
    priced = landscape.with_price_from(fits)
    lowest_f = min(fit.neg_elbo for fit in fits)
    assert priced.price == pytest.approx(0.05 * (single - lowest_f), rel=1e-6)
    assert [priced.rank(fit) for fit in fits] == [
        (0, fits[0].neg_elbo),
        (0, pytest.approx(fits[1].neg_elbo + 2 * priced.price)),
    ]
    assert [landscape.rank(fit) for fit in fits] == [(0, fits[0].neg_elbo), (2, fits[1].neg_elbo)]


@pytest.mark.parametrize(("explained", "has_a_price"), [(0.099, False), (0.101, True)])
def test_domains_that_explain_little_have_no_price_and_are_all_kept(explained, has_a_price):
    landscape, _, truth, *_ = _landscape()
    single = landscape.with_domains(1).fit(np.zeros(landscape.n, dtype=np.int64)).neg_elbo
    fit = landscape.fit(truth[landscape.order])._replace(neg_elbo=single - explained * landscape.n)
    assert np.isfinite(landscape.with_price_from([fit]).price) == has_a_price


def test_a_search_gives_up_domains_that_cost_more_than_their_price(monkeypatch):
    """Eight domains are asked for where there are four: the others are not worth their borders."""
    landscape, _, truth, *_ = _landscape()
    eight = landscape.with_domains(8)
    starts = [truth, 2 * truth + np.random.default_rng(0).integers(2, size=truth.size)]
    given_up = lowest(eight, starts, rounds=8, seed=0)
    monkeypatch.setattr(landscape_module, "_PRICE", 10.0)
    kept = lowest(eight, starts, rounds=8, seed=0)
    assert lacking(given_up.labels, 8) > lacking(kept.labels, 8)
    assert given_up.ended_at < kept.ended_at
    assert adjusted_rand_index(given_up.labels, truth) > adjusted_rand_index(kept.labels, truth)


@pytest.mark.parametrize(("price", "n_lacking"), [(0.05, 4), (10.0, 0)])
def test_of_brief_fits_those_are_finished_that_are_best_with_the_price(monkeypatch, price, n_lacking):
    landscape, _, truth, *_ = _landscape()
    eight = landscape.with_domains(8)
    monkeypatch.setattr(search, "_FINISHED", 1)
    monkeypatch.setattr(landscape_module, "_PRICE", price)
    searching = search._Search(eight, np.random.default_rng(0))
    halves = 2 * truth + (np.arange(truth.size) >= truth.size / 2)  # of each domain, which are alike
    searching.begin([labels[eight.order] for labels in (truth, halves)])
    assert lacking(searching.best.labels, 8) == n_lacking


def test_with_a_price_a_fit_that_lacks_domains_goes_on_unless_it_is_behind_by_more_than_that():
    landscape, *_ = _landscape()
    labels = np.random.default_rng(1).integers(3, size=landscape.n)  # one of four domains has no spots
    brief, whole = landscape.fit(labels, rounds=16), landscape.fit(labels)
    landscape.price = 50.0
    for limit, expected in ((brief.neg_elbo + 49.0, brief), (brief.neg_elbo + 51.0, whole)):
        known = (0, limit - 0.012 * landscape.n)  # what F may be behind by after sixteen rounds
        assert landscape.fit(labels, known=known).neg_elbo == expected.neg_elbo


def test_a_look_at_f_on_the_way_changes_no_fit(monkeypatch):
    landscape, *_ = _landscape()
    labels = np.random.default_rng(1).integers(4, size=landscape.n)
    found = landscape.fit(labels, known=(4, 1e12))
    monkeypatch.setattr(landscape_module, "_BEHIND", {})
    expected = landscape.fit(labels)
    np.testing.assert_array_equal(found.phi, expected.phi)
    assert found.neg_elbo == expected.neg_elbo


def _unite_two_domains_of_the_consensus(monkeypatch):
    """Let every consensus lack domain 2; return the list of the labels that it gives from now on."""
    agree, united = module.consensus, []

    def without_a_domain(votes, k):
        agreed = agree(votes, k)
        united.append(np.where(agreed.labels == 2, 1, agreed.labels))
        return agreed._replace(labels=united[-1])

    monkeypatch.setattr(module, "consensus", without_a_domain)
    return united


def test_a_search_is_preferred_to_a_consensus_that_lacks_more_domains(monkeypatch):
    xy, truth, x = _section(side=40)
    sets = [learn_states(x, 6, seed=seed) for seed in range(3)]
    graph = scale_weights(mutual_knn(xy, 10), beta=1.0)
    _unite_two_domains_of_the_consensus(monkeypatch)
    nearest, start, _ = search_sets(sets, xy, [graph] * 3, 4, labels=(truth,), rounds=2, seed=0)
    own = search_compositions(sets[nearest], Places(xy), graph, 4, labels=(truth,), rounds=2, seed=0).start
    np.testing.assert_array_equal(start.labels, own.labels)
    assert lacking(start.labels, 4) == 0


@pytest.mark.parametrize(
    ("lacking", "voting"), [((0, 1, 1, 2), [1, 2]), ((2, 0, 2), [0, 2]), ((1, 0), [1]), ((0, 0, 0), [0, 1, 2])]
)
def test_searches_vote_that_lack_as_many_domains_as_most_do(lacking, voting):
    results = [
        module.Searched(SimpleNamespace(labels=np.arange(400) % (4 - own)), None, SimpleNamespace(k=4))
        for own in lacking
    ]
    assert module._of_one_number(results) == voting


@pytest.mark.parametrize(("most_here", "n_voting"), [(10_000, 2), (1_000, 3)])
def test_all_searches_vote_in_sections_that_are_not_small(monkeypatch, most_here, n_voting):
    """Two of three searches lack a domain. The posterior is a mean of all three."""
    xy, truth, x = _section(side=40)
    sets = [learn_states(x, 6, seed=seed) for seed in range(3)]
    graph = scale_weights(mutual_knn(xy, 10), beta=1.0)
    answers = {id(own): np.minimum(truth, 2) if number < 2 else truth for number, own in enumerate(sets)}
    agree, voted = module.consensus, []

    def search_one(states, places, graph, k, **_):
        labels, landscape = answers[id(states)], module.landscape_of(states, places, graph, k)
        start = module.start_from_composition(states, labels, k)
        return module.Searched(start, search.Found(labels, None, 0.0, 0.0, 1, 0, one_hot(labels, k)), landscape)

    monkeypatch.setattr(module, "SMALL", most_here)
    monkeypatch.setattr(module, "search_compositions", search_one)
    monkeypatch.setattr(module, "_brief_labels", lambda *_, **__: [])
    monkeypatch.setattr(module, "consensus", lambda votes, k: voted.append(len(votes)) or agree(votes, k))
    nearest, start, found = search_sets(sets, xy, [graph] * 3, 4, labels=(truth,), rounds=0, seed=0)
    assert voted == [n_voting]
    assert nearest == 0
    assert lacking(start.labels, 4) == 1
    assert found.n_proposed == 3
    third = found.posterior[truth == 3]
    np.testing.assert_allclose(np.sort(third, axis=1)[:, -2:], np.broadcast_to([1 / 3, 2 / 3], (len(third), 2)))


@pytest.mark.parametrize("fitted", [False, True])
def test_a_consensus_is_fitted_to_see_whether_it_keeps_its_domains_where_a_fit_follows(fitted):
    agreed = np.arange(100) % 4
    landscape = SimpleNamespace(k=4, order=np.arange(100), fit=lambda labels: SimpleNamespace(labels=labels % 3))
    own = module.Searched(SimpleNamespace(labels=agreed), None, landscape)
    assert module._keeps_domains(agreed, own, fitted=fitted) is not fitted


def test_a_search_starts_from_the_first_labels_and_from_six_others_of_the_seed(monkeypatch):
    _, states, truth, xy, graph = _landscape()
    rng, chosen = np.random.default_rng(1), []
    labels = [rng.integers(4, size=truth.size).astype(np.int8) for _ in range(20)]

    def noted(landscape, starts, **settings):
        assert len(starts) == 9 + 7  # compositions at three scales, three times each
        chosen.append([next(i for i, own in enumerate(labels) if np.array_equal(own, one)) for one in starts[9:]])
        return lowest(landscape, starts[9:10], **settings)

    monkeypatch.setattr(module, "lowest", noted)
    for seed in (0, 0, 1):
        search_compositions(states, Places(xy), graph, 4, labels=labels, rounds=0, seed=seed)
    assert chosen[0] == chosen[1] != chosen[2]
    for own in chosen:
        assert own[0] == 0
        assert own[1:] != sorted(own[1:])
        assert len(set(own)) == 7


def test_a_start_knows_how_many_spots_each_composition_is_of():
    _, states, truth, *_ = _landscape()
    start = module.start_from_composition(states, truth, 4)
    spots = np.bincount(truth) + start.prior_weight.sum()
    np.testing.assert_allclose(np.exp(start.lam.theta).sum(axis=1), spots)


def test_a_part_of_a_section_has_that_part_of_the_prior():
    _, states, _, xy, graph = _landscape()
    half = np.arange(0, 900, 2)
    whole = module.landscape_of(states, Places(xy), graph, 4)
    part = module.landscape_of(states, Places(xy), graph[half][:, half], 4, spots=half)
    np.testing.assert_allclose(part.prior_weight, 0.5 * whole.prior_weight)


@pytest.mark.parametrize(("n", "weight"), [(400, 1.0), (5_000, 5.0)])
def test_the_prior_of_a_domain_is_a_thousandth_of_the_spots_and_at_least_one(n, weight):
    states = learn_states(_section()[2], 6, seed=0)
    assert module._prior_weight(states._replace(features=np.empty((n, 5)))).sum() == pytest.approx(weight)


def test_a_large_section_whose_spots_are_not_joined_is_averaged_over_the_nearest(monkeypatch):
    """At a beta of 0 there are no edges along which to take means."""
    landscape, _, _, xy, graph = _landscape()
    relative = landscape.as_given(landscape.states.relative)
    alone = Landscape(relative, Places(xy), sp.csr_matrix(graph.shape), 4, landscape.prior_weight)
    (expected,) = map(alone.as_given, profiles(alone, (15,)))
    monkeypatch.setattr(landscape_module, "SAMPLED_FROM", 0)
    (found,) = map(alone.as_given, profiles(alone, (15,)))
    np.testing.assert_array_equal(found, expected)
    assert not np.allclose(found, np.sqrt(alone.as_given(alone.responsibility)), atol=0.1)


@pytest.mark.parametrize("is_large", [False, True])
def test_composition_starts_are_near_the_domains(is_large, monkeypatch):
    if is_large:  # averages are then means along the edges
        monkeypatch.setattr(landscape_module, "SAMPLED_FROM", 0)
    landscape, _, truth, *_ = _landscape()
    labels = composition_labels(landscape, seed=0)
    assert len(labels) == 9
    assert max(adjusted_rand_index(truth, own) for own in labels) > 0.5


def test_the_same_seed_gives_the_same_bits_serially_and_in_parallel():
    from concurrent.futures import ThreadPoolExecutor

    landscape, *_ = _landscape()
    starts = [np.random.default_rng(0).integers(4, size=landscape.n)]
    with ThreadPoolExecutor(1, initializer=run_serially_in_this_thread) as pool:
        alone = pool.submit(lowest, landscape, starts, rounds=3, seed=5).result()
    found = lowest(landscape, starts, rounds=3, seed=5)
    np.testing.assert_array_equal(found.labels, alone.labels)
    np.testing.assert_array_equal(found.composition, alone.composition)
    assert found.ended_at == alone.ended_at


@pytest.mark.parametrize("rounds", [0, 2])
def test_sets_of_states_are_searched_and_the_one_nearest_to_their_consensus_is_taken(rounds):
    xy, truth, x = _section(side=40)
    sets = [learn_states(x, 6, seed=seed) for seed in range(3)]
    graph = scale_weights(mutual_knn(xy, 10), beta=1.0)
    nearest, start, found = search_sets(sets, xy, [graph] * 3, 4, labels=(truth,), rounds=rounds, seed=0)
    alone = [search_compositions(own, Places(xy), graph, 4, labels=(truth,), rounds=rounds, seed=0)[:2] for own in sets]
    assert found.n_proposed == sum(own.n_proposed for _, own in alone)
    agreement = [adjusted_rand_index(start.labels, own.labels) for own, _ in alone]
    assert nearest == int(np.argmax(agreement))
    assert adjusted_rand_index(truth, start.labels) > 0.9
    # posteriors of all searches, in the numbers of the start
    matched = [match_labels(own.labels, start.labels, 4) for _, own in alone]
    mean = np.mean([own.posterior[:, np.argsort(to)] for to, (_, own) in zip(matched, alone, strict=True)], axis=0)
    np.testing.assert_allclose(found.posterior, mean, atol=1e-6)
    assert (found.posterior.argmax(axis=1) == start.labels).mean() > 0.95


def test_proposals_of_all_searches_are_counted(monkeypatch):
    xy, truth, x = _section()
    sets, searched = [learn_states(x, 6, seed=seed) for seed in range(3)], module.search_compositions

    def counted(states, *given, **settings):
        number = next(i for i, own in enumerate(sets) if own is states)
        own = searched(states, *given, **settings)
        return own._replace(found=own.found._replace(n_proposed=10 + number, n_accepted=1 + number))

    monkeypatch.setattr(module, "search_compositions", counted)
    graphs = [scale_weights(mutual_knn(xy, 10), beta=1.0)] * 3
    _, _, found = search_sets(sets, xy, graphs, 4, labels=(truth,), rounds=0, seed=0)
    assert (found.n_proposed, found.n_accepted) == (33, 6)


def test_in_a_section_that_is_not_small_brief_fits_vote_as_well(monkeypatch):
    xy, truth, x = _section(side=40)
    sets = [learn_states(x, 6, seed=seed) for seed in range(3)]
    graphs = [scale_weights(mutual_knn(xy, 10), beta=1.0)] * 3
    rng = np.random.default_rng(0)
    labels = [_wrong_in(truth, stripe, rng) for stripe in range(3)]
    agree, votes = module.consensus, []

    def counted(given, k):
        votes.append(list(given))
        return agree(given, k)

    monkeypatch.setattr(module, "consensus", counted)
    settings = {"labels": labels, "rounds": 1, "seed": 0}
    small = search_sets(sets, xy, graphs, 4, **settings)
    monkeypatch.setattr(module, "SMALL", 100)
    ends = []
    for threads in (1, 4):
        monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda threads=threads: threads)
        ends.append(search_sets(sets, xy, graphs, 4, **settings))
    assert [len(given) for given in votes] == [3, 9, 9]  # three labellings and averages at three scales
    for own, same in zip(votes[0], votes[1], strict=False):
        np.testing.assert_array_equal(own, same)
    brief = votes[1][3:]
    assert min(adjusted_rand_index(truth, own) for own in brief) > 0.6
    assert adjusted_rand_index(truth, ends[0][1].labels) > 0.9
    np.testing.assert_array_equal(ends[0][1].labels, agree(votes[1], 4).labels)  # even where a search lacks less
    np.testing.assert_array_equal(ends[0][1].lam.theta, ends[1][1].lam.theta)
    np.testing.assert_array_equal(ends[0][2].posterior, ends[1][2].posterior)
    assert ends[0][2].n_proposed == small[2].n_proposed


@pytest.mark.usefixtures("usual_defaults")
def test_most_sets_of_states_decide_whether_states_are_distinct(monkeypatch):
    from spatialpdvi.fitting import states
    from spatialpdvi.options.stages import StateSettings
    from spatialpdvi.runtime.progress import Progress

    xy, _, x = _section(side=101)
    one = learn_states(x, 6, seed=0)
    monkeypatch.setattr(states, "are_communities", lambda *_: False)
    monkeypatch.setattr(states, "on_threads", lambda function, tasks: [function(task) for task in tasks])

    def learnt(ambiguities, *, places=xy, molecules=99.0, **settings):
        left = iter(ambiguities)
        monkeypatch.setattr(states, "learn_states", lambda *_, **__: one._replace(ambiguity=next(left)))
        options = {"n_domains": 4, "search": 1, "seed": 0, "n_states": 6, "if_distinct": True} | settings
        section = SimpleNamespace(coordinates=places, spots_of_samples=lambda: [np.arange(len(places))])
        raw = SimpleNamespace(fitted=x, totals=None if molecules is None else np.full(len(x), molecules))
        return [own.ambiguity for own in states.learn_sets(section, raw, StateSettings(**options), 3, Progress())]

    assert learnt([0.4, 0.1, 0.1, 0.4, 0.1, 0.1, 0.4, 0.1]) == [0.4, 0.1, 0.1]
    assert learnt([0.1, 0.4, 0.4, 0.1, 0.4, 0.4, 0.1, 0.4]) == []
    assert learnt([0.4] * 5) == []  # no more are learnt than decide
    assert learnt([0.4, 0.4, 0.4], if_distinct=False) == [0.4, 0.4, 0.4]
    anywhere = np.random.default_rng(0).permutation(xy)  # distinct, but they tell nothing of their neighbours'
    assert learnt([0.1] * 8, places=anywhere) == []
    assert learnt([0.1] * 8, places=anywhere, molecules=100.0) == [0.1] * 3  # many molecules are enough
    assert learnt([0.1] * 8, places=anywhere, molecules=None) == [0.1] * 3
    assert learnt([0.1] * 8, places=anywhere, if_distinct=False) == [0.1] * 3
    assert [(n_deciding_sets(n), n_state_sets(n)) for n in (400, 10_000, 10_001, 19_999, 20_000)] == [
        (8, 15),
        (8, 15),
        (8, 3),
        (8, 3),
        (3, 1),
    ]


@pytest.mark.parametrize(("n_states", "communities"), [(22, True), (23, False)])
def test_states_are_communities_where_there_are_forty_spots_for_each(n_states, communities):
    from spatialpdvi.fitting import states
    from spatialpdvi.initialization.states import states_of_communities
    from spatialpdvi.options.stages import StateSettings
    from spatialpdvi.runtime.progress import Progress

    xy, _, x = _section()  # 900 spots
    section = SimpleNamespace(coordinates=xy, spots_of_samples=lambda: [np.arange(len(xy))])
    settings = StateSettings(n_domains=4, search=1, seed=0, n_states=n_states, if_distinct=False)
    sets = states.learn_sets(section, SimpleNamespace(fitted=x, totals=None), settings, 2, Progress())
    seeds = [0, int(np.random.default_rng(0).integers(2**32))]
    expected = [learn_states(x, n_states, seed=seed) for seed in seeds]
    if communities:
        expected = states_of_communities(x, n_states, seeds=seeds)
    for own, other in zip(sets, expected, strict=True):
        np.testing.assert_array_equal(own.lam.m, other.lam.m)


def _wrong_in(truth, stripe, rng):
    """The truth, where a quarter of the spots are drawn and a stripe is lost to the next one."""
    labels = np.where(rng.random(truth.size) < 0.25, rng.integers(4, size=truth.size), truth)
    return np.where(truth == stripe, (stripe + 1) % 4, labels).astype(np.int8)


def _large(**settings):
    """What a search takes of a section of which a sample is searched, with its truth."""
    _, states, truth, xy, graph = _landscape(side=40, **settings)
    rng = np.random.default_rng(0)
    spots = np.sort(rng.choice(truth.size, 600, replace=False))
    sample = Sample(spots, scale_weights(mutual_knn(xy[spots], 10), beta=1.0))
    return truth, (states, Places(xy), graph, 4), [_wrong_in(truth, stripe, rng) for stripe in range(3)], sample


@pytest.fixture
def large():
    return _large()


def test_fits_of_a_large_section_agree_on_more_than_their_starts_do(large):
    truth, given, labels, sample = large
    start, found, *_ = search_compositions(*given, labels=labels, rounds=1, seed=0, sample=sample)
    assert adjusted_rand_index(truth, start.labels) > max(adjusted_rand_index(truth, own) for own in labels) + 0.1
    np.testing.assert_array_equal(start.labels, found.labels)
    np.testing.assert_allclose(softmax(start.lam.theta, axis=1), found.composition)
    votes = 8.0 * found.posterior  # two of the sample, of three labellings and of averages at three scales
    np.testing.assert_allclose(votes, votes.round(), atol=1e-5)
    np.testing.assert_allclose(votes.sum(axis=1), 8.0, rtol=1e-6)
    assert (found.posterior.argmax(axis=1) == found.labels).mean() > 0.9


def test_a_large_section_has_the_same_bits_for_any_number_of_threads(large, monkeypatch):
    _, (states, places, graph, k), labels, sample = large
    ends = []
    for threads in (1, 4):
        monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda threads=threads: threads)
        ends.append(
            search_sets([states], places.coordinates, [graph], k, labels=labels, rounds=1, seed=3, sample=sample)
        )
    (number, start, found), (_, other_start, other_found) = ends
    assert number == 0
    np.testing.assert_array_equal(start.lam.theta, other_start.lam.theta)
    np.testing.assert_array_equal(found.posterior, other_found.posterior)
    assert found.ended_at == other_found.ended_at


@pytest.mark.parametrize("of_sample", [True, False])
def test_neither_a_sample_nor_the_fits_of_all_spots_decide_alone(large, monkeypatch, of_sample):
    truth, given, labels, sample = large
    if of_sample:  # which then lacks all domains but two
        best = module.lowest

        def poor(landscape, starts, **settings):
            found = best(landscape, starts, **settings)
            return found._replace(composition=found.composition[[0, 1, 1, 1]])

        monkeypatch.setattr(module, "lowest", poor)
    else:
        labels = [np.zeros(truth.size, dtype=np.int8)] * 3
    start, found, landscape = search_compositions(*given, labels=labels, rounds=1, seed=0, sample=sample)
    assert adjusted_rand_index(truth, start.labels) > 0.8
    brief = [landscape.fit(own[landscape.order].astype(np.int64), rounds=4).neg_elbo for own in labels]
    assert found.started_at <= min(brief)


def test_a_single_fit_is_taken_for_a_lower_f_and_as_many_domains(large, monkeypatch):
    truth, given, labels, sample = large
    united = _unite_two_domains_of_the_consensus(monkeypatch)
    start, found, *_ = search_compositions(*given, labels=[truth, *labels], rounds=0, seed=0, sample=sample)
    (agreed,) = united
    assert lacking(agreed, 4) == 1
    assert lacking(start.labels, 4) == 0
    assert adjusted_rand_index(truth, start.labels) > 0.9
    assert found.ended_at == found.started_at


def test_no_single_fit_is_taken_for_a_consensus_with_a_lower_f(monkeypatch):
    """States overlap, so that brief fits from poor labels are worse than what they agree on."""
    agree, agreed = module.consensus, []
    monkeypatch.setattr(module, "consensus", lambda votes, k: agreed.append(agree(votes, k)) or agreed[-1])
    monkeypatch.setattr(module, "_FEW", 2)
    _, given, labels, sample = _large(apart=2.0)
    start, found, landscape = search_compositions(*given, labels=labels, rounds=0, seed=0, sample=sample)
    fit = landscape.fit(agreed[0].labels, rounds=2)
    assert found.ended_at == fit.neg_elbo < found.started_at - 0.5
    np.testing.assert_array_equal(start.labels, landscape.as_given(fit.labels))


def test_a_fit_from_compositions_is_that_of_the_domains_that_have_them():
    landscape, _, truth, *_ = _landscape()
    known = landscape.fit(truth[landscape.order])
    fit = landscape.fit_from(known.composition, rounds=20)
    assert adjusted_rand_index(fit.labels, known.labels) > 0.98
    assert fit.neg_elbo == pytest.approx(known.neg_elbo, rel=1e-3)


def test_the_sample_of_a_joint_fit_joins_no_spots_of_two_sections(monkeypatch):
    from spatialpdvi.fitting import prepare
    from spatialpdvi.io.section.section import Section
    from spatialpdvi.options.fit import FitOptions
    from spatialpdvi.options.stages import GraphSettings

    xy, _, x = _section()
    codes = (np.arange(len(xy)) % 3 == 0).astype(int)  # two sections that lie upon each other
    categories = pd.Categorical.from_codes(codes, ["a", "b"])
    empty = dict.fromkeys(Section._fields)
    given = sp.csr_matrix((len(xy), len(xy)))  # a graph of all spots says nothing of those of a sample
    names = pd.Index(np.arange(len(xy)).astype(str))
    section = Section(**empty | {"coordinates": xy, "samples": categories, "graph": given, "spot_names": names})
    monkeypatch.setattr(prepare, "SAMPLED", 300)
    spots, graph = prepare._sample(section, learn_states(x, 6, seed=0), GraphSettings.of(FitOptions(k=4)), seed=1)
    assert spots.size == 300
    assert (np.diff(spots) > 0).all()
    rows, columns = graph.nonzero()
    assert rows.size > 300
    np.testing.assert_array_equal(codes[spots[rows]], codes[spots[columns]])
    np.testing.assert_allclose((graph - graph.T).data, 0.0, atol=1e-9)


@pytest.mark.parametrize(("search", "n", "rounds"), [(None, 19_999, 10), (None, 20_000, 3), (9, 20_000, 9), (0, 50, 0)])
def test_a_sample_has_fewer_rounds_by_default(search, n, rounds):
    assert search_rounds(search, n) == rounds


def test_distances_are_those_of_spots_as_they_are_and_not_drawn_in():
    x = np.random.default_rng(0).normal(size=(500, 3))
    x[0] = [1e3, -1e3, 0.0]
    states = learn_states(x, 3, seed=0)
    as_they_are = (x - states.limit.centre) @ states.rotation
    expected = nearest_domain(as_they_are, states.lam, states.hyperparameters)
    np.testing.assert_allclose(states.distance, expected, rtol=1e-6)
    assert states.distance[0] > 100.0
    assert np.linalg.norm(states.features[0]) < 20.0


def test_compositions_of_a_fit_are_those_of_its_last_posteriors():
    landscape, *_ = _landscape()
    labels = np.random.default_rng(1).integers(4, size=landscape.n)
    fit = landscape.fit(labels, rounds=1)
    sure = one_hot(labels, 4)
    before = landscape.composed(members(landscape.states, sure, landscape.composed(sure.T @ landscape.responsibility)))
    expected = landscape.composed(members(landscape.states, fit.phi, before))
    np.testing.assert_allclose(fit.composition, expected, rtol=1e-9)


def test_means_along_edges_reach_about_as_many_spots_as_are_asked_for(monkeypatch):
    """A spot is joined to some ten others, and is in its own mean."""
    found = []
    monkeypatch.setattr(landscape_module, "SAMPLED_FROM", 0)
    monkeypatch.setattr(
        landscape_module, "means_along_edges", lambda values, pattern, rounds: found.append(list(rounds)) or iter(())
    )
    list(profiles(_landscape()[0], (15, 30, 60)))
    assert found == [[1, 2, 5]]


def test_a_large_section_keeps_its_domains_where_a_lower_f_lacks_some(monkeypatch):
    two, one, composition = np.repeat([0, 1], 50), np.zeros(100, dtype=np.int64), np.full((2, 3), 1 / 3)

    def fit(labels, *, rounds):
        return Fit(-1.0 if labels.any() else -2.0, labels, np.empty((100, 2)), composition)

    landscape = SimpleNamespace(
        k=2,
        order=np.arange(100),
        fit=fit,
        fit_from=lambda _, rounds: fit(two, rounds=rounds),
        as_given=lambda rows: rows,
    )
    monkeypatch.setattr(module, "_brief_starts", lambda *_, **__: [two, two, one])
    of_sample = search.Found(two, composition, 0.0, 0.0, 0, 0, None)
    found = module._agreed(landscape, [], lambda: of_sample, seed=0)
    assert (found.started_at, found.ended_at) == (-2.0, -1.0)
    np.testing.assert_array_equal(found.labels, two)


def test_labels_settle_where_full_steps_would_exchange_them_for_ever():
    joined = sp.csr_matrix(np.array([[0.0, 4.0], [4.0, 0.0]]))
    np.testing.assert_array_equal(module.settle_labels(np.array([[1.5, 0.0], [0.0, 1.0]]), joined), [0, 0])


def test_a_consensus_is_judged_in_the_order_of_the_landscape(monkeypatch):
    landscape, _, truth, *_ = _landscape()
    fit, fitted = Landscape.fit, []

    def recorded(self, labels, **settings):
        fitted.append(labels)
        return fit(self, labels, **settings)

    monkeypatch.setattr(Landscape, "fit", recorded)
    own = SimpleNamespace(landscape=landscape, start=SimpleNamespace(labels=truth))
    assert module._keeps_domains(truth, own, fitted=True)
    assert not np.array_equal(landscape.order, np.arange(landscape.n))
    np.testing.assert_array_equal(landscape.as_given(fitted[0]), truth)
