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
        "3.8 of 5 domains are found again, net, by separate halves of the data: the most of 2 to 6 (2.5 of 4, 3.1 of "
        "6). Next best: 3.1 of 6. Restarts agree with ARI 0.75; 80% of a domain is there with one domain more or "
        "less."
    )


def test_ties_go_to_more_domains():
    k, reason = recommend(_table([1.0, 3.85, 2.0, 3.8, 1.0]))
    assert k == 5
    assert "as good as 3.9 of 3 and more domains, the best of 2 to 6" in reason


def test_a_number_that_the_fit_does_not_fill_is_not_recommended():
    k, reason = recommend(_table([1.0, 2.0, 2.5, 1.0], empty=[0, 0, 1, 0]))
    assert k == 3
    assert reason.endswith("More are found again of 4, but not all of those have spots.")
    assert "Next best: 1.0 of 2." in reason


def test_the_only_number_that_is_filled_has_no_next_best():
    k, reason = recommend(_table([1.0, 2.0], empty=[1, 0]))
    assert k == 3
    assert "Next best" not in reason


@pytest.mark.parametrize(
    ("table", "k", "said"),
    [
        (_table([-0.5, -1.0, -2.0]), 2, "No number is found again more than it is not"),
        (_table([0.5, 1.0, 2.0], first=4), 6, "It is the last of the range"),
        (_table([0.5, 2.0, 1.0], empty=[1, 1, 1]), 3, "Every number leaves domains empty; of these 1."),
    ],
)
def test_what_to_be_careful_of_is_said(table, k, said):
    chosen, reason = recommend(table)
    assert chosen == k
    assert said in reason
