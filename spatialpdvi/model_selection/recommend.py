"""One number of domains from the table of a scan, and why, in words."""

from collections.abc import Mapping

import numpy as np

__all__ = ["recommend"]

_TIED = 0.1  # domains


def recommend(table: Mapping[str, np.ndarray]) -> tuple[int, str]:
    """The K of which most domains are found again by separate halves of the data, and the reason in sentences.

    Only a K of which the fit fills every domain is taken, where there is one. Numbers within a tenth of a domain of the
    best are ties, and go to more domains. The bound does not choose: it falls
    with nearly every domain that is added, on every section we have (docs/measurements.md).

    Parameters
    ----------
    table
        Columns of a scan; ``k`` rises.
    """
    counts, found = table["k"], table["found_again"]
    full = table["n_empty"] == 0
    allowed = full if full.any() else np.ones_like(full)
    best = int(np.where(allowed, found, -np.inf).argmax())
    chosen = int(np.flatnonzero(allowed & (found >= found[best] - _TIED))[-1])
    reasons = [
        _decisive(counts, found, chosen, best),
        *_next_best(counts, found, allowed, chosen),
        _others(table, chosen),
    ]
    return int(counts[chosen]), " ".join(reasons + _cautions(table, chosen))


def _next_best(counts: np.ndarray, found: np.ndarray, allowed: np.ndarray, chosen: int) -> list[str]:
    """What to look at too: one scan differs from the next by some tenths of a domain."""
    others = np.where(allowed & (counts != counts[chosen]), found, -np.inf)
    if not np.isfinite(others).any():
        return []
    second = int(others.argmax())
    return [f"Next best: {found[second]:.1f} of {counts[second]}."]


def _decisive(counts: np.ndarray, found: np.ndarray, chosen: int, best: int) -> str:
    said = [f"{found[i]:.1f} of {counts[i]}" for i in range(counts.size)]
    beside = ", ".join(said[i] for i in (chosen - 1, chosen + 1) if 0 <= i < counts.size)
    rank = "the most" if chosen == best else f"as good as {said[best]} and more domains, the best"
    return (
        f"{said[chosen]} domains are found again, net, by separate halves of the data: {rank} of {counts[0]} to "
        f"{counts[-1]} ({beside})."
    )


def _others(table: Mapping[str, np.ndarray], chosen: int) -> str:
    return (
        f"Restarts agree with ARI {table['restart_ari'][chosen]:.2f}; {table['persistence'][chosen]:.0%} of a domain "
        "is there with one domain more or less."
    )


def _cautions(table: Mapping[str, np.ndarray], chosen: int) -> list[str]:
    cautions = []
    lost = table["k"][(table["n_empty"] > 0) & (table["found_again"] > table["found_again"][chosen])]
    if lost.size:
        cautions.append(f"More are found again of {', '.join(map(str, lost))}, but not all of those have spots.")
    if table["found_again"][chosen] <= 0:
        cautions.append("No number is found again more than it is not: be careful with any of them.")
    if chosen == table["k"].size - 1:
        cautions.append("It is the last of the range: a longer one may end elsewhere.")
    if table["n_empty"][chosen]:
        cautions.append(f"Every number leaves domains empty; of these {table['n_empty'][chosen]}.")
    return cautions
