"""The test between groups of sections: exact, valid, and silent where it can say nothing."""

import re
from itertools import combinations
from math import comb
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import spatialpdvi
from spatialpdvi import InputError, InputWarning, Merge, Pieces, Rename
from spatialpdvi.description.differences import compare_groups, difference_table, group_sections, why_no_p
from spatialpdvi.description.sections import _warn_of_other_domains
from spatialpdvi.io.results.described import ComparedDomains


def members(sizes):
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


@pytest.mark.parametrize(("first", "second", "smallest"), [(3, 3, 0.1), (4, 4, 2 / 70), (2, 4, 1 / 15), (5, 3, 1 / 56)])
def test_p_is_the_share_of_divisions_with_at_least_this_difference(first, second, smallest):
    values = np.random.default_rng(first).random((20, first + second))
    values[0] = [*np.zeros(first), *np.ones(second)]  # as different as can be
    values[1] = 0.3  # rounding must not tell equal sections apart
    p, least = compare_groups(values, members((first, second)), seed=0)
    assert least == pytest.approx(smallest)
    for row, found in zip(values, p, strict=True):
        differences = []
        for chosen in combinations(range(row.size), first):
            inside = np.isin(np.arange(row.size), chosen)
            differences.append(abs(row[inside].mean() - row[~inside].mean()))
        assert found == pytest.approx(np.mean(np.array(differences) >= differences[0] - 1e-9))
    assert p[0] == pytest.approx(smallest)
    assert p[1] == 1.0


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e8])
def test_p_does_not_depend_on_the_unit(scale):
    values = np.random.default_rng(2).random((20, 8)) * (np.arange(20) > 0)[:, None]
    p, _ = compare_groups(values, members((4, 4)), seed=0)
    assert p[0] == 1.0
    np.testing.assert_array_equal(compare_groups(scale * values, members((4, 4)), seed=0)[0], p)


def test_groups_count_by_their_number_of_sections():
    """All 420 divisions of eight sections into two, two and four, written out."""
    divisions = [
        [*first, *second, *({*range(8)} - {*first, *second})]
        for first in combinations(range(8), 2)
        for second in combinations(sorted({*range(8)} - {*first}), 2)
    ]
    values = np.random.default_rng(0).random((20, 8))
    mean, divided = values.mean(axis=1, keepdims=True), values[:, divisions]
    t = sum(own.shape[2] * (own.mean(axis=2) - mean) ** 2 for own in np.split(divided, [2, 4], axis=2))
    p, smallest = compare_groups(values, members((2, 2, 4)), seed=0)
    assert smallest == pytest.approx(2 / 420)
    np.testing.assert_allclose(p, (t >= t[:, :1] - 1e-9).mean(axis=1))


@pytest.mark.parametrize("sizes", [(4, 5), (3, 3), (2, 2, 3)])
def test_permuted_conditions_have_uniform_p_values(sizes):
    # shares as of sections: few domains, of different size, not normal
    rng = np.random.default_rng(7)
    n = 3000
    shares = rng.dirichlet([8.0, 2.0, 0.3], size=(n, sum(sizes)))[:, :, 2]
    p, smallest = compare_groups(shares, members(sizes), seed=0)
    levels = np.arange(1, round(1 / smallest) + 1) * smallest
    # without ties every level is as likely as any other; four standard deviations of a share
    for level in levels:
        share = (p <= level + 1e-9).mean()
        assert abs(share - level) <= 4 * np.sqrt(level * (1 - level) / n) + 1e-12
    assert np.unique(np.round(p / smallest)).size == levels.size


def test_more_divisions_than_can_be_tried_are_drawn():
    # 184,756 of them
    values = np.random.default_rng(0).random((400, 20))
    values[0, :10] += 5
    p, smallest = compare_groups(values, members((10, 10)), seed=0)
    assert comb(20, 10) > 20_000
    assert smallest == 1 / 20_001
    assert smallest <= p[0] <= 10 * smallest
    assert (p[1:] <= 0.05).mean() == pytest.approx(0.05, abs=0.045)
    np.testing.assert_array_equal(p, compare_groups(values, members((10, 10)), seed=0)[0])


