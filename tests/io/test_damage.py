"""Odd and damaged elements: each is refused in one sentence, before any work."""

import re
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import seeds

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.section.counts import read_counts
from spatialpdvi.io.section.labels import read_labels
from spatialpdvi.io.section.section import read_section


def refusal(path: Path, **options) -> str:
    with pytest.raises(InputError) as caught, H5adSource(path) as source:
        read_section(source, **options)
    return str(caught.value)


def stored_bytes(dataset: h5py.Dataset) -> slice:
    """Where a dataset without compression, in one chunk at the most, has its values in the file."""
    if dataset.chunks is None:
        start = dataset.id.get_offset() or 0  # None: it has no values
        return slice(start, start + dataset.id.get_storage_size())
    (chunk,) = map(dataset.id.get_chunk_info, range(dataset.id.get_num_chunks()))
    return slice(chunk.byte_offset, chunk.byte_offset + chunk.size)


def may_change_values(path: Path) -> np.ndarray:
    """The bytes of a file that nothing protects: values, texts, and the types of values. A mask of its length."""
    content = path.read_bytes()
    mask = np.zeros(len(content), dtype=bool)

    def visit(_: str, element: h5py.Group | h5py.Dataset) -> None:
        if isinstance(element, h5py.Dataset):
            mask[stored_bytes(element)] = True
            kind = element.id.get_type().encode()[2:]  # as the file has it, after the version of the encoding
            for found in re.finditer(re.escape(kind), content):
                mask[slice(*found.span())] = True

    with h5py.File(path) as file:
        file.visititems(visit)
    for heap in re.finditer(b"GCOL", content):  # a heap of texts
        size = int.from_bytes(content[heap.start() + 8 : heap.start() + 16], "little")
        mask[heap.start() : heap.start() + size] = True
    return mask


@pytest.mark.parametrize("seed", seeds(10, 40))
def test_a_flipped_bit_outside_of_the_values_is_an_error_or_changes_nothing(path, read_parts, seed) -> None:
    rng = np.random.default_rng(seed)
    original, content = read_parts(path), path.read_bytes()
    for place in rng.choice(np.flatnonzero(~may_change_values(path)), 3):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        assert read_parts(path) in (None, original), place


@pytest.mark.parametrize("seed", seeds(2, 6))
@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("layers/count/data", "layers/count"),
        ("layers/count/indices", "layers/count"),
        ("layers/count/indptr", "layers/count"),
        ("obsm/spatial", "obsm/spatial"),
        ("obs/annotation/codes", "obs/annotation"),
    ],
)
@pytest.mark.filterwarnings("ignore::spatialpdvi.errors.InputWarning")  # of damaged coordinates and counts
def test_a_flipped_bit_of_a_value_is_an_error_or_changes_that_value_alone(path, read_parts, name, part, seed) -> None:
    """HDF5 has no checksum of values that are not compressed: what is read are the numbers that the file now has."""
    rng = np.random.default_rng(seed)
    original, content = read_parts(path), bytearray(path.read_bytes())
    with h5py.File(path) as file:
        place = int(rng.choice(np.arange(len(content))[stored_bytes(file[name])]))
    content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    found = read_parts(path)
    if found is None:
        return
    with h5py.File(path) as file:
        if part == "layers/count":
            arrays = [file[f"layers/count/{array}"][:] for array in ("data", "indices", "indptr")]
            expected = sp.csr_matrix(tuple(arrays), shape=(12, 7)).toarray()
        elif part == "obsm/spatial":
            expected = file["obsm/spatial"][:]
        else:
            expected = np.array(["a", "b", np.nan], dtype=object)[file["obs/annotation/codes"][:]]
    np.testing.assert_array_equal(np.array(found.pop(part), dtype=expected.dtype), expected)
    assert found == {key: value for key, value in original.items() if key != part}


@pytest.mark.parametrize("broken", ["_index", "a link"])
def test_an_obs_that_cannot_be_looked_at(path, broken) -> None:
    with h5py.File(path, "r+") as file:
        if broken == "_index":
            file["obs"].attrs["_index"] = 3.5
        else:
            del file["obs"]
            file["obs"] = h5py.ExternalLink("gone.h5", "/obs")
    assert refusal(path).endswith("found it truncated or damaged. Copy or download it again.")


def test_coordinates_in_a_group_that_is_no_array(path) -> None:
    with h5py.File(path, "r+") as file:
        del file["obsm/spatial"]
        file.create_group("obsm/spatial/x")
    assert "Expected to read obsm['spatial']" in refusal(path)
    with h5py.File(path, "r+") as file:
        del file["obsm/spatial"]
        file["obsm/spatial"] = 1.0
    assert "without rows" in refusal(path)


