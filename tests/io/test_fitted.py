"""What a fit has written, read again."""

import numpy as np
import pandas as pd
import pytest

import spatialpdvi as spv
from spatialpdvi import InputError, InputWarning, Merge
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.arrays import read_composition
from spatialpdvi.io.results.fitted import read_fitted
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import read_colours, read_own_colours
from spatialpdvi.io.results.stored import fitted_features
from spatialpdvi.metrics.stored import shown_scores


@pytest.fixture(scope="module")
def fits():
    section = spv.simulate(n_spots=400, n_genes=60, k=3, seed=1, easy=True)
    spv.fit(section, k=3, n_top_genes=60, n_init=1, states="off", save_graph=True)
    return section


@pytest.mark.parametrize("value", [-0.5, 1.5])
def test_a_confidence_outside_of_its_range_is_told(fits, value):
    fits = fits.copy()
    fits.obs["pdvi_confidence"] = np.where(np.arange(400) == 7, value, fits.obs["pdvi_confidence"])
    with pytest.raises(InputError, match=rf"found {value}, which is not between 0 and 1\."):
        read_fitted(AnnDataSource(fits), Keys())


def test_too_few_colours_of_labels_are_not_used(fits):
    fits = fits.copy()
    fits.uns["annotation_colors"] = np.array(["#111111"], dtype=object)
    with pytest.warns(InputWarning, match=r"^uns\['annotation_colors'\] is not used: it does not hold a colour"):
        assert read_fitted(AnnDataSource(fits), Keys()).label_colours is None


def test_colours_of_labels_that_are_whole_numbers_have_their_names(fits):
    """A column of whole numbers with a missing one has the categories 1.0, 2.0, ..., which are the labels 1, 2, ..."""
    fits = fits.copy()
    fits.obs["annotation"] = pd.Categorical(np.where(np.arange(400) % 2, 1.0, 2.0))
    fits.uns["annotation_colors"] = np.array(["#111111", "#222222"], dtype=object)
    found = read_fitted(AnnDataSource(fits), Keys())
    assert found.label_colours == {"1": "#111111", "2": "#222222"}
    assert list(found.annotation.categories) == ["1", "2"]


def test_domains_that_were_changed_by_hand_are_told_and_scored_anew(fits):
    """A map of them had the scores of the fit, and the confidence of other domains, without a word."""
    moved = fits.copy()
    moved.obs["pdvi_domain"] = moved.obs["pdvi_domain"].where(np.arange(400) >= 30, "2")
    n = int((moved.obs["pdvi_domain"] != fits.obs["pdvi_domain"]).sum())
    told = rf"^{n} of 400 spots in obs\['pdvi_domain'\] of .* are in other domains than the fit gave them\. Scores are "
    with pytest.warns(InputWarning, match=told):
        found = read_fitted(AnnDataSource(moved), Keys())
    assert (
        shown_scores(found)["ari"]
        == spv.evaluate(moved, label_key="annotation")["ari"]
        < fits.uns["pdvi"]["scores"]["ari"]
    )
    united = fits.copy()
    last = united.obs["pdvi_domain"] == "2"
    united.obs["pdvi_domain"] = united.obs["pdvi_domain"].where(~last, "0").cat.remove_unused_categories()
    with pytest.warns(InputWarning, match=rf"^{last.sum()} of 400 spots "):
        assert read_fitted(AnnDataSource(united), Keys()).n_moved == last.sum()
    del united.obsm["pdvi_posterior"]  # nothing tells
    assert read_fitted(AnnDataSource(united), Keys()).n_moved == 0


@pytest.mark.parametrize("given", [None, "annotation"])
def test_known_labels_are_those_of_the_fit_unless_others_are_named(fits, given):
    fits = fits.copy()
    fits.uns["pdvi"]["params"]["label_key"] = "layer"
    fits.uns["pdvi"]["scores"]["ari"] = 0.125
    fits.obs["layer"] = np.where(np.arange(400) % 2, "odd", "even")
    found = read_fitted(AnnDataSource(fits), Keys(), label_key=given)
    assert found.label_key == (given or "layer")
    # scores beside a map are those of its labels
    of_the_fit = given is None
    assert shown_scores(found)["ari"] == (0.125 if of_the_fit else spv.evaluate(fits, label_key=given)["ari"])


