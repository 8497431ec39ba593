"""Zarr stores for tests: as anndata writes them in both formats, and SpatialData stores with tables.

The module must not be called zarrs: anndata takes any module of that name for the library, and writes with it.
"""

import shutil
import warnings
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp
import zarr

FORMATS = (2, 3)


def write_zarr(path: Path, adata: ad.AnnData, version: int) -> Path:
    """Write a store by anndata's own means."""
    # anndata warns who chooses a format
    with warnings.catch_warnings(action="ignore"), ad.settings.override(zarr_write_format=version):
        adata.write_zarr(path)
    return path


def write_spatialdata(path: Path, tables: dict[str, ad.AnnData], version: int) -> Path:
    """A SpatialData store: groups of elements, tables among them."""
    root = zarr.open_group(path, mode="w", zarr_format=version)
    root.attrs["spatialdata_attrs"] = {"version": "0.2", "spatialdata_software_version": "0.5.0"}
    for room in ("images", "shapes", "tables"):
        root.create_group(room)
    for name, table in tables.items():
        write_zarr(path / "tables" / name, table, version)
    return path


def metadata_of(store: Path, element: str) -> Path:
    """The file that describes an element, in either format."""
    return next(path for name in ("zarr.json", ".zarray", ".zgroup") if (path := store / element / name).exists())


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder and the folders in it, by its path, with what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def chunks_of(store: Path, array: str) -> list[Path]:
    """Files of the values of an array, in order."""
    names = {".zarray", ".zattrs", ".zgroup", "zarr.json"}
    return sorted(path for path in (store / array).rglob("*") if path.is_file() and path.name not in names)


def names_of(store: Path, table: str) -> str:
    """The array with the names of ``obs`` or ``var``: pandas 3 makes anndata write a mask beside it."""
    masked = f"{table}/_index/values"
    return masked if (store / masked).exists() else f"{table}/_index"


def lose(store: Path, element: str) -> None:
    """Remove an element behind zarr's back."""
    shutil.rmtree(store / element)


def assert_same(one, other) -> None:
    """Two elements, or AnnData as a whole, are the same in type and in every bit."""
    if isinstance(one, ad.AnnData):
        for part in ("X", "obs", "var", "uns", "obsm", "varm", "obsp", "varp", "layers"):
            assert_same(getattr(one, part), getattr(other, part))
        assert (one.raw is None) == (other.raw is None)
        if one.raw is not None:
            assert_same(one.raw.X, other.raw.X)
            assert_same(one.raw.var, other.raw.var)
    elif isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True)
    elif sp.issparse(one):
        assert (one.format, one.shape) == (other.format, other.shape)
        for name in ("data", "indices", "indptr"):
            assert_same(getattr(one, name), getattr(other, name))
    elif isinstance(one, np.ndarray):
        texts = {np.dtype(object).kind, "T", "U"}  # anndata reads texts as one or the other
        assert one.dtype == other.dtype or {one.dtype.kind, other.dtype.kind} <= texts
        np.testing.assert_array_equal(one, other)
    elif hasattr(one, "keys"):
        assert set(one) == set(other)  # anndata 0.13 has X in its layers, under None
        for key in one:
            assert_same(one[key], other[key])
    else:
        plain = [value.item() if isinstance(value, np.generic) else value for value in (one, other)]
        assert plain[0] == plain[1]
        assert type(plain[0]) is type(plain[1])
