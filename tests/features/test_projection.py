"""What is learnt from one section's PCA is that PCA, for that section and for others."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA

from spatialpdvi.features.correction import centre_samples
from spatialpdvi.features.projection import learn_limit, learn_projection, principal_components
from spatialpdvi.features.scaling import normalised_genes, scaled_genes, take_genes
from spatialpdvi.features.selection import select_genes, tally


def _counts(n=200, genes=80, seed=0):
    rng = np.random.default_rng(seed)
    rate = (0.2 + rng.gamma(0.5, 2.0, size=genes)) * rng.gamma(3.0, 0.4, size=(n, 1))
    rate[: n // 2, : genes // 4] *= 4.0
    return sp.csr_matrix(rng.poisson(rate).astype(np.float32))


NAMES = pd.Index([f"g{i}" for i in range(80)])


def _learn(counts, *, transform="none", clip=10.0):
    recipe = {"target_sum": 1e4, "transform": transform}
    tallied = tally(counts)
    genes = select_genes(tallied, 60)
    scaled = scaled_genes(normalised_genes(take_genes(counts, genes), tallied.totals, **recipe), genes, clip=clip)
    pca = principal_components(scaled.values, 6, seed=0)
    return learn_projection(scaled, pca, NAMES, counted=np.arange(80), clip=clip, **recipe), pca.scores


@pytest.mark.parametrize("transform", ["none", "log1p", "sqrt"])
@pytest.mark.parametrize("clip", [10.0, 1.5])
def test_the_section_itself_has_the_scores_of_its_pca(transform, clip):
    counts = _counts()
    learnt, scores = _learn(counts, transform=transform, clip=clip)
    np.testing.assert_allclose(learnt.apply(counts, NAMES)[0], scores, atol=1e-4)
    # to the digits of the scores they were learnt from, which are float32
    np.testing.assert_allclose(learnt.components @ learnt.components.T, np.eye(6), atol=1e-5)


@pytest.mark.parametrize("clip", [10.0, 1.5])
def test_components_of_products_are_those_of_the_singular_value_decomposition(monkeypatch, clip):
    counts, genes = _counts(n=700), np.arange(80)
    values = normalised_genes(take_genes(counts, genes), tally(counts).totals, target_sum=1e4, transform="log1p")
    scaled = scaled_genes(values, genes, clip=clip).values
    by_steps = principal_components(scaled, 6, seed=0)
    monkeypatch.setattr("spatialpdvi.options.stages._TALL", 1)
    by_products = principal_components(scaled, 6, seed=0)
    centred = scaled.toarray().astype(float) - scaled.toarray().mean(axis=0, dtype=float)
    left, singular, right = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign((right[:6] * by_products.loadings).sum(axis=1))
    np.testing.assert_allclose(by_products.loadings, right[:6] * signs[:, None], atol=1e-10)
    np.testing.assert_allclose(by_products.scores, left[:, :6] * singular[:6] * signs, atol=1e-4)
    np.testing.assert_allclose(by_products.mean, by_steps.mean, rtol=1e-12)
    np.testing.assert_allclose(by_products.scores, by_steps.scores, atol=1e-3)  # signs as well


def test_another_section_goes_the_way_written_out():
    learnt, _ = _learn(_counts(), transform="log1p", clip=2.0)
    other = _counts(n=50, seed=1)
    dense = other.toarray().astype(float)
    values = np.log1p(1e4 * dense / dense.sum(axis=1, keepdims=True))[:, NAMES.get_indexer(learnt.genes)]
    expected = (np.minimum(values / learnt.sd, 2.0) - learnt.mean) @ learnt.components.T
    found, totals = learnt.apply(other, NAMES)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(totals, dense.sum(axis=1))


def test_order_and_strangers_among_the_genes_do_not_matter():
    counts = _counts()
    learnt, _ = _learn(counts)
    turned = sp.csr_matrix(sp.hstack([counts[:, ::-1], sp.csr_matrix(np.full((200, 3), 7.0, dtype=np.float32))]))
    names = NAMES[::-1].append(pd.Index(["x", "y", "z"]))
    found, totals = learnt.apply(turned, names)
    expected = learnt.apply(counts, NAMES)
    np.testing.assert_allclose(found, expected[0], atol=1e-4)
    np.testing.assert_array_equal(totals, expected[1])  # without the strangers' counts


def test_a_gene_that_is_missing_counts_as_zero():
    counts = _counts()
    learnt, _ = _learn(counts)
    gone = NAMES.get_loc(learnt.genes[5])
    kept = np.delete(np.arange(80), gone)
    never = counts.tolil()
    never[:, gone] = 0
    expected, _ = learnt.apply(sp.csr_matrix(never), NAMES)
    np.testing.assert_allclose(learnt.apply(counts[:, kept], NAMES[kept])[0], expected, atol=1e-5)


def test_spots_without_counts_are_zeros_before_the_projection():
    counts = _counts().tolil()
    learnt, _ = _learn(_counts())
    counts[3] = 0
    found, _ = learnt.apply(sp.csr_matrix(counts), NAMES)
    np.testing.assert_allclose(found[3], -learnt.components @ learnt.mean, rtol=1e-5)


def test_sections_are_centred_at_the_mean_of_all_or_at_another():
    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    samples = [np.arange(4), np.arange(4, 9)]
    for centre, expected in ((None, x.mean(axis=0)), (np.array([3.0, -1.0]), [3.0, -1.0])):
        centred = centre_samples(x, samples, centre)
        assert centred.dtype == np.float32
        for spots in samples:
            np.testing.assert_allclose(centred[spots].mean(axis=0), expected, atol=1e-6)
            np.testing.assert_allclose(np.ptp(centred[spots] - x[spots], axis=0), 0.0, atol=1e-6)


@pytest.mark.parametrize("form", [sp.csr_matrix, np.asarray])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_components_are_those_of_scikit_learn(form, kind):
    values = _counts().toarray().astype(kind)
    found = principal_components(form(values), 6, seed=3)
    expected = PCA(6, svd_solver="arpack", random_state=3)
    scores = expected.fit_transform(form(values))
    digits = 2e-4 if kind is np.float32 else 1e-6
    np.testing.assert_allclose(found.scores, scores, atol=digits * np.abs(scores).max())
    np.testing.assert_allclose(found.loadings, expected.components_, atol=digits)
    np.testing.assert_allclose(found.mean, values.mean(axis=0, dtype=float), rtol=1e-6)
    assert found.scores.dtype == np.float32
    assert found.loadings.dtype == np.float64


def test_far_spots_are_drawn_in_along_the_line_to_the_median():
    x = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 10.0, 0.1] + 5.0
    x[0] += [100.0, 1000.0, 10.0]
    limit = learn_limit(x)
    found, centred = limit.apply(x), x - np.median(x, axis=0)
    distance = np.sqrt(((centred / limit.spread) ** 2).sum(axis=1))
    far = distance > limit.limit
    assert far[0]
    assert 0 < far.sum() <= 6
    np.testing.assert_allclose(found[~far], centred[~far])
    np.testing.assert_allclose(np.sqrt(((found[far] / limit.spread) ** 2).sum(axis=1)), limit.limit)
    np.testing.assert_allclose(found[0] / centred[0], limit.limit / distance[0])


def test_a_column_of_mostly_equal_values_has_a_spread_of_its_own():
    """The median of its absolute deviations is 0; in another unit it would decide which spots lie far away."""
    x = np.random.default_rng(0).normal(size=(500, 2)) * [1.0, 1e3]
    x[:300, 1] = 0.0
    assert learn_limit(x).spread[1] == pytest.approx(0.1 * x[:, 1].std(), rel=0.05)
