"""`spatialpdvi intervals` end to end: what it prints, its folder, what it stores, and what it refuses."""

from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import run, run_apart
from zarr_samples import write_zarr

import spatialpdvi
from spatialpdvi import InputError, InputWarning
from spatialpdvi.cli.intervals import _print_estimates

pytestmark = pytest.mark.cli
FIT = ("--k", 4, "--n-top-genes", 100, "--n-init", 2)


@pytest.fixture(scope="module")
def _fitted(toy_section, tmp_path_factory):
    path = tmp_path_factory.mktemp("intervals") / "section.h5ad"
    toy_section.write_h5ad(path)
    spatialpdvi.fit_file(path, spatialpdvi.FitOptions(k=4, n_top_genes=100, n_init=2))
    return path


@pytest.fixture
def fitted(_fitted, tmp_path):
    path = tmp_path / "section.h5ad"
    path.write_bytes(_fitted.read_bytes())
    return path


def test_the_folder_the_file_and_python_have_the_same_tables(fitted, tmp_path):
    folder = tmp_path / "out"
    shown = run(
        "intervals", fitted, "--gene", "gene00001", "--gene", "gene00002", "--by", "annotation", "-o", folder, "--store"
    ).output
    assert "log2 fold change" in shown
    assert {path.name for path in folder.iterdir()} == {
        *("expression.csv", "contrasts.csv", "composition.csv", "intervals.png")
    }
    found = spatialpdvi.intervals_file(fitted, genes=["gene00001", "gene00002"], by="annotation")
    stored = ad.read_h5ad(fitted).uns["pdvi_intervals"]
    text = dict.fromkeys(("domain", "other", "gene", "type"), str)
    for name, table in found.tables().items():
        pd.testing.assert_frame_equal(pd.read_csv(folder / f"{name}.csv", dtype=text), table, check_dtype=False)
        pd.testing.assert_frame_equal(pd.DataFrame(stored[name])[list(table)], table, check_dtype=False)
    run("intervals", fitted, "--gene", "gene00001", "-o", folder)
    assert not (folder / "composition.csv").exists()
    page = tmp_path / "page.html"
    run("report", fitted, "-o", page)
    assert "As <code>spatialpdvi intervals</code> computed them" in page.read_text()
    picture = tmp_path / "forest.png"
    run("plot", fitted, "--kind", "intervals", "-o", picture)
    assert picture.stat().st_size > 10_000


def test_tables_are_printed_with_an_empty_line_between_them(fitted):
    def printed(*options):
        return run("intervals", fitted, "--gene", "gene00001", "--by", "annotation", *options).stdout

    shown = printed()
    tables = shown.split("\n\n")
    assert [table.split("\n")[0].split()[:2] for table in tables] == [
        *(["domain", "gene"], ["domain", "other"], ["domain", "type"])
    ]
    assert "\n0       gene00001  " in tables[0]
    assert shown.rstrip("\n") + "\n" == shown
    assert printed("--store").startswith(f"{shown}\nwritten: ")
    with pd.option_context("future.infer_string", True):  # the texts of pandas 3
        assert printed() == shown


@pytest.mark.parametrize(
    ("words", "where"), [([], "-o or --store writes them"), (["--store"], "all are in the output")]
)
def test_shares_are_percentages_and_of_many_rows_the_first_are_printed(tmp_path, monkeypatch, words, where):
    shares = {"share": [0.25, 0.5, 0.75], "lower": [0.2, 0.4, 0.7], "upper": [0.3, 0.625, 0.8]}
    tables = {
        "expression": {"domain": ["0"], "gene": ["g"], "mean": [1234.5], "lower": [0.0123456], "upper": [20.0]},
        "composition": {"domain": ["0", "0", "1"], "type": ["a", "bcd", "a"], **shares},
    }
    frames = {name: pd.DataFrame(columns) for name, columns in tables.items()}
    found = SimpleNamespace(tables=lambda: frames)
    monkeypatch.setattr("spatialpdvi.api.intervals_file", lambda *_, **__: found)
    monkeypatch.setitem(_print_estimates.__globals__, "_MOST", 2)
    section = tmp_path / "a.h5ad"
    section.write_text("a section")
    lines = run("intervals", section, *words).stdout.splitlines()
    assert lines[:8] == [
        "domain  gene      mean      interval",
        "0       g     1.23e+03  0.0123 to 20",
        "",
        "domain  type  share        interval",
        "0       a     25.0%  20.0% to 30.0%",
        "0       bcd   50.0%  40.0% to 62.5%",
        f"... and 1 more rows; {where}.",
        *([""] if words else []),
    ]
    assert len(lines) == (9 if words else 7)


def test_a_folder_holds_the_tables_of_one_command(fitted, tmp_path):
    one, other = tmp_path / "described", tmp_path / "intervals"
    run("describe", fitted, "-n", 0, "--n-perms", 10, "-o", one)
    run("intervals", fitted, "--gene", "gene00001", "-o", other)
    before = {path: path.read_bytes() for folder in (one, other) for path in folder.iterdir()}
    assert "those of `spatialpdvi describe` in" in run("intervals", fitted, "-o", one, code=2).output
    assert "those of `spatialpdvi intervals` in" in run("describe", fitted, "-o", other, code=2).output
    assert before == {path: path.read_bytes() for folder in (one, other) for path in folder.iterdir()}


