"""`--slim`: a file without counts has the same results and pictures, and says where its counts are."""

import os
import re
import shutil
import warnings

import anndata as ad
import h5py
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import run
from zarr_samples import write_spatialdata

import spatialpdvi as spv
from spatialpdvi.plotting.kinds import KINDS

pytestmark = pytest.mark.cli

FIT = ("--k", 3, "--n-init", 2, "--n-top-genes", 60, "--tol", 1e-3, "-q")
MAPS = ("scan", "states", "composition")  # kinds that need another fit than these
KEPT = {"spatial", "X_umap", "table", "X_pdvi", "pdvi_posterior", "pdvi_posterior_calibrated", "pdvi_flow"}


def _run(*arguments, code=0):
    return " ".join(run(*arguments, code=code).output.split())


def _section(seed=0, n=400):
    adata = spv.simulate(n_spots=n, n_genes=80, k=3, easy=True, seed=seed)
    rng = np.random.default_rng(seed)
    n = adata.n_obs
    adata.obs_names = [f"spot {i}é" for i in range(n)]
    adata.obs["kept"] = np.arange(n) >= 5
    adata.obs["cell type"] = pd.Categorical(rng.choice(["a", "β"], n))
    codes = adata.obs["annotation"].astype("category").cat.codes.to_numpy()
    adata.obsm["X_umap"] = rng.normal(size=(n, 2))
    adata.obsm["X_pca"] = rng.normal(size=(n, 9)) + 5.0 * np.eye(9)[codes]
    adata.obsm["table"] = pd.DataFrame({"one": rng.random(n), "two": rng.random(n)}, index=adata.obs_names)
    adata.varm["PCs"] = rng.normal(size=(80, 9))
    adata.obsp["distances"] = sp.identity(n, format="csr")
    adata.layers["log"] = adata.X.copy().astype(np.float32)
    adata.raw = adata
    image = {"images": {"hires": rng.random((40, 40, 3)).astype(np.float32)}}
    size = {"tissue_hires_scalef": 0.04, "spot_diameter_fullres": 25.0}
    adata.uns["spatial"] = {"slice": image | {"scalefactors": size}}
    return adata


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A section, and the whole and the slim result of one fit of it under one name in two folders."""
    folder = tmp_path_factory.mktemp("slim")
    _section().write_h5ad(folder / "section.h5ad")
    for name, more in (("whole", ()), ("light", ("--slim",))):
        (folder / name).mkdir()
        output = folder / name / "fitted.h5ad"
        _run("fit", folder / "section.h5ad", *FIT, "--mask", "kept", "--save-graph", "-o", output, *more)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def _assert_same_results(light, whole):
    pd.testing.assert_frame_equal(light.obs, whole.obs)
    for key in light.obsm:
        np.testing.assert_array_equal(light.obsm[key], whole.obsm[key])
    ours, theirs = dict(light.uns["pdvi"]), whole.uns["pdvi"]
    assert isinstance(ours.pop("counts_in"), str)
    assert ours.keys() == theirs.keys()
    for part in ("domain_mean", "log_variance"):
        np.testing.assert_array_equal(ours[part], theirs[part])
    assert ours["certificate"] == theirs["certificate"]


def test_it_holds_the_results_the_coordinates_and_the_image_alone(folder):
    light, whole = (ad.read_h5ad(folder / name / "fitted.h5ad") for name in ("light", "whole"))
    assert (light.n_obs, light.n_vars, light.X, light.raw) == (400, 0, None, None)
    assert (set(light.obsm), set(light.obsp)) == (KEPT, {"pdvi_connectivities"})
    assert not {*light.layers, *light.varm, *light.varp} - {None}
    assert light.uns["pdvi"]["counts_in"] == "section.h5ad"
    _assert_same_results(light, whole)
    assert (light.obsp["pdvi_connectivities"] != whole.obsp["pdvi_connectivities"]).nnz == 0
    image = light.uns["spatial"]["slice"]["images"]["hires"]
    np.testing.assert_array_equal(image, whole.uns["spatial"]["slice"]["images"]["hires"])
    expected = spv.markers_file(folder / "whole" / "fitted.h5ad")
    pd.testing.assert_frame_equal(pd.DataFrame(light.uns["pdvi_markers"]), expected, check_dtype=False, check_like=True)
    light.copy().write_h5ad(folder / "again.h5ad")
    assert ad.concat([light, light], index_unique="-").n_obs == 800


@pytest.mark.parametrize("kinds", [None, ",".join(kind for kind in KINDS if kind not in {*MAPS, "intervals"})])
def test_pictures_are_the_same_bytes(folder, kinds):
    for name in ("whole", "light"):
        picture = folder / f"{name}.png"
        chosen = () if kinds is None else ("--kind", kinds)
        _run("plot", folder / name / "fitted.h5ad", "-o", picture, *chosen, "--dpi", 40, "-q")
    assert (folder / "whole.png").read_bytes() == (folder / "light.png").read_bytes()


def _page(path, *more):
    _run("report", path, "-o", path.with_suffix(".html"), "-q", *more)
    return path.with_suffix(".html").read_text(encoding="utf-8")


@pytest.mark.parametrize("names", [["2", "0", "1"], list("abc")])
def test_genes_of_domains_that_were_renamed_in_python_are_left_out(folder, names):
    """Each would be shown as those of another domain, or of none."""
    path, table = folder / "light" / "fitted.h5ad", folder / "names.csv"
    _run("describe", path, "--counts", folder / "section.h5ad", "--store", "-q")
    light = ad.read_h5ad(path)
    light.rename_categories("pdvi_domain", names)
    light.write_h5ad(path)
    said = _run("report", path, "-o", folder / "page.html")
    for key in ("pdvi_markers", "pdvi_describe"):
        found = f"Warning: The report leaves out what is stored. Expected uns['{key}'] to be about the domains of "
        assert found + f"obs['pdvi_domain'] in '{path}', {', '.join(map(repr, names))}, found domains" in said
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "There are no marker genes. " in page
    table.write_text(f"domain,name\n{names[0]},Cortex\n")
    assert "uns['pdvi_markers'], uns['pdvi_describe'] belonged to the domains before" in _run(
        "label", "rename", path, "--names", table
    )
    left = ad.read_h5ad(path)
    assert list(left.obs["pdvi_domain"].cat.categories) == ["Cortex", *names[1:]]
    assert not {"pdvi_markers", "pdvi_describe"} & set(left.uns)


def test_a_report_has_the_stored_genes_and_from_counts_all_of_it(folder):
    whole = _page(folder / "whole" / "fitted.h5ad")
    light = folder / "light" / "fitted.h5ad"
    alone, counted = _page(light), _page(light, "--counts", folder / "section.h5ad")

    def genes(page):
        return re.findall(r'<td class="genes">.*?</td>', page, flags=re.DOTALL)

    def drawn(page):
        return re.findall(r'<script type="application/json".*?</script>', page, flags=re.DOTALL)

    assert genes(alone) == genes(counted) == genes(whole)
    assert len(genes(whole)) == 3
    assert drawn(counted) == drawn(whole) != drawn(alone)
    assert "at most 10 of each domain, and the maps show no genes" in alone
    assert "the maps show no genes" not in counted
    assert "fit section.h5ad --k 3" in alone
    assert "Run it in the folder of section.h5ad" in alone
    assert "Run it in the folder of" not in counted + whole
    assert f"fit {folder / 'section.h5ad'} --k 3" in counted
    assert "<b>" not in "".join(genes(_page(light, "--no-markers")))
    fewer = genes(_page(light, "-n", 2))
    assert [cell.count("<b>") for cell in fewer] == [2, 2, 2]


def test_what_needs_counts_says_where_they_are_or_takes_them(folder):
    whole, light = (folder / name / "fitted.h5ad" for name in ("whole", "light"))
    before = light.read_bytes()
    for command in (
        ("markers", light),
        ("fit", light, "--k", 3),
        ("label", "split", light, "--domain", "0", "--into", 2),
        ("report", light, "-o", folder / "page.html", "--gene-key", "symbol"),
        ("plot", light, "-o", folder / "gene.png", "--gene", "gene00001"),
    ):
        said = _run(*command, code=2)
        assert "found none, since it was written with --slim. They are in 'section.h5ad'" in said, said
    assert light.read_bytes() == before
    with pytest.raises(
        spv.InputError, match=r"'section\.h5ad', .* Give the file of this AnnData to one of `markers_file`"
    ):
        spv.markers(ad.read_h5ad(light))
    with pytest.raises(spv.InputError, match=r"`plot_file` and `report_files`, which read them from there"):
        spv.markers(ad.read_h5ad(light))
    _run("markers", whole, "-o", folder / "whole.csv", "-q")
    _run("markers", light, "-o", folder / "light.csv", "-q", "--counts", folder / "section.h5ad")
    assert (folder / "whole.csv").read_bytes() == (folder / "light.csv").read_bytes()
    for path, more in ((whole, ()), (light, ("--counts", folder / "section.h5ad"))):
        _run("plot", path, "-o", path.with_suffix(".png"), "--gene", "gene00001", *more, "-q")
    assert whole.with_suffix(".png").read_bytes() == light.with_suffix(".png").read_bytes()
    shuffled = ad.read_h5ad(folder / "section.h5ad")[::-1].copy()
    shuffled.write_h5ad(folder / "other.h5ad")
    said = _run("markers", light, "--counts", folder / "other.h5ad", code=2)
    assert "found 'spot 399é' instead of 'spot 0é' in row 1 in" in said
    assert "other.h5ad'. Give the file that was fitted." in said
    shuffled[:7].copy().write_h5ad(folder / "few.h5ad")
    assert "found 7 spots instead of 400" in _run("markers", light, "--counts", folder / "few.h5ad", code=2)
    twice = ("--counts", folder / "section.h5ad") * 2
    assert "to be given once, found 2 times." in _run("markers", light, *twice, code=2)


def test_one_path_of_counts_is_no_list_of_them(folder):
    light, section = folder / "light" / "fitted.h5ad", folder / "section.h5ad"
    for make in (spv.report_files, spv.describe_files):
        for given in (section, str(section)):
            with pytest.raises(spv.InputError) as raised:
                make([light], counts=given)
            assert f"Expected `counts` to be a list of files, found one, {str(section)!r}. Give [" in str(raised.value)


def test_a_description_leaves_the_genes_out_or_takes_the_counts(folder):
    whole, light = (folder / name / "fitted.h5ad" for name in ("whole", "light"))
    options = {"by": "cell type", "n_genes": 5, "n_perms": 10}
    expected = spv.describe_files([whole], **options)
    with pytest.warns(spv.InputWarning, match="No genes are tested. Expected raw counts"):
        found = spv.describe_files([light], **options)
    assert found.genes is None
    counted = spv.describe_files([light], **options, counts=[folder / "section.h5ad"])
    for name in ("domains", "contacts", "composition"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))
    pd.testing.assert_frame_equal(counted.genes, expected.genes)


def test_edits_scores_and_tables_are_those_of_the_whole_file(folder):
    scores, tables = [], []
    for name in ("whole", "light"):
        path = folder / name / "fitted.h5ad"
        scores.append(spv.api.evaluate_file(path, label_key="annotation"))
        spv.label_file(path, spv.Rename({"0": "Cortex"}))
        spv.label_file(path, spv.Levels([2]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", spv.InputWarning)  # of markers and levels that are removed
            spv.label_file(path, spv.Merge(["1", "2"], name="Rest"))
        tables.append(spv.domain_table(ad.read_h5ad(path)))
    assert scores[0] == scores[1]
    pd.testing.assert_frame_equal(*tables)
    assert "pdvi_markers" not in ad.read_h5ad(folder / "light" / "fitted.h5ad").uns


def test_the_section_itself_is_never_made_slim(folder):
    section = folder / "section.h5ad"
    (folder / "link.h5ad").symlink_to(section)
    os.link(section, folder / "hard.h5ad")
    before = section.read_bytes()
    for more in ((), ("-o", section), ("-o", folder / "link.h5ad"), ("-o", folder / "hard.h5ad")):
        said = _run("fit", section, *FIT, "--slim", *more, code=2)
        assert "with --slim, found the same. It would lose its counts. Name another file with --output." in said
    shutil.copy(section, folder / "two.h5ad")
    assert "lose its counts" in _run("fit", section, folder / "two.h5ad", *FIT, "--slim", "-o", folder, code=2)
    assert "lose its counts" in _run("fit", section, folder / "two.h5ad", *FIT, "--slim", code=2)
    _run("fit", section, *FIT, "--save-model", folder / "model.npz", "-o", folder / "any.h5ad")
    predict = ("predict", section, "--model", folder / "model.npz", "--slim", "-q")
    assert "lose its counts" in _run(*predict, code=2)
    assert section.read_bytes() == before
    _run(*predict, "-o", folder / "light" / "fitted.h5ad")  # over the first result
    found = ad.read_h5ad(folder / "light" / "fitted.h5ad")
    assert (found.n_vars, found.obsp, found.uns["pdvi"]["counts_in"]) == (0, {}, "section.h5ad")
    assert found.uns["pdvi"]["params"]["model"] == "model.npz"
    assert len(found.uns["pdvi_markers"]["gene"])


def test_zarr_and_h5ad_in_and_out(folder):
    section = ad.read_h5ad(folder / "section.h5ad")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # anndata's own, about formats of zarr
        section.write_zarr(folder / "section.zarr")
    whole = ad.read_h5ad(folder / "whole" / "fitted.h5ad")
    for source, target in (("section.zarr", "a.zarr"), ("section.zarr", "a.h5ad"), ("section.h5ad", "b.zarr")):
        _run("fit", folder / source, *FIT, "--mask", "kept", "--save-graph", "--slim", "-o", folder / target)
        reader = ad.read_zarr if target.endswith("zarr") else ad.read_h5ad
        light = reader(folder / target)
        assert (light.n_vars, light.X, set(light.obsm)) == (0, None, KEPT)
        assert light.uns["pdvi"]["counts_in"] == source
        for name in ("pdvi_domain", "pdvi_confidence_calibrated", "annotation"):
            assert light.obs[name].astype(str).tolist() == whole.obs[name].astype(str).tolist()
        np.testing.assert_array_equal(light.obsm["pdvi_posterior"], whole.obsm["pdvi_posterior"])
        _run("plot", folder / target, "-o", folder / "map.png", "-q")


def test_sections_that_are_fitted_together_and_counts_in_blocks(folder):
    for i, name in enumerate(("one", "two")):
        section = _section(seed=0)[:: 1 - 2 * i].copy()
        section.obs_names = [f"{name}_{j}" for j in range(400)]
        section.write_h5ad(folder / f"{name}.h5ad")
    files = [folder / f"{name}.h5ad" for name in ("one", "two")]
    _run("fit", *files, *FIT, "-o", folder / "all")
    _run("fit", *files, *FIT, "-o", folder / "slim", "--slim")
    for name in ("one", "two"):
        light, whole = (ad.read_h5ad(folder / where / f"{name}.h5ad") for where in ("slim", "all"))
        assert light.uns["pdvi"]["counts_in"] == f"{name}.h5ad"
        _assert_same_results(light, whole)
        expected = spv.markers_file(folder / "all" / f"{name}.h5ad")
        pd.testing.assert_frame_equal(
            pd.DataFrame(light.uns["pdvi_markers"]), expected, check_dtype=False, check_like=True
        )
    counts = [option for file in files for option in ("--counts", file)]
    light = [folder / "slim" / file.name for file in files]
    _run("report", *light, *counts, "-o", folder / "all.html", "-q")
    assert f"fit {files[0]} {files[1]} --k 3" in (folder / "all.html").read_text(encoding="utf-8")
    assert "given once for each of the 2" in _run("report", *light, *counts[:2], "-o", folder / "a.html", code=2)
    _run("report", *light, "-o", folder / "none.html", "-q")
    assert "fit one.h5ad two.h5ad --k 3" in (folder / "none.html").read_text(encoding="utf-8")


def test_counts_that_are_read_in_blocks_and_a_fit_of_features(folder):
    output, section = folder / "blocks.h5ad", folder / "section.h5ad"
    _run("fit", section, *FIT, "--mask", "kept", "--save-graph", "--memory", "1KB", "--slim", "-o", output)
    found, before = ad.read_h5ad(output), ad.read_h5ad(folder / "light" / "fitted.h5ad")
    for key in KEPT:
        np.testing.assert_array_equal(found.obsm[key], before.obsm[key])
    for name in ("gene", "score", "share_in"):
        assert found.uns["pdvi_markers"][name].tolist() == before.uns["pdvi_markers"][name].tolist()
    features = ("--rep", "X_pca", "--smooth", 0, "--no-whiten", "--key-added", "other")
    whole = folder / "whole" / "fitted.h5ad"
    _run("fit", whole, "--k", 3, "--n-init", 2, "--tol", 1e-3, *features, "--slim", "-o", output, "-q")
    light = ad.read_h5ad(output)  # with the results of both fits, and the features of the second
    assert set(light.obsm) == {*KEPT, "X_pca", "other_posterior", "other_posterior_calibrated"}
    assert {"pdvi", "pdvi_domain_colors", "other", "other_domain_colors", "other_markers"} <= set(light.uns)
    spv.label_file(output, spv.Levels([2]), key_added="other")


def test_a_damaged_table_of_markers_is_no_traceback(folder):
    path = folder / "light" / "fitted.h5ad"
    for damage in ("nothing", {"gene": np.array(["a"], dtype=object)}):
        light = ad.read_h5ad(path)
        light.uns["pdvi_markers"] = damage
        light.write_h5ad(path)
        assert "uns['pdvi_markers']" in _run("report", path, "-o", folder / "page.html", code=2)


@pytest.mark.filterwarnings("ignore")  # of scanpy and squidpy themselves
def test_scanpy_and_squidpy_draw_it(folder):
    sc, sq = pytest.importorskip("scanpy"), pytest.importorskip("squidpy")
    pixels = []
    for name in ("whole", "light"):
        adata = ad.read_h5ad(folder / name / "fitted.h5ad")
        own = []
        axes = sc.pl.embedding(adata, "spatial", color="pdvi_domain", show=False)
        own.append(axes.figure)
        sq.pl.spatial_scatter(adata, color="pdvi_domain", library_id="slice")
        own.append(plt.gcf())
        for figure in own:
            figure.canvas.draw()
        pixels.append([np.asarray(figure.canvas.buffer_rgba()).copy() for figure in own])
        plt.close("all")
    for whole, light in zip(*pixels, strict=True):
        np.testing.assert_array_equal(whole, light)
    with pytest.raises((KeyError, ValueError), match="gene00000"):
        sc.pl.embedding(ad.read_h5ad(folder / "light" / "fitted.h5ad"), "spatial", color="gene00000", show=False)


def _foreign(path, group):
    """Add an element of a kind that anndata does not know."""
    with h5py.File(path, "r+") as file:
        made = file.create_group(f"{group}/foreign")
        made.attrs.update({"encoding-type": "of another program", "encoding-version": "9"})
        if group == "obs":
            file["obs"].attrs["column-order"] = [*file["obs"].attrs["column-order"], "foreign"]


def test_what_anndata_does_not_know_is_copied_or_refused_before_the_fit(folder, monkeypatch):
    section = folder / "section.h5ad"
    _foreign(section, "uns")
    _run("fit", section, *FIT, "--slim", "-o", folder / "a.h5ad")
    with h5py.File(folder / "a.h5ad") as file:
        assert file["uns/foreign"].attrs["encoding-type"] == "of another program"

    def fit(*_, **__):
        pytest.fail("the fit has begun")

    monkeypatch.setattr("spatialpdvi.api.fitting.fit_section", fit)
    assert "to read uns['foreign'] of" in _run("fit", section, *FIT, "--slim", "-o", folder / "b.zarr", code=2)
    _foreign(section, "obs")
    assert "to read obs['foreign'] of" in _run("fit", section, *FIT, "--slim", "-o", folder / "b.h5ad", code=2)
    assert not list(folder.glob("b.*"))


@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
def test_a_none_in_the_section_is_copied(folder, ending):
    """It has no shape in HDF5, and a section with one, as scanpy and anndataR write, was refused."""
    section = ad.read_h5ad(folder / "section.h5ad")
    section.uns["settings"] = {"layer": None}
    section.write_h5ad(folder / "none.h5ad")
    _run("fit", folder / "none.h5ad", *FIT, "--slim", "-o", folder / f"a.{ending}")
    light = (ad.read_h5ad if ending == "h5ad" else ad.read_zarr)(folder / f"a.{ending}")
    assert light.uns["settings"] == {"layer": None}


def test_a_table_of_spatialdata(folder):
    store = folder / "slide.zarr"
    write_spatialdata(store, {"cells": ad.read_h5ad(folder / "section.h5ad")}, 3)
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    _run("fit", store, *FIT, "--mask", "kept", "--slim", "-o", folder / "light.h5ad")
    assert ad.read_h5ad(folder / "light.h5ad").uns["pdvi"]["counts_in"] == "slide.zarr"
    for name, counts in {"store": store, "table": store / "tables" / "cells"}.items():
        _run("markers", folder / "light.h5ad", "--counts", counts, "-n", 1, "-o", folder / f"{name}.csv")
    assert (folder / "store.csv").read_text() == (folder / "table.csv").read_text()
    assert "gene0" in (folder / "store.csv").read_text()
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before


def test_coordinates_in_a_data_frame_are_kept(tmp_path):
    section = _section()
    section.obsm["spatial"] = pd.DataFrame(section.obsm["spatial"], columns=["x", "y"], index=section.obs_names)
    section.obsm["wide"] = pd.DataFrame(np.ones((400, 5)), columns=list("abcde"), index=section.obs_names)
    section.write_h5ad(tmp_path / "a.h5ad")
    for name in ("light.h5ad", "light.zarr"):
        _run("fit", tmp_path / "a.h5ad", *FIT, "--slim", "-o", tmp_path / name)
        light = (ad.read_zarr if name.endswith("zarr") else ad.read_h5ad)(tmp_path / name)
        pd.testing.assert_frame_equal(light.obsm["spatial"], section.obsm["spatial"])
        assert {"table"} <= set(light.obsm)
        assert "wide" not in light.obsm
        _run("plot", tmp_path / name, "-o", tmp_path / "a.png", "--dpi", 40, "-q")


@pytest.mark.parametrize("slim", [True, False])
def test_a_fit_of_features_in_a_slim_file_still_says_where_the_counts_are(folder, slim):
    light = folder / "light" / "fitted.h5ad"
    adata = ad.read_h5ad(light)
    adata.obsm["mine"] = np.nan_to_num(adata.obsm["X_pdvi"])
    adata.write_h5ad(light)
    again = folder / "again.h5ad"
    _run("fit", light, *FIT, "--rep", "mine", "--mask", "kept", "-o", again, *(["--slim"] if slim else []))
    fields = ad.read_h5ad(again).uns["pdvi"]
    assert (fields["counts_in"], fields["fitted_in"]) == ("section.h5ad", "fitted.h5ad")
    shown = _run("intervals", again, "--gene", "gene00001", code=2)
    assert "They are in 'section.h5ad'" in shown
    assert "fit fitted.h5ad --k 3" in _page(again)


def test_a_slim_copy_keeps_the_graph_of_an_earlier_fit(tmp_path):
    section = spv.simulate(n_spots=300, n_genes=60, k=3, seed=1, easy=True)
    section.obsp["mine"] = sp.identity(300, format="csr")
    section.write_h5ad(tmp_path / "a.h5ad")
    options = {"k": 3, "n_top_genes": 60, "n_init": 1, "states": "off", "save_graph": True}
    spv.fit_file(tmp_path / "a.h5ad", key_added="first", **options)
    spv.fit_file(tmp_path / "a.h5ad", output=tmp_path / "light.h5ad", slim=True, **options)
    light = ad.read_h5ad(tmp_path / "light.h5ad")
    assert set(light.obsp) == {"first_connectivities", "pdvi_connectivities"}
    assert {"first_posterior", "pdvi_posterior", "spatial"} <= set(light.obsm)
