"""Intervals as tables: the mean expression of genes in domains, their contrasts, and shares of types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from spatialpdvi.features.moments import SPOT_TOTAL
from spatialpdvi.io.results.tables import Tables
from spatialpdvi.uncertainty.methods import Estimate, variances

__all__ = [
    "TABLES",
    "Intervals",
    "contrast_bounds",
    "contrast_table",
    "expression_table",
    "mean_bounds",
    "share_bounds",
    "share_table",
]

TABLES = ("expression", "contrasts", "composition")
_LOG2 = np.log(2.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Intervals(Tables):
    """What `spatialpdvi.intervals` finds. docs/outputs.md explains the columns of the tables.

    Parameters
    ----------
    expression
        A row for each domain and gene: its mean expression.
    contrasts
        A row for each pair of domains and gene: the log2 fold change between them.
    composition
        A row for each domain and type, or state: its share; None where there are neither.
    params
        The options, the size of blocks and the versions of the libraries.
    """

    names = TABLES
    expression: pd.DataFrame
    contrasts: pd.DataFrame
    composition: pd.DataFrame | None
    params: Mapping[str, Any]

    def stored(self) -> dict[str, Any]:
        """Return the tables as columns of equal length, to be stored, and the options in ``params``; none is empty."""
        return self.columns(self.tables())


def mean_bounds(found: Estimate, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log theta and the bounds of its intervals, (K, g) each.

    Parameters
    ----------
    found
        Of a method.
    level
        Probability of the intervals, in (0, 1).
    """
    half = _quantile(found.freedom, level)[:, None] * np.sqrt(variances(found.covariance))
    return found.mean, found.mean - half, found.mean + half


def contrast_bounds(
    found: Estimate, pairs: Sequence[tuple[int, int]], level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log2(theta_a / theta_b) and the bounds of its intervals, (pairs, g) each, for pairs (a, b)."""
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    covariance = found.covariance
    variance = np.maximum(covariance[a, a] + covariance[b, b] - 2.0 * covariance[a, b], 0.0)
    own = variances(covariance)
    with np.errstate(divide="ignore", invalid="ignore"):  # Welch and Satterthwaite: one side may have all the variance
        freedom = (own[a] + own[b]) ** 2 / (own[a] ** 2 / found.freedom[a, None] + own[b] ** 2 / found.freedom[b, None])
    half = _quantile(freedom, level) * np.sqrt(variance)
    change = found.mean[a] - found.mean[b]
    return change / _LOG2, (change - half) / _LOG2, (change + half) / _LOG2


def share_bounds(found: Estimate, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shares and the bounds of their intervals within 0 and 1, (K, g) each.

    Misplaced spots can only add to a type: where a share c of a domain is its own, the share theta of a type was at
    most theta / c before they came, and 1 - theta at most (1 - theta) / c. Bounds go no farther than that and chance.
    """
    quantile = _quantile(found.freedom, level)[:, None]
    half = quantile * np.sqrt(variances(found.covariance))
    low, high = np.maximum(found.mean - half, 0.0), np.minimum(found.mean + half, 1.0)
    if found.chance is None or found.purity is None:
        return found.mean, low, high
    near, pure = quantile * np.sqrt(found.chance), found.purity[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):  # of a domain with nothing of its own, 0 / 0
        most, rest = (found.mean + near) / pure, (1.0 - found.mean + near) / pure
    return found.mean, np.fmax(low, 1.0 - rest), np.fmin(high, most)


def expression_table(
    found: Estimate,
    sums: tuple[np.ndarray, np.ndarray],
    *,
    of: str,
    names: Sequence[str],
    genes: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """Return a row for each domain and gene: ``domain``, ``gene``, ``mean``, ``lower``, ``upper`` per 10,000 counts.

    Parameters
    ----------
    found
        Of a method.
    sums
        Counts of the genes (K, g) and of all genes (K,) in the spots of each domain.
    of
        What the groups are, "domain" or "state": the name of the first column.
    names, genes
        Of the domains (K,) and genes (g,).
    level
        Probability of the intervals.
    """
    counts, exposure = sums
    _, low, high = mean_bounds(found, level)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = np.where(exposure[:, None] > 0, SPOT_TOTAL * counts / exposure[:, None], np.nan)
    return pd.DataFrame(
        {
            of: np.repeat(_texts(names), len(genes)),
            "gene": np.tile(_texts(genes), len(names)),
            "mean": plain.ravel(),
            # the bounds are about another mean: with half a count more, or of spots weighed by their posteriors
            "lower": np.minimum(SPOT_TOTAL * np.exp(low), plain).ravel(),
            "upper": np.maximum(SPOT_TOTAL * np.exp(high), plain).ravel(),
        }
    )


def contrast_table(
    found: Estimate,
    pairs: Sequence[tuple[int, int]],
    *,
    of: str,
    names: Sequence[str],
    genes: Sequence[str],
    level: float,
) -> pd.DataFrame:
    """Return a row for each pair (a, b) and gene: ``domain``, ``other``, ``gene``, ``log2_fold_change`` and bounds."""
    change, low, high = contrast_bounds(found, pairs, level)
    texts = _texts(names)
    return pd.DataFrame(
        {
            of: np.repeat(texts[[a for a, _ in pairs]], len(genes)),
            "other": np.repeat(texts[[b for _, b in pairs]], len(genes)),
            "gene": np.tile(_texts(genes), len(pairs)),
            "log2_fold_change": change.ravel(),
            "lower": low.ravel(),
            "upper": high.ravel(),
        }
    )


def share_table(found: Estimate, *, names: Sequence[str], types: Sequence[str], level: float) -> pd.DataFrame:
    """Return a row for each domain and type: ``domain``, ``type``, ``share``, ``lower``, ``upper``."""
    share, low, high = share_bounds(found, level)
    return pd.DataFrame(
        {
            "domain": np.repeat(_texts(names), len(types)),
            "type": np.tile(_texts(types), len(names)),
            "share": share.ravel(),
            "lower": low.ravel(),
            "upper": high.ravel(),
        }
    )


def _quantile(freedom: np.ndarray, level: float) -> np.ndarray:
    """How many scales the half of an interval has (K,); NaN where there is no interval."""
    return np.asarray(student.ppf(0.5 + level / 2.0, freedom))


def _texts(names: Sequence[str]) -> np.ndarray:
    return np.array([str(name) for name in names], dtype=object)
