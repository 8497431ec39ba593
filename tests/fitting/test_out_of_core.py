"""A fit whose counts are read block by block is the fit in memory, to the last bit."""

import re

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spatialpdvi import FitOptions, fit_file, fit_files, predict_file
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features import scaling
from spatialpdvi.io.formats import streaming
from spatialpdvi.runtime import memory

pytestmark = pytest.mark.slow

FAST = {"k": 3, "n_init": 1, "max_epochs": 20, "tol": 1e-3, "n_top_genes": 100}
FEATURES = {"k": 4, "n_init": 2, "tol": 1e-3, "rep": "X_pca"}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_VALUES", 3000)


def _assert_same(a, b):
    np.testing.assert_array_equal(a.posterior, b.posterior)
    np.testing.assert_array_equal(a.domain_mean, b.domain_mean)
    np.testing.assert_array_equal(a.trace["neg_elbo"], b.trace["neg_elbo"])


@pytest.mark.parametrize("options", [{}, {"n_pcs": 0}, {"transform": "log1p"}])
def test_the_same_bits_as_in_memory(toy_file, tmp_path, options):
    within = fit_file(toy_file, FitOptions(**FAST, **options), output=tmp_path / "a.h5ad")
    beyond = fit_file(toy_file, FitOptions(**FAST, **options, memory="1KB"), output=tmp_path / "b.h5ad")
    _assert_same(within, beyond)


@pytest.mark.parametrize("options", [{}, {"transform": "log1p", "totals": "selected", "clip": 1.0}])
def test_the_same_bits_where_selected_genes_are_read_again_and_again(toy_file, tmp_path, monkeypatch, options):
    monkeypatch.setattr("spatialpdvi.options.stages._TALL", 1)
    read = []
    original = scaling.ScaledRows.blocks
    monkeypatch.setattr(scaling.ScaledRows, "blocks", lambda self: read.append(1) or original(self))
    within = fit_file(toy_file, FitOptions(**FAST, **options), output=tmp_path / "a.h5ad", keep_model=True)
    assert read == []
    beyond = fit_file(
        toy_file, FitOptions(**FAST, **options, memory="1KB"), output=tmp_path / "b.h5ad", keep_model=True
    )
    assert read == [1, 1]
    _assert_same(within, beyond)
    np.testing.assert_array_equal(within.model.space.genes.components, beyond.model.space.genes.components)


