"""What each stage of a fit takes from the options, and its defaults for a section of a given size."""

import pytest

from spatialpdvi import FitOptions
from spatialpdvi.options.stages import (
    FeatureSettings,
    StartSettings,
    StateSettings,
    are_tall,
    default_n_neighbors,
)
from spatialpdvi.options.states import most_states, n_mixtures, wanted_states


@pytest.mark.parametrize(
    ("averaged", "joined"), [(None, 10), (0, 10), (1, 6), (6, 6), (7, 7), (9, 9), (10, 10), (40, 10)]
)
def test_spots_are_joined_to_as_many_as_are_averaged_but_to_six_at_least_and_ten_at_most(averaged, joined):
    assert default_n_neighbors(averaged) == joined


@pytest.mark.parametrize(
    ("shape", "tall"),
    [((1_000, 5), True), ((999, 5), False), ((1_000_000, 5_000), True), ((999_999, 5_000), False)],
)
def test_a_matrix_is_tall_where_it_has_two_hundred_spots_for_each_gene(shape, tall):
    assert are_tall(shape) is tall


def test_no_matrix_of_very_many_genes_is_tall():
    assert not are_tall((10**9, 5_001))


@pytest.mark.parametrize(
    ("n_pcs", "k", "components"), [(None, 2, 15), (None, 16, 15), (None, 17, 16), (0, 30, 29), (4, 30, 4)]
)
def test_components_are_fifteen_or_what_the_means_of_the_domains_span(n_pcs, k, components):
    assert FitOptions(k=k, n_pcs=n_pcs).components_of(k) == components
    assert FeatureSettings.of(FitOptions(k=k, n_pcs=n_pcs)).n_components == components
    assert FeatureSettings.of(FitOptions(k="2:40", n_pcs=n_pcs), k).n_components == components


@pytest.mark.usefixtures("usual_defaults")
@pytest.mark.parametrize(
    ("options", "searched", "n_init"),
    [
        ({}, False, 150),
        ({}, True, 6),
        ({"restarts": "best"}, False, 6),
        ({"n_init": 7}, False, 7),
        ({"n_init": 7, "restarts": "best"}, True, 7),
    ],
)
def test_few_restarts_are_enough_where_a_search_or_a_fit_of_each_follows(options, searched, n_init):
    settings = StartSettings.of(FitOptions(k=3, seed=5, **options), 1_000, searched=searched)
    assert (settings.n_init, settings.n_domains, settings.seed) == (n_init, 3, 5)


@pytest.mark.parametrize(("states", "if_distinct"), [("auto", True), (8, False)])
def test_states_whose_number_was_given_are_not_decided_on(states, if_distinct):
    settings = StateSettings.of(FitOptions(k=3, states=states, search=2, seed=5, memory="1GB"), 8)
    assert (settings.n_states, settings.if_distinct, settings.search, settings.seed) == (8, if_distinct, 2, 5)
    assert settings.memory == "1GB"


def test_states_are_as_many_as_were_given_whatever_the_size_of_the_section():
    assert [wanted_states(given, 100, 3) for given in ("off", "auto", 40)] == [0, 0, 40]


@pytest.mark.usefixtures("usual_defaults")
def test_a_state_has_twenty_spots_on_average():
    assert (most_states(399), most_states(400)) == (19, 20)


@pytest.mark.parametrize(
    ("n_states", "n_spots", "n_sets", "if_distinct", "n"),
    [
        (24, 960, 15, True, 8),  # communities are the states of the fit, and mixtures tell whether there are any
        (24, 960, 3, False, 3),  # nothing is to be told
        (24, 959, 15, True, 15),  # mixtures are the states of the fit
        (24, 959, 15, False, 15),
        (24, 959, 3, True, 8),
        (24, 20_000, 1, True, 3),
    ],
)
def test_mixtures_are_as_many_as_are_decided_on_or_searched_with(n_states, n_spots, n_sets, if_distinct, n):
    assert n_mixtures(n_states, n_spots, n_sets, if_distinct=if_distinct) == n
