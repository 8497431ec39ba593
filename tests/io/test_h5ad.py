"""Files that cannot be used: each one sentence, and the bytes stay."""

import gzip
import os
import stat
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.opening import open_file


def refusal(path: Path) -> str:
    """What opening says, without the path; the file is not changed by it."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(InputError) as caught:
        open_file(path)
    assert before is None or path.read_bytes() == before
    start = f"Expected {str(path)!r} to "
    assert str(caught.value).startswith(start)
    return str(caught.value).removeprefix(start)


@pytest.mark.parametrize(("name", "kind"), [("embyro.h5ad", "an h5ad file"), ("embyro.zarr", "a zarr store")])
def test_no_such_file(tmp_path, name, kind) -> None:
    assert refusal(tmp_path / name) == f"be {kind}, found no such file. Check the path for a typing error."


def test_a_link_into_nowhere_is_no_typing_error(tmp_path) -> None:
    (tmp_path / "link.h5ad").symlink_to("/nowhere/a.h5ad")
    assert refusal(tmp_path / "link.h5ad") == (
        "be an h5ad file, found a link to '/nowhere/a.h5ad', which is not there. Mend the link, or give the container "
        "that folder."
    )


def test_a_folder(tmp_path) -> None:
    assert refusal(tmp_path) == (
        "be a zarr store of an AnnData, found a folder that is no zarr store. Name a file or a store, or write your "
        "data with AnnData.write_zarr."
    )


def test_a_pipe_is_not_waited_for(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == ("be an h5ad file, found a pipe or device. Save the data as a file first.")


def test_no_permission(path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # for root, everything is readable
    assert refusal(path) == ("be an h5ad file, found no permission to read it. Ask its owner for access.")


def test_no_permission_for_the_folder(path, monkeypatch) -> None:
    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(InputError, match=r"found no permission to read it\. Ask its owner"):
        open_file(path)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "found an empty file. Copy or download it again."),
        (b"x,y\n1,2\n", "found a file that is not HDF5. Write your data with AnnData.write_h5ad."),
        (gzip.compress(b"x", mtime=0), "found a gzip-compressed file. Uncompress it first (gunzip)."),
    ],
)
def test_other_formats(tmp_path, content, said) -> None:
    path = tmp_path / "other.h5ad"
    path.write_bytes(content)
    assert refusal(path) == f"be an h5ad file, {said}"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file(path, share) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert refusal(path) == ("be a complete h5ad file, found it truncated or damaged. Copy or download it again.")


def test_a_file_open_for_writing_elsewhere(path) -> None:
    code = f"import h5py, sys; f = h5py.File({str(path)!r}, 'r+'); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        assert refusal(path) == (
            "be free, found it open for writing elsewhere. Close it there (a notebook, another "
            "program), then run again."
        )
        other.communicate()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["data"], "an HDF5 file without obs and var. Write your data with AnnData.write_h5ad."),
        (["obs", "var"], "an HDF5 file whose obs or var is no table. Write your data with"),
        (["matrix"], "another kind of HDF5 file (10x or loom). Read it with scanpy. Write your"),
        (["mod", "obs", "var"], "a MuData of several modalities. Write one modality as h5ad."),
        (
            ["genes", "cells", "position", "exp_matrix", "bin_type"],
            "one that stereopy wrote in its own format. Convert it with stereopy: `data = stereo.io.read_stereo_h5ad(",
        ),
    ],
)
def test_hdf5_that_is_no_anndata(tmp_path, names, said) -> None:
    path = tmp_path / "other.h5"
    with h5py.File(path, "w") as file:
        for name in names:
            file.create_group(name)
    assert refusal(path).startswith(f"hold an AnnData, found {said}")


def test_a_file_without_x_is_fine(tmp_path, make) -> None:
    path = tmp_path / "places.h5ad"
    make(X=None).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        file.pop("X", None)
    with H5adSource(path) as source:
        assert source.n_obs == 12
        assert not source.has_matrix("X")


def damaged(path: Path, element: str) -> str:
    """What reading a damaged element of the file says."""
    read = {
        "X": lambda source: source.matrix("X"),
        "layers['count']": lambda source: source.matrix("layers['count']"),
        "obsm['X_pca']": lambda source: source.obsm("X_pca"),
        "obsm['turned']": lambda source: source.obsm("turned"),
        "obsp['mine']": lambda source: source.obsp("mine"),
        "obs['annotation']": lambda source: source.obs("annotation"),
    }[element]
    with H5adSource(path) as source, pytest.raises(InputError) as caught:
        read(source)
    start = f"Expected to read {element} of {str(path)!r}, found a damaged or unknown element ("
    end = "). Write the file again with a current anndata, or use another element."
    assert str(caught.value).startswith(start)
    assert str(caught.value).endswith(end)
    return str(caught.value)[len(start) : -len(end)]


def test_a_missing_part_names_its_element(path) -> None:
    with h5py.File(path, "r+") as file:
        del file["X/indices"]
        del file["obs/annotation/codes"]
    assert damaged(path, "X").startswith("KeyError")
    assert damaged(path, "obs['annotation']").startswith("KeyError")


def test_bytes_overwritten_in_a_compressed_element(path) -> None:
    with h5py.File(path, "r+") as file:
        del file["obsm/X_pca"]
        data = np.random.default_rng(0).integers(0, 9, (12, 300))
        file["obsm"].create_dataset("X_pca", data=data, compression="gzip", chunks=(12, 300))
        chunk = file["obsm/X_pca"].id.get_chunk_info(0)
    with path.open("r+b") as stream:
        stream.seek(chunk.byte_offset)
        stream.write(b"\xff" * chunk.size)
    assert damaged(path, "obsm['X_pca']").startswith("OSError: Can't")


def test_sparse_indices_outside_the_matrix_are_not_followed(path) -> None:
    with h5py.File(path, "r+") as file:
        file["layers/count/indices"][3] = 10**6
    assert damaged(path, "layers['count']").startswith("ValueError")


def test_wrong_shapes_of_a_handmade_file(path) -> None:
    with h5py.File(path, "r+") as file:
        del file["obsm/X_pca"], file["X"], file["layers/count"]
        file["obsm/X_pca"] = np.zeros((5, 2))
        file["obsm/turned"] = np.zeros((2, 12))
        file["X"] = np.zeros((12, 3))
        file["layers/count"] = np.zeros((4, 7))
    assert damaged(path, "obsm['X_pca']") == "5 rows for 12 spots"
    assert damaged(path, "obsm['turned']") == "2 rows for 12 spots, which are its columns"
    assert damaged(path, "X") == "3 columns where var names 7 genes"
    assert damaged(path, "layers['count']") == "4 rows for 12 spots"


def test_an_element_of_an_encoding_yet_unknown(path) -> None:
    with h5py.File(path, "r+") as file:
        file["obsp/mine"].attrs["encoding-type"] = "from-the-future"
    assert damaged(path, "obsp['mine']").startswith("IORegistryError")


def test_the_file_is_closed_after_use_and_never_changed(path) -> None:
    before, mode = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    with H5adSource(path) as source:
        source.matrix("X")
        source.obs("annotation")
    with h5py.File(path, "r+"):
        pass  # would fail while another handle is open
    assert path.read_bytes() == before
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_result_is_read_once_and_nothing_else_is_kept(tmp_path, make) -> None:
    file = tmp_path / "fitted.h5ad"
    make(uns={"pdvi": {"params": {"k": 3}}, "spatial": {"slice": {"images": np.ones((2, 2))}}}).write_h5ad(file)
    with H5adSource(file) as source:
        assert source.uns("pdvi") == {"params": {"k": 3}}
        assert source.uns("pdvi") is source.uns("pdvi")
        assert source.uns("spatial") is not source.uns("spatial")
