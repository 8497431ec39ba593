"""The table of a scan: how it is shown, and the number of domains that it recommends, with the reason in words."""

from collections.abc import Mapping

import numpy as np

__all__ = ["SCAN_COLUMNS", "recommend", "recommend_by_evidence"]

# columns of the table of a scan that are shown: head and format
SCAN_COLUMNS = {
    "k": ("K", ".0f"),
    "evidence": ("evidence", ".3f"),
    "found_again": ("found again", ".2f"),
    "split_ari": ("halves ARI", ".3f"),
    "restart_ari": ("restarts ARI", ".3f"),
    "persistence": ("persistence", ".3f"),
    "smallest": ("smallest", ",.0f"),
    "n_empty": ("empty", ".0f"),
    "smooth": ("smooth", ".0f"),
    "neg_elbo": ("complete bound", ".6g"),
    "seconds": ("seconds", ".1f"),
}
_TIED = 0.1  # domains
_LARGEST = "This is the largest K of the range; a wider range may lead to a larger one."
_SMALLEST = "This is the smallest K of the range; a wider range may lead to a smaller one."
_PRICES = np.geomspace(0.005, 0.05, 41)  # of a domain, as parts of the evidence (docs/lab_notebook.md)


def recommend_by_evidence(table: Mapping[str, np.ndarray]) -> tuple[int, str]:
    """Return the K that is best on average where each domain has a price, and the reason in sentences.

    The evidence itself is largest for more domains than people annotate, up to twice as many: spots of one domain are
    not independent, so that in a large section ever finer domains pay (docs/choosing.md). How much a domain must bring
    nobody knows. For every price from 0.5 to 5 % of the evidence there is a best K, and the geometric mean of these is
    recommended (E15).

    Parameters
    ----------
    table
        Columns of a scan of compositions of states; ``k`` rises.
    """
    counts, share, allowed = table["k"], table["evidence"], _allowed(table)
    possible = np.where(allowed, share, -np.inf)
    best = int(possible.argmax())
    if share[best] <= 0:
        chosen = best
        reason = "No number of the range explains the section better than a single domain does; this one is nearest."
    else:
        worth = counts[(possible - _PRICES[:, None] * counts).argmax(axis=1)]
        away = np.abs(np.log(counts) - np.log(worth).mean())
        chosen = int(np.where(allowed, away, np.inf).argmin())
        differ = worth.min() < worth.max()
        numbers = f"{worth.min()} to {worth.max()}" if differ else f"{worth[0]}"
        on_average = f", {counts[chosen]} on average" if differ else ""
        reason = (
            f"If each domain must bring {_PRICES[0]:.1%} to {_PRICES[-1]:.0%} of the evidence that the best number has "
            f"over a single domain, {numbers} are worth having{on_average}."
        )
    near = [f"{_percent(share[i])} for K = {counts[i]}" for i in (chosen - 1, chosen + 1) if 0 <= i < counts.size]
    reasons = [reason, f"It has {_percent(share[chosen])} ({', '.join(near)})."]
    if best > chosen:
        reasons.append(f"The best is K = {counts[best]}, whose other domains are small or weak.")
    if chosen == counts.size - 1:
        reasons.append(_LARGEST)
    if chosen == 0 and counts[0] > 2:
        reasons.append(_SMALLEST)
    return int(counts[chosen]), " ".join(reasons)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share > 0 else "none"


def recommend(table: Mapping[str, np.ndarray]) -> tuple[int, str]:
    """Return the K with the most domains on which separate halves of the data agree, and the reason in sentences.

    A K for which the fit leaves domains empty is taken only where every K does. Of numbers within a tenth of a domain
    of the best, the smallest is taken. The bound does not choose: it falls with nearly every domain that is added, on
    every section that we have (docs/choosing.md).

    Parameters
    ----------
    table
        Columns of a scan; ``k`` rises.
    """
    counts, found, allowed = table["k"], table["found_again"], _allowed(table)
    best = int(np.where(allowed, found, -np.inf).argmax())
    chosen = int(np.flatnonzero(allowed & (found >= found[best] - _TIED))[0])
    reasons = [
        _agreement(counts, found, allowed, chosen, best),
        *_next_best(counts, found, allowed, chosen),
        _stability(table, chosen),
        *_cautions(table, chosen),
    ]
    return int(counts[chosen]), " ".join(reasons)


def _allowed(table: Mapping[str, np.ndarray]) -> np.ndarray:
    """Whether each K may be recommended (bool): those without empty domains, or all where every K has some."""
    full = table["n_empty"] == 0
    return full if full.any() else np.ones_like(full)


def _agreement(counts: np.ndarray, found: np.ndarray, allowed: np.ndarray, chosen: int, best: int) -> str:
    near = [f"{found[i]:.1f} for K = {counts[i]}" for i in (chosen - 1, chosen + 1) if 0 <= i < counts.size]
    rank = f"the largest number for K from {counts[0]} to {counts[-1]}"
    if not allowed.all():
        rank += " whose fit leaves no domain without spots"
    if chosen != best:
        rank = f"as good as {found[best]:.1f} for K = {counts[best]}, {rank}, with fewer domains"
    return (
        f"Separate halves of the data agree on {found[chosen]:.1f} of {counts[chosen]} domains, less those on which "
        f"they disagree. This is {rank} ({', '.join(near)})."
    )


def _next_best(counts: np.ndarray, found: np.ndarray, allowed: np.ndarray, chosen: int) -> list[str]:
    """The second choice, which users should know: repeated scans differ by some tenths of a domain."""
    others = np.where(allowed & (counts != counts[chosen]), found, -np.inf)
    if not np.isfinite(others).any():
        return []
    second = int(others.argmax())
    return [f"The next best is K = {counts[second]} with {found[second]:.1f}."]


def _stability(table: Mapping[str, np.ndarray], chosen: int) -> str:
    return (
        f"Restarts agree with an ARI of {table['restart_ari'][chosen]:.2f}. With one domain more or less, "
        f"{table['persistence'][chosen]:.0%} of a domain stays the same on average."
    )


def _cautions(table: Mapping[str, np.ndarray], chosen: int) -> list[str]:
    cautions = []
    empty = table["k"][(table["n_empty"] > 0) & (table["found_again"] > table["found_again"][chosen])]
    if empty.size:
        larger = " and ".join(f"K = {k}" for k in empty)
        cautions.append(f"The number is larger for {larger}, but the fit leaves domains without spots there.")
    if table["found_again"][chosen] <= 0:
        cautions.append("For no K do the halves agree on more domains than they disagree on: use every K with care.")
    if chosen == table["k"].size - 1:
        cautions.append(_LARGEST)
    if table["n_empty"][chosen]:
        cautions.append(f"Every K leaves domains without spots, this one {table['n_empty'][chosen]}.")
    return cautions
