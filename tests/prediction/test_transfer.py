"""Domains carried over by place: the formulas, where there are none, units, sections, and what is written."""

import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy.spatial import cKDTree

import spatialpdvi as spv
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.prediction import places as by_place
from spatialpdvi.prediction.places import FittedSpots, carry

SPACING = 100.0


def lattice(side, *, spacing=SPACING, axes=2):
    axis = spacing * (np.arange(side) + 0.5)
    return np.stack(np.meshgrid(*axes * [axis], indexing="ij"), axis=-1).reshape(-1, axes)


def random_fit(coordinates, *, k=4, seed=0, sharp=0.4):
    rng = np.random.default_rng(seed)
    posterior = rng.dirichlet(np.full(k, sharp), size=len(coordinates))
    calibrated = rng.dirichlet(np.full(k, 2.0), size=len(coordinates))
    # of one order with the posterior, as tempering makes it
    calibrated = np.take_along_axis(np.sort(calibrated, axis=1), posterior.argsort(axis=1).argsort(axis=1), axis=1)
    return FittedSpots(coordinates, posterior.argmax(axis=1), posterior, calibrated)


def as_section(fit, **obs):
    """An AnnData with the fit as it is written."""
    keys, k = Keys(), fit.posterior.shape[1]
    adata = ad.AnnData(np.zeros((len(fit.codes), 1), dtype=np.float32))
    adata.obsm["spatial"] = fit.coordinates
    for name, values in obs.items():
        adata.obs[name] = values
    adata.obs[keys.domain] = pd.Categorical.from_codes(fit.codes, [str(i) for i in range(k)])
    own = np.arange(len(fit.codes)), fit.codes
    adata.obs[keys.confidence] = fit.posterior[own].astype(np.float32)
    adata.obsm[keys.posterior] = fit.posterior.astype(np.float32)
    if fit.calibrated is not None:
        adata.obsm[keys.calibrated] = fit.calibrated.astype(np.float32)
        adata.obs[keys.calibrated_confidence] = fit.calibrated[own].astype(np.float32)
    adata.uns[keys.uns] = {
        "params": {"k": k, "spatial_key": "spatial", "n_spots": len(fit.codes)},
        "certificate": {"converged": True},
        "trace": {"epoch": np.arange(2), "neg_elbo": np.ones(2)},
        "scores": {"pas": 0.0},
    }
    adata.uns[keys.colours] = np.array([f"#00000{i}" for i in range(k)], dtype=object)
    return adata


def other(coordinates, **obs):
    adata = ad.AnnData(np.zeros((len(coordinates), 1), dtype=np.float32))
    adata.obsm["spatial"] = coordinates
    for name, values in obs.items():
        adata.obs[name] = values
    return adata


def reference(fit, x):
    """(T1) and (T2) at one place, term by term."""
    distance = np.linalg.norm(fit.coordinates - x, axis=1)
    order = np.argsort(distance, kind="stable")[:9]
    d = distance[order]
    weights = np.zeros(len(fit.codes))
    weights[order] = 1.0 if d[0] == 0 and np.all(d == 0) else 0.0
    if d[0] == 0:
        weights[order[d == 0]] = 1.0
    else:
        weights[order] = (d[-1] / d - 1) ** 2
    smooth = weights @ fit.posterior / weights.sum()
    own, code = fit.posterior[order[0]], fit.codes[order[0]]
    low, high = 0.0, 1.0

    def allowed(t):
        p, margin = own + t * (smooth - own), own[code] - own
        return np.all(p[code] - p >= np.minimum(margin, 1e-3) - 1e-15)

    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
    t = 1.0 if allowed(1.0) else low
    return smooth, own + t * (smooth - own), code


