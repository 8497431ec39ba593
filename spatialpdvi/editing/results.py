"""What follows from edited domains: their scores, the table that a user sees, and columns of coarser domains."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from spatialpdvi.editing.levels import Union
from spatialpdvi.editing.names import joined, told_apart
from spatialpdvi.io.results.stored import StoredFit
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.metrics.section import calibration_of, scores_by_section

__all__ = ["edited_scores", "level_of", "steps_table", "table_of"]


def edited_scores(section: Section, fit: StoredFit) -> dict[str, Any]:
    """Return the scores of edited domains, with those of the fit's start and of k-means as they were stored.

    Those of the start still tell the sections of a joint fit of several files, of which an edit knows one
    (`spatialpdvi.io.results.summary.scores_of_fit`).

    Parameters
    ----------
    section
        Coordinates, known labels where there are any, and the sections in it.
    fit
        After the edit.
    """
    spots = np.arange(fit.codes.size)
    stored = {name: fit.summary["scores"][name] for name in ("baseline", "trivial") if name in fit.summary["scores"]}
    calibrated = None if fit.calibrated is None else fit.calibrated[spots, fit.codes]
    errors = calibration_of(section, fit.codes, confidence=fit.posterior[spots, fit.codes], calibrated=calibrated)
    return scores_by_section(section, fit.codes) | stored | errors


def table_of(fit: StoredFit, codes: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """Return a row for each domain: its name, spots, their mean confidence, and the domains that they had in the fit.

    Parameters
    ----------
    fit
        After the edit.
    codes, names
        Domain of each spot (n,) in the fit, and the names of these.
    """
    k, sizes = len(fit.names), fit.sizes
    total = np.bincount(fit.codes, weights=fit.posterior[np.arange(codes.size), fit.codes], minlength=k)
    common = overlap(fit.codes, codes, shape=(k, len(names)))
    return pd.DataFrame(
        {
            "domain": list(fit.names),
            "spots": sizes,
            "confidence": np.divide(total, sizes, out=np.full(k, np.nan), where=sizes > 0),
            "fitted": [joined([names[int(other)] for other in np.flatnonzero(row)]) for row in common],
        }
    )


def steps_table(steps: Sequence[Union], names: Sequence[str]) -> pd.DataFrame:
    """Return a row for each step: the number of domains after it, the two that were united, and the rise of F."""
    members, rows = {k: [k] for k in range(len(names))}, []
    for step in steps:
        pair = [joined([names[k] for k in members[position]]) for position in (step.kept, step.united)]
        rows.append((step.n_domains, *pair, step.rise))
        members[step.kept] = sorted(members[step.kept] + members.pop(step.united))
    return pd.DataFrame(rows, columns=["n_domains", "first", "second", "rise"])


def level_of(fit: StoredFit, groups: np.ndarray) -> tuple[pd.Categorical, list[int]]:
    """Return coarser domains (n,), named by those that they unite, and the first of these that has spots, for each.

    Parameters
    ----------
    fit
        The domains.
    groups
        (K,) equal for domains that belong together.
    """
    filled = np.flatnonzero(fit.sizes)
    members = [filled[groups[filled] == group] for group in dict.fromkeys(groups[filled])]
    code = np.full(len(fit.names), -1)
    for level, own in enumerate(members):
        code[own] = level
    names = told_apart([joined([fit.names[k] for k in own]) for own in members])
    return pd.Categorical.from_codes(code[fit.codes], names), [int(own[0]) for own in members]
