"""Labels of any kind as codes and names, and colours that two sets of labels share."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.section.labels import label_text
from spatialpdvi.metrics.clustering import best_pairs, overlap
from spatialpdvi.palette import further_colours, palette

__all__ = [
    "Labels",
    "check_colours",
    "check_labels",
    "choose_colours",
    "match_colours",
    "printable",
    "short",
]

Ints = NDArray[np.int64]

_LONGEST = 24  # letters of a name that are shown


class Labels(NamedTuple):
    """A label per spot."""

    codes: Ints  # (n,), into `names`; -1 where unlabelled
    names: list[str]  # of the labels that at least one spot has


def check_labels(values: Any, *, n: int, what: str) -> Labels:
    """Return codes and names of ``n`` labels; integers are their own names, and negative where missing.

    Parameters
    ----------
    values
        A pandas Categorical or Series, or an array; (n,).
    n
        Number of spots.
    what
        The name of the values in errors.

    Raises
    ------
    InputError
        If there is not one label per spot.
    """
    if isinstance(values, pd.Series):
        values = values.array
    if np.shape(values) != (n,):
        raise InputError(
            f"as many {what} as spots, {n}",
            f"an array of shape {np.shape(values)}",
            f"Give {what} and coordinates of the same spots.",
        )
    if isinstance(values, pd.Categorical):
        codes, names = np.asarray(values.codes, dtype=np.int64), values.categories
    else:
        codes, names = pd.factorize(np.asarray(values), sort=True)
        if np.issubdtype(names.dtype, np.number):
            negative = int((names < 0).sum())  # sorted, so these are the first
            codes, names = np.maximum(codes - negative, -1), names[negative:]
    used = np.bincount(codes[codes >= 0], minlength=len(names)) > 0
    texts = [printable(label_text(names[code])) for code in np.flatnonzero(used)]
    place = np.append(np.cumsum(used) - 1, -1)  # the last is that of the code -1
    return Labels(place[codes], texts)


def printable(text: str) -> str:
    """Return the text with ``?`` for what no font can draw: control characters and bytes that are not UTF-8."""
    return "".join(character if character.isprintable() else "?" for character in text)


def short(names: Iterable[str], most: int = _LONGEST, *, in_the_middle: bool = False) -> list[str]:
    """Return the names, those that are longer cut to ``most`` letters where most of them remain different.

    They are cut at the end, or in the middle, where that tells them apart as well as any other place.
    """
    names = list(names)

    def cut(name: str, first: int) -> str:
        return name if len(name) <= most else f"{name[:first]}…{name[len(name) - (most - 1 - first) :]}"

    wanted = (most - 1) / 2 if in_the_middle else most - 1
    places = sorted(range(most), key=lambda first: abs(first - wanted))
    return max(([cut(name, first) for name in names] for first in places), key=lambda found: len(set(found)))


def choose_colours(
    domains: Labels,
    labels: Labels | None,
    *,
    colours: Mapping[str, str] | None,
    label_colours: Mapping[str, str] | None,
) -> tuple[list[str], list[str]]:
    """Return a colour per domain and per label, none without labels, as `match_colours` chooses them.

    Parameters
    ----------
    domains, labels
        Of each spot.
    colours, label_colours
        By name, where they are stored.

    Raises
    ------
    InputError
        If a colour of a domain is not a colour; such colours of labels are left out with a warning.
    """
    own = None if colours is None else check_colours(colours, domains.names)
    if labels is None:
        return match_colours(domains.codes, colours=own)
    of_labels = _known_colours(label_colours, labels.names)
    return match_colours(domains.codes, labels.codes, colours=own, label_colours=of_labels)


def match_colours(
    domains: Ints,
    annotation: Ints | None = None,
    *,
    colours: Sequence[str] | None = None,
    label_colours: Sequence[str] | None = None,
) -> tuple[list[str], list[str]]:
    """Choose colours such that a domain and the label that it covers best have the same one.

    Each label is paired with at most one domain, so that the pairs share as many spots as possible. Domains and labels
    without a partner have colours of their own.

    Parameters
    ----------
    domains
        Code of each spot, (n,), -1 for none.
    annotation
        The same for the labels to compare with, if there are any.
    colours
        Of the domains, if they have colours already; the labels then take these.
    label_colours
        Of the labels, if they have colours already, which they keep. The domains take these where they have none.

    Returns
    -------
    tuple
        A colour per domain and a colour per label.
    """
    n_domains = int(domains.max(initial=-1)) + 1
    n_labels = 0 if annotation is None else int(annotation.max(initial=-1)) + 1
    partner = np.full(n_domains, -1)
    if annotation is not None:
        common = overlap(domains, annotation, shape=(n_domains, n_labels))
        for domain, label in best_pairs(common):
            partner[domain] = label
    own_labels = None if label_colours is None else [to_hex(colour) for colour in label_colours]
    if colours is None:
        alone = np.flatnonzero(partner < 0)
        partner[alone] = n_labels + np.arange(alone.size)
        if own_labels is None:
            chosen = list(palette(n_labels + alone.size))
        else:
            chosen = [*own_labels, *further_colours(alone.size, taken=own_labels)]
        return [chosen[index] for index in partner], chosen[:n_labels]
    of_domains = [to_hex(colour) for colour in colours]
    if own_labels is not None:
        return of_domains, own_labels
    of_labels = {int(label): colour for label, colour in zip(partner, of_domains, strict=True)}
    unpaired = [label for label in range(n_labels) if label not in of_labels]
    of_labels |= dict(zip(unpaired, further_colours(len(unpaired), taken=of_domains), strict=True))
    return of_domains, [of_labels[label] for label in range(n_labels)]


def check_colours(colours: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return the colour of each name as ``#rrggbb``; raise an `InputError` for one that matplotlib does not know."""
    if not hasattr(colours, "items"):  # a column of a table has them too
        advice = "Give a dict, such as {'0': 'tab:blue'}."
        kind = f"an object of type {type(colours).__name__}"
        raise InputError("colours by the names of what they are for", kind, advice)
    known = {printable(name): colour for name, colour in colours.items()} | dict(colours)
    found = []
    for name in names:
        try:
            found.append(to_hex(known[name]))
        except (KeyError, ValueError):
            raise InputError(
                "a colour for each domain",
                f"{known.get(name)!r:.60} for {name!r:.60}",
                "Give names or hexadecimal values that matplotlib knows.",
            ) from None
    return found


def _known_colours(colours: Mapping[str, str] | None, names: Sequence[str]) -> list[str] | None:
    """Return the stored colour of each label as ``#rrggbb``; None where there are none, or one is no colour."""
    if colours is None:
        return None
    try:
        return check_colours(colours, names)
    except InputError:
        text = "The stored colours of the labels are not used, because some are no colours that matplotlib knows."
        warnings.warn(InputWarning(text), stacklevel=2)
        return None
