"""Spots that are left out stay in the file and take no part in anything: the fit is that of a file without them."""

from itertools import pairwise

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from matplotlib import pyplot as plt
from scipy.signal import find_peaks
from zarr_samples import write_zarr

import spatialpdvi as spv
from spatialpdvi import FitOptions, InputError, InputWarning, fit, fit_file, fit_files
from spatialpdvi.api import evaluate_file, plot_file
from spatialpdvi.io.formats import streaming
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.section.background import _peaks, off_tissue, warn_of_background
from spatialpdvi.runtime.rows import SelectedRows

FAST = {"k": 3, "n_init": 1, "max_epochs": 20, "tol": 1e-3, "n_top_genes": 60}
_SOME = 300  # spots off the tissue


@pytest.fixture(scope="module")
def section():
    """A section of 400 spots with 300 spots around it that have few counts."""
    adata = spv.simulate(n_spots=400, n_genes=60, k=3, background=_SOME, easy=True, seed=3)
    adata.obs["tissue"] = adata.obs.pop("in_tissue").astype(bool)
    rng = np.random.default_rng(0)
    return adata[rng.permutation(adata.n_obs)].copy()  # spots off the tissue are not the last ones


@pytest.fixture
def tissue(section):
    return section[section.obs["tissue"]].copy()


def _assert_same(whole, alone, kept):
    """Everything that a fit wrote is that of the kept spots; the others have no domain, and NaN for a number."""
    keys = Keys()
    np.testing.assert_array_equal(whole.obs[keys.domain].isna(), ~kept)
    for group, key in keys.all_pairs():
        if key not in getattr(alone, group):
            assert key not in getattr(whole, group)
        elif group == "obs":
            pd.testing.assert_series_equal(whole.obs[key][kept], alone.obs[key])
            assert whole.obs[key][~kept].isna().all()
        elif group == "obsm":
            np.testing.assert_array_equal(whole.obsm[key][kept], alone.obsm[key])
            assert np.isnan(whole.obsm[key][~kept]).all()
        elif group == "obsp":
            assert (whole.obsp[key][kept][:, kept] != alone.obsp[key]).nnz == 0
            assert whole.obsp[key].nnz == alone.obsp[key].nnz
    ours, theirs = whole.uns[keys.uns], alone.uns[keys.uns]
    assert ours["params"]["n_excluded"] == (~kept).sum()
    for name in ("domain_mean", "log_variance", "noise_sd"):
        np.testing.assert_array_equal(ours[name], theirs[name])
    assert ours["certificate"]["neg_elbo"] == theirs["certificate"]["neg_elbo"]
    assert ours["scores"]["ari"] == theirs["scores"]["ari"]
    assert ours["scores"]["chaos"] == theirs["scores"]["chaos"]


@pytest.mark.parametrize(
    "options", [{"mask": "tissue"}, {"min_counts": "auto"}, {"min_counts": 200}, {"min_genes": 13}]
)
def test_a_fit_is_that_of_a_section_without_the_spots_left_out(section, tissue, options):
    kept = section.obs["tissue"].to_numpy()
    whole = section.copy()
    result = fit(whole, **FAST, **options, save_graph=True)
    fit(tissue, **FAST, save_graph=True)
    np.testing.assert_array_equal(result.kept, kept)
    assert result.domains.shape == (400,)
    _assert_same(whole, tissue, kept)


@pytest.mark.cli
@pytest.mark.parametrize("ending", ["h5ad", "zarr"])
@pytest.mark.parametrize("memory", [None, "1KB"])
def test_files_and_counts_that_are_read_block_by_block(section, tissue, tmp_path, monkeypatch, ending, memory):
    monkeypatch.setattr(streaming, "BLOCK_VALUES", 3000)
    path = tmp_path / f"a.{ending}"
    if ending == "h5ad":
        section.write_h5ad(path)
    else:
        write_zarr(path, section, 3)
    fit_file(path, FitOptions(**FAST, min_counts="auto", memory=memory))
    fit(tissue, **FAST)
    written = (anndata.read_h5ad if ending == "h5ad" else anndata.read_zarr)(path)
    _assert_same(written, tissue, section.obs["tissue"].to_numpy())


