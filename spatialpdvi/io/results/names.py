"""Names and colours of the domains of a result, and of the known labels."""

import warnings
from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.summary import check_fitted, stored_params
from spatialpdvi.io.section.labels import label_text, read_domains

__all__ = [
    "domain_names",
    "read_colours",
    "read_label_colours",
    "read_own_colours",
    "why_fewer",
    "with_lost",
    "written_colours",
]

_SELECTED = (
    "A selection of spots loses the categories that have none left (`adata[...]`), and not what is stored of them. Run "
    "this on the whole section, before spots are selected, or run `spatialpdvi fit` again."
)
_CHANGED = (
    "The categories were changed, and not what is stored of them. Put them back and unite domains with `spatialpdvi "
    "label merge`, or run `spatialpdvi fit` again."
)


def domain_names(source: Source, keys: Keys) -> list[str]:
    """Return the names of the domains of a section, those without spots too where the column is a categorical one."""
    column = source.obs(keys.domain)
    if isinstance(column.dtype, pd.CategoricalDtype):
        return [label_text(name) for name in column.cat.categories]
    return list(read_domains(source, keys.domain).categories)


def with_lost(names: list[str], k: int, summary: Container[str]) -> list[str]:
    """Return the names of all K domains of a fit with this summary, of which a selection has lost those without spots.

    Those that an edit has named cannot be known again, and are missing still.
    """
    numbers = [str(number) for number in range(k)]  # what a fit calls its domains
    return numbers if "edits" not in summary and set(names) < set(numbers) else names


def why_fewer(source: Source, summary: Any) -> str:
    """Return what to say where there are fewer categories than domains in the fit with this summary, ``uns[key]``."""
    n_fitted = stored_params(summary).get("n_spots")
    return _CHANGED if isinstance(n_fitted, int) and source.n_obs >= n_fitted else _SELECTED


def read_colours(source: Source, keys: Keys) -> dict[str, str] | None:
    """Read the colours of the categories of the domains, by name; None where there are none."""
    if keys.colours not in source.uns_keys():
        return None
    names, values = domain_names(source, keys), source.uns(keys.colours)
    colours = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(colours, list | tuple) and len(colours) >= len(names) and all(isinstance(c, str) for c in colours):
        # pandas may have lost domains without spots, whose colours are still there
        every = with_lost(names, len(colours), source.uns_fields(keys.uns))
        by_name = dict(zip(every, colours, strict=False))  # scanpy, too, takes the first of more
        return {name: by_name[name] for name in names}
    found = (
        f"{len(colours)} values" if isinstance(colours, list | tuple) else f"an object of type {type(values).__name__}"
    )
    raise InputError(
        f"uns[{keys.colours!r}] of {source.name} to hold a colour for each of the {len(names)} categories of "
        f"obs[{keys.domain!r}]",
        found,
        "Correct or remove it, or run `spatialpdvi fit` again.",
    )


def read_own_colours(source: Source, keys: Keys) -> dict[str, str] | None:
    """Read the colours of the domains, by name, where they are not those that the last fit wrote; None elsewhere."""
    try:
        check_fitted(source, keys)
        colours = read_colours(source, keys)
    except InputError:  # no fit, or nothing that could be kept
        return None
    return None if colours is None or list(colours.values()) == written_colours(source.uns(keys.uns)) else colours


def written_colours(summary: Any) -> list[Any]:
    """Return the colours that the last fit, or an edit of its domains, wrote; none where they are the user's own."""
    return np.atleast_1d(summary.get("colours", ())).tolist() if isinstance(summary, Mapping) else []


def read_label_colours(source: Source, key: str) -> dict[str, str] | None:
    """Read the colours that the user stored for the labels ``obs[key]``, by name; None where there are none."""
    if f"{key}_colors" not in source.uns_keys():
        return None
    column, colours = source.obs(key), np.atleast_1d(source.uns(f"{key}_colors")).tolist()
    if not isinstance(column.dtype, pd.CategoricalDtype):
        return None
    names = [label_text(name) for name in column.cat.categories]
    if len(colours) < len(names) or not all(isinstance(colour, str) for colour in colours):
        text = f"uns['{key}_colors'] is not used: it does not hold a colour for each of the {len(names)} labels."
        warnings.warn(InputWarning(text), stacklevel=3)
        return None
    return dict(zip(names, colours, strict=False))