def test_scores_beside_a_map_of_some_spots_are_of_these(fits):
    some = fits[:200].copy()
    assert shown_scores(read_fitted(AnnDataSource(some), Keys()))["n_spots"] == 200
    whole = read_fitted(AnnDataSource(fits), Keys())
    assert shown_scores(whole) is whole.summary["scores"]


def test_the_number_of_fitted_domains_is_that_before_edits_and_selections(fits):
    some = fits[fits.obs["pdvi_domain"] != "2"].copy()
    some.obs["pdvi_domain"] = some.obs["pdvi_domain"].cat.remove_unused_categories()
    assert read_fitted(AnnDataSource(some), Keys()).n_fitted == 3
    fits = fits.copy()
    spv.label(fits, Merge(["0", "1"]))
    assert read_fitted(AnnDataSource(fits), Keys()).n_fitted == 3


def test_compositions_are_those_of_the_domains_that_have_spots(fits):
    some = fits.copy()
    some.obs["pdvi_domain"] = pd.Categorical(np.where(np.arange(400) % 2, "2", "0"), categories=["0", "1", "2"])
    shares = np.array([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    some.obs["pdvi_confidence"] = some.obsm["pdvi_posterior"][np.arange(400), some.obs["pdvi_domain"].cat.codes]
    domains = some.obs["pdvi_domain"].cat.remove_unused_categories().array
    found = read_composition(AnnDataSource(some), Keys(), {"composition": shares}, domains)
    np.testing.assert_array_equal(found, shares[[0, 2]])


@pytest.mark.parametrize(
    "change",
    [
        lambda column: column.cat.reorder_categories(["2", "0", "1"]),
        lambda column: column.astype(str).replace("0", "1").astype("category"),
    ],
)
def test_compositions_of_domains_in_another_order_are_refused(fits, change):
    some = fits.copy()
    some.obs["pdvi_domain"] = change(some.obs["pdvi_domain"])
    shares, domains = np.eye(3), some.obs["pdvi_domain"].array
    with pytest.raises(InputError, match=r"to have its categories in the order of the columns of obsm\['pdvi_post"):
        read_composition(AnnDataSource(some), Keys(), {"composition": shares}, domains)


def test_categories_that_pandas_merged_are_no_selection_of_spots(fits):
    some = fits.copy()
    some.obs["pdvi_domain"] = some.obs["pdvi_domain"].astype(str).replace("0", "1").astype("category")
    with pytest.raises(
        InputError, match=r"found 3 columns\. The categories were changed, .* `spatialpdvi label merge`"
    ):
        spv.label(some, Merge(["1", "2"]))
    with pytest.raises(InputError, match=r"found 3 columns\. A selection of spots loses"):
        spv.label(some[some.obs["pdvi_domain"] == "1"].copy(), Merge(["1", "2"]))


@pytest.mark.parametrize(
    "change", [lambda column: column.cat.remove_unused_categories(), lambda column: column.astype(str)]
)
def test_domains_keep_their_colours_where_pandas_lost_one_without_spots(fits, change):
    some = fits[fits.obs["pdvi_domain"] != "0"].copy()
    some.uns["pdvi_domain_colors"] = np.array(["#111111", "#222222", "#333333"], dtype=object)
    some.obs["pdvi_domain"] = change(some.obs["pdvi_domain"].cat.set_categories(["0", "1", "2"]))
    assert read_colours(AnnDataSource(some), Keys()) == {"1": "#222222", "2": "#333333"}


def test_colours_that_the_fit_wrote_are_not_the_users(fits):
    some = fits.copy()
    assert read_own_colours(AnnDataSource(some), Keys()) is None
    some.uns["pdvi_domain_colors"] = np.array(["#111111", "#222222", "#333333"], dtype=object)
    assert list(read_own_colours(AnnDataSource(some), Keys()).values()) == ["#111111", "#222222", "#333333"]


def test_the_features_that_the_fit_wrote_come_before_those_that_it_was_given(fits):
    some = fits.copy()
    some.obsm["given"] = np.ones((400, 2))
    summary = {"params": {"rep": "given"}}
    np.testing.assert_array_equal(fitted_features(AnnDataSource(some), Keys(), summary), some.obsm["X_pdvi"])
    del some.obsm["X_pdvi"]
    np.testing.assert_array_equal(fitted_features(AnnDataSource(some), Keys(), summary), some.obsm["given"])
