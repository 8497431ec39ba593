"""`--correct harmony`: sections come together, with the same bits for any number of threads."""

import json

import anndata as ad
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import run, run_apart
from sklearn.metrics import adjusted_rand_score

import spatialpdvi
from spatialpdvi import FitOptions, InputError
from spatialpdvi.cli import main
from spatialpdvi.errors import ResourceError
from spatialpdvi.features import correction
from spatialpdvi.features.correction import harmonise

pytest.importorskip("harmonypy")
OPTIONS = {"k": 3, "n_init": 1, "sample_key": "slice", "rep": "X_emb", "n_pcs": 4}


@pytest.fixture(scope="module")
def joint():
    """Two sections of one tissue in other shares; in the second, each domain is shifted in a way of its own."""
    rng = np.random.default_rng(0)
    side = 20
    points = np.indices((side, side)).reshape(2, -1).T.astype(float)
    parts = []
    for slice_, borders in enumerate(([7, 14], [4, 10])):
        truth = np.searchsorted(borders, points[:, 0], side="right")
        x = 6.0 * np.eye(4)[truth] + rng.normal(size=(side**2, 4))
        x[:, 3] += 9.0 * slice_
        x[:, 2] += 2.0 * slice_ * truth
        obs = {"annotation": np.array(["a", "b", "c"])[truth], "slice": [f"s{slice_}"] * side**2}
        part = ad.AnnData(obs=obs, obsm={"spatial": points, "X_emb": x})
        part.obs_names = [f"{slice_}-{i}" for i in range(side**2)]
        parts.append(part)
    return ad.concat(parts)


def test_sections_come_together(joint):
    found = {c: spatialpdvi.fit(joint.copy(), correct=c, **OPTIONS) for c in ("none", "center", "harmony")}
    ari = {c: adjusted_rand_score(joint.obs["annotation"], fit.domains) for c, fit in found.items()}
    assert ari["harmony"] > 0.95
    assert ari["harmony"] > ari["none"] + 0.2
    assert ari["harmony"] >= ari["center"]
    assert "harmonypy" in found["harmony"].params["versions"]
    assert "harmonypy" not in found["center"].params["versions"]


@pytest.mark.cli
@pytest.mark.usefixtures("several_threads")
def test_a_seed_gives_the_same_bits_with_any_number_of_threads(joint, tmp_path):
    joint.write_h5ad(tmp_path / "joint.h5ad")
    arguments = ["fit", tmp_path / "joint.h5ad", "--k", "3", "--n-init", "1", "--sample-key", "slice", "--rep", "X_emb"]
    arguments += ["--n-pcs", "4", "--correct", "harmony", "-q"]
    run_apart(*arguments, "--threads", "1", "-o", tmp_path / "one.h5ad")
    run(*arguments, "-o", tmp_path / "all.h5ad")  # as many as there are
    one, every = (ad.read_h5ad(tmp_path / f"{name}.h5ad") for name in ("one", "all"))
    np.testing.assert_array_equal(one.obsm["X_pdvi"], every.obsm["X_pdvi"])
    np.testing.assert_array_equal(one.obsm["pdvi_posterior"], every.obsm["pdvi_posterior"])


def test_the_seed_is_harmonys_too(joint):
    x, halves = joint.obsm["X_emb"], [np.arange(400), 400 + np.arange(400)]
    first = harmonise(x, halves, seed=2**32 - 1)
    np.testing.assert_array_equal(first, harmonise(x, halves, seed=2**32 - 1))
    assert (first != harmonise(x, halves, seed=0)).any()
    assert first.dtype == x.dtype
    assert harmonise(x[:, :1].astype(np.float32), halves, seed=0).dtype == np.float32


def test_files_of_counts_are_one_fit(toy_section, tmp_path):
    x = toy_section.obsm["spatial"][:, 0]
    paths = [tmp_path / "left.h5ad", tmp_path / "right.h5ad"]
    toy_section[x < np.median(x)].copy().write_h5ad(paths[0])
    toy_section[x >= np.median(x)].copy().write_h5ad(paths[1])
    common = ["--k", "4", "--n-top-genes", "100", "--n-init", "1", "--correct", "harmony"]
    report = tmp_path / "report.json"
    shown = CliRunner().invoke(main, ["fit", *map(str, paths), *common, "--report", str(report)])
    assert shown.exit_code == 0, shown.output
    assert "harmony" in json.loads(report.read_text())["seconds"]
    before = [path.read_bytes() for path in paths]
    refused = CliRunner().invoke(main, ["fit", *map(str, paths), *common, "--save-model", str(tmp_path / "m.npz")])
    assert refused.exit_code == 2
    assert "Expected `--correct` to be none or center with --save-model, found harmony" in refused.output
    assert [path.read_bytes() for path in paths] == before


def test_a_fit_leaves_no_model_and_predict_cannot_repeat_it(joint, tmp_path):
    fit = spatialpdvi.fit(joint.copy(), correct="harmony", **OPTIONS)
    assert fit.model is None
    with pytest.raises(
        InputError, match=r"^Expected the result of a fit with a model, found one without\. .*`correct='harmony'`"
    ):
        spatialpdvi.save_model(fit, tmp_path / "model.npz")
    model = spatialpdvi.fit(joint.copy(), **OPTIONS).model
    with pytest.raises(InputError, match="Expected `correct` to be none or center for a prediction, found harmony"):
        spatialpdvi.predict(joint.copy(), model=model, correct="harmony")


def test_what_cannot_be_corrected_is_refused(joint, monkeypatch):
    one = joint[joint.obs["slice"] == "s0"].copy()
    for options in (OPTIONS, {**OPTIONS, "sample_key": None}):
        with pytest.raises(InputError, match="Expected several sections with `correct='harmony'`, found one"):
            spatialpdvi.fit(one, correct="harmony", **options)
    with pytest.raises(InputError, match="Expected `n_pcs` to be at least 1 with `correct='harmony'`, found 0"):
        FitOptions(k=3, correct="harmony", n_pcs=0)
    few = joint[::50].copy()
    with pytest.raises(InputError, match="Expected at least 20 spots with `correct='harmony'`, found 16"):
        spatialpdvi.fit(few, correct="harmony", smooth=2, **OPTIONS)
    wide = joint.copy()
    wide.obsm["X_wide"] = np.random.default_rng(0).normal(size=(800, 61))
    with pytest.raises(InputError, match=r"at most 60 dense columns .* found 61 dense ones of 'X_wide'"):
        spatialpdvi.fit(wide, correct="harmony", **{**OPTIONS, "rep": "X_wide", "n_pcs": None})
    monkeypatch.setattr(correction, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'spatialpdvi\[harmony\]'"):
        spatialpdvi.fit(joint, correct="harmony", **OPTIONS)
    assert "pdvi" not in joint.uns


def test_without_its_package_harmony_is_refused(joint, monkeypatch):
    monkeypatch.setattr(correction, "find_spec", lambda _: None)
    message = (
        r"^The package harmonypy, which is needed for `correct='harmony'`, is not installed\. Install it with: pip"
    )
    with pytest.raises(ResourceError, match=message):
        spatialpdvi.fit(joint.copy(), correct="harmony", **OPTIONS)
