"""`spatialpdvi label` end to end: what it prints and writes, and what becomes of the user's file."""

import re

import anndata as ad
import numpy as np
import pytest
from conftest import run, run_apart

import spatialpdvi as spv
from spatialpdvi import InputWarning, Levels, Merge, Pieces, Rename, Split

pytestmark = pytest.mark.cli


@pytest.fixture(scope="module")
def fitted():
    section = spv.simulate(n_spots=500, n_genes=100, k=4, seed=1, easy=True)
    spv.fit(section, k=4, n_top_genes=100, n_init=1, states="off")
    return section


@pytest.fixture
def path(fitted, tmp_path):
    path = tmp_path / "fitted.h5ad"
    fitted.write_h5ad(path)
    return path


def test_a_session_of_edits(path, tmp_path):
    before = path.read_bytes()
    (tmp_path / "names.csv").write_text('domain,name\n0,"Skin, outer"\n2,Gut\n', encoding="utf-8")
    out = tmp_path / "out.h5ad"
    shown = run("label", "rename", path, "--names", tmp_path / "names.csv", "-o", out).output
    assert "Skin, outer" in shown
    assert path.read_bytes() == before
    run("label", "merge", out, "-d", "Skin, outer", "-d", "Gut", "--name", "both")
    run("label", "split", out, "-d", "both", "--into", 2)
    run("label", "levels", out, "--levels", "2:3")
    assert "pdvi_domain_L2" in run("evaluate", out, "--domain-key", "pdvi_domain_L2").output
    back = ad.read_h5ad(out)
    assert back.obs["pdvi_domain"].cat.categories.tolist() == ["both.1", "both.2", "1", "3"]
    assert back.uns["pdvi"]["edits"]["action"].tolist() == ["rename", "merge", "split"]
    np.testing.assert_allclose(back.obsm["pdvi_posterior"].sum(axis=1), 1, atol=1e-6)
    run("plot", out, "-o", tmp_path / "a.png", "--dpi", 40)
    run("plot", out, "-o", tmp_path / "b.png", "--dpi", 40, "--kind", "domains,entropy,trace,confusion,reliability")
    run("markers", out, "--store")
    run("report", out, "-o", tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "The certificate belongs to the fit before these edits" in page
    assert "merge: &#39;Skin, outer&#39;, &#39;Gut&#39; to &#39;both&#39;" in page
    assert f"{spv.evaluate(back, label_key='annotation')['ari']:.3f}" in page
    run("fit", out, "--k", 3, "--n-top-genes", 100, "--n-init", 1, "--states", "off")
    assert set(ad.read_h5ad(out).obs) & {"pdvi_domain_fitted", "pdvi_domain_L2"} == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["merge", "-d", "0"], "Expected `--domain` to be at least two domains, found '0'."),
        (
            ["merge", "-d", "0", "-d", "x"],
            "Expected `--domain` to be one of the domains '0', '1', '2', '3', found",
        ),
        (["rename"], "Expected --names or --from, found neither. Give one of them."),
        (["rename", "--from", "x"], "Name one of these with --from."),
        (
            ["rename", "--names", "none.csv"],
            "Expected `--names` to be a CSV file with the columns domain",
        ),
        (["rename", "--names", "none.csv"], "name, found no such file: 'none.csv'. Check the path for a typing error."),
        (["rename", "--names", "wrong.csv/x"], "found no such file: 'wrong.csv/x'."),
        (["rename", "--names", "."], "and name, found a folder: '.'."),
        (["rename", "--names", "wrong.csv"], "Expected the columns domain and name in 'wrong.csv', found columns: 'a'"),
        (["rename", "--names", "twice.csv"], "Expected each domain once in 'twice.csv', found '0' twice."),
        (["split", "-d", "0", "--into", 999], "Expected `--into` to be at most half the number of spots of the domain"),
        (
            ["pieces", "-d", "0", "--min-spots", 999],
            "found one part, with 199 spots. Leave the domain as it is, or",
        ),
        (["levels", "--levels", "9"], "Expected `--levels` to be from 2 to 3, since 4 domains have spots, found 9."),
        (["levels", "--levels", "3", "--key-added", "x"], "Run `spatialpdvi fit` first, or name its --key-added."),
    ],
)
def test_errors_leave_the_file_alone(path, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.csv").write_text("a,b\n0,x\n", encoding="utf-8")
    (tmp_path / "twice.csv").write_text("domain,name\n0,x\n0,y\n", encoding="utf-8")
    before = path.read_bytes()
    assert said in run("label", arguments[0], path, *arguments[1:], code=2).output
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "edit", "memory"),
    [
        (["rename", "--from", "annotation", "--merge"], Rename(None, "annotation", merge=True), None),
        (["merge", "-d", "0", "-d", "2", "--name", "x"], Merge(("0", "2"), "x"), None),
        (["split", "-d", "0", "--into", 3, "--seed", 7, "--memory", "2GB"], Split("0", 3, 7), "2GB"),
        (["pieces", "-d", "0", "--min-spots", 50], Pieces("0", 50), None),
        (["levels", "--levels", "2:3"], Levels("2:3"), None),
    ],
)
def test_every_option_reaches_the_edit(tmp_path, monkeypatch, words, edit, memory):
    handed = []
    monkeypatch.setattr("spatialpdvi.api.label_file", lambda *args, **options: handed.append((args, options)))
    section, out = tmp_path / "a.h5ad", tmp_path / "b.h5ad"
    section.write_text("a section")
    run("label", words[0], section, *words[1:], "--key-added", "dom", "-o", out, "-q")
    ((args, options),) = handed
    assert args == (section, edit)
    assert (options["output"], options["key_added"], options["memory"]) == (out, "dom", memory)


