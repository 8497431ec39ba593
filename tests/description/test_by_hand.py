"""The description is what squidpy, scanpy and pandas give when they are called by hand, section by section."""

import tracemalloc
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import scanpy as sc
import scipy.sparse as sp
from scipy.stats import false_discovery_control, kstest, norm
from statsmodels.stats.multitest import multipletests

import spatialpdvi
from spatialpdvi import InputError
from spatialpdvi.description.genes import gene_table
from spatialpdvi.description.neighbourhoods import load_squidpy, variable_genes
from spatialpdvi.description.sizes import spot_area
from spatialpdvi.description.summary import summary_rows
from spatialpdvi.io.results.described import SectionDomains

QUIET = pytest.mark.filterwarnings("ignore")  # of squidpy, which is called without ours around it


@pytest.fixture(scope="module")
def sq():
    """Squidpy, which takes seconds to import: only the process that runs a test with it does."""
    return load_squidpy()


@pytest.fixture(scope="module")
def described(_pair):
    return spatialpdvi.describe(_pair, by="cell_type", n_genes=12, n_perms=50, seed=3)


def alone(pair, name):
    """One section for squidpy, with the pattern of the stored graph."""
    section = pair[pair.obs["slice"] == name].copy()
    graph = section.obsp["pdvi_connectivities"].tocsr()
    section.obsp["spatial_connectivities"] = sp.csr_matrix(
        (np.ones(graph.nnz), graph.indices, graph.indptr), shape=graph.shape
    )
    section.obs["pdvi_domain"] = section.obs["pdvi_domain"].cat.remove_unused_categories()
    return section


def square(table, column):
    names = table["domain"].unique()
    return table.pivot(index="domain", columns="other", values=column).loc[names, names].to_numpy()


def adjusted(z, *, diagonal):
    upper = np.triu_indices(len(z), k=0 if diagonal else 1)
    q = np.full(z.shape, np.nan)
    q[upper] = multipletests(2 * norm.sf(np.abs(z[upper])), method="fdr_bh")[1]
    return np.where(np.isnan(q), q.T, q)


@QUIET
@pytest.mark.parametrize("name", ["left", "right"])
def test_contacts_are_squidpys(sq, pair, described, name):
    section = alone(pair, name)
    table = described.contacts[described.contacts["section"] == name]
    assert table["domain"].unique().tolist() == list(section.obs["pdvi_domain"].cat.categories)
    contacts = sq.gr.interaction_matrix(section, "pdvi_domain", copy=True)
    np.testing.assert_array_equal(square(table, "contacts"), contacts)
    options = {"n_perms": 50, "seed": 3, "copy": True, "n_jobs": 1, "show_progress_bar": False}
    z = sq.gr.nhood_enrichment(section, "pdvi_domain", **options).zscore
    np.testing.assert_array_equal(square(table, "z"), z)
    np.testing.assert_allclose(square(table, "q"), adjusted(z, diagonal=True), rtol=1e-12)
    between = contacts * (1 - np.eye(len(contacts)))
    share = between / between.sum(axis=1, keepdims=True)
    np.fill_diagonal(share, np.nan)
    np.testing.assert_allclose(square(table, "border_share"), share)

    # the borders: edges between domains, and the spots that have one
    dense = section.obsp["spatial_connectivities"].toarray()
    domain = section.obs["pdvi_domain"].to_numpy()
    dense[domain[:, None] == domain[None, :]] = 0
    at_border = dense.any(axis=1)
    border = section[at_border].copy()
    border.obsp["spatial_connectivities"] = sp.csr_matrix(dense[at_border][:, at_border])
    z = sq.gr.nhood_enrichment(border, "pdvi_domain", **options).zscore
    np.fill_diagonal(z, np.nan)
    np.testing.assert_array_equal(square(table, "border_z"), z)
    np.testing.assert_allclose(square(table, "border_q"), adjusted(z, diagonal=False), rtol=1e-12)


