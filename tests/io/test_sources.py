import re
from types import SimpleNamespace

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats import matrices
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.matrices import as_csr
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.counts import read_counts
from spatialpdvi.io.section.features import read_features

DENSE = np.array([[0, 2, 0], [1, 0, 0], [0, 0, 3], [4, 0, 5]])

STORAGES = {
    "csr": sp.csr_matrix,
    "csc": sp.csc_matrix,
    "csr_array": sp.csr_array,
    "dense": np.asarray,
    "fortran": np.asfortranarray,
}


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint16, np.bool_])
@pytest.mark.parametrize("storage", STORAGES)
def test_a_matrix_of_any_storage_is_the_same_csr(make, source_of, storage, dtype) -> None:
    values = DENSE.astype(dtype)
    data = ad.AnnData(X=STORAGES[storage](values), layers={"it's": STORAGES[storage](values)})
    source = source_of(data)
    for where in ("X", "layers['it's']"):
        csr = source.matrix(where)
        assert isinstance(csr, sp.csr_matrix)
        assert csr.has_canonical_format
        assert csr.dtype == (np.uint8 if dtype is np.bool_ else dtype)
        np.testing.assert_array_equal(csr.toarray(), values)


def test_half_precision_becomes_single(source_of) -> None:
    csr = source_of(ad.AnnData(X=DENSE.astype(np.float16))).matrix("X")
    assert csr.dtype == np.float32
    np.testing.assert_array_equal(csr.toarray(), DENSE)


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_what_dask_has_yet_to_compute_is_refused_with_the_way_out(make, storage) -> None:
    """A sparse layer of counts was passed over for X, and a dense X ended in a TypeError."""
    array = pytest.importorskip("dask.array")

    def lazy(values: np.ndarray) -> object:
        blocks = array.from_array(values, chunks=(5, values.shape[1]))
        return blocks.map_blocks(sp.csr_matrix) if storage == "csr" else blocks

    data = make()
    data.obsm["X_pca"] = array.from_array(data.X.toarray()[:, :3], chunks=(5, 3))
    data.X = lazy(data.X.toarray())
    data.raw = data.copy()
    data.layers["counts"] = lazy(make().X.toarray())
    source = AnnDataSource(data)
    ways = {
        "X": lambda: read_counts(source, "X"),
        "layers['counts']": lambda: read_counts(source, None),
        "obsm['X_pca']": lambda: read_features(source, "X_pca"),
        "raw.X": lambda: read_counts(source, "raw.X"),
    }
    for where, way in ways.items():
        with pytest.raises(InputError) as caught:
            way()
        one = "" if where == "raw.X" else f", or this array with `adata.{where} = adata.{where}.compute()`"
        assert str(caught.value) == (
            f"Expected {where} of the AnnData in memory, found a Dask array. Read the whole AnnData into memory with "
            f"`adata = adata.to_memory()`{one}."
        )
    source = AnnDataSource(data.to_memory())  # as the error advises
    for way in ways.values():
        way()


def test_dense_blocks_are_joined_in_order(source_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "_BLOCK_BYTES", 3 * 5 * 8)  # three rows at a time
    values = np.arange(10 * 5.0).reshape(10, 5)
    np.testing.assert_array_equal(source_of(ad.AnnData(X=values)).matrix("X").toarray(), values)


def test_a_dense_matrix_on_disk_is_never_read_whole(tmp_path, monkeypatch) -> None:
    path = tmp_path / "dense.h5ad"
    ad.AnnData(X=np.ones((40, 5))).write_h5ad(path)
    monkeypatch.setattr(matrices, "_BLOCK_BYTES", 8 * 5 * 8)
    sizes = []
    read = h5py.Dataset.__getitem__

    def spy(dataset, args, *rest, **options):
        value = read(dataset, args, *rest, **options)
        if dataset.name == "/X":
            sizes.append(value.shape[0])
        return value

    monkeypatch.setattr(h5py.Dataset, "__getitem__", spy)
    with H5adSource(path) as source:
        source.matrix("X")
    assert sizes == [8] * 5