def test_a_file_without_counts_takes_them_from_another(fitted, tmp_path):
    slim = tmp_path / "slim.h5ad"
    whole = ad.read_h5ad(fitted)
    whole.write_h5ad(tmp_path / "whole.h5ad")
    run("fit", tmp_path / "whole.h5ad", "--k", 4, "--n-top-genes", 100, "--n-init", 2, "--slim", "-o", slim, "-q")
    assert "--counts" in run("intervals", slim, "--gene", "gene00001", code=2).output
    run("fit", tmp_path / "whole.h5ad", "--k", 4, "--n-top-genes", 100, "--n-init", 2, "-q")
    direct = run("intervals", tmp_path / "whole.h5ad", "--gene", "gene00001", "-q").output
    other = run("intervals", slim, "--gene", "gene00001", "--counts", tmp_path / "whole.h5ad", "-q").output
    assert direct == other == ""
    tables = [
        spatialpdvi.intervals_file(path, genes=["gene00001"], counts=counts)
        for path, counts in ((tmp_path / "whole.h5ad", None), (slim, tmp_path / "whole.h5ad"))
    ]
    pd.testing.assert_frame_equal(tables[0].contrasts, tables[1].contrasts)


def test_counts_read_block_by_block_give_equal_bits(fitted):
    whole, blocks = (spatialpdvi.intervals_file(fitted, n_genes=2, memory=memory) for memory in (None, "1MB"))
    pd.testing.assert_frame_equal(whole.contrasts, blocks.contrasts, check_exact=True)


def test_a_zarr_store_holds_them_too(fitted, tmp_path):
    store = tmp_path / "section.zarr"
    write_zarr(store, ad.read_h5ad(fitted), 3)
    run("intervals", store, "--gene", "gene00001", "--store")
    expected = spatialpdvi.intervals_file(fitted, genes=["gene00001"]).contrasts["lower"]
    assert ad.read_zarr(store).uns["pdvi_intervals"]["contrasts"]["lower"].tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--contrast", "0"], "two domains with a comma"),
        (["--contrast", "0,"], "two domains with a comma"),
        (["--contrast", "0,7"], "pairs of two domains"),
        (["--level", "90"], "`--level` to be above 0 and below 1"),
        (["--gene", "gene1"], "a gene called 'gene1'"),
        (["--by", "missing"], "missing"),
        (["--method", "linear-response"], "--save-graph"),
        (["-o", "{file}"], "a folder"),
    ],
)
def test_wrong_options_leave_the_file_as_it_was(fitted, options, message):
    before = fitted.read_bytes()
    given = [option.format(file=fitted) for option in options]
    shown = run("intervals", fitted, *given, *([] if "-o" in options else ["--store"]), code=2).output
    assert message in shown
    assert fitted.read_bytes() == before


@pytest.mark.usefixtures("several_threads")
def test_the_bits_do_not_depend_on_threads(fitted, tmp_path):
    found = []
    for runner, threads in ((run_apart, ("--threads", 1)), (run, ())):  # here with as many as there are
        folder = tmp_path / str(len(found))
        runner("intervals", fitted, "-n", "2", "--method", "bootstrap", *threads, "-o", folder)
        found.append((folder / "contrasts.csv").read_bytes())
    assert found[0] == found[1]


# with six states, one domain of this small section has few spots
@pytest.mark.filterwarnings("ignore:Some domains lie in fewer than 5 blocks")
@pytest.mark.parametrize("how", ["h5ad", "zarr", "slim", "streamed", "masked", "states"])
def test_a_fit_stores_what_the_command_stores_afterwards(toy_section, tmp_path, how):
    path, out, options = tmp_path / "in.h5ad", tmp_path / "out.h5ad", list(FIT)
    section = toy_section.copy()
    section.obs["kept"] = np.arange(600) >= 60
    section.write_h5ad(path)
    if how == "zarr":
        path, out = tmp_path / "in.zarr", tmp_path / "out.zarr"
        write_zarr(path, section, 3)
    options += {"streamed": ["--memory", "1MB"], "masked": ["--mask", "kept"], "states": ["--states", 6]}.get(how, [])
    before = None if how == "zarr" else path.read_bytes()
    run("fit", path, *options, "-o", out, "--intervals", *(["--slim"] if how == "slim" else []), "-q")
    read = ad.read_zarr if how == "zarr" else ad.read_h5ad
    found = read(out).uns["pdvi_intervals"]
    assert ("composition" in found) == (how == "states")
    run("intervals", out, "--store", *(["--counts", path] if how == "slim" else []), "-q")
    _same(found, read(out).uns["pdvi_intervals"])
    assert before is None or path.read_bytes() == before
    in_memory = section.copy()
    spatialpdvi.tl.domains(
        in_memory,
        4,
        n_top_genes=100,
        n_init=2,
        intervals=True,
        **{"masked": {"mask": "kept"}, "states": {"states": 6}}.get(how, {}),
    )
    _same(in_memory.uns["pdvi_intervals"], found)