@pytest.mark.parametrize("axes", [2, 3])
def test_the_posteriors_are_those_of_the_formulas(axes):
    rng = np.random.default_rng(1)
    fit = random_fit(rng.uniform(0, 1000, size=(300, axes)))
    places = rng.uniform(100, 900, size=(40, axes))
    spots, smooth = carry(fit, places, limit=1e3), carry(fit, places, limit=1e3, borders="smooth")
    for i, place in enumerate(places):
        expected, held, code = reference(fit, place)
        np.testing.assert_allclose(smooth.posterior[i], expected, atol=1e-6)
        np.testing.assert_allclose(spots.posterior[i], held, atol=1e-6)
        assert smooth.codes[i] == expected.argmax()
        assert spots.codes[i] == code
    assert (smooth.codes != spots.codes).any()


@pytest.mark.parametrize("seed", range(3))
def test_every_place_inside_a_bin_has_its_domain(seed):
    rng = np.random.default_rng(seed)
    fit = random_fit(lattice(12), seed=seed, sharp=[0.1, 1.0, 20.0][seed])
    places = rng.uniform(0, 12 * SPACING, size=(5000, 2))
    found = carry(fit, places)
    inside = (places // SPACING) @ [12, 1]
    np.testing.assert_array_equal(found.codes, fit.codes[inside.astype(int)])
    for posterior in (found.posterior, found.calibrated):
        np.testing.assert_array_equal(posterior.argmax(axis=1), found.codes)
        np.testing.assert_allclose(posterior.sum(axis=1), 1, atol=1e-6)
        assert posterior.min() >= -1e-7
    assert len(np.unique(found.posterior.round(4), axis=0)) > 4000  # not those of the bins


def test_smooth_posteriors_have_no_jumps_and_pass_through_the_spots():
    fit = random_fit(lattice(8))
    steps = np.linspace(60, 700, 20_001)
    line = np.column_stack([steps, 0.37 * steps + 120])
    found = carry(fit, line, borders="smooth").posterior
    assert np.abs(np.diff(found, axis=0)).max() < 2e-3  # a bin is 3,000 steps wide
    assert np.ptp(found, axis=0).max() > 0.5


@pytest.mark.parametrize("borders", ["spots", "smooth"])
def test_the_spots_themselves_keep_their_posteriors_bit_by_bit(borders):
    rng = np.random.default_rng(0)
    for coordinates in (lattice(9), lattice(4, axes=3), rng.normal(size=(200, 2))):
        section = as_section(random_fit(coordinates))
        copy = other(coordinates)
        spv.transfer(section, copy, borders=borders)
        for key in ("pdvi_posterior", "pdvi_posterior_calibrated"):
            np.testing.assert_array_equal(copy.obsm[key], section.obsm[key])
        assert copy.obs["pdvi_domain"].tolist() == section.obs["pdvi_domain"].tolist()
        np.testing.assert_array_equal(copy.obs["pdvi_confidence"], section.obs["pdvi_confidence"])


def test_places_on_a_border_belong_to_the_first_spot_in_any_unit():
    coordinates = lattice(10)
    fit = random_fit(coordinates)
    corners = coordinates[:-11] + SPACING / 2
    expected = [
        min(cKDTree(coordinates).query_ball_point(at, 1.0001 * SPACING / np.sqrt(2))) if len(at) else 0
        for at in corners
    ]
    for scale in (1.0, 0.3, 1 / 7):
        found = carry(fit._replace(coordinates=coordinates * scale), corners * scale)
        np.testing.assert_array_equal(found.codes, fit.codes[expected])


def test_how_far_a_spot_reaches_follows_from_the_spacing(monkeypatch):
    square, cube = lattice(10), lattice(6, axes=3)
    hexagons = square * [1.0, np.sqrt(0.75)] + np.where(np.arange(100) % 2, 50.0, 0.0)[:, None] * [1.0, 0.0]
    for coordinates in (square, hexagons, cube):
        assert by_place._reach(cKDTree(coordinates)) == pytest.approx(SPACING)
    twice = np.repeat(square, 6, axis=0)
    assert by_place._reach(cKDTree(twice)) == pytest.approx(SPACING)
    for scale in (1.0, 0.3, 1 / 7):  # a place just as far has a domain, whatever the rounding
        assert (carry(random_fit(square * scale), (square + np.array([SPACING, 0.0])) * scale).codes >= 0).all()
    monkeypatch.setattr(by_place, "_SAMPLE", 100)  # of the spots, evenly among all: the first ones may be nearer
    assert by_place._reach(cKDTree(np.concatenate([lattice(12, spacing=10.0), lattice(30) + 1e4]))) == SPACING
    monkeypatch.undo()
    scattered = np.random.default_rng(0).uniform(0, 1000, size=(1000, 2))
    assert by_place._reach(cKDTree(scattered)) == pytest.approx(1.13 * np.sqrt(1000), rel=0.1)


def test_places_off_the_fitted_spots_have_no_domain():
    fit = random_fit(lattice(10))
    adata = other(np.array([[50.0, 50.0], [-49.0, 50.0], [-51.0, 50.0], [5000.0, 60.0]]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = spv.transfer(as_section(fit), adata)
    assert adata.obs["pdvi_domain"].isna().tolist() == [False, False, True, True]
    assert np.isnan(adata.obsm["pdvi_posterior"][2:]).all()
    for key in ("pdvi_confidence", "pdvi_entropy", "pdvi_confidence_calibrated"):
        assert adata.obs[key].isna().tolist() == [False, False, True, True]
    assert adata.uns["pdvi"]["params"]["n_excluded"] == 2
    assert result.sections["max_distance"].tolist() == pytest.approx([SPACING])
    with pytest.warns(InputWarning, match=r"Only 25.0% of the spots are within 10 of a fitted spot"):
        spv.transfer(as_section(fit), adata, max_distance=10)
    assert adata.obs["pdvi_domain"].notna().sum() == 1


def test_exchanged_axes_are_told():
    places = lattice(10)[:60]  # a strip
    exchanged = other(np.column_stack([places[:, 1], places[:, 0]]))
    with pytest.warns(
        InputWarning, match=r"^Only 70.0% of the spots are within .* 100.0% would be with x and y exchanged"
    ):
        spv.transfer(as_section(random_fit(places)), exchanged)
    given = np.ascontiguousarray(places[:, ::-1])
    kept = given.copy()
    with pytest.warns(InputWarning, match="with x and y exchanged"):
        carry(random_fit(places), given)
    np.testing.assert_array_equal(given, kept)


def test_spots_at_one_place_and_few_spots():
    fit = random_fit(np.repeat(lattice(2), 20, axis=0))
    found = carry(fit, np.array([[50.0, 50.0], [60.0, 55.0]]))
    np.testing.assert_array_equal(found.codes, fit.codes[[0, 0]])
    one = random_fit(np.array([[1.0, 2.0]]))
    with pytest.raises(InputError, match=r"found 1 at one place\. Give the distance with `max_distance`\."):
        carry(one, np.array([[1.0, 3.0]]))
    np.testing.assert_allclose(carry(one, np.array([[1.0, 3.0]]), limit=2).posterior, one.posterior, atol=1e-7)
    two = random_fit(np.array([[0.0, 0.0], [1.0, 0.0]]))
    np.testing.assert_allclose(
        carry(two, np.array([[0.5, 0.3]]), borders="smooth").posterior[0], two.posterior.mean(axis=0), atol=1e-7
    )


def test_of_many_spots_at_one_place_the_first_one_counts():
    rng = np.random.default_rng(0)
    places = lattice(6)
    at = rng.permutation(np.repeat(np.arange(36), 25))
    fit = random_fit(places[at])
    found = carry(fit, places + 7.0)
    np.testing.assert_array_equal(found.codes, [fit.codes[np.flatnonzero(at == own)[0]] for own in range(36)])


def test_a_domain_that_an_edit_gave_stays_although_another_one_is_likelier():
    fit = random_fit(lattice(6))
    codes = fit.posterior.argsort(axis=1)[:, -2]  # never the largest
    found = carry(fit._replace(codes=codes), lattice(6) + 7.0)
    np.testing.assert_array_equal(found.codes, codes)
    row = np.arange(codes.size)
    before = fit.posterior[row, codes][:, None] - fit.posterior
    after = found.posterior[row, codes][:, None] - found.posterior
    assert (after >= np.minimum(before, 1e-3) - 1e-6).all()


def test_blocks_do_not_matter(monkeypatch):
    fit, places = random_fit(lattice(10)), np.random.default_rng(0).uniform(0, 1000, size=(500, 2))
    whole = carry(fit, places)
    monkeypatch.setattr(by_place, "_BLOCK", 7)
    parts = carry(fit, places)
    np.testing.assert_array_equal(whole.posterior, parts.posterior)
    np.testing.assert_array_equal(whole.codes, parts.codes)


def refused(fitted, adata, **options):
    before = adata.copy()
    with pytest.raises(InputError) as caught:
        spv.transfer(fitted, adata, **options)
    assert list(adata.obs) == list(before.obs)
    assert dict(adata.uns) == {}
    return str(caught.value)


def test_labels_that_the_result_would_replace_are_refused():
    fitted, adata = (as_section(random_fit(lattice(10), seed=seed)) for seed in range(2))
    said = r"found obs\['pdvi_domain'\], where it writes its own\. Choose another `new_key`"
    with pytest.raises(InputError, match=said):
        spv.transfer(fitted, adata, label_key="pdvi_domain")
    spv.transfer(fitted, adata, label_key="pdvi_domain", new_key="new")
    assert adata.uns["new"]["params"]["label_key"] == "pdvi_domain"


def test_other_units_are_told():
    fitted = as_section(random_fit(lattice(20) + 3000))
    places = lattice(60, spacing=33.0) + 3010
    said = refused(fitted, other(places / 1000))
    assert "in the unit of the fit, whose spots are 100 apart, found spots that are 0.033 apart" in said
    assert "`scale`, which multiplies" in said
    assert "spots that are 3.3e+04 apart" in refused(fitted, other(places * 1000))
    said = refused(fitted, other(places * 2))
    assert "another unit, such as pixels and micrometres: try `scale=0.488`, estimated from the extents" in said
    assert "try `scale=0.976`" in refused(fitted, other(places), scale=2.0)  # the whole factor, not what is left of it
    said = refused(fitted, other(places + 50_000))
    assert "within 100 of a fitted spot, found none: their coordinates are x 53026.5 to 54973.5, y " in said
    assert "Are both of the same section, with the same origin and unit" in said
    adata = other(places / 2.0)
    adata.obsm["spatial"] += 0.0
    scaled = spv.transfer(fitted, adata, scale=2.0)
    assert (scaled.domains >= 0).all()
    # half the section, from its corner, may be the whole of it in another unit
    low = as_section(random_fit(lattice(20)))
    with pytest.warns(InputWarning, match=r"extend over 0\.5\d* times the extent of the fit, along both axes"):
        spv.transfer(low, other(lattice(60, spacing=33.0) / 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spv.transfer(low, other(lattice(5, spacing=33.0) + 700))  # a field of view


def test_sections_in_other_planes_are_told():
    """Their tissue differs in extent, as places in another unit would."""
    flat, other_plane = lattice(20), lattice(24)
    fitted = as_section(random_fit(np.column_stack([flat, np.full(len(flat), 1000.0)])))
    places = np.column_stack([other_plane, np.full(len(other_plane), 3000.0)])
    said = refused(fitted, other(places))
    assert "They lie in another plane. Other sections get their domains from a model" in said
    assert "scale" not in said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (spv.transfer(fitted, other(places), max_distance=2500.0).domains >= 0).all()


def test_wrong_options_are_named():
    fitted, adata = as_section(random_fit(lattice(5))), other(lattice(5))
    assert "`borders` to be one of spots, smooth, found 'round'" in refused(fitted, adata, borders="round")
    assert "`scale` to be a number above 0, found -1" in refused(fitted, adata, scale=-1)
    assert "`max_distance` to be a number above 0, found 0" in refused(fitted, adata, max_distance=0)
    assert "`max_distance` to be a finite number above 0, found inf" in refused(fitted, adata, max_distance=np.inf)
    assert "`new_key` to be made of letters" in refused(fitted, adata, new_key="a b")
    assert "Run `spatialpdvi fit` first" in refused(adata, adata.copy())
    assert "name its `key_added`" in refused(fitted, adata, key_added="other")
    assert "coordinates of 2 axes in the AnnData, as in the fit, found 3 axes" in refused(
        fitted, other(lattice(3, axes=3))
    )
    assert "found keys: 'spatial'. Name yours with `spatial_key`" in refused(fitted, adata, spatial_key="um")
    assert "a fit of several sections with `sample_key`, found a fit of one" in refused(fitted, adata, sample_key="s")
    del fitted.obsm["spatial"]
    assert "The fit has had them there: put them back" in refused(fitted, adata)
    same = as_section(random_fit(lattice(5)))
    with pytest.raises(InputError, match=r"two AnnData, found the same twice\. Give `new_key`"):
        spv.transfer(same, same)
    spv.transfer(same, same, new_key="again")
    np.testing.assert_array_equal(same.obsm["again_posterior"], same.obsm["pdvi_posterior"])


def test_names_of_the_users_are_not_taken():
    fitted, adata = as_section(random_fit(lattice(5))), other(lattice(5))
    adata.obsm["X_pca"] = np.ones((25, 2))
    with pytest.raises(InputError, match=r"`new_key='pca'` to be free, .* Choose another `new_key`"):
        spv.transfer(fitted, adata, new_key="pca")
    again = as_section(random_fit(lattice(5), seed=3), pdvi_agreement=np.float32(1))
    spv.transfer(fitted, again)  # replaces the fit that was there
    assert "pdvi_agreement" not in again.obs
    np.testing.assert_array_equal(again.obsm["pdvi_posterior"], fitted.obsm["pdvi_posterior"])


NAMES = ["a/b", "'\"", "Ünïcode 1"]


@pytest.fixture
def sections():
    """Three sections at the same place, with other domains each."""
    fits = [random_fit(lattice(6), seed=seed) for seed in range(3)]
    names = np.repeat(NAMES, 36)
    joined = FittedSpots(*(np.concatenate(parts) for parts in zip(*fits, strict=True)))
    section = as_section(joined, slice=pd.Categorical(names, categories=NAMES))
    section.uns["pdvi"]["params"]["sample_key"] = "slice"
    return section, fits


def test_sections_are_matched_by_name(sections):
    section, fits = sections
    shuffled = np.random.default_rng(0).permutation(72)
    adata = other(np.tile(lattice(6), (2, 1))[shuffled], slice=np.repeat([NAMES[2], NAMES[0]], 36)[shuffled])
    result = spv.transfer(section, adata)
    expected = np.concatenate([fits[2].codes, fits[0].codes])[shuffled]
    np.testing.assert_array_equal(result.domains, expected)
    assert sorted(result.sections["section"]) == sorted([NAMES[2], NAMES[0]])
    assert adata.uns["pdvi"]["params"]["sample_key"] == "slice"
    assert list(adata.uns["pdvi"]["scores"]["samples"]["n_spots"]) == [36, 36]
    adata.obs["part"] = adata.obs.pop("slice")
    tool = spv.tl.transfer(adata, section, library_key="part", copy=True, new_key="again")
    assert "again_domain" not in adata.obs
    np.testing.assert_array_equal(tool.obs["again_domain"].cat.codes, expected)


def test_sections_that_do_not_match_are_refused(sections):
    section, _ = sections
    adata = other(lattice(6), slice="c")
    assert "as the fit has several sections, found columns: 'part'" in refused(section, other(lattice(6), part="c"))
    said = refused(section, adata)
    assert "Expected sections of the fit in the AnnData: " in said
    assert "found 'c'. Rename these sections, leave them out" in said
    adata.obs["slice"] = [None] + ["a/b"] * 35
    assert "a label for every spot that names its section, found 1 of 36 missing" in refused(section, adata)


def test_one_section_of_several_gives_its_domains_to_its_namesake_alone(sections):
    section, fits = sections
    one = section[:36].copy()
    both = other(np.tile(lattice(6), (2, 1)), slice=np.repeat(NAMES[:2], 36))
    assert f"found {NAMES[1]!r}. Rename these sections, leave them out" in refused(one, both)
    for adata in (both[:36].copy(), other(lattice(6))):  # without the column there is one section
        np.testing.assert_array_equal(spv.transfer(one, adata).domains, fits[0].codes)


def test_sections_that_the_fit_lost_are_not_taken_for_one(sections):
    section, _ = sections
    del section.obs["slice"]
    said = refused(section, other(lattice(6), slice="a"))
    assert "Expected obs['slice'], by which the fit told sections apart, in the AnnData, found columns: " in said
    assert said.endswith("Put it back: spots of different sections may lie at the same place.")


def test_what_is_written_says_whose_certificate_it_is():
    fit = random_fit(lattice(8), k=5)
    section = as_section(fit._replace(codes=np.where(fit.codes == 3, 0, fit.codes)))  # domain 3 has no spot
    section.obs["pdvi_domain"] = section.obs["pdvi_domain"].cat.rename_categories({"1": "Skin, outer/inner"})
    section.uns["pdvi"]["domain_mean"] = np.arange(10.0).reshape(5, 2)
    section.obs["pdvi_confidence"] = fit.posterior[np.arange(64), section.obs["pdvi_domain"].cat.codes]
    adata = other(lattice(8) + 10, annotation=np.repeat(["a", "b"], 32), pdvi_agreement=np.float32(1))
    adata.obs["pdvi_domain"] = pd.Categorical(["0"] * 64)  # remains of a fit
    result = spv.transfer(section, adata)
    assert adata.obs["pdvi_domain"].cat.categories.tolist() == ["0", "Skin, outer/inner", "2", "3", "4"]
    assert list(adata.uns["pdvi_domain_colors"]) == list(section.uns["pdvi_domain_colors"])
    summary = adata.uns["pdvi"]
    assert summary["certificate"] == {"converged": True}
    assert "no certificate of its own" in summary["transfer"]["certificate"]
    assert summary["transfer"]["fit"] == "an AnnData in memory"
    np.testing.assert_array_equal(summary["domain_mean"], section.uns["pdvi"]["domain_mean"])
    assert set(summary["scores"]) >= {"ari", "pas", "chaos"}
    assert summary["scores"]["n_spots"] == 64
    assert "pdvi_agreement" not in adata.obs
    posterior = adata.obsm["pdvi_posterior"].astype(float)
    entropy = -(posterior * np.log(np.maximum(posterior, 1e-300))).sum(axis=1)
    np.testing.assert_allclose(adata.obs["pdvi_entropy"], entropy, atol=1e-6)
    assert repr(result) == "TransferResult(64 spots, 64 with a domain)"
    further = other(lattice(8))
    spv.transfer(adata, further, borders="smooth")
    assert further.uns["pdvi"]["transfer"]["fit"] == "an AnnData in memory"


def test_a_fit_without_calibration_and_colours():
    section = as_section(random_fit(lattice(6))._replace(calibrated=None))
    del section.uns["pdvi_domain_colors"]
    adata = other(lattice(6) + 3)
    assert spv.transfer(section, adata).calibrated is None
    assert set(adata.obsm) == {"spatial", "pdvi_posterior"}
    assert set(adata.uns) == {"pdvi"}


def test_spots_that_the_fit_left_out_give_no_domain():
    fit = random_fit(lattice(10))
    section = as_section(fit)
    left = fit.coordinates[:, 0] < 500
    section.obs["pdvi_domain"] = section.obs["pdvi_domain"].where(~left)
    section.obs.loc[left, ["pdvi_confidence", "pdvi_confidence_calibrated"]] = np.nan
    for key in ("pdvi_posterior", "pdvi_posterior_calibrated"):
        section.obsm[key][left] = np.nan
    section.uns["pdvi"]["params"] |= {"n_excluded": int(left.sum()), "n_spots": int((~left).sum())}
    adata = other(fit.coordinates)
    result = spv.transfer(section, adata)
    # bins right beside the fitted ones are within their spacing
    np.testing.assert_array_equal(result.domains >= 0, fit.coordinates[:, 0] > 400)


def test_posteriors_of_mixed_sections_come_back_in_their_rows():
    section = spv.simulate(n_spots=400, n_genes=60, k=3, seed=1, easy=True)
    section.obs["slide"] = np.where(np.random.default_rng(0).random(400) < 0.4, "a", "b")
    spv.fit(section, k=3, n_top_genes=60, n_init=2, states="off", sample_key="slide")
    result = spv.transfer(section, section.copy(), new_key="again")
    np.testing.assert_allclose(result.posterior, section.obsm["pdvi_posterior"], atol=1e-6)
    np.testing.assert_allclose(result.calibrated, section.obsm["pdvi_posterior_calibrated"], atol=1e-6)
    np.testing.assert_array_equal(result.domains, section.obs["pdvi_domain"].cat.codes)


def test_domains_that_are_carried_twice_name_the_fit_and_score_the_spots_with_a_domain(tmp_path):
    fits = spv.simulate(n_spots=400, n_genes=60, k=3, seed=1, easy=True)
    spv.fit(fits, k=3, n_top_genes=60, n_init=1, states="off")
    fits.write_h5ad(tmp_path / "fit.h5ad")
    cells = ad.AnnData(np.zeros((400, 1)), obsm={"spatial": fits.obsm["spatial"].copy()})
    cells.obs["annotation"] = fits.obs["annotation"].to_numpy()
    cells.obsm["spatial"][:50] += 1e6
    cells.write_h5ad(tmp_path / "once.h5ad")
    cells[50:].copy().write_h5ad(tmp_path / "twice.h5ad")
    first = spv.transfer_file(tmp_path / "fit.h5ad", tmp_path / "once.h5ad")
    spv.transfer_file(tmp_path / "once.h5ad", tmp_path / "twice.h5ad")
    stated = ad.read_h5ad(tmp_path / "twice.h5ad").uns["pdvi"]["transfer"]
    assert (stated["source"], stated["fit"]) == ("once.h5ad", "fit.h5ad")
    assert first.scores["n_spots"] == 350
    assert first.scores["ari"] == pytest.approx(spv.evaluate(fits[50:].copy())["ari"])


def test_the_unit_of_a_flat_section_in_three_dimensions_is_told():
    flat, places = lattice(20) + 3000, lattice(60, spacing=33.0) + 3010
    fitted = as_section(random_fit(np.column_stack([flat, np.full(len(flat), 1000.0)])))
    said = refused(fitted, other(np.column_stack([2 * places, np.full(len(places), 2060.0)])))
    assert "try `scale=0.488`" in said


def test_what_is_written_has_the_number_of_domains_and_the_temperature_of_the_fit():
    fitted = as_section(random_fit(lattice(4)))
    fitted.uns["pdvi"]["params"] |= {"k": 7, "temperature": 2.5}
    target = other(lattice(4))
    spv.transfer(fitted, target)
    params = target.uns["pdvi"]["params"]
    assert (params["k"], params["temperature"]) == (7, 2.5)


def test_nothing_of_an_earlier_result_is_left_in_the_file(tmp_path):
    as_section(random_fit(lattice(4))).write_h5ad(tmp_path / "fit.h5ad")
    earlier = as_section(random_fit(lattice(4)))
    earlier.obs["pdvi_agreement"], earlier.uns["pdvi_markers"] = 1.0, {"domain": np.array(["0"], dtype=object)}
    earlier.write_h5ad(tmp_path / "cells.h5ad")
    spv.transfer_file(tmp_path / "fit.h5ad", tmp_path / "cells.h5ad")
    found = ad.read_h5ad(tmp_path / "cells.h5ad")
    assert found.uns["pdvi"]["transfer"]["source"] == "fit.h5ad"
    assert "pdvi_agreement" not in found.obs
    assert "pdvi_markers" not in found.uns