def table_of(shares, n=1000):
    """The table of domains of sections with these shares, (sections, domains)."""
    rows = [(f"s{i}", str(k), round(n * share)) for i, own in enumerate(shares) for k, share in enumerate(own) if share]
    return pd.DataFrame(rows, columns=["section", "domain", "spots"])


def test_a_domain_that_grows_is_found_with_four_against_four():
    rng = np.random.default_rng(0)
    shares = [[0.2 + 0.2 * (i >= 4) + 0.02 * rng.random(), 0.3] for i in range(8)]
    table = table_of([[a, b, 1 - a - b] for a, b in shares])
    conditions = ["old"] * 4 + ["new"] * 4
    sections = pd.DataFrame({"section": [f"s{i}" for i in range(8)]})
    found = difference_table(table, sections, group_sections(conditions), seed=0).set_index("domain")
    assert found.loc["0", "p"] == found.loc["0", "smallest_p"] == pytest.approx(2 / 70)
    assert found.loc["0", "share_new"] > found.loc["0", "share_old"] + 0.15
    assert found.loc["1", "p"] == 1.0  # the same in all sections
    np.testing.assert_allclose(found["q"], [1.5 * 2 / 70, 1.0, 1.5 * 2 / 70])


def test_a_section_without_a_domain_has_a_share_of_zero_but_no_composition_of_it():
    table = table_of([[0.5, 0.5], [0.6, 0.4], [1.0, 0.0], [0.9, 0.1]])
    sections = pd.DataFrame({"section": ["s0", "s1", "s2", "s3"]})
    groups = group_sections(["a", "a", "b", "b"])
    found = difference_table(table, sections, groups, seed=0).set_index("domain")
    assert found.loc["1", ["share_a", "share_b", "n_sections"]].tolist() == pytest.approx([0.45, 0.05, 4])
    types = pd.concat([table.assign(type=kind) for kind in "xy"])
    found = difference_table(types, sections, groups, seed=0).set_index(["domain", "type"])
    assert found.loc[("1", "x"), ["share_a", "share_b", "n_sections"]].tolist() == pytest.approx([0.5, 0.5, 3])
    assert np.isnan(found.loc[("1", "x"), "p"])  # one section of b has the domain
    assert found.loc[("0", "x"), "p"] == 1.0


