"""Odd but usable inputs: they work, with a warning where something is odd."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import spatialpdvi
from spatialpdvi import InputWarning

FEW = {"n_top_genes": 100, "k": 4}


def _fit(adata, **options):
    result = spatialpdvi.fit(adata, **FEW | options)
    assert np.isfinite(result.posterior).all()
    assert result.domains.shape == (adata.n_obs,)
    assert result.certificate.converged
    return result


@pytest.fixture
def section(toy_section):
    return toy_section.copy()


@pytest.mark.cli
def test_spots_without_counts(section):
    counts = section.X.tolil()
    counts[[5, 77]] = 0
    section.X = counts.tocsr()
    with pytest.warns(
        InputWarning, match=r"^2 of 600 spots have no counts \(first: '.*'\)\. Only its neighbours decide"
    ):
        _fit(section)


@pytest.mark.cli
def test_duplicate_coordinates(section):
    section.obsm["spatial"][10:20] = section.obsm["spatial"][10]
    with pytest.warns(
        InputWarning,
        match=r"^9 of 600 spots have the same coordinates in obsm\['spatial'\] as an earlier spot \(first: ",
    ):
        _fit(section)


@pytest.mark.cli
def test_all_spots_on_a_line(section):
    section.obsm["spatial"][:, 1] = 3.0
    with pytest.warns(InputWarning) as caught:
        _fit(section)
    assert any("line" in str(w.message) for w in caught)


@pytest.mark.cli
def test_all_spots_at_one_place(section):
    section.obsm["spatial"][:] = 1.0
    with pytest.warns(InputWarning):
        _fit(section)


@pytest.mark.cli
def test_duplicate_names(section):
    section.var_names = ["gene"] * section.n_vars
    section.obs_names = ["spot"] * section.n_obs
    with pytest.warns(InputWarning) as caught:
        _fit(section)
    assert sum("names" in str(w.message) for w in caught) == 2


@pytest.mark.cli
def test_isolated_spots(section):
    section.obsm["spatial"][3] = 5.0 * section.obsm["spatial"].max(axis=0)
    with pytest.warns(InputWarning, match=r"^1 spot has no neighbour; its domain follows from its features alone\."):
        _fit(section)


@pytest.mark.cli
def test_many_spots_at_one_place(section):
    section.obsm["spatial"][:100] = section.obsm["spatial"][0]
    with pytest.warns(InputWarning) as caught:
        _fit(section)
    said = [str(w.message) for w in caught]
    assert len(said) == 2
    assert said[0].startswith("99 of 600 spots have the same coordinates")
    assert said[1].endswith("Correct these places, or leave such spots out with `mask`.")


@pytest.mark.cli
@pytest.mark.parametrize(
    "labels",
    [
        lambda n: [f"layer {i % 3}" for i in range(n)],
        lambda n: pd.Categorical([None if i % 5 == 0 else "ab"[i % 2] for i in range(n)]),
        lambda n: np.arange(n) % 4,
        lambda n: np.where(np.arange(n) % 7 == 0, np.nan, np.arange(n) % 4),
    ],
    ids=["strings", "categories with NaN", "integers", "floats with NaN"],
)
def test_labels_of_any_kind(section, labels):
    section.obs["annotation"] = labels(section.n_obs)
    missing = int(pd.isna(section.obs["annotation"]).sum())
    assert _fit(section).scores["n_scored"] == section.n_obs - missing


@pytest.mark.cli
@pytest.mark.parametrize(
    "form",
    [sp.csc_matrix, lambda x: x.toarray(), lambda x: x.astype(np.int64), sp.csr_array],
    ids=["csc", "dense", "int64", "csr_array"],
)
def test_matrices_of_any_form_give_the_same_bits(section, form):
    reference = _fit(section.copy())
    section.X = form(section.X)
    np.testing.assert_array_equal(_fit(section).posterior, reference.posterior)


@pytest.mark.cli
@pytest.mark.parametrize("form", ["frame", "int", "float32"])
def test_coordinates_of_any_form(section, form):
    xy = section.obsm["spatial"]
    forms = {
        "frame": pd.DataFrame(xy, index=section.obs_names, columns=["x", "y"]),
        "int": xy.astype(int),
        "float32": xy.astype(np.float32),
    }
    section.obsm["spatial"] = np.asarray(forms[form], dtype=np.float64)
    reference = _fit(section.copy())
    section.obsm["spatial"] = forms[form]
    np.testing.assert_array_equal(_fit(section).posterior, reference.posterior)


@pytest.mark.cli
def test_coordinates_in_space(section):
    section.obsm["spatial"] = np.column_stack([section.obsm["spatial"], 25.0 * (np.arange(600) % 3)])
    _fit(section, save_graph=True)
    assert section.obsm["pdvi_flow"].shape == (600, 3)


@pytest.mark.cli
def test_sixty_spots():
    from spatialpdvi.synthetic import simulate

    section = simulate(n_spots=60, n_genes=500, k=3, seed=0, easy=True)
    result = spatialpdvi.fit(section, k=3, n_top_genes=200)
    assert result.certificate.converged
    assert section.obsm["pdvi_posterior"].shape == (60, 3)


@pytest.mark.cli
def test_as_many_domains_as_spots(section):
    small = section[:12].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # that some domains stay empty is no surprise here
        result = spatialpdvi.fit(small, k=12, n_top_genes=100, n_pcs=3)
    assert result.posterior.shape == (12, 12)
    assert np.isfinite(result.posterior).all()


@pytest.mark.slow
def test_hundreds_of_domains_on_few_spots(section):
    with pytest.warns(InputWarning) as caught:
        result = _fit(section, k=200, n_init=2)
    said = [str(w.message) for w in caught]
    assert any(re.search(r"^The restarts agree on \d+ domains at most, not on 200, .* Lower `k`", s) for s in said)
    assert result.params["start"] == "restart"
    assert (result.domain_sizes > 0).sum() > 150


@pytest.mark.cli
def test_the_start_is_told(section):
    assert _fit(section).params["start"] == "consensus"
    assert "start" not in _fit(section, init="annotation").params


@pytest.mark.cli
@pytest.mark.parametrize("offset", [1e3, 1e8, 1e12])
def test_features_far_from_zero_are_fitted_about_their_mean(section, offset):
    rng = np.random.default_rng(0)
    section.obsm["X_near"] = 3.0 * np.eye(4)[section.obs["annotation"].cat.codes] + rng.normal(size=(600, 4))
    section.obsm["X_near"] -= section.obsm["X_near"].mean(axis=0)
    section.obsm["X_far"] = section.obsm["X_near"] + offset * np.array([1.0, -1.0, 0.5, 0.0])
    near, far = (spatialpdvi.fit(section, k=4, rep=rep, n_init=2) for rep in ("X_near", "X_far"))
    assert far.params["rep_centred"] is True
    assert "rep_centred" not in near.params
    np.testing.assert_array_equal(far.domains, near.domains)
    np.testing.assert_allclose(far.posterior, near.posterior, atol=0.01)
    assert far.certificate.relative_change < 1e-6
    again = spatialpdvi.predict(section, model=far.model)
    assert (again.domains == far.domains).mean() > 0.99


@pytest.mark.cli
def test_far_features_without_digits_are_told(section):
    rng = np.random.default_rng(0)
    x = 3.0 * np.eye(4)[section.obs["annotation"].cat.codes] + rng.normal(size=(600, 4))
    section.obsm["X_far"] = (x + 1e8).astype(np.float32)
    with pytest.warns(
        InputWarning, match=r"^4 columns of 'X_far' lie so far from zero that float32 has few digits left"
    ):
        spatialpdvi.fit(section, k=4, rep="X_far", n_init=2)


@pytest.mark.cli
def test_columns_that_are_constant_move_nothing(section):
    section.obsm["X_one"] = np.column_stack([section.obsm["X_pca"], np.full(600, 7.3)])
    assert "rep_centred" not in spatialpdvi.fit(section, k=4, rep="X_one", n_init=2).params


@pytest.mark.cli
def test_no_labels_at_all(section):
    del section.obs["annotation"]
    result = _fit(section)
    assert "ari" not in result.scores
    assert "ari" not in result.trace
    assert 0 < result.scores["pas"] < 0.05


@pytest.mark.cli
def test_counts_are_found_where_mosta_keeps_them(section):
    reference = _fit(section.copy())
    section.layers["count"] = section.X.copy()
    section.X = section.X.multiply(0.37).tocsr()
    result = _fit(section)
    assert result.params["counts"] == "layers['count']"
    np.testing.assert_array_equal(result.posterior, reference.posterior)


@pytest.mark.cli
def test_a_view_is_fitted_and_its_parent_left_alone(section):
    view = section[:300]
    _fit(view)
    assert "pdvi_domain" in view.obs
    assert "pdvi_domain" not in section.obs


@pytest.mark.cli
def test_a_graph_as_squidpy_writes_it(section):
    from sklearn.neighbors import kneighbors_graph

    section.obsp["spatial_connectivities"] = kneighbors_graph(section.obsm["spatial"], 6)  # not symmetric
    result = _fit(section, graph="spatial_connectivities")
    pattern = section.obsp["spatial_connectivities"]
    assert result.graph.nnz == (pattern + pattern.T).nnz


@pytest.mark.cli
def test_start_from_given_labels(section):
    result = _fit(section, init="annotation")
    assert result.scores["baseline"]["ari"] == pytest.approx(1.0)


@pytest.mark.cli
def test_an_anndata_is_untouched_by_an_error(section):
    before = section.copy()
    with pytest.raises(spatialpdvi.InputError):
        spatialpdvi.fit(section, k=1000)
    pd.testing.assert_frame_equal(section.obs, before.obs)
    for part in ("uns", "obsm", "obsp"):
        np.testing.assert_equal(dict(getattr(section, part)), dict(getattr(before, part)))
    assert (section.X != before.X).nnz == 0


@pytest.mark.cli
def test_an_option_without_effect_is_said(section):
    with pytest.warns(InputWarning, match=r"^`n_top_genes` has no effect together with `rep`, and is not used\.$"):
        _fit(section, rep="X_pca")
