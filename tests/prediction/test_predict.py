"""A kept model: its own section is labelled as in the fit, another by the same rules, and a bad file is refused."""

import json
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

import spatialpdvi
from spatialpdvi import InputError, InputWarning, load_model, predict, predict_file, save_model
from spatialpdvi.errors import NotConvergedWarning
from spatialpdvi.io.section.counts import CheckedRows
from spatialpdvi.metrics.calibration import temper
from spatialpdvi.prediction.predict import _check_genes
from spatialpdvi.prediction.shift import _Groups, similarity_to_model

OPTIONS = {"k": 4, "n_top_genes": 100, "n_init": 2}


@pytest.fixture(scope="module")
def section():
    from spatialpdvi.synthetic import simulate

    return simulate(n_spots=900, n_genes=200, k=4, seed=3, easy=True)


@pytest.fixture(scope="module")
def fit(section):
    return spatialpdvi.fit(section.copy(), **OPTIONS)


@pytest.fixture
def path(fit, tmp_path):
    save_model(fit, tmp_path / "model.npz")
    return tmp_path / "model.npz"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transform": "log1p", "clip": 3.0},
        {"transform": "sqrt", "target_sum": 500.0},
        {"whiten": False},
        {"smooth": 30, "cross_patch_edges": False, "beta": 0.5},
    ],
)
def test_the_section_of_the_fit_has_the_domains_of_the_fit(section, options):
    fit = spatialpdvi.fit(section.copy(), **OPTIONS, **options)
    again = predict(section.copy(), model=fit.model)
    # some spots at borders end elsewhere: edges follow the borders of another start. Up to 13 of 900 over three seeds
    assert (fit.domains == again.domains).mean() > 0.985
    np.testing.assert_allclose(again.features, fit.features, atol=1e-3)
    assert again.certificate.converged
    assert again.params["outside"] == pytest.approx(1e-3, abs=2e-3)
    assert again.params["shift"] < 0.05


@pytest.mark.parametrize("k", [4, "3:4"])
def test_features_that_are_no_genes_are_told_once_and_only_in_a_fit(section, fit, k):
    adata = section.copy()
    adata.var["feature_types"] = ["Gene Expression"] * 150 + ["Antibody Capture"] * 50
    with pytest.warns(InputWarning) as caught:
        spatialpdvi.fit(adata, **OPTIONS | {"k": k})
    assert sum("50 of 200 features in X are no genes by" in str(one.message) for one in caught) == 1
    predict(adata, model=fit.model, key_added="other")  # its genes are those of the model; warnings are errors


def test_a_mirrored_copy_has_the_same_domains(section, fit):
    image = section.copy()
    image.obsm["spatial"] = image.obsm["spatial"] * [-1.0, 1.0] + 1e4
    a, b = (predict(one, model=fit.model) for one in (section.copy(), image))
    np.testing.assert_array_equal(a.domains, b.domains)


def test_what_is_written_is_what_a_fit_writes(section, fit, path):
    adata = section.copy()
    predict(adata, model=path)
    fitted = section.copy()
    spatialpdvi.fit(fitted, **OPTIONS)
    assert set(adata.obs) == set(fitted.obs) - {"pdvi_agreement"}
    assert set(adata.obsm) == set(fitted.obsm)
    uns = adata.uns["pdvi"]
    assert set(uns) == set(fitted.uns["pdvi"])
    np.testing.assert_array_equal(uns["domain_mean"], fit.domain_mean)
    np.testing.assert_array_equal(uns["log_variance"], fit.log_variance)
    assert uns["params"]["model"] == "model.npz"
    assert (uns["params"]["n_genes"], uns["params"]["n_genes_missing"]) == (fit.params["n_genes"], 0)
    assert uns["params"]["smooth"] == fit.params["smooth"]
    domains = adata.obs["pdvi_domain"]
    assert list(domains.cat.categories) == ["0", "1", "2", "3"]
    assert uns["scores"]["ari"] == pytest.approx(adjusted_rand_score(adata.obs["annotation"], domains))


