"""`fit --save-model` and `predict` as a user runs them: results, refusals, and files that stay as they were."""

import json
import re

import anndata
import numpy as np
import pytest
from conftest import run, run_apart
from zarr_samples import files_of

from spatialpdvi.prediction import predict as prediction

pytestmark = pytest.mark.cli

FIT = ["--k", "4", "--n-top-genes", "100", "--n-init", "2"]


def _refusal(*arguments):
    stderr = run(*arguments, code=2).stderr
    # what was read so far is told above
    assert re.search(r"^Error: Expected .*\n\Z", stderr, flags=re.MULTILINE), stderr
    assert "Traceback" not in stderr
    return stderr


@pytest.fixture(scope="module")
def kept(toy_section, tmp_path_factory):
    """The bytes of a model, and those of the section that it was fitted on and written into."""
    folder = tmp_path_factory.mktemp("kept")
    toy_section.write_h5ad(folder / "section.h5ad")
    shown = run("fit", folder / "section.h5ad", *FIT, "--save-model", folder / "model.npz")
    assert f"model: {folder / 'model.npz'}" in shown.stdout
    return (folder / "model.npz").read_bytes(), (folder / "section.h5ad").read_bytes()


@pytest.fixture
def model(kept, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(kept[0])
    return path


def test_a_kept_model_finds_its_domains_again(kept, model, toy_file, tmp_path):
    before = toy_file.read_bytes()
    out, report = tmp_path / "out.h5ad", tmp_path / "report.json"
    shown = run("predict", toy_file, "--model", model, "-o", out, "--report", report)
    assert toy_file.read_bytes() == before
    assert model.read_bytes() == kept[0]
    fitted = tmp_path / "fitted.h5ad"
    fitted.write_bytes(kept[1])
    found, expected = anndata.read_h5ad(out), anndata.read_h5ad(fitted)
    assert (found.obs["pdvi_domain"] == expected.obs["pdvi_domain"]).mean() > 0.98
    assert "domain sizes, in the order of the model: " in shown.stdout
    assert "start of the prediction" in shown.stdout
    assert "the domains are the model's" in shown.stdout
    content = json.loads(report.read_text())
    assert set(content) >= {"output", "scores", "certificate", "domain_sizes", "params", "seconds", "peak_memory_bytes"}
    assert content["params"]["model"] == "model.npz"
    assert content["scores"]["ari"] == pytest.approx(found.uns["pdvi"]["scores"]["ari"])


def test_the_result_goes_back_into_the_file_beside_others_and_is_replaced(model, toy_file, tmp_path):
    x = anndata.read_h5ad(toy_file).X.toarray()
    for _ in range(2):
        run("predict", toy_file, "--model", model, "--key-added", "kept", "--save-graph", "-q")
    adata = anndata.read_h5ad(toy_file)
    assert {"kept_domain", "kept_confidence", "kept_entropy"} <= set(adata.obs)
    assert {"kept_posterior", "X_kept", "kept_flow"} <= set(adata.obsm)
    assert "kept_connectivities" in adata.obsp
    np.testing.assert_array_equal(adata.X.toarray(), x)
    run("plot", toy_file, "--key-added", "kept", "-o", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 0


def test_a_prediction_replaces_a_fit_and_leaves_nothing_of_it(kept, model, tmp_path):
    path = tmp_path / "section.h5ad"
    path.write_bytes(kept[1])
    assert "pdvi_agreement" in anndata.read_h5ad(path).obs
    run("predict", path, "--model", model)
    assert "pdvi_agreement" not in anndata.read_h5ad(path).obs


def test_what_a_prediction_lacks_is_got_by_a_prediction(model, toy_file, tmp_path):
    run("predict", toy_file, "--model", model, "-q")
    nowhere = tmp_path / "no.png"
    for kind in ("flow", "edges"):
        stderr = _refusal("plot", toy_file, "--kind", kind, "-o", nowhere)
        assert "not saved: predict again with --save-graph." in stderr
    stderr = _refusal("intervals", toy_file, "--gene", "gene00001", "--method", "linear-response")
    assert "predict again with --save-graph." in stderr
    stderr = _refusal("plot", toy_file, "--kind", "agreement", "-o", nowhere)
    assert "Predictions have none" in stderr
    assert "--init" not in stderr
    adata = anndata.read_h5ad(toy_file)
    del adata.obs["pdvi_entropy"]
    adata.obsm.pop("pdvi_state", None)
    adata.write_h5ad(toy_file)
    for kind, words in (("entropy", "Run `spatialpdvi predict` again."), ("states", "predict with such a model.")):
        assert words in _refusal("plot", toy_file, "--kind", kind, "-o", nowhere)
    assert not nowhere.exists()


def test_a_joint_fit_is_kept_as_well(toy_section, tmp_path):
    paths = [tmp_path / "one.h5ad", tmp_path / "two.h5ad"]
    for path in paths:
        toy_section.write_h5ad(path)
    # where this weak section's compositions end depends on the start; fitting/test_compositions.py has a stronger one
    run("fit", *paths, *FIT, "--correct", "center", "--states", "off", "--save-model", tmp_path / "model.npz")
    run("predict", paths[0], "--model", tmp_path / "model.npz", "-o", tmp_path / "out.h5ad")
    found, expected = anndata.read_h5ad(tmp_path / "out.h5ad"), anndata.read_h5ad(paths[0])
    assert (found.obs["pdvi_domain"] == expected.obs["pdvi_domain"]).mean() > 0.98
    assert found.uns["pdvi"]["params"]["correct"] == "center"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--transform", "pearson"],
            "Expected `--transform` to be one of none, log1p, sqrt with --save-model, found pearson",
        ),
        (["--n-pcs", "0"], "Expected `--n-pcs` to be at least 1 with --save-model, found 0"),
        (["--graph", "joined"], "Expected no --graph with --save-model, found 'joined'"),
        (["--rep", "X_sparse"], "Expected dense features with --save-model, found a sparse 'X_sparse'"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_the_fit(toy_file, tmp_path, arguments, words):
    import scipy.sparse as sp

    adata = anndata.read_h5ad(toy_file)
    n = adata.n_obs
    ring = sp.csr_matrix((np.ones(n), (np.arange(n), np.roll(np.arange(n), 1))), shape=(n, n))
    adata.obsp["joined"] = ring + ring.T
    adata.obsm["X_sparse"] = sp.csr_matrix(np.eye(n)[:, :8])
    adata.write_h5ad(toy_file)
    before = files_of(tmp_path)
    stderr = _refusal("fit", toy_file, *FIT, *arguments, "--save-model", tmp_path / "model.npz")
    assert words in stderr
    assert "start:" not in stderr
    assert files_of(tmp_path) == before


@pytest.mark.filterwarnings("ignore:Variable names are not unique:UserWarning")
def test_genes_that_share_a_name_are_refused_before_the_fit(toy_file, tmp_path):
    adata = anndata.read_h5ad(toy_file)
    adata.var_names = ["twin", "twin", *adata.var_names[2:]]
    adata.write_h5ad(toy_file)
    before = files_of(tmp_path)
    stderr = _refusal("fit", toy_file, *FIT, "--save-model", tmp_path / "model.npz")
    assert "found 'twin' twice" in stderr
    assert files_of(tmp_path) == before


def test_no_file_takes_the_place_of_another(model, toy_file, tmp_path):
    out = tmp_path / "out.h5ad"
    before = files_of(tmp_path)
    assert "`--save-model` to be another file than" in _refusal("fit", toy_file, *FIT, "--save-model", toy_file)
    assert "another file than" in _refusal("fit", toy_file, *FIT, "-o", out, "--save-model", out)
    assert "another file than" in _refusal("fit", toy_file, *FIT, "--report", out, "--save-model", out)
    assert "`--output` to be another file than" in _refusal("predict", toy_file, "--model", model, "-o", model)
    assert "`--json` to be another file than" in _refusal("predict", toy_file, "--model", model, "--report", model)
    assert "`--json` to be another file than" in _refusal("predict", toy_file, "--model", model, "--report", toy_file)
    assert files_of(tmp_path) == before


def test_places_that_cannot_be_written_are_refused_before_the_fit(toy_file, tmp_path):
    before = files_of(tmp_path)
    for place in (tmp_path / "nowhere" / "model.npz", tmp_path):
        stderr = _refusal("fit", toy_file, *FIT, "--save-model", place)
        assert "another --save-model" in stderr
        assert "genes:" not in stderr
    assert files_of(tmp_path) == before


@pytest.mark.usefixtures("several_threads")
def test_memory_and_threads_change_nothing(model, toy_file, tmp_path):
    line = ("predict", toy_file, "--model", model, "-q")
    run(*line, "-o", tmp_path / "a.h5ad")  # with as many threads as there are
    run_apart(*line, "-o", tmp_path / "b.h5ad", "--memory", "1KB", "--threads", 1)
    a, b = (anndata.read_h5ad(tmp_path / f"{name}.h5ad").obsm["pdvi_posterior"] for name in "ab")
    np.testing.assert_array_equal(a, b)
    assert "`--threads` to be at least 1, found 0" in _refusal("predict", toy_file, "--model", model, "--threads", 0)
    assert "`--memory` to be a size" in _refusal("predict", toy_file, "--model", model, "--memory", "much")


def test_models_that_are_none_are_refused(toy_file, tmp_path):
    (tmp_path / "text.npz").write_text("no model")
    before = files_of(tmp_path)
    for name, words in (("missing.npz", "no such file"), ("text.npz", "another kind of file"), (".", "a folder")):
        assert words in _refusal("predict", toy_file, "--model", tmp_path / name)
    assert words in _refusal("predict", toy_file, "--model", tmp_path)
    assert "--model" in run("predict", toy_file, code=2).stderr
    assert files_of(tmp_path) == before


def test_a_section_of_other_genes_is_refused(model, toy_file, tmp_path):
    adata = anndata.read_h5ad(toy_file)
    adata.var_names = [f"other{i}" for i in range(adata.n_vars)]
    adata.write_h5ad(toy_file)
    before = files_of(tmp_path)
    assert "Expected most of the model's 100 genes, found 0" in _refusal("predict", toy_file, "--model", model)
    assert files_of(tmp_path) == before


def test_names_of_the_users_are_not_taken(model, toy_file, tmp_path):
    before = files_of(tmp_path)
    assert "Choose another --key-added" in _refusal("predict", toy_file, "--model", model, "--key-added", "pca")
    assert "Expected `--correct` to be one of" in _refusal("predict", toy_file, "--model", model, "--correct", "x")
    assert files_of(tmp_path) == before


def test_posteriors_that_have_not_settled_are_written_and_said(model, toy_file, monkeypatch):
    monkeypatch.setattr(prediction, "_MOST_SWEEPS", 1)
    shown = run("predict", toy_file, "--model", model, code=3)
    assert "NOT CONVERGED: posteriors still moved" in shown.stderr
    assert not anndata.read_h5ad(toy_file).uns["pdvi"]["certificate"]["converged"]
