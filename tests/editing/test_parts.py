"""Parts of domains, and what edits need of the fit: its options, its graph, its annotation."""

import warnings

import anndata as ad
import numpy as np
import pytest
import scipy.sparse as sp

import spatialpdvi as spv
from spatialpdvi import FitOptions, InputError, InputWarning, Merge, Pieces, Rename, Split
from spatialpdvi.editing import parts as parts_module
from spatialpdvi.editing.parts import connected_parts, fitted_parts, inner_options
from spatialpdvi.errors import option
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.stored import fitted_section
from spatialpdvi.io.section.section import read_section
from spatialpdvi.runtime.progress import Progress


@pytest.fixture(scope="module")
def fits():
    section = spv.simulate(n_spots=600, n_genes=150, k=5, seed=1, easy=True)
    spv.fit(section, k=5, n_top_genes=100, n_init=1, states="off", save_graph=True)
    return section


def test_a_part_with_exactly_the_fewest_spots_is_one_and_spots_at_one_place_keep_their_own():
    adata, spots = ad.AnnData(np.zeros((6, 1))), np.arange(6)
    adata.obsm["spatial"] = np.column_stack([[0.0, 1, 2, 2, 3, 9], np.zeros(6)])
    adata.obsm["spatial"][5, 1] = 1.0
    with pytest.warns(InputWarning, match="same coordinates"):
        section = read_section(AnnDataSource(adata), expression=False)
    own = spots < 5
    joined = sp.csr_matrix((6, 6)).tolil()
    for a, b in ((0, 1), (1, 2), (3, 4)):
        joined[a, b] = joined[b, a] = 1.0
    assert connected_parts(section, own, joined.tocsr(), 2).parts.tolist() == [0, 0, 0, 1, 1, 1]


def test_parts_have_the_calibrated_posterior_of_the_fit_inside(fits, monkeypatch):
    made = []
    fit_section = parts_module.fit_section

    def noted(*arguments):
        made.append(fit_section(*arguments))
        return made[-1]

    monkeypatch.setattr(parts_module, "fit_section", noted)
    options = inner_options(FitOptions(k=5, n_top_genes=100, n_init=4, states="off"), 2, seed=0)
    section = read_section(AnnDataSource(fits))
    own = np.asarray(fits.obs["pdvi_domain"] == "0")
    found = fitted_parts(section, own, options, Progress())
    (inside,) = made
    assert inside.calibration is not None
    np.testing.assert_allclose(found.calibrated[own], inside.calibration.posterior, atol=1e-6)
    np.testing.assert_allclose(found.shares[own], inside.posterior, atol=1e-6)
    assert not np.array_equal(found.calibrated, found.shares)