def test_posteriors_are_tempered_as_the_fit_has_learnt(section, fit, path):
    adata = section.copy()
    found = predict(adata, model=path)
    params, scores = adata.uns["pdvi"]["params"], adata.uns["pdvi"]["scores"]["calibration"]
    assert params["temperature"] == fit.params["temperature"] > 1.0
    calibrated = adata.obsm["pdvi_posterior_calibrated"]
    np.testing.assert_allclose(calibrated, temper(found.posterior, fit.params["temperature"]), atol=1e-6)
    np.testing.assert_array_equal(adata.obs["pdvi_confidence_calibrated"], calibrated.max(axis=1))
    assert scores["ece_calibrated"] == pytest.approx(fit.scores["calibration"]["ece_calibrated"], abs=0.02)
    assert scores["ece_calibrated"] < scores["ece"]


def test_a_model_of_a_fit_without_restarts_calibrates_nothing(section, tmp_path):
    adata = section.copy()
    spatialpdvi.fit(adata, **OPTIONS)
    fit = spatialpdvi.fit(adata, k=4, n_top_genes=100, init="pdvi_domain", key_added="again")
    save_model(fit, tmp_path / "model.npz")
    found = predict(adata, model=tmp_path / "model.npz")
    assert found.calibration is None
    assert "pdvi_posterior_calibrated" not in adata.obsm
    assert "pdvi_confidence_calibrated" not in adata.obs
    assert "temperature" not in adata.uns["pdvi"]["params"]
    assert set(adata.uns["pdvi"]["scores"]["calibration"]) == {"accuracy", "ece", "reliability"}


def test_f_never_rises_and_posteriors_end_stationary(section, fit):
    found = predict(section.copy(), model=fit.model)
    f = found.trace["neg_elbo"]
    assert len(f) > 2
    assert found.scores["baseline"]["ari"] < found.scores["ari"]  # what spots say without their neighbours
    assert (np.diff(f) <= 1e-9 * np.abs(f[0])).all()
    certificate = found.certificate
    assert certificate.stationarity_posterior <= 1e-4
    # the globals are fixed: where this section would have them is reported, and is no condition
    assert certificate.stationarity_mean > 1e-4


def test_domains_keep_the_models_numbers(section, fit):
    """A part of the section in which the model's largest domain is missing."""
    part = section[fit.domains != 0].copy()
    expected = fit.domains[fit.domains != 0]
    found = predict(part, model=fit.model)
    assert (found.domains == expected).mean() > 0.95
    assert list(part.obs["pdvi_domain"].cat.categories) == ["0", "1", "2", "3"]
    assert found.posterior.shape[1] == found.n_domains == 4


def test_the_same_tissue_counted_again_has_the_same_domains(section):
    """Every molecule falls into one of two sections by chance: given the tissue, their noise is independent."""
    counts = section.X.astype(int)
    first, second = section.copy(), section.copy()
    first.X, second.X = counts.copy(), counts.copy()
    first.X.data = np.random.default_rng(0).binomial(counts.data, 0.5)
    second.X.data = counts.data - first.X.data
    fit = spatialpdvi.fit(first, **OPTIONS)
    with warnings.catch_warnings():
        # of components that few genes make, 99.9 % of the fit's own spots are too few to know the tail by
        warnings.filterwarnings("ignore", message=r".*farther from every domain", category=InputWarning)
        found = predict(second, model=fit.model)
    assert found.scores["ari"] > 0.85 * fit.scores["ari"]
    assert adjusted_rand_score(fit.domains, found.domains) > 0.7


def test_a_file_holds_the_whole_model(section, fit, path, tmp_path):
    model = load_model(path)
    assert repr(model) == repr(fit.model) == f"Model(4 domains, 15 features of {fit.params['n_genes']} genes)"
    arrays, facts = fit.model.parts()
    read_arrays, read_facts = model.parts()
    assert read_facts == facts
    for name, values in arrays.items():
        np.testing.assert_array_equal(read_arrays[name], values)
    from spatialpdvi.io.storage.archive import write_archive

    write_archive(tmp_path / "again.npz", read_arrays, read_facts, option="--save-model")
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    a, b = (predict(section.copy(), model=one) for one in (fit.model, path))
    np.testing.assert_array_equal(a.posterior, b.posterior)


def test_genes_are_matched_by_name(section, fit):
    turned = section[:, ::-1].copy()
    a, b = (predict(one, model=fit.model) for one in (section.copy(), turned))
    np.testing.assert_array_equal(a.domains, b.domains)
    np.testing.assert_allclose(a.features, b.features, atol=1e-4)


