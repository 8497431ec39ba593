"""The evidence for numbers of domains that are compositions of states."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln

import spatialpdvi
from spatialpdvi import FitOptions
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import scale_weights
from spatialpdvi.initialization.landscape import Landscape, Places
from spatialpdvi.initialization.states import learn_states
from spatialpdvi.model_selection import evidence as module
from spatialpdvi.model_selection import scan
from spatialpdvi.model_selection.bound import PottsNormaliser
from spatialpdvi.model_selection.evidence import (
    Level,
    complete_evidence,
    levels,
    share_of_evidence,
    strength_of_evidence,
)
from spatialpdvi.model_selection.recommend import recommend_by_evidence
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import single_threaded


def _log_dirichlet_multinomial(counts, prior):
    """Log probability of a sequence of states with these ``counts``, the composition integrated out."""
    total = prior.sum()
    return (gammaln(prior + counts) - gammaln(prior)).sum() + gammaln(total) - gammaln(total + counts.sum())


@pytest.mark.parametrize("strength", [0.0, 0.7])
def test_it_is_a_bound_of_the_sum_over_all_domains_and_states(strength):
    n, k, n_states = 6, 2, 2
    rng = np.random.default_rng(3)
    likelihood = rng.uniform(0.05, 1.0, size=(n, n_states))
    likelihood[:3, 0], likelihood[3:, 1] = 1.0, 1.0
    prior = np.array([0.8, 0.6])
    chain = sp.diags([np.full(n - 1, strength)] * 2, [-1, 1]).tocsr()
    terms = []
    for domains in itertools.product(range(k), repeat=n):
        same = strength * sum(a == b for a, b in itertools.pairwise(domains))
        for states in itertools.product(range(n_states), repeat=n):
            counts = np.zeros((k, n_states))
            np.add.at(counts, (domains, states), 1)
            weight = np.log(likelihood[np.arange(n), states]).sum()
            terms.append(same + weight + sum(_log_dirichlet_multinomial(own, prior) for own in counts))
    exact = -np.logaddexp.reduce(terms)  # without the normaliser of the Potts prior, like the bound
    coordinates = np.column_stack([np.arange(n), np.zeros(n)]).astype(float)
    landscape = Landscape(likelihood, Places(coordinates), chain, k, prior)
    fit = landscape.fit(np.repeat([0, 1], 3)[landscape.order])
    before = fit.phi.copy()
    bound = complete_evidence(landscape, fit)
    np.testing.assert_array_equal(fit.phi, before)  # domains are united from the fit afterwards
    assert exact <= bound < exact + 3.0
    # one domain: the posterior of the domains is exact, and the bound tighter than any mean field of two
    one = landscape.with_domains(1)
    alone = complete_evidence(one, one.fit(np.zeros(n, dtype=np.int64)))
    whole = [
        np.log(likelihood[np.arange(n), states]).sum()
        + _log_dirichlet_multinomial(np.bincount(states, minlength=n_states), prior)
        for states in itertools.product(range(n_states), repeat=n)
    ]
    least = -np.logaddexp.reduce(whole) - strength * (n - 1)
    assert least <= alone < least + 1.0


def test_it_is_exact_for_one_domain_whose_states_are_certain():
    counts, prior = np.array([5, 2, 0]), np.array([0.8, 0.6, 0.3])
    states = np.repeat(np.arange(3), counts)
    coordinates = np.column_stack([np.arange(7.0), np.zeros(7)])
    landscape = Landscape(np.eye(3)[states], Places(coordinates), sp.csr_matrix((7, 7)), 1, prior)
    bound = complete_evidence(landscape, landscape.fit(np.zeros(7, dtype=np.int64)))
    assert bound == pytest.approx(-_log_dirichlet_multinomial(counts, prior), abs=1e-9)


@pytest.fixture(scope="module")
def stripes():
    """Four stripes that are compositions of six well separated states."""
    rng = np.random.default_rng(0)
    axis = np.arange(30, dtype=float)
    coordinates = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = np.minimum((coordinates[:, 0] * 4 / 30).astype(int), 3)
    shares = np.array([0.7, 0.13, 0.07, 0.04, 0.03, 0.03])
    drawn = np.array([rng.choice(6, p=np.roll(shares, domain)) for domain in truth])
    x = 4.0 * rng.normal(size=(6, 5))[drawn] + rng.normal(size=(truth.size, 5))
    return coordinates, truth, x


def _levels(coordinates, x, most, seed=0, beta=1.0):
    with single_threaded():
        states = learn_states(x, 6, seed=seed)
        graph = scale_weights(mutual_knn(coordinates, 10), beta=beta)
        return levels(states, coordinates, graph, most, seed=seed)


def test_it_is_largest_for_the_domains_that_there_are(stripes):
    coordinates, truth, x = stripes
    spots, found = _levels(coordinates, x, 8)
    np.testing.assert_array_equal(spots, np.arange(900))
    assert found[0].k == 1
    assert [level.k for level in found] == sorted({level.k for level in found})
    best = min(found, key=lambda level: level.neg_evidence)
    assert best.k == 4
    joint = np.zeros((4, 4))
    np.add.at(joint, (best.labels, truth), 1)
    assert joint.max(axis=1).sum() / truth.size > 0.95
    share = share_of_evidence(found, range(2, 9))
    assert share.max() == share[2] == 1.0
    assert recommend_by_evidence({"k": np.arange(2, 9), "evidence": share, "n_empty": np.zeros(7)})[0] == 4


def test_levels_are_nested_and_the_same_again(stripes):
    coordinates, _, x = stripes
    _, found = _levels(coordinates, x, 5, seed=1)
    _, again = _levels(coordinates, x, 5, seed=1)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one.labels, other.labels)
        assert one.neg_evidence == other.neg_evidence
    for coarse, fine in itertools.pairwise(found):
        table = np.zeros((coarse.k, fine.k))
        np.add.at(table, (coarse.labels, fine.labels), 1)
        assert table.max(axis=0).sum() / coarse.labels.size > 0.8  # two domains become one; some spots at borders move


def test_of_two_unions_the_one_with_the_lower_f_after_a_fit_is_kept(stripes, monkeypatch):
    """What is promised the other way around does not decide."""
    tried, bases = [], []
    united, promised = module._united, module.unions

    def exchanged(landscape, base):
        bases.append(base.neg_elbo)
        costs = promised(landscape, base)
        best, *_ = ranked = sorted(costs, key=costs.__getitem__)
        return {best: 1.0, ranked[-1]: 0.0}

    def fitted(*given):
        tried.append(united(*given))
        return tried[-1]

    monkeypatch.setattr(module, "unions", exchanged)
    monkeypatch.setattr(module, "_united", fitted)
    coordinates, _, x = stripes
    monkeypatch.setattr(module, "_without_empty", lambda landscape, fit: (fit, landscape))
    _levels(coordinates, x, 3)
    ends = [own.neg_elbo for own in tried[:-1]]  # of two domains there is one union
    assert bases[1:] == [min(pair) for pair in zip(ends[::2], ends[1::2], strict=True)]
    assert any(second < first for first, second in zip(ends[::2], ends[1::2], strict=True))


@pytest.mark.parametrize("side", [30, 60])
def test_the_prior_of_a_composition_is_one_spot_in_a_section_of_any_size(side, monkeypatch):
    weights = []
    monkeypatch.setattr(module, "complete_evidence", lambda landscape, _: weights.append(landscape.prior_weight) or 0.0)
    rng, axis = np.random.default_rng(0), np.arange(float(side))
    coordinates = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    _, found = _levels(coordinates, rng.normal(size=(side**2, 5)) + 4.0 * rng.integers(2, size=(side**2, 5)), 1)
    assert len(weights) == len(found) > 1
    np.testing.assert_allclose([weight.sum() for weight in weights], 1.0)


def test_the_normaliser_of_each_level_is_that_of_its_number_of_domains(stripes, monkeypatch):
    """Of spots that are not joined it is n log k."""
    monkeypatch.setattr(module, "complete_evidence", lambda *_: 0.0)
    coordinates, _, x = stripes
    _, found = _levels(coordinates, x, 4, beta=0.0)
    assert len(found) > 3
    np.testing.assert_allclose([level.neg_evidence for level in found], [900 * np.log(level.k) for level in found])


def test_a_large_section_is_looked_at_in_pieces(stripes, monkeypatch):
    coordinates, _, x = stripes
    monkeypatch.setattr(module, "_SAMPLED", 500)
    monkeypatch.setattr(module, "_PIECE", 60)
    made, seeds = [], []
    landscape_of, labels_of = module.landscape_of, module.composition_labels

    def noted(states, places, graph, k, **settings):
        made.append(graph)
        return landscape_of(states, places, graph, k, **settings)

    def started(landscape, *, seed, **settings):
        seeds.append(seed)
        return labels_of(landscape, seed=seed, **settings)

    monkeypatch.setattr(module, "landscape_of", noted)
    monkeypatch.setattr(module, "composition_labels", started)
    spots, found = _levels(coordinates, x, 6)
    assert 300 < spots.size <= 500
    assert (np.diff(spots) > 0).all()
    assert all(level.labels.size == spots.size for level in found)
    whole, part = made
    assert (whole[spots][:, spots] != part).nnz == 0  # the edges between these spots
    _levels(coordinates, x, 6, seed=1)
    assert len(set(seeds)) == 4  # of the domains of the section, and of the starts, each from the seed


def test_a_piece_is_cut_across_its_longer_side():
    coordinates = np.stack(np.meshgrid(np.arange(9.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    piece = np.flatnonzero(coordinates[:, 0] > 1.0)  # seven columns
    first, second = module._halves(coordinates, piece)
    assert (first.size, second.size) == (14, 14)
    assert coordinates[first, 0].max() <= coordinates[second, 0].min() == 5.0


def test_a_sample_has_pieces_of_every_domain(stripes, monkeypatch):
    coordinates = stripes[0]
    monkeypatch.setattr(module, "_SAMPLED", 200)
    monkeypatch.setattr(module, "_PIECE", 20)
    labels = np.zeros(len(coordinates), dtype=int)
    labels[(coordinates < 6).all(axis=1)] = 1  # a domain that a random piece would hardly meet
    for seed in range(5):
        assert (labels[module._sample(coordinates, labels, np.random.default_rng(seed))] == 1).any()


def test_share_of_a_missing_number_is_that_of_the_one_below():
    def level(k, value):
        return Level(np.arange(k), value)

    share = share_of_evidence([level(1, 100.0), level(2, 40.0), level(4, 0.0), level(5, 10.0)], [2, 3, 4, 5])
    np.testing.assert_allclose(share, [0.6, 0.6, 1.0, 0.9])


def test_no_evidence_for_domains_at_all():
    found = [Level(np.zeros(3, dtype=int), 5.0), Level(np.array([0, 1, 1]), 9.0)]
    np.testing.assert_array_equal(share_of_evidence(found, [2]), [0.0])
    assert strength_of_evidence(found) == 0.0


def test_the_strength_of_evidence_is_what_the_best_number_gains_for_each_spot():
    found = [Level(np.zeros(4, dtype=int), 9.0), Level(np.array([0, 1, 1, 0]), 7.0), Level(np.array([0, 1, 2, 0]), 8.0)]
    assert strength_of_evidence(found) == 0.5


def test_the_normaliser_of_one_domain_is_that_of_equal_neighbours():
    graph = sp.csr_matrix(np.array([[0.0, 1.5], [1.5, 0.0]]))
    assert PottsNormaliser.of(graph, most=1, seed=0).log_partition(1) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("share", "k", "says"),
    [
        # prices above 0.04 choose 3, then 5 down to 0.01, then 6: 0.1, 0.6 and 0.3 of the logarithms of prices
        ([0.6, 0.91, 0.93, 0.99, 1.0], 5, "It has 99% (93% for K = 4, 100% for K = 6). The best is K = 6"),
        (
            [0.6, 0.7, 0.8, 0.9, 1.0],
            6,
            ", 6 are worth having. It has 100% (90% for K = 5). This is the largest K",
        ),
        ([0.2, 0.5, 0.6, 0.4, 0.3], 4, "It has 60% (50% for K = 3, 40% for K = 5)."),
        # another domain brings 0.0125: the prices below it, 0.4 of them, choose 6, and the others 2
        ([0.95, 0.9625, 0.975, 0.9875, 1.0], 3, ", 2 to 6 are worth having, 3 on average. It has 96%"),
        ([0.9, 0.8, 0.7, 0.6, 0.5], 2, "It has 90% (80% for K = 3)."),
    ],
)
def test_the_mean_of_the_numbers_that_are_best_where_domains_have_a_price(share, k, says):
    table = {"k": np.arange(2, 7), "evidence": np.array(share), "n_empty": np.zeros(5)}
    chosen, reason = recommend_by_evidence(table)
    assert chosen == k
    assert says in reason
    assert "smallest K" not in reason  # there are no fewer than two domains


def test_a_number_that_leaves_domains_empty_is_not_taken():
    table = {"k": np.arange(2, 5), "evidence": np.array([0.5, 0.97, 1.0]), "n_empty": np.array([0, 1, 0])}
    number, reason = recommend_by_evidence(table)
    assert number == 4
    assert "It has 100% (97% for K = 3)." in reason
    # the mean may be a number that leaves domains empty: the nearest other is taken
    table = {
        "k": np.arange(2, 7),
        "evidence": np.array([0.0, 0.936, 0.952, 0.968, 1.0]),
        "n_empty": np.array([0, 0, 1, 0, 0]),
    }
    assert recommend_by_evidence(table)[0] == 5
    # and it is none of those that are worth their price, whose mean would be 3
    table = {"k": np.arange(2, 5), "evidence": np.array([0.9, 1.0, 0.5]), "n_empty": np.array([0, 1, 0])}
    assert recommend_by_evidence(table)[0] == 2


@pytest.mark.parametrize(("lack", "empty"), [((True, False, False), 0), ((False, True, True), 1)])
def test_a_number_is_missing_where_most_sets_of_states_lack_it(lack, empty, monkeypatch):
    def found(lacks):
        return [Level(np.arange(60) % k, 100.0 - 20.0 * k) for k in range(1, 6) if not (lacks and k == 4)]

    of_sets = iter([(None, found(lacks)) for lacks in lack])
    monkeypatch.setattr(scan, "levels", lambda *_, **__: next(of_sets))
    monkeypatch.setattr(scan, "join_spots", lambda *_: None)
    monkeypatch.setattr(scan, "layered_edges", lambda *_: None)
    section, sets = SimpleNamespace(coordinates_apart=lambda across: None), [SimpleNamespace(features=None)] * 3
    quiet = SimpleNamespace(advance=lambda *_: None)
    table, _ = scan._evidence(section, FitOptions(k="2:5"), range(2, 6), sets, quiet)
    np.testing.assert_array_equal(table["n_empty"], [0, 0, empty, 0])


def test_the_evidence_is_the_mean_over_sets_of_states(monkeypatch):
    of_sets = iter([[9.0, 1.0, 5.0], [8.0, 6.0, 0.0], [4.0, 3.0, 2.0]])  # shares of (1, 0.5), (0.25, 1), (0.5, 1)

    def found(*_, **__):
        return None, [Level(np.arange(60) % k, value) for k, value in enumerate(next(of_sets), 1)]

    monkeypatch.setattr(scan, "levels", found)
    monkeypatch.setattr(scan, "join_spots", lambda *_: None)
    monkeypatch.setattr(scan, "layered_edges", lambda *_: None)
    section, sets = SimpleNamespace(coordinates_apart=lambda across: None), [SimpleNamespace(features=None)] * 3
    quiet = SimpleNamespace(advance=lambda *_: None)
    table, strength = scan._evidence(section, FitOptions(k="2:3"), range(2, 4), sets, quiet)
    np.testing.assert_allclose(table["evidence"], [1.75 / 3, 2.5 / 3])
    assert strength == pytest.approx((8 + 8 + 2) / 60 / 3)


@pytest.mark.parametrize(
    ("k", "states", "n", "ends"),
    [
        ("2:6", 8, 400, [6]),
        ("2:7", 8, 400, []),  # two states more than domains
        ("2:6", 8, 399, []),  # fifty spots for each
        ("auto", 8, 400, [6]),
        ("auto", 24, 1_200, [20]),
        ("auto", 32, 1_600, [20, 30]),
        ("auto", 32, 1_599, []),
    ],
)
def test_evidence_is_looked_for_where_there_are_states_and_spots_enough(k, states, n, ends):
    section, raw = SimpleNamespace(coordinates=np.zeros((n, 2))), SimpleNamespace(fitted=np.zeros((n, 3)))
    ranges = scan._ranges_of_states(section, raw, FitOptions(k=k, states=states))
    assert ranges == [range(2, end + 1) for end in ends]


def test_states_of_a_range_are_those_of_its_largest_number_with_features_of_its_smallest(monkeypatch):
    """There are as many kinds of neighbourhood as domains in the middle of the range."""
    given = []

    def learnt(section, raw, settings, n_sets, progress, **_):
        given.append((raw, settings.n_states, settings.n_domains, n_sets))
        return []

    monkeypatch.setattr(scan, "learn_sets", learnt)
    monkeypatch.setattr(scan, "covariates_of", lambda *_: None)
    section = SimpleNamespace(coordinates=np.zeros((2000, 2)))
    raw = SimpleNamespace(fitted=np.zeros((2000, 40)), leading=lambda n_components: n_components)
    assert scan._scan_states(section, FitOptions(k="2:30"), raw, Progress()) == (None, "")
    assert given == [(15, 32, 8, 3)]


@pytest.mark.parametrize(("best", "n_looked_at"), [(3, 1), (4, 2)])
def test_a_wider_range_is_looked_at_where_the_evidence_still_rises(best, n_looked_at, monkeypatch):
    looked_at = []

    def table(section, options, counts, sets, stage):
        looked_at.append(counts)
        share = np.where(np.array(counts) == best, 0.9, 0.5)
        return {"k": np.array(counts), "evidence": share, "n_empty": np.zeros(len(counts))}, 1.0

    monkeypatch.setattr(scan, "_ranges_of_states", lambda *_: [range(2, 5), range(2, 7)])
    monkeypatch.setattr(scan, "learn_sets", lambda *_, **__: [None])
    monkeypatch.setattr(scan, "covariates_of", lambda *_: None)
    monkeypatch.setattr(scan, "_evidence", table)
    section = SimpleNamespace(coordinates=np.zeros((2000, 2)))
    raw = SimpleNamespace(fitted=np.zeros((2000, 40)), leading=lambda _: None)
    found, weak = scan._scan_states(section, FitOptions(k="auto"), raw, Progress())
    assert (len(looked_at), weak) == (n_looked_at, "")
    assert found.table["k"].tolist() == list(looked_at[-1])
    assert (found.asked, found.k) == ("auto", best)


@pytest.mark.slow
def test_a_fit_chooses_by_evidence_and_equals_one_with_that_number(tmp_path):
    section = spatialpdvi.simulate(n_spots=900, n_genes=150, k=4, seed=2, signal=2.0, easy=True)
    options = {"states": 8, "n_top_genes": 150, "n_init": 1, "search": 2, "seed": 0}
    chosen = spatialpdvi.fit(section.copy(), k="2:6", **options)
    table = chosen.scan.table
    assert list(table["k"]) == [2, 3, 4, 5, 6]
    assert set(table) == {"k", "evidence", "neg_elbo", "smallest", "n_empty", "persistence"}
    assert 0.95 <= table["evidence"][chosen.scan.k - 2] <= 1.0
    assert abs(chosen.scan.k - 4) <= 1
    plain = spatialpdvi.fit(section.copy(), k=chosen.scan.k, **options)
    np.testing.assert_array_equal(chosen.posterior, plain.posterior)
    few = spatialpdvi.fit(
        section.copy(), k="3:7", **options
    )  # eight states are too few for seven domains and two spare
    assert "found_again" in few.scan.table
    off = spatialpdvi.fit(section.copy(), k="2:5", **(options | {"states": "off", "search": None}))
    assert "found_again" in off.scan.table


@pytest.mark.slow
def test_weak_evidence_leaves_the_choice_to_halves_of_the_data():
    section = spatialpdvi.simulate(n_spots=2000, n_genes=800, k=6, seed=0, signal=2.0)
    options = {"k": "2:4", "n_top_genes": 800, "n_init": 1, "search": 2, "seed": 0}
    scan = spatialpdvi.fit(section, states=20, **options).scan
    assert "found_again" in scan.table
    assert "evidence" not in scan.table
    assert re.match(
        r"The evidence for domains is weak \(0\.0\d nats a spot\), so halves of the data decide\. ", scan.reason
    )


@pytest.mark.parametrize(
    ("share", "chosen", "said"),
    [
        ([0.4, 0.7, 0.8], 8, r".* It has 80% \(70% for K = 7\)\. This is the largest K of the range; a wider range"),
        ([0.9, 0.8, 0.7], 6, r".* It has 90% \(80% for K = 7\)\. This is the smallest K of the range; a wider range"),
        (
            [-0.5, -2.0, -3.0],
            6,
            r"No number of the range explains .* It has none \(none for K = 7\)\. This is the small",
        ),
    ],
)
def test_a_range_without_the_best_number_says_so(share, chosen, said):
    table = {"k": np.arange(6, 9), "evidence": np.array(share), "n_empty": np.zeros(3)}
    number, reason = recommend_by_evidence(table)
    assert number == chosen
    assert re.match(said, reason)


def test_the_best_of_the_first_fits_is_continued(monkeypatch):
    xy = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    x = np.random.default_rng(0).normal(size=(256, 3)) + 6.0 * np.eye(3)[(xy[:, 0] // 6).astype(int)]
    states, graph = learn_states(x, 6, seed=0), scale_weights(mutual_knn(xy, 10), beta=1.0)
    fit, go_on, first, gone_on = Landscape.fit, Landscape.go_on, [], []

    def fitted(self, labels, **settings):
        first.append(fit(self, labels, **settings))
        return first[-1]

    def continued(self, own):
        gone_on.append((own, len(first)))
        return go_on(self, own)

    monkeypatch.setattr(Landscape, "fit", fitted)
    monkeypatch.setattr(Landscape, "go_on", continued)
    levels(states, xy, graph, 3, seed=0)
    ((own, n_first),) = gone_on
    assert n_first == 9
    assert own.neg_elbo == min(found.neg_elbo for found in first[:n_first])


def test_the_smallest_domain_of_a_number_is_told():
    found = [Level(np.repeat(np.arange(k), [60 - 5 * (k - 1)] + [5] * (k - 1)), 100.0 - k) for k in range(1, 5)]
    np.testing.assert_array_equal(scan._measured([found], range(2, 5))["smallest"], [5, 5, 5])
