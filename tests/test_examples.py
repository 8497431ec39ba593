"""The examples in the documents run: those of the docstrings, and the Python of the pages."""

import doctest
import inspect
import re
import shutil
from pathlib import Path

import anndata
import numpy as np
import pytest
from binning_samples import draw, write_gem

import spatialpdvi as spv
from spatialpdvi import api

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[1] / "docs"
# raised and warned, not called; rooms, of which tests/distributed runs what needs a cluster
NOT_CALLED = {"InputError", "InputWarning", "distributed", "pp", "tl"}
PUBLIC = {name: getattr(spv, name) for name in spv.__all__ if name not in NOT_CALLED}
PUBLIC |= {name: getattr(api, name) for name in api.__all__}
PUBLIC |= {f"{room.__name__}.{name}": getattr(room, name) for room in (spv.pp, spv.tl) for name in room.__all__}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """One small fit, one of several numbers of domains, another section, and the folder of their files."""
    section = spv.simulate(n_spots=400, n_genes=60, k=3, easy=True)
    other = section.copy()
    result = spv.fit(section, k=3, n_top_genes=60, n_init=1, save_graph=True)
    scanned = spv.simulate(n_spots=250, n_genes=30, k=2, easy=True)
    spv.fit(scanned, k="2:3", n_top_genes=30, n_init=1, states=5, search=1)
    folder = tmp_path_factory.mktemp("examples") / "folder"
    (folder / "fitted").mkdir(parents=True)
    section.write_h5ad(folder / "fitted.h5ad")
    for name in ("section", "other"):
        other.write_h5ad(folder / f"{name}.h5ad")
    spv.save_model(result, folder / "model.npz")
    write_gem(folder / "sample.gem", draw())
    return section, other, scanned, folder


@pytest.fixture
def names(fitted, tmp_path, monkeypatch):
    """What examples may take as given: sections in memory and the files of the folder that they run in."""
    from matplotlib import pyplot as plt

    section, other, scanned, folder = fitted
    pictured = section.copy()
    width, height = np.ceil(pictured.obsm["spatial"].max(axis=0)).astype(int) + 1
    pictured.uns["spatial"] = {
        "demo": {
            "images": {"lowres": np.full((height, width, 3), 200, dtype=np.uint8)},
            "scalefactors": {"tissue_lowres_scalef": 1.0, "spot_diameter_fullres": 1.0},
        }
    }
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "folder"))
    yield {
        "spv": spv,
        "anndata": anndata,
        "np": np,
        "Path": Path,
        "adata": section.copy(),
        "other": other.copy(),
        "scanned": scanned.copy(),
        "pictured": pictured,
    }
    plt.close("all")


@pytest.mark.parametrize("name", PUBLIC)
def test_the_examples_of_a_public_name_run(name, names):
    tests = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], f"spatialpdvi.{name}", globs=names)
    assert sum(len(test.examples) for test in tests) > 0
    said = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in tests:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def test_every_kind_of_picture_has_an_example():
    drawn = re.findall(r"spv\.pl\.(\w+)\(", inspect.getdoc(spv.pl) or "")
    assert set(drawn) == set(spv.pl.__all__)


# argument lists of `fit` in the documents, one by one
CALLS = [
    (page.name, call)
    for page in (DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")))
    for call in re.findall(r"(?:spv|spatialpdvi)\.fit\(adata, ([^()]*)\)", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "call"), CALLS)
def test_calls_of_fit_have_options_that_exist(page, call):
    given = eval(f"dict({call})", {"dict": dict})
    given = {name: value for name, value in given.items() if value is not ...}
    assert isinstance(given.pop("intervals", False), bool)  # of `fit` itself, not one of its options
    options = spv.FitOptions(**({"k": 2} | given))
    assert {name: getattr(options, name) for name in given} == given


def test_the_edits_of_the_page_run_one_after_the_other():
    # stripes on a lattice, of which two domains have two
    widths = {"0": 14, "1": 8, "2": 11, "3": 10, "4": 9, "5": 8, "6": 3}
    stripes = np.repeat([*widths, "1", "6"], [*widths.values(), 4, 3])
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(stripes.size), np.arange(20), indexing="ij"))
    domain = stripes[x]
    rng = np.random.default_rng(0)
    profile = rng.gamma(1.0, size=(7, 40))
    section = anndata.AnnData(rng.poisson(10 * profile[domain.astype(int)]).astype(np.float32))
    section.obsm["spatial"] = np.column_stack([x, y]).astype(float)
    section.obs["annotation"] = [f"tissue {name}" for name in domain]
    section.obs["start"] = domain
    spv.fit(section, k=7, init="start", n_top_genes=40, states="off", smooth=0)
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "editing.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(compile(block, "editing.md", "exec"), {"adata": section})
    assert section.uns["pdvi"]["edits"]["action"].tolist() == ["merge", "split", "pieces", "rename"]
    assert {f"pdvi_domain_L{n}" for n in (3, 4, 5)} <= set(section.obs)


def test_the_documents_call_fit():
    assert len(CALLS) > 8


def test_the_solver_of_the_page_settles_where_the_others_do(toy):
    from spatialpdvi.engines import LocalEngine
    from spatialpdvi.fitting.loop import StopRule, optimise
    from spatialpdvi.solvers import SolverSettings, make_solver

    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "solvers.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    space = {"__name__": "example"}
    exec(compile(block, "solvers.md", "exec"), space)
    solver = space["SquareRootSVI"](SolverSettings())
    rule = StopRule(1e-8, 1e-13, 400)
    ends = [
        optimise(
            LocalEngine(toy.problem), one, (toy.phi.copy(), toy.lam), rule=rule, rng=np.random.default_rng(0)
        ).trace[-1]
        for one in (solver, make_solver("svi"), make_solver("cavi"))
    ]
    ours, constant, best = (end.evaluation.neg_elbo for end in ends)
    assert best <= ours < constant  # a step that falls ends nearer than one that does not
