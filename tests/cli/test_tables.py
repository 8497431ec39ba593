"""The table of `--labels`: what the file says, in a form that other programs read."""

import sys

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from conftest import run

import spatialpdvi as spv
from spatialpdvi.api import write_domain_table
from spatialpdvi.errors import ResourceError

pytestmark = pytest.mark.cli
FIT = ("--k", 3, "--n-init", 1, "--n-top-genes", 60, "--tol", 1e-3, "-q")


@pytest.fixture
def files(tmp_path):
    paths = []
    for seed, name in enumerate(("one", "two")):
        adata = spv.simulate(n_spots=400, n_genes=60, k=3, easy=True, seed=seed)
        adata.obs["kept"] = np.arange(400) >= 7 * seed
        adata.obs_names = [f"{name}_{i}" for i in range(400)]
        paths.append(tmp_path / f"{name}.h5ad")
        adata.write_h5ad(paths[-1])
    return paths


def test_the_table_says_what_the_file_says(files, tmp_path):
    run("fit", files[0], *FIT, "--labels", tmp_path / "labels.csv", "--save-model", tmp_path / "model.npz")
    table, adata = pd.read_csv(tmp_path / "labels.csv", dtype={"domain": str}), ad.read_h5ad(files[0])
    assert table["spot"].tolist() == adata.obs_names.tolist()
    assert table["domain"].tolist() == adata.obs["pdvi_domain"].tolist()
    np.testing.assert_array_equal(table[["x", "y"]], adata.obsm["spatial"])
    np.testing.assert_allclose(table["confidence"], adata.obs["pdvi_confidence"], atol=1e-6)
    np.testing.assert_allclose(table["confidence_calibrated"], adata.obs["pdvi_confidence_calibrated"], atol=1e-6)
    posterior = table[[f"posterior_{k}" for k in range(3)]]
    np.testing.assert_allclose(posterior, adata.obsm["pdvi_posterior"], atol=1e-6)
    pd.testing.assert_frame_equal(spv.domain_table(adata), table, check_dtype=False)
    run("predict", files[1], "--model", tmp_path / "model.npz", "--labels", tmp_path / "more.csv", "-q")
    assert pd.read_csv(tmp_path / "more.csv")["spot"].tolist() == [f"two_{i}" for i in range(400)]


def test_files_that_are_fitted_together_have_one_table_without_spots_left_out(files, tmp_path):
    pytest.importorskip("pyarrow")
    said = run(
        "fit", *files, *FIT[:-1], "--mask", "kept", "-o", tmp_path / "out", "--labels", tmp_path / "all.parquet"
    ).output
    assert "all.parquet" in said
    table = pd.read_parquet(tmp_path / "all.parquet")
    assert table["section"].value_counts().to_dict() == {"one": 400, "two": 393}
    written = pd.concat([ad.read_h5ad(tmp_path / "out" / path.name).obs["pdvi_domain"] for path in files]).dropna()
    assert table["domain"].tolist() == written.tolist()


def test_of_several_files_those_with_sections_of_their_own_are_told_apart(files, tmp_path):
    own = {"one": ["left", "right"] * 200, "two": ["two"] * 400}
    for path in files:
        adata = ad.read_h5ad(path)
        if path.stem == "one":
            adata.obs["slice"] = own["one"]
        spv.fit(adata, k=3, n_init=1, n_top_genes=60, tol=1e-3, sample_key="slice" if "slice" in adata.obs else None)
        adata.write_h5ad(path)
    write_domain_table(files, tmp_path / "all.csv")
    table = pd.read_csv(tmp_path / "all.csv")
    assert table.columns[:4].tolist() == ["spot", "file", "section", "x"]
    assert table["file"].tolist() == ["one"] * 400 + ["two"] * 400
    assert table["section"].tolist() == own["one"] + own["two"]
    assert (table["spot"].str.split("_").str[0] == table["file"]).all()
    write_domain_table(files[:1], tmp_path / "one.csv")
    assert pd.read_csv(tmp_path / "one.csv").columns[:3].tolist() == ["spot", "section", "x"]