def test_missing_genes_are_told_and_too_many_refused(section, fit):
    used = fit.model.space.genes.genes
    few = section[:, ~section.var_names.isin(used[:3])].copy()
    with pytest.warns(InputWarning, match=rf"^The section lacks 3 of the model's {used.size} genes \(3%\)"):
        found = predict(few, model=fit.model)
    assert found.params["n_genes_missing"] == 3
    assert adjusted_rand_score(fit.domains, found.domains) > 0.7
    # one in a hundred is told by its number alone
    almost = section[:, ~section.var_names.isin(used[:1])].copy()
    assert predict(almost, model=fit.model).params["n_genes_missing"] == 1
    many = section[:, ~section.var_names.isin(used[: used.size // 2 + 1])].copy()
    with pytest.raises(
        InputError, match=rf"Expected most of the model's {used.size} genes, found {used.size // 2 - 1}"
    ):
        predict(many, model=fit.model)
    assert "pdvi" not in many.uns


@pytest.mark.parametrize(("share", "is_kind_of_names"), [(0.0, True), (0.05, True), (0.3, False)])
def test_where_some_names_match_their_kind_is_not_blamed(section, fit, share, is_kind_of_names):
    used = fit.model.space.genes.genes
    kept = set(used[: round(share * used.size)])
    other = section.copy()
    other.var_names = [name if name in kept else f"other {name}" for name in other.var_names]
    with pytest.raises(InputError) as caught:
        predict(other, model=fit.model)
    said = str(caught.value)
    assert f"found {len(kept)}" in said
    assert ("the kind of gene names that the model has" in said) == is_kind_of_names
    assert ("its first is" in said) == is_kind_of_names
    assert ("At least 50% are needed. Give the section with all of its genes" in said) != is_kind_of_names


@pytest.mark.filterwarnings(r"ignore:\d gene names? repeats? an earlier one:spatialpdvi.InputWarning")
@pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")
def test_a_gene_named_twice_is_refused(section, fit):
    used = fit.model.space.genes.genes
    twice = section.copy()
    twice.var_names = [used[0] if name == used[1] else name for name in twice.var_names]
    expected = "Expected unique gene names, to match genes by"
    with pytest.raises(InputError, match=rf"{expected}, found '{used[0]}' twice\. "):
        predict(twice, model=fit.model)
    twice.var_names = [used[2] if name == used[3] else name for name in twice.var_names]
    with pytest.raises(InputError, match=rf"found '{used[0]}' twice, and so 1 more\. .*`adata\.var_names_make_unique"):
        predict(twice, model=fit.model)


def test_spots_unlike_those_of_the_fit_are_told(section, fit):
    mixed = section.X[:, np.random.default_rng(0).permutation(section.n_vars)]
    strange = ad.AnnData(mixed, obs=section.obs.copy(), var=section.var.copy(), obsm=dict(section.obsm))
    with pytest.warns(InputWarning, match=r"^[\d,]+ of 900 spots \(.*\) are farther from every domain than 99\.9 %"):
        found = predict(strange, model=fit.model)
    assert found.params["outside"] > 0.05


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.filterwarnings("ignore:.* spots? ha(s|ve) no neighbour:spatialpdvi.InputWarning")
@pytest.mark.filterwarnings(
    "ignore:.*farther from every domain:spatialpdvi.InputWarning"
)  # averages of so few are noise
def test_a_few_spots_are_enough(section, fit, n):
    few = section[:n].copy()
    del few.obs["annotation"]
    found = predict(few, model=fit.model)
    assert found.domains.shape == (n,)
    assert np.isfinite(found.posterior).all()


@pytest.mark.filterwarnings("ignore:The variances .* do not fall:spatialpdvi.errors.InputWarning")  # of six drawn ones
@pytest.mark.parametrize(("width", "offset", "options"), [(4, 0.0, {}), (6, 1e3, {"n_pcs": 4})])
def test_features_that_are_given_need_no_genes(section, tmp_path, width, offset, options):
    """Only the first columns may be fitted, and they may lie far from zero."""
    rng = np.random.default_rng(0)
    section = section.copy()
    groups = np.eye(4, width)[section.obs["annotation"].cat.codes % 4]
    section.obsm["X_emb"] = groups * 3.0 + rng.normal(size=(900, width)) + offset
    fit = spatialpdvi.fit(section, k=4, rep="X_emb", n_init=2, **options)
    save_model(fit, tmp_path / "model.npz")
    again = predict(section.copy(), model=tmp_path / "model.npz")
    assert (fit.domains == again.domains).mean() > 0.98
    np.testing.assert_allclose(again.features, fit.features, atol=1e-3)
    wide = section.copy()
    wide.obsm["X_emb"] = np.hstack([wide.obsm["X_emb"]] * 2)
    with pytest.raises(InputError, match=rf"Expected 'X_emb' to have the {width} columns .* found {2 * width}"):
        predict(wide, model=fit.model)
    del wide.obsm["X_emb"]
    with pytest.raises(InputError, match=r"Expected obsm\['X_emb'\] in the AnnData, .* found keys: .*'spatial'"):
        predict(wide, model=fit.model)


def test_a_section_with_a_shift_of_its_own_can_be_centred(section):
    section = section.copy()
    rng = np.random.default_rng(0)
    section.obsm["X_emb"] = np.eye(4)[section.obs["annotation"].cat.codes % 4] * 3.0 + rng.normal(size=(900, 4))
    fit = spatialpdvi.fit(section.copy(), k=4, rep="X_emb", n_init=2)
    shifted = section.copy()
    shifted.obsm["X_emb"] = shifted.obsm["X_emb"] + 50.0
    with pytest.warns(InputWarning, match=r"Try `correct='center'`, or fit the sections together\.$"):
        lost = predict(shifted.copy(), model=fit.model)
    found = predict(shifted, model=fit.model, correct="center")
    assert adjusted_rand_score(fit.domains, found.domains) > 0.98 > adjusted_rand_score(fit.domains, lost.domains)


def test_several_sections_stay_apart(section, fit):
    image = section.copy()
    image.obsm["spatial"] = image.obsm["spatial"] * [-1.0, 1.0]
    both = ad.concat({"a": section, "b": image}, label="slice", index_unique="-")
    found = predict(both, model=fit.model, sample_key="slice")
    alone = predict(section.copy(), model=fit.model)
    assert (found.domains[:900] == alone.domains).mean() > 0.99
    assert (found.domains[900:] == alone.domains).mean() > 0.99
    samples = found.scores["samples"]
    assert list(samples["sample"]) == ["a", "b"]
    sizes = found.sizes_by_section()
    assert sizes.index.tolist() == ["a", "b"]
    np.testing.assert_array_equal(sizes.loc["b"], np.bincount(found.domains[900:], minlength=4))
    assert alone.sizes_by_section() is None
    assert samples["shift"].shape == samples["outside"].shape == (2,)
    assert samples["shift"][0] == pytest.approx(alone.params["shift"], abs=1e-3)


def test_tissue_of_another_kind_is_told_with_numbers(fit):
    from spatialpdvi.synthetic import simulate

    other = simulate(n_spots=900, n_genes=200, k=4, seed=4, easy=True)
    with pytest.warns(InputWarning, match=r"^900 of 900 spots \(100.0%\) are farther .* moved by 1\d\d\d% of the way"):
        found = predict(other, model=fit.model)
    assert found.params["outside"] == 1.0
    assert found.params["shift"] > 10.0


def test_domains_between_those_of_the_model_are_told_though_none_is_far(section):
    """Every spot lies within the reach, and half of the way to another domain."""
    section = section.copy()
    rng = np.random.default_rng(0)
    section.obsm["X_emb"] = np.eye(4)[section.obs["annotation"].cat.codes % 4] * 4.0 + rng.normal(size=(900, 4))
    fit = spatialpdvi.fit(section.copy(), k=4, rep="X_emb", smooth=0, n_init=2)
    other = section.copy()
    other.obsm["X_emb"] = np.full((900, 4), 1.1) + 0.3 * rng.normal(size=(900, 4))
    with pytest.warns(InputWarning, match=r"^0 of 900 spots \(0.0%\) are farther .* Try `correct='center'`"):
        found = predict(other, model=fit.model)
    assert found.params["shift"] > 0.45


@pytest.mark.parametrize(("moved", "error"), [(0.0, 2.0), (10.0, 0.2)])
def test_what_means_of_few_spots_differ_by_chance_is_no_shift(moved, error):
    """Of five spots and in 400 dimensions it is about sqrt(400 / 5), 9 sd, in every group."""
    rng, k, d = np.random.default_rng(0), 60, 400
    means = 50.0 * np.eye(k, d)
    away = rng.normal(size=(k, d))
    away *= moved / np.linalg.norm(away, axis=1, keepdims=True)
    groups = _Groups(means)
    groups.add(np.repeat(np.eye(k), 5, axis=0), np.repeat(means + away, 5, axis=0) + rng.normal(size=(5 * k, d)))
    way = 50.0 * np.sqrt(2.0)  # from each mean to every other
    assert groups.shift() * way == pytest.approx(moved, abs=error)


def test_the_section_of_several_that_is_unlike_is_named(section, fit):
    from spatialpdvi.synthetic import simulate

    other = simulate(n_spots=900, n_genes=200, k=4, seed=4, easy=True)
    both = ad.concat({"a": section, "b": other}, label="slice", index_unique="-")
    with pytest.warns(InputWarning, match=r"^In section 'b', 783 of 900 spots") as caught:
        found = predict(both, model=fit.model, sample_key="slice", correct="center")
    (warning,) = [str(w.message) for w in caught if "farther from every domain" in str(w.message)]
    assert warning.endswith("These domains may mean little. Fit the sections together.")
    assert found.scores["samples"]["outside"][0] < 0.05 < found.scores["samples"]["outside"][1]


def test_spots_without_neighbours_lead_to_no_option_that_is_not_there(section, fit):
    apart = section.copy()
    apart.obsm["spatial"][3] = 5.0 * apart.obsm["spatial"].max(axis=0)
    with pytest.warns(
        InputWarning, match=r"^1 spot has no neighbour; .* To join it, fit a model with a larger `n_neighbors`\.$"
    ):
        predict(apart, model=fit.model)


def test_counts_that_are_none_lead_to_no_option_that_is_not_there(section, fit):
    logs = section.copy()
    logs.X = logs.X.copy()
    logs.X.data = np.log1p(logs.X.data)
    with pytest.raises(InputError, match=r" Name the layer of the counts with `layer`\.$"):
        predict(logs, model=fit.model)


def test_a_model_of_sections_that_were_centred_centres(section):
    both = ad.concat({"a": section, "b": section.copy()}, label="slice", index_unique="-")
    model = spatialpdvi.fit(both, sample_key="slice", correct="center", states="off", **OPTIONS).model
    assert predict(section.copy(), model=model).params["correct"] == "center"
    assert predict(section.copy(), model=model, correct="none").params["correct"] == "none"
    with pytest.raises(InputError, match=r"Expected `correct` to be one of none, center, harmony, found 'combat'"):
        predict(section.copy(), model=model, correct="combat")


NO_MODEL = (
    r"^Expected the result of a fit with a model, found one without\. Predictions and fits of sparse features have no "
    r"model, nor do fits with `graph`, `correct='harmony'`, `transform='pearson'` or `n_pcs=0`, or with genes that "
    r"share a name\.$"
)


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
@pytest.mark.parametrize("options", [{"transform": "pearson"}, {"n_pcs": 0}])
def test_a_fit_that_cannot_be_kept_has_no_model(section, tmp_path, options):
    fit = spatialpdvi.fit(section.copy(), max_epochs=2, **OPTIONS, **options)
    assert fit.model is None
    with pytest.raises(InputError, match=NO_MODEL):
        save_model(fit, tmp_path / "model.npz")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_and_no_checkpoint_is_refused(section, fit):
    with pytest.raises(InputError, match=r"^Expected `model` to be a model or the path of .* Give result\.model"):
        predict(section.copy(), model=fit)
    with pytest.raises(InputError, match=r"found None\. Fit one, or read it with `load_model`\."):
        predict(section.copy(), model=None)
    with pytest.raises(InputError, match=r"^Expected `checkpoint` to be a spatialpdvi\.Checkpoint, found 'folder'\."):
        spatialpdvi.fit(section.copy(), k=3, checkpoint="folder")


def test_errors_about_a_model_name_the_argument_that_it_was_given_by(section, fit, tmp_path):
    with pytest.raises(InputError, match=r"choose another `path`"):
        save_model(fit, tmp_path / "no" / "model.npz")
    with pytest.raises(InputError, match=r"Choose another `path`\.$"):
        load_model(tmp_path / "none.npz")
    with pytest.raises(InputError, match=r"Choose another `model`\.$"):
        predict(section.copy(), model=tmp_path / "none.npz")


def test_a_prediction_does_not_replace_its_model(section, path, tmp_path):
    section.write_h5ad(tmp_path / "section.h5ad")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"^Expected `output` to be another file than '.*model\.npz', found the same"):
        predict_file(tmp_path / "section.h5ad", model=path, output=path)
    assert path.read_bytes() == before


def test_counts_that_are_read_in_blocks_have_the_same_prediction(section, path, tmp_path, monkeypatch):
    section.write_h5ad(tmp_path / "section.h5ad")
    whole = predict_file(tmp_path / "section.h5ad", model=path, output=tmp_path / "whole.h5ad")
    read = []
    blocks = CheckedRows.blocks
    monkeypatch.setattr(CheckedRows, "blocks", lambda rows: read.append(rows) or blocks(rows))
    parts = predict_file(tmp_path / "section.h5ad", model=path, output=tmp_path / "parts.h5ad", memory="1KB")
    assert read
    np.testing.assert_array_equal(parts.posterior, whole.posterior)
    for function in (predict, predict_file):
        with pytest.raises(InputError, match=r"^Expected `memory` to be a size such as 8GB or 500MB, found 'much'\.$"):
            function(section if function is predict else tmp_path / "section.h5ad", model=path, memory="much")


def test_a_prediction_is_no_model(section, fit, tmp_path):
    with pytest.raises(InputError, match=NO_MODEL):
        save_model(predict(section.copy(), model=fit.model), tmp_path / "model.npz")


def _rewritten(path, change):
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    facts = json.loads(str(arrays.pop("facts")))
    change(arrays, facts)
    with path.open("wb") as file:
        np.savez(file, facts=np.array(json.dumps(facts)), **arrays)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a, f: f.update(format=1), r"to be of format 2 or 5, found 1"),
        (lambda a, f: f.pop("format"), r"to be of format 2 or 5, found None"),
        (lambda a, f: f.pop("temperature"), r"damaged \(no 'temperature'\)"),
        (lambda a, f: f.update(temperature=0.5), r"damaged \(temperature 0.5\)"),
        (lambda a, f: f.update(temperature="hot"), r"damaged"),
        (lambda a, f: a.pop("rotation"), r"damaged \(no 'rotation'\)"),
        (lambda a, f: a.update(rotation=a["rotation"][:3]), r"damaged \(rotation of float64 and shape \(3, 15\)\)"),
        (lambda a, f: a["noise_sd"].fill(0.0), r"damaged \(noise_sd with impossible values\)"),
        (lambda a, f: a["domain_mean"].fill(np.nan), r"damaged \(domain_mean with impossible values\)"),
        (lambda a, f: a.update(genes=np.arange(3)), r"damaged"),
        (lambda a, f: f["options"].pop("beta"), r"damaged \(no 'beta'\)"),
        (lambda a, f: f["options"].update(beta=-1.0), r"damaged \(.*beta.*at least 0"),
        (lambda a, f: f.update(options=3), r"damaged"),
        (lambda a, f: f["recipe"].update(transform="pearson"), r"damaged"),
        (lambda a, f: f.update(reach="far"), r"damaged"),
        (lambda a, f: f.update(reach=float("nan")), r"damaged \(reach nan\)"),
        (lambda a, f: f.update(reach=-1.0), r"damaged \(reach -1\.0\)"),
        (lambda a, f: a.pop("colours"), r"damaged \(no 'colours'\)"),
        (lambda a, f: a.update(colours=np.array(["#00ff00"])), r"damaged \(colours other than 4 hexadecimal ones\)"),
    ],
)
def test_a_model_that_cannot_be_is_refused(path, change, words):
    _rewritten(path, change)
    with pytest.raises(InputError, match=words):
        load_model(path)


