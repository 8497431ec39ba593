"""Several sections in one fit: nothing reaches from one into another, and a domain means the same in all."""

import json

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from sklearn.metrics import adjusted_rand_score

import spatialpdvi
from spatialpdvi import FitOptions, InputError, InputWarning, fit_file
from spatialpdvi.cli import main
from spatialpdvi.features.smoothing import neighbor_averages, predictive_neighbors
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.section.section import read_section

OPTIONS = {"n_top_genes": 100, "n_init": 2}


@pytest.fixture(scope="module")
def halves():
    """One simulated section cut in two, whose halves lie on top of each other."""
    from spatialpdvi.synthetic import simulate

    section = simulate(n_spots=900, n_genes=200, k=4, seed=3, easy=True)
    x = section.obsm["spatial"][:, 0]
    left = x < np.median(x)
    parts = [section[left].copy(), section[~left].copy()]
    for part in parts:
        part.obsm["spatial"] = part.obsm["spatial"] - part.obsm["spatial"].min(axis=0)
    return parts


@pytest.fixture
def joint(halves):
    """Both in one AnnData, spots shuffled, with names of sections that no file could have as keys."""
    both = ad.concat({"left/1": halves[0], "right = 2": halves[1]}, label="slice")
    order = np.random.default_rng(0).permutation(both.n_obs)
    return both[order].copy()


def test_no_edge_average_or_patch_reaches_into_another_section(joint):
    result = spatialpdvi.fit(joint, k=4, sample_key="slice", save_graph=True, n_patches=6, **OPTIONS)
    codes = joint.obs["slice"].cat.codes.to_numpy() if hasattr(joint.obs["slice"], "cat") else None
    codes = np.asarray(joint.obs["slice"] == "left/1") if codes is None else codes
    rows, columns = joint.obsp["pdvi_connectivities"].nonzero()
    assert (codes[rows] == codes[columns]).all()
    for code in (0, 1):
        own = np.flatnonzero(codes == code)
        alone = mutual_knn(joint.obsm["spatial"][own], 10)
        assert (joint.obsp["pdvi_connectivities"][own][:, own] != 0).nnz == alone.nnz
    assert result.params["n_patches"] == 6
    assert result.certificate.converged


@pytest.mark.slow
def test_compositions_of_sections_on_top_of_each_other_are_those_of_sections_apart(joint):
    options = {"k": 4, "states": 6, "search": 2, "sample_key": "slice", **OPTIONS}
    moved = joint.copy()
    moved.obsm["spatial"][np.asarray(joint.obs["slice"] == "left/1")] += 1 << 20
    on_top, apart = (spatialpdvi.fit(section, **options).posterior for section in (joint, moved))
    np.testing.assert_allclose(on_top, apart, atol=1e-6)


def test_averages_of_a_section_are_those_that_it_has_alone(joint):
    codes = np.asarray(joint.obs["slice"] == "left/1").astype(int)
    x = np.random.default_rng(1).normal(size=(joint.n_obs, 3)).astype(np.float32)
    samples = [np.flatnonzero(codes == code) for code in (0, 1)]
    (together,) = neighbor_averages(x, joint.obsm["spatial"], (8,), samples=samples)
    for own in samples:
        (alone,) = neighbor_averages(x[own], joint.obsm["spatial"][own], (8,), samples=[np.arange(own.size)])
        np.testing.assert_array_equal(together[own], alone)


def test_the_scale_of_two_equal_sections_is_that_of_one(halves):
    points = np.asarray(halves[0].obsm["spatial"])
    x = np.random.default_rng(2).normal(size=points.shape) + np.sin(points / np.ptp(points) * 9.0)
    n = len(x)
    one = predictive_neighbors(x, points, samples=[np.arange(n)], most=100, seed=0)
    two = predictive_neighbors(
        np.tile(x, (2, 1)), np.tile(points, (2, 1)), samples=[np.arange(n), n + np.arange(n)], most=100, seed=0
    )
    assert one == two