@pytest.mark.parametrize("n_parts", [1, 3, 7])
def test_selected_rows_are_those_of_the_matrix_in_parts_too(n_parts):
    class Blocks:
        def __init__(self, matrix):
            self.matrix, self.shape = matrix, matrix.shape

        def blocks(self):
            yield from (self.matrix[i : i + 3] for i in range(0, self.shape[0], 3))

        def split(self, n):
            bounds = [self.shape[0] * i // n for i in range(n + 1)]
            return [Blocks(self.matrix[a:b]) for a, b in pairwise(bounds)]

    matrix = sp.random(20, 5, density=0.5, format="csr", random_state=0)
    chosen = np.array([0, 2, 3, 11, 18, 19])
    rows = SelectedRows(Blocks(matrix), chosen)
    assert rows.shape == (6, 5)
    for part in (rows, *rows.split(n_parts)):
        assert part.shape[0] == sum(block.shape[0] for block in part.blocks())
    found = sp.vstack([block for part in rows.split(n_parts) for block in part.blocks()])
    assert (found != matrix[chosen]).nnz == 0


@pytest.mark.cli
def test_several_sections_lose_their_own_spots(section, tissue, tmp_path):
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad", tmp_path / "c.h5ad"]
    section.write_h5ad(paths[0])
    complete = tissue.copy()
    complete.obs_names = [f"other {name}" for name in complete.obs_names]
    complete.obs["tissue"] = 1
    complete.write_h5ad(paths[1])
    tissue.write_h5ad(paths[2])
    fit_files(paths[:2], FitOptions(**FAST, mask="tissue"), output=tmp_path / "some")
    fit_files([paths[2], paths[1]], FitOptions(**FAST), output=tmp_path / "all")
    some, other = (anndata.read_h5ad(tmp_path / "some" / name) for name in ("a.h5ad", "b.h5ad"))
    alone, same = (anndata.read_h5ad(tmp_path / "all" / name) for name in ("c.h5ad", "b.h5ad"))
    _assert_same(some, alone, section.obs["tissue"].to_numpy())
    pd.testing.assert_series_equal(other.obs["pdvi_domain"], same.obs["pdvi_domain"])


def test_sections_within_one_file_have_limits_of_their_own(section):
    dark = section.copy()
    dark.X = dark.X.copy()
    dark.X.data = np.ceil(dark.X.data / 8.0)  # its tissue has about as many counts as its neighbour's background
    both = anndata.concat({"one": section, "two": dark}, label="slice", index_unique="-")
    result = fit(both, **FAST, sample_key="slice", min_counts="auto")
    expected = np.tile(section.obs["tissue"].to_numpy(), 2)
    assert (result.kept == expected).mean() > 0.98


@pytest.mark.cli
def test_commands_on_such_a_result_leave_these_spots_out(section, tissue, tmp_path):
    path, alone = tmp_path / "a.h5ad", tmp_path / "b.h5ad"
    section.write_h5ad(path)
    tissue.write_h5ad(alone)
    options = FitOptions(**FAST, mask="tissue", save_graph=True)
    result = fit_file(path, options, keep_model=True)
    fit_file(alone, FitOptions(**FAST, save_graph=True))
    assert evaluate_file(path, label_key="annotation") == evaluate_file(alone, label_key="annotation")
    pd.testing.assert_frame_equal(spv.markers_file(path, n=3), spv.markers_file(alone, n=3))
    for kinds in (["overview"], ["domains", "flow", "edges", "entropy", "agreement"]):
        ours, theirs = (plot_file(file, kinds=kinds) for file in (path, alone))
        for left, right in zip(ours.axes, theirs.axes, strict=True):
            for drawn, expected in zip(left.collections, right.collections, strict=True):
                np.testing.assert_array_equal(drawn.get_offsets(), expected.get_offsets())
    assert spv.pl.domains(anndata.read_h5ad(path)) is not None
    assert "400" in spv.report_files([path], n_genes=2)
    plt.close("all")
    # the fitted section of a subset has fewer spots without a domain, or none
    predicted = section.copy()
    again = spv.predict(predicted, model=result.model, mask="tissue")
    np.testing.assert_array_equal(again.kept, section.obs["tissue"])
    assert predicted.obs["pdvi_domain"].isna().sum() == _SOME
    assert predicted.uns["pdvi"]["params"]["mask"] == "tissue"


def test_a_second_fit_may_start_from_the_first_and_leave_the_same_spots_out(section):
    adata = section.copy()
    first = fit(adata, **FAST, mask="tissue")
    start = {name: value for name, value in FAST.items() if name != "n_init"}
    second = fit(adata, **start, mask="tissue", init="pdvi_domain")
    assert (second.domains == first.domains).mean() > 0.95
    with pytest.raises(InputError, match="to have a label for every spot to start from"):
        fit(adata, **start, init="pdvi_domain")


def test_a_domain_that_is_missing_for_another_reason_is_still_an_error(section, tmp_path):
    adata = section.copy()
    fit(adata, **FAST, mask="tissue")
    adata.obs.iloc[:400, adata.obs.columns.get_loc("pdvi_domain")] = None
    adata.write_h5ad(tmp_path / "a.h5ad")
    with pytest.raises(InputError, match="spots without a domain, where the fit left out 300"):
        plot_file(tmp_path / "a.h5ad")


@pytest.mark.parametrize("options", [{"min_counts": 200}, {"min_genes": 13}, {"mask": "tissue"}])
def test_spots_that_are_left_out_need_neither_a_place_nor_a_section(section, options):
    """Only `auto` asks where spots are."""
    adata = section.copy()
    empty = np.flatnonzero(~adata.obs["tissue"])[0]
    adata.obsm["spatial"][empty] = np.nan
    adata.obs["slice"] = pd.Categorical(np.where(np.arange(adata.n_obs) == empty, None, "a"))
    result = fit(adata, **FAST, **options, sample_key="slice")
    np.testing.assert_array_equal(result.kept, section.obs["tissue"])
    with pytest.raises(InputError, match=r"^Expected (obs\['slice'\]|obsm\['spatial'\]) "):
        fit(adata, **FAST, min_counts="auto", sample_key="slice")


@pytest.mark.parametrize("values", [["yes", "no"], [0.5, 1.0], [None, True]])
def test_a_mask_of_something_else_is_refused(section, values):
    adata = section.copy()
    adata.obs["mask"] = pd.Series(np.array(values, dtype=object)[np.arange(adata.n_obs) % 2], index=adata.obs_names)
    with pytest.raises(
        InputError, match=r"`mask` to be a column of true and false, or 1 and 0, found '\S+' in obs\['mask'\]"
    ):
        fit(adata, **FAST, mask="mask")
    assert "pdvi_domain" not in adata.obs


@pytest.mark.parametrize("values", [["True", "False"], [1, 0], [1.0, 0.0], [True, False]])
def test_masks_may_be_written_in_several_ways(section, values):
    adata = section.copy()
    texts = np.where(adata.obs["tissue"], *(str(value) for value in values))
    kinds = {str: lambda: pd.Categorical(texts), bool: lambda: texts == "True"}
    adata.obs["mask"] = kinds.get(type(values[0]), lambda: texts.astype(float).astype(type(values[0])))()
    np.testing.assert_array_equal(fit(adata, **FAST, mask="mask").kept, section.obs["tissue"])


def test_what_cannot_be_left_out_is_refused(section):
    adata = section.copy()
    adata.obsm["X_pca"] = np.random.default_rng(0).normal(size=(adata.n_obs, 5))
    adata.obs["nothing"] = False
    with pytest.raises(InputError, match="no `rep` with `min_counts`"):
        fit(adata, k=3, rep="X_pca", min_counts="auto")
    with pytest.raises(InputError, match="700, none of which is kept"):
        fit(adata, **FAST, mask="nothing")
    with pytest.raises(InputError, match="700, none of which is kept"):
        fit(adata, **FAST, min_counts=10**6)
    with pytest.raises(InputError, match=r"obs\['tisue'\]"):
        fit(adata, **FAST, mask="tisue")
    for wrong in ("some", 0, -5, 1.5, True):
        with pytest.raises(InputError, match="a whole number of at least 1, or auto"):
            FitOptions(k=3, min_counts=wrong)


@pytest.mark.parametrize("memory", [None, "1KB"])
def test_background_is_warned_of_and_not_left_out(section, tmp_path, memory):
    section.write_h5ad(tmp_path / "a.h5ad")
    with pytest.warns(InputWarning, match=r"About 43% of the spots seem to be off the tissue") as caught:
        result = fit_file(tmp_path / "a.h5ad", FitOptions(**FAST, memory=memory))
    assert "`min_counts='auto'`" in str(caught[0].message)
    assert result.kept is None
    assert result.domains.size == 700


@pytest.mark.parametrize("memory", [None, "1KB"])
def test_spots_off_the_tissue_are_told_once_and_not_of_a_mask(section, tmp_path, memory):
    told = section.copy()
    told.obs["in_tissue"] = np.arange(700) > 20
    told.obs["mine"] = True
    told.write_h5ad(tmp_path / "a.h5ad")
    with pytest.warns(InputWarning, match=r"^21 of 700 spots are off the tissue") as caught:
        fit_file(tmp_path / "a.h5ad", FitOptions(**FAST, memory=memory))
    assert len(caught) == 1
    fit_file(tmp_path / "a.h5ad", FitOptions(**FAST, memory=memory, mask="mine"))  # warnings are errors here


def test_of_several_files_a_warning_names_its_own(section, tissue, tmp_path):
    for name, off in (("one", 0), ("two", 21)):
        tissue.obs["in_tissue"] = np.arange(400) >= off
        tissue.write_h5ad(tmp_path / f"{name}.h5ad")
    with pytest.warns(InputWarning, match=r"^In 'two': 21 of 400 spots are off the tissue"):
        fit_files([tmp_path / "one.h5ad", tmp_path / "two.h5ad"], FitOptions(**FAST), output=tmp_path / "out")


def test_what_space_ranger_says_is_warned_of(tissue):
    tissue.obs["in_tissue"] = (np.arange(400) > 20).astype(int)
    with pytest.warns(InputWarning, match=r"21 of 400 spots are off the tissue by obs\['in_tissue'\]"):
        fit(tissue, **FAST)
    fit(tissue, **FAST, mask="in_tissue")  # warnings are errors here


def _lattice(side=50):
    return np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2).astype(float)


