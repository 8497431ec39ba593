"""Domains of a joint fit that occur in one of its sections only: tissues, or a difference between whole sections."""

import numpy as np

from spatialpdvi.errors import option
from spatialpdvi.fitting.result import FitResult

__all__ = ["explain_separation"]

_LARGE = 0.1  # of all spots: smaller domains may well be tissues of a single section
_ALONE = 0.99  # of a domain's spots: with so many in one section it lies in that section
_NEARLY_ALL = 0.9  # of all spots: domains lie in a section that has so many without further reason
# by the correction of the fit: what to do if the sections differ as a whole
_NEXT = {
    "none": f"try {option('correct', 'center')}",
    "center": f"try {option('correct', 'harmony')}, since the shares of their tissues may differ",
    "harmony": "fit each of them by itself",
}


def explain_separation(result: FitResult) -> str | None:
    """Say which large domains lie in one of several sections, and what to do about it; None where there are none.

    Parameters
    ----------
    result
        Of a fit of one section, for which there is nothing to say, or of several.
    """
    table = result.sizes_by_section()
    if table is None or len(table) < 2:
        return None
    sizes = table.to_numpy()  # (S, K)
    n_spots, where = sizes.sum(), sizes.argmax(axis=0)
    of_domain, of_section = sizes.sum(axis=0), sizes.sum(axis=1)
    is_apart = (
        (of_domain >= _LARGE * n_spots)
        & (sizes.max(axis=0) >= _ALONE * of_domain)
        & (of_section[where] < _NEARLY_ALL * n_spots)
    )
    apart = np.flatnonzero(is_apart)
    if not apart.size:
        return None
    places = [
        f"{_joined(apart[where[apart] == section])} in {str(table.index[section])!r}"
        for section in np.unique(where[apart])
    ]
    if apart.size == 1:
        told, otherwise = f"Domain {apart[0]} lies in {str(table.index[where[apart[0]]])!r} alone", "it may be a tissue"
    else:
        told = f"Domains {_joined(apart)} lie in one section each ({'; '.join(places)})"
        otherwise = "they may be tissues"
    return (
        f"{told}. If the sections differ as a whole, {_NEXT[result.params['correct']]}; otherwise {otherwise} that the "
        "other sections lack. See docs/sections.md."
    )


def _joined(domains: np.ndarray) -> str:
    *others, last = map(str, domains)
    return f"{', '.join(others)} and {last}" if others else last
