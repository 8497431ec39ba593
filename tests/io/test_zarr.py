"""An AnnData in a zarr store is read as the same one in an h5ad, to the bit."""

import shutil
import warnings
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from zarr_samples import FORMATS, assert_same, write_spatialdata, write_zarr

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats import streaming
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.section.section import read_section
from spatialpdvi.io.storage import zarr_stores
from spatialpdvi.io.storage.paths import choose_tables, locate


@pytest.fixture(params=FORMATS)
def version(request):
    return request.param


@pytest.fixture(scope="module")
def written():
    """What `both` has written, by the format: a copy is quicker than another one."""
    return {}


@pytest.fixture
def both(tmp_path, path, version, written, tmp_path_factory):
    """The same AnnData as h5ad and as a store."""
    if version not in written:
        written[version] = shutil.copytree(_both(path, version), tmp_path_factory.mktemp("written") / "both")
    folder = shutil.copytree(written[version], tmp_path / "both")
    return folder / "section.h5ad", folder / "same.zarr"


def _both(path, version):
    folder = path.parent / "first"
    folder.mkdir()
    adata = ad.read_h5ad(path)
    adata.raw = adata
    adata.obsp["mine"] = sp.csr_matrix(np.eye(12, k=1) + np.eye(12, k=-1))
    adata.obs["note"] = [f"n{i}" for i in range(adata.n_obs)]
    adata.obs["kept"] = pd.array([True, None, False] * 4, dtype="boolean")
    adata.layers["dense"] = adata.X.toarray()
    adata.layers["columns"] = sp.csc_matrix(adata.X)
    adata.var["symbol"] = pd.Categorical(list("abcabca"))
    adata.write_h5ad(folder / "section.h5ad", convert_strings_to_categoricals=False)
    with warnings.catch_warnings(action="ignore"), ad.settings.override(zarr_write_format=version):
        ad.read_h5ad(folder / "section.h5ad").write_zarr(folder / "same.zarr", convert_strings_to_categoricals=False)
    return folder


def test_every_element_is_that_of_the_h5ad(both):
    with H5adSource(both[0]) as one, H5adSource(both[1]) as other:
        assert (other.n_obs, other.n_vars) == (one.n_obs, one.n_vars)
        for names in ("obs_names", "var_names"):
            pd.testing.assert_index_equal(getattr(one, names)(), getattr(other, names)(), exact=True)
        for group in ("obs", "obsm", "obsp", "uns", "var"):
            keys = getattr(one, f"{group}_keys")()
            assert keys
            assert getattr(other, f"{group}_keys")() == keys
            for key in keys:
                assert_same(getattr(one, group)(key), getattr(other, group)(key))
        assert other.layer_keys() == one.layer_keys()
        for where in ("X", "raw.X", "layers['dense']", "layers['columns']", "layers['none']"):
            assert other.has_matrix(where) == one.has_matrix(where) == ("none" not in where)
            if one.has_matrix(where):
                first, second = one.matrix(where), other.matrix(where)
                for part in ("data", "indices", "indptr"):
                    assert getattr(first, part).dtype == getattr(second, part).dtype
                    np.testing.assert_array_equal(getattr(first, part), getattr(second, part))
                assert other.layout(where)[:5] == one.layout(where)[:5]
                assert other.stored_bytes(where) == one.stored_bytes(where)
                np.testing.assert_array_equal(one.first_values(where), other.first_values(where))


def test_sections_are_the_same(both):
    with H5adSource(both[0]) as one, H5adSource(both[1]) as other:
        for options in ({}, {"rep": "X_pca"}, {"graph": "mine"}, {"init": "annotation"}, {"sample_key": "annotation"}):
            first, second = read_section(one, **options), read_section(other, **options)
            for name in ("counts", "coordinates", "features", "init_labels", "graph"):
                assert_same(getattr(first, name), getattr(second, name))
            assert first.counts_source == second.counts_source
            assert list(first.labels) == list(second.labels)


