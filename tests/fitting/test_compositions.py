"""Fits whose domains are compositions of states: what is written, its certificate, models, and when there are none."""

import pickle
import warnings
from dataclasses import replace

import anndata
import numpy as np
import pytest
from reference import recompute, stored
from threadpoolctl import threadpool_info

from spatialpdvi import FitOptions, InputError, InputWarning, Levels, fit, fit_file, label, predict, predict_file
from spatialpdvi.graph import flow
from spatialpdvi.graph.flow import border_directions
from spatialpdvi.graph.layers import layer_forms
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import weigh_by_layers
from spatialpdvi.initialization.compositions import start_from_composition
from spatialpdvi.initialization.states import means_of_spots
from spatialpdvi.metrics.calibration import temper
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.model import Model
from spatialpdvi.prediction.shift import similarity_to_model
from spatialpdvi.problems.potts_mixture import PottsGlobals
from spatialpdvi.synthetic import simulate

pytestmark = pytest.mark.slow

FAST = {"k": 4, "n_init": 1, "n_top_genes": 100, "states": 8, "search": 2}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A section whose single spots tell states apart, and its fit."""
    folder = tmp_path_factory.mktemp("compositions")
    simulate(n_spots=600, n_genes=150, k=4, seed=1, signal=2.0, easy=True).write_h5ad(folder / "section.h5ad")
    result = fit_file(
        folder / "section.h5ad", FitOptions(**FAST, save_graph=True), output=folder / "out.h5ad", keep_model=True
    )
    return folder, result


def test_what_is_written_fits_together(fitted):
    folder, result = fitted
    adata = anndata.read_h5ad(folder / "out.h5ad")
    fit, n = adata.uns["pdvi"], adata.n_obs
    assert fit["composition"].shape == (4, 8)
    assert fit["state_mean"].shape == fit["log_variance"].shape == (8, 15)
    np.testing.assert_allclose(fit["composition"].sum(axis=1), 1.0)
    np.testing.assert_allclose(fit["domain_mean"], fit["composition"] @ fit["state_mean"])
    states = adata.obsm["pdvi_state"]
    assert states.shape == (n, 8)
    np.testing.assert_allclose(states.sum(axis=1), 1.0, atol=1e-5)
    # at the optimum, a domain's composition is that of its spots and of its prior
    members = adata.obsm["pdvi_posterior"].sum(axis=0) + fit["prior_weight"].sum()
    np.testing.assert_allclose(members @ fit["composition"], states.sum(axis=0) + 4 * fit["prior_weight"], rtol=1e-3)
    assert fit["params"]["n_states"] == 8
    assert fit["params"]["states"] == 8
    assert result.states is not None
    assert result.scores["ari"] > 0.95


def test_domains_that_a_search_gives_up_are_said(fitted, tmp_path, capsys):
    """The section has four; a fifth has no spots, which is told beside what the search did."""
    folder, _ = fitted
    with pytest.warns(InputWarning, match=r"^Only 4 of 5 domains have spots; "):
        fit_file(folder / "section.h5ad", FitOptions(**{**FAST, "k": 5}), output=tmp_path / "five.h5ad", progress=True)
    (shown,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("search:")]
    assert shown.endswith(", 1 of 5 domains left with few spots or none")
    fit_file(folder / "section.h5ad", FitOptions(**FAST), output=tmp_path / "four.h5ad", progress=True)
    (shown,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("search:")]
    assert "domains" not in shown


def test_flow_directions_are_found_when_they_are_asked_for(fitted, monkeypatch):
    folder, saved = fitted
    found = []

    def counted(*arguments):
        found.append(arguments)
        return border_directions(*arguments)

    monkeypatch.setattr(flow, "border_directions", counted)
    result = fit_file(folder / "section.h5ad", FitOptions(**FAST), output=folder / "without.h5ad")
    assert not found  # the edges of compositions do not depend on them
    again = pickle.loads(pickle.dumps(result))
    np.testing.assert_array_equal(again.flow, saved.flow)
    assert again.flow.any(axis=1).sum() > 100
    assert len(found) == 1
    assert "pdvi_flow" not in anndata.read_h5ad(folder / "without.h5ad").obsm
    written = anndata.read_h5ad(folder / "out.h5ad").obsm["pdvi_flow"]
    np.testing.assert_array_equal(written, saved.flow.astype(np.float32))


def test_the_calibrated_posterior_is_half_that_of_the_searches(fitted):
    folder, result = fitted
    adata = anndata.read_h5ad(folder / "out.h5ad")
    phi, calibrated = adata.obsm["pdvi_posterior"], adata.obsm["pdvi_posterior_calibrated"]
    own = temper(phi, adata.uns["pdvi"]["params"]["temperature"])
    assert own.max(axis=1).mean() == pytest.approx(adata.uns["pdvi"]["params"]["restart_accord"], abs=2e-3)
    searched = 2.0 * calibrated - own  # each search's domains have the numbers of the fit's
    np.testing.assert_allclose(searched.sum(axis=1), 1.0, atol=1e-5)
    assert searched.min() > -1e-5
    assert (searched.argmax(axis=1) == result.domains).mean() > 0.95
    of_domain = calibrated[np.arange(adata.n_obs), result.domains]
    np.testing.assert_array_equal(adata.obs["pdvi_confidence_calibrated"], of_domain)


def test_the_certificate_is_recomputed_from_the_file(fitted):
    folder, _ = fitted
    _, fit, x, phi, m, rho, r = stored(folder / "out.h5ad")
    certificate = fit["certificate"]
    found = recompute(fit, x, phi, m, rho, r)
    assert "stationarity_composition" in found
    for field, value in found.items():
        assert certificate[field] == pytest.approx(value, rel=1e-6, abs=1e-7), field
    assert certificate["converged"]
    assert fit["trace"]["stationarity_composition"][-1] < certificate["tolerance"]


def test_the_edges_of_the_objective_follow_from_the_written_features(fitted):
    folder, result = fitted
    adata = anndata.read_h5ad(folder / "out.h5ad")
    features, places = adata.obsm["X_pdvi"], np.asarray(adata.obsm["spatial"], dtype=float)
    pattern = mutual_knn(places, 10)
    forms = layer_forms(features, places, pattern, samples=[np.arange(adata.n_obs)])
    expected = weigh_by_layers(pattern, places, forms, anisotropy=0.8, beta=1.0)
    written = adata.obsp["pdvi_connectivities"]
    np.testing.assert_allclose(written.toarray(), expected.toarray(), rtol=1e-9)
    assert written.data.max() > 1.5 * written.data.min()
    assert adata.uns["pdvi"]["params"]["anisotropy"] == result.model.options["anisotropy"] == 0.8


def test_a_prediction_has_the_edges_of_the_models_fit(fitted, tmp_path):
    folder, _ = fitted
    section = anndata.read_h5ad(folder / "section.h5ad")
    result = fit(section, **FAST, anisotropy=0.0)
    np.testing.assert_allclose(np.ptp(result.graph.data), 0.0, atol=1e-12)
    same = predict_file(folder / "section.h5ad", model=result.model, output=tmp_path / "same.h5ad")
    np.testing.assert_allclose(same.graph.toarray(), result.graph.toarray())
    assert anndata.read_h5ad(tmp_path / "same.h5ad").uns["pdvi"]["params"]["anisotropy"] == 0.0


def test_levels_of_a_fit_from_before_there_was_anisotropy_have_equal_edges(fitted):
    section = anndata.read_h5ad(fitted[0] / "section.h5ad")
    fit(section, **FAST, anisotropy=0.0)
    rises = {}
    for name in ("as it is", "older", "other"):
        copied = section.copy()
        params = copied.uns["pdvi"]["params"]
        if name == "older":
            del params["anisotropy"]
        elif name == "other":
            params["anisotropy"] = 0.8
        rises[name] = label(copied, Levels([2]))["rise"].to_numpy()
    np.testing.assert_array_equal(rises["older"], rises["as it is"])
    assert np.abs(rises["other"] - rises["as it is"]).max() > 1e-3


@pytest.mark.parametrize("wrong", [-0.1, 1.5, float("nan")])
def test_an_anisotropy_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match=r"at (least 0|most 1)"):
        FitOptions(k=3, anisotropy=wrong)


def test_other_tissue_is_told_though_every_spot_has_a_likeliest_state(fitted):
    section, model = anndata.read_h5ad(fitted[0] / "section.h5ad"), fitted[1].model
    strange = section.copy()
    strange.var_names = np.random.default_rng(0).permutation(section.var_names)
    with pytest.warns(InputWarning, match="farther from every state .* and domains or states have moved by"):
        assert predict(strange, model=model).params["shift"] > 0.45
    arrays, facts = model.parts()
    assert predict(section.copy(), model=model).params["shift"] < 0.02
    earlier = Model.from_parts({key: own for key, own in arrays.items() if key != "spot_mean"}, facts, name="earlier")
    np.testing.assert_array_equal(earlier.states.spot_mean, model.lam.m)  # the states', of which spots differ a little
    few = section[np.argsort(section.obsm["spatial"][:, 0])[:40]].copy()  # of which no mean is exact
    assert predict(few, model=model).params["shift"] < 0.45


def test_a_model_predicts_its_own_section_and_half_of_it(fitted, tmp_path):
    folder, result = fitted
    arrays, facts = result.model.parts()
    model = Model.from_parts(arrays, facts, name="again")
    assert model.n_domains == 4
    np.testing.assert_allclose(model.domain_means, arrays["composition"] @ arrays["state_mean"])
    np.testing.assert_array_equal(model.states.spot_mean, arrays["spot_mean"])
    assert (arrays["spot_mean"] != arrays["state_mean"]).any()
    assert repr(model) == "Model(4 domains, 15 features of 100 genes)"
    same = predict_file(folder / "section.h5ad", model=model, output=tmp_path / "same.h5ad")
    assert same.certificate.converged
    assert adjusted_rand_index(same.domains, result.domains) > 0.9
    section = anndata.read_h5ad(folder / "section.h5ad")
    in_half = section.obsm["spatial"][:, 0] < np.median(section.obsm["spatial"][:, 0])
    half = section[in_half].copy()
    half.write_h5ad(tmp_path / "half.h5ad")
    other = predict_file(tmp_path / "half.h5ad", model=model, output=tmp_path / "other.h5ad")
    written = anndata.read_h5ad(tmp_path / "other.h5ad")
    assert written.obsm["pdvi_state"].shape == (half.n_obs, 8)
    assert adjusted_rand_index(other.domains, result.domains[in_half]) > 0.9


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda a, f: a.update(composition=-a["composition"]), "composition with impossible values"),
        (lambda a, f: a.pop("prior_weight"), "no 'prior_weight'"),
        (lambda a, f: a.update(prior_weight=0 * a["prior_weight"]), "prior_weight with impossible values"),
        (lambda a, f: a.update(limit_spread=0 * a["limit_spread"]), "limit_spread with impossible values"),
        (lambda a, f: f.update(limit=-1.0), r"limit -1\.0"),
        (lambda a, f: f.update(detrend="no"), "detrend 'no'"),
    ],
)
def test_a_damaged_model_of_states_is_refused(fitted, damage, found):
    arrays, facts = fitted[1].model.parts()
    damage(arrays, facts)
    with pytest.raises(InputError, match=found):
        Model.from_parts(arrays, facts, name="damaged")


def _drifting(seed, slope):
    """A section of two bands that share three states in other proportions, whose features drift from left to right."""
    rng = np.random.default_rng(seed)
    xy = np.stack(np.meshgrid(np.arange(30.0), np.arange(20.0)), axis=-1).reshape(-1, 2)
    truth = (xy[:, 1] >= 10).astype(int)
    shares = np.array([[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    states = (rng.uniform(size=truth.size)[:, None] > shares[truth].cumsum(axis=1)).sum(axis=1)
    x = 4.0 * np.eye(3)[states] + slope * xy[:, :1] / 30.0 * np.array([1.0, 1.0, 1.0]) + rng.normal(0, 0.3, (600, 3))
    drifting = anndata.AnnData(np.zeros((600, 1)), obsm={"spatial": xy, "X_given": x.astype(np.float32)})
    drifting.obs["annotation"], drifting.obs["state"] = truth.astype(str), states
    return drifting


DRIFTING = {"k": 2, "rep": "X_given", "states": 6, "search": 2, "n_init": 1}


def test_a_drift_that_all_states_share_makes_no_domains():
    section = _drifting(seed=0, slope=8.0)
    left = fit(section, **DRIFTING, detrend=False)
    freed = fit(section, **DRIFTING)
    assert left.scores["ari"] < 0.5
    assert freed.scores["ari"] > 0.9
    assert left.params["detrended"] == 0.0
    assert not left.params["detrend"]
    assert freed.params["detrended"] > 0.2


def test_small_trends_are_left():
    section = _drifting(seed=0, slope=0.05)
    left, small = fit(section, **DRIFTING, detrend=False), fit(section, **DRIFTING)
    np.testing.assert_array_equal(small.posterior, left.posterior)
    assert small.params["detrended"] == 0.0
    assert not small.model.states.detrend


def _slope(result, section):
    """How far, in noise sd, features drift from the left end of a section to its right within the true states."""
    states = np.eye(3)[section.obs["state"].to_numpy()]
    place = section.obsm["spatial"][:, :1] / 30.0
    within = [part - states @ np.linalg.lstsq(states, part, rcond=None)[0] for part in (place, result.features)]
    return np.linalg.norm(np.linalg.lstsq(*within, rcond=None)[0])


def test_a_prediction_removes_the_trends_of_its_own_section():
    section = _drifting(seed=0, slope=2.0)
    fitted = fit(section, **DRIFTING)
    turned = _drifting(seed=1, slope=-2.0)
    turned.obsm["X_given"] += 2.0
    arrays, facts = fitted.model.parts()
    as_is = Model.from_parts(arrays, facts | {"detrend": False}, name="as it is")
    assert _slope(fitted, section) < 2.0
    for other in (section, turned):
        found = predict(other, model=fitted.model)
        assert found.scores["ari"] > 0.85
        assert _slope(found, other) < 0.5
        with pytest.warns(InputWarning, match="are farther from every state"):
            left = predict(other, model=as_is)
        assert _slope(left, other) > 8.0


@pytest.fixture(scope="module")
def bands():
    """A fit of two bands that share states."""
    return fit(_drifting(seed=0, slope=0.0), **DRIFTING, detrend=False)


def test_spots_that_a_prediction_draws_in_still_count_as_far(bands):
    """Every tenth spot lies far from all states, and is drawn in so that its domain is that of its neighbours."""
    other = _drifting(seed=1, slope=0.0)
    x, middle = other.obsm["X_given"], bands.model.states.limit.centre
    x[::10] = middle + 20.0 * (x[::10] - middle)
    with pytest.warns(InputWarning, match=r"^\d+ of 600 spots .* are farther from every"):
        found = predict(other, model=bands.model)
    assert found.params["outside"] == pytest.approx(0.1, abs=0.01)
    assert found.scores["ari"] > 0.8
    spread = np.abs(bands.features).max()
    assert np.abs(found.features).max() < 1.5 * spread


@pytest.mark.parametrize("seed", [1, 2])
def test_a_prediction_starts_from_what_neighbours_say_together(bands, seed):
    """A state says little about the domain of its spot: that alone has an ARI of 0.2 to 0.3 here."""
    scores = predict(_drifting(seed=seed, slope=0.0), model=bands.model).scores
    assert scores["baseline"]["ari"] > 0.8
    assert scores["ari"] > 0.85


def test_spots_that_a_model_itself_draws_have_no_shift(bands):
    """The states overlap, so that a spot's own domain says which of them are likely."""
    rng, model, composition = np.random.default_rng(0), bands.model, bands.states.composition
    lam = model.lam._replace(m=model.lam.m / 3.0, rho=np.full_like(model.lam.rho, -30.0))

    def draw():
        domains = rng.integers(2, size=4000)
        states = (rng.uniform(size=4000)[:, None] > composition[domains].cumsum(axis=1)).sum(axis=1)
        return domains, lam.m[states] + rng.normal(size=(4000, 3))

    fitted = means_of_spots(draw()[1], PottsGlobals(lam.m, lam.rho), model.states.prior_weight)
    model = replace(model, lam=lam, states=model.states._replace(spot_mean=fitted))
    domains, x = draw()
    assert similarity_to_model(x, x, domains, model).shift < 0.05
    assert similarity_to_model(x + 1.5, x, domains, model).shift > 0.5
    assert similarity_to_model(x, x, 1 - domains, model).shift > 0.5  # the same states in other proportions