@pytest.mark.parametrize("n_neighbors", [10, None])
@pytest.mark.parametrize("n", [4, 8])
def test_a_small_domain_has_as_many_neighbours_as_it_can(fits, n, n_neighbors):
    fits, truth = fits.copy(), fits.obs["annotation"].cat.codes.to_numpy()
    fits.obsm["clear"] = np.random.default_rng(0).normal(size=(fits.n_obs, 4)) + 10.0 * truth[:, None]
    own, xy = np.zeros(fits.n_obs, dtype=bool), fits.obsm["spatial"]
    for code in (0, 1):  # spots that lie together
        spots = np.flatnonzero(truth == code)
        own[spots[np.argsort(((xy[spots] - xy[spots].mean(axis=0)) ** 2).sum(axis=1))[: n // 2]]] = True
    options = FitOptions(k=5, rep="clear", n_init=1, states="off", n_neighbors=n_neighbors)
    section = read_section(AnnDataSource(fits), rep="clear")
    found = fitted_parts(section, own, inner_options(options, 2, seed=0), Progress())
    assert len(set(zip(found.parts[own], truth[own], strict=True))) == 2


def test_sections_of_a_small_domain_are_not_corrected_by_harmony(fits, monkeypatch):
    def refuse(_section, options, _progress):
        raise InputError(f"none, not {option('correct', options.correct)}", "x", f"Lower {option('n_neighbors')}.")

    monkeypatch.setattr(parts_module, "fit_section", refuse)
    fits = fits.copy()
    fits.obs["slice"] = np.where(np.arange(fits.n_obs) % 2, "a", "b")
    section = read_section(AnnDataSource(fits), sample_key="slice")
    options = inner_options(FitOptions(k=5, correct="harmony", sample_key="slice"), 2, seed=0)
    for n, correct in ((19, "none"), (20, "harmony")):
        with pytest.raises(InputError, match=rf"^Expected none, not `correct='{correct}'`, found x\.$"):
            fitted_parts(section, np.arange(fits.n_obs) < n, options, Progress())


def test_a_fit_that_uses_and_scores_another_one_can_be_divided(fits):
    fits = fits.copy()
    spv.fit(fits, k=3, rep="X_pdvi", label_key="pdvi_domain", n_init=1, states="off", key_added="fine")
    table = spv.label(fits, Split("0", 2), key_added="fine")
    assert table["domain"].tolist()[:2] == ["0.1", "0.2"]


def test_options_of_the_section_hold_inside_a_domain():
    given = {
        "layer": "a", "spatial_key": "b", "label_key": "c", "sample_key": "d", "n_top_genes": 77, "target_sum": 5.0,
        "totals": "selected", "transform": "sqrt", "clip": 3.0, "whiten": False, "detrend": False, "correct": "center",
        "n_neighbors": 7, "flow_neighbors": 33, "across_sections": True, "tau": 0.3, "anisotropy": 0.2, "beta": 0.7,
        "n_init": 5, "key_added": "e",
    }  # fmt: skip
    options = FitOptions(k=4, **given)
    default = FitOptions(k=4)
    assert all(getattr(options, name) != getattr(default, name) for name in given if name != "whiten")
    inside = inner_options(options, 2, seed=3, memory="2GB")
    assert {name: getattr(inside, name) for name in given} == given
    assert (inside.k, inside.seed, inside.memory) == (2, 3, "2GB")


def test_intervals_get_the_new_names(fits):
    fits = fits.copy()
    spv.intervals(fits, n_genes=1, by="annotation", store=True)
    before = {name: fits.uns["pdvi_intervals"][name] for name in ("expression", "contrasts", "composition")}
    spv.label(fits, Rename({"0": "Cortex", "3": "Skin"}))
    names = {"0": "Cortex", "3": "Skin"}
    for name, table in before.items():
        for column in {"domain", "other"} & set(table):
            after = fits.uns["pdvi_intervals"][name][column].tolist()
            assert after == [names.get(domain, domain) for domain in table[column].tolist()]


def test_without_a_stored_graph_the_given_one_decides(fits):
    adata = fits.copy()
    own = np.flatnonzero(adata.obs["pdvi_domain"] == "1")
    joined = np.zeros((adata.n_obs, adata.n_obs))
    for some in (own[::2], own[1::2]):
        joined[some[:-1], some[1:]] = joined[some[1:], some[:-1]] = 1.0
    del adata.obsp["pdvi_connectivities"]
    adata.obsp["mine"] = sp.csr_matrix(joined)
    adata.uns["pdvi"]["params"]["graph"] = "mine"
    adata.uns["pdvi"]["params"].pop("n_neighbors", None)
    spv.label(adata, Pieces("1", min_spots=2))
    now = adata.obs["pdvi_domain"].astype(str).to_numpy()
    assert set(now[own[::2]]) == {"1.1"}
    assert set(now[own[1::2]]) == {"1.2"}


def test_the_calibration_is_measured_again(fits):
    adata = fits.copy()
    spv.label(adata, Merge(["0", "1"]))
    found = adata.uns["pdvi"]["scores"]["calibration"]
    assert set(found) == set(fits.uns["pdvi"]["scores"]["calibration"])


def test_an_annotation_that_is_gone_stops_no_edit(fits):
    some = fits.copy()
    some.uns["pdvi"]["params"]["label_key"] = "gone"
    section = fitted_section(AnnDataSource(some), some.uns["pdvi"])
    assert section.label_key == "annotation"
    spv.label(some, Merge(["0", "1"]))


def test_what_the_fit_inside_a_domain_warns_of_is_said(fits, monkeypatch):
    fit_section = parts_module.fit_section

    def warned(*arguments):
        warnings.warn(InputWarning("There is something odd."), stacklevel=2)
        return fit_section(*arguments)

    monkeypatch.setattr(parts_module, "fit_section", warned)
    options = inner_options(FitOptions(k=5, n_top_genes=100, n_init=1, states="off"), 2, seed=0)
    own = np.asarray(fits.obs["pdvi_domain"] == "0")
    with pytest.warns(InputWarning, match=r"^The fit inside the domain: There is something odd\.$"):
        fitted_parts(read_section(AnnDataSource(fits)), own, options, Progress())
