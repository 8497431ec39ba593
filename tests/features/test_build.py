"""Features before and after smoothing: which of them are a matrix of the file, unchanged, and need not be written."""

from contextlib import nullcontext

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from conftest import plain_section

from spatialpdvi import FitOptions, InputError, InputWarning
from spatialpdvi.features.build import raw_features
from spatialpdvi.features.smoothing import neighbor_averages, smooth_features
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.options.stages import FeatureSettings, SmoothingSettings
from spatialpdvi.runtime.progress import Progress


def _features(adata, **chosen):
    options = FitOptions(k=3, **chosen)
    section = read_inputs(AnnDataSource(adata), options)
    raw = raw_features(section, FeatureSettings.of(options), Progress())
    return section, raw, smooth_features(section, raw, SmoothingSettings.of(options), Progress())


@pytest.fixture
def section(toy_section):
    section = toy_section.copy()
    rng = np.random.default_rng(0)
    section.obsm["narrow"] = rng.normal(size=(section.n_obs, 5))
    section.obsm["wide"] = rng.normal(size=(section.n_obs, 61)).astype(np.float32)
    section.obsm["sparse"] = sp.csr_matrix(rng.poisson(0.1, size=(section.n_obs, 70)).astype(np.float32))
    section.obs["part"] = np.where(np.arange(section.n_obs) % 2, "a", "b")
    return section


@pytest.mark.parametrize("rep", ["narrow", "wide", "sparse"])
def test_given_columns_stay_as_given_without_smoothing(section, rep):
    read, raw, smoothed = _features(section, rep=rep, smooth=0)
    assert smoothed.as_given
    assert (raw.full is None) == (rep == "narrow")
    assert abs(smoothed.fitted - read.features).max() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"rep": "narrow", "smooth": 4},
        {"rep": "wide", "smooth": 4},
        {"rep": "narrow", "smooth": 0, "n_pcs": 4},
        {"rep": "narrow", "smooth": 0, "correct": "center", "sample_key": "part"},
        {"rep": "wide", "smooth": 0, "correct": "center", "sample_key": "part"},
        {"smooth": 0, "n_top_genes": 100},
        {"smooth": 0, "n_pcs": 0, "n_top_genes": 100},
    ],
    ids=str,
)
def test_other_features_are_not(section, options):
    some = nullcontext()
    if options.get("rep") == "narrow" and "n_pcs" in options:
        some = pytest.warns(InputWarning, match="are no principal components. The first 4 of 5")
    with some:
        assert not _features(section, **options)[2].as_given


@pytest.mark.parametrize(("smooth", "expected"), [(None, 100), (30, 60), (150, 150)])
def test_restarts_average_over_no_more_than_half_a_domain_or_what_was_asked_for(section, monkeypatch, smooth, expected):
    """Columns without any pattern in space ask for as many spots as they may have, 100 of 600 with three domains."""
    counts = []

    def noted(features, coordinates, numbers, **settings):
        counts.extend(numbers)
        return neighbor_averages(features, coordinates, numbers, **settings)

    monkeypatch.setattr("spatialpdvi.features.smoothing.neighbor_averages", noted)
    found = _features(section, rep="narrow", smooth=smooth)[2].found["smooth"]
    assert found in counts
    assert max(counts) == expected < 2 * found + 1


def test_columns_far_from_zero_are_shifted_and_not_as_given(section):
    section.obsm["narrow"] += 1e3
    _, raw, smoothed = _features(section, rep="narrow", smooth=0)
    assert not smoothed.as_given
    np.testing.assert_allclose(raw.origin, section.obsm["narrow"].mean(axis=0))


@pytest.mark.parametrize(("constant", "is_far"), [(5.0, False), (1e5, True)])
def test_a_constant_column_far_from_zero_takes_no_digits_from_the_others(section, constant, is_far):
    section.obsm["narrow"][:, 2] = constant
    raw = _features(section, rep="narrow", smooth=0)[1]
    assert (raw.origin is not None) == is_far
    assert (raw.components[:, 2] == (0.0 if is_far else constant)).all()


def test_sparse_columns_are_not_smoothed_or_centred_but_their_components_are(section):
    with pytest.warns(InputWarning, match="are sparse, so that `correct='center'` cannot subtract anything"):
        read, raw, smoothed = _features(section, rep="sparse", smooth=4, correct="center", sample_key="part")
    assert smoothed.as_given
    assert (smoothed.fitted != read.features).nnz == 0
    assert not np.array_equal(smoothed.components, raw.components)
    halves = [raw.components[spots].mean(axis=0) for spots in read.spots_of_samples()]
    np.testing.assert_allclose(*halves, atol=1e-5)


def test_leading_components_lose_the_space_of_all(section):
    _, raw, _ = _features(section, n_top_genes=100)
    assert raw.space is not None
    assert raw.leading(raw.components.shape[1]) is raw
    some = raw.leading(4)
    assert some.space is None
    np.testing.assert_array_equal(some.fitted, raw.components[:, :4])


