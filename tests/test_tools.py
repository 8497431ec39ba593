"""`spatialpdvi.tl` and `spatialpdvi.pp` follow the conventions of scverse, and spell out every option."""

import inspect
import re
import subprocess
import sys
import traceback
from dataclasses import fields
from functools import partial
from pathlib import Path

import anndata
import numpy as np
import pytest

import spatialpdvi as spv
from spatialpdvi import FitOptions, InputError, InputWarning
from spatialpdvi.errors import option as named
from spatialpdvi.errors import own_names

FAST = {"n_init": 1, "max_epochs": 20, "tol": 1e-3, "n_top_genes": 60}
# tools that take one section alone
SINGLE = (partial(spv.tl.domains, n_domains=3), spv.tl.describe, spv.tl.intervals, spv.tl.markers)
OPTIONS = {f.name: f for f in fields(FitOptions)}


@pytest.fixture
def adata():
    return spv.simulate(n_spots=400, n_genes=60, k=3, easy=True, seed=3)


def test_tools_write_into_the_section_or_into_a_copy(adata):
    before = set(adata.obs)
    copy = spv.tl.domains(adata, 3, copy=True, key_added="mine", **FAST)
    assert set(adata.obs) == before
    assert spv.tl.domains(adata, n_domains=3, key_added="mine", **FAST) is None
    np.testing.assert_array_equal(adata.obsm["mine_posterior"], copy.obsm["mine_posterior"])
    marked = spv.tl.markers(adata, 2, key_added="mine", copy=True)
    assert "mine_markers" not in adata.uns
    assert set(marked.uns["mine_markers"]["domain"]) == {"0", "1", "2"}


@pytest.mark.parametrize("name", spv.tl.__all__)
@pytest.mark.parametrize("copy", [False, True])
def test_tools_hand_every_argument_on(monkeypatch, name, copy):
    handed = {}
    in_api = {"domains": "fit"}.get(name, name)
    monkeypatch.setattr(f"spatialpdvi.api.{in_api}", lambda *args, **kwargs: handed.update(kwargs, args=args))
    tool, adata = getattr(spv.tl, name), anndata.AnnData(np.zeros((2, 2)))
    given = {parameter: object() for parameter in inspect.signature(tool).parameters} | {"adata": adata, "copy": copy}
    found = tool(**given)
    written = found if copy else adata
    assert found is (written if copy else None)
    assert (written is adata) != copy
    assert not written.is_view
    names = {"n_domains": "k", "library_key": "sample_key"} | ({"n_genes": "n"} if name == "markers" else {})
    expected = {names.get(own, own): value for own, value in given.items() if own not in ("adata", "copy")}
    expected["args"] = (expected.pop("fitted"), written) if name == "transfer" else (written,)
    if name in ("markers", "describe", "intervals"):
        expected["store"] = True
    assert handed == expected


def test_binning_in_memory_hands_every_argument_on_and_leaves_no_file(monkeypatch):
    handed = {}

    def bin_file(path, written, **options):
        handed.update(options, path=path, written=written)
        anndata.AnnData(np.eye(3, dtype=np.float32)).write_h5ad(written)

    monkeypatch.setattr("spatialpdvi.api.bin_file", bin_file)
    given = {parameter: object() for parameter in inspect.signature(spv.pp.bin).parameters}
    np.testing.assert_array_equal(spv.pp.bin(**given).X, np.eye(3))
    written = handed.pop("written")
    assert handed == given
    assert not written.parent.exists()


def test_progress_is_shown_where_it_is_wanted(adata, capsys):
    assert spv.tl.domains(adata, 3, **FAST) is None
    assert capsys.readouterr() == ("", "")
    spv.tl.domains(adata, 3, progress=True, **FAST)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = [line.split(":")[0] for line in shown.err.splitlines()]
    assert lines[0] == "genes"
    assert {"PCA", "start", "graph", "fit"} <= set(lines)
    with pytest.raises(InputError, match=r"^Expected `progress` to be True, False or None, found 'yes'\."):
        spv.tl.domains(adata, 3, progress="yes", **FAST)
    for function in (spv.markers, spv.tl.markers):
        function(adata, progress=True)
        assert capsys.readouterr().err.startswith("markers:")


def test_a_description_shows_its_progress(adata, capsys):
    pytest.importorskip("squidpy")
    spv.tl.domains(adata, 3, **FAST)
    for function in (spv.describe, spv.tl.describe):
        function(adata, n_genes=5, n_perms=10, progress=True)
        assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["read", "contacts", "genes"]


