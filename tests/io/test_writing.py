import errno
import os
import subprocess
import sys
from pathlib import Path

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from zarr_samples import write_zarr

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results import writing
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.writing import apply_elements, check_output, check_parts, write_elements
from spatialpdvi.io.storage.paths import locate

KEYS = Keys()
N = 12


def results(n: int = N, k: int = 2, *, graph: bool = True) -> dict:
    """Everything that a fit may write."""
    rng = np.random.default_rng(k)
    codes = rng.integers(0, k, n)
    categories = [str(code) for code in range(k)]
    elements = {
        ("obs", KEYS.domain): pd.Categorical.from_codes(codes, categories),
        ("obs", KEYS.confidence): rng.random(n).astype(np.float32),
        ("obsm", KEYS.posterior): rng.random((n, k)).astype(np.float32),
        ("uns", KEYS.uns): {
            "params": {"k": k, "seed": 0, "layer": "count", "save_graph": graph},
            "trace": {"epoch": np.arange(5), "neg_elbo": rng.random(5)},
            "certificate": {"converged": True, "stationarity": 1e-9},
        },
    }
    if graph:
        elements["obsm", KEYS.flow] = rng.random((n, 2)).astype(np.float32)
        elements["obsp", KEYS.connectivities] = sp.csr_matrix(sp.diags([rng.random(n)] * 3, [0, 1, 2], shape=(n, n)))
    return elements


def stored(path: Path) -> dict[str, bytes]:
    """The raw bytes of every dataset with its attributes, by its path."""
    found = {}

    def visit(name, item) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = np.asarray(item[()]).tobytes() if item.dtype.kind != "O" else str(item[()])
        found[f"{name}@"] = str(sorted((key, str(item.attrs[key])) for key in item.attrs))

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


def assert_holds(adata: ad.AnnData, elements: dict) -> None:
    for (group, key), value in elements.items():
        found = getattr(adata, group)[key]
        if sp.issparse(value):
            assert (found != value).nnz == 0
        elif isinstance(value, pd.Categorical):
            assert list(found) == list(value)
            assert list(found.cat.categories) == list(value.categories)
        elif isinstance(value, dict):
            assert found["params"] == value["params"]
            assert found["certificate"] == value["certificate"]
            np.testing.assert_array_equal(found["trace"]["neg_elbo"], value["trace"]["neg_elbo"])
        else:
            assert found.dtype == value.dtype
            np.testing.assert_array_equal(found, value)


@pytest.fixture(params=["same file", "another file"])
def output(request, path, tmp_path) -> Path:
    return path if request.param == "same file" else tmp_path / "out.h5ad"


def test_results_are_added_and_the_users_data_stay(path, output) -> None:
    users, input_bytes = stored(path), path.read_bytes()
    write_elements(path, output, results())
    adata = ad.read_h5ad(output)
    assert_holds(adata, results())
    assert list(adata.obs) == ["annotation", "depth", KEYS.domain, KEYS.confidence]
    after = stored(output)
    changed = {name for name in users if after[name] != users[name]}
    assert changed == {"obs@"}  # its list of columns
    if output != path:
        assert path.read_bytes() == input_bytes


def test_a_second_fit_removes_what_the_first_left(path) -> None:
    write_elements(path, path, results(k=3))
    write_elements(path, path, results(k=5, graph=False), remove=KEYS.all_pairs())
    adata = ad.read_h5ad(path)
    assert_holds(adata, results(k=5, graph=False))
    assert set(adata.obsm) == {"X_pca", "spatial", KEYS.posterior}
    assert list(adata.obsp) == ["mine"]
    write_elements(path, path, {}, remove=KEYS.all_pairs())
    assert list(ad.read_h5ad(path).obs) == ["annotation", "depth"]
    assert list(ad.read_h5ad(path).uns) == ["mine"]


def test_columns_keep_their_place_when_replaced(path) -> None:
    write_elements(path, path, {("obs", "annotation"): pd.Categorical(["z"] * N)})
    adata = ad.read_h5ad(path)
    assert list(adata.obs) == ["annotation", "depth"]
    assert list(adata.obs["annotation"]) == ["z"] * N


