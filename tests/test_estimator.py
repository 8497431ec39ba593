"""The scikit-learn estimator does what `fit` and `predict` do, on arrays."""

import re

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import spatialpdvi
from spatialpdvi import InputError, InputWarning, PottsGMM
from spatialpdvi.graph.neighbors import mutual_knn


def _stripes(seed=0, side=24, d=5, k=3):
    rng = np.random.default_rng(seed)
    axis = np.arange(float(side))
    places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    truth = np.minimum((places[:, 0] * k / side).astype(int), k - 1)
    means = 4.0 * np.random.default_rng(5).normal(size=(k, d))
    return means[truth] + rng.normal(size=(truth.size, d)), places, truth


def _same_partition(a, b):
    return np.mean(pd.crosstab(a, b).to_numpy().max(axis=1).sum() / len(a))


def test_it_says_that_it_has_not_converged():
    x, places, _ = _stripes()
    with pytest.warns(ConvergenceWarning, match=r"^Not converged: the limit of epochs was reached first"):
        assert not PottsGMM(3, n_init=1, max_epochs=1).fit(x, coordinates=places).converged_


def test_it_is_fit_on_an_anndata():
    x, places, truth = _stripes()
    gmm = PottsGMM(3, n_init=2, beta=0.5, random_state=4).fit(x, coordinates=places)
    adata = anndata.AnnData(
        obs=pd.DataFrame(index=pd.RangeIndex(len(x)).astype(str)), obsm={"feat": x, "spatial": places}
    )
    result = spatialpdvi.fit(adata, k=3, rep="feat", n_pcs=x.shape[1], n_init=2, beta=0.5, seed=4)
    np.testing.assert_array_equal(gmm.posterior_, result.posterior)
    np.testing.assert_array_equal(gmm.labels_, result.domains)
    assert gmm.neg_elbo_ == result.trace["neg_elbo"][-1]
    assert gmm.n_iter_ == result.trace["epoch"][-1]
    assert gmm.converged_
    assert gmm.n_features_in_ == 5
    assert _same_partition(gmm.labels_, truth) > 0.98
    for k in range(3):
        np.testing.assert_allclose(gmm.means_[k], x[gmm.labels_ == k].mean(axis=0), atol=0.2)


def test_all_columns_are_fitted_whatever_their_order():
    """Columns of falling variance look like components, of which `fit` takes the leading ones."""
    x, places, _ = _stripes(d=24)
    order = np.argsort(-x.var(axis=0))
    gmm = PottsGMM(3, n_init=2).fit(x[:, order], coordinates=places)
    assert gmm.result_.domain_mean.shape == (3, 24)


def test_clone_and_parameters():
    gmm = PottsGMM(4, beta=2.0, solver="cavi", random_state=7)
    again = clone(gmm)
    assert again.get_params() == gmm.get_params()
    assert again.set_params(n_components=5).n_components == 5
    assert not hasattr(again, "labels_")
    x, places, _ = _stripes()
    np.testing.assert_array_equal(
        PottsGMM(3, n_init=2).fit_predict(x, coordinates=places),
        PottsGMM(3, n_init=2).fit(x, coordinates=places).labels_,
    )


def test_predict_in_another_section():
    x, places, truth = _stripes()
    gmm = PottsGMM(3, n_init=2).fit(x, coordinates=places)
    other, there, known = _stripes(seed=1)
    posterior = gmm.predict_proba(other, coordinates=there)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0, atol=1e-5)
    found = gmm.predict(other, coordinates=there)
    np.testing.assert_array_equal(found, posterior.argmax(axis=1))
    same = {label: np.bincount(gmm.labels_[truth == label]).argmax() for label in range(3)}
    assert np.mean(found == [same[label] for label in known]) > 0.98