class _Trap:
    def __reduce__(self):
        return print, ("a pickle was run",)


DAMAGED = (
    r"model\.npz' to be a file that `save_model` wrote, found another kind of file, or a damaged one\. "
    r"Choose another `path`\.$"
)


def _write(path, how, *arrays, **named):
    with path.open("wb") as file:
        how(file, *arrays, **named)


def _mark_as_encrypted(path):
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\1\2") + 8] |= 1  # a flag in the entry of the last array
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"not an archive at all"),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(path.read_bytes()[:3000] + b"\0" * 900 + path.read_bytes()[3900:]),
        _mark_as_encrypted,
        lambda path: _write(path, np.save, np.arange(3)),
        lambda path: _write(path, np.savez, a=np.arange(3)),
        lambda path: _write(path, np.savez, facts=np.array("[1, 2]")),
        lambda path: _write(path, np.savez, facts=np.array("{")),
        lambda path: _write(path, np.savez, facts=np.array([_Trap()], dtype=object)),
    ],
)
def test_a_damaged_file_is_refused_and_nothing_in_it_is_run(path, damage, capsys):
    damage(path)
    with pytest.raises(InputError, match=DAMAGED):
        load_model(path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("moved", "likeliest", "shift"), [(3.0, [0, 1], 0.3), (0.0, [1, 1], 0.5)])
