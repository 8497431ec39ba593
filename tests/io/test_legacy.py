"""Files of anndata 0.6 and 0.7, read and added to. OldFormatWarning there is an error here."""

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest

from spatialpdvi.io.formats.sources import H5adSource
from spatialpdvi.io.results.writing import write_elements
from spatialpdvi.io.section.section import read_section


def test_tables_of_2018_are_read(file_of_2018, adata) -> None:
    with H5adSource(file_of_2018) as source:
        assert source.obs_keys() == ["louvain", "n_genes", "batch"]
        assert source.obsm_keys() == ["spatial", "X_pca"]
        assert (source.n_obs, source.n_vars) == adata.shape
        assert list(source.obs_names()) == list(adata.obs_names)
        section = read_section(source, label_key="louvain")
    assert section.counts_source == "raw.X"  # X is logarithmic
    np.testing.assert_array_equal(section.counts.toarray(), adata.X.toarray())
    assert list(section.labels) == ["T", "B", "NK"] * 4
    np.testing.assert_array_equal(section.coordinates, adata.obsm["spatial"])
    assert list(section.gene_names) == list(adata.var_names)


def test_tables_of_2020_are_read(file_of_2020) -> None:
    with H5adSource(file_of_2020) as source:
        assert source.obs_keys() == ["louvain"]
        section = read_section(source, label_key="louvain")
    assert section.labels.codes.tolist() == [-1, 0, 1] * 4
    assert list(section.labels.categories) == ["T", "B"]


@pytest.mark.filterwarnings(
    "ignore::anndata.OldFormatWarning"  # anndata itself reads the old elements that we leave
)
@pytest.mark.parametrize("age", ["file_of_2018", "file_of_2020"])
def test_results_can_be_added_to_an_old_file(request, age) -> None:
    path = request.getfixturevalue(age)
    before = ad.read_h5ad(path)
    domains = pd.Categorical(list("010" * 4))
    posterior = np.full((12, 2), 0.5, dtype=np.float32)
    elements = {
        ("obs", "pdvi_domain"): domains,
        ("obsm", "pdvi_posterior"): posterior,
        ("uns", "pdvi"): {"k": 2},
    }
    for _ in range(2):
        write_elements(path, path, elements)
        after = ad.read_h5ad(path)
        assert list(after.obs["pdvi_domain"]) == list(domains)
        np.testing.assert_array_equal(after.obsm["pdvi_posterior"], posterior)
        assert after.uns["pdvi"]["k"] == 2
        pd.testing.assert_frame_equal(after.obs[before.obs.columns], before.obs)
        pd.testing.assert_frame_equal(after.var, before.var)
        for key in before.obsm:
            np.testing.assert_array_equal(after.obsm[key], before.obsm[key])
        assert (after.X != before.X).nnz == 0


def test_codes_too_large_for_the_categories_stay_numbers(file_of_2018) -> None:
    with h5py.File(file_of_2018, "r+") as file:
        file["uns/n_genes_categories"] = np.array([b"of", b"var"])
    with H5adSource(file_of_2018) as source:
        assert source.obs("n_genes").tolist() == list(range(12))


def test_names_written_as_bytes_by_other_languages(path) -> None:
    with h5py.File(path, "r+") as file:
        file["obs"].attrs["column-order"] = np.array([b"depth", b"annotation"])
        file["obs"].attrs["_index"] = np.bytes_(b"_index")
    with H5adSource(path) as source:
        assert source.obs_keys() == ["depth", "annotation"]
        assert source.obs_names()[0] == "spot0"
    write_elements(path, path, {("obs", "pdvi_domain"): pd.Categorical(["0"] * 12)})
    assert list(ad.read_h5ad(path).obs) == ["depth", "annotation", "pdvi_domain"]
