"""Columns of ``obs`` as labels: the annotation, the labels to start from, domains, and sections."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.missing import misnamed

__all__ = [
    "DEFAULT_LABEL_KEY",
    "label_text",
    "read_column",
    "read_domains",
    "read_initial",
    "read_labels",
    "read_samples",
    "read_types",
    "spots_by_section",
]

DEFAULT_LABEL_KEY = "annotation"
# what missing values become where they are turned into text, and those of R in files that its packages write
_AS_MISSING = {"nan", "NaN", "None", "<NA>", "NaT", "NA", "-2147483648"}


class _DecimalError(InputError):
    """A number with decimals stands in the place of a label."""


def read_labels(
    source: Source, key: str | None, *, otherwise: str = DEFAULT_LABEL_KEY
) -> tuple[pd.Categorical | None, str | None]:
    """Read the annotation and its key: ``obs[key]``, else ``obs[otherwise]``, else neither.

    Parameters
    ----------
    source
        The section.
    key
        A column of ``obs``; None for the other one where there is one.
    otherwise
        A column that nobody has asked for: one that holds no labels is a warning.

    Returns
    -------
    The labels (n,), whose categories are strings and whose missing values have the code -1, and the key; or None twice.

    Raises
    ------
    InputError
        Where the column is missing or holds no labels.
    """
    if key is None:
        if otherwise not in source.obs_keys():
            return None, None
        key = otherwise
        column = source.obs(key)  # damage is an error, whoever reads it
        try:
            labels = _as_labels(column, f"obs[{key!r}]")
        except InputError as error:  # nobody has asked for this column
            found = "numbers with decimals" if isinstance(error, _DecimalError) else error.found
            text = (
                f"obs[{key!r}] holds no labels but {found}, so nothing is scored against it. Name a column of labels "
                f"with {option('label_key')}."
            )
            warnings.warn(InputWarning(text), stacklevel=2)
            return None, None
    else:
        labels = read_column(source, key, name="label_key")
    if len(labels.categories) < 2:
        what = f"only the label {str(labels.categories[0])!r}" if len(labels.categories) else "no label at all"
        text = (
            f"obs[{key!r}] has {what}, so that scores against it mean nothing. Name another column with "
            f"{option('label_key')}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return labels, key


def read_initial(source: Source, key: str) -> np.ndarray:
    """Read the labels to start from, (n,) int64 codes 0, 1, ...; raise an `InputError` where one is missing."""
    labels = _complete(source, key, name="init", wanted="a label for every spot to start from", advice="Fill them")
    return np.asarray(labels.codes, dtype=np.int64)


def read_domains(source: Source, key: str) -> pd.Categorical:
    """Read the domains ``obs[key]`` to be scored or drawn, (n,); raise an `InputError` where one is missing."""
    return _complete(
        source, key, name="domain_key", wanted="a domain for every spot", advice="Select the spots with one"
    )


def read_samples(source: Source, key: str) -> pd.Categorical:
    """Read the section ``obs[key]`` of each spot, (n,); raise an `InputError` where one is missing."""
    wanted = "a label for every spot that names its section"
    return _complete(source, key, name="sample_key", wanted=wanted, advice="Fill them")


def spots_by_section(samples: pd.Categorical | None, n: int) -> list[np.ndarray]:
    """Return the spots (ascending) of each section, in the order of the categories; all n where there is one section.

    Parameters
    ----------
    samples
        Section of each spot (n,), none missing; None where all are of one.
    n
        Number of spots.
    """
    if samples is None:
        return [np.arange(n)]
    codes = np.asarray(samples.codes)
    return [np.flatnonzero(codes == code) for code in range(len(samples.categories))]


def read_types(source: Source, key: str) -> pd.Categorical:
    """Read the types ``obs[key]`` that domains are composed of, (n,); missing ones have code -1, and one has a type."""
    types = read_column(source, key, name="by")
    if not len(types.categories):
        raise InputError(f"obs[{key!r}] to have labels", "none", f"Name another column with {option('by')}.")
    return types


def _complete(source: Source, key: str, *, name: str, wanted: str, advice: str) -> pd.Categorical:
    labels = read_column(source, key, name=name)
    missing = labels.codes < 0
    if missing.any():
        raise InputError(
            f"obs[{key!r}] to have {wanted}",
            f"{missing.sum():,} of {len(missing):,} missing (first: {str(source.obs_names()[missing][0])!r})",
            f"{advice}, or name another column.",
        )
    return labels


def read_column(source: Source, key: str, *, name: str) -> pd.Categorical:
    """Read ``obs[key]`` as labels, (n,), with the code -1 where one is missing; ``name`` is the option of the key."""
    if key not in source.obs_keys():
        raise misnamed(source, "obs", key, name)
    return _as_labels(source.obs(key), f"obs[{key!r}]")


def _as_labels(column: pd.Series, name: str) -> pd.Categorical:
    """Each distinct value as a category, in the order of the column's own categories, or sorted."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        values = list(column.cat.categories)
    else:
        try:
            codes, distinct = pd.factorize(column)
        except TypeError as error:  # values that have no hash, such as lists
            raise InputError(
                f"{name} to hold labels (text, categories or whole numbers)",
                f"values of type {_unhashable(column)}",
                "Name a column of labels.",
            ) from error
        values = list(distinct)
    used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    texts = [_text(value, name) if is_used else "" for value, is_used in zip(values, used, strict=True)]
    blank = np.array([not text.strip() for text in texts], dtype=bool) & used
    _warn_of_blanks(int(blank[codes[codes >= 0]].sum()), name)
    for text in sorted(_AS_MISSING.intersection(texts)):
        _warn_of_text(text, int(np.isin(codes, [i for i, own in enumerate(texts) if own == text]).sum()), name)
    kept = list(np.flatnonzero(used & ~blank))
    if not isinstance(column.dtype, pd.CategoricalDtype):
        kept.sort(key=lambda i: _rank(texts[i]))
    categories = list(dict.fromkeys(texts[i] for i in kept))  # 1 and "1" are one label
    position = {text: code for code, text in enumerate(categories)}
    recode = np.full(len(values) + 1, -1)  # its last element is for the code -1
    for i in kept:
        recode[i] = position[texts[i]]
    index = pd.Index(categories, dtype=object)
    return pd.Categorical.from_codes(recode[codes], index)