def test_domains_of_states_have_moved_as_far_as_their_states_or_compositions_have(moved, likeliest, shift):
    """The spots of two domains lie at the means of their states, the states at 0 and 10, all else being certain."""
    means = np.array([[0.0], [10.0]])
    model = SimpleNamespace(
        lam=SimpleNamespace(m=means, rho=np.full((2, 1), -20.0), theta=np.array([[10.0, 0.0], [0.0, 10.0]])),
        states=SimpleNamespace(spot_mean=means, prior_weight=np.ones(2)),
        hyperparameters=SimpleNamespace(noise_sd=np.ones(1)),
        n_domains=2,
        reach=5.0,
        distance=lambda x: np.abs(x - means.T).min(axis=1),
    )
    domains = np.repeat([0, 1], 100)
    x = means[np.array(likeliest)[domains]] + moved
    found = similarity_to_model(x, x, domains, model)
    assert found.shift == pytest.approx(shift, abs=0.01)
    assert found.outside == 0.0


def test_the_similarity_of_several_sections_is_that_of_all_spots(section, fit):
    other = spatialpdvi.simulate(n_spots=900, n_genes=200, k=4, seed=4, easy=True)
    both = ad.concat({"a": section, "b": other}, label="slice", index_unique="-")
    with pytest.warns(InputWarning, match=r"^In section 'b'"):
        found = predict(both, model=fit.model, sample_key="slice", correct="none")
    of_each = found.scores["samples"]["outside"]
    assert of_each[0] < 0.05 < of_each[1]
    assert found.params["outside"] == pytest.approx(of_each.mean())
    assert found.params["shift"] > 2 * found.scores["samples"]["shift"][0]