@pytest.mark.usefixtures("usual_defaults")  # domains or sections are told apart, with F about equal
def test_every_section_has_trends_of_its_own():
    left, right = _drifting(seed=0, slope=8.0), _drifting(seed=1, slope=-8.0)
    right.obsm["X_given"] += 8.0
    both = anndata.concat({"a": left, "b": right}, label="slice", index_unique="-")
    assert fit(both, sample_key="slice", **DRIFTING).scores["ari"] > 0.9


def test_auto_has_no_states_on_a_small_section(fitted, tmp_path):
    folder, _ = fitted
    chosen = FAST | {"states": "auto", "search": None}
    auto, off = (
        fit_file(folder / "section.h5ad", FitOptions(**(chosen | {"states": how})), output=tmp_path / f"{how}.h5ad")
        for how in ("auto", "off")
    )
    assert auto.states is None
    assert "n_states" not in auto.params
    np.testing.assert_array_equal(auto.posterior, off.posterior)
    np.testing.assert_array_equal(auto.domain_mean, off.domain_mean)


def test_given_labels_are_kept_and_nothing_is_searched(fitted, tmp_path, monkeypatch):
    folder, _ = fitted
    threads = []

    def start(*arguments):
        threads.extend(library["num_threads"] for library in threadpool_info())
        return start_from_composition(*arguments)

    monkeypatch.setattr("spatialpdvi.fitting.prepare.start_from_composition", start)
    result = fit_file(
        folder / "section.h5ad",
        FitOptions(k=4, n_top_genes=100, states=8, init="annotation"),
        output=tmp_path / "given.h5ad",
    )
    assert "search_end" not in result.params
    assert result.params["n_states"] == 8
    assert result.scores["ari"] > 0.6
    assert set(threads) == {1}  # their sums would differ from one number of threads to another


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"states": 1}, "Expected `states` to be a whole number from 2 to 1,000, auto or off, found 1"),
        ({"states": "many"}, "found 'many'"),
        ({"states": True}, "found True"),
        ({"states": 2000}, "found 2000"),
        ({"search": -1}, "Expected `search` to be at least 0, found -1"),
        ({"states": 8, "n_pcs": 0}, "Expected `n_pcs` to be at least 1 with `states`, found 0"),
    ],
)
def test_impossible_states_are_refused(chosen, expected):
    with pytest.raises(InputError) as caught:
        FitOptions(k=4, **chosen)
    assert expected in str(caught.value)