def test_groups_that_the_file_lacks_are_made(path) -> None:
    with h5py.File(path, "r+") as file:
        del file["obsp"], file["uns"]
    write_elements(path, path, results())
    assert_holds(ad.read_h5ad(path), results())


def test_a_table_without_columns(tmp_path, make) -> None:
    path = tmp_path / "bare.h5ad"
    make().write_h5ad(path)
    write_elements(path, path, results())
    assert_holds(ad.read_h5ad(path), results())


def test_repeated_fits_do_not_grow_the_file(tmp_path) -> None:
    n, path, sizes = 4000, tmp_path / "large.h5ad", []
    ad.AnnData(X=sp.random(n, 50, 0.1, "csr", random_state=0)).write_h5ad(path)
    for k in (20, 20, 20, 20, 15, 20):
        write_elements(path, path, results(n, k), remove=KEYS.all_pairs())
        sizes.append(path.stat().st_size)
    assert max(sizes) <= sizes[0] + 5 * 4096
    assert sizes[4] < sizes[3]  # fewer domains take less


def test_a_link_stays_and_its_target_is_replaced(path, tmp_path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.h5ad"
    link.symlink_to(path)
    write_elements(link, link, results())
    assert link.is_symlink()
    assert_holds(ad.read_h5ad(path), results())
    assert list(link.parent.iterdir()) == [link]


@pytest.mark.parametrize("name", ["domains.csv", "folder", "out.h5"])
def test_a_new_file_must_end_as_its_format_does(path, tmp_path, name) -> None:
    with pytest.raises(InputError, match=rf"to be a path that ends in .h5ad or .zarr, found '{tmp_path / name}'"):
        write_elements(path, tmp_path / name, results())
    assert not (tmp_path / name).exists()


def test_the_link_has_the_ending_and_its_target_any_name(path, tmp_path) -> None:
    kept, link = tmp_path / "cache_of_files", tmp_path / "link.h5ad"
    kept.write_text("something else")
    link.symlink_to(kept)
    write_elements(path, link, results())
    assert link.is_symlink()
    assert_holds(ad.read_h5ad(link), results())
    bare = tmp_path / "bare"
    path.rename(bare)
    for output in (bare, tmp_path / "copy"):  # which have the ending of the source, none
        write_elements(bare, output, results())
        assert_holds(ad.read_h5ad(output), results())


def test_a_file_of_another_version_is_only_replaced(path, tmp_path) -> None:
    output = tmp_path / "out.h5ad"
    output.write_text("something else")
    write_elements(path, output, results())
    assert_holds(ad.read_h5ad(output), results())


class Untouched:
    """Everything in a folder, to be the same after a failure."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.before = folder, self.look(folder)

    @staticmethod
    def look(folder: Path) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in folder.iterdir()}

    def check(self) -> None:
        assert self.look(self.folder) == self.before


def fail_at(monkeypatch, number: int, error: BaseException) -> None:
    """Let the write of the `number`-th element fail, after half of it."""
    calls = []

    def write(group, key, value) -> None:
        calls.append(key)
        if len(calls) == number:
            group.create_dataset(f"half of {key}", data=np.ones(1000))
            raise error
        real(group, key, value)

    real = writing.write
    monkeypatch.setattr(writing, "write", write)


@pytest.mark.parametrize("number", [1, 4, 6])
def test_ctrl_c_in_the_middle(path, output, tmp_path, monkeypatch, number) -> None:
    if output != path:
        output.write_text("old")
    folder = Untouched(tmp_path)
    fail_at(monkeypatch, number, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_elements(path, output, results())
    folder.check()


def test_ctrl_c_while_the_file_is_copied(path, tmp_path, monkeypatch) -> None:
    def interrupt(_, copy: Path) -> None:
        copy.write_bytes(b"half")
        raise KeyboardInterrupt

    folder = Untouched(tmp_path)
    monkeypatch.setattr(writing, "copy_content", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_elements(path, path, results())
    folder.check()


def refusal(path: Path, output: Path, elements: dict) -> str:
    with pytest.raises(InputError) as caught:
        write_elements(path, output, elements)
    return str(caught.value)


FULL = (
    "There is no space left on the disk to write {!r}. Nothing was changed. Free some space or choose another "
    "`output`, then run again."
)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError("Can't write data (file write failed: errno = 28, error message = 'No space')"),
    ],
)
def test_a_disk_that_fills_up(path, output, tmp_path, monkeypatch, error) -> None:
    folder = Untouched(tmp_path)
    fail_at(monkeypatch, 3, error)
    assert refusal(path, output, results()) == FULL.format(str(output))
    folder.check()


@pytest.mark.parametrize("limit", ["while copying", "while adding", "at the end"])
@pytest.mark.cli
def test_a_real_limit_of_the_file_size(path, tmp_path, limit) -> None:
    size = path.stat().st_size
    most = {"while copying": size // 2, "while adding": size + 4096, "at the end": size + 10**5}
    n_columns = {"while copying": 10, "while adding": 5000, "at the end": 2070}[limit]
    code = (
        "import resource, sys, numpy as np\n"
        "from spatialpdvi.errors import InputError\n"
        "from spatialpdvi.io.results.writing import write_elements\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most[limit]}, {most[limit]}))\n"
        f"posterior = np.ones(({N}, {n_columns}), dtype=np.float32)\n"
        "try:\n"
        "    write_elements(sys.argv[1], sys.argv[1], {('obsm', 'pdvi_posterior'): posterior})\n"
        "except InputError as error:\n"
        "    print(error)\n"
    )
    folder = Untouched(tmp_path)
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == FULL.format(str(path))
    folder.check()


def test_bugs_keep_their_traceback_and_nothing_changes(path, tmp_path) -> None:
    folder = Untouched(tmp_path)
    with pytest.raises(Exception, match="No method registered"):
        write_elements(path, path, {("uns", "pdvi"): {"params": object()}})
    folder.check()


@pytest.mark.parametrize("pair", [("obs", "a"), ("obsm", "b"), ("obsp", "c")])
def test_a_file_that_changed_since_it_was_read(path, tmp_path, pair) -> None:
    folder = Untouched(tmp_path)
    value = np.ones(N + 1) if pair[0] == "obs" else sp.identity(N + 1, format="csr")
    assert refusal(path, path, {pair: value}) == (
        f"Expected {str(path)!r} to have the 13 spots of {pair[0]}[{pair[1]!r}], found 12. It has "
        "changed since it was read: run again."
    )
    folder.check()


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("other", ["rows", "names", "places", "nothing"])
def test_spots_that_are_no_longer_those_that_were_read(path, tmp_path, store, other) -> None:
    """The same spots in another order, or others of the same number, are not given these domains."""
    source = tmp_path / ("in.zarr" if store else "in.h5ad")
    adata = ad.read_h5ad(path)

    def save(saved: ad.AnnData) -> None:
        write_zarr(source, saved, 3) if store else saved.write_h5ad(source)

    save(adata)
    with H5adSource(source) as read:
        spots = read.digest()
    changed = adata[::-1].copy() if other == "rows" else adata
    if other == "names":
        changed.obs_names = [f"other {name}" for name in adata.obs_names]
    elif other == "places":
        changed.obsm["spatial"] = adata.obsm["spatial"] + 1
    changed.uns["mine"] = "added meanwhile"
    save(changed)
    elements = {("obs", "a"): np.ones(N)}
    if other == "nothing":
        write_elements(source, source, elements, spots=spots)
        return
    for output in (source, tmp_path / "out.h5ad", tmp_path / "out.zarr"):
        with pytest.raises(InputError, match=r"in their order, found others\. It has changed since it was read"):
            write_elements(source, output, elements, spots=spots)
    assert not list(tmp_path.glob("out*"))


def test_an_input_that_vanished_or_broke(path, tmp_path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    folder = Untouched(tmp_path)
    assert "found it truncated or damaged." in refusal(path, tmp_path / "out.h5ad", {})
    folder.check()
    path.unlink()
    assert "is no longer there or not readable." in refusal(path, tmp_path / "out.h5ad", {})
    assert list(tmp_path.iterdir()) == []


def test_the_folder_vanishes_half_way(path, tmp_path, monkeypatch) -> None:
    def gone(*_) -> None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    folder = Untouched(tmp_path)
    monkeypatch.setattr(Path, "replace", gone)
    assert refusal(path, path, results()) == (
        f"The input, or the folder of {str(path)!r}, is no longer there. Nothing was changed. Put it back, then run "
        "again."
    )
    folder.check()


@pytest.mark.parametrize("is_view", [False, True])
def test_the_same_in_memory(path, is_view) -> None:
    whole = ad.read_h5ad(path)
    adata = whole[:, :3] if is_view else whole
    apply_elements(adata, results(k=3))
    apply_elements(adata, results(k=5, graph=False), remove=KEYS.all_pairs())
    assert_holds(adata, results(k=5, graph=False))
    assert list(adata.obs) == ["annotation", "depth", KEYS.domain, KEYS.confidence]
    assert set(adata.obsm) == {"X_pca", "spatial", KEYS.posterior}
    assert list(adata.obsp) == ["mine"]
    assert not adata.is_view
    assert (KEYS.domain in whole.obs) != is_view


def test_in_memory_and_file_hold_the_same(path, tmp_path) -> None:
    adata = ad.read_h5ad(path)
    apply_elements(adata, results())
    adata.write_h5ad(tmp_path / "memory.h5ad")
    write_elements(path, tmp_path / "file.h5ad", results())
    assert stored(tmp_path / "memory.h5ad") == stored(tmp_path / "file.h5ad")


def test_nothing_is_written_to_an_anndata_of_another_length(adata) -> None:
    elements = results() | {("obsm", "wrong"): np.ones((N + 1, 2))}
    with pytest.raises(InputError, match=r"found 12\. It has changed since it was read"):
        apply_elements(adata, elements)
    assert list(adata.obs) == []


@pytest.mark.parametrize("name", ["out.h5ad", "out.zarr"])
@pytest.mark.parametrize("only", [None, []])
def test_texts_of_which_some_are_missing_are_copied(path, tmp_path, name, only) -> None:
    adata = ad.read_h5ad(path)
    adata.obs["note"] = pd.array(["a", None, "b"] * 4, dtype="string")
    with ad.settings.override(allow_write_nullable_strings=True):
        adata.write_h5ad(path, convert_strings_to_categoricals=False)
    with h5py.File(path) as file:
        assert file["obs/note"].attrs["encoding-type"] == "nullable-string-array"
    write_elements(path, tmp_path / name, results(), only=only)
    after = (ad.read_zarr if name.endswith("zarr") else ad.read_h5ad)(tmp_path / name)
    pd.testing.assert_series_equal(after.obs["note"], ad.read_h5ad(path).obs["note"])
    assert not ad.settings.allow_write_nullable_strings


@pytest.mark.parametrize("group", ["obs", "uns", "uns/mine", "layers"])
def test_what_cannot_be_converted_is_refused_beforehand(path, tmp_path, group) -> None:
    with h5py.File(path, "r+") as file:
        file.create_group(f"{group}/foreign").attrs.update({"encoding-type": "of another program"})
        if group == "obs":
            file["obs"].attrs["column-order"] = [*file["obs"].attrs["column-order"], "foreign"]
    source, output = locate(path), locate(tmp_path / "out.zarr")
    with H5adSource(source) as section:
        check_parts(section, source, source, None)
        with pytest.raises(InputError, match=rf"^Expected to copy {group}.*, found a damaged or unknown element"):
            check_parts(section, source, output, None)


def test_the_room_for_a_conversion_is_the_same_before_and_after_a_fit(path, tmp_path, monkeypatch) -> None:
    store, reserved, asked = tmp_path / "in.zarr", [], []
    write_elements(path, store, {("obsm", "constant"): np.zeros((N, 50_000))})
    monkeypatch.setattr(writing, "reserve", lambda _, n_bytes: reserved.append(n_bytes))
    monkeypatch.setattr(writing, "check_space", lambda _, n_bytes: asked.append(n_bytes))
    for only in (None, [("obsm", "constant"), ("obsm", "spatial")]):
        check_output(store, tmp_path / "out.h5ad", only=only)
        write_elements(store, tmp_path / "out.h5ad", {}, only=only)
    assert asked == [reserved[0]] * 2 + [reserved[2]] * 2
    assert min(asked) > 8 * N * 50_000