def test_another_column_of_sections(files, tmp_path):
    adata = ad.read_h5ad(files[0])
    adata.obs["slice"] = ["left", "right"] * 200
    spv.fit(adata, k=3, n_init=1, n_top_genes=60, tol=1e-3, sample_key="slice")
    first = spv.domain_table(adata)
    adata.obs["again"] = adata.obs.pop("slice")
    pd.testing.assert_frame_equal(spv.domain_table(adata, sample_key="again"), first)
    adata.write_h5ad(files[0])
    write_domain_table(files[:1], tmp_path / "one.csv", sample_key="again")
    assert pd.read_csv(tmp_path / "one.csv")["section"].tolist() == first["section"].tolist()


def test_files_that_cannot_be_told_apart_or_none_make_no_table(files, tmp_path):
    (tmp_path / "more").mkdir()
    again = files[0].rename(tmp_path / "more" / files[1].name)
    with pytest.raises(spv.InputError, match=r"^Expected files with different names, found 'two' twice"):
        write_domain_table([files[1], again], tmp_path / "all.csv")
    with pytest.raises(spv.InputError, match=r"^Expected at least one fitted file, found none"):
        write_domain_table([], tmp_path / "all.csv")
    assert not (tmp_path / "all.csv").exists()


def test_edited_domains_have_columns_by_their_names(files):
    adata = ad.read_h5ad(files[0])
    spv.fit(adata, k=3, n_init=1, n_top_genes=60, tol=1e-3)
    spv.label(adata, spv.Merge(["1", "2"], name="Cortex"))
    table = spv.domain_table(adata)
    assert table.columns[-2:].tolist() == ["posterior_0", "posterior_Cortex"]
    np.testing.assert_allclose(table[["posterior_0", "posterior_Cortex"]].sum(axis=1), 1.0, atol=1e-5)


def test_what_cannot_be_written_is_refused_before_the_fit(files, tmp_path, monkeypatch):
    before = files[0].read_bytes()
    for name, said in (
        ("labels.xlsx", "`--labels` to be a file that ends in .csv, .tsv or .parquet"),
        ("no/labels.csv", "--labels"),
        ("one.h5ad", "another file than"),
    ):
        assert said in " ".join(run("fit", files[0], *FIT, "--labels", tmp_path / name, code=2).output.split())
    predict = ("predict", files[0], "--model", tmp_path / "model.npz")
    for command, flag in (
        (("fit", files[0], *FIT), "--json"),
        (("fit", files[0], *FIT), "--save-model"),
        (predict, "--json"),
    ):
        others = (flag, tmp_path / "labels.csv", "--labels", tmp_path / "labels.csv")
        assert "Expected `--labels` to be another file than" in run(*command, *others, code=2).output
    same = ("--json", tmp_path / "one.txt", "--save-model", tmp_path / "one.txt")
    assert "Expected `--save-model` to be another file than" in run("fit", files[0], *FIT, *same, code=2).output
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr("spatialpdvi.api.tables.find_spec", lambda _: None)
    assert "pip install pyarrow" in run("fit", files[0], *FIT, "--labels", tmp_path / "a.parquet", code=2).output
    assert files[0].read_bytes() == before


def test_in_python_errors_name_the_argument(files, tmp_path):
    for output in (tmp_path / "labels.xlsx", tmp_path / "no" / "labels.csv"):
        with pytest.raises(spv.InputError, match="`output`") as raised:
            write_domain_table(files, output)
        assert "`labels`" not in str(raised.value)


def test_a_section_without_a_fit_has_no_table(files):
    with pytest.raises(spv.InputError, match="a fitted section"):
        spv.domain_table(ad.read_h5ad(files[0]))


def test_a_table_that_cannot_be_written_costs_no_model(files, tmp_path, monkeypatch):
    def fill_the_disk(*_, **__):
        raise ResourceError("The disk is full.")

    monkeypatch.setattr("spatialpdvi.api.write_domain_table", fill_the_disk)
    outputs = ("--labels", tmp_path / "a.csv", "--save-model", tmp_path / "model.npz")
    said = " ".join(run("fit", files[0], *FIT, *outputs, code=2).output.split())
    assert said.endswith("the table was not written.")
    assert spv.load_model(tmp_path / "model.npz").lam.m.shape[0] == 3