def test_more_states_than_spots_are_refused(fitted, tmp_path):
    with pytest.raises(InputError, match=r"Expected `states` to be at most the number of spots, 600, found 601"):
        fit_file(fitted[0] / "section.h5ad", FitOptions(**(FAST | {"states": 601})), output=tmp_path / "never.h5ad")


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
@pytest.mark.parametrize(
    ("n_states", "n_spots", "advice"),
    [(31, 600, "19.4 of the 600 spots on average, .* Give at most 30.$"), (4, 30, "7.5 .* Give `states='off'`.$")],
)
def test_states_that_have_few_spots_each_are_said(fitted, n_states, n_spots, advice, monkeypatch):
    monkeypatch.setattr("spatialpdvi.options.states._SPOTS_EACH", 20)
    section = anndata.read_h5ad(fitted[0] / "section.h5ad")[:n_spots].copy()
    settings = FAST | {"k": 2, "states": n_states, "search": 0, "max_epochs": 1}
    with pytest.warns(InputWarning, match=f"With `states={n_states}`, a state has {advice}"):
        fit(section, **settings)


def test_a_comparison_runs_on_the_same_problem_as_a_fit(fitted):
    from spatialpdvi.compare.bench import Bench
    from spatialpdvi.fitting.inputs import read_inputs
    from spatialpdvi.io.formats.sources import AnnDataSource
    from spatialpdvi.runtime.progress import Progress

    folder, result = fitted
    options = FitOptions(**FAST)
    section = read_inputs(AnnDataSource(anndata.read_h5ad(folder / "section.h5ad")), options)
    prepared = Bench(section, options, Progress()).prepared(0)
    np.testing.assert_array_equal(prepared.initialization.fitted, result.features)
    assert prepared.start.lam.theta.shape == (4, 8)
    assert prepared.found()["search_end"] == result.params["search_end"]


