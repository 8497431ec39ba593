"""Edits of the domains of a fit: every element that belongs to a domain follows, and nothing else changes."""

from contextlib import nullcontext as nothing

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from reference import composition_neg_elbo, neg_elbo
from zarr_samples import write_zarr

import spatialpdvi as spv
from spatialpdvi import InputError, InputWarning, Levels, Merge, Pieces, Rename, Split
from spatialpdvi.api import read_names
from spatialpdvi.editing import changes as changes_module
from spatialpdvi.editing.domains import _with_parts, divide
from spatialpdvi.editing.levels import Union, successive_unions
from spatialpdvi.editing.parts import Parts, connected_parts
from spatialpdvi.editing.results import steps_table
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.names import with_lost
from spatialpdvi.io.results.stored import read_stored
from spatialpdvi.io.section.section import read_section
from spatialpdvi.palette import further_colours

K = 5


@pytest.fixture(scope="module")
def fits():
    """A fit of each model, and its graph."""
    found = {}
    section = spv.simulate(n_spots=600, n_genes=150, k=K, seed=1, easy=True)
    for states in ("off", 8):
        found[states] = section.copy()
        search = {} if states == "off" else {"search": 1}
        options = {"k": K, "n_top_genes": 100, "n_init": 1, "save_graph": True, "tol": 1e-6}
        spv.fit(found[states], states=states, **options, **search)
    return found


@pytest.mark.parametrize("edit", [Merge(["0", "1"]), Split("0", 2)], ids=["merge", "split"])
def test_columns_that_are_gone_have_to_be_put_back(fits, edit):
    fitted = fits["off"].copy()
    fitted.uns["pdvi"]["params"]["sample_key"] = "slice"
    with pytest.raises(InputError, match=r"^Expected obs\['slice'\] .*\. The fit has read it: put it back\.$"):
        spv.label(fitted, edit)
    del fitted.uns["pdvi"]["params"]["sample_key"], fitted.obsm["spatial"]
    with pytest.raises(InputError, match=r"in obsm\['spatial'\] .*\. The fit has read them: put") as caught:
        spv.label(fitted, edit)
    assert "`spatial_key`" not in str(caught.value)


def test_memory_is_checked_for_edits_that_do_not_need_it(fits, tmp_path):
    fits["off"].write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(InputError, match=r"^Expected `memory` to be a size"):
        spv.label_file(tmp_path / "a.h5ad", Rename({"0": "x"}), memory="garbage")


@pytest.fixture(params=["off", 8], ids=["means", "compositions"])
def fitted(request, fits):
    return fits[request.param].copy()


def phi_of(adata):
    return adata.obsm["pdvi_posterior"].astype(np.float64)


