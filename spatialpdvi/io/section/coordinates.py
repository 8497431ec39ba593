"""Coordinates of the spots, checked, in the unit of the file."""

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError, InputWarning, list_keys, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.labels import spots_by_section
from spatialpdvi.options.validation import read_kind
from spatialpdvi.runtime.rows import some_rows
from spatialpdvi.runtime.threads import nearest

__all__ = ["as_table", "beside_fields", "far_spots", "read_coordinates", "warn_of_sections_on_top"]

# Share of the variance off the best line below which the spots lie on it: rounding makes 1e-16.
_ON_A_LINE = 1e-12
_OF_SPATIALDATA = "spatialdata_attrs"  # key of uns in which SpatialData says which column has the regions
# keys of the places of CosMx: within a field, and in the whole section by squidpy and by SpatialData
_OF_FIELDS, _OF_SECTION = "spatial", ("spatial_fov", "global")
_FEWEST_AROUND = 20  # spots of a section, to say that others are far from it
_FAR = 10.0  # times the width of the middle nine tenths of the spots, from their median
# columns of sections, alone or before _id or _name; the last two are those of Seurat and Giotto
_NAMES_OF_SECTIONS = ("section", "slice", "slide", "sample", "batch", "library", "puck", "orig.ident", "list")
_EMBEDDINGS = re.compile(r"(x_)?(umap|tsne|pca|phate|diffmap|draw_graph)")  # keys of obsm that are no places
_AXES = (("x", "y"), ("X", "Y"), ("col", "row"))  # what the names of two columns of coordinates differ in
_MIXED = 0.3  # share of spots whose nearest one is of another section, from which the sections lie over each other
_LOOKED_AT = 50_000  # spots, which are enough for this share
_SMALLEST = 1e-140  # distance whose square, and sums of squares of whose inverse, are still representable


def read_coordinates(source: Source, key: str, *, samples: pd.Categorical | None = None) -> np.ndarray:
    """Read and check the coordinates of the spots.

    Parameters
    ----------
    source
        The section.
    key
        A key of ``obsm``; or names of columns of ``obs`` with commas between them, and perhaps blanks.
    samples
        The section of each spot, (n,): spots of different sections may lie at the same place.

    Returns
    -------
    (n, 2) or (n, 3) float64, C-contiguous, all finite, in the file's unit.

    Raises
    ------
    InputError
        Where there are none, or some are not finite.
    """
    key = read_kind("spatial_key", key, str)  # not every function has checked it
    columns = [_column(source, part) for part in key.split(",")]
    if key in source.obsm_keys():
        name = f"obsm[{key!r}]"
        table = as_table(source.obsm(key), name)
        if _EMBEDDINGS.match(key.lower()):
            text = f"{name} has the name of an embedding of the expression, and is taken for the places of the spots."
            warnings.warn(InputWarning(text), stacklevel=2)
    elif len(columns) > 1:
        name = f"obs[{columns}]"
        table = as_table(_read_columns(source, columns), name)
    else:
        raise InputError(
            f"the coordinates of the spots in obsm[{key!r}] of {source.name}",
            f"keys: {list_keys(source.obsm_keys())}",
            f"Name yours with {option('spatial_key')}. {_likely_coordinates(source)}",
        )
    if table.shape[1] not in {2, 3}:
        raise InputError(
            f"{name} to have 2 or 3 columns (x, y and perhaps z)",
            f"{table.shape[1]}",
            f"Name the coordinates with {option('spatial_key')}.",
        )
    coordinates = np.ascontiguousarray(table, dtype=np.float64).copy()
    _check_finite(coordinates, name, source)
    _check_size(coordinates, name)
    if samples is None and (of_section := beside_fields(source, key)) is not None:
        _warn_of_fields(source, of_section)
    _warn_of_duplicates(coordinates, name, source, samples)
    far = np.zeros(len(coordinates), dtype=bool)
    for spots in spots_by_section(samples, len(coordinates)):
        far[spots] = far_spots(coordinates[spots])
    _warn_of_far_spots(far, name, source, samples)
    _warn_of_a_line(coordinates[~far], name)
    return coordinates


def far_spots(coordinates: np.ndarray) -> np.ndarray:
    """Find the spots that lie ten widths of a section or more from it, as an error in its coordinates puts them.

    Parameters
    ----------
    coordinates
        (n, 2) or (n, 3), of one section, any unit.

    Returns
    -------
    (n,) bool; none where there are few spots. An axis along which most are equal tells nothing.
    """
    if len(coordinates) < _FEWEST_AROUND:
        return np.zeros(len(coordinates), dtype=bool)
    low, middle, high = np.quantile(coordinates, (0.05, 0.5, 0.95), axis=0)
    width = np.where(high > low, high - low, np.inf)
    return np.asarray((np.abs(coordinates - middle) > _FAR * width).any(axis=1))


