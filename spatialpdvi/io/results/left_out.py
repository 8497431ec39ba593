"""Spots that a fit left out: results are read without them, and written with rows for them that hold nothing."""

import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import Source, select_spots
from spatialpdvi.io.results.keys import PER_SPOT, Keys
from spatialpdvi.io.results.summary import is_prediction, not_ours, stored_params

__all__ = ["fitted_spots", "on_all_spots", "select_fitted"]


def fitted_spots(source: Source, keys: Keys) -> np.ndarray | None:
    """Return whether each spot was fitted, (n,) bool; None where all were, and where there is no fit.

    There is a warning where more spots have a domain than were fitted, or the summary has lost how many were and the
    objective of each epoch, in which fits differ: several fits were concatenated.

    Raises
    ------
    InputError
        Where more spots have no domain than were left out.
    """
    if keys.domain not in source.obs_keys() or keys.uns not in source.uns_keys():
        return None
    summary = source.uns(keys.uns)
    params = stored_params(summary)
    has_domain = source.obs(keys.domain).notna().to_numpy()
    n_placed, stored = int(has_domain.sum()), params.get("n_spots")
    n_fitted = int(stored) if isinstance(stored, Integral) else None
    are_several = _has_lost_its_trace(summary) if n_fitted is None else n_placed > n_fitted  # a selection has fewer
    if are_several:
        if is_prediction(summary):
            made = "prediction"
            advice = (
                "Where predictions are concatenated, domains of the same number are the same only if one model "
                "predicted all of them, and what else is stored is of one of the sections."
            )
        else:
            made = "fit"
            advice = (
                "Where sections that were fitted apart are concatenated, domains of the same number have nothing in "
                f"common: fit them together, with {option('sample_key')}."
            )
        said = "does not say of how many spots it was" if n_fitted is None else f"was of {n_fitted:,}"
        text = f"{n_placed:,} spots have a domain, but the {made} in uns[{keys.uns!r}] {said}. {advice}"
        warnings.warn(InputWarning(text), stacklevel=2)
    excluded = params.get("n_excluded", 0)
    if not excluded:
        return None
    missing = has_domain.size - n_placed
    if not missing:
        return None
    if missing > excluded:
        found = f"{missing:,} spots without a domain, where the fit left out {excluded:,}"
        raise not_ours(source, f"obs[{keys.domain!r}]", found)
    return np.asarray(has_domain)


def _has_lost_its_trace(summary: Any) -> bool:
    trace = summary.get("trace", {}) if isinstance(summary, Mapping) else None
    return isinstance(trace, Mapping) and "neg_elbo" not in trace


def select_fitted(source: Source, keys: Keys) -> Source:
    """Return the section of the spots that were fitted; the source itself where all were.

    Raises
    ------
    InputError
        Where the fit left out every spot that the section still has, or more spots have no domain than it left out.
    """
    kept = fitted_spots(source, keys)
    if kept is None:
        return source
    if not kept.any():
        raise InputError(
            f"spots in {source.name} that were fitted",
            f"only spots that the fit left out ({kept.size:,})",
            "Select spots that have a domain.",
        )
    return select_spots(source, np.flatnonzero(kept))


def on_all_spots(elements: Mapping[tuple[str, str], Any], kept: np.ndarray | None) -> dict[tuple[str, str], Any]:
    """Return elements with a row for every spot: one that was left out has no domain, no edge, and NaN for a number.

    Parameters
    ----------
    elements
        Values by (group, key), with rows for the spots that were fitted.
    kept
        (all spots,) bool: those that were fitted; None where all were.
    """
    if kept is None:
        return dict(elements)
    return {
        (group, key): _spread(value, kept, pairs=group == "obsp") if group in PER_SPOT else value
        for (group, key), value in elements.items()
    }


def _spread(value: Any, kept: np.ndarray, *, pairs: bool) -> Any:
    place = np.flatnonzero(kept)
    if isinstance(value, pd.Categorical):
        codes = np.full(kept.size, -1)
        codes[place] = value.codes
        return pd.Categorical.from_codes(codes, value.categories)
    if sp.issparse(value):
        rows = value.tocoo()
        columns, width = (place[rows.col], kept.size) if pairs else (rows.col, rows.shape[1])
        return sp.csr_matrix((rows.data, (place[rows.row], columns)), shape=(kept.size, width))
    spread = np.full((kept.size, *value.shape[1:]), np.nan, dtype=value.dtype)
    spread[place] = value
    return spread
