"""The start of a fit that clusters its features once, and the spots that a fit joins."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import spatialpdvi
from spatialpdvi.errors import InputError
from spatialpdvi.fitting import states
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.initialization.restarts import in_unit_range, kmeans_labels


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
@pytest.mark.parametrize("how", [{"rep": "X_pca", "smooth": 0, "whiten": False}, {"n_pcs": 0}])
def test_a_start_by_kmeans_is_one_clustering_of_what_is_fitted(toy_section, how):
    """Dense features, and genes themselves, which stay sparse."""
    kept = {"k": 4, "states": "off", "seed": 3, "max_epochs": 1, **how}
    result = spatialpdvi.fit(toy_section.copy(), **kept, init="kmeans")
    fitted = result.features
    with threadpool_limits(1):
        clustered = in_unit_range(fitted) if isinstance(fitted, np.ndarray) else fitted
        labels = kmeans_labels(clustered, 4, seed=3, n_init=10)
    same = toy_section.copy()
    same.obs["clusters"] = labels.astype(str)
    given = spatialpdvi.fit(same, **kept, init="clusters")
    np.testing.assert_array_equal(result.posterior, given.posterior)
    assert result.agreement is None  # there are no restarts that could agree
    assert result.params["init"] == "kmeans"


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
def test_what_a_clustering_without_a_model_reaches_is_the_mean_over_five_seeds(toy_section):
    """Spots without a known label count for nothing."""
    section = toy_section.copy()
    section.obs["annotation"] = section.obs["annotation"].astype(object).where(np.arange(section.n_obs) >= 50)
    kept = {"k": 4, "rep": "X_pca", "smooth": 0, "states": "off", "init": "kmeans", "max_epochs": 1, "n_patches": 5}
    result = spatialpdvi.fit(section, label_key="annotation", **kept)
    x, truth = in_unit_range(section.obsm["X_pca"]), toy_section.obs["annotation"][50:]
    with threadpool_limits(1):
        ari = [adjusted_rand_score(truth, kmeans_labels(x, 4, seed=seed, n_init=1)[50:]) for seed in range(5)]
    expected = {"ari": np.mean(ari), "ari_min": min(ari), "ari_max": max(ari), "n_seeds": 5}
    assert result.scores["trivial"] == pytest.approx(expected)


def test_a_column_of_that_name_is_refused(toy_section):
    section = toy_section.copy()
    section.obs["kmeans"] = "a"
    with pytest.raises(InputError, match=r"^Expected no column obs\['kmeans'\] with `init='kmeans'`, .* found one\."):
        spatialpdvi.fit(section, k=4, rep="X_pca", init="kmeans")


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
@pytest.mark.parametrize(
    ("options", "joined"),
    [
        ({"smooth": 4}, 6),
        ({"smooth": 8}, 8),
        ({"smooth": 25}, 10),
        ({"smooth": 0}, 10),
        ({"smooth": 4, "n_neighbors": 12}, 12),
        ({"smooth": 4, "states": 5, "search": 0}, 10),  # compositions are fitted to single spots
        ({"n_pcs": 0, "rep": None}, 10),  # genes are not averaged
    ],
)
def test_one_gaussian_each_joins_no_more_spots_than_its_features_average(toy_section, options, joined):
    """But at least those around a spot; what was joined is in the result and in its model."""
    defaults = {"k": 4, "rep": "X_pca", "states": "off", "n_init": 6, "max_epochs": 1}
    result = spatialpdvi.fit(toy_section.copy(), **(defaults | options))
    assert result.params["n_neighbors"] == joined
    assert result.params["n_edges"] == mutual_knn(toy_section.obsm["spatial"], joined).nnz // 2
    if result.model is not None:
        assert result.model.options["n_neighbors"] == joined


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
def test_the_fit_of_a_given_graph_has_no_number_of_neighbours(toy_section):
    section = toy_section.copy()
    section.obsp["near"] = mutual_knn(section.obsm["spatial"], 3)
    result = spatialpdvi.fit(section, k=4, rep="X_pca", states="off", smooth=4, graph="near", n_init=1, max_epochs=1)
    assert "n_neighbors" not in result.params
    assert result.params["n_edges"] == section.obsp["near"].nnz // 2


@pytest.mark.parametrize(("distinct", "learnt"), [((0, 0, 0, 1, 1), 3), ((0, 0, 1, 1, 1), 5), ((1, 1, 1, 1, 1), 5)])
def test_mixtures_are_learnt_until_most_of_them_decide(distinct, learnt, monkeypatch):
    monkeypatch.setattr(states, "_mixtures", lambda features, settings, seeds: [distinct[seed] for seed in seeds])
    monkeypatch.setattr(states, "are_distinct", lambda sets: bool(sets[0]))
    found = states._deciding_mixtures(None, SimpleNamespace(if_distinct=True), range(5))
    assert found == list(distinct[:learnt])