def warn_of_sections_on_top(source: Source, coordinates: np.ndarray, kept: np.ndarray | None) -> None:
    """Warn of sections that lie over each other in one file that is read as a single section.

    The columns looked at are that of the regions of SpatialData, and those whose name says section, sample or the like.

    Parameters
    ----------
    source
        The file or AnnData.
    coordinates
        (n, 2) or (n, 3).
    kept
        (all spots of the source,) bool: the n that were read; None where all were.
    """
    spots = some_rows(np.arange(len(coordinates)), 0, _LOOKED_AT)
    if spots.size < _FEWEST_AROUND:
        return
    rows = spots if kept is None else np.flatnonzero(kept)[spots]
    several = {}
    for key in _columns_of_sections(source):
        own = pd.factorize(source.obs(key).iloc[rows].astype(object))[0]  # -1 where the value is missing
        are_large = np.bincount(own[own >= 0]) >= _FEWEST_AROUND / 2
        if np.count_nonzero(are_large) > 1:
            several[key] = np.where(are_large[own], own, -1)
    if not several:
        return
    first, second = nearest(cKDTree(coordinates[spots]), coordinates[spots], 2)[1].T
    twin = np.where(first == np.arange(spots.size), second, first)  # equal places come in any order
    for key, own in several.items():
        are_known = (own >= 0) & (own[twin] >= 0)
        in_another = (own != own[twin])[are_known]
        share = float(in_another.mean()) if in_another.size else 0.0
        if share >= _MIXED:
            n_groups = np.unique(own[own >= 0]).size
            text = (
                f"The spots lie over each other by obs[{key!r}], which names {n_groups:,} groups of them: "
                f"{share:.0%} have the nearest spot in another group. They are fitted as one section. If these are "
                f"sections, give {option('sample_key', key)}."
            )
            warnings.warn(InputWarning(text), stacklevel=2)
            return


def _columns_of_sections(source: Source) -> list[str]:
    """The columns of ``obs`` that are likely to name the section of each spot."""
    attributes = source.uns(_OF_SPATIALDATA) if _OF_SPATIALDATA in source.uns_keys() else None
    region = attributes.get("region_key") if isinstance(attributes, Mapping) else None
    words = {key: key.lower().removesuffix("id").removesuffix("name").rstrip("_. ") for key in source.obs_keys()}
    return [key for key, word in words.items() if key == region or word in _NAMES_OF_SECTIONS]


def _likely_coordinates(source: Source) -> str:
    """A sentence that names a key of ``obsm``, or two columns of ``obs``, that may be the coordinates."""
    key = min((key for key in source.obsm_keys() if "spatial" in key.lower()), key=len, default=None)
    if key is not None:
        return f"They may be those of {option('spatial_key', key)}."
    columns = source.obs_keys()
    for x, y in _AXES:
        for column in columns:
            for found in re.finditer(x, column):
                other = column[: found.start()] + y + column[found.end() :]
                if other in columns:
                    return f"They may be those of {option('spatial_key', f'{column},{other}')}, two columns of obs."
    return f"They may be two columns of obs: {option('spatial_key', 'x,y')}, for example."


def _column(source: Source, name: str) -> str:
    """A column as it was named, or without the blanks around its name where there is none of that name."""
    return name if name in source.obs_keys() else name.strip()


def _read_columns(source: Source, columns: list[str]) -> pd.DataFrame:
    missing = [column for column in columns if column not in source.obs_keys()]
    if missing:
        raise InputError(
            f"the coordinates of the spots in the columns {', '.join(columns)} of obs of {source.name}",
            f"no {', '.join(map(repr, missing))}",
            f"Name the columns, or a key of obsm, with {option('spatial_key')}.",
        )
    return pd.concat([source.obs(column) for column in columns], axis=1, keys=columns)


def as_table(element: Any, name: str) -> np.ndarray:
    """Return an array or data frame as a 2-D array of numbers; raise an `InputError` for any other element."""
    advice = "Store it as a plain array of numbers."
    if isinstance(element, pd.DataFrame):
        others = [position for position, kind in enumerate(element.dtypes) if not _is_number(kind)]
        if not others:
            return np.asarray(element.to_numpy(dtype=np.float64, na_value=np.nan))
        first = element.iloc[:, others[0]]
        found = f"column {str(first.name)!r} of type {first.dtype}"
        if len(first):
            found += f" (first value: {first.iloc[0]!r:.40})"
        advice = "Turn it into numbers, for example with `.astype(float)`."
    elif sp.issparse(element):
        found = "a sparse matrix"
    elif not isinstance(element, np.ndarray):
        found = type(element).__name__
    elif element.dtype.kind not in "iuf":
        found = f"values of type {element.dtype}"
    elif element.ndim != 2:
        found = f"{element.ndim} dimension{'s' * (element.ndim != 1)}"
        advice = "Store it with one row per spot and one column per axis."
    else:
        return np.asarray(element)
    raise InputError(f"{name} to be a table of numbers", found, advice)


