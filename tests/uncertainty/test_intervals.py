"""Intervals of a fitted section in memory: whose counts they are of, what is refused, and what is left out."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import spatialpdvi
from spatialpdvi import InputError, InputWarning
from spatialpdvi.uncertainty.intervals import _Groups, _warn_of_few
from spatialpdvi.uncertainty.methods import Estimate

pytestmark = pytest.mark.filterwarnings("ignore:Some domains lie in fewer:spatialpdvi.InputWarning")


@pytest.fixture(autouse=True)
def _no_figure_stays():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def _fitted(toy_section):
    section = toy_section.copy()
    section.obs["side"] = np.where(np.arange(600) % 2 == 0, "left", "right")
    section.obs["on"] = section.obsm["spatial"][:, 0] > np.quantile(section.obsm["spatial"][:, 0], 0.1)
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=2, save_graph=True)
    return section


@pytest.fixture
def section(_fitted):
    return _fitted.copy()


def test_means_and_contrasts_are_those_of_the_counts(section):
    genes = list(section.var_names[:3])
    found = spatialpdvi.intervals(section, genes=genes, contrasts=[("2", "0")])
    total = np.asarray(section.X.sum(axis=1)).ravel()
    for row in found.expression.itertuples():
        own = (section.obs["pdvi_domain"] == row.domain).to_numpy()
        counts = np.asarray(section[:, row.gene].X.toarray()).ravel()
        assert row.mean == pytest.approx(1e4 * counts[own].sum() / total[own].sum())
        assert row.lower <= row.mean <= row.upper
    mean = found.expression.set_index(["gene", "domain"])["mean"]
    for row in found.contrasts.itertuples():
        assert (row.domain, row.other) == ("2", "0")
        assert row.lower < row.log2_fold_change < row.upper
        assert row.log2_fold_change == pytest.approx(np.log2(mean[row.gene, "2"] / mean[row.gene, "0"]), abs=0.2)


def test_a_higher_level_is_wider_and_mean_field_is_narrower(section):
    widths = {}
    for name, options in {
        "90": {},
        "99": {"level": 0.99},
        "mean field": {"method": "mean-field"},
        "response": {"method": "linear-response"},
        "bootstrap": {"method": "bootstrap"},
    }.items():
        table = spatialpdvi.intervals(section, genes=list(section.var_names[:20]), **options).contrasts
        widths[name] = float((table["upper"] - table["lower"]).median())
    assert widths["99"] > widths["90"] > widths["mean field"]
    assert widths["response"] >= widths["mean field"]
    assert widths["bootstrap"] > widths["mean field"]


@pytest.mark.parametrize("names", [["3", "1", "2", "0"], list("abcd")])
def test_intervals_of_domains_that_were_renamed_in_python_are_not_drawn(section, names):
    spatialpdvi.intervals(section, store=True)
    spatialpdvi.pl.intervals(section)
    section.rename_categories("pdvi_domain", names)
    listed = ", ".join(map(repr, names))
    message = (
        rf"^Expected uns\['pdvi_intervals'\] to be about the domains .*, {listed}, found domains that were renamed"
    )
    with pytest.raises(InputError, match=message):
        spatialpdvi.pl.intervals(section)
    spatialpdvi.intervals(section, store=True)
    spatialpdvi.pl.intervals(section)


def test_intervals_of_a_selection_that_has_lost_a_domain_are_drawn(section):
    spatialpdvi.intervals(section, store=True)
    whole, selection = (
        [label.get_text() for label in spatialpdvi.pl.intervals(adata).get_yticklabels()]
        for adata in (section, section[section.obs["pdvi_domain"] != "1"].copy())
    )
    assert len(whole) > 1
    assert selection == whole


@pytest.mark.parametrize("names", [["0", "1", "2"], list("abc")])
def test_intervals_of_a_selection_whose_domains_were_renamed_in_python_are_not_drawn(section, names):
    spatialpdvi.intervals(section, store=True)
    selection = section[section.obs["pdvi_domain"] != "1"].copy()
    selection.rename_categories("pdvi_domain", names)
    with pytest.raises(InputError, match=r"^Expected uns\['pdvi_intervals'\] .*, found domains that were renamed"):
        spatialpdvi.pl.intervals(selection)


@pytest.mark.parametrize("names", [["3", "1", "2", "0"], list("abcd")])
def test_intervals_of_domains_that_were_renamed_before_are_drawn_of_a_selection(section, names):
    section.rename_categories("pdvi_domain", names)
    spatialpdvi.intervals(section, store=True)
    selection = section[section.obs["pdvi_domain"] != names[1]].copy()
    labels = [label.get_text() for label in spatialpdvi.pl.intervals(selection).get_yticklabels()]
    assert labels[0].endswith(f"  {names[0]} / {names[1]}")
    selection.rename_categories("pdvi_domain", names[:3])
    with pytest.raises(InputError, match=r"^Expected uns\['pdvi_intervals'\] .*, found domains that were renamed"):
        spatialpdvi.pl.intervals(selection)


def test_markers_are_the_default_and_every_pair_is_compared(section):
    found = spatialpdvi.intervals(section, n_genes=1)
    markers = list(dict.fromkeys(spatialpdvi.markers(section, n=1)["gene"]))
    assert list(dict.fromkeys(found.contrasts["gene"])) == markers
    pairs = found.contrasts[["domain", "other"]].drop_duplicates()
    assert len(pairs) == 6


def test_shares_of_types_are_counted_and_spots_without_a_type_say_nothing(section):
    kind = pd.Categorical(np.where(section.obs["annotation"].cat.codes < 2, "a", "b"))
    section.obs["kind"] = kind.set_categories(["a", "b"])
    section.obs.loc[section.obs_names[:50], "kind"] = np.nan
    table = spatialpdvi.intervals(section, n_genes=1, by="kind").composition
    known = section.obs["kind"].notna()
    for row in table.itertuples():
        own = known & (section.obs["pdvi_domain"] == row.domain)
        assert row.share == pytest.approx((section.obs["kind"][own] == row.type).mean())
        assert 0.0 <= row.lower <= row.share <= row.upper <= 1.0


def test_a_domain_in_which_no_spot_has_a_type_has_no_shares_and_others_keep_theirs(section):
    inside = (section.obs["pdvi_domain"] == "3").to_numpy()
    section.obs["kind"] = pd.Categorical(np.where(inside, None, np.where(np.arange(600) % 2 == 0, "a", "b")))
    for method in ("blocks", "bootstrap", "mean-field"):
        table = spatialpdvi.intervals(section, n_genes=1, by="kind", method=method).composition.set_index("domain")
        assert table.loc[["0", "1", "2"], ["share", "lower", "upper"]].notna().all(axis=None)
        if method != "mean-field":  # which counts each spot in every domain, by its posterior
            assert table.loc["3", ["lower", "upper"]].isna().all(axis=None)


def test_spots_that_were_left_out_do_not_count(section):
    spatialpdvi.fit(section, k=3, n_top_genes=100, n_init=2, mask="on", key_added="part")
    whole = spatialpdvi.intervals(section, genes=["gene00003"], key_added="part")
    part = section[section.obs["on"].to_numpy()].copy()
    alone = spatialpdvi.intervals(part, genes=["gene00003"], key_added="part")
    pd.testing.assert_frame_equal(whole.contrasts, alone.contrasts)


def test_blocks_stay_within_sections(section):
    """Two sections over one another: as one, half the spots of each block would be of the other."""
    spatialpdvi.fit(section, k=3, n_top_genes=100, n_init=2, sample_key="side")
    own = spatialpdvi.intervals(section, genes=["gene00003"])
    named = spatialpdvi.intervals(section, genes=["gene00003"], sample_key="side")
    pd.testing.assert_frame_equal(own.contrasts, named.contrasts)
    del section.uns["pdvi"]["params"]["sample_key"]
    joined = spatialpdvi.intervals(section, genes=["gene00003"])
    assert not own.contrasts["lower"].equals(joined.contrasts["lower"])


def test_a_gene_may_have_any_name(section):
    names = list(section.var_names)
    names[:4] = ["HLA-A/B, α", "$x_1$", "a b\tc", "=1+1"]
    section.var_names = names
    found = spatialpdvi.intervals(section, genes=names[:4], store=True)
    assert set(found.expression["gene"]) == set(names[:4])
    axes = spatialpdvi.pl.intervals(section)
    assert any("$x_1$" in label.get_text() for label in axes.get_yticklabels())


def test_an_empty_domain_has_no_numbers(section):
    column = section.obs["pdvi_domain"].cat.add_categories("4")
    section.obs["pdvi_domain"] = column
    for key in ("pdvi_posterior", "pdvi_posterior_calibrated"):
        section.obsm[key] = np.column_stack([section.obsm[key], np.zeros(600, dtype=np.float32)])
    section.uns["pdvi_domain_colors"] = np.append(section.uns["pdvi_domain_colors"], "#123456")
    found = spatialpdvi.intervals(section, genes=["gene00001"])
    table = found.expression.set_index("domain")
    assert table.loc["4", ["mean", "lower", "upper"]].isna().all()
    assert "4" not in set(found.contrasts["other"])
    named = spatialpdvi.intervals(section, genes=["gene00001"], contrasts=[("0", "4")]).contrasts
    assert named[["log2_fold_change", "lower", "upper"]].isna().all(axis=None)


def test_one_domain_has_no_contrasts_and_its_expression_is_drawn(section):
    spatialpdvi.label(section, spatialpdvi.Merge(["0", "1", "2", "3"], "all"))
    found = spatialpdvi.intervals(section, genes=["gene00001"], store=True)
    assert len(found.contrasts) == 0
    assert len(found.expression) == 1
    assert "contrasts" not in section.uns["pdvi_intervals"]
    assert spatialpdvi.pl.intervals(section).get_xlabel() == "counts per 10,000"


def test_a_fit_without_a_calibrated_posterior_is_warned_of(section):
    del section.obsm["pdvi_posterior_calibrated"]
    with pytest.warns(InputWarning, match="no calibrated posterior"):
        spatialpdvi.intervals(section, genes=["gene00001"])


def test_states_have_expression_and_are_the_composition_of_domains(toy_section):
    section = toy_section.copy()
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=2, states=5, search=0)
    found = spatialpdvi.intervals(section, genes=["gene00001"], store=True)
    share = found.composition.pivot(index="domain", columns="type", values="share").to_numpy()
    np.testing.assert_allclose(share.sum(axis=1), 1.0, atol=1e-5)
    assert set(section.uns["pdvi_intervals"]) == {"expression", "contrasts", "composition", "params"}
    states = spatialpdvi.intervals(section, genes=["gene00001"], of="state", contrasts=[("0", "1")])
    assert next(iter(states.contrasts)) == "state"
    assert states.composition is None
    with pytest.raises(InputError, match=r"one of blocks, bootstrap, mean-field with `of='state'`, found 'implicit'\."):
        spatialpdvi.intervals(section, genes=["gene00001"], of="state", method="implicit")
    spatialpdvi.intervals(section, genes=["gene00001"], of="state", store=True)
    assert spatialpdvi.pl.intervals(section).get_yticklabels()[0].get_text().startswith("gene00001  0 / ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "above 0 and below 1"),
        ({"level": float("nan")}, "above 0 and below 1"),
        ({"n_genes": 0}, "at least 1"),
        ({"method": "sandwich"}, "blocks, bootstrap"),
        ({"method": ["blocks"]}, r"^Expected `method` to be one of blocks, .*, found \['blocks'\]\.$"),
        ({"of": "cell"}, "domain or state"),
        ({"of": "state"}, "pdvi_state"),
        ({"seed": -1}, "whole number"),
        ({"genes": ["gene00001", "gene00001"]}, "'gene00001' twice"),
        ({"genes": ["Gene00001x"]}, "a gene called 'Gene00001x'"),
        ({"genes": [1234]}, r"^Expected `genes` to be text, found 1234\.$"),
        ({"genes": 1234}, r"^Expected `genes` to be text, found 1234\.$"),
        ({"genes": [str(number) for number in range(1001)]}, "at most 1,000 genes"),
        ({"contrasts": [("0", "9")]}, r"pairs of two domains, found '0', '9', where '9' is no domain\."),
        ({"contrasts": [("0", "1"), ("1", "0"), (0, 1)]}, r"different contrasts, found '0', '1' twice\."),
        ({"contrasts": [("0", "0")]}, "pairs of two domains"),
        ({"contrasts": [("0",)]}, "pairs of two domains"),
        ({"contrasts": "01"}, r"pairs of two domains, found '01'\. A pair is in brackets of its own"),
        ({"contrasts": ["01"]}, r"pairs of two domains, found '01'\. A pair is in brackets of its own"),
        ({"contrasts": ("0", "1")}, r"pairs of two domains, found '0'\. A pair is in brackets of its own"),
        ({"contrasts": (0, 1)}, r"pairs of two domains, found '0'\. A pair is in brackets of its own"),
        ({"by": "nothing"}, "nothing"),
        ({"by": "side", "of": "state"}, "no `by`"),
        ({"spatial_key": "nowhere"}, "nowhere"),
        ({"sample_key": "nowhere"}, "nowhere"),
        ({"layer": "nowhere"}, "nowhere"),
        ({"gene_key": "nowhere"}, "nowhere"),
        ({"key_added": "other"}, "a fitted section"),
    ],
)
def test_wrong_options_are_named(section, options, message):
    with pytest.raises(InputError, match=message):
        spatialpdvi.intervals(section, **options)


def test_one_name_is_one_gene(section):
    one, several = (spatialpdvi.intervals(section, genes=genes) for genes in ("gene00003", ["gene00003"]))
    pd.testing.assert_frame_equal(one.expression, several.expression)


def test_markers_whose_names_all_repeat_are_told(section):
    section.var_names = ["g"] * section.n_vars
    section.var["symbol"] = [f"S{number}" for number in range(section.n_vars)]
    repeats = pytest.warns(InputWarning, match="gene names repeat")
    with repeats, pytest.raises(InputError, match=r"found only names that repeat \(first: 'g'\)\. .*`gene_key`\.$"):
        spatialpdvi.intervals(section, n_genes=1)
    with pytest.warns(InputWarning, match="gene names repeat"):
        found = spatialpdvi.intervals(section, n_genes=1, gene_key="symbol")
    assert found.expression["gene"].str.startswith("S").all()


def test_a_selection_of_spots_that_were_all_left_out_is_told(section):
    spatialpdvi.fit(section, k=3, n_top_genes=100, n_init=2, mask="on")
    rest = section[~section.obs["on"].to_numpy()].copy()
    with pytest.raises(InputError, match=rf"found only spots that the fit left out \({rest.n_obs}\)\."):
        spatialpdvi.intervals(rest)


def test_linear_response_needs_the_graph(section):
    del section.obsp["pdvi_connectivities"]
    with pytest.raises(InputError, match="save_graph"):
        spatialpdvi.intervals(section, genes=["gene00001"], method="linear-response")


def test_the_means_of_a_prediction_are_held(section, monkeypatch):
    result = spatialpdvi.fit(section.copy(), k=4, n_top_genes=100, n_init=1, states="off")
    other = section.copy()
    spatialpdvi.predict(other, model=result.model, save_graph=True)
    monkeypatch.setattr("spatialpdvi.uncertainty.intervals.Coupling", lambda *_: pytest.fail("means are not held"))
    found = spatialpdvi.intervals(other, genes=["gene00001"], method="linear-response")
    assert np.isfinite(found.contrasts["upper"]).all()
    with pytest.raises(pytest.fail.Exception, match="means are not held"):
        spatialpdvi.intervals(section, genes=["gene00001"], method="linear-response")


def test_more_markers_than_are_read_are_refused(section, monkeypatch):
    monkeypatch.setattr("spatialpdvi.uncertainty.intervals._MOST_GENES", 5)
    with pytest.raises(
        InputError, match=r"^Expected at most 5 marker genes in all, found \d+ with `n_genes=3`\. Lower `n_genes`\.$"
    ):
        spatialpdvi.intervals(section, n_genes=3)


def test_dense_and_sparse_counts_give_equal_bits(section):
    sparse = spatialpdvi.intervals(section, genes=["gene00001", "gene00002"])
    section.X = np.asarray(section.X.toarray())
    dense = spatialpdvi.intervals(section, genes=["gene00001", "gene00002"])
    pd.testing.assert_frame_equal(sparse.contrasts, dense.contrasts, check_exact=True)
    section.X = sp.csc_matrix(section.X)
    pd.testing.assert_frame_equal(
        spatialpdvi.intervals(section, genes=["gene00001", "gene00002"]).contrasts, sparse.contrasts, check_exact=True
    )


def test_a_picture_needs_stored_intervals(section):
    with pytest.raises(InputError, match="spatialpdvi intervals"):
        spatialpdvi.pl.intervals(section)
    spatialpdvi.tl.intervals(section, ["gene00001"])
    section.uns["pdvi_intervals"]["expression"] = {"gene": np.array(["x"])}
    with pytest.raises(InputError, match="no table of intervals under 'expression'"):
        spatialpdvi.pl.intervals(section)
    del section.uns["pdvi_intervals"]["expression"]
    with pytest.raises(InputError, match="no table of expression"):
        spatialpdvi.pl.intervals(section)


def test_names_that_were_edited_are_renamed_and_domains_that_were_united_have_none(section):
    spatialpdvi.tl.intervals(section, ["gene00001"], contrasts=[("0", "1")])
    spatialpdvi.label(section, spatialpdvi.Rename({"0": "heart", "1": "liver"}))
    stored = section.uns["pdvi_intervals"]
    assert stored["contrasts"]["domain"].tolist() == ["heart"]
    assert stored["contrasts"]["other"].tolist() == ["liver"]
    assert set(stored["expression"]["domain"]) == {"heart", "liver", "2", "3"}
    with pytest.warns(InputWarning, match="pdvi_intervals"):
        spatialpdvi.label(section, spatialpdvi.Merge(["heart", "liver"], "both"))
    assert "pdvi_intervals" not in section.uns


def test_the_next_fit_removes_them(section):
    spatialpdvi.tl.intervals(section, ["gene00001"])
    assert "pdvi_intervals" in section.uns
    spatialpdvi.fit(section, k=3, n_top_genes=100, n_init=1)
    assert "pdvi_intervals" not in section.uns


def test_blocks_of_sections_on_top_of_each_other_are_those_of_sections_apart():
    section = spatialpdvi.simulate(n_spots=600, n_genes=60, k=3, seed=1, easy=True)
    section.obs["slide"] = np.where(np.arange(600) % 2, "a", "b")
    spatialpdvi.fit(section, k=3, n_top_genes=60, n_init=2, states="off", sample_key="slide")
    moved = section.copy()
    moved.obsm["spatial"] = moved.obsm["spatial"] + 1e5 * (np.arange(600) % 2)[:, None]
    on_top, apart = (spatialpdvi.intervals(one, genes=["gene00003"]) for one in (section, moved))
    pd.testing.assert_frame_equal(on_top.contrasts, apart.contrasts)
    pd.testing.assert_frame_equal(on_top.expression, apart.expression)


def test_the_means_of_edited_domains_are_held(section, monkeypatch):
    """They are no longer those that F was minimised over."""
    spatialpdvi.fit(section, k=4, n_top_genes=100, n_init=1, states="off", save_graph=True)
    spatialpdvi.label(section, spatialpdvi.Merge(("0", "1")))
    monkeypatch.setattr("spatialpdvi.uncertainty.intervals.Coupling", lambda *_: pytest.fail("means are not held"))
    found = spatialpdvi.intervals(section, genes=["gene00001"], method="linear-response")
    assert np.isfinite(found.contrasts["upper"]).all()


def test_domains_in_fewer_than_five_blocks_are_named():
    """A domain has one degree of freedom less than blocks."""
    groups = _Groups(("a", "b", "c"), np.arange(3), np.eye(3), np.eye(3))
    found = Estimate(np.zeros((3, 1)), np.zeros((3, 3, 1)), np.array([4.0, 3.9, np.nan]), 12)
    with pytest.warns(InputWarning, match=r"below one and a half: 'b', 'c'\.$"):
        _warn_of_few(found, groups, "domain")


def test_the_memory_that_is_given_bounds_the_counts(section, tmp_path, monkeypatch):
    from spatialpdvi.uncertainty import intervals

    section.write_h5ad(tmp_path / "s.h5ad")
    seen, original = [], intervals.intervals_of
    monkeypatch.setattr(intervals, "intervals_of", lambda *a: seen.append(a[2].memory) or original(*a))
    spatialpdvi.intervals_file(tmp_path / "s.h5ad", genes=list(section.var_names[:2]), memory="1MB")
    assert seen == [1_000_000]


def test_shares_that_rest_on_few_blocks_are_warned_of(section):
    """Expression is known at all spots, but the type at three spots of each domain."""
    first = section.obs.groupby("pdvi_domain", observed=True).head(3).index
    section.obs["kind"] = pd.Categorical(np.where(section.obs_names.isin(first), "a", None), categories=["a", "b"])
    told = r"^Some domains lie with their typed spots in fewer than 5 blocks of \d+ spots, .*: '0', '1', '2', '3'\.$"
    with pytest.warns(InputWarning, match=told):
        spatialpdvi.intervals(section, genes=list(section.var_names[:2]), by="kind")
