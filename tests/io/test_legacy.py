"""Files of anndata 0.6, which have to be converted, and of 0.7. OldFormatWarning is an error here."""

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.slim import slim_pairs
from spatialpdvi.io.results.writing import write_elements
from spatialpdvi.io.section.section import read_section


def test_a_file_of_2018_is_an_error_that_says_how_to_convert_it(file_of_2018) -> None:
    before = file_of_2018.read_bytes()
    with pytest.raises(InputError) as caught:
        H5adSource(file_of_2018)
    assert str(caught.value) == (
        f"Expected {str(file_of_2018)!r} to hold an AnnData, found one that anndata before version 0.7 wrote. Convert "
        "it with anndata 0.7 to 0.12: `anndata.read_h5ad(old).write_h5ad(new)`."
    )
    assert file_of_2018.read_bytes() == before


@pytest.mark.filterwarnings("ignore::anndata.OldFormatWarning")
def test_a_file_of_2018_can_be_read_once_it_is_converted(file_of_2018, adata, tmp_path) -> None:
    ad.read_h5ad(file_of_2018).write_h5ad(tmp_path / "new.h5ad")
    with H5adSource(tmp_path / "new.h5ad") as source:
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


def test_codes_of_2020_may_be_unsigned_and_damaged_ones_are_refused(file_of_2020) -> None:
    with h5py.File(file_of_2020, "r+") as file:
        attributes = dict(file["obs/louvain"].attrs)
        del file["obs/louvain"]
        file["obs/louvain"] = np.array([1, 0, 1] * 4, dtype="u1")
        file["obs/louvain"].attrs.update(attributes)
    with H5adSource(file_of_2020) as source:
        assert read_section(source, label_key="louvain").labels.codes.tolist() == [1, 0, 1] * 4
    with h5py.File(file_of_2020, "r+") as file:
        del file["obs/louvain"]
        file["obs/louvain"] = np.array([-5, 0, 1] * 4, dtype="i1")
        file["obs/louvain"].attrs.update(attributes)
    with (
        H5adSource(file_of_2020) as source,
        pytest.raises(InputError, match=r"a damaged or unknown element \(ValueErr"),
    ):
        read_section(source, label_key="louvain")


def test_categories_without_a_reference_are_those_of_seuratdisk(file_of_2020) -> None:
    """They were read as the numbers of the categories; a missing value of R is the least whole number."""
    with h5py.File(file_of_2020, "r+") as file:
        del file["obs/louvain"]
        file["obs/louvain"] = np.array([np.iinfo("i4").min, 0, 1] * 4, dtype="i4")
    with H5adSource(file_of_2020) as source:
        labels = read_section(source, label_key="louvain").labels
    assert labels.codes.tolist() == [-1, 0, 1] * 4
    assert list(labels.categories) == ["T", "B"]


@pytest.mark.filterwarnings(
    "ignore::anndata.OldFormatWarning"  # anndata itself reads the old elements that we leave
)
def test_results_can_be_added_to_a_file_of_2020(file_of_2020) -> None:
    before = ad.read_h5ad(file_of_2020)
    domains = pd.Categorical(list("010" * 4))
    posterior = np.full((12, 2), 0.5, dtype=np.float32)
    elements = {
        ("obs", "pdvi_domain"): domains,
        ("obsm", "pdvi_posterior"): posterior,
        ("uns", "pdvi"): {"k": 2},
    }
    for _ in range(2):
        write_elements(file_of_2020, file_of_2020, elements)
        after = ad.read_h5ad(file_of_2020)
        assert list(after.obs["pdvi_domain"]) == list(domains)
        np.testing.assert_array_equal(after.obsm["pdvi_posterior"], posterior)
        assert after.uns["pdvi"]["k"] == 2
        pd.testing.assert_frame_equal(after.obs[before.obs.columns], before.obs)
        pd.testing.assert_frame_equal(after.var, before.var)
        for key in before.obsm:
            np.testing.assert_array_equal(after.obsm[key], before.obsm[key])
        assert (after.X != before.X).nnz == 0


@pytest.mark.filterwarnings("ignore::anndata.OldFormatWarning")  # anndata itself, which reads the original
@pytest.mark.parametrize("name", ["new.h5ad", "new.zarr"])
def test_results_without_the_counts_of_a_file_of_2020(file_of_2020, tmp_path, name) -> None:
    before, posterior = ad.read_h5ad(file_of_2020), np.full((12, 2), 0.5, dtype=np.float32)
    only = [("obsm", "spatial"), *(("uns", key) for key in before.uns)]
    write_elements(file_of_2020, tmp_path / name, {("obsm", "pdvi_posterior"): posterior}, only=only)
    after = (ad.read_zarr if name.endswith("zarr") else ad.read_h5ad)(tmp_path / name)
    pd.testing.assert_frame_equal(after.obs, before.obs)
    assert (set(after.obsm), after.n_vars, after.X) == ({"spatial", "pdvi_posterior"}, 0, None)
    assert set(after.uns) == set(before.uns)
    np.testing.assert_array_equal(after.obsm["spatial"], before.obsm["spatial"])


def test_names_written_as_bytes_by_other_languages(path) -> None:
    with h5py.File(path, "r+") as file:
        file["obs"].attrs["column-order"] = np.array([b"depth", b"annotation"])
        file["obs"].attrs["_index"] = np.bytes_(b"_index")
    with H5adSource(path) as source:
        assert source.obs_keys() == ["depth", "annotation"]
        assert source.obs_names()[0] == "spot0"
    slim = path.with_name("slim.h5ad")
    write_elements(path, slim, {("obs", "pdvi_domain"): pd.Categorical(["0"] * 12)}, only=[])
    write_elements(path, path, {("obs", "pdvi_domain"): pd.Categorical(["0"] * 12)})
    assert list(ad.read_h5ad(path).obs) == ["depth", "annotation", "pdvi_domain"]
    pd.testing.assert_frame_equal(ad.read_h5ad(slim).obs, ad.read_h5ad(path).obs)


@pytest.mark.parametrize("storage", ["csr", "csc"])
def test_kinds_of_elements_written_as_bytes_by_other_languages(adata, tmp_path, storage) -> None:
    path = tmp_path / "a.h5ad"
    adata.X = adata.X.asformat(storage)
    adata.obsm["frame"] = pd.DataFrame({"x": np.arange(12.0), "y": 1.0}, index=adata.obs_names)
    adata.write_h5ad(path)

    def as_bytes(_: str, element: h5py.Group | h5py.Dataset) -> None:
        element.attrs.update({key: np.bytes_(element.attrs[key]) for key in element.attrs if "encoding" in key})

    with h5py.File(path, "r+") as file:
        file.visititems(as_bytes)
    with H5adSource(path) as source:
        assert source.layout("X").storage == storage
        assert (source.matrix("X") != adata.X).nnz == 0
        found, totals = source.rows("X").columns(np.array([1]))
        assert ("obsm", "frame") in slim_pairs(source, Keys(), rep=None)
        if storage == "csr":
            assert (next(source.rows("X").blocks()) != adata.X).nnz == 0
    np.testing.assert_array_equal(found, adata.X[:, [1]].toarray())
    np.testing.assert_array_equal(totals, np.asarray(adata.X.sum(axis=1)).ravel())
    write_elements(path, tmp_path / "a.zarr", {})
    after = ad.read_zarr(tmp_path / "a.zarr")
    assert (after.X != adata.X).nnz == 0
    pd.testing.assert_frame_equal(after.obsm["frame"], adata.obsm["frame"])