_PLACES = np.random.default_rng(0).random((300, 2))
_CELLS = np.random.default_rng(1).normal(size=(300, 4)) + 30.0 * np.random.default_rng(2).integers(3, size=(300, 4))


@pytest.mark.parametrize(("chosen", "said"), [({"tau": 0.5}, "tau"), ({"whiten": False}, "whiten=False"), ({}, None)])
def test_options_without_effect_on_states_that_auto_found_are_said(chosen, said, monkeypatch):
    monkeypatch.setattr("spatialpdvi.options.states._SPOTS_EACH", 10)
    section = anndata.AnnData(np.zeros((300, 0)), obsm={"spatial": _PLACES, "X_pca": _CELLS})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        fit(section, k=3, rep="X_pca", n_init=1, search=0, **chosen)
    assert section.uns["pdvi"]["params"]["n_states"] == 20
    texts = [str(one.message) for one in caught if "no effect" in str(one.message)]
    assert len(texts) == (said is not None)
    assert all(text.startswith(f"`{said}` has no effect on domains that are compositions of cell") for text in texts)


@pytest.mark.parametrize(
    ("chosen", "said"), [({"search": 3}, "search"), ({"detrend": False}, "detrend=False"), ({}, None)]
)
def test_options_without_effect_on_domains_without_states_are_said(chosen, said):
    section = anndata.AnnData(np.zeros((300, 0)), obsm={"spatial": _PLACES, "X_pca": _CELLS})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        fit(section, k=3, rep="X_pca", n_init=1, **chosen)
    assert "n_states" not in section.uns["pdvi"]["params"]
    texts = [str(one.message) for one in caught if "no effect" in str(one.message)]
    assert len(texts) == (said is not None)
    for text in texts:
        assert text == (
            f"`{said}` has no effect on domains that are mean profiles and no compositions of cell states, as "
            "`states='auto'` chose here. Give `states` a number to use it."
        )