def assert_consistent(adata):
    """What docs/outputs.md says of the keys that belong to domains."""
    phi, names = phi_of(adata), list(adata.obs["pdvi_domain"].cat.categories)
    codes, spots, summary = adata.obs["pdvi_domain"].cat.codes.to_numpy(), np.arange(adata.n_obs), adata.uns["pdvi"]
    assert len(set(names)) == len(names) == phi.shape[1]
    np.testing.assert_allclose(phi.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(adata.obsm["pdvi_posterior_calibrated"].sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(adata.obs["pdvi_confidence"], phi[spots, codes])
    calibrated = adata.obsm["pdvi_posterior_calibrated"][spots, codes]
    np.testing.assert_allclose(adata.obs["pdvi_confidence_calibrated"], calibrated)
    entropy = -(phi * np.log(np.where(phi > 0, phi, 1))).sum(axis=1)
    np.testing.assert_allclose(adata.obs["pdvi_entropy"], entropy, atol=1e-5)
    assert len(adata.uns["pdvi_domain_colors"]) == len(set(adata.uns["pdvi_domain_colors"])) == len(names)
    assert summary["domain_mean"].shape[0] == len(names)
    if "composition" in summary:
        np.testing.assert_allclose(summary["composition"].sum(axis=1), 1)
        np.testing.assert_allclose(summary["composition"] @ summary["state_mean"], summary["domain_mean"])
    else:
        assert summary["log_variance"].shape[0] == len(names)
    scores = spv.evaluate(adata, label_key="annotation")
    assert summary["scores"] == summary["scores"] | scores


def optima(adata, phi):
    """The means (E7) of domains with given posteriors, computed here from features and hyperparameters."""
    fit, x = adata.uns["pdvi"], adata.obsm["X_pdvi"].astype(np.float64)
    noise, prior = 1 / fit["noise_sd"] ** 2, 1 / fit["prior_sd"] ** 2
    precision = phi.sum(axis=0)[:, None] * noise + prior
    return ((phi.T @ x) * noise + fit["prior_mean"] * prior) / precision, -np.log(precision)


def best_composition(adata, phi):
    """The optimum of the compositions (C5), by many rounds, with a full array of the states of each spot and domain."""
    fit, x = adata.uns["pdvi"], adata.obsm["X_pdvi"].astype(np.float64)
    noise = 1 / fit["noise_sd"] ** 2
    logs = x @ (fit["state_mean"] * noise).T
    logs -= 0.5 * ((fit["state_mean"] ** 2 + np.exp(fit["log_variance"])) * noise).sum(axis=1)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    pi = np.full((phi.shape[1], logs.shape[1]), 1 / logs.shape[1])
    for _ in range(3000):
        psi = pi * likelihood[:, None, :]
        psi /= psi.sum(axis=2, keepdims=True)
        weights = (phi[:, :, None] * psi).sum(axis=0) + fit["prior_weight"]
        pi = weights / weights.sum(axis=1, keepdims=True)
    return pi


def with_empty_domain(fitted):
    """A copy with a sixth domain, which has no spots."""
    adata = fitted.copy()
    for key in ("pdvi_posterior", "pdvi_posterior_calibrated"):
        adata.obsm[key] = np.column_stack([adata.obsm[key], np.zeros(adata.n_obs, dtype=np.float32)])
    adata.obs["pdvi_domain"] = adata.obs["pdvi_domain"].cat.add_categories("5")
    adata.uns["pdvi_domain_colors"] = np.append(adata.uns["pdvi_domain_colors"], "#123456")
    return adata


class TestMerge:
    def test_posteriors_add_and_all_else_stays(self, fitted):
        before = fitted.copy()
        table = spv.label(fitted, Merge(iter(["3", "1"]), name="Cortex"))  # an iterator was empty when it was used
        assert table["domain"].tolist() == ["0", "Cortex", "2", "4"]
        assert table["fitted"].tolist() == ["0", "1+3", "2", "4"]
        assert_consistent(fitted)
        old, new = before.obsm["pdvi_posterior"], fitted.obsm["pdvi_posterior"]
        np.testing.assert_array_equal(new[:, [0, 2, 3]], old[:, [0, 2, 4]])
        np.testing.assert_allclose(new[:, 1], old[:, 1] + old[:, 3], atol=1e-6)
        was = before.obs["pdvi_domain"].astype(str)
        assert fitted.obs["pdvi_domain"].astype(str).tolist() == was.replace({"1": "Cortex", "3": "Cortex"}).tolist()
        assert fitted.obs["pdvi_domain_fitted"].astype(str).tolist() == was.tolist()
        assert list(fitted.uns["pdvi_domain_colors"]) == [before.uns["pdvi_domain_colors"][k] for k in (0, 1, 2, 4)]
        for key in ("certificate", "trace", "params"):
            np.testing.assert_equal(fitted.uns["pdvi"][key], before.uns["pdvi"][key])
        assert fitted.uns["pdvi"]["edits"]["action"].tolist() == ["merge"]

    def test_the_parameters_of_a_union_are_its_optimum(self, fits):
        fitted = fits["off"].copy()
        spv.label(fitted, Merge(["0", "2"]))
        mean, log_variance = optima(fitted, phi_of(fitted))
        # the fit has converged to 1e-6 of a standard deviation of the noise; posteriors are stored in single precision
        np.testing.assert_allclose(fitted.uns["pdvi"]["domain_mean"], mean, atol=1e-4)
        np.testing.assert_allclose(fitted.uns["pdvi"]["log_variance"], log_variance, atol=1e-4)

    def test_the_composition_of_a_union_has_the_spots_of_its_parts(self, fits):
        before, fitted = fits[8], fits[8].copy()
        spv.label(fitted, Merge(["0", "2"]))
        a, sizes = before.uns["pdvi"]["prior_weight"], phi_of(before).sum(axis=0)
        members = before.uns["pdvi"]["composition"] * (sizes[:, None] + a.sum()) - a  # M of (C5)
        weights = members[0] + members[2] + a
        np.testing.assert_allclose(fitted.uns["pdvi"]["composition"][0], weights / weights.sum(), atol=1e-6)

    def test_no_state_of_a_union_is_left_with_less_than_its_prior(self, fits):
        """Posteriors are rounded when they are stored, so that a state may seem to have fewer spots than none."""
        fitted = fits[8].copy()
        fit = fitted.uns["pdvi"]
        shares = np.array(fit["composition"])
        shares[:2, 3] = 0.0
        shares[:2] /= shares[:2].sum(axis=1, keepdims=True)
        fitted.uns["pdvi"] = fit | {"composition": shares, "domain_mean": shares @ fit["state_mean"]}
        spv.label(fitted, Merge(["0", "1"]))
        united = fitted.uns["pdvi"]["composition"][0]
        n_spots = phi_of(fitted)[:, 0].sum()
        assert united[3] == pytest.approx(fit["prior_weight"][3] / (n_spots + fit["prior_weight"].sum()), rel=0.05)

    def test_unions_of_unions(self, fitted):
        spv.label(fitted, Merge(["0", "1"]))
        spv.label(fitted, Merge(["0+1", "4"]))
        table = spv.label(fitted, Rename({"0+1+4": "all"}))
        assert table["fitted"].tolist() == ["0+1+4", "2", "3"]
        assert fitted.uns["pdvi"]["edits"]["n_domains"].tolist() == [4, 3, 3]
        assert_consistent(fitted)

    @pytest.mark.parametrize(
        ("edit", "message"),
        [
            (
                lambda: Merge(["0", "9"]),
                r"^Expected `domains` to be one of the domains '0', '1', '2', '3', '4', found '9'",
            ),
            (lambda: Merge(["0"]), r"^Expected `domains` to be at least two domains, found '0'\.$"),
            (lambda: Merge("brain"), r"^Expected `domains` to be at least two domains, found 'brain'\.$"),
            (lambda: Merge(["0", "1"], name="4"), r"^Expected `name` to be a new name, found '4', which is another"),
            (lambda: Split("0", into=1), r"^Expected `into` to be at least 2, found 1"),
            (lambda: Split("0", into=400), r"^Expected `into` to be at most half the number of spots of the domain"),
            (lambda: Split("0", into="2"), r"^Expected `into` to be a whole number, found '2'\.$"),
            (
                lambda: Split("0", into=2, seed=-1),
                r"^Expected `seed` to be a whole number from 0 to 4294967295, found -1",
            ),
            (lambda: Pieces("0", min_spots=True), r"^Expected `min_spots` to be a whole number, found True\.$"),
            (
                lambda: Split(9, into=2),
                r"^Expected `domain` to be one of the domains '0', '1', '2', '3', '4', found '9'",
            ),
            (lambda: Merge(0), r"^Expected `domains` to be at least two domains, found '0'\.$"),
            (lambda: Merge([0, "0"]), r"^Expected `domains` to be at least two domains, found '0'\.$"),
            (lambda: Rename("x"), r"^Expected `names` to be new names by old ones, found 'x'\. Give a dict"),
            (lambda: Rename({"0": "1"}), r"^Expected `names` to be a name of its own for each domain, found '1' for 2"),
            (lambda: Rename({"0": " "}), r"^Expected `names` to be a name for each domain, found an empty one for '0'"),
            (Rename, "^Expected `names` or `from_key`, found neither"),
            (lambda: Rename(from_key="cortex"), r"Name one of these with `from_key`\.$"),
            (
                lambda: Levels("4,x"),
                r"^Expected `levels` to be numbers such as 4,6,8 or a range such as 4:8, found 'x'",
            ),
            (lambda: Levels([5]), r"^Expected `levels` to be from 2 to 4, since 5 domains have spots, found 5\.$"),
            (
                lambda: Levels(2.5),
                r"^Expected `levels` to be numbers such as 4,6,8 or a range such as 4:8, found 2\.5\.$",
            ),
            (lambda: Pieces("0", min_spots=500), r"^Expected at least two connected parts with 500 spots or more"),
            (lambda: Pieces(0, min_spots=500), r"^Expected at least two connected parts with 500 spots or more"),
            (lambda: "merge", r"^Expected `edit` to be a Rename, Merge, Split, Pieces or Levels, found 'merge'\."),
            (lambda: None, r"found None\. Give one edit, such as spatialpdvi\.Merge\(\['0', '1'\]\)"),
            (lambda: [Merge(["0", "1"])], r"found an object of type list\. Give one edit"),
        ],
    )
    def test_what_cannot_be_done_changes_nothing(self, fits, edit, message):
        adata = fits["off"].copy()
        with pytest.raises(InputError, match=message):
            spv.label(adata, edit())
        assert "pdvi_domain_fitted" not in adata.obs
        assert "edits" not in adata.uns["pdvi"]


@pytest.mark.parametrize("edit", [Merge(["0", "1"]), Split("0", into=2), Levels([2])])
def test_an_edit_of_concatenated_fits_that_have_lost_their_parameters_is_refused(fits, edit):
    """`uns_merge="same"` keeps what is the same in both."""
    fitted = fits["off"].copy()
    for name in ("noise_sd", "prior_sd", "prior_mean", "domain_mean", "log_variance"):
        del fitted.uns["pdvi"][name]
    with pytest.raises(InputError, match=r"^Expected the parameters of the fit, .* concatenated: fit them together\.$"):
        spv.label(fitted, edit)


class TestRename:
    def test_domains_with_the_same_label_stay_apart(self, fitted):
        before = fitted.copy()
        fitted.obs["organ"] = pd.Categorical(np.where(fitted.obs["pdvi_domain"].isin(["0", "2", "4"]), "brain", "gut"))
        table = spv.label(fitted, Rename(from_key="organ"))
        assert table["domain"].tolist() == ["brain 1", "gut 1", "brain 2", "gut 2", "brain 3"]
        assert (fitted.obs["pdvi_domain"].cat.codes == before.obs["pdvi_domain"].cat.codes).all()
        np.testing.assert_array_equal(fitted.obsm["pdvi_posterior"], before.obsm["pdvi_posterior"])
        assert_consistent(fitted)

    def test_and_are_united_where_that_is_wanted(self, fitted):
        fitted.obs["organ"] = pd.Categorical(np.where(fitted.obs["pdvi_domain"].isin(["0", "2", "4"]), "brain", "gut"))
        table = spv.label(fitted, Rename(from_key="organ", merge=True))
        assert table["domain"].tolist() == ["brain", "gut"]
        assert table["fitted"].tolist() == ["0+2+4", "1+3"]
        assert (fitted.obs["pdvi_domain"].astype(str) == fitted.obs["organ"].astype(str)).all()
        assert_consistent(fitted)

    def test_ties_and_domains_without_a_label_are_named_in_a_warning(self, fits):
        adata = fits["off"].copy()
        organ = np.array(adata.obs["pdvi_domain"].astype(str), dtype=object)
        organ[organ == "3"] = None
        first = np.flatnonzero(organ == "4")
        organ[first[: first.size // 2 * 2 : 2]], organ[first[1 : first.size // 2 * 2 : 2]] = "a", "b"
        organ[first[first.size // 2 * 2 :]] = None
        adata.obs["organ"] = pd.Categorical(organ)
        with pytest.warns(InputWarning) as caught:
            table = spv.label(adata, Rename(from_key="organ"))
        assert [str(one.message) for one in caught] == [
            "Domain '4' has equally many spots with the labels 'a' and 'b'. It is named 'a'.",
            "No spot of domain '3' has a label. It keeps its name.",
        ]
        assert table["domain"].tolist() == ["0", "1", "2", "3", "a"]

    def test_a_warning_lists_the_first_of_many_ties_and_counts_the_others(self, fits):
        adata = fits["off"].copy()
        adata.obs["cell"] = [f"cell{number:03}" for number in range(adata.n_obs)]
        with pytest.warns(InputWarning) as caught:
            spv.label(adata, Rename(from_key="cell"))
        own = np.flatnonzero(adata.obs["pdvi_domain_fitted"] == "0")
        listed = " and ".join(f"'cell{number:03}'" for number in own[:3])
        assert str(caught[0].message) == (
            f"Domain '0' has equally many spots with the labels {listed} and {own.size - 3} others. It is named "
            f"'cell{own[0]:03}'."
        )

    def test_a_single_label_names_all_domains_without_a_word_about_scores(self, fits):
        adata = fits["off"].copy()
        adata.obs["organ"] = "brain"
        table = spv.label(adata, Rename(from_key="organ", merge=True))
        assert table["domain"].tolist() == ["brain"]

    def test_numbers_avoid_names_that_are_taken(self, fits):
        adata = fits["off"].copy()
        named = {"0": "brain", "1": "brain", "2": "brain 1", "3": "gut", "4": "skin"}
        adata.obs["organ"] = adata.obs["pdvi_domain"].astype(str).map(named).astype("category")
        assert spv.label(adata, Rename(from_key="organ"))["domain"].tolist()[:3] == ["brain 2", "brain 3", "brain 1"]

    def test_markers_and_levels_get_the_new_names(self, fits):
        adata = fits["off"].copy()
        spv.markers(adata, n=2, store=True)
        spv.label(adata, Levels([3]))
        old = adata.obs["pdvi_domain_L3"].astype(str)
        spv.label(adata, Rename({"0": "Cortex", "1": "Skin"}))
        assert set(adata.uns["pdvi_markers"]["domain"]) == {"Cortex", "Skin", "2", "3", "4"}
        new = adata.obs["pdvi_domain_L3"].astype(str)
        assert new.tolist() == [name.replace("0", "Cortex").replace("1", "Skin") for name in old]

    def test_a_description_gets_the_new_names_and_does_not_outlive_its_domains(self, fits):
        adata = fits["off"].copy()
        contacts = {"domain": np.array(["0", "1"], dtype=object), "other": np.array(["1", "4"], dtype=object)}
        domains = {"domain": np.array(["0", "1"], dtype=object), "spots": np.array([3, 2])}
        stored = {"sections": {"section": np.array(["a"], dtype=object)}, "domains": domains, "contacts": contacts}
        adata.uns["pdvi_describe"] = stored | {"params": {"by": "domain"}}
        spv.label(adata, Rename({"0": "Cortex", "1": "Skin"}))
        found = adata.uns["pdvi_describe"]
        assert found["domains"]["domain"].tolist() == ["Cortex", "Skin"]
        assert found["contacts"]["other"].tolist() == ["Skin", "4"]
        assert found["params"] == {"by": "domain"}
        np.testing.assert_array_equal(found["domains"]["spots"], [3, 2])
        with pytest.warns(
            InputWarning, match=r"^uns\['pdvi_describe'\] belonged .*, and was removed. Compute it again"
        ):
            spv.label(adata, Merge(("Cortex", "Skin"), name="brain"))
        assert "pdvi_describe" not in adata.uns

    def test_a_name_that_a_union_would_share_is_refused(self, fits):
        adata = fits["off"].copy()
        spv.label(adata, Rename({"4": "0+1"}))
        with pytest.raises(
            InputError, match=r"^Expected `name` to be a new name, found '0\+1', which is another domain"
        ):
            spv.label(adata, Merge(["0", "1"]))

    def test_the_names_of_the_fit_stay_known(self, fits):
        adata = fits["off"].copy()
        spv.label(adata, Rename({"0": "a"}))
        table = spv.label(adata, Rename({"a": "b", "1": "a"}))
        assert table["domain"].tolist() == ["b", "a", "2", "3", "4"]
        assert table["fitted"].tolist() == ["0", "1", "2", "3", "4"]


class TestSplit:
    def test_parts_have_the_posterior_of_the_domain_and_others_stay(self, fitted):
        spv.label(fitted, Merge(["0", "1"], name="both"))
        before = fitted.copy()
        table = spv.label(fitted, Split("both", into=2))
        assert table["domain"].tolist() == ["both.1", "both.2", "2", "3", "4"]
        assert_consistent(fitted)
        old, new = phi_of(before), phi_of(fitted)
        np.testing.assert_allclose(new[:, :2].sum(axis=1), old[:, 0], atol=1e-6)
        np.testing.assert_array_equal(new[:, 2:], old[:, 1:])
        was, now = (adata.obs["pdvi_domain"].astype(str) for adata in (before, fitted))
        assert (now.str.startswith("both.") == (was == "both")).all()
        assert (now == was)[was != "both"].all()
        np.testing.assert_array_equal(fitted.uns["pdvi"]["domain_mean"][2:], before.uns["pdvi"]["domain_mean"][1:])
        # the fit inside finds the two that were united
        origin = fitted.obs["pdvi_domain_fitted"].astype(str)
        counts = pd.crosstab(now, origin).loc[["both.1", "both.2"], ["0", "1"]].to_numpy()
        assert max(np.trace(counts), np.trace(counts[::-1])) > 0.9 * counts.sum()

    def test_the_parameters_of_parts_are_their_optima(self, fitted):
        spv.label(fitted, Merge(["0", "1"], name="both"))
        spv.label(fitted, Split("both", into=2))
        phi = phi_of(fitted)[:, :2]
        if "composition" in fitted.uns["pdvi"]:
            expected = best_composition(fitted, phi)
            np.testing.assert_allclose(fitted.uns["pdvi"]["composition"][:2], expected, atol=1e-3)
        else:
            mean, log_variance = optima(fitted, phi)
            np.testing.assert_allclose(fitted.uns["pdvi"]["domain_mean"][:2], mean, atol=1e-5)
            np.testing.assert_allclose(fitted.uns["pdvi"]["log_variance"][:2], log_variance, atol=1e-5)

    def test_each_posterior_is_multiplied_by_its_own_shares(self, fits):
        before, features = read_stored(AnnDataSource(fits["off"]), Keys()), fits["off"].obsm["X_pdvi"]
        shares, calibrated = np.random.default_rng(0).dirichlet(np.ones(3), size=(2, len(features)))
        for given, of_calibrated in ((calibrated, calibrated), (None, shares)):
            after = divide(before, 1, shares.argmax(axis=1), shares=shares, calibrated=given, features=features)
            for old, new, by in (
                (before.posterior, after.posterior, shares),
                (before.calibrated, after.calibrated, of_calibrated),
            ):
                np.testing.assert_array_equal(new, np.column_stack([old[:, :1], old[:, 1:2] * by, old[:, 2:]]))

    def test_the_same_seed_gives_the_same_parts(self, fits):
        one, two = fits["off"].copy(), fits["off"].copy()
        for adata in (one, two):
            spv.label(adata, Merge(["0", "1"]))
            spv.label(adata, Split("0+1", into=2, seed=3))
        np.testing.assert_array_equal(one.obsm["pdvi_posterior"], two.obsm["pdvi_posterior"])

    def test_a_whole_number_is_the_name_of_a_domain(self, fits):
        one, two = fits["off"].copy(), fits["off"].copy()
        pd.testing.assert_frame_equal(spv.label(one, Split("0", into=2)), spv.label(two, Split(np.int64(0), into=2)))
        assert list(one.uns["pdvi"]["edits"]["detail"]) == list(two.uns["pdvi"]["edits"]["detail"])

    def test_the_limit_is_told_and_that_few_spots_have_no_parts(self, fits):
        adata = fits["off"].copy()
        codes = adata.obs["pdvi_domain"].cat.codes.to_numpy().copy()
        codes[np.flatnonzero(codes == 0)[2:]] = 1
        adata.obs["pdvi_domain"] = pd.Categorical.from_codes(codes, list("01234"))
        adata.obs["pdvi_confidence"] = adata.obsm["pdvi_posterior"][np.arange(codes.size), codes]
        with pytest.raises(InputError, match=r"of the domain, which is 1, found 2\. Leave the domain as it is"):
            spv.label(adata, Split("0", into=2))

    def test_counts_that_are_gone_are_advised_without_options_that_there_are_not(self, fits):
        adata = fits["off"].copy()
        adata.layers["mine"] = adata.X.copy()
        adata.X = adata.X * 0.5
        with pytest.raises(
            InputError, match=r"in X\. Put the raw counts into layers\['counts'\], .* Not tried: .*'mine'"
        ):
            spv.label(adata, Split("0", into=2))
        adata.layers["counts"] = adata.layers.pop("mine")
        assert len(spv.label(adata, Split("0", into=2))) == K + 1
        named = fits["off"].copy()
        named.uns["pdvi"]["params"] = {**named.uns["pdvi"]["params"], "layer": "mine"}
        advice = r"The fit has read the raw counts from layers\['mine'\]: put them back\.$"
        with pytest.raises(InputError, match=advice):
            spv.label(named, Split("0", into=2))

    def test_a_label_that_all_spots_have_is_told_once(self, fits):
        adata = fits["off"].copy()
        adata.obs["annotation"] = pd.Categorical(["L1"] * adata.n_obs)
        with pytest.warns(InputWarning) as caught:
            spv.label(adata, Split("0", into=2))
        assert sum("only the label 'L1'" in str(one.message) for one in caught) == 1

    def test_spots_that_are_alike_are_not_divided(self):
        adata = spv.simulate(n_spots=400, n_genes=60, k=3, easy=True)
        spv.fit(adata, k=3, n_top_genes=60, n_init=1, states="off")
        with pytest.raises(InputError, match=r"^Expected spots of the domain that differ, .* only one with spots"):
            spv.label(adata, Split("0", into=2))


class TestPieces:
    def test_islands_become_domains(self, fits):
        adata = fits["off"].copy()
        xy = adata.obsm["spatial"].copy()
        own = np.flatnonzero(adata.obs["pdvi_domain"] == "0")
        width = np.ptp(xy, axis=0).max()
        for n, some in enumerate((own[:40], own[40:60], own[60:63])):
            grid = np.column_stack(np.divmod(np.arange(some.size), 8)) * width / 100
            xy[some] = grid + width * np.array([3 + 3 * n, 0])
        adata.obsm["spatial"] = xy
        del adata.obsp["pdvi_connectivities"]
        table = spv.label(adata, Pieces("0", min_spots=10))
        sizes = table.set_index("domain")["spots"]
        rest = (own.size - 63) > 0
        assert [name for name in sizes.index if name.startswith("0.")] == [f"0.{i + 1}" for i in range(2 + rest)]
        now = adata.obs["pdvi_domain"].astype(str).to_numpy()
        assert len(set(now[own[:40]])) == len(set(now[own[40:63]])) == 1  # the island of three goes to the nearest
        assert now[own[0]] != now[own[40]]
        phi = phi_of(adata)
        np.testing.assert_allclose(phi.sum(axis=1), 1, atol=1e-6)
        old = phi_of(fits["off"])
        columns = [i for i, name in enumerate(table["domain"]) if name.startswith("0.")]
        np.testing.assert_array_equal(phi[:, columns].max(axis=1), old[:, 0])
        assert ((phi[:, columns] > 0).sum(axis=1) <= 1).all()

    @pytest.mark.parametrize("name", ["0", "1"])
    def test_patches_that_a_fit_did_not_join_are_no_pieces_of_tissue(self, name):
        """Whether the graph is stored changes neither pieces nor contacts."""
        section, found = spv.simulate(n_spots=400, n_genes=60, k=3, seed=1, easy=True), []
        options = {"k": 3, "n_top_genes": 60, "n_init": 1, "states": "off", "n_patches": 6}
        for save_graph in (False, True):
            fitted = section.copy()
            spv.fit(fitted, **options, cross_patch_edges=False, save_graph=save_graph)
            assert fitted.uns["pdvi"]["params"]["n_edges_dropped"] > 0
            contacts = spv.describe(fitted).contacts["contacts"].tolist()
            try:
                spv.label(fitted, Pieces(name, min_spots=10))
            except InputError as error:
                found.append((contacts, str(error)))
            else:
                found.append((contacts, list(fitted.obs["pdvi_domain"])))
        assert found[0] == found[1]

    def test_other_spots_are_nearest_to_a_part_of_their_own_section(self):
        """Two sections overlap, one with the domain at its left end, the other with less of it at its right end."""
        adata, spots = ad.AnnData(np.zeros((20, 1))), np.arange(20)
        adata.obs["slice"] = np.repeat(["a", "b"], 10)
        adata.obsm["spatial"] = np.column_stack([spots % 10, spots // 10]).astype(float)
        section = read_section(AnnDataSource(adata), sample_key="slice", expression=False)
        own = np.isin(spots, [0, 1, 2, 18, 19])
        joined = sp.csr_matrix((np.abs(spots[:, None] - spots) == 1).astype(float))
        assert connected_parts(section, own, joined, 1).parts.tolist() == [0] * 10 + [1] * 10

    def test_a_domain_without_spots_has_none(self, fits):
        adata = with_empty_domain(fits["off"])
        with pytest.raises(InputError, match=r"^Expected a domain with spots, found one that has none"):
            spv.label(adata, Pieces("5"))

    def test_a_domain_in_one_part_is_told(self, fits):
        adata = fits["off"].copy()
        own = np.flatnonzero(adata.obs["pdvi_domain"] == "1")
        joined = np.zeros((adata.n_obs, adata.n_obs))
        joined[own[:-1], own[1:]] = joined[own[1:], own[:-1]] = 1.0
        adata.obsp["pdvi_connectivities"] = sp.csr_matrix(joined)
        said = rf"with 1 spot or more, found one part, with {own.size} spots\. Leave the domain as it is, or split it"
        with pytest.raises(InputError, match=said):
            spv.label(adata, Pieces("1", min_spots=1))

    def test_edges_of_the_stored_graph_decide(self, fits):
        adata = fits["off"].copy()
        own = np.flatnonzero(adata.obs["pdvi_domain"] == "1")
        joined = np.zeros((adata.n_obs, adata.n_obs))
        for some in (own[::2], own[1::2]):  # two chains that lie among each other
            joined[some[:-1], some[1:]] = joined[some[1:], some[:-1]] = 1.0
        adata.obsp["pdvi_connectivities"] = sp.csr_matrix(joined)
        spv.label(adata, Pieces("1", min_spots=2))
        now = adata.obs["pdvi_domain"].astype(str).to_numpy()
        assert set(now[own[::2]]) == {"1.1"}
        assert set(now[own[1::2]]) == {"1.2"}
        assert_consistent(adata)


class TestLevels:
    def test_they_are_strictly_nested_and_named_by_what_they_unite(self, fitted):
        before = fitted.copy()
        spv.label(fitted, Levels("2:4"))
        assert (fitted.obs["pdvi_domain"] == before.obs["pdvi_domain"]).all()
        finer = fitted.obs["pdvi_domain"].astype(str)
        for n in (4, 3, 2):
            column = fitted.obs[f"pdvi_domain_L{n}"]
            assert column.nunique() == len(column.cat.categories) == n == len(fitted.uns[f"pdvi_domain_L{n}_colors"])
            assert (pd.crosstab(finer, column).to_numpy() > 0).sum(axis=1).max() == 1
            for name in column.cat.categories:
                assert set(fitted.obs["pdvi_domain"][column == name].astype(str)) == set(name.split("+"))
            finer = column.astype(str)

    def test_each_union_has_the_least_rise_of_f(self, fitted):
        table = spv.label(fitted, Levels([2]))
        fit, phi = fitted.uns["pdvi"], phi_of(fitted)
        x, r = fitted.obsm["X_pdvi"].astype(np.float64), fitted.obsp["pdvi_connectivities"].toarray()
        hyper = fit["noise_sd"], fit["prior_sd"], fit["prior_mean"]
        groups = [[k] for k in range(K)]
        members = None
        if "composition" in fit:
            a = fit["prior_weight"]
            members = states_of(fitted, phi, fit["composition"])

        def objective(groups):
            """F of the united posteriors, with the parameters that follow from the sums of statistics."""
            united = np.column_stack([phi[:, group].sum(axis=1) for group in groups])
            if members is None:
                return neg_elbo(united, *optima(fitted, united), x, r, *hyper)
            theta = np.log([members[group].sum(axis=0) + a for group in groups])
            return composition_neg_elbo(united, fit["state_mean"], fit["log_variance"], theta, x, r, *hyper, a)

        for row in table.itertuples():
            now = objective(groups)
            tried = {}
            for i, one in enumerate(groups):
                for other in groups[i + 1 :]:
                    rest = [group for group in groups if group not in (one, other)]
                    tried["+".join(map(str, one)), "+".join(map(str, other))] = (
                        objective([*rest, sorted(one + other)]) - now
                    )
            best = min(tried, key=tried.__getitem__)
            assert {row.first, row.second} == set(best)
            assert row.rise == pytest.approx(tried[best], abs=1e-4 * abs(now))
            assert row.rise == pytest.approx(tried[best], abs=0.05)
            united = next(g for g in groups if "+".join(map(str, g)) == row.first)
            added = next(g for g in groups if "+".join(map(str, g)) == row.second)
            groups = [sorted(united + added) if g is united else g for g in groups if g is not added]

    def test_one_number_is_one_level(self, fits):
        one, two = fits["off"].copy(), fits["off"].copy()
        pd.testing.assert_frame_equal(spv.label(one, Levels(3)), spv.label(two, Levels([3])))
        assert "pdvi_domain_L3" in one.obs

    def test_no_union_has_the_name_of_another_domain(self, fits):
        adata = fits["off"].copy()
        step = spv.label(adata.copy(), Levels([4])).iloc[0]
        one, two = sorted((step["first"], step["second"]))
        other = next(name for name in adata.obs["pdvi_domain"].cat.categories if name not in {one, two})
        spv.label(adata, Rename({one: "T", two: "B", other: "T+B"}))
        spv.label(adata, Levels([4]))
        assert {"T+B 1", "T+B 2"} < set(adata.obs["pdvi_domain_L4"].cat.categories)

    def test_more_levels_are_added_and_go_with_the_domains(self, fits):
        adata = fits["off"].copy()
        spv.label(adata, Levels([3]))
        first = adata.obs["pdvi_domain_L3"].copy()
        spv.label(adata, Levels("2,4"))
        assert (adata.obs["pdvi_domain_L3"] == first).all()
        steps = {name: column.tolist() for name, column in adata.uns["pdvi"]["levels"].items()}
        spv.label(adata, Levels([4]))  # finer ones do not shorten the record
        assert {name: column.tolist() for name, column in adata.uns["pdvi"]["levels"].items()} == steps
        assert steps["n_domains"] == [4, 3, 2]
        with pytest.warns(InputWarning, match=r"^obs\['pdvi_domain_L2'\], .* belonged to the domains before this edit"):
            spv.label(adata, Merge(["0", "1"]))
        assert not [key for key in (*adata.obs, *adata.uns) if "_L" in key]
        assert "levels" not in adata.uns["pdvi"]

    def test_without_a_stored_graph_weights_are_computed_again(self, fitted):
        other = fitted.copy()
        del other.obsp["pdvi_connectivities"]
        one, two = spv.label(fitted, Levels([2])), spv.label(other, Levels([2]))
        np.testing.assert_allclose(one["rise"], two["rise"], rtol=0.2, atol=20)

    def test_sections_and_patches_of_a_joint_fit_do_not_reach_into_one_of_its_files(self, tmp_path):
        both = spv.simulate(n_spots=200, n_genes=60, k=3, seed=1, easy=True)
        both.obsm["spatial"] = np.column_stack([both.obsm["spatial"], np.arange(both.n_obs) % 2 * 20.0])
        paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
        for half, path in enumerate(paths):
            both[half::2].copy().write_h5ad(path)
        options = {"across_sections": True, "n_patches": 120, "cross_patch_edges": False}
        spv.fit_files(paths, k=3, n_top_genes=60, n_init=1, states="off", tol=1e-2, **options)
        with pytest.warns(InputWarning, match="^These domains belong to a joint fit"):
            found = spv.label_file(paths[0], Levels([2]), output=tmp_path / "levels.h5ad")
        alone = ad.read_h5ad(paths[0])
        for name in options:
            del alone.uns["pdvi"]["params"][name]
        with pytest.warns(InputWarning, match="^These domains belong to a joint fit"):
            pd.testing.assert_frame_equal(found, spv.label(alone, Levels([2])))

    def test_prefixes_have_levels_of_their_own(self, toy_section):
        adata = toy_section.copy()
        spv.fit(adata, k=3, n_top_genes=100, n_init=1, states="off", key_added="fine")
        spv.label(adata, Levels([2]), key_added="fine")
        assert adata.obs["fine_domain_L2"].nunique() == 2

    @pytest.mark.parametrize("n_filled", [1, 2])
    def test_fewer_than_three_domains_have_no_coarser_ones(self, fits, n_filled):
        adata = fits["off"].copy()
        spv.label(adata, Merge([str(k) for k in range(K - n_filled + 1)]))
        for asked in ([1], 2, "2:3"):
            with pytest.raises(InputError, match=rf"^Expected at least three domains with spots, found {n_filled}\. "):
                spv.label(adata, Levels(asked))

    def test_empty_domains_are_united_first(self, fits):
        adata = with_empty_domain(fits["off"])
        fit = adata.uns["pdvi"] = dict(adata.uns["pdvi"])
        for name in ("domain_mean", "log_variance"):
            fit[name] = np.vstack([fit[name], fit[name][-1:]])
        table = spv.label(adata, Levels([4]))
        assert table["second"].tolist()[0] == "5"
        assert table["n_domains"].tolist() == [5, 4]
        assert "5" not in "".join(adata.obs["pdvi_domain_L4"].cat.categories)


def states_of(adata, phi, pi):
    """M (K, C) of (C3), with a full array of the states of each spot and domain."""
    fit, x = adata.uns["pdvi"], adata.obsm["X_pdvi"].astype(np.float64)
    noise = 1 / fit["noise_sd"] ** 2
    logs = x @ (fit["state_mean"] * noise).T
    logs -= 0.5 * ((fit["state_mean"] ** 2 + np.exp(fit["log_variance"])) * noise).sum(axis=1)
    psi = pi * np.exp(logs - logs.max(axis=1, keepdims=True))[:, None, :]
    return (phi[:, :, None] * psi / psi.sum(axis=2, keepdims=True)).sum(axis=0)


@pytest.mark.cli
class TestFiles:
    def test_a_selection_that_has_lost_a_domain_is_told(self, fits):
        part = fits["off"][fits["off"].obs["pdvi_domain"] != "4"].copy()
        with pytest.raises(
            InputError, match=r"^Expected a column of obsm\['pdvi_posterior'\] .* found 5 columns\. A sel"
        ):
            spv.label(part, Merge(["0", "1"]))

    def test_categories_in_another_order_are_told(self, fits):
        adata = fits["off"].copy()
        adata.obs["pdvi_domain"] = adata.obs["pdvi_domain"].cat.reorder_categories(list("10234"))
        with pytest.raises(InputError, match="spots whose posterior does not belong to their domain"):
            spv.label(adata, Merge(["0", "1"]))

    @pytest.mark.parametrize("kind", [int, float])
    def test_categories_may_be_numbers(self, fits, kind):
        adata = fits["off"].copy()
        adata.obs["pdvi_domain"] = adata.obs["pdvi_domain"].cat.rename_categories(kind)
        spv.label(adata, Rename({"0": "Cortex"}))
        assert adata.obs["pdvi_domain"].cat.categories.tolist() == ["Cortex", "1", "2", "3", "4"]
        np.testing.assert_array_equal(adata.obs["pdvi_domain"].cat.codes, fits["off"].obs["pdvi_domain"].cat.codes)

    def test_a_second_fit_leaves_nothing_of_the_edits(self, fits):
        adata = fits["off"].copy()
        spv.label(adata, Merge(["0", "1"]))
        spv.label(adata, Levels([2]))
        spv.fit(adata, k=3, n_top_genes=100, n_init=1, states="off")
        assert not [key for key in adata.obs if "_L" in key or key.endswith("_fitted")]
        assert adata.obs["pdvi_domain"].cat.categories.tolist() == ["0", "1", "2"]
        assert not {"edits", "levels"} & set(adata.uns["pdvi"])

    @pytest.mark.parametrize("ending", ["h5ad", pytest.param("zarr", marks=pytest.mark.longest)])
    def test_files_are_edited_as_memory_is(self, fits, tmp_path, ending):
        adata = fits[8].copy()
        path = tmp_path / f"a.{ending}"
        if ending == "zarr":
            write_zarr(path, adata, 2)
        else:
            adata.write_h5ad(path)
        edits = (Levels([3]), Rename({"0": "Cortex"}), Merge(["Cortex", "3"]), Rename({"1": "x"}))
        for i, edit in enumerate(edits):
            with pytest.warns(InputWarning) if i == 2 else nothing():
                spv.label(adata, edit)
            with pytest.warns(InputWarning) if i == 2 else nothing():
                spv.label_file(path, edit)
        read = ad.read_zarr if ending == "zarr" else ad.read_h5ad
        back = read(path)
        np.testing.assert_array_equal(back.obsm["pdvi_posterior"], adata.obsm["pdvi_posterior"])
        assert back.obs["pdvi_domain"].tolist() == adata.obs["pdvi_domain"].tolist()
        assert back.uns["pdvi"]["edits"]["detail"].tolist() == adata.uns["pdvi"]["edits"]["detail"].tolist()
        assert set(back.obs) == set(adata.obs)
        assert_consistent(back)


@pytest.mark.parametrize("edit", [Rename({"0": "Cortex", "1": "Liver"}), Merge(["0", "1"])], ids=["rename", "merge"])
def test_intervals_of_states_stay_as_they_are(fits, edit):
    adata = fits[8].copy()
    spv.intervals(adata, of="state", n_genes=1, store=True)
    before = {name: dict(adata.uns["pdvi_intervals"][name]) for name in ("expression", "contrasts")}
    spv.label(adata, edit)
    for name, table in before.items():
        after = adata.uns["pdvi_intervals"][name]
        assert set(after) == set(table)
        for column, values in table.items():
            np.testing.assert_array_equal(after[column], values)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda: Rename({"0": np.nan}),
            r"^Expected `names` to be text as the new name of a domain, found nan for '0'\.",
        ),
        (lambda: Rename({"0": "Cortex", "1": None}), r"found None for '1'\."),
        (lambda: Merge(["0", "1"], name=5), r"^Expected `name` to be text, found 5\."),
    ],
)
def test_names_are_texts(edit, message):
    with pytest.raises(InputError, match=message):
        edit()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('\ufeffdomain, name\n0, "Cortex, left"\n\n1,B\n', {"0": "Cortex, left", "1": "B"}),
        ("domain,name\n0,Cortex,\n1,Liver,\n", {"0": "Cortex", "1": "Liver"}),  # as spreadsheets write them
        ("note,name,domain\nold,Gut,1\n", {"1": "Gut"}),
        ("domain ,name\n0 ,A b \n", {"0": "A b"}),
        ("domain,name\n0,Cortex,extra\n", "2 values in each line of .*, found '0','Cortex','extra'"),
        ("domain,name\n0\n", "2 values in each line of .*, found '0'"),
        ("domain,name\n0,A\n0,B\n", "each domain once in .*, found '0' twice"),
        ("", "the columns domain and name in .*, found columns: none"),
        ("domain,name\n", "a line for each domain to rename in .*, found only that of the columns' names"),
    ],
)
def test_a_table_of_names_is_read_line_by_line(tmp_path, text, names):
    path = tmp_path / "names.csv"
    path.write_text(text, encoding="utf-8")
    if isinstance(names, dict):
        assert read_names(path) == names
    else:
        with pytest.raises(InputError, match=names):
            read_names(path)


@pytest.mark.parametrize("edit", [Merge(["1", "2"], name="1"), Split("0", 2), Rename({"0": "skin"})], ids=repr)
def test_colours_of_an_edit_are_the_users_where_those_before_were(fits, edit):
    """The next fit keeps the user's own."""
    adata = fits["off"].copy()
    spv.label(adata, edit)
    assert list(adata.uns["pdvi"]["colours"]) == list(adata.uns["pdvi_domain_colors"])
    chosen = fits["off"].copy()
    chosen.uns["pdvi_domain_colors"] = list(reversed(chosen.uns["pdvi_domain_colors"]))
    spv.label(chosen, edit)
    assert list(chosen.uns["pdvi"]["colours"]) != list(chosen.uns["pdvi_domain_colors"])


def test_the_calibrated_posterior_is_read_beside_the_posterior(fits):
    fitted = fits["off"].copy()
    phi = fitted.obsm["pdvi_posterior"].astype(np.float64)
    fitted.obsm["pdvi_posterior_calibrated"] = flat = 0.5 * phi + 0.5 / K
    stored = read_stored(AnnDataSource(fitted), Keys())
    np.testing.assert_array_equal(stored.posterior, phi)
    np.testing.assert_array_equal(stored.calibrated, flat)


def test_lost_names_are_numbers_only_where_no_edit_has_named_domains():
    assert with_lost(["0", "2"], 3, {}) == ["0", "1", "2"]
    assert with_lost(["0", "2"], 3, {"edits": {}}) == ["0", "2"]
    assert with_lost(["0", "Cortex"], 3, {}) == ["0", "Cortex"]


def test_the_calibrated_posterior_of_parts_is_that_of_the_calibrated_shares(fits, monkeypatch):
    adata = fits["off"].copy()
    n, rng = adata.n_obs, np.random.default_rng(0)
    shares, calibrated = rng.dirichlet([1.0, 1.0], n), rng.dirichlet([1.0, 1.0], n)
    found = Parts(shares.argmax(axis=1), shares, calibrated)
    monkeypatch.setattr(changes_module, "fitted_parts", lambda *_: found)
    before = adata.obsm["pdvi_posterior"].copy(), adata.obsm["pdvi_posterior_calibrated"].copy()
    spv.label(adata, Split("0", 2))
    np.testing.assert_allclose(adata.obsm["pdvi_posterior"][:, :2], before[0][:, :1] * shares, atol=1e-6)
    np.testing.assert_allclose(adata.obsm["pdvi_posterior_calibrated"][:, :2], before[1][:, :1] * calibrated, atol=1e-6)


def test_parts_have_colours_that_no_domain_has_be_it_before_or_after_them():
    first = "#3f6fb5"
    colours = (first, *further_colours(3, taken=[first]))  # those that parts of the first would have without the others
    for domain in range(4):
        parts = _with_parts(colours, domain, 3)
        assert parts[: domain + 1] + parts[domain + 3 :] == colours
        assert len(set(parts)) == 6


def test_a_coarser_domain_has_the_colour_of_the_first_that_it_unites(fits):
    adata = fits["off"].copy()
    spv.label(adata, Levels([2, 3]))
    own = dict(zip(adata.obs["pdvi_domain"].cat.categories, adata.uns["pdvi_domain_colors"], strict=True))
    for n in (2, 3):
        names = adata.obs[f"pdvi_domain_L{n}"].cat.categories
        assert any("+" in name for name in names)
        assert list(adata.uns[f"pdvi_domain_L{n}_colors"]) == [own[name.split("+")[0]] for name in names]


def test_a_union_is_named_by_its_domains_in_their_order():
    steps = [Union(4, 1, 3, 1.0), Union(3, 0, 1, 2.0), Union(2, 0, 2, 3.0), Union(1, 0, 4, 4.0)]
    table = steps_table(steps, ["a", "b", "c", "d", "e"])
    assert table["first"].tolist() == ["b", "a", "a+b+d", "a+b+c+d"]
    assert table["second"].tolist() == ["d", "b+d", "c", "e"]


def test_a_domain_without_spots_is_united_before_two_that_are_alike(fits):
    adata = fits["off"]
    fit = read_stored(AnnDataSource(adata), Keys())
    half = np.arange(adata.n_obs) % 2
    phi = np.zeros((adata.n_obs, 4))
    phi[:, 0], phi[:, 1] = (fit.codes == 0) & (half == 0), (fit.codes == 0) & (half == 1)  # at the same places
    phi[:, 2], phi[:, 3] = 0.95 * (fit.codes != 0), 0.05 * (fit.codes != 0)
    fit = fit._replace(posterior=phi, codes=phi.argmax(axis=1), names=tuple("abcd"), calibrated=None)
    graph = adata.obsp["pdvi_connectivities"].tocsr()
    first, second = successive_unions(fit, adata.obsm["X_pdvi"], graph, fewest=2)
    assert (first.n_domains, second.n_domains) == (3, 2)
    assert 3 in (first.kept, first.united)
    assert (second.kept, second.united) == (0, 1)
    assert second.rise < first.rise
