"""An h5ad file or a zarr store read element by element, without checks of what the elements mean."""

import contextlib
from collections.abc import Callable
from functools import cached_property
from hashlib import blake2b
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.matrices import Layout, as_csr, first_values, layer_of, layout_of
from spatialpdvi.io.formats.opening import open_file
from spatialpdvi.io.formats.streaming import FileRows, read_range
from spatialpdvi.io.storage.damage import reading
from spatialpdvi.io.storage.elements import (
    close,
    column_order,
    encoding_type,
    is_array,
    is_group,
    quiet,
    read,
    read_column,
)
from spatialpdvi.io.storage.paths import AnyPath, locate
from spatialpdvi.io.storage.zarr_stores import whole

__all__ = ["H5adSource"]

_T = TypeVar("_T")
_BLOCK = 1 << 16  # names of spots


class H5adSource:
    """An AnnData on disk behind the interface `Source`, open read-only until the ``with`` ends.

    Parameters
    ----------
    path
        An h5ad file, or the folder of a zarr store of an AnnData, or of a SpatialData store with one table.

    Raises
    ------
    InputError
        Where it cannot be used; methods raise it too, where an element is damaged.
    """

    def __init__(self, path: AnyPath) -> None:
        location = locate(path)
        self.name = repr(location.given)
        self._path = location.table()
        self._file = open_file(self._path)
        self._results: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        close(self._file)

    @property
    def root(self) -> Any:
        """The root group of the file or store."""
        return self._file

    @property
    def n_vars(self) -> int:
        """Number of genes of ``X``."""
        return len(self.var_names())

    def obs_names(self) -> pd.Index:
        """Names of the spots, (n,)."""
        return self._obs_names

    def digest(self) -> bytes:
        """What tells these spots from those of another file: of their names and of ``obsm["spatial"]``, in order."""

        def look() -> bytes:
            found = blake2b(digest_size=16)
            obs = self._file["obs"]
            index = obs[obs.attrs["_index"]]
            names = index if is_array(index) else self._obs_names.to_numpy()
            # Names of millions of spots take much memory as Python's texts, so they are read in blocks.
            for first in range(0, names.shape[0], _BLOCK):
                found.update(repr(names[first : first + _BLOCK].tolist()).encode("utf-8", "backslashreplace"))
            return found.digest()

        names, places = self._read("the names in obs", look), b""
        with contextlib.suppress(InputError, TypeError, ValueError):  # the fit may use others, if these are damaged
            if "spatial" in self.obsm_keys():
                xy = np.ascontiguousarray(self.obsm("spatial"), dtype=float)
                places = blake2b(xy.data, digest_size=16).digest()
        return names + places

    def var_names(self, where: str = "X") -> pd.Index:
        """Names of the genes of the matrix at `where`."""
        return self._names(_table_of(where))

    def var_keys(self, where: str = "X") -> list[str]:
        """Columns of the genes of the matrix at `where`."""
        return self._columns(_table_of(where))

    def var(self, key: str, where: str = "X") -> pd.Series:
        """One column of these, (genes,)."""
        table = _table_of(where)
        return self._read(f"{table}[{key!r}]", lambda: pd.Series(read_column(self._file[table], key)))

    def obs_keys(self) -> list[str]:
        """Columns of ``obs``."""
        return self._columns("obs")

    def obs(self, key: str) -> pd.Series:
        """One column of ``obs``, (n,)."""
        name = f"obs[{key!r}]"
        column = self._read(name, lambda: pd.Series(read_column(self._file["obs"], key)))
        return self._expect_rows(column, name)

    def obsm_keys(self) -> list[str]:
        """Keys of ``obsm``."""
        return self._keys("obsm")

    def obsm(self, key: str) -> Any:
        """One element of ``obsm``, with n rows."""
        name = f"obsm[{key!r}]"
        return self._expect_rows(self._read(name, lambda: read(whole(self._file["obsm"][key]))), name)

    def obsp_keys(self) -> list[str]:
        """Keys of ``obsp``."""
        return self._keys("obsp")

    def obsp(self, key: str) -> Any:
        """One element of ``obsp``."""
        return self._read(f"obsp[{key!r}]", lambda: read(whole(self._file["obsp"][key])))

    def uns_keys(self) -> list[str]:
        """Keys of ``uns``."""
        return self._keys("uns")

    def uns(self, key: str) -> Any:
        """One element of ``uns``. Results of this package have a hundred fields and many readers, and are kept."""
        if key in self._results:
            return self._results[key]
        element = self._read(f"uns[{key!r}]", lambda: read(self._file["uns"][key]))
        if isinstance(element, dict) and "params" in element:
            self._results[key] = element
        return element

    def uns_fields(self, key: str) -> list[str]:
        """Keys of the dict ``uns[key]``; none where there is no such dict."""
        return self._keys(f"uns/{key}")

    def layer_keys(self) -> list[str]:
        """Keys of ``layers``."""
        return self._keys("layers")

    def has_matrix(self, where: str) -> bool:
        """Whether ``X``, ``raw.X`` or ``layers['key']`` is there."""
        layer = layer_of(where)
        if layer is not None and layer not in self.layer_keys():
            return False  # HDF5 takes an empty key for the group itself, and a slash for a path

        def look() -> bool:
            path = _path_of(where)
            # anndata writes an absent X as an element of type "null".
            return path in self._file and encoding_type(self._file[path]) != "null"

        return self._read(where, look)

    def first_values(self, where: str) -> np.ndarray:
        """Some of the values at `where`, flat; reading them is quick."""
        return self._read(where, lambda: first_values(self._file[_path_of(where)]))

    def matrix(self, where: str) -> sp.csr_matrix:
        """The matrix at `where` as canonical CSR, (n, genes)."""

        def load() -> sp.csr_matrix:
            element = whole(self._file[_path_of(where)])
            if is_array(element):
                return as_csr(element, where)
            if encoding_type(element) == "csr_matrix":
                parts = (read_range(element["data"]), read_range(element["indices"]), element["indptr"][()])
                return as_csr(sp.csr_matrix(parts, shape=tuple(element.attrs["shape"])), where)
            return as_csr(read(element), where)

        csr = self._expect_rows(self._read(where, load), where)
        self._expect_genes(csr.shape[1], where)
        return csr

    def stored_bytes(self, where: str) -> int:
        """Memory that `matrix` would take."""
        return self.layout(where).csr_bytes

    def layout(self, where: str) -> Layout:
        """How the matrix at `where`, or an element such as ``obsm/X_pca``, is stored; its values are not read."""
        return self._read(where, lambda: layout_of(self._file[_path_of(where)]))

    def by_rows(self, where: str) -> bool:
        """Whether the matrix at `where` can be read block by block."""
        return self.layout(where).by_rows

    def rows(self, where: str) -> FileRows:
        """The matrix at `where` to be read block by block, also after this file is closed."""

        def look() -> tuple[int, int]:
            element = self._file[_path_of(where)]
            n_rows, n_columns = element.shape if is_array(element) else element.attrs["shape"]
            return int(n_rows), int(n_columns)

        shape = self._read(where, look)
        if shape[0] != self.n_obs:
            self._refuse(where, f"{shape[0]:,} rows for {self.n_obs:,} spots")
        self._expect_genes(shape[1], where)
        return FileRows(self._path, _path_of(where), where, shape)

    def _expect_genes(self, n_columns: int, where: str) -> None:
        n_genes = len(self.var_names(where))
        if n_columns != n_genes:
            self._refuse(where, f"{n_columns:,} columns where var names {n_genes:,} genes")

    @cached_property
    def _obs_names(self) -> pd.Index:
        return self._names("obs")

    @cached_property
    def n_obs(self) -> int:
        """Number of spots."""

        def look() -> int | None:
            obs = self._file["obs"]
            index = obs[obs.attrs["_index"]]
            # The length of a plain column is known without reading it.
            return int(index.shape[0]) if is_array(index) else None

        n_rows = self._read("the names in obs", look)
        return len(self._obs_names) if n_rows is None else n_rows

    def _columns(self, table: str) -> list[str]:
        def look() -> list[str]:
            element = self._file[table]
            return [key for key in column_order(element) if key in element]

        return self._read(f"the columns of {table}", look)

    def _names(self, table: str) -> pd.Index:
        def load() -> pd.Index:
            element = self._file[table]
            whole(element[element.attrs["_index"]])
            names = read_column(element, element.attrs["_index"])
            return pd.Index(np.asarray(names).astype(str), dtype=object)

        return self._read(f"the names in {table}", load)

    def _keys(self, group: str) -> list[str]:
        def look() -> list[str]:
            element = self._file.get(group)
            return sorted(element) if is_group(element) else []

        return self._read(group, look)

    def _read(self, name: str, load: Callable[[], _T]) -> _T:
        with reading(*self._refusal(name, "{type}: {reason}")), quiet():
            return load()

    def _expect_rows(self, element: _T, name: str) -> _T:
        shape = getattr(element, "shape", ())  # of arrays, frames and matrices
        if not shape:
            self._refuse(name, f"a {type(element).__name__} without rows")
        n_rows = shape[0]
        if n_rows != self.n_obs:
            turned = ", which are its columns" if self.n_obs in shape else ""
            self._refuse(name, f"{n_rows:,} rows for {self.n_obs:,} spots{turned}")
        return element

    def _refuse(self, name: str, found: str) -> NoReturn:
        raise InputError(*self._refusal(name, found))

    def _refusal(self, name: str, found: str) -> tuple[str, str, str]:
        """What was expected of an element, what was found, and what to do."""
        return (
            f"to read {name} of {self.name}",
            f"a damaged or unknown element ({found})",
            "Write the file again with a current anndata, or use another element.",
        )


def _table_of(where: str) -> str:
    """Table of the genes of the matrix at an address."""
    return "raw/var" if where == "raw.X" else "var"


def _path_of(where: str) -> str:
    """Path in the file of the matrix at an address."""
    layer = layer_of(where)
    return "raw/X" if where == "raw.X" else where if layer is None else f"layers/{layer}"
