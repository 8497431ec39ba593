"""The commands of docs/mosta.md, one after the other, on small files of the shape of the published ones."""

import re
import shlex
from pathlib import Path

import anndata as ad
import numpy as np
import pytest
import scanpy as sc
from binning_samples import Molecules, write_gem
from click.testing import CliRunner

import spatialpdvi as spv
from spatialpdvi.cli import main

pytestmark = pytest.mark.cli

PAGE = (Path(__file__).parents[1] / "docs" / "mosta.md").read_text(encoding="utf-8")
DOWNLOADED = [f"{name}.MOSTA.h5ad" for name in ("E9.5_E1S1", "E16.5_E2S5", "E16.5_E2S6")]
SIDE, CELL = 50, 25  # DNBs of a bin and of a cell: four cells in a bin


def embryo(seed):
    """Raw counts in a layer beside normalised values, tissues with colours, and a stage."""
    section = spv.simulate(n_spots=300, n_genes=150, k=4, signal=4, seed=seed, easy=True)
    section.layers["count"] = section.X.copy()
    sc.pp.normalize_total(section, target_sum=1e4)
    sc.pp.log1p(section)
    section.uns["annotation_colors"] = np.array(["#112233", "#445566", "#778899", "#aabbcc"], dtype=object)
    section.obs["timepoint"] = f"E{seed}.5"
    return section


def molecules_of(section, rng):
    """Each count at a DNB of the square of its spot."""
    counts = section.layers["count"].tocoo()
    spot, gene = (np.repeat(index, counts.data.astype(int)) for index in counts.coords)
    corner = np.unique(section.obsm["spatial"], axis=0, return_inverse=True)
    assert len(corner[0]) == section.n_obs
    lattice = np.column_stack([np.unique(column, return_inverse=True)[1] for column in section.obsm["spatial"].T])
    x, y = (lattice[spot] * SIDE + rng.integers(SIDE, size=(spot.size, 2))).T
    (gene, x, y), count = np.unique(np.stack([gene, x, y]), axis=1, return_counts=True)
    names = list(section.var_names)
    return Molecules(names, names, x, y, gene, count, cell=1 + x // CELL + 1000 * (y // CELL))


@pytest.fixture
def downloads(tmp_path, monkeypatch):
    embryos = [embryo(seed) for seed in range(3)]
    for name, section in zip(DOWNLOADED, embryos, strict=True):
        section.write_h5ad(tmp_path / name)
    stages = ad.concat(embryos, index_unique="-")
    stages.obs["timepoint"] = stages.obs["timepoint"].astype("category")
    stages.write_h5ad(tmp_path / "Mouse_embryo_all_stage.h5ad")
    write_gem(tmp_path / "chip.gem.gz", molecules_of(embryos[0], np.random.default_rng(0)), cells="CellID")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_the_page_runs(downloads, monkeypatch):
    monkeypatch.setattr("spatialpdvi.options.k_range._MOST", 6)  # which number is chosen does not matter here
    for name, value in {"_COMPARED": 200, "_SPLITS": 2, "_GENE_SPLITS": 1}.items():
        monkeypatch.setattr(f"spatialpdvi.model_selection.stability.{name}", value)
    before = {name: (downloads / name).read_bytes() for name in [*DOWNLOADED, "Mouse_embryo_all_stage.h5ad"]}
    lines = re.findall(r"^\$ spatialpdvi (.*)$", PAGE, flags=re.MULTILINE)
    assert len(lines) == 15
    for line in lines:
        done = CliRunner().invoke(main, shlex.split(line))
        assert done.exit_code == 0, f"{line}\n{done.output}"
        if line.startswith(("estimate", "fit E", "fit M")):
            assert "layers['count']" in done.output, line
    assert {name: (downloads / name).read_bytes() for name in before} == before
    for name in set(re.findall(r"(?:-o|--json|--save-model) (\S+)", PAGE)):
        assert (downloads / name).exists(), name
    fitted = ad.read_h5ad("E9.5_E1S1.h5ad")
    assert list(fitted.uns["annotation_colors"]) == ["#112233", "#445566", "#778899", "#aabbcc"]
    assert not np.array_equal(fitted.X.data, fitted.layers["count"].data)
    bins, cells = ad.read_h5ad("bin50.h5ad"), ad.read_h5ad("cells.h5ad")
    assert cells.n_obs > 3 * bins.n_obs
    # a cell has the domain of the bin that it lies in
    corner = {
        tuple(at): domain for at, domain in zip(bins.obsm["spatial"] // SIDE, bins.obs["pdvi_domain"], strict=True)
    }
    around = [corner[tuple(at)] for at in cells.obsm["spatial"] // SIDE]
    assert cells.obs["pdvi_domain"].tolist() == around


def test_the_lines_of_python_run(downloads, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(compile(block, "mosta.md", "exec"), {})
    tissues = ad.read_h5ad(downloads / DOWNLOADED[0]).obs["annotation"].value_counts()
    shown = capsys.readouterr().out
    assert all(re.search(rf"^{re.escape(name)} +{n}$", shown, re.MULTILINE) for name, n in tissues.items())