def test_features_that_the_fit_would_replace_are_refused():
    section = anndata.AnnData(np.zeros((300, 0)), obsm={"spatial": _PLACES, "X_mine": _CELLS})
    fit(section, k=3, rep="X_mine", n_init=1)
    section.obsm["X_pdvi"] = _CELLS
    with pytest.raises(
        InputError, match=r"found obsm\['X_pdvi'\], where it writes its own\. Choose another `key_added`"
    ):
        fit(section, k=3, rep="X_pdvi", n_init=1)
    model = fit(section, k=3, rep="X_pdvi", n_init=1, key_added="again").model
    np.testing.assert_array_equal(section.obsm["X_pdvi"], _CELLS)
    with pytest.raises(InputError, match=r"found obsm\['X_pdvi'\], where it writes its own"):
        predict(section, model=model)
    np.testing.assert_array_equal(section.obsm["X_pdvi"], _CELLS)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"graph": "pdvi_connectivities"}, r"obsp\['pdvi_connectivities'\]"),
        ({"label_key": "pdvi_domain"}, r"obs\['pdvi_domain'\]"),
        ({"sample_key": "pdvi_domain"}, r"obs\['pdvi_domain'\]"),
        ({"label_key": "pdvi_domain_L2"}, r"obs\['pdvi_domain_L2'\]"),
    ],
)
def test_what_a_result_would_replace_is_refused(options, name):
    section = anndata.AnnData(np.zeros((300, 0)), obsm={"spatial": _PLACES, "X_mine": _CELLS})
    settings = {"k": 3, "rep": "X_mine", "n_init": 1}
    model = fit(section, **settings, save_graph=True).model
    section.obs["pdvi_domain_L2"] = section.obs["pdvi_domain"]
    with pytest.raises(InputError, match=f"found {name}, where it writes its own"):
        fit(section, **settings, **options)
    if "graph" not in options:
        with pytest.raises(InputError, match=f"found {name}, where it writes its own"):
            predict(section, model=model, **options)
