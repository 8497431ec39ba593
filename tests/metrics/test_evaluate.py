"""`spatialpdvi.evaluate`: the sections, the coordinates and the spots of the fit whose domains are scored."""

import json

import anndata as ad
import numpy as np
import pytest
from click.testing import CliRunner

import spatialpdvi as spv
from spatialpdvi import InputError, InputWarning
from spatialpdvi.api import evaluate_file
from spatialpdvi.cli import main
from spatialpdvi.metrics.clustering import chaos, pas

N = 260  # spots of a section
SCORES = ["ari", "nmi", "homogeneity", "completeness", "chaos", "pas", "n_spots", "n_scored"]


@pytest.fixture(scope="module")
def joint():
    """A fit of two sections that lie upon one another in ``xy``, without some spots, and with edited domains.

    ``spatial`` is another frame, in which neighbours are anywhere.
    """
    one, two = (spv.simulate(n_spots=N, n_genes=80, k=4, seed=seed, easy=True) for seed in (1, 2))
    two.obsm["spatial"] = one.obsm["spatial"].copy()
    adata = ad.concat({"a": one, "b": two}, label="slice", index_unique="-")
    adata.obsm["xy"] = adata.obsm["spatial"]
    adata.obsm["spatial"] = np.random.default_rng(0).permutation(adata.obsm["xy"])
    adata.obs["tissue"] = np.arange(adata.n_obs) % N >= 20
    options = {"k": 4, "n_top_genes": 80, "n_init": 1, "states": "off"}
    with pytest.warns(InputWarning, match="lie in one section each"):
        spv.fit(adata, **options, spatial_key="xy", sample_key="slice", mask="tissue")
    return adata


@pytest.fixture(scope="module")
def edited(joint):
    adata = joint.copy()
    spv.label(adata, spv.Levels([2]))
    spv.label(adata, spv.Rename({"0": "skin"}))
    assert {"pdvi_domain_L2", "pdvi_domain_fitted"} <= set(adata.obs)
    return adata


@pytest.fixture
def path(edited, tmp_path):
    path = tmp_path / "joint.h5ad"
    edited.write_h5ad(path)
    return path


def _by_section(adata, key, where="xy", column="slice"):
    """CHAOS and PAS of each section by itself, as means over the spots that have a domain."""
    placed = adata[adata.obs[key].notna()]
    parts = [placed[placed.obs[column] == name] for name in placed.obs[column].unique()]
    sizes = [part.n_obs for part in parts]
    return [
        np.average([score(part.obs[key], part.obsm[where]) for part in parts], weights=sizes) for score in (chaos, pas)
    ]


@pytest.mark.filterwarnings("error::spatialpdvi.InputWarning")
def test_by_default_the_scores_are_those_that_the_fit_has_stored(joint):
    scores, stored = spv.evaluate(joint), joint.uns["pdvi"]["scores"]
    assert sorted(scores) == sorted(SCORES)
    assert scores == {name: pytest.approx(stored[name], rel=1e-12) for name in SCORES}
    assert [scores["chaos"], scores["pas"]] == pytest.approx(_by_section(joint, "pdvi_domain"))
    assert scores["n_spots"] == 2 * (N - 20)


@pytest.mark.parametrize("key", ["pdvi_domain", "pdvi_domain_fitted", "pdvi_domain_L2"])
def test_every_column_of_a_fit_is_scored_alike(edited, path, key):
    scores = spv.evaluate(edited, domain_key=key)
    assert scores["n_spots"] == 2 * (N - 20)
    assert [scores["chaos"], scores["pas"]] == pytest.approx(_by_section(edited, key))
    assert evaluate_file(path, domain_key=key) == scores


def test_a_fitted_spot_without_a_domain_is_still_an_error(edited):
    adata = edited.copy()
    adata.obs.iloc[50:53, adata.obs.columns.get_loc("pdvi_domain_L2")] = None
    with pytest.raises(InputError, match=r"pdvi_domain_L2'\] to have a domain for every spot, found 3 of 480 missing"):
        spv.evaluate(adata, domain_key="pdvi_domain_L2")


def test_the_longest_prefix_owns_a_column(joint):
    adata = joint.copy()
    adata.uns["pdvi_domain"] = {
        "params": {"spatial_key": "xy", "sample_key": "slice", "n_spots": 2 * N},
        "certificate": {},
    }
    adata.obs["pdvi_domain_domain"] = adata.obs["slice"]
    assert spv.evaluate(adata, domain_key="pdvi_domain_domain")["n_spots"] == 2 * N
    assert spv.evaluate(adata)["n_spots"] == 2 * (N - 20)