def _same(first, second):
    assert set(first) == set(second)
    for name in set(first) - {"params"}:
        assert set(first[name]) == set(second[name])
        for column, values in first[name].items():
            np.testing.assert_array_equal(values, second[name][column])
    assert {name: value for name, value in first["params"].items() if name != "versions"} == {
        name: value for name, value in second["params"].items() if name != "versions"
    }


def test_files_of_a_joint_fit_have_intervals_of_their_own_spots(toy_section, tmp_path):
    for name, spots in (("a", slice(0, 300)), ("b", slice(300, 600))):
        toy_section[spots].copy().write_h5ad(tmp_path / f"{name}.h5ad")
    run("fit", tmp_path / "a.h5ad", tmp_path / "b.h5ad", *FIT, "-o", tmp_path / "out", "--intervals", "-q")
    for name in "ab":
        path = tmp_path / "out" / f"{name}.h5ad"
        found = ad.read_h5ad(path).uns["pdvi_intervals"]
        run("intervals", path, "--store", "-q")
        _same(found, ad.read_h5ad(path).uns["pdvi_intervals"])


def test_what_an_earlier_fit_wrote_is_not_in_the_intervals_of_the_next(toy_section, tmp_path):
    path = tmp_path / "section.h5ad"
    toy_section.write_h5ad(path)
    run("fit", path, *FIT, "--states", 6, "--intervals", "-q")
    assert "composition" in ad.read_h5ad(path).uns["pdvi_intervals"]
    run("fit", path, *FIT, "--states", "off", "--intervals", "-q")
    assert set(ad.read_h5ad(path).uns["pdvi_intervals"]) == {"expression", "contrasts", "params"}
    run("fit", path, *FIT, "-q")
    assert "pdvi_intervals" not in ad.read_h5ad(path).uns


def _features_alone(toy_section):
    section = ad.AnnData(obs=toy_section.obs.copy(), obsm=dict(toy_section.obsm))
    section.obsm["X_pca"] = (
        np.random.default_rng(0).normal(size=(600, 5))
        + 4.0 * np.eye(5)[toy_section.obs["annotation"].cat.codes.to_numpy() % 5]
    )
    return section


def test_a_fit_without_counts_refuses_them_before_it_begins(toy_section, tmp_path):
    path = tmp_path / "section.h5ad"
    section = _features_alone(toy_section)
    section.write_h5ad(path)
    before = path.read_bytes()
    shown = run("fit", path, "--k", 4, "--rep", "X_pca", "--intervals", code=2).output
    assert "Intervals come from counts" in shown
    assert "--intervals" in shown
    assert path.read_bytes() == before
    with pytest.raises(InputError, match="or leave `intervals=True` out"):
        spatialpdvi.fit(section, k=4, rep="X_pca", intervals=True)
    assert "pdvi_domain" not in section.obs


def test_a_fit_for_which_there_are_none_is_stored_without(toy_section):
    """Counts that are the same everywhere have no markers, whose intervals would be asked for."""
    section = _features_alone(toy_section)
    section = ad.AnnData(np.ones((600, 5)), obs=section.obs, obsm=dict(section.obsm))
    with pytest.warns(InputWarning, match=r"stored without intervals. Expected marker genes, found none"):
        spatialpdvi.fit(section, k=4, rep="X_pca", n_init=2, intervals=True)
    assert "pdvi_domain" in section.obs
    assert "pdvi_intervals" not in section.uns


def test_the_help_of_the_seed_names_all_that_is_random():
    assert "bootstrap and the draws of implicit; other methods" in " ".join(run("intervals", "--help").output.split())


@pytest.mark.parametrize("storage", ["csr", "csc", "dense"])
def test_spots_that_are_left_out_need_no_counts(toy_section, tmp_path, storage):
    path, section = tmp_path / "section.h5ad", toy_section.copy()
    section.obs["kept"] = np.arange(600) < 590
    counts = section.X.toarray().astype(np.float32)
    counts[595, 3] = np.nan
    section.X = counts if storage == "dense" else sp.csr_matrix(counts).asformat(storage)
    section.write_h5ad(path)
    options = {"k": 4, "n_top_genes": 100, "n_init": 2, "mask": "kept"}
    spatialpdvi.fit_file(path, intervals=True, **options)
    spatialpdvi.fit(section, intervals=True, **options)
    for stored in (ad.read_h5ad(path), section):
        assert stored.uns["pdvi_intervals"]["expression"]["domain"].size
    found = spatialpdvi.intervals_file(path, genes=["gene00003"])
    pd.testing.assert_frame_equal(found.expression, spatialpdvi.intervals(section, genes=["gene00003"]).expression)
    run("plot", path, "--gene", "gene00003", "-o", tmp_path / "a.png", "--dpi", 40, "-q")
