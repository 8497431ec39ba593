"""The tutorial's commands, one after the other, and its lines of Python."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import anndata
import numpy as np
import pytest
from click.testing import CliRunner

from spatialpdvi.cli import main

pytestmark = pytest.mark.cli

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
MADE = ("fitted.h5ad", "scores.json", "section.npz", "domains.png", "markers.csv", "scanned.h5ad", "predicted.h5ad")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a quarter of the demo section, all of which the README's first command fits."""
    (tmp_path / "data").mkdir()
    section = anndata.read_h5ad(ROOT / "data" / "section.h5ad")
    x, y = section.obsm["spatial"].T
    section[(x < np.median(x)) & (y < np.median(y))].copy().write_h5ad(tmp_path / "data" / "section.h5ad")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_runs(project, monkeypatch):
    for name, value in {"_COMPARED": 200, "_SPLITS": 2, "_GENE_SPLITS": 1}.items():  # the number does not matter here
        monkeypatch.setattr(f"spatialpdvi.model_selection.stability.{name}", value)
    lines = re.findall(r"^\$ spatialpdvi (.*)$", PAGE, flags=re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        done = CliRunner().invoke(main, shlex.split(line))
        assert done.exit_code == 0, f"{line}\n{done.output}"
        if line.startswith("fit data/section.h5ad --k 7"):
            assert "Converged" in done.output
    assert {path.name for path in project.iterdir()} == {"data", *MADE}


def test_the_lines_of_python_run(project):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block, "tutorial.md", "exec"), {})
    assert said.getvalue().startswith("Converged")