def test_a_tiny_section_does_not_set_the_scale_of_the_others(halves):
    points = np.asarray(halves[0].obsm["spatial"])
    x = np.random.default_rng(2).normal(size=points.shape) + np.sin(points / np.ptp(points) * 9.0)
    n = len(x)
    for few in (1, 3, 12):
        samples = [np.arange(few), np.arange(few, n)]
        rest = predictive_neighbors(x[few:], points[few:], samples=[np.arange(n - few)], most=100, seed=0)
        assert predictive_neighbors(x, points, samples=samples, most=100, seed=0) == rest > 12
    alone = [np.arange(own, own + 1) for own in range(9)]
    assert predictive_neighbors(x[:9], points[:9], samples=alone, most=100, seed=0) == 0


def test_a_domain_means_the_same_in_both(halves):
    """A section and its mirror image: every spot and its image are of one domain."""
    image = halves[0].copy()
    image.obsm["spatial"] = image.obsm["spatial"] * [-1.0, 1.0]
    both = ad.concat({"as it is": halves[0], "mirrored": image}, label="slice", index_unique="-")
    found = spatialpdvi.fit(both, k=4, sample_key="slice", **OPTIONS).domains
    n = halves[0].n_obs
    assert (found[:n] == found[n:]).mean() > 0.98


def test_scores_are_told_for_each_section(joint, tmp_path):
    path, report = tmp_path / "joint.h5ad", tmp_path / "report.json"
    joint.write_h5ad(path)
    result = fit_file(path, FitOptions(k=4, sample_key="slice", **OPTIONS))
    own = ad.read_h5ad(path).uns["pdvi"]["scores"]["samples"]
    assert list(own["sample"]) == ["left/1", "right = 2"]
    for i, name in enumerate(own["sample"]):
        part = joint.obs["slice"] == name
        expected = adjusted_rand_score(joint.obs["annotation"][part], result.domains[part])
        assert own["ari"][i] == pytest.approx(expected)
    arguments = [
        "fit",
        path,
        "--k",
        4,
        "--sample-key",
        "slice",
        "--n-top-genes",
        100,
        "--n-init",
        2,
        "--report",
        report,
    ]
    shown = CliRunner().invoke(main, [str(a) for a in arguments])
    assert shown.exit_code == 0, shown.output
    assert "\nleft/1 " in shown.output
    assert json.loads(report.read_text())["scores"]["samples"]["n_spots"] == own["n_spots"].tolist()


