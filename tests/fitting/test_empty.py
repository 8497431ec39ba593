"""Why a domain has no spot at the end."""

import numpy as np

from spatialpdvi.fitting.fit import explain_empty


def test_where_the_spots_of_a_lost_domain_went():
    begun = np.repeat([0, 1, 2], [5, 4, 6])
    domains = begun.copy()
    domains[begun == 2] = [0, 1, 1, 1, 1, 0]
    assert explain_empty(domains, begun, 3) == "2 lost the 6 spots it began with during the fit, 4 to 1, 2 to 0"


def test_a_domain_that_the_start_did_not_have():
    labels = np.repeat([0, 1], [5, 4])
    assert explain_empty(labels, labels, 4) == "2, 3 had no spot from the start on, whose labels are fewer than 4"


def test_both_reasons_together_and_many_heirs():
    begun = np.array([0, 1, 2, 3, 4, 4, 4, 4, 4, 4])
    domains = np.array([0, 1, 2, 3, 0, 0, 0, 1, 2, 3])
    said = explain_empty(domains, begun, 6)
    assert said.startswith("4 lost the 6 spots it began with during the fit, 3 to 0, 1 to 1, 1 to 2 and 1 elsewhere; ")
    assert said.endswith("5 had no spot from the start on, whose labels are fewer than 6")


def test_many_lost_domains_are_counted():
    begun = np.arange(12)
    said = explain_empty(np.zeros(12, dtype=int), begun, 12)
    assert said.count("began with") == 5
    assert said.endswith("; 6 more lost theirs in the same way")
