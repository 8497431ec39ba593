"""The start of a fit that clusters its features once."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import spatialpdvi
from spatialpdvi.errors import InputError
from spatialpdvi.initialization import in_unit_range, kmeans_labels


@pytest.mark.parametrize("how", [{"rep": "X_pca", "smooth": 0, "whiten": False}, {"n_pcs": 0}])
def test_a_start_by_kmeans_is_one_clustering_of_what_is_fitted(toy_section, how):
    """Dense features, and genes themselves, which stay sparse."""
    kept = {"k": 4, "states": "off", "seed": 3, "max_epochs": 1, **how}
    result = spatialpdvi.fit(toy_section.copy(), **kept, init="kmeans")
    fitted = result.features
    with threadpool_limits(1):
        labels = kmeans_labels(in_unit_range(fitted) if isinstance(fitted, np.ndarray) else fitted, 4, seed=3)
    same = toy_section.copy()
    same.obs["clusters"] = labels.astype(str)
    given = spatialpdvi.fit(same, **kept, init="clusters")
    np.testing.assert_array_equal(result.posterior, given.posterior)
    assert result.agreement is None  # there are no restarts that could agree
    assert result.params["init"] == "kmeans"


def test_a_column_of_that_name_is_refused(toy_section):
    section = toy_section.copy()
    section.obs["kmeans"] = "a"
    with pytest.raises(InputError, match=r"^Expected no column obs\['kmeans'\] with `init='kmeans'`, .* found one\."):
        spatialpdvi.fit(section, k=4, rep="X_pca", init="kmeans")