def test_tools_have_the_bits_of_the_functions(adata):
    other = adata.copy()
    adata.obs["slice"] = other.obs["slice"] = np.repeat(["a", "b"], 200)
    adata.obs["kept"] = other.obs["kept"] = np.arange(400) % 40 > 0
    result = spv.fit(adata, k=3, sample_key="slice", mask="kept", **FAST)
    spv.tl.domains(other, 3, library_key="slice", mask="kept", **FAST)
    np.testing.assert_array_equal(adata.obsm["pdvi_posterior"], other.obsm["pdvi_posterior"])
    spv.predict(adata, model=result.model, sample_key="slice", mask="kept", key_added="again")
    spv.tl.predict(other, result.model, library_key="slice", mask="kept", key_added="again")
    np.testing.assert_array_equal(adata.obsm["again_posterior"], other.obsm["again_posterior"])


@pytest.mark.parametrize(
    ("function", "other_names"),
    [(spv.fit, {}), (spv.tl.domains, {"k": "n_domains", "sample_key": "library_key"})],
    ids=["fit", "tl.domains"],
)
def test_every_option_is_in_the_signature_and_in_the_docstring(function, other_names):
    parameters, text = inspect.signature(function).parameters, inspect.getdoc(function)
    for name, option in OPTIONS.items():
        shown = other_names.get(name, name)
        assert shown in parameters
        assert f"\n{shown}\n" in text
        if name != "k":
            assert parameters[shown].default == option.default
    assert "options" not in parameters
    assert "\noptions\n" not in text


def test_an_argument_called_options_keeps_its_own_words():
    text = inspect.getdoc(spv.fit_file)
    assert "\noptions\n    All options of the fit, in place of" in text
    assert "\nn_pcs\n" in text
    assert "\nby_name\n" not in text
    assert "\nn_pcs\n" not in inspect.getdoc(spv.fit_files)  # which says where they are


def test_fits_of_files_take_options_by_name_or_as_one(adata, tmp_path):
    path = tmp_path / "section.h5ad"
    adata.write_h5ad(path)
    by_name = spv.fit_file(path, k=3, output=tmp_path / "by_name.h5ad", **FAST)
    as_one = spv.fit_file(path, FitOptions(k=3, **FAST), output=tmp_path / "as_one.h5ad")
    np.testing.assert_array_equal(by_name.posterior, as_one.posterior)
    fast = {name: value for name, value in FAST.items() if name != "n_init"}
    paper = spv.fit_file(path, k=3, preset="paper", output=tmp_path / "paper.h5ad", **fast)
    assert paper.params["transform"] == "log1p"
    for function, options in ((spv.fit_file, set(OPTIONS)), (spv.fit_files, set(OPTIONS) - {"sample_key"})):
        assert set(inspect.signature(function).parameters) >= options
    for given, message in (
        ({}, r"Expected `k` to be .*, found None\."),
        ({"options": 8}, r"Expected `options` to be spatialpdvi\.FitOptions, found 8\. .* by name, as `k`\."),
        ({"options": FitOptions(k=3), "k": 4, "smooth": 6}, r"options by name, found both \(k, smooth\)\."),
    ):
        with pytest.raises(InputError, match=message):
            spv.fit_file(path, **given)


@pytest.mark.parametrize(
    "function", [spv.predict, spv.predict_file, spv.tl.predict], ids=["predict", "predict_file", "tl.predict"]
)
def test_a_prediction_shows_the_options_that_it_takes(function):
    parameters = inspect.signature(function).parameters
    assert {"layer", "spatial_key", "label_key", "mask", "min_counts", "min_genes", "save_graph"} <= set(parameters)
    assert parameters["correct"].default is parameters["memory"].default is None
    assert not {"beta", "n_pcs", "options"} & set(parameters)


