"""Why a domain has no spot at the end."""

import numpy as np
import pytest

import spatialpdvi
from spatialpdvi import InputWarning
from spatialpdvi.fitting.fit import explain_empty


def test_where_the_spots_of_a_lost_domain_went():
    start_labels = np.repeat([0, 1, 2], [5, 4, 6])
    domains = start_labels.copy()
    domains[start_labels == 2] = [0, 1, 1, 1, 1, 0]
    assert explain_empty(domains, start_labels, 3) == "2 lost all its spots (6) during the fit: 4 to 1, 2 to 0"


def test_a_domain_that_the_start_did_not_have():
    labels = np.repeat([0, 1], [5, 4])
    assert explain_empty(labels, labels, 4) == "2, 3 had no spot at the start, which has fewer than 4 labels"


def test_both_reasons_together_and_many_heirs():
    start_labels = np.array([0, 1, 2, 3, 4, 4, 4, 4, 4, 4])
    domains = np.array([0, 1, 2, 3, 0, 0, 0, 1, 2, 3])
    reasons = explain_empty(domains, start_labels, 6)
    assert reasons.startswith("4 lost all its spots (6) during the fit: 3 to 0, 1 to 1, 1 to 2 and 1 elsewhere; ")
    assert reasons.endswith("5 had no spot at the start, which has fewer than 6 labels")


def test_many_lost_domains_are_counted():
    start_labels = np.arange(12)
    reasons = explain_empty(np.zeros(12, dtype=int), start_labels, 12)
    assert reasons.count("lost all its spots (1) during the fit: 1 to 0") == 5
    assert reasons.endswith("; 6 more lost theirs in the same way")


def test_a_fit_says_where_the_spots_of_the_domain_went_that_it_lost():
    """The start's labels are in another order than the domains, which are sorted by size."""
    section = spatialpdvi.simulate(n_spots=400, n_genes=60, k=4, seed=1, easy=True)
    labels = section.obs["annotation"].astype("category").cat.codes.to_numpy() + 1
    some = np.random.default_rng(0).choice(400, 6, replace=False)
    labels[some] = 0
    section.obs["given"] = labels.astype(str)
    options = {"k": 5, "init": "given", "n_top_genes": 60, "states": "off"}
    with pytest.warns(InputWarning, match=r"^Only 4 of 5 domains have spots; the last category is empty: ") as caught:
        result = spatialpdvi.fit(section, **options)
    to, spots = np.unique(result.domains[some], return_counts=True)
    went = ", ".join(f"{spots[i]} to {to[i]}" for i in np.argsort(-spots, kind="stable"))
    assert f" empty: 4 lost all its spots (6) during the fit: {went}. Lower `k`" in str(caught[0].message)
