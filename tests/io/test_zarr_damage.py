"""Odd, damaged and hostile zarr stores: each is refused in one sentence, and nothing in them is run."""

import json
import os
import re
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from conftest import seeds
from zarr_samples import FORMATS, chunks_of, metadata_of, names_of, write_zarr

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.section.section import read_section
from spatialpdvi.io.storage.zarr_stores import is_chunk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stores(tmp_path_factory, make):
    """Stores of both formats, to be copied: they are made once."""
    adata = make()
    adata.obs["annotation"] = pd.Categorical(list("aabb" * 3))
    adata.obs["depth"] = np.arange(12.0)
    adata.obsm["X_pca"] = np.random.default_rng(1).normal(size=(12, 3))
    adata.obsp["mine"] = sp.csr_matrix(np.eye(12, k=1) + np.eye(12, k=-1))
    adata.layers["count"] = adata.X.copy()
    folder = tmp_path_factory.mktemp("stores")
    return {version: write_zarr(folder / f"v{version}.zarr", adata, version) for version in FORMATS}


@pytest.fixture(scope="module")
def originals(stores, read_parts):
    """What a fit reads of the stores, by their format, before anything is damaged."""
    return {version: read_parts(path) for version, path in stores.items()}


def version_of(store) -> int:
    return 3 if (store / "zarr.json").exists() else 2


@pytest.fixture(params=FORMATS)
def store(request, stores, tmp_path):
    return shutil.copytree(stores[request.param], tmp_path / f"v{request.param}.zarr")


@pytest.fixture
def second(stores, tmp_path):
    """A store of format 2, the only one that has objects."""
    return shutil.copytree(stores[2], tmp_path / "second.zarr")


@pytest.fixture
def third(stores, tmp_path):
    """A store of format 3, the only one that has shards."""
    return shutil.copytree(stores[3], tmp_path / "third.zarr")


def read(store, **options) -> None:
    with H5adSource(store) as source:
        check_free(source, Keys())
        read_section(source, **options)


def refusal(store, **options) -> str:
    with pytest.raises(InputError) as caught:
        read(store, **options)
    said = str(caught.value)
    assert re.match(r"Expected .*, found .*\. ", said), said
    assert "\n" not in said
    return said


def rewrite(path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_folder_that_is_none(tmp_path) -> None:
    assert "found a folder that is no zarr store. " in refusal(tmp_path)
    (tmp_path / ".zarray").write_text("{}")
    assert "found a zarr array and no group. " in refusal(tmp_path)


def test_no_such_store(tmp_path) -> None:
    assert "found no such file" in refusal(tmp_path / "gone.zarr")


@pytest.mark.parametrize("content", ["", "[]", "3", "{}", '{"zarr_format": 3}', "[" * 100_000])
@pytest.mark.parametrize("element", ["", "obs", "layers/count", "obs/depth", "obsm/spatial"])
def test_metadata_that_say_nothing(store, element, content) -> None:
    metadata_of(store, element).write_text(content)
    refusal(store, label_key="depth" if element == "obs/depth" else None)


@pytest.mark.parametrize(("lost", "found"), [("obs", "without obs and var"), ("var", "without obs and var")])
def test_a_store_without_tables(store, lost, found) -> None:
    shutil.rmtree(store / lost)
    assert found in refusal(store)


def test_tables_that_have_lost_their_attributes(second) -> None:
    (second / "obs" / ".zattrs").unlink()
    assert "found a zarr store whose obs or var is no table" in refusal(second)


def test_a_matrix_that_has_lost_its_attributes(second) -> None:
    (second / "layers" / "count" / ".zattrs").unlink()
    assert "Expected to read layers['count']" in refusal(second)


def test_an_array_in_the_place_of_a_store(tmp_path) -> None:
    zarr.create_array(tmp_path / "array.zarr", data=np.ones(3))
    assert "to be a complete zarr store, found it truncated or damaged" in refusal(tmp_path / "array.zarr")


@pytest.mark.parametrize(
    ("array", "name", "options"),
    [
        ("layers/count/data", "layers['count']", {}),
        ("layers/count/indices", "layers['count']", {}),
        ("layers/count/indptr", "layers['count']", {}),
        ("obsm/spatial", "obsm['spatial']", {}),
        ("obs", "the names in obs", {}),
        ("var", "the names in var", {}),
        ("obsm/X_pca", "obsm['X_pca']", {"rep": "X_pca"}),
        ("obsp/mine/data", "obsp['mine']", {"graph": "mine"}),
    ],
)
@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "of something else"])
def test_a_chunk_that_is(store, array, name, options, how) -> None:
    if array in {"obs", "var"}:
        array = names_of(store, array)
    chunk = chunks_of(store, array)[0]
    content = chunk.read_bytes()
    if how == "missing":
        chunk.unlink()
    else:
        chunk.write_bytes({"truncated": content[:-5], "empty": b"", "of something else": b"\x93NUMPY" * 9}[how])
    said = refusal(store, **options)
    assert said.startswith(f"Expected to read {name} of {str(store)!r}, found a damaged or unknown element")
    assert how != "missing" or f"1 of 1 chunks of {array} are missing" in said