def test_an_option_that_there_is_not_is_refused(adata):
    told = r"^{}\(\) has no option '{}'\.{} All options are in its docstring: help\({}\)\.$"
    for call, name, given, near in (
        (lambda: spv.fit(adata, k=3, foo=1), "fit", "foo", ""),
        (lambda: spv.fit(adata, k=3, n_pc=4), "fit", "n_pc", r" The closest is 'n_pcs'\."),
        (lambda: spv.fit(adata, k=3, preset="paper", n_pc=4), "fit", "n_pc", r" The closest is 'n_pcs'\."),
        (lambda: spv.fit_file("a.h5ad", k=3, progres=True), "fit_file", "progres", r" The closest is 'progress'\."),
        (lambda: spv.predict(adata, model="a", maks="b"), "predict", "maks", r" The closest is 'mask'\."),
        (lambda: spv.tl.domains(adata, 3, library="b"), "domains", "library", r" The closest is 'library_key'\."),
        (lambda: spv.fit(adata, n_clusters=3), "fit", "n_clusters", r" It is called 'k' here\."),
        (lambda: spv.predict(adata, model="a", use_rep="b"), "predict", "use_rep", ""),  # it has no `rep` either
    ):
        with pytest.raises(TypeError, match=told.format(name, given, near, name)):
            call()


def test_every_function_of_the_interface_is_public_and_on_the_page():
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(spv.api.__all__) - set(spv.__all__) == {"check_table"}
    assert [name for name in spv.__all__ if not re.search(rf"::? (?:spatialpdvi\.)?{name}\b", page)] == []


@pytest.mark.parametrize(
    ("function", "other", "own"),
    [
        (spv.tl.domains, "k", "n_domains"),
        (spv.tl.domains, "sample_key", "library_key"),
        (spv.tl.predict, "sample_key", "library_key"),
        (spv.tl.transfer, "sample_key", "library_key"),
        (spv.tl.describe, "sample_key", "library_key"),
        (spv.tl.intervals, "sample_key", "library_key"),
        (spv.tl.markers, "n", "n_genes"),
    ],
)
def test_an_argument_by_its_name_in_other_functions_is_refused(adata, function, other, own):
    message = f"^Expected the argument `{own}`, found `{other}`. This function calls it `{own}`.$"
    with pytest.raises(InputError, match=message):
        function(adata, **{other: 4})


@pytest.fixture(scope="module")
def fitted():
    adata = spv.simulate(n_spots=400, n_genes=60, k=3, easy=True, seed=3)
    return spv.fit(adata, k=3, **FAST).model, adata


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda adata, _: spv.tl.domains(adata, 1), r"^Expected `n_domains` to be at least 2, found 1\.$"),
        (
            lambda adata, _: spv.tl.domains(adata, "300:500"),
            r"^Expected `n_domains` to be at most .* 400, found 300:500",
        ),
        (lambda adata, _: spv.tl.domains(adata, 4, library_key="slide"), r"Name one of these with `library_key`\.$"),
        (lambda adata, model: spv.tl.predict(adata, model, library_key="slide"), r"with `library_key`\.$"),
        (lambda adata, _: spv.tl.transfer(adata.copy(), adata, library_key="slide"), r"with `library_key`, found"),
        (lambda adata, _: spv.tl.intervals(adata, library_key="slide"), r"with `library_key`\.$"),
        (lambda adata, _: spv.tl.markers(adata, 0), r"Give `n_genes=10`, for example\.$"),
        (lambda adata, _: spv.markers(adata, n=0), r"Give `n=10`, for example\.$"),
    ],
    ids=["few", "range", "domains", "predict", "transfer", "intervals", "markers", "markers of a function"],
)
def test_errors_use_the_names_of_the_tools(fitted, call, message):
    model, adata = fitted
    with pytest.raises(InputError, match=message) as caught:
        call(adata, model)
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.count("InputError: ") == 1  # the names of other functions are not shown above it
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name != "own_names"  # the place where it was raised is


def test_warnings_use_the_names_of_the_tools(adata):
    adata.obsm["constant"], adata.obsm["spatial"] = np.ones((400, 2)), np.zeros((400, 2))
    with pytest.warns(InputWarning) as caught:
        spv.tl.domains(adata, 3, rep="constant", n_init=1)
    text = " ".join(str(warning.message) for warning in caught)
    assert "name the column that tells them apart with `library_key`." in text
    assert "Lower `n_domains`, or choose another start with `seed` or `init`." in text
    assert "`k`" not in text
    assert "sample_key" not in text
    with pytest.raises(InputWarning, match="with `library_key`"):  # where warnings are errors, as in all tests
        spv.tl.domains(adata, 3, rep="constant", n_init=1)


