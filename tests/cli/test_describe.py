"""`spatialpdvi describe` end to end: what it prints, its folder, what it stores, and what it refuses."""

import json
import sys
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from conftest import run, run_apart

import spatialpdvi
from spatialpdvi import InputError, InputWarning
from spatialpdvi.cli.describe import _print_differences

pytestmark = pytest.mark.cli

QUICK = ("--n-perms", 10)


@pytest.fixture(scope="module")
def _fitted(toy_section, tmp_path_factory):
    """Four parts of a section, fitted together: files and conditions."""
    folder = tmp_path_factory.mktemp("describe")
    section = toy_section.copy()
    section.obs["kind"] = np.where(np.arange(600) % 3 == 0, "a", "b")
    parts = np.argsort(np.argsort(section.obsm["spatial"][:, 0])) * 4 // 600
    for i in range(4):
        part = section[parts == i].copy()
        part.obs["treated"] = "yes" if i % 2 else "no"
        part.write_h5ad(folder / f"part{i}.h5ad")
    options = spatialpdvi.FitOptions(k=4, n_top_genes=100, n_init=1)
    spatialpdvi.fit_files(sorted(folder.glob("*.h5ad")), options)
    return folder


@pytest.fixture
def parts(_fitted, tmp_path):
    paths = []
    for path in sorted(_fitted.glob("*.h5ad")):
        paths.append(tmp_path / path.name)
        paths[-1].write_bytes(path.read_bytes())
    return paths


def test_the_folder_holds_what_is_printed_and_what_python_returns(parts, tmp_path):
    folder = tmp_path / "out"
    shown = run("describe", *parts, "--by", "kind", "--condition", "treated", *QUICK, "-n", 4, "-o", folder).output
    assert {path.name for path in folder.iterdir()} == {
        *("sections.csv", "domains.csv", "composition.csv", "contacts.csv", "genes.csv", "differences.csv"),
        *("describe.json", "contacts.png", "composition.png"),
    }
    found = spatialpdvi.describe_files(parts, by="kind", condition="treated", n_perms=10, n_genes=4)
    names = {"section": str, "domain": str, "other": str, "type": str, "condition": str}
    for name, table in found.tables().items():
        written = pd.read_csv(folder / f"{name}.csv", dtype=names, keep_default_na=False, na_values={"p": "", "q": ""})
        assert list(written) == list(table)
        assert len(written) == len(table)
    content = json.loads((folder / "describe.json").read_text())
    assert content["sections"] == found.sections.to_dict("records")
    assert content["params"]["by"] == "kind"
    lines = shown.splitlines()
    assert "part0: 150 spots with an area of" in shown
    assert "differences between no (2 sections), yes (2 sections)" in lines
    assert "With these numbers of sections the smallest possible p is 0.333." in lines
    assert lines[-1] == f"written: {folder}"
    for row in found.domains[found.domains["spots"] > 0].itertuples():
        assert any(line.split()[:2] == [row.domain, str(row.spots)] for line in lines)
    assert min(differ["p"] for differ in content["differences"] if differ["p"] is not None) >= 1 / 3 - 1e-9


def test_a_second_run_leaves_nothing_of_the_first(parts, tmp_path):
    folder = tmp_path / "out"
    run("describe", parts[0], "--by", "kind", *QUICK, "-n", 3, "-o", folder)
    (folder / "notes.txt").write_text("mine")
    run("describe", parts[1], "-n", 0, *QUICK, "-o", folder)
    left = {path.name for path in folder.iterdir()}
    assert left == {"sections.csv", "domains.csv", "contacts.csv", "describe.json", "contacts.png", "notes.txt"}
    assert json.loads((folder / "describe.json").read_text())["sections"][0]["section"] == "part1"


