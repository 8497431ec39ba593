"""Marker genes: the right ones, sparse, read as the fit reads, and written only where that is asked for."""

import json
import tracemalloc
import warnings

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from conftest import Cut, run
from reference import assert_is_scanpys, scanpy_markers
from scipy.stats import false_discovery_control, ttest_ind

import spatialpdvi
from spatialpdvi import InputError, InputWarning
from spatialpdvi.features import moments
from spatialpdvi.io.formats import streaming
from spatialpdvi.io.formats.sources import AnnDataSource
from spatialpdvi.io.results.expression import read_genes
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.marker_genes import COLUMNS, expression_tenths, marker_genes, rank_markers


def make_counts(n=300, genes=40, k=3, seed=0):
    """Genes 0, 1, ... are those of domain 0, 1, ...; the last gene is of no spot."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(k, size=n)
    rate = np.full((n, genes), 0.7)
    rate[np.arange(n), codes] = 8.0
    rate[:, -1] = 0.0
    return sp.csr_matrix(rng.poisson(rate).astype(np.float32)), pd.Categorical.from_codes(codes, list("abc")[:k])


def names(n):
    return np.array([f"gene{i}" for i in range(n)], dtype=object)


def test_scores_are_welchs_t_with_the_domains_own_size():
    counts, domains = make_counts()
    table = rank_markers(counts, names(40), domains, n=40)
    assert list(table) == list(COLUMNS)
    dense = counts.toarray().astype(np.float64)
    x = np.log1p(1e4 * dense / dense.sum(axis=1, keepdims=True))
    for row in table.itertuples():
        inside, gene = np.asarray(domains == row.domain), int(row.gene.removeprefix("gene"))
        own, rest = x[inside, gene], x[~inside, gene]
        expected = (own.mean() - rest.mean()) / np.sqrt((own.var(ddof=1) + rest.var(ddof=1)) / own.size)
        assert row.score == pytest.approx(expected, rel=1e-4)
        fold = np.log2(np.expm1(own.mean()) / np.expm1(rest.mean()))
        assert row.log_fold_change == pytest.approx(fold, rel=1e-3, abs=1e-3)
        assert row.share_in == pytest.approx((own > 0).mean())
        assert row.share_out == pytest.approx((rest > 0).mean())
    for domain, gene in zip("abc", names(3), strict=True):
        own = table[table["domain"] == domain]
        assert own["gene"].iloc[0] == gene
        assert (np.diff(own["score"]) <= 0).all()
        assert (own["score"] > 0).all()
        assert own["p_adjusted"].iloc[0] < 1e-6
    assert "gene39" not in set(table["gene"])


def test_the_table_is_scanpys(toy_section):
    toy = sp.csr_matrix(toy_section.X), pd.Categorical(toy_section.obs["annotation"].astype(str))
    counts, domains = make_counts(n=900, genes=120, k=3, seed=3)
    counts.data *= np.random.default_rng(0).choice([1, 1, 1, 40, 5000], counts.nnz)
    for matrix, labels in (toy, (counts, domains)):
        genes = names(matrix.shape[1])
        table = rank_markers(matrix, genes, labels, n=50)
        assert_is_scanpys(table, scanpy_markers(matrix, genes, labels, 50))
        assert len(table) > 10 * len(labels.categories)


def test_sums_do_not_depend_on_threads_or_on_how_rows_are_cut(monkeypatch):
    counts, domains = make_counts(n=2000, genes=300)
    codes = domains.codes.astype(np.int64)
    whole = moments.moments_by_group(counts, codes, 3)
    for step, threads in ((1, 1), (7, 1), (999, 3), (2000, 16)):
        monkeypatch.setattr(moments, "n_threads", lambda threads=threads: threads)
        other = moments.moments_by_group(Cut(counts, step), codes, 3)
        for a, b in zip(whole, other, strict=True):
            np.testing.assert_array_equal(a, b)
    dense = counts.toarray().astype(float)
    y = np.log1p(1e4 * dense / dense.sum(axis=1, keepdims=True))
    others = whole.others()
    for group in range(3):
        for found, spots in ((whole, codes == group), (others, codes != group)):
            assert found.sizes[group] == spots.sum()
            np.testing.assert_allclose(found.sums[group], y[spots].sum(axis=0), rtol=1e-6)
            np.testing.assert_allclose(found.squares[group], (y[spots] ** 2).sum(axis=0), rtol=1e-6)
            np.testing.assert_array_equal(found.present[group], (y[spots] > 0).sum(axis=0))


def test_expression_is_rounded_to_32_bits_for_large_counts_as_for_small_ones():
    counts = np.array([[200.0, 3.0, 100.0, 1.0, 7000.0]])
    sums = moments.moments_by_group(sp.csr_matrix(counts), np.zeros(1, dtype=np.int64), 1).sums
    np.testing.assert_array_equal(sums, sums.astype(np.float32))
    np.testing.assert_allclose(sums, np.log1p(1e4 * counts / 7304), rtol=1e-7)


def test_spots_without_counts_and_zeros_that_are_stored_express_nothing():
    counts, domains = make_counts()
    empty = sp.csr_matrix(sp.diags(np.r_[np.zeros(40), np.ones(260)]) @ counts)
    found = moments.moments_by_group(empty, domains.codes.astype(np.int64), 3)
    empty.eliminate_zeros()
    assert (found.present.sum(axis=0) == empty.getnnz(axis=0)).all()
    assert np.isfinite(found.sums).all()
    rows = rank_markers(Cut(sp.csr_matrix((300, 40)), 30), names(40), domains)
    assert rows.empty


def test_names_may_repeat_and_order_of_spots_does_not_matter():
    counts, domains = make_counts()
    same = np.full(40, "twin", dtype=object)
    a = rank_markers(counts, same, domains)
    assert set(a["gene"]) == {"twin"}
    order = np.random.default_rng(1).permutation(300)
    b = rank_markers(counts[order], names(40), domains[order])
    np.testing.assert_allclose(a["score"], b["score"], rtol=1e-4)


def test_domains_of_one_spot_are_named_and_the_others_ranked():
    counts, domains = make_counts()
    codes = domains.codes.copy()
    codes[7] = 3
    found = pd.Categorical.from_codes(codes, ["a", "b", "c", "lonely", "empty"])
    with pytest.warns(
        InputWarning,
        match=r"^A domain needs 2 spots inside and outside of it for markers; there are none for 'lonely', 'empty'\.$",
    ):
        table = rank_markers(counts, names(40), found, n=2)
    assert list(dict.fromkeys(table["domain"])) == ["a", "b", "c"]
    genes = marker_genes(table, found)
    assert list(genes) == ["a", "b", "c", "lonely", "empty"]
    assert genes["b"][0] == "gene1"
    assert genes["lonely"] == genes["empty"] == []
    numbered = domains.rename_categories([7, 8, 9])
    assert marker_genes(rank_markers(counts, names(40), numbered, n=2), numbered)["8"] == genes["b"]


def test_where_nothing_can_be_compared_there_are_no_rows():
    counts, domains = make_counts(k=1)
    with pytest.warns(InputWarning, match="there are none for 'a'"):
        table = rank_markers(counts, names(40), domains)
    assert table.empty
    assert list(table) == list(COLUMNS)
    with pytest.raises(InputError, match="at least 1 gene per domain, found 0"):
        rank_markers(counts, names(40), domains, n=0)


def test_a_gene_that_all_spots_express_alike_is_no_marker_and_one_of_those_that_are_compared():
    some = np.array([3, 4, 5, 4, 1, 2, 1, 2])
    counts = np.column_stack([np.full(8, 2), some, 8 - some])
    table = rank_markers(sp.csr_matrix(counts), names(3), pd.Categorical(list("aaaabbbb")))
    assert table["gene"].tolist() == ["gene1", "gene2"]
    p = ttest_ind(*np.split(np.log1p(1e3 * counts[:, 1:]), 2), equal_var=False).pvalue
    np.testing.assert_allclose(table["p_adjusted"], false_discovery_control([*p, 1.0])[:2], rtol=1e-5)


def test_counts_are_never_made_dense():
    counts = sp.random(4000, 6000, density=0.005, random_state=0, format="csr", dtype=np.float32)
    counts.data = np.ceil(9 * counts.data)
    domains = pd.Categorical.from_codes(np.arange(4000) % 4, list("abcd"))
    rank_markers(counts[:200], names(6000), domains[:200])  # imports
    tracemalloc.start()
    rank_markers(counts, names(6000), domains)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.3 * 4 * counts.shape[0] * counts.shape[1]


@pytest.fixture
def fitted(toy_section, tmp_path):
    """A fit of counts in a layer, beside an X that has been normalised."""
    section = toy_section.copy()
    section.layers["counts"] = section.X.copy()
    section.X = np.log1p(section.X.toarray())
    section.var["symbol"] = [f"S{i}" if i else None for i in range(section.n_vars)]
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=1)
    path = tmp_path / "fitted.h5ad"
    section.write_h5ad(path)
    return section, path


def test_the_command_prints_and_leaves_the_file_alone(fitted, tmp_path):
    section, path = fitted
    before = path.read_bytes()
    shown = run("markers", path, "-n", 3, "-o", tmp_path / "markers.csv").stdout
    assert path.read_bytes() == before
    table = pd.read_csv(tmp_path / "markers.csv", dtype={"domain": str})
    expected = spatialpdvi.markers(section, n=3)
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    lines = shown.splitlines()
    assert lines[0].startswith("domain  marker genes")
    first = expected[expected["domain"] == "0"]
    assert lines[1].startswith(f"0       {first['gene'].iloc[0]} ({first['log_fold_change'].iloc[0]:.1f}), ")
    assert len(lines) == 1 + 4 + 1
    # the domain's counts are really larger there
    counts = section.layers["counts"].toarray()
    share = counts / counts.sum(axis=1, keepdims=True)
    for row in expected.itertuples():
        inside = np.asarray(section.obs["pdvi_domain"] == row.domain)
        gene = section.var_names.get_loc(row.gene)
        assert share[inside, gene].mean() > share[~inside, gene].mean()


def test_the_ending_of_the_table_is_its_format(fitted, tmp_path):
    section, path = fitted
    expected = spatialpdvi.markers(section, n=3)
    for name, read in (
        ("a.csv", pd.read_csv),
        ("a.tsv", lambda file, **options: pd.read_csv(file, sep="\t", **options)),
        ("A.TSV", lambda file, **options: pd.read_csv(file, sep="\t", **options)),
    ):
        run("markers", path, "-n", 3, "-o", tmp_path / name, "-q")
        table = read(tmp_path / name, dtype={"domain": str})
        pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    run("markers", path, "-n", 3, "-o", tmp_path / "a.parquet", "-q")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "a.parquet"), expected, check_dtype=False)
    for name in ("a.txt", "markers"):
        said = " ".join(run("markers", path, "-o", tmp_path / name, code=2).stderr.split())
        assert "Expected `--output` to be a file that ends in .csv, .tsv or .parquet, found" in said
        assert said.endswith("Its ending sets the format; give it one of these.")
        assert not (tmp_path / name).exists()


def test_stored_columns_are_replaced_and_go_with_the_next_fit(fitted):
    section, path = fitted
    for n in (5, 2):
        run("markers", path, "-n", n, "--store", "-q")
    written = ad.read_h5ad(path)
    table = pd.DataFrame(dict(written.uns["pdvi_markers"]))[list(COLUMNS)]
    pd.testing.assert_frame_equal(table, spatialpdvi.markers(section, n=2), check_dtype=False)
    assert "pdvi_markers" not in section.uns
    spatialpdvi.markers(section, n=2, store=True)
    assert list(section.uns["pdvi_markers"]["gene"]) == list(table["gene"])
    run("fit", path, "--k", 3, "--rep", "X_pca", "--n-init", 1, "-q")
    assert "pdvi_markers" not in ad.read_h5ad(path).uns


def test_names_of_another_column(fitted):
    section, path = fitted
    shown = run("markers", path, "--gene-key", "symbol", "-n", 150).stdout
    genes = set(spatialpdvi.markers(section, gene_key="symbol", n=150)["gene"])
    assert all(gene in shown for gene in genes)
    assert {gene[0] for gene in genes - {section.var_names[0]}} == {"S"}
    refused = run("markers", path, "--gene-key", "no", code=2)
    assert "columns: 'symbol'. Name one of these with --gene-key" in refused.output


def test_a_gene_without_a_name_in_that_column_keeps_its_own(toy_section):
    section = toy_section[:, :4].copy()
    section.var["symbol"] = ["S1", "", "  ", None]
    _, genes = read_genes(AnnDataSource(section), Keys(), gene_key="symbol")
    assert genes.tolist() == ["S1", *section.var_names[1:]]


def test_counts_are_those_of_the_fit(toy_section):
    """Counts in a layer that nobody would look into, named by --layer in the fit and remembered."""
    section = toy_section.copy()
    section.layers["mine"] = section.X.copy()
    section.X = section.X[:, ::-1].copy()
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=1, layer="mine")
    remembered = spatialpdvi.markers(section)
    pd.testing.assert_frame_equal(remembered, spatialpdvi.markers(section, layer="mine"))
    assert not remembered.equals(spatialpdvi.markers(section, layer="X"))


def test_counts_in_raw_have_the_genes_of_raw(toy_section):
    section = toy_section.copy()
    section.raw = section
    section = section[:, :20].copy()
    section.X = np.log1p(section.X.toarray())
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=1)
    found = spatialpdvi.markers(section, n=150)
    assert section.uns["pdvi"]["params"]["counts"] == "raw.X"
    assert len(set(found["gene"])) > 20


def test_without_counts_or_without_a_fit_the_command_says_so(toy_section, tmp_path):
    section = toy_section.copy()
    section.X = np.log1p(section.X.toarray())
    path = tmp_path / "section.h5ad"
    section.write_h5ad(path)
    assert "Run `spatialpdvi fit` first" in run("markers", path, code=2).output
    report = tmp_path / "report.json"
    run("fit", path, "--k", 3, "--rep", "X_pca", "--n-init", 1, "--report", report)
    assert "markers" not in json.loads(report.read_text())
    before = path.read_bytes()
    shown = run("markers", path, "--store", code=2).output
    assert "features of --rep have no genes to be compared" in shown
    assert path.read_bytes() == before
    assert "found the same" in run("markers", path, "-o", path, code=2).output


def test_a_fit_of_ready_features_finds_counts_that_are_there(toy_section):
    section = toy_section.copy()
    spatialpdvi.fit(section, k=4, rep="X_pca", n_init=1)
    assert len(spatialpdvi.markers(section, n=2)) == 8


def test_spots_that_the_fit_left_out_have_no_markers(toy_section):
    section = toy_section.copy()
    section.obs["on"] = np.arange(section.n_obs) >= 50
    spatialpdvi.fit(section, k=3, n_top_genes=100, n_init=1, mask="on")
    rest = section[:50].copy()
    said = r"^Expected spots in the AnnData that were fitted, found only spots that the fit left out \(50\)\. Select"
    for refused in (spatialpdvi.markers, lambda adata: spatialpdvi.label(adata, spatialpdvi.Merge(["0", "1"]))):
        with pytest.raises(InputError, match=said):
            refused(rest)


def test_spots_without_counts_are_told_by_the_fit_and_not_by_markers(toy_section):
    section = toy_section.copy()
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=1)
    dense = section.X.toarray()
    dense[:2] = 0
    section.X = sp.csr_matrix(dense)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InputWarning)
        spatialpdvi.markers(section)
    with pytest.warns(InputWarning, match=r"^2 of 600 spots have no counts"):
        spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=1)


def test_the_report_of_a_fit_lists_genes(toy_file, tmp_path):
    report = tmp_path / "report.json"
    run("fit", toy_file, "--k", 4, "--n-top-genes", 100, "--n-init", 1, "--report", report)
    content = json.loads(report.read_text())["markers"]
    table = spatialpdvi.markers(ad.read_h5ad(toy_file))
    assert content == {name: table["gene"][table["domain"] == name].tolist() for name in "0123"}


def test_counts_read_block_by_block_have_the_same_markers(toy_file, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_VALUES", 3000)
    common = ("fit", toy_file, "--k", 4, "--n-top-genes", 100, "--n-init", 1)
    found = []
    for memory in ("1GB", "1KB"):
        report = tmp_path / f"{memory}.json"
        shown = run(*common, "--memory", memory, "--report", report, "-o", tmp_path / "out.h5ad").stdout
        assert "Warning" not in shown
        table = tmp_path / f"{memory}.csv"
        run("markers", tmp_path / "out.h5ad", "--memory", memory, "-o", table)
        found.append((json.loads(report.read_text())["markers"], table.read_bytes()))
    assert found[0] == found[1]
    assert "to be a size such as 8GB" in run("markers", toy_file, "--memory", "much", code=2).output


def test_somebody_elses_columns_are_not_replaced(fitted):
    section, _ = fitted
    section.uns["pdvi"] = {"mine": 1}
    section.uns["pdvi_markers"] = {"mine": [1]}
    with pytest.raises(InputError, match="Choose another `key_added`"):
        spatialpdvi.markers(section, store=True)
    assert section.uns["pdvi_markers"] == {"mine": [1]}


@pytest.mark.parametrize("tool", [spatialpdvi.markers, spatialpdvi.intervals])
def test_sections_that_lost_their_fit_when_they_were_concatenated_are_told_so(toy_section, tool):
    parts = [toy_section.copy() for _ in range(2)]
    for part in parts:
        spatialpdvi.fit(part, k=3, n_top_genes=100, n_init=1, key_added="mine")
    both = ad.concat(parts, label="slice", index_unique="-")
    with pytest.raises(InputError, match=r"a fitted section .* Sections lose it when they are concatenated"):
        tool(both, key_added="mine")


@pytest.fixture
def composed(toy_section, tmp_path):
    """A fit whose domains are compositions of states."""
    section = toy_section.copy()
    spatialpdvi.fit(section, k=3, n_top_genes=100, n_init=1, states=8, search=1)
    path = tmp_path / "composed.h5ad"
    section.write_h5ad(path)
    return section, path


def test_states_have_markers_of_their_own(composed, tmp_path):
    section, path = composed
    shown = run("markers", path, "--of", "state", "-n", 3, "-o", tmp_path / "states.csv", "--store").stdout
    assert shown.splitlines()[0].startswith("state  marker genes")
    assert "uns['pdvi_state_markers']" in shown
    table = pd.read_csv(tmp_path / "states.csv", dtype={"state": str})
    assert list(table) == ["state", *COLUMNS[1:]]
    state = pd.Categorical(section.obsm["pdvi_state"].argmax(axis=1).astype(str))
    expected = rank_markers(section.X, np.asarray(section.var_names, dtype=object), state, n=3)
    expected = expected.rename(columns={"domain": "state"})
    by_state = [frame.sort_values(["state", "score"], ignore_index=True) for frame in (table, expected)]
    pd.testing.assert_frame_equal(*by_state, check_dtype=False)
    assert set(ad.read_h5ad(path).uns["pdvi_state_markers"]) == set(table)
    run("fit", path, "--k", 3, "--rep", "X_pca", "--n-init", 1, "-q")
    assert "pdvi_state_markers" not in ad.read_h5ad(path).uns


def test_a_fit_without_states_has_no_markers_of_them(fitted):
    section, path = fitted
    assert "obsm['pdvi_state']" in run("markers", path, "--of", "state", code=2).output
    with pytest.raises(InputError, match="domain or state"):
        spatialpdvi.markers(section, of="domains")


def test_a_gene_without_another_name_keeps_its_own(toy_section):
    fits = toy_section.copy()
    spatialpdvi.fit(fits, k=4, n_top_genes=60, n_init=1)
    fits.var["symbol"] = [None if i % 2 else f"symbol{i}" for i in range(fits.n_vars)]
    own, other = spatialpdvi.markers(fits, n=5), spatialpdvi.markers(fits, n=5, gene_key="symbol")
    known = fits.var["symbol"]
    assert other["gene"].tolist() == [gene if pd.isna(known[gene]) else known[gene] for gene in own["gene"]]
    assert own["gene"].isin(fits.var_names[1::2]).any()


def test_tenths_of_counts_in_blocks_are_those_of_the_matrix():
    counts, _ = make_counts()
    genes = np.array([2, 0])
    dense = counts.toarray().astype(np.float64)
    expected = np.rint(10 * np.log1p(1e4 * dense / dense.sum(axis=1, keepdims=True)))[:, genes]
    for rows in (counts, Cut(counts, 70)):
        np.testing.assert_array_equal(expression_tenths(rows, genes), expected)


def test_two_spots_inside_and_two_outside_are_enough():
    counts = sp.csr_matrix(np.array([[9, 1], [8, 1], [1, 9], [1, 8]], dtype=np.float32))
    table = rank_markers(counts, names(2), pd.Categorical(list("aabb")))
    assert list(zip(table["domain"], table["gene"], strict=True)) == [("a", "gene0"), ("b", "gene1")]
