"""The scan as a whole: simulated tissue, the same bits as a plain fit, joint fits, models, what is written."""

import json

import anndata
import numpy as np
import pytest
from conftest import run

import spatialpdvi
from spatialpdvi import FitOptions, InputError
from spatialpdvi.features import correction
from spatialpdvi.features.build import raw_features
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.model_selection import scan
from spatialpdvi.model_selection.stability import Replication
from spatialpdvi.options.stages import FeatureSettings
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.synthetic import simulate

pytestmark = pytest.mark.slow

FAST = {"n_top_genes": 150, "n_init": 1}
COLUMNS = {
    *("k", "neg_elbo", "found_again", "split_ari", "restart_ari", "persistence", "smallest", "n_empty", "smooth"),
    *("converged", "seconds"),
}


@pytest.fixture(scope="module")
def tissue():
    return simulate(n_spots=800, n_genes=150, k=5, seed=5, signal=2.0, easy=True)


@pytest.fixture(scope="module")
def scanned(tissue):
    section = tissue.copy()
    return section, spatialpdvi.fit(section, k="3:7", **FAST)


def test_domains_that_are_there_are_recommended(scanned):
    section, result = scanned
    assert section.obs["annotation"].nunique() == 5
    assert result.scan.k == result.n_domains == 5
    assert result.scores["ari"] > 0.9
    found = dict(zip(result.scan.table["k"], result.scan.table["found_again"], strict=True))
    assert found[5] > 3.5
    assert max(found[3], found[7]) < found[5] - 1.0


def test_another_number_is_recommended_where_there_are_as_many():
    section = simulate(n_spots=800, n_genes=150, k=4, seed=4, signal=2.0, easy=True)
    assert spatialpdvi.fit(section, k="2:5", **FAST).n_domains == 4


def test_the_result_is_that_of_a_plain_fit_bit_by_bit(scanned, tissue):
    section, result = scanned
    plain_section = tissue.copy()
    plain = spatialpdvi.fit(plain_section, k=5, **FAST)
    for name in ("domains", "posterior", "domain_mean", "log_variance", "agreement", "features", "flow"):
        assert np.array_equal(getattr(result, name), getattr(plain, name)), name
    assert result.params == plain.params
    assert result.certificate == plain.certificate
    assert section.obs["pdvi_domain"].equals(plain_section.obs["pdvi_domain"])


def test_what_is_written(scanned):
    section, result = scanned
    written = section.uns["pdvi"]
    assert set(written["k_scan"]) == COLUMNS
    assert {column.shape for column in written["k_scan"].values()} == {(5,)}
    assert list(written["k_scan"]["k"]) == [3, 4, 5, 6, 7]
    assert written["k_choice"] == {"asked": "3:7", "k": 5, "reason": result.scan.reason}
    assert written["params"]["k"] == 5
    assert np.isfinite(written["k_scan"]["neg_elbo"]).all()


def test_without_a_range_nothing_of_it_is_written(toy_section):
    section = toy_section.copy()
    assert spatialpdvi.fit(section, k=3, **FAST).scan is None
    assert not {"k_scan", "k_choice"} & set(section.uns["pdvi"])


def test_the_same_seed_gives_the_same_rows(scanned, tissue):
    again = spatialpdvi.fit(tissue.copy(), k="5:6", **FAST).scan
    for name in COLUMNS - {"seconds", "persistence"}:
        assert np.array_equal(again.table[name], scanned[1].scan.table[name][2:4]), name


@pytest.fixture
def tissue_file(tissue, tmp_path):
    path = tmp_path / "tissue.h5ad"
    tissue.write_h5ad(path)
    return path