@pytest.fixture
def many(pair):
    """Six sections in one AnnData: the two, cut in three."""
    part = np.concatenate([np.arange(n) * 3 // n for n in pair.obs["slice"].value_counts().loc[["left", "right"]]])
    pair.obs["piece"] = pd.Categorical([f"{a}{b}" for a, b in zip(pair.obs["slice"], part, strict=True)])
    return pair


def test_sections_are_compared_by_their_condition(many):
    found = spatialpdvi.describe(many, by="cell_type", condition="slice", sample_key="piece", n_genes=0, n_perms=2)
    table = found.differences
    assert found.sections["condition"].value_counts().to_dict() == {"left": 3, "right": 3}
    tested = table[table["p"].notna()]
    assert len(tested) == 3 + 6  # the sections of the left have no spots of one domain to be compared
    np.testing.assert_allclose(tested["smallest_p"], 0.1)
    assert (tested["p"] >= 0.1 - 1e-12).all()
    own = found.domains.merge(found.sections[["section", "condition"]])
    means = own.groupby(["domain", "condition"])["share"].mean()
    for row in table[table["type"] == ""].itertuples():
        assert row.share_left == pytest.approx(means[row.domain, "left"])
        assert row.share_right == pytest.approx(means[row.domain, "right"])
    assert len(table) == 3 + 9


def test_one_section_in_a_group_has_no_p_values(pair):
    with pytest.warns(InputWarning, match="no p-values, because 'left' and 'right' have one section"):
        found = spatialpdvi.describe(pair, condition="slice", n_genes=0, n_perms=2)
    assert found.differences[["p", "q", "smallest_p"]].isna().all(axis=None)
    assert "have one section" in found.no_p_values
    assert found.differences["share_left"].sum() == pytest.approx(1.0)
    assert why_no_p(group_sections(["a", "a", "b", "b"])) == ""


def test_a_condition_that_varies_within_a_section_is_refused(pair):
    with pytest.raises(InputError, match="one value of obs\\['cell_type'\\] in all spots of section 'left', found 'a'"):
        spatialpdvi.describe(pair, condition="cell_type", n_genes=0)
    pair.obs["same"] = "x"
    with pytest.raises(InputError, match="at least two conditions in obs\\['same'\\], found 2 of 'x'"):
        spatialpdvi.describe(pair, condition="same", n_genes=0, n_perms=2)


@pytest.fixture
def halves(pair, tmp_path):
    """The two sections in files, "left" and "right", after an edit of each by name; the warnings of comparing them."""

    def compared(change):
        names = []
        for name in ("left", "right"):
            own = pair[pair.obs["slice"] == name].copy()
            own.obs["treated"] = name
            change(name, own)
            names.append(tmp_path / f"{name}.h5ad")
            own.write_h5ad(names[-1])
        with pytest.warns(InputWarning) as caught:
            spatialpdvi.describe_files(names, condition="treated", n_genes=0, n_perms=2)
        said = [str(warning.message) for warning in caught]
        return [text for text in said if "have one section" not in text]

    return compared


def test_files_of_different_fits_are_not_compared_without_a_warning(halves):
    def change(name, own):
        if name == "right":
            own.uns["pdvi"]["domain_mean"] = own.uns["pdvi"]["domain_mean"] + 1

    (said,) = halves(change)
    assert "not of one fit" in said


@pytest.mark.parametrize("of", ["domains", "states"])
def test_means_that_are_rounded_otherwise_are_those_of_one_fit(halves, of):
    def change(name, own):
        fit = own.uns["pdvi"]
        if of == "states":  # compositions that weigh the spots of a file
            fit["state_mean"] = fit["domain_mean"]
            fit["domain_mean"] = fit["domain_mean"] + (name == "right")
        else:
            fit["domain_mean"] = fit["domain_mean"] * (1 + 1e-9 * (name == "right"))

    assert halves(change) == []


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ([Rename({"0": "Cortex"})], [], r"^The files do not have the same domains \('Cortex', '1', '2' in 'left', '0"),
        ([], [Merge(["1", "2"])], r"^The files do not have the same domains \(.*'1\+2' in 'right'\)"),
        ([Rename({"0": "a", "1": "b"})], [Rename({"0": "b", "1": "a"})], "^The files do not have the same domains"),
        ([Pieces("0", min_spots=1)], [Pieces("0", min_spots=1)], "divided by the spots of each file alone"),
        ([Merge(["1", "2"]), Rename({"0": "a"})], [Merge(["1", "2"]), Rename({"0": "a"})], None),
    ],
    ids=["renamed", "merged", "swapped", "divided", "alike"],
)
def test_domains_that_were_edited_in_one_file_are_not_compared_without_a_warning(halves, left, right, said):
    def change(name, own):
        own.obs["pdvi_domain"] = own.obs["pdvi_domain"].cat.set_categories(list("012"))
        del own.uns["pdvi_domain_colors"]  # the selection has lost that of a domain without spots
        joined = np.zeros((own.n_obs, own.n_obs))
        for part in np.array_split(np.flatnonzero(own.obs["pdvi_domain"] == "0"), 2):
            joined[part[:-1], part[1:]] = joined[part[1:], part[:-1]] = 1.0
        own.obsp["pdvi_connectivities"] = sp.csr_matrix(joined)
        for edit in {"left": left, "right": right}[name]:
            spatialpdvi.label(own, edit)

    found = halves(change)
    assert len(found) == (said is not None)
    assert all(re.search(said, text) for text in found)


def test_the_seed_draws_the_divisions():
    values = np.random.default_rng(0).random((50, 20))
    groups = [np.arange(10), np.arange(10, 20)]
    p = [compare_groups(values, groups, seed=seed)[0] for seed in (0, 0, 1)]
    np.testing.assert_array_equal(p[0], p[1])
    assert (p[0] != p[2]).any()


def test_a_warning_is_given_where_the_domains_of_one_file_alone_were_divided():
    fit = {"domain_mean": np.zeros((2, 3))}
    parts = [
        SimpleNamespace(
            sections=pd.DataFrame({"section": [name]}), compared=ComparedDomains(["0", "1"], fit, name == "right")
        )
        for name in ("left", "right")
    ]
    with pytest.warns(InputWarning, match="divided by the spots of each file alone"):
        _warn_of_other_domains(parts)
