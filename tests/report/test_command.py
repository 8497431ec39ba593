"""The command of a report is what a shell reads back, and names what was in force."""

import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest

from spatialpdvi.io.results.summary import stored_params
from spatialpdvi.options.fit import FitOptions, option_table
from spatialpdvi.report.command import _beside, fit_command, predict_command, shell_line, stored_options

pytestmark = pytest.mark.cli

OUT = Path("out.h5ad")


def _parsed(words):
    """Options that the real command line makes of the words."""
    from spatialpdvi.cli import main

    fit = main.commands["fit"]
    values = fit.make_context("fit", list(words[2:])).params
    return FitOptions(**{row["name"]: values[row["name"]] for row in option_table()}), values


EXTREMES = {
    "everything by default": {},
    "a switch off": {"whiten": False, "cross_patch_edges": False},
    "a switch on": {"across_sections": True, "save_graph": True},
    "small numbers": {"tol": 3e-6, "beta": 0.1 + 0.2, "tau": 0.0},
    "a solver's own": {"solver": "svi", "step_size": 1e-5, "batch_patches": 3},
    "texts of a shell": {"label_key": "a b'; rm -rf $HOME `x`", "spatial_key": "x,y,z"},
    "a text like an option": {"layer": "--k", "init": "-1"},
    "odd letters": {"sample_key": "Proben-Nr. é\n\t\\"},
}


@pytest.mark.parametrize("name", EXTREMES)
def test_the_options_come_back(name):
    options = FitOptions(k=7, seed=3, **EXTREMES[name])
    words = fit_command(options, [Path("a b.h5ad")], output=OUT)
    back, values = _parsed(words)
    assert back == options
    assert values["sections"] == (Path("a b.h5ad"),)
    assert values["output"] == OUT


@pytest.mark.parametrize(
    "name", ["plain.h5ad", "a b.h5ad", "it's.h5ad", "$(id).h5ad", "new\nline'\\.h5ad", "-k.h5ad", "\udcff.h5ad"]
)
def test_bash_reads_the_names_back(name):
    line = shell_line(fit_command(FitOptions(k=2), [Path(name)], output=OUT))
    asked = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    words = asked.stdout.split(b"\0")[:-1]
    assert Path(words[2].decode("utf-8", "surrogateescape")) == Path(name)
    assert not words[2].startswith(b"-")
    assert words[3:5] == [b"--k", b"2"]


def test_numbers_of_a_file_are_python_s_own():
    params = {
        "k": np.int64(4),
        "beta": np.float64(0.5),
        "whiten": np.bool_(False),
        "rep": np.str_("X_pca"),
        "n_spots": 9,
    }
    options = stored_options(stored_params({"params": params}))
    assert options == FitOptions(k=4, beta=0.5, whiten=False, rep="X_pca")
    assert shlex.split(shell_line(fit_command(options, [Path("a.h5ad")], output=OUT)))[3:] == [
        *("--k", "4", "--rep", "X_pca", "--no-whiten", "--beta", "0.5", "--seed", "0", "-o", "out.h5ad")
    ]


@pytest.mark.parametrize("params", [{}, {"k": "many"}, {"k": 4, "solver": "magic"}, {"k": np.array([1, 2])}])
def test_parameters_that_are_none_make_no_command(params):
    assert stored_options(params) is None


def test_patches_of_several_sections_are_left_to_the_default_where_it_gave_them():
    # 25 for 90,000 spots at once, 12 and 12 where each section has its own
    options = FitOptions(k=3, n_patches=24, batch_patches=1)
    assert "--n-patches" not in fit_command(options, [OUT], output=OUT, sizes=[45_000, 45_000])
    assert "--n-patches" in fit_command(options, [OUT], output=OUT)
    assert "--n-patches" in fit_command(options, [OUT], output=OUT, sizes=[90_000])


def test_a_prediction_is_repeated_with_its_model():
    params = {"model": "my cortex.npz", "k": 7, "beta": 1.0, "tau": 0.5, "correct": "center", "key_added": "two"}
    params |= {"mask": "in_tissue", "min_counts": "auto", "min_genes": 5, "layer": "counts"}
    line = shell_line(predict_command(params, Path("new.h5ad"), output=OUT))
    assert "--correct none" in shell_line(predict_command(params | {"correct": "none"}, Path("new.h5ad"), output=OUT))
    assert line.startswith("spatialpdvi predict new.h5ad --model 'my cortex.npz' ")
    assert shlex.split(line)[5:] == [
        *("--layer", "counts", "--mask", "in_tissue", "--min-counts", "auto", "--min-genes", "5"),
        *("--correct", "center", "--key-added", "two", "-o", "out.h5ad"),
    ]


@pytest.mark.parametrize("table", ["a", "b"])
def test_the_command_of_a_table_writes_beside_its_store(tmp_path, monkeypatch, table):
    """What lies in the store is a table, and what has no ending could be no output."""
    (tmp_path / "xenium.zarr" / "tables" / table).mkdir(parents=True)
    for folder in ("", "tables", f"tables/{table}"):
        (tmp_path / "xenium.zarr" / folder / "zarr.json").write_text("{}")
    again = (tmp_path / f"xenium_{table}_again.zarr").resolve()
    assert _beside(tmp_path / "xenium.zarr" / "tables" / table) == again
    for inside in ("xenium.zarr", "xenium.zarr/tables"):
        monkeypatch.chdir(tmp_path / inside)
        assert _beside(Path("tables" if inside.endswith(".zarr") else "", table)) == again
    assert _beside(tmp_path / "one.h5ad") == tmp_path / "one_again.h5ad"