def test_the_command_line_shows_the_table_and_marks_the_choice(tissue_file, tmp_path):
    report = tmp_path / "report.json"
    options = ["--k", "4:6", "--n-top-genes", 150, "--n-init", 1, "--report", report]
    shown = run("fit", tissue_file, *options, "--save-model", tmp_path / "model.npz")
    lines = shown.stdout.splitlines()
    assert lines[0].split()[:3] == ["K", "found", "again"]
    assert [line[:6].split() for line in lines[1:4]] == [["4"], [">", "5"], ["6"]]
    assert lines[4].startswith("recommended: 5 domains. ")
    content = json.loads(report.read_text())
    assert content["k_scan"]["k"] == [4, 5, 6]
    assert content["k_choice"]["k"] == content["params"]["k"] == 5
    assert content["k_choice"]["reason"] in lines[4]
    written = anndata.read_h5ad(tissue_file)
    assert written.uns["pdvi"]["k_choice"]["asked"] == "4:6"
    assert list(written.obs["pdvi_domain"].cat.categories) == ["0", "1", "2", "3", "4"]

    run("plot", tissue_file, "-o", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    run("predict", tissue_file, "--model", tmp_path / "model.npz", "-o", tmp_path / "predicted.h5ad")
    assert "k_scan" not in anndata.read_h5ad(tmp_path / "predicted.h5ad").uns["pdvi"]

    # a second run over the first result leaves nothing of it
    quiet = run("fit", tissue_file, "--k", 3, "--n-top-genes", 150, "--n-init", 1, "--quiet")
    assert quiet.stdout == ""
    assert "k_scan" not in anndata.read_h5ad(tissue_file).uns["pdvi"]


@pytest.mark.parametrize("correct", ["none", "center"])
def test_several_sections_have_one_number(tissue_file, tmp_path, correct):
    other = tmp_path / "other.h5ad"
    other.write_bytes(tissue_file.read_bytes())
    options = FitOptions(k="4:5", n_top_genes=150, n_init=1, correct=correct)
    result = spatialpdvi.fit_files([tissue_file, other], options)
    assert result.n_domains == 5
    for path in (tissue_file, other):
        assert anndata.read_h5ad(path).uns["pdvi"]["k_choice"]["k"] == 5


@pytest.mark.parametrize(
    "options",
    [
        {"rep": "X_pca"},
        {"rep": "X_pca", "n_pcs": 1, "whiten": False},
        {"n_top_genes": 100, "n_pcs": 0},
        {"n_top_genes": 100, "transform": "pearson"},
        {"rep": "X_pca", "restarts": "best"},
    ],
    ids=str,
)
def test_any_features_can_be_scanned(toy_section, options, monkeypatch):
    monkeypatch.setattr("spatialpdvi.model_selection.stability._COMPARED", 200)  # spots: the numbers do not matter here
    result = spatialpdvi.fit(toy_section.copy(), k="3:4", n_init=1, **options)
    assert isinstance(result, FitResult)
    assert np.isfinite(result.scan.table["neg_elbo"]).all()
    assert result.params["k"] == result.scan.k


@pytest.fixture(scope="module")
def aligned(toy_section):
    """One section cut into two, as if one lay above the other."""
    section = toy_section.copy()
    x, y = section.obsm["spatial"].T
    upper = x > np.median(x)
    section.obs["slice"] = np.where(upper, "upper", "lower")
    section.obsm["xyz"] = np.column_stack([x - np.median(x) * upper, y, 25.0 * upper])  # as far apart as spots
    return section


@pytest.mark.parametrize("options", [{"correct": "harmony"}, {"across_sections": True, "spatial_key": "xyz"}], ids=str)
def test_sections_are_brought_together_before_the_scan(aligned, options, monkeypatch):
    if "correct" in options:
        pytest.importorskip("harmonypy")
    monkeypatch.setattr("spatialpdvi.model_selection.stability._COMPARED", 200)
    corrected = []
    made = correction.harmonise
    monkeypatch.setattr(correction, "harmonise", lambda x, *a, **k: corrected.append(x) or made(x, *a, **k))
    options = {"n_init": 1, "rep": "X_pca", "sample_key": "slice", **options}
    result = spatialpdvi.fit(aligned.copy(), k="3:4", **options)
    assert len(corrected) == ("correct" in options)  # once, not once for each number
    plain = spatialpdvi.fit(aligned.copy(), k=result.scan.k, **options)
    assert np.array_equal(result.posterior, plain.posterior)
    assert result.params == plain.params


def test_halves_of_genes_are_brought_together_too(aligned, monkeypatch):
    pytest.importorskip("harmonypy")
    monkeypatch.setattr("spatialpdvi.model_selection.stability._COMPARED", 200)
    options = FitOptions(k="3:4", n_init=1, n_top_genes=100, correct="harmony", sample_key="slice")
    section = read_inputs(AnnDataSource(aligned), options)
    settings = FeatureSettings.of(options, n_domains=4)
    raw = raw_features(section, settings, Progress(), keep_scaled=True)
    monkeypatch.setattr(correction, "harmonise", lambda x, *a, **k: np.ones_like(x))
    (first, *_), *_ = Replication(section, raw, settings, across=False)._genes
    assert (first == 1.0).all()


def test_no_two_seeds_of_a_scan_share_a_split(aligned):
    """A seed had all but one of the splits of the seed before it, and the largest seed none of the genes."""
    halves = []
    for seed in (0, 1, 2**32 - 1):
        options = FitOptions(k="3:4", n_init=1, n_top_genes=100, seed=seed)
        section = read_inputs(AnnDataSource(aligned), options)
        settings = FeatureSettings.of(options, n_domains=4)
        raw = raw_features(section, settings, Progress(), keep_scaled=True)
        replication = Replication(section, raw, settings, across=False)
        halves += [first for first, _ in replication._genes]
        halves += [replication._split_spots([10], split)[0][0] for split in (0, 2)]
    of_all = [half[:, :2].tobytes() for half in halves]
    assert len(set(of_all)) == len(of_all) == 12


def test_counts_that_are_read_block_by_block_give_the_same_table(toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr("spatialpdvi.model_selection.stability._COMPARED", 200)
    within, beyond = (
        spatialpdvi.fit_file(toy_file, FitOptions(k="3:4", **FAST, memory=memory), output=tmp_path / "out.h5ad")
        for memory in (None, "1KB")
    )
    assert np.array_equal(within.posterior, beyond.posterior)
    for name in COLUMNS - {"seconds"}:
        assert np.array_equal(within.scan.table[name], beyond.scan.table[name]), name


def test_few_spots_can_be_scanned():
    rng = np.random.default_rng(0)
    section = anndata.AnnData(rng.poisson(3.0, size=(12, 6)).astype(np.float32))
    section.obsm["spatial"] = rng.random((12, 2))
    section.obsm["one"] = np.repeat([0.0, 5.0, 9.0], 4)[:, None] + 0.1 * rng.random((12, 1))
    result = spatialpdvi.fit(section, k="2:5", rep="one", n_init=1)
    assert result.scan.k == result.n_domains
    assert (result.domain_sizes > 0).all()


@pytest.mark.parametrize("k", ["4:", "1:3", "auto:5"])
def test_what_cannot_be_read_leaves_the_file_as_it_was(toy_file, k):
    before = toy_file.read_bytes()
    shown = run("fit", toy_file, "--k", k, code=2)
    assert shown.stderr.startswith("Error: Expected `--k` to be a whole number of at least 2, a range a:b")
    assert "Traceback" not in shown.stderr
    assert toy_file.read_bytes() == before


def test_a_range_beyond_the_spots_is_refused_early(toy_file):
    assert "at most the number of spots, 600, found 590:601" in run("fit", toy_file, "--k", "590:601", code=2).stderr


def test_solvers_are_compared_with_one_number(toy_file, tmp_path):
    shown = run("compare", toy_file, "--k", "auto", "-o", tmp_path / "out", code=2)
    assert shown.stderr.startswith("Error: Expected `--k` to be a single number here, found auto.")
    assert not (tmp_path / "out").exists()


def test_too_few_spots_for_auto_are_told_in_python():
    section = anndata.AnnData(np.ones((30, 4), dtype=np.float32))
    section.obsm["spatial"] = np.random.default_rng(0).random((30, 2))
    section.obsm["x"] = np.random.default_rng(1).random((30, 3))
    with pytest.raises(InputError, match="Expected at least 60 spots with `k='auto'`, found 30"):
        spatialpdvi.fit(section, k="auto", rep="x")


@pytest.mark.filterwarnings(
    "ignore:Only .* of 1. domains have spots:spatialpdvi.errors.InputWarning"
)  # five organs are there
@pytest.mark.parametrize("k", ["16:18", "18:19"])
def test_numbers_beyond_the_least_components_have_their_own(tissue, k):
    """Of a range the components are those of its largest K; each K sees its own first ones, as a plain fit does."""
    section = tissue.copy()
    result = spatialpdvi.fit(section, k=k, **FAST)
    plain = spatialpdvi.fit(tissue.copy(), k=result.n_domains, **FAST)
    assert result.params["n_features"] == plain.params["n_features"] == max(15, result.n_domains - 1)
    np.testing.assert_array_equal(result.posterior, plain.posterior)


@pytest.mark.filterwarnings(
    "ignore:Only .* of 18 domains have spots:spatialpdvi.errors.InputWarning"
)  # five organs are there
def test_a_number_beyond_the_range_that_components_were_made_for_has_its_own(tissue, monkeypatch):
    """The scan of compositions goes on beyond 20 where the evidence is still rising there."""
    monkeypatch.setattr(scan, "candidates", lambda *_: range(2, 5))  # few components; the numbers themselves are more
    monkeypatch.setattr(scan, "scan_domains", lambda *_: scan.Scan("auto", 18, "made up", {"k": np.array([18])}))
    result = spatialpdvi.fit(tissue.copy(), k="auto", **FAST)
    assert result.params["n_features"] == 17
    np.testing.assert_array_equal(result.posterior, spatialpdvi.fit(tissue.copy(), k=18, **FAST).posterior)


def test_one_number_of_a_range_sees_as_many_components_as_alone(tissue):
    progress, wide = Progress(), FitOptions(k="4:19", **FAST)
    read = read_inputs(AnnDataSource(tissue), wide)
    raw = raw_features(read, FeatureSettings.of(wide, n_domains=19), progress)
    assert raw.components.shape[1] == 18
    for k, width in ((4, 15), (17, 16), (19, 18)):
        settings = FeatureSettings.of(FitOptions(k=k, **FAST))
        assert settings.n_components == width
        alone = raw_features(read, settings, progress)
        assert raw.has_more_than(width) == (k < 19)
        leading = raw.leading(width)
        assert leading.fitted.shape == alone.fitted.shape == (read.coordinates.shape[0], width)
        np.testing.assert_allclose(leading.fitted, alone.fitted, atol=1e-3)
    assert FeatureSettings.of(FitOptions(k=4, n_pcs=18, **FAST)).n_components == 18


@pytest.mark.filterwarnings("ignore::spatialpdvi.InputWarning")  # domains are empty on purpose
def test_the_smallest_domain_is_the_smallest_of_those_with_spots():
    xy = np.stack(np.meshgrid(np.arange(18.0), np.arange(18.0)), axis=-1).reshape(-1, 2)
    stripes = 9.0 * np.eye(3)[(xy[:, 0] // 6).astype(int)]
    section = anndata.AnnData(np.zeros((len(xy), 1)), obsm={"spatial": xy, "X_emb": stripes})
    table = spatialpdvi.fit(section, k="2:5", rep="X_emb", n_init=1, states="off", smooth=0).scan.table
    assert (table["n_empty"] > 0).any()
    assert (table["smallest"] > 0).all()
