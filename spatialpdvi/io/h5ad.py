"""An h5ad file read element by element; no check of what the elements mean."""

import os
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import h5py
import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import OldFormatWarning
from anndata.io import read_elem

from spatialpdvi.errors import InputError
from spatialpdvi.io.legacy import column_order, is_table, read_fields, read_table
from spatialpdvi.io.matrices import as_csr, first_values, layer_of

__all__ = ["H5adSource", "open_h5ad"]

_T = TypeVar("_T")


class H5adSource:
    """An h5ad on disk behind the interface `Source`, open read-only until the ``with`` ends.

    Parameters
    ----------
    path
        The file; every way in which it may be unusable is an `InputError`.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = repr(str(path))
        self._file = open_h5ad(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def n_obs(self) -> int:
        """Number of spots."""
        obs = self._file["obs"]
        index = obs if is_table(obs) else obs[obs.attrs["_index"]]
        # A plain column tells its length without being read.
        return int(index.shape[0]) if isinstance(index, h5py.Dataset) else len(self._obs_names)

    @property
    def n_vars(self) -> int:
        """Number of genes of ``X``."""
        return len(self.var_names())

    def obs_names(self) -> pd.Index:
        """Names of the spots, (n,)."""
        return self._obs_names

    def var_names(self, where: str = "X") -> pd.Index:
        """Names of the genes of the matrix at `where`."""
        if where != "raw.X":
            return self._names("var")
        return self._names("raw/var" if "raw/var" in self._file else "raw.var")

    def obs_keys(self) -> list[str]:
        """Columns of ``obs``."""
        if is_table(self._file["obs"]):
            return list(self._legacy_obs.columns)
        return [key for key in column_order(self._file["obs"]) if key in self._file["obs"]]

    def obs(self, key: str) -> pd.Series:
        """One column of ``obs``, (n,)."""
        name = f"obs[{key!r}]"
        if is_table(self._file["obs"]):
            return self._legacy_obs[key].reset_index(drop=True)
        column = self._read(name, lambda: pd.Series(_read_column(self._file["obs"], key)))
        return self._expect_rows(column, name)

    def obsm_keys(self) -> list[str]:
        """Keys of ``obsm``."""
        return self._keys("obsm")

    def obsm(self, key: str) -> Any:
        """One element of ``obsm``, with n rows."""
        name = f"obsm[{key!r}]"
        group = self._file["obsm"]
        if is_table(group):
            return self._read(name, lambda: read_fields(group)[key])
        return self._expect_rows(self._read(name, lambda: read_elem(group[key])), name)

    def obsp_keys(self) -> list[str]:
        """Keys of ``obsp``."""
        return self._keys("obsp")

    def obsp(self, key: str) -> Any:
        """One element of ``obsp``."""
        return self._read(f"obsp[{key!r}]", lambda: read_elem(self._file["obsp"][key]))

    def uns_keys(self) -> list[str]:
        """Keys of ``uns``."""
        return self._keys("uns")

    def uns(self, key: str) -> Any:
        """One element of ``uns``."""
        return self._read(f"uns[{key!r}]", lambda: read_elem(self._file["uns"][key]))

    def uns_fields(self, key: str) -> list[str]:
        """Keys of the dict ``uns[key]``; none where there is no such dict."""
        return self._keys(f"uns/{key}")

    def layer_keys(self) -> list[str]:
        """Keys of ``layers``."""
        return self._keys("layers")

    def has_matrix(self, where: str) -> bool:
        """Whether ``X``, ``raw.X`` or ``layers['key']`` is there."""
        path = self._matrix_path(where)
        # anndata writes an absent X as an element of type "null".
        return path in self._file and self._file[path].attrs.get("encoding-type") != "null"

    def first_values(self, where: str) -> np.ndarray:
        """Some of the values at `where`, flat: a glance that costs next to nothing."""
        return self._read(where, lambda: first_values(self._file[self._matrix_path(where)]))

    def matrix(self, where: str) -> sp.csr_matrix:
        """The matrix at `where` as canonical CSR, (n, genes)."""
        element = self._file[self._matrix_path(where)]

        def load() -> sp.csr_matrix:
            dense = isinstance(element, h5py.Dataset)
            return as_csr(element if dense else read_elem(element), where)

        csr = self._expect_rows(self._read(where, load), where)
        n_genes = len(self.var_names(where))
        if csr.shape[1] != n_genes:
            self._refuse(where, f"{csr.shape[1]:,} columns where var names {n_genes:,} genes")
        return csr

    @cached_property
    def _obs_names(self) -> pd.Index:
        return self._legacy_obs.index if is_table(self._file["obs"]) else self._names("obs")

    @cached_property
    def _legacy_obs(self) -> pd.DataFrame:
        return self._read("obs", lambda: read_table(self._file, "obs"))

    def _names(self, table: str) -> pd.Index:
        def load() -> pd.Index:
            element = self._file[table]
            if is_table(element):
                return read_table(self._file, table).index
            names = _read_column(element, element.attrs["_index"])
            return pd.Index(np.asarray(names).astype(str), dtype=object)

        return self._read(f"the names in {table}", load)

    def _keys(self, group: str) -> list[str]:
        element = self._file.get(group)
        if is_table(element):
            return list(element.dtype.names)
        return list(element) if isinstance(element, h5py.Group) else []

    def _matrix_path(self, where: str) -> str:
        if where == "raw.X":
            return "raw/X" if "raw/X" in self._file else "raw.X"
        layer = layer_of(where)
        return where if layer is None else f"layers/{layer}"

    def _read(self, name: str, load: Callable[[], _T]) -> _T:
        try:
            with _quiet():
                return load()
        except (InputError, MemoryError):
            raise
        # Whatever a damaged or foreign element makes h5py, anndata or SciPy raise, the file is it.
        except Exception as error:  # noqa: BLE001
            found = str(error.args[0] if error.args else error).splitlines()[0].rstrip(".")
            self._refuse(name, f"{type(error).__name__}: {found}", cause=error)

    def _expect_rows(self, element: _T, name: str) -> _T:
        n_rows = element.shape[0]  # type: ignore[attr-defined]  # arrays, frames and matrices
        if n_rows != self.n_obs:
            self._refuse(name, f"{n_rows:,} rows for {self.n_obs:,} spots")
        return element

    def _refuse(self, name: str, found: str, cause: Exception | None = None) -> NoReturn:
        msg = (
            f"Expected to read {name} of {self.name}, found a damaged or unknown element "
            f"({found}). Write the file again with a current anndata, or use another element."
        )
        raise InputError(msg) from cause


def open_h5ad(path: str | Path) -> h5py.File:
    """Open an h5ad read-only, or say in one sentence why that cannot be done."""
    path = Path(path)
    _check_regular(path)
    try:
        file = h5py.File(path, "r")
    except BlockingIOError as error:
        msg = f"Expected {_show(path)} to be free, found it open for writing elsewhere. "
        msg += "Close it there (a notebook, another program), then run again."
        raise InputError(msg) from error
    except OSError as error:
        msg = f"Expected {_show(path)} to be a complete h5ad file, found it truncated or damaged. "
        msg += "Copy or download it again."
        raise InputError(msg) from error
    try:
        _check_anndata(file, path)
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(path: Path) -> None:
    hint = "Check the path for a typing error."
    try:
        mode = path.stat().st_mode
    except PermissionError:
        found, hint = "no permission to read it", "Ask its owner for access."
    except (OSError, ValueError):  # ValueError: a null character in the name
        found = "no such file"
    else:
        if stat.S_ISDIR(mode):
            found, hint = "a folder", "Name the h5ad file in it."
        elif not stat.S_ISREG(mode):
            found, hint = "a pipe or device", "Save the data as a file first."
        elif not os.access(path, os.R_OK):
            found, hint = "no permission to read it", "Ask its owner for access."
        elif path.stat().st_size == 0:
            found, hint = "an empty file", "Copy or download it again."
        elif not h5py.is_hdf5(path):
            found, hint = _not_hdf5(path)
        else:
            return
    msg = f"Expected {_show(path)} to be an h5ad file, found {found}. {hint}"
    raise InputError(msg)


def _not_hdf5(path: Path) -> tuple[str, str]:
    with path.open("rb") as stream:
        gzipped = stream.read(2) == b"\x1f\x8b"
    if gzipped:
        return "a gzip-compressed file", "Uncompress it first (gunzip)."
    return "a file that is not HDF5", "Write your data with AnnData.write_h5ad."


def _check_anndata(file: h5py.File, path: Path) -> None:
    hint = "Write your data with AnnData.write_h5ad."
    if "mod" in file:
        found, hint = "a MuData of several modalities", "Write one modality as h5ad."
    elif "matrix" in file:
        found, hint = "another kind of HDF5 file (10x or loom)", f"Read it with scanpy. {hint}"
    elif not {"obs", "var"} <= set(file):
        found = "an HDF5 file without obs and var"
    elif not all(_is_frame(file[name]) for name in ("obs", "var")):
        found = "an HDF5 file whose obs or var is no table"
    else:
        return
    msg = f"Expected {_show(path)} to hold an AnnData, found {found}. {hint}"
    raise InputError(msg)


def _is_frame(element: Any) -> bool:
    if isinstance(element, h5py.Group):
        return element.attrs.get("_index", "?") in element
    return is_table(element)


def _read_column(group: h5py.Group, key: str) -> Any:
    column = group[key]
    if "categories" not in column.attrs:
        return read_elem(column)
    # Files of anndata 0.7 keep the categories apart and refer to them.
    categories = group[column.attrs["categories"]]
    ordered = bool(categories.attrs.get("ordered", False))
    return pd.Categorical.from_codes(column[()], read_elem(categories), ordered=ordered)


def _show(path: Path) -> str:
    return repr(str(path))


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        # The age of the file is nothing its reader of today has to act on.
        warnings.simplefilter("ignore", OldFormatWarning)
        yield
