"""Columns of ``obs`` as labels: the annotation to compare with, or the labels to start from."""

import warnings
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning, list_keys
from spatialpdvi.io.formats.sources import Source

__all__ = ["DEFAULT_LABEL_KEY", "read_domains", "read_initial", "read_labels", "read_samples"]

DEFAULT_LABEL_KEY = "annotation"


def read_labels(source: Source, key: str | None) -> tuple[pd.Categorical | None, str | None]:
    """The annotation and its key: ``obs[key]``, else ``obs['annotation']``, else neither.

    Missing labels have the code -1; categories are strings.
    """
    if key is None:
        if DEFAULT_LABEL_KEY not in source.obs_keys():
            return None, None
        key = DEFAULT_LABEL_KEY
    labels = _read(source, key, option="--label-key")
    if len(labels.categories) < 2:
        what = f"only {labels.categories[0]!r}" if len(labels.categories) else "no label at all"
        msg = (
            f"Expected obs[{key!r}] to tell at least two regions apart, found {what}. "
            "Scores against it say nothing; name another column with --label-key."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return labels, key


def read_initial(source: Source, key: str) -> np.ndarray:
    """Codes 0, 1, ... of ``obs[key]``, (n,) int64; a spot without a label is refused."""
    labels = _complete(source, key, option="--init", purpose="to start from")
    return np.asarray(labels.codes, dtype=np.int64)


def read_domains(source: Source, key: str) -> pd.Categorical:
    """The domains ``obs[key]`` that are scored or drawn, (n,); a spot without one is refused."""
    return _complete(source, key, option="--domain-key", purpose="to be scored")


def read_samples(source: Source, key: str) -> pd.Categorical:
    """The section ``obs[key]`` of each spot, (n,); a spot without one is refused."""
    return _complete(source, key, option="--sample-key", purpose="to say which section it is of")


def _complete(source: Source, key: str, *, option: str, purpose: str) -> pd.Categorical:
    labels = _read(source, key, option=option)
    missing = labels.codes < 0
    if missing.any():
        msg = (
            f"Expected obs[{key!r}] to have a label for every spot {purpose}, found "
            f"{missing.sum():,} of {len(missing):,} missing "
            f"(first: {source.obs_names()[missing][0]!r}). Fill them, or name another column."
        )
        raise InputError(msg)
    return labels


def _read(source: Source, key: str, *, option: str) -> pd.Categorical:
    if key not in source.obs_keys():
        msg = (
            f"Expected obs[{key!r}] in {source.name}, found columns: "
            f"{list_keys(source.obs_keys())}. Name one of these with {option}."
        )
        raise InputError(msg)
    return _as_labels(source.obs(key), f"obs[{key!r}]")


def _as_labels(column: pd.Series, name: str) -> pd.Categorical:
    """Each distinct value as a category, in the order of the column's own categories, or sorted."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy()
        values = list(column.cat.categories)
    else:
        codes, distinct = pd.factorize(column)
        values = list(distinct)
    used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
    texts = [_text(value, name) if there else "" for value, there in zip(values, used, strict=True)]
    blank = np.array([not text.strip() for text in texts], dtype=bool) & used
    if blank.any():
        _warn_of_blanks(int(np.isin(codes, np.flatnonzero(blank)).sum()), name)
    kept = list(np.flatnonzero(used & ~blank))
    if not isinstance(column.dtype, pd.CategoricalDtype):
        kept.sort(key=lambda i: _rank(texts[i]))
    categories = list(dict.fromkeys(texts[i] for i in kept))  # 1 and "1" are one label
    position = {text: code for code, text in enumerate(categories)}
    recode = np.full(len(values) + 1, -1)  # its last element answers for the code -1
    for i in kept:
        recode[i] = position[texts[i]]
    index = pd.Index(categories, dtype=object)
    return pd.Categorical.from_codes(recode[codes], index)


def _text(value: Any, name: str) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, float | np.floating):
        return str(value)
    if float(value).is_integer():
        return str(int(value))
    msg = (
        f"Expected {name} to hold labels (text, categories or whole numbers), found {value:.6g}. "
        "Name a column of labels."
    )
    raise InputError(msg)


def _rank(text: str) -> tuple[bool, int, str]:
    """Whole numbers by value, before all other text by letters."""
    digits = text.removeprefix("-")
    whole = digits.isascii() and digits.isdigit()
    return not whole, int(text) if whole else 0, text


def _warn_of_blanks(n_blank: int, name: str) -> None:
    msg = (
        f"Expected every label of {name} to be a text or missing, found {n_blank:,} that are "
        "empty. They count as missing."
    )
    warnings.warn(msg, InputWarning, stacklevel=2)
