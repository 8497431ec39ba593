"""Domains that lie in one of the sections of a joint fit: when there is a warning, its advice, and the table."""

import re
from types import SimpleNamespace

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from conftest import run

import spatialpdvi as spv
from spatialpdvi.cli.fit import _print_sections
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.fitting.separation import explain_separation

OPTIONS = {"k": 2, "n_top_genes": 30, "n_init": 1, "states": "off"}


def _explained(sizes, correct="none"):
    table = None if sizes is None else pd.DataFrame(sizes, index=[f"s{i}" for i in range(len(sizes))])
    text = explain_separation(SimpleNamespace(sizes_by_section=lambda: table, params={"correct": correct}))
    return None if text is None else spv.InputWarning(text).sentence()


@pytest.fixture(scope="module")
def apart():
    """Sections that differ more as a whole than their domains do."""
    parts = [spv.simulate(n_spots=150, n_genes=30, k=2, easy=True, seed=seed) for seed in range(2)]
    counts = [part.X.toarray() for part in parts]
    for part, own, half in zip(parts, counts, (slice(0, 15), slice(15, 30)), strict=True):
        own[:, half] += 20
        part.X = own
    return parts


@pytest.fixture
def files(apart, tmp_path):
    paths = [tmp_path / "one.h5ad", tmp_path / "two.h5ad"]
    for path, part in zip(paths, apart, strict=True):
        part.write_h5ad(path)
    return paths


class TestWhoIsWarned:
    def test_of_domains_that_lie_in_a_section_each(self):
        assert _explained([[0, 314, 612, 123], [638, 304, 0, 111]]) == (
            "Domains 0 and 2 lie in one section each (2 in 's0'; 0 in 's1'). If the sections differ as a whole, try "
            "`correct='center'`; otherwise they may be tissues that the other sections lack. See docs/sections.md."
        )

    def test_of_one_domain(self):
        assert _explained([[400, 300, 199], [400, 300, 1]]) == (
            "Domain 2 lies in 's0' alone. If the sections differ as a whole, try `correct='center'`; otherwise "
            "it may be a tissue that the other sections lack. See docs/sections.md."
        )

    @pytest.mark.parametrize(
        "sizes",
        [
            None,  # one section
            [[500, 300]],  # one section with a name
            [[400, 300, 195], [400, 300, 5]],  # 97.5 % of the third in the first
            [[450, 450, 95], [450, 450, 0]],  # a small domain
            [[600, 300, 100], [50, 50, 0]],  # nearly all spots are of the first section
            [[600, 240, 160], [50, 50, 0]],  # the same, and the domain is not small
            [[300, 300, 0], [300, 300, 0]],  # an empty domain
        ],
    )
    def test_not_of_others(self, sizes):
        assert _explained(sizes) is None

    @pytest.mark.parametrize(
        ("correct", "advice"),
        [
            ("none", "try `correct='center'`; otherwise"),
            ("center", "try `correct='harmony'`, since the shares of their tissues may differ; otherwise"),
            ("harmony", "fit each of them by itself; otherwise"),
        ],
    )
    def test_what_is_advised_depends_on_what_was_tried(self, correct, advice):
        assert advice in _explained([[300, 0], [0, 300]], correct)


def test_many_sections_with_many_domains_have_a_row_each():
    """Codes of 20 sections are int8, and the last of 20 x 7 places is beyond what that holds."""
    samples = pd.Categorical.from_codes(np.repeat(np.arange(20), 7), [f"s{i:02d}" for i in range(20)])
    assert samples.codes.dtype == np.int8
    domains = np.tile(np.arange(7), 20)
    result = SimpleNamespace(samples=samples, domains=domains, n_domains=7)
    np.testing.assert_array_equal(FitResult.sizes_by_section(result), np.ones((20, 7)))


class TestJointFits:
    def test_python_is_warned_where_it_called(self, apart, files, tmp_path):
        joined = ad.concat(dict(zip("ab", apart, strict=True)), label="slice", index_unique="-")
        joined.write_h5ad(tmp_path / "joined.h5ad")
        for fit, data, options in (
            (spv.fit, joined, {"sample_key": "slice"}),
            (spv.fit_file, tmp_path / "joined.h5ad", {"sample_key": "slice"}),
            (spv.fit_files, files, {}),
        ):
            with pytest.warns(spv.InputWarning, match="^Domains 0 and 1 lie in one section each") as caught:
                result = fit(data, **OPTIONS, **options)
            assert caught[-1].filename == __file__
        table = result.sizes_by_section()
        assert table.index.tolist() == ["one", "two"]
        assert table.columns.tolist() == ["0", "1"]
        np.testing.assert_array_equal(np.sort(table.to_numpy(), axis=None), [0, 0, 150, 150])
        assert spv.fit(apart[0].copy(), **OPTIONS).sizes_by_section() is None

    def test_the_command_shows_each_section(self, files, tmp_path):
        options = ["--k", 2, "--n-top-genes", 30, "--n-init", 1, "--states", "off", "-o", tmp_path / "out"]
        done = run("fit", *files, *options)
        rows = re.search(r"domain sizes: 150, 150\n       0    1\none +(\d+) +(\d+)\ntwo +(\d+) +(\d+)\n", done.stdout)
        assert rows is not None, done.stdout
        assert {rows.groups()} <= {("150", "0", "0", "150"), ("0", "150", "150", "0")}
        assert "Warning: Domains 0 and 1 lie in one section each" in done.stderr
        assert "try --correct center; otherwise they may be tissues" in done.stderr

    @pytest.mark.parametrize(("n_sections", "n_domains"), [(13, 3), (2, 30)])
    def test_a_large_table_is_printed_on_request(self, capsys, n_sections, n_domains):
        table = pd.DataFrame(np.full((n_sections, n_domains), 1234))
        result = SimpleNamespace(sizes_by_section=lambda: table)
        _print_sections(result, verbose=False)
        assert capsys.readouterr().out == ""
        _print_sections(result, verbose=True)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == n_sections + 1
        assert lines[1].split() == ["0", *["1,234"] * n_domains]
