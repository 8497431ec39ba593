"""The complete bound against sums over everything, on problems small enough for that."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import multivariate_normal, norm

from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import scale_weights
from spatialpdvi.model_selection.bound import PottsNormaliser, complete_bound


def _graph(n, edges, weight):
    rows, columns = zip(*edges, strict=True)
    half = sp.csr_matrix((np.broadcast_to(weight, len(edges)).astype(float), (rows, columns)), shape=(n, n))
    return (half + half.T).tocsr()


def _log_partition_by_sum(graph, k):
    upper = sp.triu(graph, k=1).tocoo()
    energies = [
        sum(w for i, j, w in zip(upper.row, upper.col, upper.data, strict=True) if zeta[i] == zeta[j])
        for zeta in product(range(k), repeat=graph.shape[0])
    ]
    return float(np.logaddexp.reduce(energies))


RING = [(i, (i + 1) % 6) for i in range(6)] + [(0, 3)]


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize(("weight", "within"), [(1e-9, 1e-6), (0.2, 0.15), (2.0, 0.25), (6.0, 0.02), (30.0, 1e-6)])
def test_the_potts_normaliser_is_that_of_the_sum_over_all_labellings(k, weight, within):
    graph = _graph(6, RING, weight)
    assert PottsNormaliser.of(graph, most=k, seed=0).log_partition(k) == pytest.approx(
        _log_partition_by_sum(graph, k), abs=within
    )


def test_spots_that_stand_alone_or_in_pairs_are_counted_for_many_domains():
    """Of pairs the sum is known. With K = 20 two cumulants of the number of pieces would miss half of what is above."""
    graph = _graph(2_000, [(i, i + 1) for i in range(0, 2_000, 2)], 4.0)
    for k in (2, 7, 20):
        found = PottsNormaliser.of(graph, most=20, seed=0).log_partition(k)
        assert found == pytest.approx(1_000 * np.log(k * (np.exp(4.0) + k - 1)), rel=2e-3)


def test_it_is_above_the_bound_of_spots_that_stand_alone():
    """A spot that stands alone makes it likelier that others do: ``log E[K^C]`` is at least a sum over spots."""
    graph = scale_weights(mutual_knn(np.random.default_rng(0).random((2_000, 2)), 10), beta=1.0)
    weight = np.asarray(graph.sum(axis=1)).ravel()
    assert weight.mean() == pytest.approx(7)
    for k in (2, 10, 20):
        found = PottsNormaliser.of(graph, most=20, seed=0).log_partition(k)
        alone = np.log1p((k - 1) * np.exp(-weight)).sum()
        assert 1.05 * alone < found - graph.sum() / 2 < 1.6 * alone


def test_more_domains_than_were_drawn_are_refused():
    with pytest.raises(ValueError, match="for at most 3 domains, not 4"):
        PottsNormaliser.of(sp.csr_matrix((5, 5)), most=3, seed=0).log_partition(4)


def test_a_seed_draws_the_same_pieces_again_and_another_seed_others():
    graph = _graph(6, RING, 0.2)
    first, again, other = (PottsNormaliser.of(graph, most=3, seed=seed) for seed in (0, 0, 1))
    assert first == again != other


def test_isolated_spots_count_k_each():
    assert PottsNormaliser.of(sp.csr_matrix((5, 5)), most=3, seed=0).log_partition(3) == pytest.approx(5 * np.log(3))


def test_on_a_lattice_with_weights_as_ours_are_next_to_nothing_is_drawn():
    axis = np.arange(30.0)
    graph = 2.0 * mutual_knn(np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2), 10)
    values = [PottsNormaliser.of(graph, most=7, seed=seed).log_partition(7) for seed in range(3)]
    assert values == pytest.approx([graph.sum() / 2 + np.log(7)] * 3, abs=0.5)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_bound_is_the_expectation_of_all_densities(toy, rotated, sparse):
    """Every expectation written out with scipy's densities; of q(c) by its moments, which are exact."""
    rng = np.random.default_rng(0)
    (n, d), k = toy.x.shape, toy.phi.shape[1]
    phi = rng.dirichlet(np.ones(k), size=n)
    m, rho = toy.lam
    noise, prior, xi = toy.hyper
    graph = sp.csr_matrix(toy.r)
    likelihood = sum(
        phi[:, c] @ (norm.logpdf(toy.x, m[c], noise) - 0.5 * np.exp(rho[c]) / noise**2).sum(axis=1) for c in range(k)
    )
    means = (norm.logpdf(m, xi, prior) - 0.5 * np.exp(rho) / prior**2).sum()
    entropy = -(phi * np.log(phi)).sum() + norm(0.0, np.exp(0.5 * rho)).entropy().sum()
    potts = 0.5 * np.einsum("ij,ik,jk->", toy.r, phi, phi) - PottsNormaliser.of(graph, most=k, seed=1).log_partition(k)
    expected = likelihood + means + entropy + potts
    rotation = None
    if rotated:
        rotation = rng.normal(size=(d, d))
        expected += n * np.log(abs(np.linalg.det(rotation)))
    found = complete_bound(
        toy.problem.evaluate(phi, toy.lam).neg_elbo,
        sp.csr_matrix(toy.x) if sparse else toy.x,
        graph,
        k=k,
        hyperparameters=toy.hyper,
        rotation=rotation,
        seed=1,
    )
    assert found == pytest.approx(-expected, rel=1e-9)