def test_centred_sections_forget_what_shifts_all_their_spots(joint):
    rng = np.random.default_rng(5)
    joint.obsm["X_pca"] = rng.normal(size=(joint.n_obs, 6)) + 3.0 * np.eye(6)[joint.obs["annotation"].cat.codes % 6]
    shifted = joint.copy()
    shifted.obsm["X_pca"][shifted.obs["slice"] == "left/1"] += 40.0
    options = {"k": 4, "sample_key": "slice", "rep": "X_pca", "correct": "center", "n_init": 2}
    a, b = (spatialpdvi.fit(section, **options) for section in (joint, shifted))
    assert adjusted_rand_score(a.domains, b.domains) > 0.99
    # but for the mean of all spots, which moves with the section
    np.testing.assert_allclose(np.ptp(a.features - b.features, axis=0), 0.0, atol=0.02)


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
def test_edges_of_a_given_graph_between_sections_are_left_out(joint):
    import scipy.sparse as sp

    n = joint.n_obs
    ring = sp.csr_matrix((np.ones(n), (np.arange(n), np.roll(np.arange(n), 1))), shape=(n, n))
    joint.obsp["ring"] = ring + ring.T
    joint.obs["slice"] = np.where(np.arange(n) < n // 2, "a", "b")
    joint.obsm["spatial"] = joint.obsm["spatial"] + 0.01 * np.random.default_rng(0).random(
        (n, 2)
    )  # no two at one place
    with pytest.warns(
        InputWarning, match=r"^2 edges of the graph given by `graph` join spots of two sections; they are left out\.$"
    ):
        spatialpdvi.fit(joint, k=3, sample_key="slice", graph="ring", save_graph=True, max_epochs=3, **OPTIONS)
    rows, columns = joint.obsp["pdvi_connectivities"].nonzero()
    slices = joint.obs["slice"].to_numpy()
    assert (slices[rows] == slices[columns]).all()


def test_what_cannot_be_is_refused(joint):
    alone = joint[joint.obs["slice"] == "left/1"].copy()
    with pytest.raises(InputError, match=r"Expected several sections with `correct='center'`, found one"):
        spatialpdvi.fit(alone, k=3, correct="center", **OPTIONS)
    with pytest.raises(InputError, match=r"Expected `n_pcs` to be at least 1 with `correct='center'`, found 0"):
        FitOptions(k=3, correct="center", n_pcs=0)
    with pytest.raises(InputError, match=r"Expected obs\['nowhere'\].*`sample_key`"):
        spatialpdvi.fit(joint, k=3, sample_key="nowhere", **OPTIONS)
    joint.obs["slice"] = joint.obs["slice"].astype(object)
    joint.obs.loc[joint.obs_names[4], "slice"] = None
    with pytest.raises(
        InputError,
        match=r"^Expected obs\['slice'\] to have a label for every spot that names its section, found 1 of 900 missing",
    ):
        spatialpdvi.fit(joint, k=3, sample_key="slice", **OPTIONS)


@pytest.fixture
def files(halves, tmp_path):
    paths = [tmp_path / "left.h5ad", tmp_path / "right.h5ad"]
    for path, part in zip(paths, halves, strict=True):
        part.write_h5ad(path)
    return paths


def test_several_files_are_one_fit(files, halves, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    arguments = ["fit", *files, "--k", 4, "--n-top-genes", 100, "--n-init", 2, "-o", out, "--save-graph"]
    shown = CliRunner().invoke(main, [str(a) for a in arguments])
    assert shown.exit_code == 0, shown.output
    both = ad.concat({"left": halves[0], "right": halves[1]}, label="slice", index_unique="-")
    spatialpdvi.fit(both, k=4, sample_key="slice", save_graph=True, **OPTIONS)
    for path, part, name in zip(files, halves, ("left", "right"), strict=True):
        written = ad.read_h5ad(out / path.name)
        own = (both.obs["slice"] == name).to_numpy()
        np.testing.assert_array_equal(written.obs["pdvi_domain"].astype(str), both.obs["pdvi_domain"][own].astype(str))
        np.testing.assert_array_equal(written.obsm["pdvi_posterior"], both.obsm["pdvi_posterior"][own])
        np.testing.assert_array_equal(written.obsm["X_pdvi"], both.obsm["X_pdvi"][own])
        assert (written.obsp["pdvi_connectivities"] != both.obsp["pdvi_connectivities"][own][:, own]).nnz == 0
        np.testing.assert_array_equal(written.X.toarray(), part.X.toarray())
        assert list(written.uns["pdvi"]["scores"]["samples"]["sample"]) == ["left", "right"]
        assert "pdvi_domain" not in ad.read_h5ad(path).obs


def test_genes_are_matched_by_name(files, halves, tmp_path):
    from spatialpdvi import fit_files

    first = fit_files(files, FitOptions(k=4, **OPTIONS))
    turned = halves[1][:, ::-1].copy()
    turned.write_h5ad(files[1])
    again = fit_files(files, FitOptions(k=4, **OPTIONS))
    np.testing.assert_array_equal(first.posterior, again.posterior)


@pytest.mark.parametrize("shared", [3, 100])
def test_genes_that_hardly_overlap_are_refused_and_few_are_told(files, halves, shared):
    from spatialpdvi import fit_files

    other = halves[1].copy()
    other.var_names = [*other.var_names[:shared], *(f"other{i}" for i in range(other.n_vars - shared))]
    other.write_h5ad(files[1])
    before = files[0].read_bytes()
    if shared == 3:
        with pytest.raises(InputError, match=r"genes in common, found 3 of 200 .*the same kind of gene names"):
            fit_files(files, FitOptions(k=4, **OPTIONS))
        assert files[0].read_bytes() == before
    else:
        with pytest.warns(InputWarning) as caught:
            fit_files(files, FitOptions(k=4, **OPTIONS))
        (message,) = [text for one in caught if "genes" in (text := str(one.message))]
        assert message == (
            "The sections share only 100 of 200 genes, and only these are used. Of the genes of 'left', 'right' lacks "
            "100. Give files with all their genes, or leave out the sections that lack them."
        )


def test_one_file_with_one_gene_is_refused(halves, tmp_path):
    from spatialpdvi import fit_files

    one = halves[0][:, :1].copy()
    one.X = np.ones(one.shape)
    one.write_h5ad(tmp_path / "one.h5ad")
    with pytest.raises(InputError, match=r"genes in common, found 1 of 1 "):
        fit_files([tmp_path / "one.h5ad"], FitOptions(k=4, **OPTIONS))


def test_genes_that_a_subset_of_them_takes_away_are_told():
    """All genes of the smaller section are shared; the larger one loses most of its own."""
    from spatialpdvi.io.section.joining import join_sections

    rng = np.random.default_rng(0)

    def section(genes):
        adata = ad.AnnData(sp.csr_matrix(rng.poisson(3.0, (30, len(genes)))))
        adata.var_names, adata.obsm["spatial"] = [f"gene{i}" for i in genes], rng.uniform(size=(30, 2))
        return read_section(AnnDataSource(adata))

    parts = [section(range(20)), *(section([i for i in range(20) if i % 10 != j]) for j in range(4)), section(range(9))]
    with pytest.warns(InputWarning) as caught:
        joined = join_sections(parts[:1] + parts[-1:], ["all", "few"])
    assert joined.gene_names.size == 9
    assert str(caught[0].message) == (
        "The sections share only 9 of 20 genes, and only these are used. Of the genes of 'all', 'few' lacks 11. Give "
        "files with all their genes, or leave out the sections that lack them."
    )
    with pytest.warns(InputWarning, match=r"'all', 'few' lacks 11, 'a' lacks 2, 'b' lacks 2, and 2 more lack some\. "):
        join_sections(parts, ["all", *"abcd", "few"])
    assert join_sections(parts[:2], ["all", "a"]).gene_names.size == 18  # most: silence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--sample-key", "slice"],
            (
                "Expected no --sample-key with several files, found 'slice'. Leave it out: each file is a section by "
                "itself."
            ),
        ),
        (
            ["-o", "no/where"],
            (
                "Expected `--output` to be a folder, for 2 files, found 'no/where'. It cannot be made (No such file or "
                "directory). Choose another."
            ),
        ),
        (
            ["-o", "fitted.h5ad"],
            (
                "Expected `--output` to be a folder, for 2 files, found 'fitted.h5ad'. Each section is written into a "
                "file of its own name in it. Name it, for example, 'fitted'."
            ),
        ),
        (["-o", "new/fitted.ZARR"], "file of its own name in it. Name it, for example, 'new/fitted'."),
        (
            ["--init", "annotation"],
            (
                "Expected one file with --init, found several. Join the files into one AnnData, and name the column of "
                "the sections with --sample-key."
            ),
        ),
    ],
)
def test_what_several_files_cannot_have_is_refused(files, arguments, words):
    before = [path.read_bytes() for path in files]
    shown = CliRunner().invoke(main, ["fit", *map(str, files), "--k", "4", *arguments])
    assert shown.exit_code == 2
    assert words in shown.output
    assert [path.read_bytes() for path in files] == before


