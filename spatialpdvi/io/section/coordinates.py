"""Where the spots are: checked coordinates in the user's own unit."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, list_keys
from spatialpdvi.io.formats.sources import Source

__all__ = ["as_table", "read_coordinates"]

# Share of the variance off the best line below which the spots lie on it: rounding makes 1e-16.
_ON_A_LINE = 1e-12
_SMALLEST = 1e-140  # of distances: their squares are numbers, and so are sums of squares of their inverses


def read_coordinates(source: Source, key: str, *, samples: pd.Categorical | None = None) -> np.ndarray:
    """``obsm[key]`` as (n, 2) or (n, 3) float64, C-contiguous, all finite, in the file's unit.

    A key that ``obsm`` does not have may name columns of ``obs`` instead, with commas between them.
    Spots of different ``samples`` may lie at one place.
    """
    columns = key.split(",")
    if key in source.obsm_keys():
        name = f"obsm[{key!r}]"
        table = as_table(source.obsm(key), name)
    elif len(columns) > 1:
        name = f"obs[{columns}]"
        table = as_table(_read_columns(source, columns), name)
    else:
        msg = (
            f"Expected the coordinates of the spots in obsm[{key!r}] of {source.name}, "
            f"found keys: {list_keys(source.obsm_keys())}. Name yours with --spatial-key."
        )
        raise InputError(msg)
    if table.shape[1] not in {2, 3}:
        n_columns = table.shape[1]
        msg = (
            f"Expected {name} to have 2 or 3 columns (x, y and perhaps z), found {n_columns}. "
            "Name the coordinates with --spatial-key."
        )
        raise InputError(msg)
    coordinates = np.ascontiguousarray(table, dtype=np.float64).copy()
    _check_finite(coordinates, name, source.obs_names())
    _check_size(coordinates, name)
    _warn_of_duplicates(coordinates, name, source.obs_names(), samples)
    _warn_of_a_line(coordinates, name)
    return coordinates


def _read_columns(source: Source, columns: list[str]) -> pd.DataFrame:
    missing = [column for column in columns if column not in source.obs_keys()]
    if missing:
        msg = (
            f"Expected the coordinates of the spots in the columns {', '.join(columns)} of obs of {source.name}, found "
            f"no {', '.join(map(repr, missing))}. Name them, or a key of obsm, with --spatial-key."
        )
        raise InputError(msg)
    return pd.concat([source.obs(column) for column in columns], axis=1)


def as_table(element: Any, name: str) -> np.ndarray:
    """An array or data frame as a 2-D array of numbers; sparse and other elements are refused."""
    hint = "Store it as a plain array of numbers."
    if isinstance(element, pd.DataFrame):
        kinds = [str(kind) for kind in element.dtypes if not _is_number(kind)]
        if not kinds:
            return np.asarray(element.to_numpy(dtype=np.float64, na_value=np.nan))
        found = f"a column of type {kinds[0]}"
    elif sp.issparse(element):
        found = "a sparse matrix"
    elif not isinstance(element, np.ndarray):
        found = type(element).__name__
    elif element.dtype.kind not in "iuf":
        found = f"values of type {element.dtype}"
    elif element.ndim != 2:
        found = f"{element.ndim} dimension{'s' * (element.ndim != 1)}"
        hint = "Store it with one row per spot and one column per axis."
    else:
        return np.asarray(element)
    msg = f"Expected {name} to be a table of numbers, found {found}. {hint}"
    raise InputError(msg)


def _is_number(kind: Any) -> bool:
    types = pd.api.types
    real = types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind)
    return real and not types.is_bool_dtype(kind)


def _check_finite(coordinates: np.ndarray, name: str, spot_names: pd.Index) -> None:
    lost = ~np.isfinite(coordinates).all(axis=1)
    if not lost.any():
        return
    msg = (
        f"Expected {name} to hold finite coordinates, found {lost.sum():,} of {len(lost):,} spots "
        f"with NaN or infinity (first: {spot_names[lost][0]!r}). Remove these spots first."
    )
    raise InputError(msg)


def _check_size(coordinates: np.ndarray, name: str) -> None:
    """Refuse places whose distances overflow, or vanish, when they are squared."""
    largest = float(np.abs(coordinates).max(initial=0.0))
    spread = float(np.ptp(coordinates, axis=0).max(initial=0.0)) if len(coordinates) else 0.0
    if largest <= 1.0 / _SMALLEST and (spread == 0.0 or spread >= _SMALLEST):
        return
    msg = (
        f"Expected {name} to hold coordinates in a usual unit, found numbers of up to {largest:.3g}, {spread:.3g} "
        "apart, whose squares cannot be told from zero or infinity. Multiply them by a constant."
    )
    raise InputError(msg)


def _warn_of_duplicates(
    coordinates: np.ndarray, name: str, spot_names: pd.Index, samples: pd.Categorical | None
) -> None:
    places = pd.DataFrame(coordinates)
    if samples is not None:
        places["sample"] = samples.codes
    repeated = places.duplicated().to_numpy()
    if not repeated.any():
        return
    msg = (
        f"Expected one place per spot in {name}, found {repeated.sum():,} of {len(repeated):,} "
        f"spots at the place of an earlier one (first: {spot_names[repeated][0]!r}). "
        "They are kept; if several sections are stacked here, name the column that tells them apart with --sample-key."
    )
    warnings.warn(msg, InputWarning, stacklevel=2)


def _warn_of_a_line(coordinates: np.ndarray, name: str) -> None:
    if len(coordinates) < 3:
        return  # two spots are always on a line
    centred = coordinates - coordinates.mean(axis=0)
    centred /= np.abs(centred).max() or 1.0  # squares of large coordinates must not overflow
    spread = np.linalg.eigvalsh(centred.T @ centred)  # (2|3,), ascending
    if spread[-2] > _ON_A_LINE * spread[-1]:
        return
    msg = (
        f"Expected the spots of {name} to cover an area, found all of them on one line. "
        "Domains will be stretches of that line; check --spatial-key."
    )
    warnings.warn(msg, InputWarning, stacklevel=2)
