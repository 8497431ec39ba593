"""Why a domain has no spot at the end of a fit."""

import numpy as np

__all__ = ["explain_empty"]

_NAMED = 3  # domains that a lost one's spots went to, at the most
_SHOWN = 5  # lost domains that are explained one by one


def explain_empty(domains: np.ndarray, begun: np.ndarray, k: int) -> str:
    """Which domains are empty and why, in words: none at the start, or lost to which others during the fit.

    Parameters
    ----------
    domains
        (n,) in 0..k-1 at the end of the fit.
    begun
        (n,) labels that the fit began with, numbered like the domains they became.
    k
        Number of domains, at least one of which has no spot.
    """
    empty = np.setdiff1d(np.arange(k), domains)
    at_start = np.bincount(begun, minlength=k)[empty]
    reasons = [_lost(lost, domains, begun) for lost in empty[at_start > 0][:_SHOWN]]
    more = int((at_start > 0).sum()) - len(reasons)
    if more > 0:
        reasons.append(f"{more} more lost theirs in the same way")
    never = empty[at_start == 0]
    if never.size:
        names = ", ".join(map(str, never))
        reasons.append(f"{names} had no spot from the start on, whose labels are fewer than {k}")
    return "; ".join(reasons)


def _lost(lost: int, domains: np.ndarray, begun: np.ndarray) -> str:
    """Where the spots went that a domain began with."""
    own = domains[begun == lost]
    to, spots = np.unique(own, return_counts=True)
    largest = np.argsort(-spots, kind="stable")[:_NAMED]
    where = ", ".join(f"{spots[i]:,} to {to[i]}" for i in largest)
    others = "" if to.size <= _NAMED else f" and {own.size - spots[largest].sum():,} elsewhere"
    return f"{lost} lost the {own.size:,} spots it began with during the fit, {where}{others}"
