"""One number from a table, and its reason."""

import numpy as np
import pytest

from spatialpdvi.model_selection.recommend import recommend


def _table(found, *, first=2, empty=None):
    n = len(found)
    return {
        "k": np.arange(first, first + n),
        "found_again": np.array(found, dtype=float),
        "restart_ari": np.full(n, 0.75),
        "persistence": np.full(n, 0.8),
        "n_empty": np.zeros(n, dtype=int) if empty is None else np.array(empty),
        "neg_elbo": -np.arange(n, dtype=float),
    }


def test_most_domains_found_again():
    k, reason = recommend(_table([1.9, 1.2, 2.5, 3.8, 3.1]))
    assert k == 5
    assert reason == (
        "Separate halves of the data agree on 3.8 of 5 domains, less those on which they disagree. This is the largest "
        "number for K from 2 to 6 (2.5 for K = 4, 3.1 for K = 6). The next best is K = 6 with 3.1. Restarts agree with "
        "an ARI of 0.75. With one domain more or less, 80% of a domain stays the same on average."
    )


def test_ties_go_to_fewer_domains():
    k, reason = recommend(_table([1.0, 3.8, 2.0, 3.85, 1.0]))
    assert k == 3
    assert "This is as good as 3.9 for K = 5, the largest number for K from 2 to 6, with fewer domains" in reason


def test_a_number_that_the_fit_does_not_fill_is_not_recommended():
    k, reason = recommend(_table([1.0, 2.0, 2.5, 1.0], empty=[0, 0, 1, 0]))
    assert k == 3
    assert "the largest number for K from 2 to 5 whose fit leaves no domain without spots (1.0 for K = 2" in reason
    assert reason.endswith("The number is larger for K = 4, but the fit leaves domains without spots there.")
    assert "The next best is K = 2 with 1.0." in reason
    # one that is worse besides is no caution
    assert "The number is larger" not in recommend(_table([1.0, 2.0, 1.5, 1.0], empty=[0, 0, 1, 0]))[1]


def test_how_stable_domains_are_is_told_of_the_number_that_is_chosen():
    table = _table([1.0, 3.0, 2.0]) | {
        "restart_ari": np.array([0.1, 0.62, 0.3]),
        "persistence": np.array([0.2, 0.7, 0.4]),
    }
    _, reason = recommend(table)
    assert "Restarts agree with an ARI of 0.62. With one domain more or less, 70% of a domain stays" in reason


def test_the_only_number_that_is_filled_has_no_next_best():
    k, reason = recommend(_table([1.0, 2.0], empty=[1, 0]))
    assert k == 3
    assert "next best" not in reason


@pytest.mark.parametrize(
    ("table", "k", "caution"),
    [
        (_table([0.0, -1.0, -2.0]), 2, "For no K do the halves agree on more domains than they disagree on"),
        (_table([-0.5, -1.0, -2.0]), 2, "For no K do the halves agree on more domains than they disagree on"),
        (_table([0.5, 1.0, 2.0], first=4), 6, "This is the largest K of the range"),
        (_table([0.5, 2.0, 1.0], empty=[1, 1, 1]), 3, "Every K leaves domains without spots, this one 1."),
    ],
)
def test_cautions_end_the_reason(table, k, caution):
    chosen, reason = recommend(table)
    assert chosen == k
    assert caution in reason