def test_a_graph_and_sparse_features():
    x, places, truth = _stripes()
    graph = mutual_knn(places, 4)
    given = PottsGMM(3, n_init=2).fit(x, coordinates=places, graph=graph)
    assert _same_partition(given.labels_, truth) > 0.95
    with pytest.raises(InputError, match="Expected no `graph` with `predict`, found 'given'"):
        given.predict(x, coordinates=places)
    sparse = PottsGMM(3, n_init=2).fit(sp.csr_matrix(np.maximum(x, 0.0)), coordinates=places)
    assert sparse.labels_.shape == truth.shape
    assert sparse.means_.shape == (3, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"coordinates": None},
            r"^Expected `coordinates` to be an array \(n, 2\) or \(n, 3\), found none\. Give the coordinates of the spots\.$",  # noqa: E501
        ),
        (
            {"coordinates": np.zeros((3, 2))},
            r"^Expected `coordinates` to be an array with a row for each of the 576 rows of `X`, found shape \(3, 2\)\.$",  # noqa: E501
        ),
        (
            {"X": np.zeros(576)},
            r"^Expected `X` to be an array with rows and columns, found shape \(576,\)\. Reshape it\.$",
        ),
        ({"X": np.full((576, 2), np.nan)}, r"^Expected `X` to be finite, found NaN or infinity\.$"),
        (
            {"graph": sp.eye(4)},
            r"^Expected `graph` to be an array with a row for each of the 576 rows of `X`, found shape \(4, 4\)\.$",
        ),
        (
            {"graph": sp.csr_matrix((576, 5))},
            r"^Expected `graph` to be an array \(576, 576\), found shape \(576, 5\)\.$",
        ),
        ({"graph": -sp.eye(576)}, r"^Expected `graph` to be weights >= 0, found -1\.$"),
        ({"graph": np.nan * sp.eye(576)}, r"^Expected `graph` to be finite, found NaN or infinity\.$"),
        ({"X": np.full((576, 2), "a")}, r"^Expected `X` to be an array of numbers, found values of type <U1\.$"),
        ({"X": np.full((576, 2), 1e60)}, r"^Expected `X` to be numbers within the range of float32, found 1e\+60\.$"),
        ({"X": np.ones((576, 0))}, r"^Expected `X` to be an array with rows and columns, found shape \(576, 0\)\.$"),
        ({"X": sp.csr_matrix((576, 2))}, r"^Expected features that vary between spots, found only constant ones\.$"),
        (
            {"coordinates": np.ones((576, 4))},
            r"^Expected `coordinates` to be an array \(n, 2\) or \(n, 3\), found shape \(576, 4\)\.$",
        ),
        (
            {"X": anndata.AnnData(np.zeros((576, 2)))},
            r'^Expected `X` to be an array, found an AnnData\. .* such as `adata\.obsm\["X_pca"\]`, or call',
        ),
        ({"coordinates": anndata.AnnData(np.zeros((576, 2)))}, r'such as `adata\.obsm\["spatial"\]`, or call'),
        (
            {"X": np.ma.masked_equal(np.eye(576), 1)},
            r"^Expected `X` to be an array of numbers, found masked values\. Leave out their rows first\.$",
        ),
        ({"coordinates": np.full((576, 2), 1e200)}, r"^Expected `coordinates` to hold coordinates in a usual unit, "),
    ],
)
def test_what_cannot_be_used_is_one_sentence(change, message):
    x, places, _ = _stripes()
    arguments = {"X": x, "coordinates": places, "graph": None} | change
    with pytest.raises(InputError, match=message):
        PottsGMM(3, n_init=2).fit(arguments.pop("X"), **arguments)


def test_parameters_are_checked():
    x, places, _ = _stripes()
    with pytest.raises(InputError, match=r"^Expected `n_components` to be at least 2, found 1\.$"):
        PottsGMM(1).fit(x, coordinates=places)
    with pytest.raises(InputError, match=r"^Expected `random_state` to be at least 0, found -1\.$"):
        PottsGMM(3, random_state=-1).fit(x, coordinates=places)
    with pytest.raises(InputError, match=r"^Expected `solver` to be one of p2dvi, .*, found 'em'\.$"):
        PottsGMM(3, solver="em").fit(x, coordinates=places)


@pytest.mark.parametrize("n_components", ["auto", "2:4", "3", 2.5, True, None])
def test_the_number_of_domains_is_one_whole_number(n_components):
    x, places, _ = _stripes()
    message = (
        rf"^Expected `n_components` to be a whole number of at least 2, found {n_components!r}\. `spatialpdvi.fit` "
    )
    with pytest.raises(InputError, match=message):
        PottsGMM(n_components).fit(x, coordinates=places)


def test_a_graph_is_made_symmetric_as_in_a_fit():
    x, places, _ = _stripes()
    graph = sp.random(len(x), len(x), 0.01, random_state=0, format="csr")
    given, symmetric = (
        PottsGMM(3, n_init=1).fit(x, coordinates=places, graph=one)
        for one in (graph, (0.5 * (graph + graph.T)).toarray())
    )
    np.testing.assert_array_equal(given.posterior_, symmetric.posterior_)


@pytest.mark.filterwarnings("ignore:Not converged:sklearn.exceptions.ConvergenceWarning")  # five epochs are enough
@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (
            {"X": np.ones((576, 2))},
            [r"Lower `n_components`, or choose another start with `random_state` or `n_init`\.$"],
        ),
        (
            {"coordinates": np.zeros((576, 2))},
            [
                r"^575 of 576 spots have the same coordinates in `coordinates` as .*\. All of them are used\.$",
                r"^All spots of `coordinates` lie at one place, .*\. Check `coordinates`\.$",
            ],
        ),
        ({"graph": np.zeros((576, 576))}, [r"^`graph` has no edges, so the fit will not use .* of the spots\.$"]),
    ],
)
def test_warnings_use_the_names_of_the_estimator(change, messages):
    x, places, _ = _stripes()
    arguments = {"X": x, "coordinates": places} | change
    with pytest.warns(InputWarning) as caught:
        PottsGMM(3, n_init=1, max_epochs=5).fit(arguments.pop("X"), **arguments)
    _expect_among(caught, messages)


