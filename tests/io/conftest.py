"""Small sections, as AnnData and as files of several ages."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.section.section import read_section

N_SPOTS, N_GENES = 12, 7

MakeAnnData = Callable[..., ad.AnnData]
MakeSource = Callable[[ad.AnnData], Source]


def make_adata(**changes: Any) -> ad.AnnData:
    """An AnnData of counts in CSR on a 3 x 4 grid; `changes` replace its parts."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(1.0, (N_SPOTS, N_GENES)).astype(np.float32)
    counts[:, 0] += 1  # no spot is empty
    y, x = np.divmod(np.arange(N_SPOTS), 4)
    parts = {
        "X": sp.csr_matrix(counts),
        "obs": pd.DataFrame(index=[f"spot{i}" for i in range(N_SPOTS)]),
        "var": pd.DataFrame(index=[f"gene{i}" for i in range(N_GENES)]),
        "obsm": {"spatial": np.column_stack([x, y]).astype(float)},
    }
    return ad.AnnData(**(parts | changes))


@pytest.fixture
def adata() -> ad.AnnData:
    return make_adata()


@pytest.fixture(scope="session")
def make() -> MakeAnnData:
    return make_adata


def _read_parts(path: Path) -> dict[str, list[Any]] | None:
    try:
        with H5adSource(path) as source:
            check_free(source, Keys())
            section = read_section(source, layer="count")
    except InputError as error:
        message = str(error)
    else:
        message = ""
    if message:
        assert re.fullmatch(r"(Expected .*, found .*|There is .*)\. .*\.", message), message
        return None
    return {
        "layers/count": section.counts.toarray().tolist(),
        "var/_index": list(section.gene_names),
        "obs/_index": list(section.spot_names),
        "obsm/spatial": section.coordinates.tolist(),
        "obs/annotation": [] if section.labels is None else list(section.labels),
    }


@pytest.fixture(scope="session")
def read_parts() -> Callable[[Path], dict[str, list[Any]] | None]:
    """What a fit reads of a file or store, to be compared; None where that is an error of one sentence."""
    return _read_parts


@pytest.fixture(params=["memory", "file"])
def source_of(request: pytest.FixtureRequest, tmp_path: Path) -> MakeSource:
    """Both ways in: the AnnData itself, and the same written to a file."""
    if request.param == "memory":
        return AnnDataSource

    def write(data: ad.AnnData) -> Source:
        path = tmp_path / f"source{len(list(tmp_path.iterdir()))}.h5ad"
        data.write_h5ad(path)
        source = H5adSource(path)
        request.addfinalizer(source._file.close)
        return source

    return write


@pytest.fixture
def path(tmp_path: Path, adata: ad.AnnData) -> Path:
    """A file with something of the user's in every group."""
    adata.obs["annotation"] = pd.Categorical(list("aabb" * 3))
    adata.obs["depth"] = np.arange(float(N_SPOTS))
    adata.obsm["X_pca"] = np.random.default_rng(1).normal(size=(N_SPOTS, 3))
    adata.obsp["mine"] = sp.identity(N_SPOTS, format="csr")
    adata.uns["mine"] = {"palette": np.array(["#000000", "#ffffff"]), "k": 3}
    adata.layers["count"] = adata.X.copy()
    path = tmp_path / "section.h5ad"
    adata.write_h5ad(path)
    return path


@pytest.fixture
def file_of_2018(tmp_path: Path, adata: ad.AnnData) -> Path:
    """The layout of anndata 0.6: tables as compound datasets, categories in uns, raw.X."""
    path = tmp_path / "old.h5ad"
    text = h5py.string_dtype()
    spots = np.zeros(N_SPOTS, dtype=[("index", "S8"), ("louvain", "i1"), ("n_genes", "i8"), ("batch", text)])
    spots["index"] = adata.obs_names.to_numpy().astype("S8")
    spots["louvain"] = np.arange(N_SPOTS) % 3
    spots["n_genes"] = np.arange(N_SPOTS)
    spots["batch"] = "b1"
    genes = np.zeros(N_GENES, dtype=[("index", text), ("highly_variable", "?")])
    genes["index"] = adata.var_names.to_numpy()
    places = np.zeros(N_SPOTS, dtype=[("spatial", "f4", (2,)), ("X_pca", "f4", (3,))])
    places["spatial"] = adata.obsm["spatial"]
    logged = np.log1p(adata.X.toarray())
    with h5py.File(path, "w") as file:
        file["obs"], file["var"], file["obsm"], file["raw.var"] = spots, genes, places, genes
        file["uns/louvain_categories"] = np.array([b"T", b"B", b"NK"])
        for key, dense in {"X": logged, "raw.X": adata.X.toarray()}.items():
            matrix = sp.csr_matrix(dense)
            group = file.create_group(key)
            group.attrs["h5sparse_format"] = "csr"
            group.attrs["h5sparse_shape"] = matrix.shape
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(matrix, part)
    return path


@pytest.fixture
def file_of_2020(tmp_path: Path, adata: ad.AnnData) -> Path:
    """The layout of anndata 0.7: a group for obs, with categories apart in __categories."""
    path = tmp_path / "elder.h5ad"
    adata.write_h5ad(path)
    text = h5py.string_dtype()
    with h5py.File(path, "r+") as file:
        obs = file["obs"]
        obs["louvain"] = (np.arange(N_SPOTS) % 3 - 1).astype("i1")
        obs["__categories/louvain"] = np.array(["T", "B"], dtype=text)
        obs["__categories/louvain"].attrs["ordered"] = False
        obs["louvain"].attrs["categories"] = obs["__categories/louvain"].ref
        obs.attrs["column-order"] = np.array(["louvain"], dtype=text)
        obs.attrs["encoding-version"] = "0.1.0"
    return path