def _is_number(kind: Any) -> bool:
    types = pd.api.types
    real = types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind)
    return real and not types.is_bool_dtype(kind)


def _check_finite(coordinates: np.ndarray, name: str, source: Source) -> None:
    finite = np.isfinite(coordinates)
    if finite.all():
        return
    lost = ~finite.all(axis=1)
    raise InputError(
        f"{name} to hold finite coordinates",
        f"{lost.sum():,} of {len(lost):,} spots with NaN or infinity (first: {str(source.obs_names()[lost][0])!r})",
        "Remove these spots first.",
    )


def _check_size(coordinates: np.ndarray, name: str) -> None:
    """Raise an error for coordinates whose distances overflow, or vanish, when they are squared."""
    largest = float(np.abs(coordinates).max(initial=0.0))
    spread = float(np.ptp(coordinates, axis=0).max(initial=0.0)) if len(coordinates) else 0.0
    if largest <= 1.0 / _SMALLEST and (spread == 0.0 or spread >= _SMALLEST):
        return
    raise InputError(
        f"{name} to hold coordinates in a usual unit",
        f"numbers of up to {largest:.3g}, {spread:.3g} apart, whose squares are too small or too large for a computer",
        "Multiply them by a constant.",
    )


def beside_fields(source: Source, key: str) -> str | None:
    """Return the key of places in the whole section, where ``key`` may have those within single fields of view."""
    return next((other for other in _OF_SECTION if other in source.obsm_keys()), None) if key == _OF_FIELDS else None


def _warn_of_fields(source: Source, of_section: str) -> None:
    text = (
        f"{source.name} has obsm[{of_section!r}] beside obsm[{_OF_FIELDS!r}]. Where squidpy or SpatialData read a "
        "CosMx section, the latter are the places within each field of view, which lie over each other. For those in "
        f"the whole section give {option('spatial_key', of_section)}."
    )
    warnings.warn(InputWarning(text), stacklevel=2)


def _warn_of_duplicates(coordinates: np.ndarray, name: str, source: Source, samples: pd.Categorical | None) -> None:
    places = pd.DataFrame(coordinates)
    if samples is not None:
        places["sample"] = samples.codes
    repeated = places.duplicated().to_numpy()
    if not repeated.any():
        return
    n, first = repeated.sum(), str(source.obs_names()[repeated][0])
    text = (
        f"{n:,} of {len(repeated):,} spots {'has' if n == 1 else 'have'} the same coordinates in {name} as an earlier "
        f"spot{'' if samples is None else ' of their section'} (first: {first!r}). All of them are used."
    )
    if samples is None:
        text += (
            f" If the file holds several sections, name the column that tells them apart with {option('sample_key')}."
        )
    warnings.warn(InputWarning(text), stacklevel=2)


def _warn_of_far_spots(far: np.ndarray, name: str, source: Source, samples: pd.Categorical | None) -> None:
    if not far.any():
        return
    n = int(far.sum())
    of = "the section" if samples is None else "their section"
    text = (
        f"{n:,} of {far.size:,} spots {'lies' if n == 1 else 'lie'} more than {_FAR:.0f} times the width of {of} away "
        f"from it in {name} (first: {str(source.obs_names()[far][0])!r}). Correct the coordinates, or leave such "
        f"spots out with {option('mask')}: they are fitted like all others, and pictures have to show them."
    )
    warnings.warn(InputWarning(text), stacklevel=2)


def _warn_of_a_line(coordinates: np.ndarray, name: str) -> None:
    if len(coordinates) < 3:
        return  # two spots are always on a line
    centred = coordinates - coordinates.mean(axis=0)
    centred /= np.abs(centred).max() or 1.0  # squares of large coordinates must not overflow
    spread = np.linalg.eigvalsh(centred.T @ centred)  # (2|3,), ascending
    if spread[-2] > _ON_A_LINE * spread[-1]:
        return
    where = (
        "on one line, so domains will be stretches of that line" if spread[-1] else "at one place, which says nothing"
    )
    text = f"All spots of {name} lie {where}. Check {option('spatial_key')}."
    warnings.warn(InputWarning(text), stacklevel=2)
