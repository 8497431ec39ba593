"""What the page says is what the file says, for fits of every kind."""

import base64
import hashlib
import io
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from PIL import Image
from report.conftest import FEW, Page, change, posterior, report, run
from zarr_samples import write_zarr

import spatialpdvi
from spatialpdvi import InputError, InputWarning
from spatialpdvi.io.formats.h5ad import H5adSource
from spatialpdvi.io.results.fitted import read_fitted
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.report.content import MappedGene, Material
from spatialpdvi.report.layers import map_data
from spatialpdvi.report.pictures import draw_maps, with_palette

pytestmark = pytest.mark.cli

PARTS = ["Maps", "Scores", "Convergence", "Domains", "Marker genes", "Confidence", "Command and parameters"]


def _words_of(line):
    """A line for the shell as the arguments of our command line; those before it are of another."""
    words = shlex.split(line)
    return words[words.index("spatialpdvi") + 1 :]


def _expect_whole(page):
    """One document, links that lead somewhere, anchors once, nothing from elsewhere."""
    assert page.declarations == ["DOCTYPE html"]
    anchors = [values["id"] for _, values in page.tags if "id" in values]
    assert len(anchors) == len(set(anchors))
    for link in page.all("a"):
        assert link["href"].startswith("#")
        assert link["href"][1:] in anchors
    for image in page.all("img"):
        assert image["src"].startswith("data:image/png;base64,iVBOR")
        assert image["alt"]
    *data, own = page.all("script")
    assert data == [{"type": "application/json", "class": "map-data"}] * len(page.maps)
    assert own == {}
    fingerprint = base64.b64encode(hashlib.sha256(page.scripts[-1].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{fingerprint}';" in page.all("meta")[1]["content"]
    assert {tag for tag, _ in page.tags}.isdisjoint({"link", "iframe", "object", "base", "form", "svg"})
    style = "".join(data for tag, data in page.texts if tag == "style") + str([v.get("style") for _, v in page.tags])
    assert "url(" not in style
    assert "@import" not in style
    assert "<" not in style


def test_the_parts_are_there_and_hold_what_the_file_holds(fitted):
    page = report(fitted)
    _expect_whole(page)
    assert page.headings == PARTS
    assert page.captions[:4] == ["Annotation (obs['annotation'])", "Domains", "Confidence", "Agreement of restarts"]
    adata = anndata.read_h5ad(fitted)
    kept = adata.uns["pdvi"]
    sizes = adata.obs["pdvi_domain"].value_counts(sort=False)
    (domains,) = page.tables["section-1-domains"]
    assert [[row[0], row[2]] for row in domains[1:]] == [[name, str(size)] for name, size in sizes.items()]
    confidence = adata.obs.groupby("pdvi_domain", observed=False)["pdvi_confidence_calibrated"].mean()
    assert [row[4] for row in domains[1:]] == [f"{value:.2f}" for value in confidence]
    for colour in adata.uns["pdvi_domain_colors"]:
        assert {"class": "swatch", "style": f"background:{colour}"} in page.all("span")
    assert kept["certificate"]["reason"] in page.words
    assert f"{kept['certificate']['neg_elbo']:.6g} nats" in page.words
    for name, version in kept["params"]["versions"].items():
        assert f"{name}{version}" in page.words
    assert "restart_accord" in page.words


def test_the_scores_stand_beside_the_baseline_and_its_seeds(fitted):
    scores = anndata.read_h5ad(fitted).uns["pdvi"]["scores"]
    (table,) = report(fitted).tables["section-1-scores"]
    assert table[0][:4] == ["", "ARI", "NMI", "homogeneity"]
    named = {row[0]: row for row in table[1:]}
    assert named["domains"][1] == f"{scores['ari']:.3f}"
    assert named["domains"][-2] == f"{scores['pas']:.3f}"
    assert named["start of the fit"][1] == f"{scores['baseline']['ari']:.3f}"
    trivial = scores["trivial"]
    row = named["k-means on the smoothed features, mean of 5 seeds"]
    assert row[1] == f"{trivial['ari']:.3f}"
    assert row[2] == "–"
    assert row[-1] == f"ARI {trivial['ari_min']:.3f} to {trivial['ari_max']:.3f}"


def test_the_genes_are_those_of_markers(fitted):
    found = spatialpdvi.markers_file(fitted, n=3)
    (table,) = report(fitted, options=["-n", "3"]).tables["section-1-marker-genes"]
    assert [row[0] for row in table] == ["domain", "0", "1", "2", "3"]
    for domain, genes in table[1:]:
        rows = found[found["domain"] == domain]
        assert re.findall(r"(?:^|, )([^ ,]+) \(", genes) == list(rows["gene"])
        assert f"({rows['log_fold_change'].iloc[0]:.1f}; {rows['share_in'].iloc[0]:.0%}" in genes


def test_the_command_gives_the_same_bits(fitted, tmp_path):
    (line,) = report(fitted).commands
    run(*_words_of(line), "--quiet")
    again = tmp_path / "one_again.h5ad"
    assert np.array_equal(posterior(again), posterior(fitted))
    kept, other = (anndata.read_h5ad(path).uns["pdvi"] for path in (fitted, again))
    assert kept["certificate"] == other["certificate"]
    assert kept["params"].keys() <= other["params"].keys() | {"memory"}
    assert report(again).commands == [
        line.replace("one_again", "one_again_again").replace("one.h5ad", "one_again.h5ad")
    ]


def test_the_command_of_a_joint_fit_gives_the_same_bits(joint, tmp_path):
    page = report(*joint)
    first, second = page.commands
    assert first == second
    before, _, after = first.partition(" && ")
    subprocess.run(["bash", "-c", before], check=True)
    run(*_words_of(after), "--quiet")
    for path in joint:
        assert np.array_equal(posterior(tmp_path / "again" / path.name), posterior(path))


def test_several_sections_stand_below_a_table_that_leads_to_each(joint, fitted):
    page = report(*joint, fitted)
    _expect_whole(page)
    assert page.headings == 3 * PARTS
    assert [data for tag, data in page.texts if tag == "h2"] == ["left", "right", "one"]
    (table,) = page.tables["summary"]
    counts = [str(anndata.read_h5ad(path).obs["pdvi_domain"].nunique()) for path in joint]
    assert table[0][:4] == ["section", "spots", "domains", "ARI"]
    samples = anndata.read_h5ad(joint[0]).uns["pdvi"]["scores"]["samples"]
    assert table[1][:4] == ["left", "300", counts[0], f"{samples['ari'][0]:.3f}"]
    assert table[2][:4] == ["right", "300", counts[1], f"{samples['ari'][1]:.3f}"]
    assert table[3][3] == f"{anndata.read_h5ad(fitted).uns['pdvi']['scores']['ari']:.3f}"
    assert [row[-1] for row in table[1:]] == 3 * ["converged"]
    assert [row[0] for row in page.tables["section-1-scores"][0][1:]][-2:] == ["left", "right"]


def test_one_file_of_a_joint_fit_names_the_others(joint, tmp_path):
    (line,) = report(joint[1]).commands
    assert _words_of(line)[:3] == ["fit", str(tmp_path / "left.h5ad"), str(tmp_path / "right.h5ad")]


def test_a_file_of_a_joint_fit_with_another_name_is_known_by_its_spots(joint, fitted, tmp_path):
    """Both files have 300 spots: scores of a renamed one are of neither, and once one is shorter of that."""
    renamed = joint[0].rename(tmp_path / "renamed.h5ad")
    assert report(renamed, fitted).tables["summary"][0][1][3:7] == ["–", "–", "–", "–"]
    ari = anndata.read_h5ad(renamed).uns["pdvi"]["scores"]["samples"]["ari"][0]

    def other_sizes(adata):
        for scores in (adata.uns["pdvi"]["scores"], adata.uns["pdvi"]["scores"]["baseline"]):
            scores["samples"]["n_spots"] = np.array([300, 299])

    change(renamed, other_sizes)
    assert report(renamed, fitted).tables["summary"][0][1][3] == f"{ari:.3f}"


def test_sections_of_one_file(fitted, tmp_path):
    change(fitted, lambda adata: adata.obs.insert(0, "slice", np.where(np.arange(600) < 200, "front", "back")))
    run("fit", fitted, "--k", "3", "--sample-key", "slice", *FEW, "--quiet")
    page = report(fitted)
    assert "in reading order: back, front." in page.words
    assert [row[0] for row in page.tables["section-1-scores"][0][1:]][-2:] == ["back", "front"]
    run(*_words_of(page.commands[0]), "--quiet")
    assert np.array_equal(posterior(tmp_path / "one_again.h5ad"), posterior(fitted))


def test_a_selection_of_spots_has_scores_of_its_own(fitted, tmp_path):
    adata = anndata.read_h5ad(fitted)
    spatialpdvi.intervals(adata, n_genes=1, method="mean-field", store=True)
    some = adata[adata.obsm["spatial"][:, 0] < np.median(adata.obsm["spatial"][:, 0])].copy()
    some.write_h5ad(tmp_path / "some.h5ad")
    page = report(tmp_path / "some.h5ad")
    assert (
        f"This file has {some.n_obs} of the spots that were fitted; the scores are those of these spots." in page.words
    )
    assert f"of {some.n_obs} of {some.n_obs} spots" in page.words
    assert "The numbers describe the result of all spots that were fitted, of which this file has some." in page.words
    told = "This file has some of the spots that were fitted; what is told here is of those that it had when this was "
    assert told + "computed." in page.words
    assert "into a file beside this one, if it reads a file with all spots that were fitted." in page.words
    scores = spatialpdvi.evaluate_file(tmp_path / "some.h5ad")
    own = page.tables["section-1-scores"][0][1]
    assert own[:2] == ["domains", f"{scores['ari']:.3f}"]
    drawn = spatialpdvi.plot_file(tmp_path / "some.h5ad")
    assert any(f"ARI {scores['ari']:.3f}" in text.get_text() for text in drawn.findobj(Text))
    assert "This file has" not in report(fitted).words


def test_the_command_of_an_edited_file_gives_the_fit_before(fitted):
    spatialpdvi.label_file(fitted, spatialpdvi.Merge(["0", "1"]))
    words = report(fitted).words
    assert "This command gives the fit as it was before its domains were edited, bit for bit" in words


def test_without_annotation(fitted):
    change(fitted, lambda adata: adata.obs.pop("annotation"))
    run("fit", fitted, "--k", "3", *FEW, "--quiet")
    page = report(fitted)
    _expect_whole(page)
    assert page.headings == PARTS
    assert page.captions[:3] == ["Domains", "Confidence", "Agreement of restarts"]
    assert page.tables["section-1-domains"][0][0] == [
        "domain",
        "spots",
        "share",
        "mean confidence, calibrated",
        "agreement of restarts",
    ]
    assert page.tables["section-1-scores"][0][0] == ["", "CHAOS", "PAS"]
    assert "no known labels" in page.words


def test_an_annotation_that_went_after_the_fit_is_no_map(fitted):
    change(fitted, lambda adata: adata.obs.pop("annotation"))
    page = report(fitted)
    assert page.captions[0] == "Domains"
    assert "ARI" in page.tables["section-1-scores"][0][0]


def test_other_labels_can_be_shown(fitted):
    change(fitted, lambda adata: adata.obs.insert(0, "half", np.where(np.arange(600) < 300, "a", "b")))
    page = report(fitted, options=["--label-key", "half"])
    assert page.captions[0] == "Annotation (obs['half'])"
    assert "compared with obs['annotation'] of 600 of 600 spots." in page.words


def test_without_counts(fitted):
    adata = anndata.read_h5ad(fitted)
    bare = anndata.AnnData(obs=adata.obs[["annotation"]], obsm={key: adata.obsm[key] for key in ("spatial", "X_pca")})
    bare.write_h5ad(fitted)
    run("fit", fitted, "--k", "3", "--rep", "X_pca", *FEW[2:], "--quiet")
    page = report(fitted)
    assert "There are no marker genes. Expected" in page.words
    assert "section-1-marker-genes" not in page.tables


def test_counts_that_went_after_the_fit_are_told(fitted, tmp_path):
    adata = anndata.read_h5ad(fitted)
    adata.X = np.full(adata.shape, 0.5, dtype=np.float32)
    adata.write_h5ad(fitted)
    told = run("report", fitted, "-o", tmp_path / "page.html")
    assert "Warning: The report has no marker genes. Expected" in told.stderr
    assert "There are no marker genes. Expected" in (tmp_path / "page.html").read_text()


def test_counts_of_a_layer_that_is_named(fitted):
    def hide(adata):
        adata.layers["mine"] = adata.X.copy()
        adata.X = np.full(adata.shape, 0.5, dtype=np.float32)

    first = report(fitted).tables["section-1-marker-genes"]
    change(fitted, hide)
    assert report(fitted, options=["--layer", "mine"]).tables["section-1-marker-genes"] == first
    refused = run("report", fitted, "--layer", "none", "-o", fitted.with_name("x.html"), "-q", code=2)
    assert "Name one of these with --layer." in refused.stderr


def test_another_column_of_sections(joint):
    def rename(adata):
        adata.obs["again"] = adata.obs.pop("slice")

    path = joint[0]
    change(path, lambda adata: adata.obs.insert(0, "slice", np.repeat(["a", "b"], [100, adata.n_obs - 100])))
    run("fit", path, "--k", "3", "--sample-key", "slice", *FEW, "--quiet")
    first = re.findall(r'"data:image[^"]+"', report(path).source)
    change(path, rename)
    assert "name another column with --sample-key" in run("report", path, "-o", path.with_name("x.html")).stderr
    again = run("report", path, "--sample-key", "again", "-o", path.with_name("x.html"))
    assert "--sample-key" not in again.stderr
    assert first
    assert re.findall(r'"data:image[^"]+"', path.with_name("x.html").read_text(encoding="utf-8")) == first


@pytest.mark.parametrize("option", ["layer", "gene-key"])
def test_options_of_genes_without_genes_are_refused(fitted, option):
    refused = run("report", fitted, "--no-markers", f"--{option}", "x", "-o", fitted.with_name("x.html"), code=2)
    assert refused.stderr == (
        f"Error: Expected marker genes with --{option}, found none. Only genes are read from the counts.\n"
    )


def test_marker_genes_can_be_left_out(fitted):
    page = report(fitted, options=["--no-markers"])
    assert "Marker genes were not requested." in page.words
    assert page.headings == PARTS


def test_names_of_genes(fitted):
    change(fitted, lambda adata: adata.var.insert(0, "symbol", [f"Sym{i}" for i in range(adata.n_vars)]))
    assert "Sym" in report(fitted, options=["--gene-key", "symbol"]).words
    refused = run("report", fitted, "--gene-key", "none", "-o", fitted.with_name("x.html"), "-q", code=2)
    assert refused.stderr.startswith("Error: Expected a column 'none' with names of genes")
    assert not fitted.with_name("x.html").exists()


def test_a_prediction(fitted, model, tmp_path):
    shutil.copy(fitted, tmp_path / "new.h5ad")
    run("predict", tmp_path / "new.h5ad", "--model", model, "--quiet")
    page = report(tmp_path / "new.h5ad")
    assert page.headings == PARTS
    assert "Agreement of restarts" not in page.captions
    assert [row[0] for row in page.tables["section-1-scores"][0][1:]] == ["domains", "start of the prediction"]
    assert "domains are those of a saved model" in page.words
    words = _words_of(page.commands[0])
    words[words.index("--model") + 1] = str(model)
    run(*words, "--quiet")
    assert np.array_equal(posterior(tmp_path / "new_again.h5ad"), posterior(tmp_path / "new.h5ad"))


def test_a_prediction_by_a_model_in_memory_is_no_fit(fitted):
    with H5adSource(fitted) as source:
        summary = source.uns("pdvi")
    del summary["params"]["versions"]
    params = {"model_version": 3, **{name: summary["params"][name] for name in ("k", "seed", "label_key")}}
    change(fitted, lambda adata: adata.uns["pdvi"].update(params=params))
    page = report(fitted)
    assert not page.commands
    assert "The model was in memory, not in a file, so there is no command." in " ".join(page.words.split())
    assert [row[0] for row in page.tables["section-1-scores"][0][1:]][1] == "start of the prediction"


def test_a_number_of_domains_that_was_chosen(fitted, tmp_path):
    run("fit", fitted, "--k", "3:4", *FEW, "--quiet")
    page = report(fitted)
    assert page.headings == [*PARTS[:3], "Number of domains", *PARTS[3:]]
    (table,) = page.tables["section-1-number-of-domains"]
    assert [row[0] for row in table] == ["K", "3", "4"]
    assert anndata.read_h5ad(fitted).uns["pdvi"]["k_choice"]["reason"] in page.words
    assert "The number of domains was chosen by the fit, which was given k = 3:4." in page.words
    run(*_words_of(page.commands[0]), "--quiet")
    assert np.array_equal(posterior(tmp_path / "one_again.h5ad"), posterior(fitted))


def test_domains_that_share_states(fitted):
    clear = spatialpdvi.simulate(n_spots=600, n_genes=150, k=4, seed=2, signal=2.0, easy=True)
    clear.write_h5ad(fitted)
    run("fit", fitted, "--k", "3:4", "--states", "6", "--search", "1", *FEW, "--quiet")
    page = report(fitted)
    assert page.headings == [*PARTS[:3], "Number of domains", "Domains", "Cell states", *PARTS[4:]]
    (table,) = page.tables["section-1-number-of-domains"]
    assert table[0][:2] == ["K", "evidence"]
    assert "Each domain is a composition of 6 states" in page.words
    described = [image["alt"] for image in page.all("img")]
    assert "The domains are compositions of 6 cell states." in described
    _expect_whole(page)


def test_a_fit_that_did_not_converge_says_so(fitted):
    run("fit", fitted, "--k", "4", *FEW, "--max-epochs", "1", "--quiet", code=3)
    page = report(fitted)
    states = [values["class"] for values in page.all("span") if "state" in (values.get("class") or "")]
    assert states == ["state bad"]
    assert [data for tag, data in page.texts if data.startswith("Not converged")] != []
    assert "not converged" in page.words


def test_a_zarr_store_gives_the_same_page(fitted, tmp_path):
    store = write_zarr(tmp_path / "one.zarr", anndata.read_h5ad(fitted), 3)
    first, second = report(fitted), report(store)
    assert second.source == first.source.replace("one.h5ad", "one.zarr").replace("one_again.h5ad", "one_again.zarr")


def test_three_axes_and_empty_domains(fitted):
    def lift(adata):
        adata.obsm["spatial"] = np.column_stack([adata.obsm["spatial"], np.arange(600) % 5])
        adata.obs["pdvi_domain"] = adata.obs["pdvi_domain"].cat.add_categories(["4"])
        del adata.uns["pdvi_domain_colors"]

    change(fitted, lift)
    page = report(fitted)
    assert "first two of three axes" in page.words
    assert len(page.tables["section-1-domains"][0]) == 5


def test_python_gives_the_same_page_and_the_file_is_as_it_was(fitted):
    before = fitted.read_bytes()
    page = report(fitted)
    assert spatialpdvi.report_files([str(fitted)]) == page.source
    assert fitted.read_bytes() == before


@pytest.mark.parametrize(
    "read",
    [
        spatialpdvi.report_files,
        spatialpdvi.describe_files,
        lambda paths: spatialpdvi.fit_files(paths, spatialpdvi.FitOptions(k=3)),
    ],
    ids=["report_files", "describe_files", "fit_files"],
)
def test_one_path_is_no_list_of_paths(read):
    with pytest.raises(InputError, match=r"^Expected a list of files, found one, 's\.h5ad'\. Give \['s\.h5ad'\]\.$"):
        read("s.h5ad")
    with pytest.raises(InputError, match=r"^Expected a list of files, found one, 's\.h5ad'"):
        read(Path("s.h5ad"))


def test_no_files_a_file_twice_and_fewer_than_no_genes_are_refused(fitted):
    for files, options, found in (
        ([], {}, "found none"),
        ([fitted, fitted], {}, "twice"),
        ([fitted], {"n_genes": -1}, "-1"),
        ([fitted], {"n_genes": 2.5}, "2.5"),
        ([fitted], {"n_genes": "3"}, "'3'"),
    ):
        with pytest.raises(InputError, match=f"^Expected .*{found}"):
            spatialpdvi.report_files(files, **options)


@pytest.mark.parametrize("words", [(), ("--no-markers",)])
def test_the_command_refuses_fewer_than_no_genes(fitted, tmp_path, words):
    page = tmp_path / "page.html"
    done = run("report", fitted, "-o", page, "-n", -3, *words, code=2)
    assert done.stderr == "Error: Expected `--n-genes` to be at least 0, found -3.\n"
    assert not page.exists()


@pytest.mark.parametrize(
    ("part", "value"),
    [("certificate", {"converged": True}), ("certificate", "fine"), ("trace", {"epoch": np.arange(2)})],
)
def test_what_no_fit_has_written_is_refused(fitted, part, value):
    def spoil(adata):
        adata.uns["pdvi"][part] = value

    change(fitted, spoil)
    with pytest.raises(InputError, match=r"^Expected .*found .*\. [A-Z].*\.$"):
        spatialpdvi.report_files([fitted], n_genes=0)


def test_parameters_that_are_odd_are_shown_and_make_no_command(fitted):
    def spoil(adata):
        adata.uns["pdvi"]["params"] |= {"k": "many", "long": "x" * 10_000, "nested": {"a": [1.5, 2.0]}}

    change(fitted, spoil)
    page = report(fitted, options=["--no-markers"])
    assert page.commands == []
    assert "there is no command" in page.words
    assert "x" * 300 not in page.source


def test_a_thousand_labels_do_not_fill_the_page(fitted):
    change(fitted, lambda adata: adata.obs.insert(0, "many", pd.Categorical([f"cell {i}" for i in range(600)])))
    page = report(fitted, options=["--label-key", "many", "--no-markers"])
    assert "and 540 more" in page.words


def test_a_large_section_is_a_small_page(fitted):
    """The pictures and the data of 150,000 spots in 22 domains, which are nearly all of the page."""
    rng = np.random.default_rng(0)
    place = np.indices((500, 300)).reshape(2, -1).T.astype(float)
    names = [str(k) for k in range(22)]
    sure = 0.75 + 0.2 * np.sin(place[:, 0] / 20) + 0.05 * rng.random(len(place))
    with H5adSource(fitted) as source:
        large = read_fitted(source, Keys())._replace(
            coordinates=place + rng.normal(size=place.shape) / 5,
            domains=pd.Categorical.from_codes(((place @ [0.05, 0.03]) % 22).astype(int), names),
            annotation=pd.Categorical.from_codes(((place @ [0.03, 0.05]) % 22).astype(int), names),
            confidence=sure,
            calibrated=sure,
            colours=None,
        )
    letters = np.array(list("ACGT"))[rng.integers(4, size=(len(place), 16))]
    counts = rng.poisson(np.linspace(0.1, 2.0, 12)[:, None], size=(12, len(place)))
    tenths = np.rint(10 * np.log1p(1e4 * counts / rng.lognormal(7.0, 0.4, size=len(place)))).astype(np.uint8)
    material = Material(
        path=fitted,
        name="large",
        fitted=large,
        spot_names=["".join(row) + "-1" for row in letters],
        agreement=sure,
        states=rng.dirichlet(np.full(20, 0.2), size=len(place)),
        mapped=[MappedGene(f"gene{i}", "0", own) for i, own in enumerate(tenths)],
    )
    drawn = draw_maps(material)
    pictures = (drawn.domains.picture, drawn.annotation.picture, drawn.confidence.picture, drawn.agreement.picture)
    of_pictures = sum(len(picture.uri) for picture in pictures)
    assert of_pictures < 1.2e6
    assert of_pictures + len(json.dumps(map_data(material, drawn))) < 6e6


@pytest.mark.parametrize("n_colours", [2, 256, 257])
def test_a_palette_changes_no_pixel(n_colours):
    rng = np.random.default_rng(0)
    colours = rng.integers(256, size=(n_colours, 4)).astype(np.uint8)
    pixels = colours[np.arange(90 * 70) % n_colours].reshape(90, 70, 4)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="png")
    smaller = with_palette(file.getvalue())
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(smaller)).convert("RGBA")), pixels)
    assert (smaller == file.getvalue()) == (n_colours > 256)


def test_warnings_of_the_library_reach_python(fitted):
    change(fitted, lambda adata: setattr(adata, "X", adata.X * 0.5))
    with pytest.warns(InputWarning, match="The report has no marker genes"):
        page = Page(spatialpdvi.report_files([fitted]))
    assert "There are no marker genes" in page.words


def test_names_of_too_many_spots_are_not_read(fitted, monkeypatch):
    expected = spatialpdvi.report_files([fitted], n_genes=0)
    for place in ("spatialpdvi.report.reading", "spatialpdvi.report.page"):
        monkeypatch.setattr(f"{place}.MOST_SPOTS", 100)
    monkeypatch.setattr("spatialpdvi.report.page._FEWEST", 1)
    squares = spatialpdvi.report_files([fitted], n_genes=0)
    monkeypatch.setattr(H5adSource, "obs_names", None)
    assert spatialpdvi.report_files([fitted], n_genes=0) == squares != expected