@QUIET
@pytest.mark.parametrize("name", ["left", "right"])
def test_genes_are_squidpys_morans_i_of_the_most_variable(sq, pair, described, name):
    section = alone(pair, name)
    sc.pp.normalize_total(section, target_sum=1e4)
    sc.pp.log1p(section)
    table = described.genes[described.genes["section"] == name]
    assert len(set(table["domain"])) >= 2
    for domain in section.obs["pdvi_domain"].cat.categories:
        found = table[table["domain"] == domain]
        own = section[section.obs["pdvi_domain"] == domain].copy()
        own = own[own.obsp["spatial_connectivities"].getnnz(axis=1) > 0].copy()
        assert bool(len(found)) == (own.n_obs >= 30)
        if own.n_obs < 30:
            continue
        dense = own.X.toarray()
        variance = np.where((dense > 0).mean(axis=0) >= 0.05, dense.var(axis=0), 0)
        chosen = own.var_names[np.argsort(-variance)[:12]]
        expected = sq.gr.spatial_autocorr(own, genes=list(chosen), copy=True, n_jobs=1, show_progress_bar=False)
        found = found.set_index("gene")
        assert set(found.index) == set(chosen)
        expected = expected.loc[found.index]
        assert (np.diff(found["moran_i"]) <= 0).all()
        np.testing.assert_allclose(found["moran_i"], expected["I"], rtol=1e-4)
        # squidpy's is the tail on the side of the sign of I less its mean
        above = expected["I"] > -1 / (own.n_obs - 1)
        p = np.where(above, expected["pval_norm"], 1 - expected["pval_norm"])
        np.testing.assert_allclose(found["p"], p, rtol=1e-2, atol=1e-12)
        np.testing.assert_allclose(found["q"], false_discovery_control(p), rtol=1e-2, atol=1e-12)


def test_genes_without_a_pattern_have_every_p_value_alike():
    """Of shuffled expression p is uniform, so no more genes than chance allows are found."""
    rng = np.random.default_rng(0)
    near = np.abs(np.subtract.outer(np.arange(400), np.arange(400)))
    graph = sp.csr_matrix(((near > 0) & (near < 4)).astype(float))
    graph = sp.csr_matrix(graph / graph.sum(axis=1))
    found = variable_genes(rng.normal(size=(400, 600)), np.arange(600).astype(str), graph)
    assert kstest(found["p"], "uniform").pvalue > 0.01
    assert (found["q"] < 0.05).sum() == 0
    alternating = np.where(np.arange(400) % 2 < 1, 1.0, -1.0)[:, None] + 0.1 * rng.normal(size=(400, 2))
    assert (variable_genes(alternating, np.array(["a", "b"]), graph)["p"] > 0.99).all()


def test_sizes_and_compositions_are_counts(pair, described):
    sizes = pair.obs.groupby(["slice", "pdvi_domain"], observed=True).size()
    for row in described.domains.itertuples():
        n = sizes.get((row.section, row.domain), 0)
        area = described.sections.set_index("section").loc[row.section, "spot_area"]
        assert (row.spots, row.area) == (n, n * area)
        assert row.share == pytest.approx(n / sizes[row.section].sum())
    counts = pair.obs.groupby(["slice", "pdvi_domain", "cell_type"], observed=True).size()
    assert described.composition["spots"].sum() == counts.sum() == pair.n_obs - 7
    for row in described.composition.itertuples():
        assert row.spots == counts.get((row.section, row.domain, row.type), 0)
        whole = counts[row.section].get(row.domain, pd.Series(dtype=int)).sum()
        assert row.share == pytest.approx(row.spots / whole if whole else np.nan, nan_ok=True)


@pytest.mark.parametrize("option", ["layer", "gene_key"])
def test_options_of_genes_without_genes_are_refused(pair, option):
    with pytest.raises(InputError, match=rf"^Expected genes with `{option}`, found none\. Only genes are read"):
        spatialpdvi.describe(pair, n_genes=0, n_perms=5, **{option: "x"})


def test_the_graph_is_found_again_where_the_fit_has_not_stored_it(pair, described):
    del pair.obsp["pdvi_connectivities"]
    again = spatialpdvi.describe(pair, n_genes=0, n_perms=50, seed=3)
    pd.testing.assert_frame_equal(again.contacts, described.contacts)
    assert set(again.sections["neighbours"]) == {"mutual neighbours among the 10 nearest"}
    assert set(described.sections["neighbours"]) == {"stored by the fit"}


def test_no_section_touches_another(pair):
    # their spots lie among each other
    del pair.obsp["pdvi_connectivities"]
    right = (pair.obs["slice"] == "right").to_numpy()
    both = spatialpdvi.describe(pair, n_genes=0, n_perms=5)
    own = spatialpdvi.describe(pair[right].copy(), n_genes=0, n_perms=5)
    expected = both.contacts[both.contacts["section"] == "right"].drop(columns="section").reset_index(drop=True)
    pd.testing.assert_frame_equal(own.contacts.drop(columns="section"), expected)


def test_the_seed_decides_the_shuffles(pair):
    z = [spatialpdvi.describe(pair, n_genes=0, n_perms=20, seed=seed).contacts["z"] for seed in (0, 0, 1)]
    pd.testing.assert_series_equal(z[0], z[1])
    assert not z[0].equals(z[2])