def _unhashable(column: pd.Series) -> str:
    """The type of the first value that has no hash; of the column where all have one."""
    for value in column:
        try:
            hash(value)
        except TypeError:
            return type(value).__name__
    return str(column.dtype)


def _text(value: Any, name: str) -> str:
    if isinstance(value, float | np.floating) and not float(value).is_integer():
        kind = _DecimalError if np.isfinite(value) else InputError
        expected = f"{name} to hold labels (text, categories or whole numbers)"
        raise kind(expected, f"{value:.6g}", "Name a column of labels.")
    return label_text(value)


def label_text(value: Any) -> str:
    """Return a value of a column, or a category, as the label that it is: a whole number has no decimals."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def _rank(text: str) -> tuple[bool, int, str]:
    """Whole numbers by value, before all other text by letters."""
    digits = text.removeprefix("-")
    whole = digits.isascii() and digits.isdigit()
    return not whole, int(text) if whole else 0, text


def _warn_of_blanks(n_blank: int, name: str) -> None:
    if n_blank:
        are = "label of {} is an empty text and counts" if n_blank == 1 else "labels of {} are empty texts and count"
        warnings.warn(InputWarning(f"{n_blank:,} {are.format(name)} as missing."), stacklevel=2)


def _warn_of_text(label: str, n: int, name: str) -> None:
    said = f"{n:,} {'label' if n == 1 else 'labels'} of {name} {'is' if n == 1 else 'are'} the text {label!r}"
    text = f"{said}, which counts as a label like any other. Make it a missing value where it stands for one."
    warnings.warn(InputWarning(text), stacklevel=2)