def test_what_is_stored_is_in_the_report_until_the_next_fit(parts, tmp_path):
    before = ad.read_h5ad(parts[0])
    shown = run("describe", *parts[:2], "--by", "kind", *QUICK, "-n", 4, "--store").output
    assert f"written: {parts[1]} (uns['pdvi_describe'])" in shown
    after = ad.read_h5ad(parts[0])
    assert set(after.uns) - set(before.uns) == {"pdvi_describe"}
    stored = after.uns["pdvi_describe"]
    assert stored["params"]["by"] == "kind"
    expected = spatialpdvi.describe(before, by="kind", n_perms=10, n_genes=4)
    for name, table in expected.tables().items():
        own = pd.DataFrame(stored[name])[list(table)]
        assert set(own["section"]) == {"part0"}
        columns = [column for column in table if column != "section"]
        pd.testing.assert_frame_equal(own[columns], table[columns], check_dtype=False)
    page = spatialpdvi.report_files([parts[0]], n_genes=0)
    for domain in expected.domains[expected.domains["spots"] > 0].itertuples():
        assert f'<td class="number">{domain.area:.4g}</td>' in page
    assert "Contacts between domains" in page
    assert "Contacts between domains" not in spatialpdvi.report_files([parts[2]], n_genes=0)
    run("describe", parts[0], *QUICK, "-n", 0, "--store", "-q")  # again, over the first
    assert "genes" not in ad.read_h5ad(parts[0]).uns["pdvi_describe"]
    run("fit", parts[0], "--k", 3, "--rep", "X_pca", "--n-init", 1, "-q")
    assert "pdvi_describe" not in ad.read_h5ad(parts[0]).uns


def test_files_that_were_replaced_before_a_failure_are_named(parts, tmp_path):
    folder = tmp_path / "out"
    run("describe", parts[0], "--by", "kind", *QUICK, "-n", 4, "-o", folder, "-q")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "contacts.csv").unlink()
    (folder / "contacts.csv").mkdir()
    said = run("describe", parts[1], *QUICK, "-n", 0, "-o", folder, "-q", code=2).output
    written = [repr(str(folder / name)) for name in ("sections.csv", "domains.csv")]
    assert f"{' and '.join(written)} were written before; nothing else was." in said
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert {name for name in after if after[name] != before[name]} == {"sections.csv", "domains.csv"}
    assert before.keys() - after.keys() == {"contacts.csv"}
    (folder / "contacts.csv").rmdir()
    run("describe", parts[1], *QUICK, "-n", 0, "-o", folder, "-q")
    names = {"sections.csv", "domains.csv", "contacts.csv", "describe.json", "contacts.png"}
    assert {path.name for path in folder.iterdir()} == names


@pytest.mark.usefixtures("several_threads")
def test_the_same_bits_for_any_number_of_threads(parts, tmp_path):
    made = []
    for runner, threads in ((run_apart, ("--threads", 1)), (run, ())):  # here with as many as there are
        folder = tmp_path / str(len(made))
        done = runner("describe", *parts[:2], *QUICK, "-n", "20", *threads, "-o", folder, "-q")
        assert (done.stdout, done.stderr) == ("", "")
        made.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert made[0] == made[1]


def test_other_domains_need_no_fit(toy_file):
    with_gaps = ad.read_h5ad(toy_file)
    with_gaps.obs["layer"] = with_gaps.obs["annotation"].astype(object)
    with_gaps.obs.iloc[:10, with_gaps.obs.columns.get_loc("layer")] = None
    with_gaps.write_h5ad(toy_file)
    shown = run("describe", toy_file, "--domain-key", "layer", *QUICK, "-n", 0).output
    assert "has no domain for 10 of 600 spots; they are left out." in shown
    assert "section: 590 spots" in shown
    assert "--store" in run("describe", toy_file, "--domain-key", "layer", "--store", code=2).output
    assert "Run `spatialpdvi fit` first" in run("describe", toy_file, code=2).output


def test_without_counts_there_are_no_genes(parts):
    section = ad.read_h5ad(parts[0])
    section.X = section.X.toarray() + 0.5
    with pytest.warns(InputWarning, match=r"^No genes are tested\. Expected X to hold raw counts"):
        found = spatialpdvi.describe(section, n_perms=10)
    assert found.genes is None
    with pytest.raises(InputError, match="raw counts"):
        spatialpdvi.describe(section, n_perms=10, layer="X")