def lattice(kind, side=30):
    x, y = np.meshgrid(np.arange(side, dtype=float), np.arange(side, dtype=float))
    if kind == "hexagonal":
        x, y = x + 0.5 * (y % 2), y * np.sqrt(3) / 2
    return np.column_stack([x.ravel(), y.ravel()])


@pytest.mark.parametrize(("kind", "area"), [("square", 1.0), ("hexagonal", np.sqrt(3) / 2)])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 250.0])
def test_the_area_of_a_spot_on_a_lattice(kind, area, unit):
    places = lattice(kind)
    hole = np.linalg.norm(places - 12, axis=1) < 5  # is no tissue
    assert spot_area(unit * places[~hole] + 1000 * unit) == pytest.approx(area * unit**2, rel=1e-6)


def test_the_area_of_cells_that_lie_anywhere_is_about_that_of_the_tissue():
    places = np.random.default_rng(0).random((5000, 2))
    assert 5000 * spot_area(places) == pytest.approx(1.0, rel=0.12)
    flat = np.column_stack([places, np.full(5000, 7.0)])
    assert spot_area(flat) == spot_area(places)


def test_a_line_and_a_volume_have_no_area():
    rng = np.random.default_rng(0)
    x = rng.random(50)
    for places in (np.column_stack([x, 2 * x]), np.column_stack([x, 0 * x]), rng.random((50, 3)), np.zeros((1, 2))):
        assert np.isnan(spot_area(places))


@pytest.fixture(scope="module")
def fits():
    section = spatialpdvi.simulate(n_spots=400, n_genes=60, k=3, seed=1, easy=True)
    spatialpdvi.fit(section, k=3, n_top_genes=60, n_init=1, states="off", n_neighbors=5, save_graph=True)
    return section


def test_neighbours_that_are_found_again_are_as_many_as_in_the_fit(fits):
    section = fits.copy()
    stored = spatialpdvi.describe(section, n_genes=0, n_perms=5)
    del section.obsp["pdvi_connectivities"]
    again = spatialpdvi.describe(section, n_genes=0, n_perms=5)
    assert again.sections["neighbours"].tolist() == ["mutual neighbours among the 5 nearest"]
    pd.testing.assert_frame_equal(again.contacts, stored.contacts)


def test_the_graph_that_a_fit_was_given_is_that_of_its_contacts(fits):
    section = fits.copy()
    spots = np.arange(section.n_obs)
    section.obsp["mine"] = sp.csr_matrix((np.abs(spots[:, None] - spots) == 1).astype(float))
    section.uns["pdvi"]["params"]["graph"] = "mine"
    del section.obsp["pdvi_connectivities"], section.uns["pdvi"]["params"]["n_neighbors"]
    found = spatialpdvi.describe(section, n_genes=0, n_perms=2)
    assert found.sections["neighbours"].tolist() == ["given to the fit, obsp['mine']"]
    assert found.contacts["contacts"].sum() == 2 * (section.n_obs - 1)
    section.obsm["moved"] = section.obsm["spatial"]
    found = spatialpdvi.describe(section, n_genes=0, n_perms=2, spatial_key="moved")
    assert found.sections["neighbours"].tolist() == ["mutual neighbours among the 10 nearest"]


def test_spots_that_the_fit_left_out_have_neighbours_under_other_domains():
    section = spatialpdvi.simulate(n_spots=300, n_genes=60, k=3, seed=1, easy=True)
    section.obs["chosen"] = section.obs["annotation"] != section.obs["annotation"].cat.categories[0]
    spatialpdvi.fit(section, k=2, n_top_genes=60, n_init=1, states="off", mask="chosen", save_graph=True)
    own = spatialpdvi.describe(section, n_genes=0, n_perms=2)
    assert own.sections["neighbours"].tolist() == ["stored by the fit"]
    found = spatialpdvi.describe(section, domain_key="annotation", n_genes=0, n_perms=2)
    n = section.uns["pdvi"]["params"]["n_neighbors"]
    assert found.sections["neighbours"].tolist() == [f"mutual neighbours among the {n} nearest"]
    within = found.contacts[found.contacts["domain"] == found.contacts["other"]]
    assert (within["contacts"] > 0).all()


