"""`spatialpdvi transfer` end to end: from bins of 100 to bins of 20 and to cells, and every command on the result."""

import re
import shlex
from html import unescape

import anndata as ad
import numpy as np
import pytest
from binning_samples import Molecules, write_gem
from conftest import interrupt_at, run
from zarr_samples import write_zarr

pytestmark = pytest.mark.cli

LARGE, SMALL, CELL = 100, 20, 25  # DNBs


def molecules():
    """Three stripes of tissue with genes of their own, at the DNBs of a square; a cell for most of them."""
    rng, side, n = np.random.default_rng(0), 2000, 60_000
    x, y = rng.integers(side, size=(2, n))
    stripe = (x + 150 * np.sin(y / 250)) // 700
    gene = np.where(
        rng.random(n) < 0.5, rng.integers(30, size=n), 10 * np.clip(stripe, 0, 2) + rng.integers(10, size=n)
    )
    (gene, x, y), count = np.unique(np.stack([gene.astype(int), x, y]), axis=1, return_counts=True)
    names = [f"gene{i}" for i in range(30)]
    inside = (x % CELL < CELL - 5) & (y % CELL < CELL - 5)
    cell = np.where(inside, 1 + x // CELL + 1000 * (y // CELL), 0)
    return Molecules(names, names, x, y, gene, count, cell)


@pytest.fixture(scope="module")
def binned(tmp_path_factory):
    """Bins of 100 with a fit, bins of 20, and cells, of one GEM."""
    folder = tmp_path_factory.mktemp("binned")
    write_gem(folder / "chip.gem", molecules(), cells="CellID")
    for size in (LARGE, SMALL):
        run("bin", folder / "chip.gem", "--bin", size, "-o", folder / f"bin{size}.h5ad")
    run("bin", folder / "chip.gem", "--cell-bin", "-o", folder / "cells.h5ad")
    run("fit", folder / "bin100.h5ad", "--k", 3, "--n-top-genes", 30, "--n-init", 2, "--states", "off")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def here(binned, tmp_path, monkeypatch):
    for name, content in binned.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_small_bin_has_the_domain_of_the_large_one_around_it(here):
    shown = run("transfer", "bin100.h5ad", "--to", "bin20.h5ad").output
    large, small = ad.read_h5ad("bin100.h5ad"), ad.read_h5ad("bin20.h5ad")
    domain = {tuple(at): own for at, own in zip(large.obsm["spatial"] // LARGE, large.obs["pdvi_domain"], strict=True)}
    around = [domain[tuple(at)] for at in small.obsm["spatial"] // LARGE]
    assert small.n_obs > 20 * large.n_obs
    assert small.obs["pdvi_domain"].tolist() == around
    assert f"{small.n_obs:,} of {small.n_obs:,} spots have a domain: those within 100 of a fitted spot" in shown
    posterior = small.obsm["pdvi_posterior"]
    np.testing.assert_array_equal(posterior.argmax(axis=1), small.obs["pdvi_domain"].cat.codes)
    assert len(np.unique(posterior.round(5), axis=0)) > len(np.unique(large.obsm["pdvi_posterior"].round(5), axis=0))
    assert small.uns["pdvi"]["transfer"]["source"] == "bin100.h5ad"
    before = (here / "bin20.h5ad").read_bytes()
    run("transfer", "bin100.h5ad", "--to", "bin20.h5ad", "-q")  # over the first result
    again = ad.read_h5ad("bin20.h5ad")
    np.testing.assert_array_equal(again.obsm["pdvi_posterior"], posterior)
    assert abs(len(before) - (here / "bin20.h5ad").stat().st_size) < 1e5


@pytest.mark.parametrize("kind", ["h5ad", pytest.param("zarr", marks=pytest.mark.longest)])
def test_cells_and_every_command_on_them(here, kind):
    cells = ad.read_h5ad("cells.h5ad")
    cells.obs["stage"] = np.where(cells.obsm["spatial"][:, 0] < 1000, "a", "b")
    if kind == "zarr":
        write_zarr(here / "cells.zarr", cells, 3)
    else:
        cells.write_h5ad("cells.h5ad")
    out = f"out.{kind}"
    counts = cells.X.toarray()
    run("transfer", "bin100.h5ad", "--to", f"cells.{kind}", "-o", out, "--borders", "smooth", "--label-key", "stage")
    read = ad.read_zarr if kind == "zarr" else ad.read_h5ad
    assert "pdvi_domain" not in read(f"cells.{kind}").obs
    found = read(out)
    np.testing.assert_array_equal(found.X.toarray(), counts)
    assert found.obs["pdvi_domain"].notna().all()
    assert "pdvi_domain" in run("evaluate", out, "--label-key", "stage").output
    run("plot", out, "-o", "overview.png", "--dpi", 40, "--label-key", "stage")
    run("plot", out, "-o", "more.png", "--dpi", 40, "--kind", "domains,confidence,entropy,trace")
    run("markers", out, "--store")
    run("label", "rename", out, "--from", "stage", "-o", f"named.{kind}")
    run("label", "merge", out, "-d", "0", "-d", "1", "-o", f"merged.{kind}")
    assert read(f"merged.{kind}").obs["pdvi_domain"].cat.categories.tolist() == ["0+1", "2"]
    run("report", out, "-o", "cells.html", "--label-key", "stage")
    page = (here / "cells.html").read_text(encoding="utf-8")
    assert "carried over by place from the fit of bin100.h5ad" in page
    assert "epochs of the fit of bin100.h5ad, from which the domains were carried over" in page
    assert f"spatialpdvi transfer bin100.h5ad --to {out} --borders=smooth" in page
    run("transfer", "bin100.h5ad", "--to", out, "--new-key", "again", "-q")
    assert {"pdvi_domain", "again_domain"} <= set(read(out).obs)


def test_the_command_of_the_report_repeats_the_transfer(here):
    run("transfer", "bin100.h5ad", "--to", "cells.h5ad", "--max-distance", 40, "--scale", 0.9, "-q")
    run("report", "cells.h5ad", "-o", "cells.html", "--no-markers")
    (line,) = re.findall(r"<code>spatialpdvi (transfer .*?)</code>", (here / "cells.html").read_text(encoding="utf-8"))
    run(*shlex.split(unescape(line)))
    first, again = ad.read_h5ad("cells.h5ad"), ad.read_h5ad("cells_again.h5ad")
    np.testing.assert_array_equal(first.obsm["pdvi_posterior"], again.obsm["pdvi_posterior"])


@pytest.mark.parametrize("edit", [["split", "-d", "0", "--into", 2], ["pieces", "-d", "0"], ["levels", "--levels", 2]])
def test_edits_that_need_the_features_of_the_fit_are_refused(here, edit):
    run("transfer", "bin100.h5ad", "--to", "cells.h5ad", "-q")
    before = (here / "cells.h5ad").read_bytes()
    shown = run("label", edit[0], "cells.h5ad", *edit[1:], code=2).output
    assert "found domains that were carried over from bin100.h5ad, whose spots have the features. Edit the" in shown
    assert (here / "cells.h5ad").read_bytes() == before


@pytest.mark.parametrize("kind", ["states", "agreement", "flow", "edges"])
def test_pictures_of_what_stays_with_the_fit_are_refused(here, kind):
    run("transfer", "bin100.h5ad", "--to", "cells.h5ad", "-q")
    shown = run("plot", "cells.h5ad", "--kind", kind, "-o", "no.png", code=2).output
    assert "The domains were carried over by place: this stays with the spots of the fit from which they are." in shown
    assert not (here / "no.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bin100.h5ad", "--to", "bin100.h5ad"], "Expected `--to` to be another file than 'bin100.h5ad', found the"),
        (["bin100.h5ad", "--to", "cells.h5ad", "-o", "bin100.h5ad"], "`--output` to be another file than"),
        (["bin100.h5ad", "--to", "none.h5ad"], "Expected 'none.h5ad' to be an h5ad file, found no such file."),
        (["cells.h5ad", "--to", "bin20.h5ad"], "Run `spatialpdvi fit` first, or name its --key-added."),
        (["bin100.h5ad", "--to", "cells.h5ad", "--scale", "1e-3"], "by --scale, which multiplies the coordinates"),
        (["bin100.h5ad", "--to", "cells.h5ad", "--scale", "0"], "Expected `--scale` to be a number above 0, found 0."),
        (["bin100.h5ad", "--to", "cells.h5ad", "--sample-key", "x"], "Expected a fit of several sections with --sampl"),
        (
            ["bin100.h5ad", "--to", "cells.h5ad", "--spatial-key", "x"],
            "Name yours with --spatial-key. They may be those of --spatial-key spatial.",
        ),
        (["bin100.h5ad", "--to", "cells.h5ad", "--new-key", "a/b"], "Expected `--new-key` to be made of letters"),
        (["bin100.h5ad", "--to", "cells.h5ad", "-o", "nowhere/x.h5ad"], "Create it, or choose another --output."),
        (["bin100.h5ad", "--to", "cells.h5ad", "--table", "t"], "Leave out --table."),
    ],
)
def test_errors_leave_all_files_alone(here, arguments, said):
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    assert said in run("transfer", *arguments, code=2).output
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


def test_a_warning_names_the_flag(here):
    cells = ad.read_h5ad("cells.h5ad")
    cells.obsm["spatial"] /= 2.0
    cells.write_h5ad("cells.h5ad")
    shown = run("transfer", "bin100.h5ad", "--to", "cells.h5ad").output
    (scale,) = re.findall(r"If they are, try --scale ([\d.]+), estimated from the extents", shown)
    assert float(scale) == pytest.approx(2, rel=0.05)
    assert "try --scale" not in run("transfer", "bin100.h5ad", "--to", "cells.h5ad", "--scale", 2).output


def test_domains_are_described_in_the_cells(here):
    pytest.importorskip("squidpy")
    run("transfer", "bin100.h5ad", "--to", "cells.h5ad", "-q")
    assert f"cells: {ad.read_h5ad('cells.h5ad').n_obs:,} spots" in run("describe", "cells.h5ad").output


@pytest.mark.parametrize("said", ["spots to give a domain", "spots have a domain"])
def test_ctrl_c_ends_it_and_leaves_the_file(here, said):
    rng = np.random.default_rng(0)
    cells = ad.AnnData(shape=(200_000, 1), obsm={"spatial": rng.uniform(0, 2000, size=(200_000, 2))})
    cells.write_h5ad("many.h5ad")
    before = (here / "many.h5ad").read_bytes()
    code, _, stderr = interrupt_at(said, ["transfer", "bin100.h5ad", "--to", "many.h5ad"])
    assert code == 130
    assert "Interrupted. Nothing was written." in stderr
    assert (here / "many.h5ad").read_bytes() == before


def test_the_keys_that_were_written_are_named(here):
    for more, prefix in (([], "pdvi"), (["--new-key", "again"], "again")):
        shown = run("transfer", "bin100.h5ad", "--to", "bin20.h5ad", *more).output
        assert f"written: bin20.h5ad (obs['{prefix}_domain'], obsm['{prefix}_posterior'], uns['{prefix}'])" in shown