def test_one_domain_touches_nothing(parts):
    section = ad.read_h5ad(parts[0])
    section.obs["all"] = "tissue"
    found = spatialpdvi.describe(section, domain_key="all", n_genes=0, n_perms=10)
    assert len(found.contacts) == 1
    assert found.contacts[["z", "q", "border_z", "border_share"]].isna().all(axis=None)
    assert found.contacts["contacts"].item() > 500


def test_spots_without_neighbours_touch_nothing(parts):
    section = ad.read_h5ad(parts[0])[:1].copy()
    found = spatialpdvi.describe(section, n_perms=10)
    assert found.contacts["contacts"].tolist() == [0]
    assert found.genes.empty


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--by", "nothing"), "obs['nothing']"),
        (("--condition", "nothing"), "Name one of these with --condition."),
        (("--condition", "kind"), "one value of obs['kind'] in all spots of section 'part0'"),
        (("--condition", "treated"), "at least two conditions in obs['treated'], found 1 of 'no'"),
        (("--n-genes", -1), "`--n-genes` to be at least 0, found -1"),
        (("--n-perms", 1), "`--n-perms` to be at least 2, found 1"),
        (("--seed", -1), "`--seed` to be"),
        (("--layer", "nothing"), "layers['nothing']"),
        (("--gene-key", "nothing"), "'nothing' with names of genes"),
        (("--sample-key", "nothing"), "obs['nothing']"),
        (("--key-added", "other"), "Run `spatialpdvi fit` first"),
        (("-o", "nowhere/out"), "nowhere"),
        (("-o", "part0.h5ad"), "to be a folder, found the file"),
    ],
)
def test_what_cannot_be_used_is_refused_and_nothing_is_written(parts, monkeypatch, arguments, said):
    monkeypatch.chdir(parts[0].parent)
    before = {path.name: path.read_bytes() for path in parts}
    assert said in run("describe", "part0.h5ad", *QUICK, *arguments, code=2).output
    assert {path.name: path.read_bytes() for path in parts[0].parent.iterdir()} == before


def test_sections_of_the_same_name_are_refused(parts, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "part0.h5ad").write_bytes(parts[0].read_bytes())
    shown = run("describe", parts[0], other / "part0.h5ad", "-n", 0, *QUICK, code=2).output
    assert "sections with different names, found 'part0' twice" in shown


def test_without_squidpy_the_error_says_how_to_install_it(parts, monkeypatch):
    monkeypatch.setitem(sys.modules, "squidpy", None)
    shown = run("describe", parts[0], code=2).output
    assert "Install it: pip install 'spatialpdvi[squidpy]'." in shown
    assert "Traceback" not in shown


def test_a_changed_description_is_named_by_the_report(parts):
    section = ad.read_h5ad(parts[0])
    spatialpdvi.describe(section, n_genes=0, n_perms=10, store=True)
    section.uns["pdvi_describe"]["domains"]["spots"] = np.arange(2)
    section.write_h5ad(parts[0])
    with pytest.raises(InputError, match="no columns of equal length under 'domains'"):
        spatialpdvi.report_files([parts[0]], n_genes=0)


def test_differences_are_printed_with_their_q_values_and_the_smallest_p_of_all(capsys):
    table = pd.DataFrame(
        {
            "domain": ["0", "1"],
            "share_a": [0.1, 0.9],
            "share_b": [0.25, 0.75],
            "p": [0.0286, 0.1],
            "smallest_p": [0.0286, 0.1],
            "q": [0.0572, 0.111],
        }
    )
    sections = pd.DataFrame({"condition": ["a"] * 4 + ["b"]})
    _print_differences(SimpleNamespace(differences=table, sections=sections))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "differences between a (4 sections), b (1 section)"
    assert [line.split() for line in lines[2:4]] == [
        ["0", "10.0%", "25.0%", "0.0286", "0.0572"],
        ["1", "90.0%", "75.0%", "0.1", "0.111"],
    ]
    assert lines[4] == "With these numbers of sections the smallest possible p is 0.0286."