def test_a_section_some_of_whose_spots_have_no_condition_is_refused(fits):
    fits = fits.copy()
    fits.obs["slice"] = np.where(np.arange(400) % 2, "a", "b")
    fits.obs["treated"] = np.where(np.arange(400) % 2, "yes", "no")
    fits.obs.loc[fits.obs_names[4], "treated"] = None
    with pytest.raises(InputError, match=r"in all spots of section 'b', found spots without one\."):
        spatialpdvi.describe(fits, sample_key="slice", condition="treated", n_genes=0, n_perms=2)


def test_other_domains_are_not_stored_with_the_fit(fits):
    section = fits.copy()
    with pytest.raises(InputError, match=r"^Expected no `domain_key` with `store`, found 'annotation'"):
        spatialpdvi.describe(section, domain_key="annotation", store=True, n_genes=0, n_perms=2)
    assert "pdvi_describe" not in section.uns


def test_the_summary_is_of_one_section_and_of_genes_that_were_found():
    tables = {
        "domains": pd.DataFrame({"section": ["a", "b"], "domain": "0", "spots": [3, 5], "share": 1.0, "area": 2.0}),
        "contacts": pd.DataFrame(
            {"section": ["a", "b"], "domain": "0", "other": ["1", "2"], "border_share": [0.25, 1.0]}
        ),
        "composition": pd.DataFrame({"section": ["a", "b"], "domain": "0", "type": ["x", "y"], "share": [0.5, 1.0]}),
        "genes": pd.DataFrame(
            {
                "section": ["a", "a", "b"],
                "domain": "0",
                "gene": ["g", "h", "i"],
                "moran_i": [0.5, 0.4, 0.3],
                "q": [0.01, 0.06, 0.0],
            }
        ),
    }
    _, rows = summary_rows(tables, "a", "cell")
    assert rows == [["0", "3", "100.0%", "2", "1 (25%)", "x (50%)", "g (0.50)"]]


def test_genes_that_few_spots_express_are_not_tested():
    rng = np.random.default_rng(0)
    n = 100
    counts = rng.poisson(5.0, size=(n, 4)).astype(np.float32)
    counts[:, 0] = 0
    counts[:4, 0] = 500  # the largest variance, in 4 % of the spots
    counts[:, 1] = np.where(np.arange(n) < 6, 500, 0)  # in 6 %
    graph = sp.diags([np.ones(n - 1), np.ones(n - 1)], [1, -1]).tocsr()
    section = SectionDomains("a", np.arange(n), pd.Categorical(["0"] * n), rng.random((n, 2)), graph, None, None, None)
    found = gene_table(sp.csr_matrix(counts), np.array(list("abcd"), dtype=object), [section], [graph], n_genes=4)
    assert sorted(found["gene"]) == ["b", "c", "d"]
    assert found.set_index("gene").loc["b", "share"] == pytest.approx(0.06)


class InBlocks(NamedTuple):
    """Counts that are read in blocks of 100 spots."""

    matrix: sp.csr_matrix

    @property
    def shape(self):
        return self.matrix.shape

    def blocks(self):
        return (self.matrix[first : first + 100] for first in range(0, self.shape[0], 100))


def test_no_more_is_kept_than_the_genes_of_each_domain(monkeypatch):
    rng = np.random.default_rng(0)
    n, n_domains, genes = 2000, 20, np.arange(400).astype(str).astype(object)
    codes = rng.integers(n_domains, size=n)
    vary = np.arange(400) % n_domains == codes[:, None]  # 20 genes in each domain
    counts = sp.csr_matrix(np.where(vary, 9.0 * rng.integers(2, size=vary.shape), 4.0).astype(np.float32))
    graph = sp.csr_matrix((codes[:, None] == codes).astype(float))
    domains = pd.Categorical(codes.astype(str))
    section = SectionDomains("a", np.arange(n), domains, rng.random((n, 2)), graph, None, None, None)

    def tested(values, genes, graph):
        return pd.DataFrame({"gene": genes, "moran_i": values.sum(axis=0), "p": 0.0, "q": 0.0})

    monkeypatch.setattr("spatialpdvi.description.genes.variable_genes", tested)
    whole = gene_table(counts, genes, [section], [graph], n_genes=20)
    assert len(set(whole["gene"])) == 400
    tracemalloc.start()
    try:
        found = gene_table(InBlocks(counts), genes, [section], [graph], n_genes=20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    pd.testing.assert_frame_equal(found, whole, check_exact=True)
    assert peak < 12 * counts.nnz  # bytes of the expression of all these genes in all spots


def test_spots_at_one_place_do_not_change_the_area_of_a_spot():
    places = lattice("hexagonal")
    assert spot_area(np.repeat(places, 3, axis=0)) == pytest.approx(spot_area(places), rel=1e-6)