def test_a_column_whose_name_begins_as_those_of_a_fit_do_is_the_users_own(joint):
    adata = joint.copy()
    adata.obs["pdvi_domain_mine"] = adata.obs["own"] = adata.obs["slice"]
    of_sections = {"spatial_key": "xy", "sample_key": "slice"}
    found = [spv.evaluate(adata, domain_key=key, **of_sections) for key in ("pdvi_domain_mine", "own")]
    assert found[0] == found[1]
    assert found[0]["n_spots"] == 2 * N


@pytest.mark.parametrize("name", ["label_key", "domain_key"])
def test_a_key_is_text(joint, name):
    with pytest.raises(InputError, match=rf"^Expected `{name}` to be text, found None\.$"):
        spv.evaluate(joint, **{name: None})


def test_domains_of_no_fit_are_one_section_in_spatial(joint):
    adata = joint.copy()
    adata.obs["leiden"] = adata.obs["annotation"]
    with pytest.warns(InputWarning, match="name the column that tells them apart with `sample_key`"):
        scores = spv.evaluate(adata, domain_key="leiden")
    assert scores["n_spots"] == 2 * N
    assert scores["chaos"] == pytest.approx(chaos(adata.obs["leiden"], adata.obsm["spatial"]))
    assert scores["pas"] == pytest.approx(pas(adata.obs["leiden"], adata.obsm["spatial"]))


@pytest.mark.filterwarnings("error::spatialpdvi.InputWarning")
def test_other_sections_and_coordinates_may_be_named(joint):
    adata = joint.copy()
    adata.obs["leiden"] = adata.obs["annotation"]
    scores = spv.evaluate(adata, domain_key="leiden", spatial_key="xy", sample_key="slice")
    assert [scores["chaos"], scores["pas"]] == pytest.approx(_by_section(adata, "leiden"))
    adata.obs["quarter"] = [f"{name}{half}" for name, half in zip(adata.obs["slice"], adata.obs["tissue"], strict=True)]
    adata.obs["quarter"] += np.where(adata.obsm["xy"][:, 0] < np.median(adata.obsm["xy"][:, 0]), "left", "right")
    scores = spv.evaluate(adata, sample_key="quarter")
    assert [scores["chaos"], scores["pas"]] == pytest.approx(_by_section(adata, "pdvi_domain", column="quarter"))
    with pytest.raises(InputError, match=r"obs\['gone'\] .* `sample_key`"):
        spv.evaluate(adata, sample_key="gone")
    with pytest.raises(InputError, match=r"obsm\['gone'\] .* `spatial_key`"):
        spv.evaluate(adata, spatial_key="gone")


def test_a_column_of_sections_that_has_gone_is_named_in_a_warning(joint):
    adata = joint.copy()
    del adata.obs["slice"]
    adata.obsm["xy"] = adata.obsm["xy"] + np.linspace(0, 1e-6, adata.n_obs)[:, None]
    with pytest.warns(InputWarning, match=r"The column obs\['slice'\], by which the fit told sections apart"):
        assert spv.evaluate(adata)["n_spots"] == 2 * (N - 20)


@pytest.mark.cli
def test_the_command_takes_the_sections_of_the_fit_or_those_that_are_named(edited, path, tmp_path):
    def run(*arguments):
        report = tmp_path / "scores.json"
        done = CliRunner().invoke(main, ["evaluate", str(path), *arguments, "--json", str(report)])
        assert done.exit_code == 0, done.output
        return json.loads(report.read_text())["scores"], done.stderr

    scores, told = run()
    assert scores == {name: pytest.approx(edited.uns["pdvi"]["scores"][name]) for name in SCORES}
    assert "same coordinates" not in told
    options = ("--domain-key", "annotation", "--spatial-key", "xy")
    scores, told = run(*options)
    assert scores["chaos"] == pytest.approx(chaos(edited.obs["annotation"], edited.obsm["xy"]))
    assert "name the column that tells them apart with --sample-key." in " ".join(told.split())
    scores, told = run(*options, "--sample-key", "slice")
    assert [scores["chaos"], scores["pas"]] == pytest.approx(_by_section(edited, "annotation"))
    assert "same coordinates" not in told