def test_the_folder_of_the_results_is_made_and_left_only_with_results(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["fit", *map(str, files), "--k", "4", "--n-init", "1", "-o", "fitted/"]
    refused = CliRunner().invoke(main, [*given, "--layer", "none"])
    assert refused.exit_code == 2
    assert not (tmp_path / "fitted").exists()
    done = CliRunner().invoke(main, [*given, "--max-epochs", "2"])
    assert done.exit_code == 3
    assert sorted(path.name for path in (tmp_path / "fitted").iterdir()) == sorted(path.name for path in files)


def test_no_file_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"^Expected at least one section to fit, found none\."):
        spatialpdvi.fit_files([], FitOptions(k=4), output=tmp_path / "fitted")
    assert not (tmp_path / "fitted").exists()


def test_the_name_of_a_file_makes_no_folder(files, tmp_path):
    options, out = FitOptions(k=4, **OPTIONS, states="off"), tmp_path / "fitted.h5ad"
    with pytest.raises(InputError, match=r"^Expected `output` to be a folder, for 2 files, found .*fitted\.h5ad'"):
        spatialpdvi.fit_files(files, options, output=out)
    assert not out.exists()
    out.mkdir()  # the user's own
    spatialpdvi.fit_files(files, options, output=out)
    assert sorted(path.name for path in out.iterdir()) == ["left.h5ad", "right.h5ad"]