def test_names_of_nested_calls_are_those_of_the_outer_one():
    with own_names({"outer": "shown", "lost": None}), own_names({"inner": "outer", "seed": "lost"}):
        warning = InputWarning(f"It is {named('inner')}. Give {named('seed')}. Or {named('outer')}.")
        own = InputWarning(f"It is {named('outer')}.")
    assert [str(warning), str(own)] == ["It is `shown`. Or `shown`.", "It is `shown`."]
    with pytest.raises(InputError, match=r"^Expected `shown` to be 1, found 2"), own_names({"outer": "shown"}):  # noqa: SIM117
        with own_names({"inner": "outer"}):
            raise InputError("1", "2", option="inner")
    assert str(InputWarning(named("inner"))) == "`inner`"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda adata: spv.markers(adata, n=2.5), "`n` to be a whole number, found 2.5"),
        (lambda adata: spv.intervals(adata, n_genes=None), "`n_genes` to be a whole number, found None"),
        (lambda adata: spv.intervals(adata, level="0.9"), "`level` to be a number, found '0.9'"),
        (lambda adata: spv.intervals(adata, seed=-1), "`seed` to be a whole number from 0 to 4294967295, found -1"),
        (lambda adata: spv.describe(adata, seed=1.5), "`seed` to be a whole number, found 1.5"),
        (lambda adata: spv.transfer(adata, adata.copy(), scale="2"), "`scale` to be a number, found '2'"),
        (lambda _: spv.markers_file("fitted.h5ad", memory=8), "`memory` to be a size such as 8GB or 500MB, found 8"),
    ],
)
def test_numbers_of_the_wrong_kind_are_refused_by_name(fitted, call, message):
    with pytest.raises(InputError, match=f"^Expected {message}"):
        call(fitted[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda adata: spv.fit(adata, k=3, cluster="tcp://a:1"), r"found 'tcp://a:1'\. .*connect\('tcp://a:1'\) as"),
        (lambda adata: spv.fit(adata, k=3, cluster=object()), r"type object\. .*connect\(client\.scheduler\.address\)"),
        (lambda adata: spv.fit_file(adata, k=3), "the path of a file, found an object of type AnnData"),
        (
            lambda adata: spv.bin_file(adata, "a.h5ad"),
            "^Expected `path` to be the path of a file, found an object of type",
        ),
        (spv.pp.bin, "^Expected `path` to be the path of a file, found an object of type AnnData"),
        (lambda _: spv.Checkpoint(5), r"^Expected `folder` to be the path of a file, found an object of type int\.$"),
        (
            lambda adata: spv.write_domain_table(adata.obs, "a.csv"),
            "^Expected a list of files, found an object of type D",
        ),
        (spv.report_files, "^Expected a list of files, found an object of type AnnData"),
        (lambda adata: spv.pl.domains(adata, ax=np.array([None])), "`ax` to be axes of matplotlib, found .* ndarray"),
        (
            lambda adata: spv.plot_section(np.eye(2), ["a", "b"], colours=["red", "blue"]),
            "colours by the names of what they are for, found an object of type list",
        ),
        *((lambda _, tool=tool: tool("a.h5ad", copy=True), "an AnnData, found str") for tool in SINGLE),
        (lambda _: spv.markers("a.h5ad"), "give its path to `spatialpdvi.markers_file`"),
        (lambda _: spv.label("a.h5ad", spv.Merge(["0", "1"])), "give its path to `spatialpdvi.label_file`"),
        (lambda _: spv.pl.domains("a.h5ad"), "give its path to `spatialpdvi.plot_file`"),
    ],
)
def test_objects_of_the_wrong_kind_are_refused(fitted, call, message):
    with pytest.raises(InputError, match=message):
        call(fitted[1])


def test_what_is_written_shares_no_memory_with_the_model(fitted):
    """What a user did to it changed later predictions."""
    model, adata = fitted
    written = [value for value in adata.uns["pdvi"].values() if isinstance(value, np.ndarray)]
    assert written
    for array in model.parts()[0].values():
        assert not any(np.shares_memory(array, value) for value in written)


def test_clusters_are_reached_from_the_package():
    code = "import sys, spatialpdvi; assert spatialpdvi.distributed.connect; sys.exit('distributed' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("tool", [spv.tl.markers, spv.tl.intervals, spv.tl.describe])
def test_a_selection_of_a_backed_section_is_refused_before_the_work(fitted, tmp_path, tool):
    fitted[1].write_h5ad(tmp_path / "backed.h5ad")
    backed = anndata.read_h5ad(tmp_path / "backed.h5ad", backed="r+")
    with pytest.raises(InputError, match="backed by a file"):
        tool(backed[:350])
    backed.file.close()
