"""Names of domains: new ones from a table or an annotation, and names that no two domains share."""

import warnings
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from spatialpdvi.errors import InputError, InputWarning, list_keys
from spatialpdvi.metrics.clustering import overlap

__all__ = ["check_known", "joined", "majority_names", "part_names", "repeated", "table_names", "told_apart"]

_LISTED = 4  # names that a warning lists; of more, it lists one less and counts the others


def check_known(wanted: Sequence[str], names: Sequence[str], option: str) -> None:
    """Raise an `InputError` where a wanted domain is not among those that there are.

    Parameters
    ----------
    wanted
        Names that the user gave.
    names
        Of the domains.
    option
        Where the user gave them, as Python spells it.
    """
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise InputError(f"one of the domains {list_keys(names)}", repr(unknown[0]), option=option)


def table_names(table: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return the new name of each domain from a table of old and new names; domains outside of it keep theirs.

    Raises
    ------
    InputError
        Where the table names a domain that there is not, or a new name is empty.
    """
    check_known(list(table), names, "names")
    empty = [old for old, new in table.items() if not new.strip()]
    if empty:
        raise InputError("a name for each domain", f"an empty one for {empty[0]!r}", option="names")
    return [table.get(name, name) for name in names]


def majority_names(
    codes: np.ndarray, names: Sequence[str], labels: np.ndarray, label_names: Sequence[str]
) -> list[str]:
    """Return the most frequent label of each domain; one without a labelled spot keeps its name.

    Parameters
    ----------
    codes
        Domain of each spot (n,).
    names
        (K,) of the domains.
    labels
        Code of each spot's label (n,); negative where there is none.
    label_names
        Of the labels; the first of those that are equally frequent is taken, with a warning.
    """
    counts = overlap(codes, labels, shape=(len(names), len(label_names)))
    most = counts.max(axis=1)
    found = [label_names[int(row.argmax())] if row.any() else name for row, name in zip(counts, names, strict=True)]
    for name, row, top, new in zip(names, counts, most, found, strict=True):
        ties = [repr(label_names[int(label)]) for label in np.flatnonzero(row == top)]
        if top and len(ties) > 1:
            listed = " and ".join(_first(ties))
            text = f"Domain {name!r} has equally many spots with the labels {listed}. It is named {new!r}."
            warnings.warn(InputWarning(text), stacklevel=2)
    alone = [repr(name) for name, top in zip(names, most, strict=True) if not top]
    if alone:
        which, keeps = ("domain", "It keeps its name") if len(alone) == 1 else ("domains", "They keep their names")
        text = f"No spot of {which} {', '.join(_first(alone))} has a label. {keeps}."
        warnings.warn(InputWarning(text), stacklevel=2)
    return found


def repeated(names: Sequence[str]) -> list[str]:
    """Return the names that more than one domain has, each once."""
    return [name for name, times in Counter(names).items() if times > 1]


def told_apart(names: Sequence[str]) -> list[str]:
    """Return the names with numbers where they repeat: two domains "Cortex" become "Cortex 1" and "Cortex 2"."""
    twice, taken = set(repeated(names)), set(names)
    return [_free(f"{name} ", taken) if name in twice else name for name in names]


def part_names(name: str, n: int, names: Sequence[str]) -> list[str]:
    """Return names for the n parts of a domain, which no other domain has: "3.1", "3.2"."""
    taken = set(names)
    return [_free(f"{name}.", taken) for _ in range(n)]


def joined(names: Collection[str]) -> str:
    """Return the name of a union that has been given none: "0+3"."""
    return "+".join(names)


def _first(names: Sequence[str]) -> list[str]:
    """Return the names that a warning lists, and the number of the others: each spot may have a label of its own."""
    if len(names) <= _LISTED:
        return list(names)
    return [*names[: _LISTED - 1], f"{len(names) - _LISTED + 1:,} others"]


def _free(stem: str, taken: set[str]) -> str:
    """Return the first name of stem and number that is not taken, and take it."""
    number = 1
    while f"{stem}{number}" in taken:
        number += 1
    taken.add(f"{stem}{number}")
    return f"{stem}{number}"
