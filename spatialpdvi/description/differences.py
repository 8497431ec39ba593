"""Differences between groups of sections, with an exact test in which the sections are the replicates."""

from collections.abc import Sequence
from math import factorial, prod
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, permutation_test

__all__ = ["compare_groups", "difference_table", "group_sections", "q_values", "why_no_p"]

_MOST = 20_000  # ways to divide the sections that are all tried; of more, as many are drawn at random
_BATCH = 500  # of them at once: memory
_DIGITS = 12  # equal statistics must be equal in spite of rounding


class Groups(NamedTuple):
    """Sections by condition."""

    names: list[str]  # of the conditions
    members: list[np.ndarray]  # sections of each, as numbers 0, 1, ...


def group_sections(conditions: Sequence[str]) -> Groups:
    """Return the sections of each condition, conditions in the order of their names."""
    names = sorted(set(conditions))
    column = np.asarray(conditions, dtype=object)
    return Groups(names, [np.flatnonzero(column == name) for name in names])


def why_no_p(groups: Groups) -> str:
    """Return why there are no p-values, as a sentence; empty where there are some."""
    single = [name for name, own in zip(groups.names, groups.members, strict=True) if own.size < 2]
    if not single:
        return ""
    return (
        f"There are no p-values, because {' and '.join(map(repr, single))} "
        f"{'has' if len(single) == 1 else 'have'} one section: without a second section of the same condition, a "
        "difference between conditions cannot be told from one between sections."
    )


def compare_groups(values: np.ndarray, groups: Sequence[np.ndarray], *, seed: int) -> tuple[np.ndarray, float]:
    """Test by permutation of sections whether the means of groups differ.

    If the condition has no effect, every way to divide the sections into groups of these sizes is as likely as the
    observed one. The statistic is the variance between groups,

        T = sum_g n_g (mean_g - mean)²,

    which for two groups orders as the absolute difference of their means does, so that the test has two sides. The
    p-value is the share of all divisions with at least this T. It is exact: without an effect it is at most alpha with
    a probability of at most alpha, for any distribution of the values.

    Parameters
    ----------
    values
        (rows, sections); each row is tested by itself.
    groups
        Sections of each group, at least two groups of at least two sections.
    seed
        Of the divisions that are drawn where there are more than 20,000; the observed one then counts as drawn, which
        keeps the test valid.

    Returns
    -------
    p, smallest
        (rows,) p-values, and the smallest one that groups of these sizes can have.
    """
    largest = np.abs(values).max(axis=1, keepdims=True)
    values = values / np.where(largest > 0, largest, 1.0)  # T is rounded, and p must not depend on the unit
    sizes = [own.size for own in groups]
    n_ways = factorial(sum(sizes)) // prod(map(factorial, sizes))
    result = permutation_test(
        [values[:, own] for own in groups],
        _between,
        permutation_type="independent",
        vectorized=True,
        n_resamples=_MOST,
        batch=_BATCH,
        alternative="greater",
        axis=-1,
        random_state=seed,
    )
    # groups of equal size may exchange their names, which leaves T as it is
    same = prod(factorial(sizes.count(size)) for size in set(sizes))
    smallest = same / n_ways if n_ways <= _MOST else 1 / (_MOST + 1)
    return np.asarray(result.pvalue), smallest


def difference_table(table: pd.DataFrame, sections: pd.DataFrame, groups: Groups, *, seed: int) -> pd.DataFrame:
    """Compare the shares of a table between groups of sections.

    Parameters
    ----------
    table
        Rows with ``section``, ``domain``, perhaps ``type``, and ``spots``; a domain or type that a section has no row
        for has no spots there.
    sections
        The table of sections, in the order that ``groups`` count them.
    groups
        Of sections.
    seed
        Of `compare_groups`.

    Returns
    -------
    pandas.DataFrame
        A row for each domain, or domain and type: its names, ``share_<condition>``, the mean share over the sections of
        each condition, ``n_sections`` that have a share (a domain that a section does not have is made of nothing
        there), ``p``, ``smallest_p`` and ``q`` (Benjamini-Hochberg over the rows). They are NaN where a group has fewer
        than two such sections.
    """
    keys = [name for name in ("domain", "type") if name in table]
    order = pd.MultiIndex.from_frame(table[keys].drop_duplicates())
    spots = table.set_index([*keys, "section"])["spots"].unstack("section", fill_value=0)
    spots = spots.loc[order if len(keys) > 1 else order.get_level_values(0), list(sections["section"])]
    whole = spots.groupby(level="domain", sort=False).transform("sum") if len(keys) > 1 else spots.sum()
    values = (spots / whole).to_numpy(dtype=np.float64)  # NaN where a section has no spot of a domain
    known = ~np.isnan(values)
    p, smallest = np.full(len(values), np.nan), np.full(len(values), np.nan)
    # rows are tested together that have values in the same sections
    for pattern in np.unique(known, axis=0):
        members = [own[pattern[own]] for own in groups.members]
        if min(own.size for own in members) < 2:
            continue
        rows = np.flatnonzero((known == pattern).all(axis=1))
        p[rows], smallest[rows] = compare_groups(values[rows], members, seed=seed)
    found = spots.index.to_frame(index=False)
    for name, own in zip(groups.names, groups.members, strict=True):
        present = known[:, own].sum(axis=1)
        total = np.where(known[:, own], values[:, own], 0.0).sum(axis=1)
        found[f"share_{name}"] = np.divide(total, present, out=np.full(len(values), np.nan), where=present > 0)
    return found.assign(n_sections=known.sum(axis=1), p=p, smallest_p=smallest, q=q_values(p))


def q_values(p: np.ndarray) -> np.ndarray:
    """Return the q-values (n,) of Benjamini and Hochberg for p-values (n,) of one family of tests.

    A p of NaN is of a test that was not made: its q is NaN, and it does not count among the tests.
    """
    q = np.full(p.shape, np.nan)
    tested = ~np.isnan(p)
    if tested.any():
        q[tested] = false_discovery_control(p[tested])
    return q


def _between(*groups: np.ndarray, axis: int) -> np.ndarray:
    """The variance between groups T, rounded."""
    mean = np.concatenate(groups, axis=axis).mean(axis=axis)
    parts = [own.shape[axis] * (own.mean(axis=axis) - mean) ** 2 for own in groups]
    return np.asarray(np.round(sum(parts), _DIGITS))