def test_totals_of_the_selected_genes_are_those_of_scanpy_after_selection(section):
    """Genes first, then totals: what `sc.pp.normalize_total` does on a section that was cut to its genes."""
    options = {"n_top_genes": 60, "totals": "selected", "transform": "log1p", "n_pcs": 0, "clip": 3.0}
    read, raw, _ = _features(section, **options)
    adata = section.copy()
    adata.X = read.counts.astype(np.float32)
    sc.pp.highly_variable_genes(adata, n_top_genes=60, flavor="seurat_v3", subset=True)
    sc.pp.normalize_total(adata, target_sum=1e4)
    sc.pp.log1p(adata)
    sc.pp.scale(adata, zero_center=False, max_value=3.0)
    scaled = sp.csr_matrix(adata.X).toarray()
    varying = np.ptp(scaled, axis=0) > 0  # a gene above the clip in every spot tells no domains apart
    np.testing.assert_allclose(raw.full.toarray(), scaled[:, varying], rtol=1e-4, atol=1e-5)
    everything = _features(section, **(options | {"totals": "all"}))[1]
    assert abs(everything.full - raw.full).max() > 0.1


def test_too_few_selected_genes_are_told_by_their_option(section):
    with pytest.raises(
        InputError, match=r"^Expected at least 2 genes that vary .* 1 with `n_top_genes=1`\. Raise it\.$"
    ):
        _features(section, n_top_genes=1)


def test_another_section_is_normalised_by_the_selected_genes_as_well(section):
    read, raw, _ = _features(section, n_top_genes=60, totals="selected", smooth=0)
    genes = raw.space.genes
    assert set(genes.counted) >= set(genes.genes)
    assert genes.counted.size == 60
    np.testing.assert_allclose(genes.apply(read.counts, pd.Index(read.gene_names))[0], raw.components, atol=1e-3)


@pytest.mark.filterwarnings("ignore:5 of 6 sections")  # have a single spot, as they should here
def test_half_the_spots_that_a_domain_has_in_a_section_are_averaged_at_most(section):
    """Spots in sections of their own are no reason to average over fewer: what counts is where the average spot is."""
    section.obsm["noise"] = np.random.default_rng(1).normal(size=(section.n_obs, 5))  # the mean of all predicts best
    number = np.arange(section.n_obs)
    section.obs["halves"] = np.where(number % 2, "a", "b")
    section.obs["five_apart"] = np.where(number < 5, number, -1).astype(str)
    found = {
        key: _features(section, rep="noise", sample_key=key)[2].found["smooth"] for key in ("halves", "five_apart")
    }
    assert 30 <= found["halves"] <= 300 / 3 / 2 < found["five_apart"] <= 600 / 3 / 2


def test_a_constant_column_is_not_far_from_zero():
    adata = plain_section(n=40)
    adata.obsm["mine"] = np.column_stack([np.random.default_rng(0).normal(size=(40, 3)), np.full(40, 5.0)])
    options = FitOptions(k=2, rep="mine", smooth=0)
    section = read_inputs(AnnDataSource(adata), options)
    raw = raw_features(section, FeatureSettings.of(options), Progress())
    assert raw.origin is None
    assert raw.as_given


def test_the_space_of_far_columns_knows_what_was_subtracted():
    adata = plain_section(n=40)
    adata.obsm["mine"] = np.random.default_rng(0).normal(size=(40, 3)) + 1e3
    options = FitOptions(k=2, rep="mine", smooth=0)
    raw = raw_features(read_inputs(AnnDataSource(adata), options), FeatureSettings.of(options), Progress())
    np.testing.assert_allclose(raw.space.origin, adata.obsm["mine"].mean(axis=0))
    np.testing.assert_allclose(raw.space.centre, 0.0, atol=1e-6)


def test_many_given_columns_are_centred_in_each_section():
    rng = np.random.default_rng(0)
    adata = ad.AnnData(sp.csr_matrix(np.ones((80, 2), dtype=np.float32)))
    adata.obsm["spatial"] = rng.random((80, 2))
    adata.obs["part"] = np.repeat(["a", "b"], 40)
    adata.obsm["wide"] = rng.normal(size=(80, 61)) + np.repeat([0.0, 2.0], 40)[:, None]
    options = FitOptions(k=2, rep="wide", smooth=0, correct="center", sample_key="part")
    raw = raw_features(read_inputs(AnnDataSource(adata), options), FeatureSettings.of(options), Progress())
    assert raw.full is not None
    for fitted in (raw.full, raw.components):
        np.testing.assert_allclose(fitted[:40].mean(axis=0), fitted[40:].mean(axis=0), atol=1e-5)


def test_spots_without_counts_are_told_where_counts_are_read_block_by_block(tmp_path):
    adata = plain_section(n=40)
    counts = adata.X.toarray()
    counts[[5, 7]] = 0
    adata.X = sp.csr_matrix(counts)
    adata.write_h5ad(tmp_path / "a.h5ad")
    options = FitOptions(k=2, memory="1KB")
    with H5adSource(tmp_path / "a.h5ad") as source:
        section = read_inputs(source, options)
    assert not isinstance(section.counts, sp.csr_matrix)
    with pytest.warns(InputWarning, match=r"^2 of 40 spots have no counts \(first: '5'\)"):
        raw_features(section, FeatureSettings.of(options), Progress())