def test_unsorted_and_repeated_entries_are_joined_without_touching_the_original() -> None:
    messy = sp.csr_matrix((np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    data = ad.AnnData(X=messy)
    csr = AnnDataSource(data).matrix("X")
    np.testing.assert_array_equal(csr.toarray(), [[2, 0, 4]])
    np.testing.assert_array_equal(data.X.indices, [2, 0, 2])


def test_raw_has_its_own_genes(make, source_of) -> None:
    data = make()
    data.raw = data.copy()
    data = data[:, :2].copy()
    source = source_of(data)
    assert source.has_matrix("raw.X")
    assert source.matrix("raw.X").shape == (12, 7)
    assert list(source.var_names("raw.X")) == [f"gene{i}" for i in range(7)]
    assert list(source.var_names()) == ["gene0", "gene1"]


def test_absent_matrices_are_told_apart(make, source_of) -> None:
    source = source_of(make(X=None))
    assert [source.has_matrix(where) for where in ("X", "raw.X", "layers['count']")] == [False] * 3
    assert (source.n_obs, source.n_vars) == (12, 7)


def test_keys_and_elements_are_those_of_the_anndata(path, source_of) -> None:
    data = ad.read_h5ad(path)
    source = source_of(data)
    assert source.obs_keys() == ["annotation", "depth"]
    assert sorted(source.obsm_keys()) == ["X_pca", "spatial"]
    assert (source.obsp_keys(), source.layer_keys()) == (["mine"], ["count"])
    assert source.uns_keys() == ["mine"]
    assert sorted(source.uns_fields("mine")) == ["k", "palette"]
    assert source.uns_fields("absent") == []
    assert list(source.obs_names()) == list(data.obs_names)
    assert source.obs("annotation").tolist() == list("aabb" * 3)
    assert same_bits(np.asarray(source.obsm("X_pca")), data.obsm["X_pca"])
    assert (source.obsp("mine") != data.obsp["mine"]).nnz == 0
    assert source.first_values("X").size == data.X.nnz


def test_a_view_is_read_and_left_a_view(make) -> None:
    data = make()
    view = data[::2, 1:4]
    source = AnnDataSource(view)
    np.testing.assert_array_equal(source.matrix("X").toarray(), data.X.toarray()[::2, 1:4])
    assert (source.n_obs, source.n_vars) == (6, 3)
    assert view.is_view


@pytest.mark.parametrize("storage", ["csr", "csc", "dense"])
def test_a_backed_anndata_is_read_once(tmp_path, storage, monkeypatch) -> None:
    path = tmp_path / "backed.h5ad"
    ad.AnnData(X=STORAGES[storage](DENSE.astype(np.float32))).write_h5ad(path)
    backed = ad.read_h5ad(path, backed="r")
    read, kind = [], type(backed.X)
    if storage != "dense":  # which is read in slices
        whole = kind.to_memory
        monkeypatch.setattr(kind, "to_memory", lambda self: read.append(self) or whole(self))
    source = AnnDataSource(backed)
    assert source.first_values("X").max() == 5
    np.testing.assert_array_equal(source.matrix("X").toarray(), DENSE)
    assert len(read) == (storage != "dense")
    backed.file.close()


def test_obs_columns_of_every_kind_are_read(make, source_of) -> None:
    data = make()
    columns = {
        "text": ["a"] * 12,
        "number": np.arange(12),
        "flag": [True, False] * 6,
        "nullable": pd.array([1, None] * 6, dtype="Int64"),
        "category": pd.Categorical(["u", None, "v"] * 4),
    }
    for key, value in columns.items():
        data.obs[key] = value
    source = source_of(data)
    for key, value in columns.items():
        column = source.obs(key)
        expected = pd.Series(value)
        assert column.isna().tolist() == expected.isna().tolist()
        assert column.dropna().tolist() == expected.dropna().tolist()


@pytest.mark.parametrize("where", ["X", "layers['counts']", "obsm['spatial']", "obsp['graph']"])
def test_masked_values_are_refused(make, where) -> None:
    """They were used as if they were not masked."""
    data = make()
    group, _, key = where.removesuffix("']").partition("['")
    values = np.ma.masked_equal(np.eye(data.n_obs, data.n_vars if group in ("X", "layers") else data.n_obs), 1)
    if key:
        getattr(data, group)[key] = values
    else:
        data.X = values
    source = AnnDataSource(data)
    with pytest.raises(InputError, match=re.escape(f"Expected {where} of the AnnData to have all its values, found")):
        getattr(source, group)(key) if group in ("obsm", "obsp") else source.matrix(where)


def test_what_is_no_anndata_is_refused() -> None:
    with pytest.raises(InputError, match=r"found SimpleNamespace\. Give its table, `sdata\.tables\['cells'\]`\.$"):
        AnnDataSource(SimpleNamespace(tables={"cells": None}))
    with pytest.raises(InputError) as caught:
        AnnDataSource("embryo.h5ad", "fit_file")
    assert str(caught.value) == (
        "Expected an AnnData, found str. Read your file with anndata.read_h5ad, or give its path to "
        "`spatialpdvi.fit_file`."
    )


def test_a_matrix_of_text_is_refused(tmp_path, make) -> None:
    data = make()
    data.layers["words"] = np.full(data.shape, "x", dtype=object)
    with pytest.raises(InputError) as caught:
        AnnDataSource(data).matrix("layers['words']")
    assert str(caught.value) == (
        "Expected layers['words'] to hold numbers, found values of type object. Convert them to "
        "numbers, or name another matrix."
    )


def test_columns_of_genes(adata, source_of) -> None:
    adata.var["symbol"] = [f"s{i}" for i in range(adata.n_vars)]
    adata.raw = adata
    del adata.var["symbol"]
    adata.var["length"] = np.arange(adata.n_vars)
    source = source_of(adata)
    assert source.var_keys() == ["length"]
    assert source.var_keys("raw.X") == ["symbol"]
    assert source.var("length").tolist() == list(range(adata.n_vars))
    assert source.var("symbol", "raw.X").tolist() == [f"s{i}" for i in range(adata.n_vars)]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_sums_of_repeated_entries_do_not_overflow(dtype) -> None:
    matrix = sp.csr_matrix((np.array([120, 120, 120], dtype), [0, 0, 2], [0, 3]), shape=(1, 3))
    assert as_csr(matrix, "X").toarray().tolist() == [[240, 0, 120]]
    unsorted = sp.csr_matrix((np.array([1, 2], dtype), [2, 0], [0, 2]), shape=(1, 3))
    assert as_csr(unsorted, "X").dtype == dtype


def test_columns_of_one_name_are_refused(make) -> None:
    adata = make()
    adata.var = pd.DataFrame(np.ones((7, 2)), index=adata.var_names, columns=["feature_types"] * 2)
    with pytest.raises(
        InputError, match=r"^Expected one column 'feature_types' in var of the AnnData, found 2 of this"
    ):
        AnnDataSource(adata).var("feature_types")