def test_a_shape_that_nobody_could_look_through(store) -> None:
    rewrite(metadata_of(store, "obsm/spatial"), shape=[12, 10**12])
    assert "found a damaged or unknown element" in refusal(store)


@pytest.mark.parametrize("how", ["missing", "truncated"])
@pytest.mark.parametrize("array", ["layers/count/data", "layers/count/indptr", "layers/dense"])
def test_a_chunk_in_the_way_of_blocks(store, array, how) -> None:
    zarr.open_group(store, mode="r+", use_consolidated=False)["layers"].create_array(
        "dense", data=np.ones((12, 7)), chunks=(3, 7)
    )
    where = "layers['dense']" if "dense" in array else "layers['count']"
    with H5adSource(store) as source:
        rows = source.rows(where)
    chunk = chunks_of(store, array)[-1]
    if how == "missing":
        chunk.unlink()
    else:
        chunk.write_bytes(chunk.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"Expected to read layers.* found a damaged element"):
        list(rows.blocks())


@pytest.mark.parametrize("array", ["layers/count/indptr", "layers/count/data", "obsm/spatial", "obs/annotation/codes"])
def test_shapes_that_do_not_belong_together(store, array) -> None:
    described = metadata_of(store, array)
    shape = json.loads(described.read_text())["shape"]
    rewrite(described, shape=[shape[0] - 3, *shape[1:]])
    refusal(store)


def test_a_matrix_of_another_shape(store) -> None:
    path = store / "layers" / "count" / (".zattrs" if (store / ".zgroup").exists() else "zarr.json")
    path.write_text(re.sub(r'("shape": \[\s*)12', r"\g<1>11", path.read_text()))
    assert "layers['count']" in refusal(store)


@pytest.mark.parametrize("place", ["layers/count/data", "obs", ""])
def test_links_are_not_followed(store, tmp_path, place) -> None:
    (tmp_path / "secret").write_bytes(b"words" * 100)
    chunk = chunks_of(store, "layers/count/data")[0]
    if place == "layers/count/data":
        chunk.unlink()
        chunk.symlink_to(tmp_path / "secret")
    elif place == "obs":
        shutil.move(store / "obs", tmp_path / "obs")
        (store / "obs").symlink_to(tmp_path / "obs")
    else:
        (store / "round").symlink_to(store)
    assert "found a link in it (" in refusal(store)


def test_a_pipe_does_not_keep_anybody_waiting(store) -> None:
    chunk = chunks_of(store, "layers/count/data")[0]
    chunk.unlink()
    os.mkfifo(chunk)
    assert "found a pipe or device in it (layers/count/data/" in refusal(store)


class Bomb:
    """Unpickled, it makes a folder."""

    def __init__(self, place) -> None:
        self.place = str(place)

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_nothing_is_unpickled(second, tmp_path) -> None:
    import pickle

    names = names_of(second, "obs")
    chunk = chunks_of(second, names)[0]
    chunk.write_bytes(pickle.dumps(Bomb(tmp_path / "boom")))
    rewrite(second / names / ".zarray", dtype="|O", compressor=None, filters=[{"id": "pickle"}])
    assert f"found an array of objects in it ({names})" in refusal(second)
    # a summary that says otherwise is not asked
    (second / ".zmetadata").unlink()
    assert f"found an array of objects in it ({names})" in refusal(second)
    assert not (tmp_path / "boom").exists()


def test_a_summary_that_tells_of_pickles_is_not_asked(second, tmp_path) -> None:
    import pickle

    names = names_of(second, "obs")
    summary = json.loads((second / ".zmetadata").read_text())
    summary["metadata"][f"{names}/.zarray"] |= {"dtype": "|O", "compressor": None, "filters": [{"id": "pickle"}]}
    (second / ".zmetadata").write_text(json.dumps(summary))
    chunks_of(second, names)[0].write_bytes(pickle.dumps(Bomb(tmp_path / "boom")))
    assert "the names in obs" in refusal(second)
    assert not (tmp_path / "boom").exists()


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"dtype": "|O", "filters": None}, "an array of objects in it (obs/depth)"),
        ({"dtype": "|O", "filters": [{"id": "json2"}]}, "an array of objects"),
        ({"dtype": [["a", "|O"]], "filters": None}, "an array of objects"),
        ({"compressor": {"id": "pickle"}}, "an array of objects"),
        ({"compressor": {"id": "mine"}}, "an array with the unknown codec 'mine' in it (obs/depth)"),
    ],
)
def test_objects_and_codecs_of_format_2(second, changes, found) -> None:
    rewrite(second / "obs" / "depth" / ".zarray", **changes)
    assert found in refusal(second)


