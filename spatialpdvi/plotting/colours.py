"""The same colours for the categories of two maps that overlap."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from spatialpdvi.metrics.clustering import overlap
from spatialpdvi.palette import further_colours, palette

__all__ = ["match_colours"]

Ints = NDArray[np.int64]


def match_colours(
    domains: Ints, annotation: Ints | None = None, *, colours: Sequence[str] | None = None
) -> tuple[list[str], list[str]]:
    """Colours of the domains and of the annotation; a domain has that of the label it covers best.

    Parameters
    ----------
    domains
        Code of each spot, shape (n,), -1 for none.
    annotation
        The same for the labels to compare with, where there are any.
    colours
        Of the domains, where they have their own already: then it is the labels that take theirs.

    Returns
    -------
    tuple
        A colour per domain and a colour per label. Pairs share as many spots as one-to-one pairs
        can; domains and labels in no pair have colours of their own.
    """
    n_domains = int(domains.max(initial=-1)) + 1
    n_labels = 0 if annotation is None else int(annotation.max(initial=-1)) + 1
    partner = np.full(n_domains, -1)
    if annotation is not None:
        both = (domains >= 0) & (annotation >= 0)
        common = overlap(domains[both], annotation[both], shape=(n_domains, n_labels))
        for domain, label in zip(*linear_sum_assignment(common, maximize=True), strict=True):
            if common[domain, label] > 0:
                partner[domain] = label
    if colours is None:
        alone = np.flatnonzero(partner < 0)
        dealt = palette(n_labels + alone.size)
        partner[alone] = n_labels + np.arange(alone.size)
        return [dealt[index] for index in partner], list(dealt[:n_labels])
    of_domains = [to_hex(colour) for colour in colours]
    of_labels = {int(label): colour for label, colour in zip(partner, of_domains, strict=True)}
    unpaired = [label for label in range(n_labels) if label not in of_labels]
    of_labels |= dict(zip(unpaired, further_colours(len(unpaired), taken=of_domains), strict=True))
    return of_domains, [of_labels[label] for label in range(n_labels)]
