"""One interface to an h5ad file, a zarr store and an AnnData in memory, without checks of what is in them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn, Protocol, cast

import numpy as np
import pandas as pd
import scipy.sparse as sp
from anndata import AnnData

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.matrices import as_csr, first_values, layer_of
from spatialpdvi.runtime.rows import Rows, SelectedRows

__all__ = ["AnnDataSource", "Source", "select_spots", "with_elements"]


class Source(Protocol):
    """What can be read of a section, on disk or in memory.

    Matrices are addressed as ``X``, ``raw.X`` or ``layers['key']``. Arrays that are returned may share memory with the
    original: do not write to them.
    """

    name: str  # for messages

    @property
    def n_obs(self) -> int:
        """Number of spots."""

    @property
    def n_vars(self) -> int:
        """Number of genes of ``X``."""

    def obs_names(self) -> pd.Index:
        """Names of the spots, (n,)."""

    def var_names(self, where: str = "X") -> pd.Index:
        """Names of the genes of the matrix at `where`."""

    def var_keys(self, where: str = "X") -> list[str]:
        """Columns of the genes of the matrix at `where`."""

    def var(self, key: str, where: str = "X") -> pd.Series:
        """One column of these, (genes,)."""

    def obs_keys(self) -> list[str]:
        """Columns of ``obs``."""

    def obs(self, key: str) -> pd.Series:
        """One column of ``obs``, (n,)."""

    def obsm_keys(self) -> list[str]:
        """Keys of ``obsm``."""

    def obsm(self, key: str) -> Any:
        """One element of ``obsm``, with n rows."""

    def obsp_keys(self) -> list[str]:
        """Keys of ``obsp``."""

    def obsp(self, key: str) -> Any:
        """One element of ``obsp``."""

    def uns_keys(self) -> list[str]:
        """Keys of ``uns``."""

    def uns(self, key: str) -> Any:
        """One element of ``uns``."""

    def uns_fields(self, key: str) -> list[str]:
        """Keys of the dict ``uns[key]``; none where there is no such dict."""

    def layer_keys(self) -> list[str]:
        """Keys of ``layers``."""

    def has_matrix(self, where: str) -> bool:
        """Whether ``X``, ``raw.X`` or ``layers['key']`` is there."""

    def first_values(self, where: str) -> np.ndarray:
        """Some of the values at `where`, flat; reading them is quick."""

    def matrix(self, where: str) -> sp.csr_matrix:
        """The matrix at `where` as canonical CSR, (n, genes)."""

    def stored_bytes(self, where: str) -> int:
        """Memory that `matrix` would take beyond what is taken already."""

    def by_rows(self, where: str) -> bool:
        """Whether the matrix at `where` can be read block by block."""

    def rows(self, where: str) -> Rows:
        """The matrix at `where` to be read block by block."""


class AnnDataSource:
    """An AnnData in memory, which may be a view or backed; it is never changed.

    Parameters
    ----------
    adata
        The object.
    of_file
        The function of the package that does with a file what is done here, for the advice where this is no AnnData.
    """

    def __init__(self, adata: AnnData, of_file: str = "") -> None:
        if not isinstance(adata, AnnData):
            if hasattr(adata, "tables"):  # of SpatialData
                advice = f"Give its table, `sdata.tables[{next(iter(adata.tables), 'table')!r}]`."
            else:
                path = of_file and f", or give its path to `spatialpdvi.{of_file}`"
                advice = f"Read your file with anndata.read_h5ad{path}."
            raise InputError("an AnnData", type(adata).__name__, advice)
        self.name = "the AnnData"
        self._adata = adata
        self._read: dict[str, Any] = {}  # the last matrix of a backed AnnData that was read, by its address

    def check_takes_results(self) -> None:
        """Raise where results cannot be written into the object: a selection of one that is backed by a file."""
        if self._adata.isbacked and self._adata.is_view:
            raise InputError(
                "an AnnData that results can be written into",
                "a selection of spots of one that is backed by a file",
                "Copy it into memory first, with `adata.to_memory()`.",
            )

    @property
    def n_obs(self) -> int:
        """Number of spots."""
        return int(self._adata.n_obs)

    @property
    def n_vars(self) -> int:
        """Number of genes of ``X``."""
        return int(self._adata.n_vars)

    def obs_names(self) -> pd.Index:
        """Names of the spots, (n,)."""
        return self._adata.obs_names

    def var_names(self, where: str = "X") -> pd.Index:
        """Names of the genes of the matrix at `where`."""
        return self._genes(where).index

    def var_keys(self, where: str = "X") -> list[str]:
        """Columns of the genes of the matrix at `where`."""
        return _texts(self._genes(where).columns)

    def var(self, key: str, where: str = "X") -> pd.Series:
        """One column of these, (genes,)."""
        return self._column(self._genes(where), key, "raw.var" if where == "raw.X" else "var")

    def obs_keys(self) -> list[str]:
        """Columns of ``obs``."""
        return _texts(self._adata.obs.columns)

    def obs(self, key: str) -> pd.Series:
        """One column of ``obs``, (n,)."""
        return self._column(self._adata.obs, key, "obs")

    def obsm_keys(self) -> list[str]:
        """Keys of ``obsm``."""
        return _texts(self._adata.obsm)

    def obsm(self, key: str) -> Any:
        """One element of ``obsm``, with n rows."""
        return _computed(self._adata.obsm[key], f"obsm[{key!r}]")

    def obsp_keys(self) -> list[str]:
        """Keys of ``obsp``."""
        return _texts(self._adata.obsp)

    def obsp(self, key: str) -> Any:
        """One element of ``obsp``."""
        return _computed(self._adata.obsp[key], f"obsp[{key!r}]")

    def uns_keys(self) -> list[str]:
        """Keys of ``uns``."""
        return _texts(self._adata.uns)

    def uns(self, key: str) -> Any:
        """One element of ``uns``."""
        return self._adata.uns[key]

    def uns_fields(self, key: str) -> list[str]:
        """Keys of the dict ``uns[key]``; none where there is no such dict."""
        value = self._adata.uns.get(key)
        return _texts(value) if hasattr(value, "keys") else []

    def layer_keys(self) -> list[str]:
        """Keys of ``layers``."""
        return _texts(self._adata.layers)  # without None, under which anndata 0.13 keeps X

    def has_matrix(self, where: str) -> bool:
        """Whether ``X``, ``raw.X`` or ``layers['key']`` is there."""
        if where == "raw.X":
            return self._adata.raw is not None
        layer = layer_of(where)
        return self._adata.X is not None if layer is None else layer in self._adata.layers

    def first_values(self, where: str) -> np.ndarray:
        """Some of the values at `where`, flat; reading them is quick."""
        return first_values(self._stored(where))

    def matrix(self, where: str) -> sp.csr_matrix:
        """The matrix at `where` as canonical CSR, (n, genes)."""
        return as_csr(self._stored(where), where)

    def stored_bytes(self, where: str) -> int:
        """0: the matrix is in memory."""
        return 0

    def by_rows(self, where: str) -> bool:
        """Whether the matrix at `where` can be read block by block: never, since it is in memory."""
        return False

    def rows(self, where: str) -> NoReturn:
        """Raise an error: a matrix in memory is not read in blocks."""
        msg = f"{where} is in memory"
        raise NotImplementedError(msg)

    def _column(self, table: pd.DataFrame, key: str, name: str) -> pd.Series:
        column = table[key]
        if isinstance(column, pd.DataFrame):
            raise InputError(
                f"one column {key!r} in {name} of {self.name}", f"{column.shape[1]} of this name", "Rename all but one."
            )
        return column.reset_index(drop=True)

    def _genes(self, where: str) -> pd.DataFrame:
        return self._adata.raw.var if where == "raw.X" else self._adata.var

    def _stored(self, where: str) -> Any:
        layer = layer_of(where)
        if where == "raw.X":
            matrix = self._adata.raw.X
        else:
            matrix = self._adata.X if layer is None else self._adata.layers[layer]
        matrix = _computed(matrix, where)
        if hasattr(matrix, "to_memory"):  # the sparse matrix of a backed AnnData
            if where not in self._read:
                self._read = {where: matrix.to_memory()}
            matrix = self._read[where]
        if isinstance(matrix, pd.DataFrame):
            matrix = matrix.to_numpy()
        if not sp.issparse(matrix) and not {"shape", "dtype", "__getitem__"} <= set(dir(matrix)):
            raise InputError(f"{where} to be an array or a sparse matrix", type(matrix).__name__, "Convert it first.")
        return matrix


def _texts(keys: Iterable[Any]) -> list[str]:
    """The keys that are texts, as all of a file are."""
    return [key for key in keys if isinstance(key, str)]


def _computed(element: Any, where: str) -> Any:
    """Return an element of an AnnData; raise an `InputError` where its values are masked, or to be computed by Dask.

    To compute them here would fill the memory that Dask was to save, without a word.
    """
    if np.ma.is_masked(element):
        advice = "Leave out the spots or columns that have them, or fill them with `.filled(...)`."
        raise InputError(f"{where} of the AnnData to have all its values", "masked ones", advice)
    if not hasattr(type(element), "__dask_graph__"):
        return element
    advice = "Read the whole AnnData into memory with `adata = adata.to_memory()`"
    if where != "raw.X":  # which cannot be set
        advice += f", or this array with `adata.{where} = adata.{where}.compute()`"
    raise InputError(f"{where} of the AnnData in memory", "a Dask array", f"{advice}.")


def select_spots(source: Source, spots: np.ndarray) -> Source:
    """Return a section that consists of some spots of another, whose numbers (n,) are ascending."""
    return cast("Source", _SelectedSpots(source, spots))


def with_elements(
    source: Source, elements: Mapping[tuple[str, str], Any], *, remove: Collection[tuple[str, str]]
) -> Source:
    """Return a section as it will be when elements are written into it.

    Parameters
    ----------
    source
        The section.
    elements
        Values by (group, key), of obs, obsm, obsp and uns.
    remove
        Those of the section that will be gone.
    """
    return cast("Source", _WithElements(source, elements, remove))


class _WithElements:
    """A source in which some elements are others, and some are not there."""

    def __init__(
        self, source: Source, elements: Mapping[tuple[str, str], Any], remove: Collection[tuple[str, str]]
    ) -> None:
        self._source, self._elements, self._hidden = source, elements, {*remove, *elements}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def obs_keys(self) -> list[str]:
        return self._keys("obs", self._source.obs_keys())

    def obs(self, key: str) -> pd.Series:
        return pd.Series(self._elements["obs", key]) if ("obs", key) in self._elements else self._source.obs(key)

    def obsm_keys(self) -> list[str]:
        return self._keys("obsm", self._source.obsm_keys())

    def obsm(self, key: str) -> Any:
        return self._elements["obsm", key] if ("obsm", key) in self._elements else self._source.obsm(key)

    def obsp_keys(self) -> list[str]:
        return self._keys("obsp", self._source.obsp_keys())

    def obsp(self, key: str) -> Any:
        return self._elements["obsp", key] if ("obsp", key) in self._elements else self._source.obsp(key)

    def uns_keys(self) -> list[str]:
        return self._keys("uns", self._source.uns_keys())

    def uns(self, key: str) -> Any:
        return self._elements["uns", key] if ("uns", key) in self._elements else self._source.uns(key)

    def uns_fields(self, key: str) -> list[str]:
        value = self._elements.get(("uns", key))
        if value is None:
            return [] if ("uns", key) in self._hidden else self._source.uns_fields(key)
        return list(value) if hasattr(value, "keys") else []

    def _keys(self, group: str, present: list[str]) -> list[str]:
        kept = [key for key in present if (group, key) not in self._hidden]
        return kept + [key for own, key in self._elements if own == group]


class _SelectedSpots:
    """Rows of the elements of a source; what has no rows is the source's own."""

    def __init__(self, source: Source, spots: np.ndarray) -> None:
        self._source, self._spots = source, spots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    @property
    def n_obs(self) -> int:
        return int(self._spots.size)

    def obs_names(self) -> pd.Index:
        return self._source.obs_names()[self._spots]

    def obs(self, key: str) -> pd.Series:
        return self._source.obs(key).iloc[self._spots].reset_index(drop=True)

    def obsm(self, key: str) -> Any:
        element = self._source.obsm(key)
        if isinstance(element, pd.DataFrame):
            return element.iloc[self._spots]
        # what is no table is for the reader to refuse
        return _indexable(element)[self._spots] if self._has_rows(element) else element

    def obsp(self, key: str) -> Any:
        element = self._source.obsp(key)
        if not self._has_rows(element) or len(set(element.shape)) > 1:
            return element
        return _indexable(element)[self._spots][:, self._spots]

    def first_values(self, where: str) -> np.ndarray:
        values = self._source.first_values(where)  # of all spots: those that are left out may have no number
        return values[np.isfinite(values)] if values.dtype.kind == "f" else values

    def matrix(self, where: str) -> sp.csr_matrix:
        return self._source.matrix(where)[self._spots]

    def rows(self, where: str) -> Rows:
        return SelectedRows(self._source.rows(where), self._spots)

    def _has_rows(self, element: Any) -> bool:
        shape: Any = getattr(element, "shape", ())
        return bool(len(shape) == 2 and shape[0] == self._source.n_obs)


def _indexable(element: Any) -> Any:
    return element.tocsr() if sp.issparse(element) else element