@pytest.mark.parametrize("shards", [False, True])
def test_codecs_of_format_3(third, shards) -> None:
    codecs = [{"name": "bytes"}, {"name": "numcodecs.pickle", "configuration": {}}]
    if shards:
        codecs = [{"name": "sharding_indexed", "configuration": {"codecs": codecs}}]
    rewrite(third / "obs" / "depth" / "zarr.json", codecs=codecs)
    assert "found an array of objects in it (obs/depth)" in refusal(third)


def test_blosc_out_of_sight(third) -> None:
    """Chunks of blosc are looked at before they are decompressed, which those within shards cannot be."""
    blosc = {"name": "blosc", "configuration": {}}
    inner = {"codecs": [{"name": "bytes"}, blosc], "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]}
    for codecs in (
        [{"name": "sharding_indexed", "configuration": inner}],
        [{"name": "bytes"}, blosc, {"name": "zstd"}],
    ):
        rewrite(third / "obs" / "depth" / "zarr.json", codecs=codecs)
        assert "the unknown codec 'blosc inside of another codec' in it (obs/depth)" in refusal(third)


def flip(file, rng, *, without=rb"\Z.") -> None:
    """Change one bit of a file, outside of what matches a pattern."""
    content = bytearray(file.read_bytes())
    places = np.ones(len(content), dtype=bool)
    for found in re.finditer(without, bytes(content), re.DOTALL):
        places[slice(*found.span())] = False
    content[rng.choice(np.flatnonzero(places))] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)


# A column that is not in this list is not read, and the types of numbers have an order of bytes.
UNPROTECTED = rb'"column-order": \[[^]]*\]|"(dtype|data_type|endian)": "[^"]*"'


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_a_flipped_bit_of_the_metadata_is_an_error_or_changes_nothing(store, read_parts, originals, seed) -> None:
    rng = np.random.default_rng(seed)
    original = originals[version_of(store)]
    files = sorted(path for path in store.rglob("*") if path.is_file() and not is_chunk(path.name))
    for file in rng.choice(files, 3):
        content = file.read_bytes()
        flip(file, rng, without=UNPROTECTED)
        assert read_parts(store) in (None, original), file
        file.write_bytes(content)


@pytest.mark.parametrize("seed", seeds(1, 10))
@pytest.mark.parametrize(
    "array",
    [
        "layers/count/data",
        "layers/count/indices",
        "layers/count/indptr",
        "obsm/spatial",
        "obs/_index",
        "var/_index",
        "obs/annotation/codes",
        "obs/annotation/categories",
    ],
)
@pytest.mark.filterwarnings("ignore::spatialpdvi.errors.InputWarning")  # of damaged coordinates, counts and names
def test_a_flipped_bit_of_a_chunk_is_an_error_or_changes_its_array_alone(
    store, read_parts, originals, array, seed
) -> None:
    """Zarr's default codecs have no checksum: other values of the array may be read, never of another array."""
    original = originals[version_of(store)]
    flip(chunks_of(store, array)[0], np.random.default_rng(seed))
    found = read_parts(store)
    if found is None:
        return
    assert [len(found[part]) for part in found] == [len(original[part]) for part in original]
    assert [part for part in found if found[part] != original[part] and not array.startswith(part)] == []


def test_shards_are_read_and_missed(third) -> None:
    obsm = zarr.open_group(third, mode="r+", use_consolidated=False)["obsm"]
    places = np.arange(24.0).reshape(12, 2) + 1
    obsm.create_array("shards", data=places, chunks=(2, 2), shards=(4, 2))
    with H5adSource(third) as source:
        np.testing.assert_array_equal(source.obsm("shards"), places)
    chunks_of(third, "obsm/shards")[1].unlink()
    assert "1 of 3 chunks of obsm/shards are missing" in refusal(third, spatial_key="shards")


def test_a_store_of_several_modalities(tmp_path) -> None:
    root = zarr.open_group(tmp_path / "mudata.zarr", mode="w")
    root.create_group("mod")
    assert "a MuData of several modalities" in refusal(tmp_path / "mudata.zarr")


def test_a_zip_archive(tmp_path) -> None:
    (tmp_path / "a.zarr").write_bytes(b"PK\x03\x04" + bytes(100))
    assert "found a zip archive. Unpack it first" in refusal(tmp_path / "a.zarr")


def test_a_table_of_one_row(tmp_path, make) -> None:
    adata = make()[:1].copy()
    adata.obs["annotation"] = pd.Categorical(["a"])
    with H5adSource(write_zarr(tmp_path / "one.zarr", adata, 2)) as source:
        assert source.n_obs == 1