def test_the_table_of_names_is_not_replaced(path, tmp_path):
    names = tmp_path / "names.csv"
    names.write_text("domain,name\n0,x\n", encoding="utf-8")
    said = run("label", "rename", path, "--names", names, "-o", names, code=2).output
    assert "Expected `--output` to be another file than" in said
    assert names.read_text(encoding="utf-8") == "domain,name\n0,x\n"


@pytest.mark.usefixtures("several_threads")
def test_a_split_does_not_depend_on_threads(path, tmp_path):
    split = ("label", "split", path, "-d", "0", "--into", 2)
    run_apart(*split, "--threads", 1, "-o", tmp_path / "one.h5ad")
    run(*split, "-o", tmp_path / "all.h5ad")  # as many as there are
    one, every = (ad.read_h5ad(tmp_path / f"{name}.h5ad").obsm["pdvi_posterior"] for name in ("one", "all"))
    np.testing.assert_array_equal(one, every)
    said = run("label", "split", path, "-d", "0", "--into", 2, "--threads", 0, code=2).output
    assert "Expected `--threads` to be at least 1, found 0." in said


def test_a_split_without_counts_names_no_option_that_it_lacks(path):
    adata = ad.read_h5ad(path)
    adata.X = adata.X * 0.5
    adata.write_h5ad(path)
    said = " ".join(run("label", "split", path, "-d", "0", "--into", 2, code=2).output.split())
    assert "Put the raw counts into layers['counts'], which is looked at before X." in said
    assert "--layer" not in said


def test_a_second_fit_keeps_the_users_colours_where_names_are_the_same(path):
    fit = ["fit", path, "--n-top-genes", 100, "--n-init", 1, "--states", "off", "--seed", 1]
    adata = ad.read_h5ad(path)
    chosen = list(adata.uns["pdvi_domain_colors"])
    run(*fit, "--k", 4)
    again = ad.read_h5ad(path)
    automatic = list(again.uns["pdvi_domain_colors"])
    assert sorted(automatic) == sorted(chosen)
    own = ["red", "#00FF00", "#0000ff", "gold"]
    again.uns["pdvi_domain_colors"] = own
    again.write_h5ad(path)
    for _ in range(2):  # they are the user's after another fit, too
        run(*fit, "--k", 4)
        assert list(ad.read_h5ad(path).uns["pdvi_domain_colors"]) == ["#ff0000", "#00ff00", "#0000ff", "#ffd700"]
    run("label", "merge", path, "-d", "1", "-d", "2")
    assert list(ad.read_h5ad(path).uns["pdvi_domain_colors"]) == ["#ff0000", "#00ff00", "#ffd700"]
    run(*fit, "--k", 4)
    assert list(ad.read_h5ad(path).uns["pdvi_domain_colors"]) == automatic


def test_a_file_of_a_joint_fit_stays_one_after_an_edit(tmp_path):
    section = spv.simulate(n_spots=600, n_genes=60, k=4, seed=0, easy=True)
    paths = [tmp_path / "left.h5ad", tmp_path / "right.h5ad"]
    for path, spots in zip(paths, (slice(0, None, 2), slice(1, None, 2)), strict=True):
        section[spots].copy().write_h5ad(path)
    spv.fit_files(paths, k=4, n_top_genes=60, n_init=1, states="off")

    def command():
        run("report", paths[0], "-o", tmp_path / "a.html", "--no-markers", "-q")
        page = (tmp_path / "a.html").read_text(encoding="utf-8")
        assert "The sections were fitted together." in page
        is_edited = "The domains were edited after the fit." in page
        assert ("k-means on the smoothed features, mean of 5 seeds (all sections)" in page) == is_edited
        return re.search(r"<code>(.*?)</code>", page, flags=re.DOTALL)[1]

    before = command()
    assert "left.h5ad" in before
    assert "right.h5ad" in before
    for edit in (Split("0", 2), Merge(["0.1", "0.2"])):
        spv.label_file(paths[0], edit)
        assert command() == before
        with pytest.warns(InputWarning, match=r"^These domains belong to a joint fit of several files"):
            spv.label_file(paths[0], Levels(2), output=tmp_path / "levels.h5ad")