def test_spots_that_are_drawn_in_count_as_far_from_every_state(section):
    """The reach of the model is that of its own far spots, which lie beyond its limit."""
    section = section.copy()
    rng = np.random.default_rng(0)
    section.obsm["X_emb"] = np.eye(4)[section.obs["annotation"].cat.codes % 4] * 6.0 + rng.normal(size=(900, 4))
    own = section.copy()
    own.obsm["X_emb"][rng.choice(900, 9, replace=False)] += 100.0
    fit = spatialpdvi.fit(own, k=4, rep="X_emb", smooth=0, n_init=2, states=4)
    section.obsm["X_emb"][::5] += 1000.0
    with pytest.warns(InputWarning, match=r"^180 of 900 spots \(20\.0%\) are farther from every state"):
        found = predict(section, model=fit.model)
    assert found.params["outside"] == pytest.approx(0.2)


def test_a_prediction_that_has_not_converged_is_told(section, fit, monkeypatch):
    monkeypatch.setattr("spatialpdvi.prediction.predict._MOST_SWEEPS", 1)
    with pytest.warns(NotConvergedWarning, match="Not converged"):
        found = predict(section.copy(), model=fit.model)
    assert not found.certificate.converged


@pytest.mark.parametrize(("n", "told"), [(50, True), (100, False)])
def test_a_single_gene_that_is_missing_is_told_where_it_is_more_than_a_hundredth(n, told):
    names = np.array([f"gene{i}" for i in range(n)])
    genes, section = SimpleNamespace(genes=names, counted=names), SimpleNamespace(gene_names=pd.Index(names[1:]))
    words = rf"^The section lacks 1 of the model's {n} genes \(2%\); they count as 0 in every spot\."
    with pytest.warns(InputWarning, match=words) if told else nullcontext():
        assert _check_genes(section, genes) == 1
