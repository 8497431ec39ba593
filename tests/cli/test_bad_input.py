"""Each bad input: one clear sentence, exit 2, no traceback, and the file byte for byte as it was."""

import os
import re
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

from spatialpdvi.cli import main


def _edit(change):
    """A corruption that loads the section, changes it, and writes it back."""

    def apply(path):
        adata = anndata.read_h5ad(path)
        changed = change(adata)
        (adata if changed is None else changed).write_h5ad(path)

    return apply


def _set(target, key, value):
    def change(adata):
        getattr(adata, target)[key] = value(adata) if callable(value) else value

    return _edit(change)


def _x(function):
    def change(adata):
        adata.X = function(adata.X.astype(np.float64))

    return _edit(change)


def _with_value(value):
    def function(x):
        x.data[7] = value
        return x

    return _x(function)


def _coordinates_with(value):
    def make(adata):
        xy = adata.obsm["spatial"].copy()
        xy[3, 1] = value
        return xy

    return _set("obsm", "spatial", make)


def _delete(target, key):
    def change(adata):
        del getattr(adata, target)[key]

    return _edit(change)


def _truncate(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def _wrong_graph(path):
    with h5py.File(path, "r+") as file:
        group = file.require_group("obsp")
        anndata.io.write_elem(group, "bad", sp.csr_matrix(np.eye(5)))


def _bad_graph_value(value):
    def change(adata):
        graph = sp.random(adata.n_obs, adata.n_obs, 0.01, format="csr", random_state=0)
        graph.data[0] = value
        adata.obsp["bad"] = graph

    return _edit(change)


CASES = {
    "text": (lambda p: p.write_text("hello"), [], r"Expected .*HDF5"),
    "empty file": (lambda p: p.write_bytes(b""), [], r"Expected .*(HDF5|empty)"),
    "truncated": (_truncate, [], r"Expected .*(truncated|complete|damaged|cut)"),
    "no coordinates": (_delete("obsm", "spatial"), [], r"Expected .*obsm\['spatial'\].*found.*X_pca.*--spatial-key"),
    "wrong spatial key": (None, ["--spatial-key", "xy"], r"Expected .*obsm\['xy'\].*'X_pca', 'spatial'"),
    "NaN coordinate": (_coordinates_with(np.nan), [], r"Expected .*spatial.*finite.*found 1 .*"),
    "inf coordinate": (_coordinates_with(np.inf), [], r"Expected .*spatial.*finite.*found 1 .*"),
    "one column of coordinates": (
        _set("obsm", "spatial", lambda a: np.zeros((a.n_obs, 1))),
        [],
        r"Expected .*2 or 3 columns.*found 1",
    ),
    "negative counts": (_with_value(-1.0), [], r"Expected raw counts .*-1 \(negative\) in X.*--layer.*--rep"),
    "fractional counts": (_with_value(0.69), [], r"Expected .*0\.69.*--layer.*--rep"),
    "NaN in X": (_with_value(np.nan), [], r"Expected .*(NaN|nan)"),
    "missing layer": (None, ["--layer", "raw"], r"Expected layers\['raw'\]"),
    "missing rep": (None, ["--rep", "X_scVI"], r"Expected obsm\['X_scVI'\].*'X_pca'"),
    "missing init": (None, ["--init", "leiden"], r"Expected obs\['leiden'\].*'annotation'"),
    "missing label key": (None, ["--label-key", "region"], r"Expected obs\['region'\].*'annotation'"),
    "missing graph": (None, ["--graph", "spatial_connectivities"], r"Expected obsp\['spatial_connectivities'\]"),
    "graph of the wrong shape": (_wrong_graph, ["--graph", "bad"], r"Expected obsp\['bad'\].*600.*found.*5"),
    "negative graph": (_bad_graph_value(-1.0), ["--graph", "bad"], r"Expected obsp\['bad'\].*"),
    "NaN graph": (_bad_graph_value(np.nan), ["--graph", "bad"], r"Expected obsp\['bad'\].*"),
    "no spots": (_edit(lambda a: a[:0].copy()), [], r"Expected .*at least one spot"),
    "no genes": (_edit(lambda a: a[:, :0].copy()), [], r"Expected .*at least one gene"),
    "one domain": (None, ["--k", "1"], r"Expected `--k` to be at least 2, found 1\."),
    "more domains than spots": (
        None,
        ["--k", "601"],
        r"Expected `--k` to be at most the number of spots, 600, found 601\.",
    ),
    "more patches than spots": (
        None,
        ["--n-patches", "601"],
        r"Expected `--n-patches` to be at most the number of spots",
    ),
    "more neighbours than spots": (
        None,
        ["--n-neighbors", "601"],
        r"Expected `--n-neighbors` to be at most the number of spots, 600, found 601\.",
    ),
    "unlabelled start": (
        _set("obs", "half", lambda a: pd.Categorical([None, "a"] * (a.n_obs // 2))),
        ["--init", "half"],
        r"Expected obs\['half'\].*300 of 600 missing",
    ),
    "more start labels than domains": (
        _set("obs", "many", lambda a: pd.Categorical(np.arange(a.n_obs) % 9)),
        ["--init", "many"],
        r"Expected `--init` to be a column of obs with at most 4 labels, as many as --k, found 9 in obs\['many'\]\.",
    ),
    "more PCs than columns": (
        None,
        ["--rep", "X_pca", "--n-pcs", "9"],
        r"Expected `--n-pcs` to be at most the 8 columns of 'X_pca', found 9",
    ),
    "NaN features": (
        _set("obsm", "bad", lambda a: np.full((a.n_obs, 3), np.nan)),
        ["--rep", "bad"],
        r"Expected .*bad.*finite",
    ),
    "unknown solver": (
        None,
        ["--solver", "em"],
        r"Expected `--solver` to be one of p2dvi, pdvi, cavi, .*, found 'em'\.",
    ),
    "an option of another solver": (
        None,
        ["--solver", "cavi", "--step-factor", "2"],
        r"Expected an option of --solver cavi, found --step-factor\. It has no options\.",
    ),
    "negative beta": (None, ["--beta", "-1"], r"Expected `--beta` to be at least 0, found -1"),
    "beta that is no number": (None, ["--beta", "nan"], r"Expected `--beta` to be at least 0, found nan"),
    "a tolerance below the digits of float32": (
        None,
        ["--tol", "1e-12"],
        r"Expected `--tol` to be at least 1e-06, found 1e-12",
    ),
    "a step of nothing": (None, ["--step-mean", "0"], r"Expected `--step-mean` to be a positive number, found 0"),
    "hostile prefix": (None, ["--key-added", "../x"], r"Expected `--key-added` to be made of letters"),
    "no threads": (None, ["--threads", "0"], r"Expected `--threads` to be at least 1, found 0"),
    "too many threads": (None, ["--threads", "99999"], r"Expected `--threads` to be at most 4,096, found 99,999"),
    "output in a missing folder": (None, ["-o", "nowhere/out.h5ad"], r"Expected .*nowhere.*"),
    "output is a folder": (None, ["-o", "."], r"Expected .*a file.*"),
    "JSON in a missing folder": (None, ["--report", "nowhere/r.json"], r"Expected .*nowhere.*--json"),
}


def _one_sentence(result):
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return errors[0].removeprefix("Error: ")


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_sentence(case, toy_file, monkeypatch):
    monkeypatch.chdir(toy_file.parent)
    corrupt, arguments, message = CASES[case]
    if corrupt:
        corrupt(toy_file)
    before = toy_file.read_bytes()
    defaults = [] if "--k" in arguments else ["--k", "4"]
    result = CliRunner().invoke(main, ["fit", str(toy_file), *defaults, *arguments])
    assert re.search(message, _one_sentence(result)), result.stderr
    assert toy_file.read_bytes() == before
    assert list(toy_file.parent.iterdir()) == [toy_file]


@pytest.mark.parametrize(("path", "message"), [("missing.h5ad", "no such file|no file|found nothing"), (".", "folder")])
def test_a_file_that_is_not_there(path, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert re.search(message, _one_sentence(CliRunner().invoke(main, ["fit", path, "--k", "4"])))
    assert not any(tmp_path.iterdir())


def test_a_folder_that_is_read_only(toy_file, monkeypatch):
    """Root may write anywhere, so the refusal is the system call's own, for this folder alone."""
    folder = toy_file.parent / "sealed"
    folder.mkdir()
    real = os.open

    def refuse(path, *arguments, **keywords):
        if Path(os.fspath(path)).parent == folder:
            raise OSError(30, "Read-only file system", str(path))
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", refuse)
    result = CliRunner().invoke(main, ["fit", str(toy_file), "--k", "4", "-o", str(folder / "out.h5ad")])
    assert re.search(r"There is no permission to write '.*out\.h5ad'\.", _one_sentence(result))
    assert not any(folder.iterdir())


def test_click_refuses_what_is_no_number_and_unknown_options(toy_file):
    for named, arguments in (
        ("'--threads'", ["--k", "4", "--threads", "four"]),
        ("Expected a path, found an empty text", ["--k", "4", "--checkpoint", ""]),
        ("--nope", ["--k", "4", "--nope"]),
        ("'--k'", []),
    ):
        result = CliRunner().invoke(main, ["fit", str(toy_file), *arguments])
        assert result.exit_code == 2
        assert named in result.stderr
        assert "Traceback" not in result.stderr