def test_poor_tissue_is_no_background():
    """Necrosis within the tissue, fat at its edge with a third of the counts, and single spots of few counts."""
    rng = np.random.default_rng(0)
    place = _lattice()
    for low in (
        np.hypot(*(place - 25.0).T) < 8.0,  # surrounded by tissue, with a hundredth of its counts
        rng.random(place.shape[0]) < 0.2,
    ):
        totals = rng.negative_binomial(5, 0.005, place.shape[0]) * np.where(low, 0.01, 1.0)
        assert not off_tissue(np.floor(totals), place).any()
    fat = place[:, 0] < 12
    totals = rng.negative_binomial(5, 0.005, place.shape[0]) * np.where(fat, 1 / 3, 1.0)
    assert not off_tissue(np.floor(totals), place).any()


@pytest.mark.parametrize("turned", [0.0, 0.7])
def test_background_is_found_with_a_blurred_edge_and_islands(turned):
    """Molecules spread over three spots; a vessel is kept, since tissue is all around it."""
    rng = np.random.default_rng(1)
    place = _lattice(60)
    distance = np.hypot(*(place - 30.0).T) - 20.0  # negative within the tissue
    vessel = np.hypot(*(place - [30.0, 36.0]).T) < 3.0
    level = np.where(distance < 0, 1.0, 0.05 + 0.4 * np.exp(-np.maximum(distance, 0.0) / 1.5))
    totals = rng.poisson(1500 * np.where(vessel, 0.05, level) * rng.gamma(10, 0.1, place.shape[0]))
    rotation = np.array([[np.cos(turned), -np.sin(turned)], [np.sin(turned), np.cos(turned)]])
    off = off_tissue(totals, place @ rotation)
    assert (off == (distance >= 0)).mean() > 0.96
    assert not off[vessel].any()


