"""`--across-sections`: aligned sections are one tissue in space; others lead to an error or a warning."""

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import spatialpdvi
from spatialpdvi import FitOptions, InputError, InputWarning, fit_files
from spatialpdvi.cli import main

pytestmark = pytest.mark.slow

OPTIONS = {"k": 3, "n_init": 1, "rep": "X_emb"}
SIDE, HEIGHT = 12, 6


@pytest.fixture(scope="module")
def block():
    """A block of tissue with slanted layers on a lattice in space, its spots in two slices and shuffled."""
    rng = np.random.default_rng(0)
    xyz = np.indices((SIDE, SIDE, HEIGHT)).reshape(3, -1).T.astype(float)
    truth = np.searchsorted([10, 18], xyz @ [1.0, 0.5, 1.5], side="right")
    x = 1.5 * np.eye(5)[truth] + rng.normal(size=(len(xyz), 5))
    obs = {"annotation": np.array(["a", "b", "c"])[truth], "slice": np.where(xyz[:, 2] < HEIGHT / 2, "low", "high")}
    section = ad.AnnData(obs=obs, obsm={"spatial": xyz, "X_emb": x})
    section.obs_names = [f"spot{i}" for i in range(len(xyz))]
    return section[rng.permutation(len(xyz))].copy()


def test_two_halves_of_a_block_are_fitted_as_the_block(block):
    one, two = block.copy(), block.copy()
    whole = spatialpdvi.fit(one, save_graph=True, **OPTIONS)
    halves = spatialpdvi.fit(two, save_graph=True, sample_key="slice", across_sections=True, **OPTIONS)
    assert halves.params["smooth"] == whole.params["smooth"] > 0
    assert halves.params["n_patches"] == whole.params["n_patches"] > 1
    np.testing.assert_array_equal(halves.features, whole.features)
    np.testing.assert_array_equal(halves.posterior, whole.posterior)
    np.testing.assert_array_equal(halves.domain_mean, whole.domain_mean)
    np.testing.assert_array_equal(two.obsm["pdvi_flow"], one.obsm["pdvi_flow"])
    assert (two.obsp["pdvi_connectivities"] != one.obsp["pdvi_connectivities"]).nnz == 0
    assert halves.colours == whole.colours
    apart = spatialpdvi.fit(block.copy(), sample_key="slice", **OPTIONS)
    assert halves.scores["ari"] > apart.scores["ari"]


def test_edges_that_cross_are_counted(block):
    section = block.copy()
    found = spatialpdvi.fit(section, save_graph=True, sample_key="slice", across_sections=True, **OPTIONS)
    rows, columns = section.obsp["pdvi_connectivities"].nonzero()
    low = (section.obs["slice"] == "low").to_numpy()
    crossing = int((low[rows] != low[columns]).sum()) // 2
    assert found.params["n_edges_across"] == crossing > SIDE**2
    assert "n_edges_across" not in spatialpdvi.fit(block.copy(), sample_key="slice", **OPTIONS).params


def test_a_given_graph_keeps_its_edges_across(block):
    section = block.copy()
    n = section.n_obs
    ring = sp.csr_matrix((np.ones(n), (np.arange(n), np.roll(np.arange(n), 1))), shape=(n, n))
    section.obsp["ring"] = ring + ring.T
    low = (section.obs["slice"] == "low").to_numpy()
    found = spatialpdvi.fit(section, sample_key="slice", across_sections=True, graph="ring", **OPTIONS)
    assert found.params["n_edges_across"] == (low != np.roll(low, 1)).sum()


def test_without_a_prior_no_edge_could_join_sections(block):
    found = spatialpdvi.fit(block.copy(), sample_key="slice", across_sections=True, beta=0.0, **OPTIONS)
    assert found.params["n_edges_across"] == 0


def test_sections_too_far_apart_to_share_edges_are_told(block):
    section = block.copy()
    section.obsm["spatial"][section.obs["slice"] == "high", 2] += 20.0
    words = r"^Only 0 of [\d,]+ edges join spots of two sections, at 0 of 864 spots.* section is 1, .* section is 22\."
    with pytest.warns(InputWarning, match=words):
        found = spatialpdvi.fit(section, sample_key="slice", across_sections=True, **OPTIONS)
    assert found.params["n_edges_across"] == 0


@pytest.mark.filterwarnings("ignore:.* spots have the same coordinates in:spatialpdvi.InputWarning")
def test_what_is_not_aligned_is_refused(block):
    flat = block.copy()
    flat.obsm["spatial"] = flat.obsm["spatial"][:, :2]
    with pytest.raises(InputError, match=r"Expected coordinates in 3-D with `across_sections`, found 2 columns"):
        spatialpdvi.fit(flat, sample_key="slice", across_sections=True, **OPTIONS)
    with pytest.raises(InputError, match=r"Expected several sections with `across_sections`, found one"):
        spatialpdvi.fit(block.copy(), across_sections=True, **OPTIONS)
    one = block.copy()
    one.obs["slice"] = "all"
    with pytest.raises(InputError, match=r"Expected several sections with `across_sections`, found one"):
        spatialpdvi.fit(one, sample_key="slice", across_sections=True, **OPTIONS)
    assert "pdvi" not in flat.uns
    assert "pdvi" not in one.uns


@pytest.fixture
def files(block, tmp_path):
    """The slices in files of their own, flat, with aligned coordinates in obs."""
    paths = []
    for name in ("low", "high"):
        part = block[block.obs["slice"] == name].copy()
        for i, axis in enumerate("xyz"):
            part.obs[axis] = part.obsm["spatial"][:, i]
        part.obsm["spatial"] = part.obsm["spatial"][:, :2]
        paths.append(tmp_path / f"{name}.h5ad")
        part.write_h5ad(paths[-1])
    return paths


@pytest.mark.filterwarnings("ignore:.* spots have the same coordinates in:spatialpdvi.InputWarning")
def test_files_are_aligned_by_columns_of_obs_and_hold_edges_within_alone(files, tmp_path):
    arguments = ["fit", *map(str, files), "--k", "3", "--n-init", "1", "--rep", "X_emb", "--across-sections"]
    shown = CliRunner().invoke(main, [*arguments, "--save-graph"])
    assert shown.exit_code == 2
    assert "found 2 columns in 'spatial'" in shown.output
    aligned = CliRunner().invoke(main, [*arguments, "--save-graph", "--spatial-key", "x,y,z"])
    assert aligned.exit_code == 0, aligned.output
    assert "of them across sections" in aligned.output
    written = [ad.read_h5ad(path) for path in files]
    params = written[0].uns["pdvi"]["params"]
    stored = sum(part.obsp["pdvi_connectivities"].nnz // 2 for part in written)
    assert stored + params["n_edges_across"] == params["n_edges"]
    picture = CliRunner().invoke(main, ["plot", str(files[0]), "--spatial-key", "x,y,z", "-o", str(tmp_path / "a.png")])
    assert picture.exit_code == 0, picture.output
    together = fit_files(files, FitOptions(**OPTIONS, across_sections=True, spatial_key="x,y,z"))
    np.testing.assert_array_equal(together.posterior[: written[0].n_obs], written[0].obsm["pdvi_posterior"])


@pytest.mark.parametrize(
    ("key", "words"),
    [("x,y,w", r"columns x, y, w of obs .*found no 'w'"), ("x,y,slice", "found column 'slice' of type")],
)
def test_columns_that_are_no_coordinates_are_refused(files, key, words):
    with pytest.raises(InputError, match=words):
        fit_files(files, FitOptions(**OPTIONS, spatial_key=key))
