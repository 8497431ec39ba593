"""The same error names flags on the command line and arguments in Python, wherever it was raised."""

import os
import pickle
import stat
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import spatialpdvi
from spatialpdvi.cli import common, main
from spatialpdvi.cli.common import result_is_written
from spatialpdvi.errors import InputError, InputWarning, ResourceError, as_flag, option

ONE_NUMBER = "Give the number of domains of those labels, or leave {} out."
STAY_SPARSE = (
    "Genes that are fitted themselves stay sparse, so that nothing can be subtracted from them. Choose another {}, or "
    "at least one principal component."
)


@pytest.mark.parametrize(
    ("options", "flags", "arguments"),
    [
        ({"k": 1}, "Expected `--k` to be at least 2, found 1.", "Expected `k` to be at least 2, found 1."),
        (
            {"n_top_genes": 0},
            "Expected `--n-top-genes` to be at least 1, found 0.",
            "Expected `n_top_genes` to be at least 1, found 0.",
        ),
        (
            {"memory": "much"},
            "Expected `--memory` to be a size such as 8GB or 500MB, found 'much'.",
            "Expected `memory` to be a size such as 8GB or 500MB, found 'much'.",
        ),
        (
            {"k": "2:4", "init": "annotation"},
            f"Expected `--k` to be one number with --init, found 2:4. {ONE_NUMBER.format('--init')}",
            f"Expected `k` to be one number with `init`, found 2:4. {ONE_NUMBER.format('`init`')}",
        ),
        (
            {"correct": "center", "n_pcs": 0},
            f"Expected `--n-pcs` to be at least 1 with --correct center, found 0. {STAY_SPARSE.format('--correct')}",
            f"Expected `n_pcs` to be at least 1 with `correct='center'`, found 0. {STAY_SPARSE.format('`correct`')}",
        ),
    ],
)
def test_an_error_about_options(toy_file, toy_section, options, flags, arguments):
    options = {"k": 4} | options
    given = [text for name, value in options.items() for text in (as_flag(name), str(value))]
    result = CliRunner().invoke(main, ["fit", str(toy_file), *given])
    assert (result.exit_code, result.stderr) == (2, f"Error: {flags}\n")
    with pytest.raises(InputError) as error:
        spatialpdvi.fit(toy_section.copy(), **options)
    assert str(error.value) == arguments


@pytest.mark.parametrize(
    ("options", "given", "flags", "arguments"),
    [
        (
            {"rep": "X_pca", "clip": 5.0},
            ["--rep", "X_pca", "--clip", "5"],
            ("--clip", "--rep"),
            ("`clip`", "`rep`"),
        ),
        (
            {"states": "off", "detrend": False},
            ["--states", "off", "--no-detrend"],
            ("--no-detrend", "--states off"),
            ("`detrend=False`", "`states='off'`"),
        ),
        (
            {"states": "off", "search": 3},
            ["--states", "off", "--search", "3"],
            ("--search", "--states off"),
            ("`search`", "`states='off'`"),
        ),
        (
            {"states": "off", "anisotropy": 0.5},
            ["--states", "off", "--anisotropy", "0.5"],
            ("--anisotropy", "--states off"),
            ("`anisotropy`", "`states='off'`"),
        ),
    ],
)
def test_a_warning_about_an_idle_option(toy_file, toy_section, options, given, flags, arguments):
    text = "{} has no effect together with {}, and is not used."
    result = CliRunner().invoke(main, ["fit", str(toy_file), "--k", "4", "--n-init", "1", *given])
    assert f"Warning: {text.format(*flags)}\n" in result.stderr
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        spatialpdvi.fit(toy_section.copy(), k=4, n_init=1, **options)
    assert text.format(*arguments) in [str(warning.message) for warning in caught]


@pytest.mark.parametrize("value", ["0", "-1", "", "all", "99999"])
def test_a_number_of_threads_that_numba_cannot_have(monkeypatch, value):
    """With 0 numba cannot be imported, and with too many it crashes."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    with pytest.raises(InputError) as error:
        common._check_threads_of_numba()
    assert str(error.value) == (
        f"Expected NUMBA_NUM_THREADS of 1 to 4,096, found {value!r}. Correct this variable, or unset it."
    )
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    common._check_threads_of_numba()


@pytest.mark.parametrize("kept", [True, False])
def test_numba_has_a_folder_of_its_own_where_it_can_write_to_none(monkeypatch, kept):
    """Without one scanpy cannot be imported: its functions are to be kept."""
    ends = []
    monkeypatch.setattr("atexit.register", lambda *call, **how: ends.append((call, how)))
    monkeypatch.setattr(common, "_is_writable", lambda _: kept)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    common._give_numba_a_folder()
    if kept:
        assert "NUMBA_CACHE_DIR" not in os.environ
        return
    folder = Path(os.environ.pop("NUMBA_CACHE_DIR"))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (((remove, *arguments), how),) = ends
    remove(*arguments, **how)
    assert not folder.exists()


def test_a_folder_is_writable_that_can_be_made(tmp_path):
    assert common._is_writable(tmp_path / "a" / "b")
    (tmp_path / "file").touch()
    assert not common._is_writable(tmp_path / "file" / "b")


def test_an_error_that_needs_the_section(toy_file, toy_section):
    result = CliRunner().invoke(main, ["fit", str(toy_file), "--k", "4:601", "--rep", "X_pca"])
    with pytest.raises(InputError) as error:
        spatialpdvi.fit(toy_section.copy(), k="4:601", rep="X_pca")
    sentence = "Expected `{}` to be at most the number of spots, 600, found 4:601. Choose a smaller number."
    assert result.stderr.splitlines()[-1] == f"Error: {sentence.format('--k')}"
    assert str(error.value) == sentence.format("k")


def test_a_result_that_was_written_before_the_error(tmp_path):
    with pytest.raises(ResourceError) as error, result_is_written([tmp_path / "out.h5ad"], "report"):
        raise ResourceError("The disk is full.", f"Choose another {option('json')}.", outcome="Nothing was changed.")
    assert error.value.sentence(as_flag) == (
        f"The disk is full. The result was written to {str(tmp_path / 'out.h5ad')!r}; the report was not written. "
        "Choose another --json."
    )


def test_a_text_within_a_text_and_other_names():
    error = InputError("at least 1", "0", f"Raise {option('k', 3)}.", option="seed")
    assert InputWarning(f"Not used. {error.sentence(option)}").sentence(as_flag) == (
        "Not used. Expected `--seed` to be at least 1, found 0. Raise --k 3."
    )
    renamed = pickle.loads(pickle.dumps(error.renamed({"seed": "random_state", "k": "n_components"})))
    assert str(renamed) == "Expected `random_state` to be at least 1, found 0. Raise `n_components=3`."
    full = ResourceError(f"No room for {option('k')}.").renamed({"k": "n_components"})
    assert str(full) == "No room for `n_components`."