@pytest.mark.parametrize("where", ["X", "layers['dense']"])
def test_rows_are_read_in_blocks(both, where, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_VALUES", 10)
    with H5adSource(both[0]) as one, H5adSource(both[1]) as other:
        rows = [source.rows(where) for source in (one, other)]
        whole = other.matrix(where)
    blocks, same = ([block.toarray() for block in part.blocks()] for part in rows)
    assert len(blocks) > 3
    for block, other_block in zip(blocks, same, strict=True):
        np.testing.assert_array_equal(block, other_block)
    np.testing.assert_array_equal(np.concatenate(same), whole.toarray())


def test_a_matrix_by_columns_is_not_read_in_blocks(both):
    with H5adSource(both[1]) as source:
        rows = source.rows("layers['columns']")
    with pytest.raises(InputError, match="to be stored by rows"):
        next(rows.blocks())


def test_what_is_stored_and_not_its_summary_is_read(both):
    """A summary of the metadata is left behind by whoever adds to a store without it."""
    zarr.open_group(both[1], mode="r+", use_consolidated=False)["obsm"].create_array("late", data=np.ones((12, 2)))
    with H5adSource(both[1]) as source:
        assert source.obsm("late").sum() == 24


def test_files_of_other_programs_are_passed_over(both):
    (both[1] / "obsm" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    with H5adSource(both[1]) as source:
        assert source.obsm_keys() == ["X_pca", "spatial"]


def test_a_store_under_a_link(both, tmp_path):
    (tmp_path / "link.zarr").symlink_to(both[1])
    with H5adSource(tmp_path / "link.zarr") as source:
        assert source.n_obs == 12


def test_chunks_of_zeros_are_no_loss(tmp_path, make, version):
    """Zarr leaves chunks out in which there is nothing but zeros."""
    counts = sp.csr_matrix(([2.0], ([3], [0])), shape=(12, 1), dtype=np.float32)
    adata = make(X=counts, var=pd.DataFrame(index=["gene"]))
    adata.obs["sample"] = pd.Categorical(["only"] * 12)
    store = write_zarr(tmp_path / "zeros.zarr", adata, version)
    with H5adSource(store) as source:
        assert source.matrix("X").sum() == 2
        assert source.obs("sample").tolist() == ["only"] * 12
        assert sum(block.sum() for block in source.rows("X").blocks()) == 2


def test_the_only_table_of_a_spatialdata_store(tmp_path, make, version):
    store = write_spatialdata(tmp_path / "sdata.zarr", {"cells": make()}, version)
    with H5adSource(store) as source:
        assert source.n_obs == 12
        assert read_section(source).coordinates.shape == (12, 2)
        assert sum(block.shape[0] for block in source.rows("X").blocks()) == 12


def test_one_of_several_tables_is_asked_for(tmp_path, make, version):
    adata = make()
    store = write_spatialdata(tmp_path / "sdata.zarr", {"cells": adata, "bins": adata[:5].copy()}, version)
    with pytest.raises(InputError) as caught:
        H5adSource(store)
    name = f"Expected the name of one table of {str(store)!r}, found"
    folder = str(store / "tables" / "bins")
    assert str(caught.value) == f"{name} 2: 'bins', 'cells'. Give the folder of one of these, for example {folder!r}."
    advice = f"Name one of these with `table`. Its folder names it, too: {folder!r}."
    with pytest.raises(InputError) as caught:
        choose_tables([store], None)
    assert str(caught.value) == f"{name} 2: 'bins', 'cells'. {advice}"
    with pytest.raises(InputError) as caught:
        choose_tables([store], "../tables/bins")
    assert str(caught.value).startswith(f"{name} no '../tables/bins', but 'bins', 'cells'.")
    (bins,) = choose_tables([store], "bins")
    assert bins == locate(store).table("bins") == store / "tables" / "bins"
    assert locate(bins).name == locate(store).name == "sdata.zarr"
    with H5adSource(bins) as source:
        assert source.n_obs == 5


def test_a_table_of_what_has_none(tmp_path, path, make, version):
    plain = write_zarr(tmp_path / "plain.zarr", make(), version)
    said = r"Expected a SpatialData store with `table='cells'`, found none among the sections: "
    with pytest.raises(InputError, match=said):
        choose_tables([path, plain], "cells")
    for table in ("cells", None):
        with pytest.raises(InputError, match=r"Expected .* to be an h5ad file, found no such file"):
            choose_tables([path, tmp_path / "gone"], table)
    assert choose_tables([path, plain], None) == [path, plain]
    empty = write_spatialdata(tmp_path / "empty.zarr", {}, version)
    found = r"found a SpatialData store without a table\. Add one with the counts of its spots or cells"
    with pytest.raises(InputError, match=found):
        H5adSource(empty)
    shutil.rmtree(empty / "tables")
    with pytest.raises(InputError, match=found):
        H5adSource(empty)


def test_a_table_without_places(tmp_path, make, version):
    store = write_spatialdata(tmp_path / "sdata.zarr", {"cells": make(obsm={})}, version)
    with (
        H5adSource(store) as source,
        pytest.raises(InputError, match=r"obsm\['spatial'\] of .*Name yours with `spatial_key`"),
    ):
        read_section(source)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"zarr_write_format": 2}, 2), ({"zarr_write_format": 3}, 3), ({}, 3)],  # anndata 0.12, 0.13 and 0.14
)
def test_new_stores_have_the_format_that_anndata_writes(settings, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(ad, "settings", SimpleNamespace(**settings))
    assert zarr_stores.make_store(tmp_path).metadata.zarr_format == expected