def test_it_is_above_the_evidence_that_can_be_summed():
    """Of six spots and one feature the evidence is a sum over labellings of Gaussian marginals."""
    rng = np.random.default_rng(3)
    x, k = rng.normal(size=(6, 1)) + np.repeat([0.0, 3.0], 3)[:, None], 2
    graph = _graph(6, RING, 0.7)
    from spatialpdvi.graph.patches import make_patches
    from spatialpdvi.initialization.start import start_from_labels
    from spatialpdvi.problems.features import wrap_features
    from spatialpdvi.problems.potts_mixture import PottsMixture, one_hot

    labels = np.repeat([0, 1], 3)
    begin = start_from_labels(x, labels, k)
    noise, prior, xi = begin.hyperparameters
    terms = []
    for zeta in product(range(k), repeat=6):
        same = np.equal.outer(zeta, zeta)
        covariance = noise[0] ** 2 * np.eye(6) + prior[0] ** 2 * same
        pull = 0.5 * (graph.toarray() * same).sum()
        terms.append(multivariate_normal.logpdf(x[:, 0], np.full(6, xi[0]), covariance) + pull)
    evidence = np.logaddexp.reduce(terms) - _log_partition_by_sum(graph, k)
    patching = make_patches(np.stack([np.arange(6.0), np.zeros(6)], axis=1), graph, 1)
    problem = PottsMixture(wrap_features(x[patching.order]), patching.patches, begin.hyperparameters)
    f = problem.evaluate(one_hot(labels[patching.order], k), begin.lam).neg_elbo
    bound = complete_bound(f, x, graph, k=k, hyperparameters=begin.hyperparameters, rotation=None, seed=0)
    assert -evidence < bound < -evidence + 5.0


def test_the_normaliser_of_many_pairs_of_spots():
    """Spots of a pair join again after the edge between them was closed, and the draws before that do not count."""
    n, weight = 20_000, 4.0
    found = PottsNormaliser.of(_graph(n, [(i, i + 1) for i in range(0, n, 2)], weight), most=20, seed=0)
    for k in (7, 20):
        joined = n / 2 * (np.log(k) + weight)
        expected = n / 2 * np.log(k * (np.exp(weight) + k - 1)) - joined
        assert found.log_partition(k) - joined == pytest.approx(expected, rel=0.01)