def test_a_limit_that_cannot_be_held_is_said_before_the_start(toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_LEAST", 0)
    with pytest.warns(InputWarning) as warned:
        fit_file(toy_file, FitOptions(**FAST, n_pcs=0, memory="1KB"), output=tmp_path / "a.h5ad")
    spots, genes = [re.sub(r"\d[\d,]* ", "N ", str(warning.message)) for warning in warned]
    size = "takes about N MB, more than `memory='1KB'`"
    assert spots == f"The fit of N spots, without their counts, {size}. The limit decides only how counts are read."
    assert genes == (
        f"The fit of N spots with N values of N selected genes {size}. Select fewer genes with `n_top_genes`."
    )


def test_a_search_that_a_limit_cannot_hold_is_said_before_it_begins(toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_LEAST", 0)
    with pytest.warns(InputWarning) as warned:
        fit_file(toy_file, FitOptions(**FAST, states=5, memory="1KB"), output=tmp_path / "a.h5ad")
    assert re.sub(r"\d[\d,]* ", "N ", str(warned[-1].message)) == (
        "The search for the domains of N spots with N states takes about N MB, more than `memory='1KB'`. Leave states "
        "out with `states='off'`, or raise `memory`."
    )


def test_the_same_bits_of_several_files_and_of_a_prediction(toy_file, tmp_path):
    other = tmp_path / "other.h5ad"
    other.write_bytes(toy_file.read_bytes())
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    joint = [
        fit_files([toy_file, other], FitOptions(**FAST, memory=limit), output=tmp_path / name, keep_model=True)
        for limit, name in ((None, "a"), ("1KB", "b"))
    ]
    _assert_same(*joint)
    predicted = predict_file(toy_file, model=joint[1].model, output=tmp_path / "p.h5ad")
    assert predicted.certificate.converged


def test_a_section_that_lacks_genes_of_others_is_told(toy_section, tmp_path):
    section = toy_section.copy()
    counts = section.X.toarray()
    counts[:300, :40], counts[300:, :40] = 0, counts[300:, :40] + 1
    section.X = sp.csr_matrix(counts)
    section.obs["slice"] = pd.Categorical(np.repeat(["a", "b"], 300))
    section.write_h5ad(tmp_path / "both.h5ad")
    said = []
    for limit in (None, "1KB"):
        options = FitOptions(**(FAST | {"n_top_genes": 150}), sample_key="slice", memory=limit)
        with pytest.warns(InputWarning, match=r"^Section 'a' has no count of \d+ of \d+ genes") as warned:
            fit_file(tmp_path / "both.h5ad", options, output=tmp_path / "fitted.h5ad")
        said.append([str(one.message) for one in warned if "has no count of" in str(one.message)])
    assert said[0] == said[1]
    assert len(said[0]) == 1


def test_dense_residuals_are_not_made_of_what_memory_cannot_hold(toy_file, tmp_path):
    with pytest.raises(InputError, match=r"Expected counts that fit into memory with `transform='pearson'`"):
        fit_file(toy_file, FitOptions(**FAST, transform="pearson", memory="1KB"), output=tmp_path / "a.h5ad")


@pytest.mark.parametrize("text", ["much", "8 gigs", "0", "-1GB", "GB"])
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(
        InputError, match=rf"^Expected `memory` to be a size such as 8GB or 500MB, found '{re.escape(text)}'\.$"
    ):
        FitOptions(k=3, memory=text)


def _by_columns(path):
    section = ad.read_h5ad(path)
    section.X = sp.csc_matrix(section.X)
    other = path.with_name("columns.h5ad")
    section.write_h5ad(other)
    return other


def test_counts_by_columns_are_read_again_after_the_fit(toy_file, tmp_path):
    options = FEATURES | {"keep_model": True, "intervals": True, "slim": True}
    found = []
    for name, path in (("rows", toy_file), ("columns", _by_columns(toy_file))):
        result = fit_file(path, output=tmp_path / f"{name}_fitted.zarr", **options)
        predict_file(path, model=result.model, output=tmp_path / f"{name}_new.h5ad", slim=True)
        found += [ad.read_zarr(tmp_path / f"{name}_fitted.zarr"), ad.read_h5ad(tmp_path / f"{name}_new.h5ad")]
    for one, other in zip(found[:2], found[2:], strict=True):
        columns, expected = (pd.DataFrame(own.uns["pdvi_markers"]) for own in (one, other))
        assert len(columns)
        pd.testing.assert_frame_equal(columns, expected)
    for name, column in found[0].uns["pdvi_intervals"]["contrasts"].items():
        np.testing.assert_array_equal(column, found[2].uns["pdvi_intervals"]["contrasts"][name])


def test_a_result_whose_counts_cannot_be_read_again_is_not_lost(toy_file, tmp_path):
    options = FEATURES | {"intervals": True, "slim": True, "memory": "1KB"}
    with pytest.warns(InputWarning) as warned:
        fit_file(_by_columns(toy_file), output=tmp_path / "a.h5ad", **options)
    said = [str(warning.message) for warning in warned if "stored without" in str(warning.message)]
    assert len(said) == 2
    for text, what in zip(
        said, ("fit is stored without intervals", "result is stored without marker genes"), strict=True
    ):
        assert text.startswith(f"The {what}. Expected X of")
        assert text.endswith("Write it as CSR, or give more memory with `memory`.")
    found = ad.read_h5ad(tmp_path / "a.h5ad")
    assert "pdvi_domain" in found.obs
    assert not {"pdvi_markers", "pdvi_intervals"} & set(found.uns)