def test_files_of_one_name_are_refused(files):
    shown = CliRunner().invoke(main, ["fit", str(files[0]), str(files[0]), "--k", "4"])
    assert shown.exit_code == 2
    assert "Expected files with different names, found 'left' twice" in shown.output


@pytest.mark.parametrize("link", ["symlink_to", "hardlink_to"])
def test_a_file_under_two_names_is_refused(files, link):
    other = files[0].with_name("other.h5ad")
    getattr(other, link)(files[0])
    with pytest.raises(InputError) as caught:
        spatialpdvi.fit_files([files[0], other], FitOptions(k=4))
    assert str(caught.value) == (
        f"Expected each file once, found {str(files[0])!r} twice, also as {str(other)!r}. Leave one of them out."
    )


def test_sections_that_were_fitted_apart_are_no_fit_of_both():
    """Their domains have nothing in common but their numbers."""
    apart = {
        name: spatialpdvi.simulate(n_spots=400, n_genes=60, k=3, seed=seed, easy=True) for seed, name in enumerate("ab")
    }
    for section in apart.values():
        spatialpdvi.fit(section, k=3, n_top_genes=60, n_init=1, states="off")
    both = ad.concat(apart, label="slice", index_unique="-", uns_merge="first")
    with pytest.warns(InputWarning, match=r"^800 spots have a domain, but the fit in uns\['pdvi'\] was of 400\. Where"):
        spatialpdvi.markers(both)
    spatialpdvi.markers(both[both.obs["slice"] == "a"])  # a selection has fewer, which is as it was
    both.uns["pdvi"]["params"]["model"] = "model.npz"  # as after predictions with one model
    with pytest.warns(InputWarning, match=r"but the prediction in .* are the same only if one model predicted"):
        spatialpdvi.markers(both)
    for merge in ("same", "unique"):
        unequal = {"a": apart["a"], "b": apart["b"][:300].copy()}
        unequal["b"].uns["pdvi"]["params"]["n_spots"] = 300
        merged = ad.concat(unequal, label="slice", index_unique="-", uns_merge=merge)
        with pytest.warns(
            InputWarning, match=r"^700 spots have a domain, but the fit in uns\['pdvi'\] does not say of"
        ):
            spatialpdvi.markers(merged)
    bare = ad.concat(apart, label="slice", index_unique="-")
    with pytest.raises(InputError, match=r"found keys of uns: none\. Sections lose it when they are concatenated"):
        spatialpdvi.markers(bare)


@pytest.mark.cli
def test_colours_that_differ_between_files_are_not_kept(tmp_path):
    section = spatialpdvi.simulate(n_spots=400, n_genes=60, k=3, seed=1, easy=True)
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    for path, spots in zip(paths, (slice(0, None, 2), slice(1, None, 2)), strict=True):
        section[spots].copy().write_h5ad(path)
    options = {"k": 3, "n_top_genes": 60, "n_init": 1, "states": "off"}
    written = list(spatialpdvi.fit_files(paths, **options).colours)
    mine = ["#111111", "#222222", "#333333"]
    for same in (False, True):
        for path in paths if same else paths[:1]:
            adata = ad.read_h5ad(path)
            adata.uns["pdvi_domain_colors"] = np.array(mine, dtype=object)
            adata.write_h5ad(path)
        spatialpdvi.fit_files(paths, **options)
        for path in paths:
            assert ad.read_h5ad(path).uns["pdvi_domain_colors"].tolist() == (mine if same else written)
