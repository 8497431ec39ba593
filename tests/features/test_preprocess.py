"""The paper's preprocessing, against scanpy called by hand on dense data."""

import anndata
import numpy as np
import pytest
import scanpy as sc
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.projection import principal_components
from spatialpdvi.features.scaling import normalised_genes, pearson_residuals, scaled_genes, take_genes
from spatialpdvi.features.selection import select_genes, tally
from spatialpdvi.options.fit import FitOptions


def _counts(n=300, genes=400, seed=0):
    rng = np.random.default_rng(seed)
    rate = (0.1 + rng.gamma(0.5, 2.0, size=genes)) * rng.gamma(3.0, 0.4, size=(n, 1))
    rate[: n // 2, : genes // 10] *= 4.0
    return sp.csr_matrix(rng.poisson(rate).astype(np.float32))


def _scaled(counts, genes, *, transform="none", clip=10.0):
    taken, totals = take_genes(counts, genes), tally(counts).totals
    return scaled_genes(normalised_genes(taken, totals, target_sum=1e4, transform=transform), genes, clip=clip)


def test_genes_are_scanpys_seurat_v3():
    counts = _counts()
    table = sc.pp.highly_variable_genes(
        anndata.AnnData(counts.copy()), flavor="seurat_v3", n_top_genes=50, inplace=False
    )
    np.testing.assert_array_equal(select_genes(tally(counts), 50), np.flatnonzero(table["highly_variable"]))


def test_fewer_genes_than_asked_for_are_all_used_and_said():
    counts = _counts(genes=30)
    with pytest.warns(InputWarning, match=r"^The section has 30 genes, fewer than `n_top_genes=5000`; all are used\.$"):
        assert select_genes(tally(counts), 5000).size == 30
    assert select_genes(tally(counts), FitOptions.n_top_genes).size == 30  # a default is no wish: no warning


def test_genes_that_nobody_expresses_are_left_out():
    counts = _counts().tolil()
    counts[:, 7] = 0
    assert 7 not in select_genes(tally(sp.csr_matrix(counts)), 399)
    with pytest.raises(InputError, match=r"Expected at least one gene with counts, found only zeros\. Check `layer`\."):
        select_genes(tally(sp.csr_matrix((5, 4), dtype=np.float32)), 2)


@pytest.mark.parametrize("n", [20, 60])
def test_few_spots_still_have_a_variance_trend(n):
    assert select_genes(tally(_counts(n=n)), 100).size == 100


@pytest.mark.parametrize(("transform", "function"), [("none", np.asarray), ("log1p", np.log1p), ("sqrt", np.sqrt)])
def test_scaled_values_are_the_recipe_written_out(transform, function):
    counts, genes = _counts(), np.arange(0, 400, 3)
    dense = counts.toarray().astype(float)
    values = function(dense / dense.sum(axis=1, keepdims=True) * 1e4)[:, genes]
    expected = np.minimum(values / values.std(axis=0, ddof=1), 2.0)
    scaled = _scaled(counts, genes, transform=transform, clip=2.0).values
    assert scaled.dtype == np.float32
    assert scaled.nnz == (dense[:, genes] > 0).sum()
    np.testing.assert_allclose(scaled.toarray(), expected, rtol=2e-4, atol=1e-5)


def test_pearson_residuals_are_their_formula():
    counts, genes = _counts(), np.arange(0, 400, 3)
    x = counts[:, genes].toarray().astype(float)
    expected = x.sum(axis=1, keepdims=True) * x.sum(axis=0) / x.sum()
    residuals = (x - expected) / np.sqrt(expected + expected**2 / 100.0)
    limit = np.sqrt(len(x))
    found = pearson_residuals(counts, genes)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.clip(residuals, -limit, limit), rtol=1e-4, atol=1e-4)


def test_pearson_residuals_of_what_was_not_counted_are_zero():
    counts = _counts().tolil()
    counts[3] = 0
    counts[:, 7] = 0
    found = pearson_residuals(sp.csr_matrix(counts), np.arange(400))
    assert (found[3] == 0).all()
    assert (found[:, 7] == 0).all()
    assert np.isfinite(found).all()


def test_a_spot_without_counts_stays_zero():
    counts = _counts().tolil()
    counts[3] = 0
    scaled = _scaled(sp.csr_matrix(counts), np.arange(400)).values
    assert scaled[3].nnz == 0
    assert np.isfinite(scaled.data).all()


def test_the_input_is_not_written():
    counts = _counts()
    before = counts.copy()
    _scaled(counts, select_genes(tally(counts), 50))
    assert (abs(counts - before) > 0).nnz == 0


def test_components_are_those_of_the_centred_matrix():
    scaled = _scaled(_counts(), np.arange(400)).values
    scores = principal_components(scaled, 5, seed=0).scores
    dense = scaled.toarray().astype(float)
    u, s, _ = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(scores), np.abs(u[:, :5] * s[:5]), rtol=1e-3, atol=1e-3)
    assert scores.dtype == np.float32


def test_components_are_at_most_one_less_than_the_smaller_side():
    assert principal_components(_counts(n=12), 15, seed=0).scores.shape == (12, 11)
    with pytest.raises(InputError, match=r"Expected at least 2 spots and 2 features that vary .*, found 1 and 400\."):
        principal_components(_counts(n=1), 3, seed=0)


def test_features_that_never_vary_have_no_components():
    with pytest.raises(InputError, match=r"Expected features that vary between spots, found only constant ones\."):
        principal_components(sp.csr_matrix(np.ones((9, 5), dtype=np.float32)), 3, seed=0)


def test_genes_that_the_clip_makes_constant_are_left_out():
    """Uncentred, they would weigh in with a tiny noise sd and a huge mean, and tell nothing."""
    counts = _counts().tolil()
    counts[:, 5] = 500
    scaled = _scaled(sp.csr_matrix(counts), np.arange(400), transform="log1p", clip=2.0).values
    dense = scaled.toarray()
    assert scaled.shape[1] < 400
    assert (np.ptp(dense, axis=0) > 0).all()


def test_large_counts_are_clipped_as_scanpy_clips_them():
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(2.0, 4.0, size=300), size=(60, 300)).astype(np.float32)
    counts[rng.integers(60, size=150), np.arange(150)] *= rng.integers(3, 12, size=150)
    matrix = sp.csr_matrix(counts)
    table = sc.pp.highly_variable_genes(
        anndata.AnnData(matrix.copy()), flavor="seurat_v3", n_top_genes=60, inplace=False
    )
    np.testing.assert_array_equal(select_genes(tally(matrix), 60), np.flatnonzero(table["highly_variable"]))