def test_a_matrix_behind_a_link_to_nowhere(path) -> None:
    with h5py.File(path, "r+") as file:
        del file["X"], file["layers/count"]
        file["X"] = h5py.ExternalLink("gone.h5", "/X")
    assert "Expected to read X of" in refusal(path)


@pytest.mark.parametrize("group", ["obsm", "obsp", "uns"])
def test_a_value_in_the_place_of_a_group(path, group) -> None:
    with h5py.File(path, "r+") as file:
        del file[group]
        file[group] = 1.0
    assert f"found an HDF5 file whose {group} is a single value or array." in refusal(path)


@pytest.mark.parametrize("layer", ["", "count/data", "/", ".", "../X"])
def test_layers_are_keys_and_no_paths(path, layer) -> None:
    with H5adSource(path) as source:
        assert not source.has_matrix(f"layers[{layer!r}]")
    assert refusal(path, layer=layer).startswith(f"Expected layers['{layer}'] to be in ")


@pytest.mark.parametrize("option", ["spatial_key", "rep", "graph", "label_key", "init"])
@pytest.mark.parametrize("key", ["", "a/b", "."])
def test_keys_are_no_paths(path, option, key) -> None:
    assert f"[{key!r}]" in refusal(path, **{option: key})


def test_two_columns_of_one_name(adata) -> None:
    column = pd.DataFrame({"annotation": ["a", "b"] * 6}, index=adata.obs_names)
    adata.obs = pd.concat([column, column], axis=1)
    with pytest.raises(InputError) as caught:
        read_labels(AnnDataSource(adata), None)
    assert str(caught.value) == (
        "Expected one column 'annotation' in obs of the AnnData, found 2 of this name. Rename all but one."
    )


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (np.float64, 1e300, "1e+300 (above 16,777,216)"),
        (np.float32, 2.0**25, "3.35544e+07 (above 16,777,216)"),
        (np.int64, 2**24 + 1, "16777217 (above 16,777,216)"),
        (np.uint64, 2**63, "9.22337e+18 (above 16,777,216)"),
        (np.int32, -2, "-2 (negative)"),
        (np.float64, np.inf, "inf (not finite)"),
    ],
)
def test_counts_beyond_float32_are_refused(adata, source_of, kind, value, found) -> None:
    adata.X = adata.X.astype(kind)
    adata.X.data[5] = value
    with pytest.raises(InputError, match=re.escape(found)):
        read_counts(source_of(adata), "X")


def test_the_largest_count_is_accepted(adata, source_of) -> None:
    adata.X.data[5] = 2**24
    assert read_counts(source_of(adata), "X").matrix.data.max() == 2**24


def fitted(adata: ad.AnnData) -> ad.AnnData:
    n = adata.n_obs
    adata.obs["pdvi_domain"] = pd.Categorical([str(i % 3) for i in range(n)])
    adata.obs["pdvi_confidence"] = np.linspace(0.4, 1, n, dtype=np.float32)
    adata.obs["pdvi_entropy"] = np.zeros(n, dtype=np.float32)
    adata.obsm["pdvi_posterior"] = np.full((n, 3), 1 / 3, dtype=np.float32)
    adata.obsm["X_pdvi"] = np.ones((n, 5), dtype=np.float32)
    adata.uns["pdvi"] = {"params": {"k": 3}, "certificate": {"converged": True}}
    return adata


@pytest.mark.parametrize("what", ["whole", "spots alone", "without uns", "columns alone", "one column", "joined"])
def test_our_own_result_may_be_replaced(adata, source_of, what) -> None:
    whole = fitted(adata)
    other = whole.copy()
    del other.uns["pdvi"]
    if what == "columns alone":
        del other.obsm["pdvi_posterior"], other.obsm["X_pdvi"]
    elif what == "one column":
        other = ad.AnnData(adata.X, obs=whole.obs[["pdvi_confidence"]])
    elif what == "joined":
        more = fitted(adata.copy())[:3].copy()
        more.obs_names = ["a", "b", "c"]
        del more.obs["pdvi_domain"]
        other = ad.concat([whole, more], join="outer")
    data = {"whole": whole, "spots alone": whole[:5].copy()}.get(what, other)
    check_free(source_of(data), Keys())


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        ("uns", "pdvi", {"params": 3}),
        ("obs", "pdvi_domain", ["Kinase"] * 12),
        ("obs", "pdvi_domain", np.arange(12)),
        ("obs", "pdvi_confidence", ["high"] * 12),
        ("obs", "pdvi_entropy", np.full(12, -1.0)),
        ("obsm", "X_pdvi", np.ones((12, 2))),
    ],
)
def test_foreign_data_under_our_names_are_kept(adata, source_of, group, key, value) -> None:
    getattr(adata, group)[key] = value
    with pytest.raises(InputError) as caught:
        check_free(source_of(adata), Keys())
    assert f"found {group}[{key!r}] in " in str(caught.value)