def test_spots_of_many_counts_among_empty_ones_are_kept():
    """Where a third or more of the spots are empty, most neighbours of some are, wherever these lie."""
    rng = np.random.default_rng(0)
    place = rng.random((4000, 2))
    for share in (0.3, 0.5):
        empty = rng.random(4000) < share
        totals = np.where(empty, rng.poisson(3, 4000), rng.poisson(200 * rng.lognormal(0, 0.3, 4000)))
        off = off_tissue(totals, place)
        assert off.any()
        assert not off[~empty].any()


def test_what_lies_apart_from_the_rest_is_no_background():
    """A poor core of a tissue array was left out as a whole; what lies around a core still is."""
    rng = np.random.default_rng(0)
    core = _lattice(16)
    around = np.hypot(*(core - 7.5).T) >= 8.0
    place = np.concatenate([core + np.array([column, row]) * 30.0 for row in range(3) for column in range(4)])
    level = np.repeat(np.where(np.arange(12) == 5, 1 / 8, 1.0), core.shape[0])
    assert not off_tissue(rng.poisson(3000 * level), place).any()
    off = np.tile(around, 12)
    found = off_tissue(rng.poisson(3000 * level * np.where(off, 0.02, 1.0)), place)
    np.testing.assert_array_equal(found, off)


def test_too_few_spots_say_nothing():
    place = _lattice(9)
    assert not off_tissue(np.where(place[:, 0] < 4, 1.0, 1000.0), place).any()