def _expect_among(caught, messages):
    texts = [str(warning.message) for warning in caught]
    for message in messages:
        assert any(re.search(message, text) for text in texts), texts
    for other in ("obsm", "obsp", "`k`", "`seed`", "`init`", "spatial_key", "sample_key", "correct"):
        assert other not in " ".join(texts)


@pytest.mark.filterwarnings("ignore:Not converged:sklearn.exceptions.ConvergenceWarning")  # five epochs are enough
@pytest.mark.usefixtures("usual_defaults")
def test_a_parameter_without_effect_is_said_without_options_of_a_fit():
    x, places, truth = _stripes()
    rng = np.random.default_rng(0)
    shares = np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.1, 0.1, 0.4, 0.4]])
    state = np.array([rng.choice(4, p=shares[domain]) for domain in truth])
    x = 6.0 * np.random.default_rng(5).normal(size=(4, 5))[state] + rng.normal(size=x.shape)
    with pytest.warns(InputWarning, match=r"^`tau` has no effect on domains that are compositions of cell states\.$"):
        PottsGMM(3, n_init=1, tau=2.0, max_epochs=5).fit(x, coordinates=places)


def test_predict_uses_the_names_of_the_estimator():
    x, places, _ = _stripes()
    gmm = PottsGMM(3, n_init=1).fit(x, coordinates=places)
    with pytest.warns(InputWarning) as caught:
        gmm.predict(x[:1] + 90.0, coordinates=places[:1])
    _expect_among(caught, [r"These domains may mean little\.$", r"fit a model with a larger `n_neighbors`\.$"])
    with pytest.raises(InputError, match=r"^Expected `X` to have the 5 columns .*, found 2\. Compute it as it was"):
        gmm.predict(x[:, :2], coordinates=places)


@pytest.mark.parametrize(("stored", "has_model"), [(0.4, False), (0.6, True)])
def test_sparse_features_have_a_model_where_most_values_are_stored(stored, has_model):
    x, places, _ = _stripes()
    x[np.random.default_rng(0).random(x.shape) > stored] = 0.0
    gmm = PottsGMM(3, n_init=1).fit(sp.csr_matrix(x), coordinates=places)
    if has_model:
        assert gmm.predict(x, coordinates=places).shape == (576,)
        return
    with pytest.raises(InputError, match=r"^Expected dense features with `predict`, found a sparse `X`\."):
        gmm.predict(x, coordinates=places)


def test_arrays_of_any_type_are_those_of_numbers():
    x, places, truth = _stripes(side=12)
    graph = sp.random(len(x), len(x), 0.02, random_state=0, format="csr")
    graph.data[:] = 0.5
    flags = np.stack([truth == k for k in range(3)], axis=1)
    for one, other in (
        ({"X": flags}, {"X": flags.astype(np.uint8)}),
        ({"X": sp.csr_matrix(flags)}, {"X": sp.csr_matrix(flags.astype(np.int64))}),
        ({"X": x, "graph": graph.toarray().astype(np.float16)}, {"X": x, "graph": graph}),
        ({"X": x.astype(">f8")}, {"X": x}),
    ):
        found, expected = (PottsGMM(3, n_init=1, tol=1e-3).fit(**own, coordinates=places) for own in (one, other))
        np.testing.assert_array_equal(found.posterior_, expected.posterior_)


def test_means_are_weighted_by_the_posteriors():
    rng = np.random.default_rng(0)
    places = np.stack(np.meshgrid(np.arange(20.0), np.arange(20.0)), axis=-1).reshape(-1, 2)
    x = np.where((places[:, 0] < 10)[:, None], 0.0, 1.0) + rng.normal(size=(400, 2))
    gmm = PottsGMM(2, n_init=2, smooth=0).fit(x, coordinates=places)
    phi = gmm.posterior_.astype(float)
    np.testing.assert_allclose(gmm.means_, (phi.T @ x) / phi.sum(axis=0)[:, None], rtol=1e-6)
    assert np.abs(phi.max(axis=1) - 1).max() > 0.01


def test_every_parameter_of_the_estimator_reaches_the_fit():
    given = {"beta": 0.5, "tau": 0.3, "n_neighbors": 7, "smooth": 3, "whiten": False, "n_init": 5, "solver": "p2dvi",
             "max_epochs": 33, "tol": 3e-3, "random_state": 9}  # fmt: skip
    options = PottsGMM(4, **given)._options(6, has_graph=False)
    given["seed"] = given.pop("random_state")
    assert {name: getattr(options, name) for name in given} == given
    assert (options.k, options.n_pcs) == (4, 6)