def test_a_few_spots_of_a_small_section_are_no_reason_for_a_warning():
    """It said that about 0% of the spots were off the tissue. A section that has many is named instead."""
    rng = np.random.default_rng(0)
    place = np.tile(_lattice(20), (12, 1))
    blocks, names = list(np.arange(place.shape[0]).reshape(12, 400)), [f"s{i}" for i in range(12)]
    totals = rng.negative_binomial(5, 0.005, place.shape[0]).astype(float)
    few = (np.arange(place.shape[0]) < 400) & (place[:, 0] < 4) & (place[:, 1] < 2)
    dark = np.where(few, np.floor(totals / 50), totals)
    assert 0 < off_tissue(dark[blocks[0]], place[blocks[0]]).sum() <= 12
    warn_of_background(dark, place, blocks, names)  # silent: warnings are errors
    many = np.isin(np.arange(place.shape[0]) // 400, 3) & (place[:, 0] < 2) & (place[:, 1] < 20)
    dark = np.where(many, np.floor(dark / 50), dark)
    warned = r"^Some spots \(about 1\d% of those of section 's3'\) seem to be off the tissue: they lie together at "
    with pytest.warns(InputWarning, match=warned):
        warn_of_background(dark, place, blocks, names)
    with pytest.warns(InputWarning, match=r"^About 10% of the spots seem to be off the tissue: "):
        warn_of_background(dark[blocks[3]], place[blocks[3]], [np.arange(400)], [])


@pytest.mark.cli
def test_a_description_leaves_these_spots_out(section, tissue):
    pytest.importorskip("squidpy")
    whole, alone = section.copy(), tissue.copy()
    fit(whole, **FAST, mask="tissue")
    fit(alone, **FAST)
    ours, theirs = (spv.describe(adata, n_genes=5, n_perms=20) for adata in (whole, alone))
    pd.testing.assert_frame_equal(ours.domains, theirs.domains)
    pd.testing.assert_frame_equal(ours.contacts, theirs.contacts)
    pd.testing.assert_frame_equal(ours.genes, theirs.genes)


@pytest.mark.parametrize(
    "edit",
    [spv.Merge(["1", "2"]), spv.Rename({"0": "Cortex"}), spv.Levels([2]), spv.Split("0", into=2)],
    ids=lambda edit: type(edit).__name__,
)
def test_edits_leave_these_spots_without_a_domain(section, tissue, edit):
    whole, alone, kept = section.copy(), tissue.copy(), section.obs["tissue"].to_numpy()
    fit(whole, **FAST, mask="tissue")
    fit(alone, **FAST)
    pd.testing.assert_frame_equal(spv.label(whole, edit), spv.label(alone, edit))
    for key in ("pdvi_domain", "pdvi_confidence", "pdvi_domain_L2", "pdvi_domain_fitted"):
        if key in alone.obs:
            pd.testing.assert_series_equal(whole.obs[key][kept], alone.obs[key])
            assert whole.obs[key][~kept].isna().all()
    np.testing.assert_array_equal(whole.obsm["pdvi_posterior"][kept], alone.obsm["pdvi_posterior"])
    assert "400" in str(fit(whole, **FAST, mask="tissue"))  # a second fit replaces all of it
    assert "pdvi_domain_fitted" not in whole.obs


def test_peaks_are_those_of_scipy():
    rng = np.random.default_rng(0)
    for length in range(1, 60):
        values = rng.integers(0, 4, size=length).astype(float)
        np.testing.assert_array_equal(_peaks(values), find_peaks(values)[0])


def test_few_counts_within_a_tilted_section_are_no_background():
    place = _lattice(40)
    low = np.hypot(*(place - 20.0).T) < 7.0
    totals = np.random.default_rng(0).poisson(np.where(low, 20.0, 1000.0))
    assert not off_tissue(totals, place).any()
    assert not off_tissue(totals, np.column_stack([place, 40.0 * place[:, 1]])).any()


def test_a_small_section_does_not_count_like_a_large_one():
    """A twentieth of its spots is off the tissue, which are few of all: there is no warning."""
    rng = np.random.default_rng(0)
    small, large = _lattice(20), _lattice(60)
    place = np.concatenate([small, large])
    totals = rng.negative_binomial(5, 0.005, place.shape[0]).astype(float)
    low = (np.arange(place.shape[0]) < 400) & (place[:, 0] < 3) & (place[:, 1] < 11)
    totals[low] = np.floor(totals[low] / 50)
    blocks = [np.arange(400), np.arange(400, place.shape[0])]
    assert 0.02 < off_tissue(totals[:400], small).mean() < 0.1
    warn_of_background(totals, place, blocks, ["small", "large"])
