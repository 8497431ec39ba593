"""What the benchmarks of speed and scaling say: exponents, tables, and that nothing which dies is left out."""

import json
import subprocess
import sys
from pathlib import Path

import anndata
import click
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from conftest import load_from

from spatialpdvi.synthetic import simulate_file

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="benchmarks are not part of this copy")


@pytest.fixture
def load(monkeypatch):
    yield from load_from(BENCHMARKS, monkeypatch)


@pytest.fixture(scope="module")
def section(tmp_path_factory):
    path = tmp_path_factory.mktemp("benchmarks") / "section.h5ad"
    simulate_file(path, n_spots=300, n_genes=60, k=3, easy=True)
    return path


def _row(**changed):
    stages = dict.fromkeys(
        ("read", "genes", "PCA", "smooth", "start", "states", "search", "graph", "fit", "scores", "markers"), 1.0
    )
    row = {"spots": 100, "values": 5_000, "k": 4, "n_pcs": 15, "memory": None, "in_memory": True, "failure": None}
    row |= {"seconds": 10.0, "cpu_seconds": 12.0, "peak_bytes": 1e9, "epochs": 9, "ari": 0.5}
    return row | {"stages": stages | {"write": 0.01, "start-up": 2.0}} | changed


@pytest.fixture
def load_experiment(monkeypatch):
    yield from load_from(BENCHMARKS / "experiments", monkeypatch)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.7])
def test_the_exponent_of_a_power_law_is_its_power(load, power):
    scaling = load("scaling")
    sizes = [50.0, 100.0, 400.0]
    costs = [3.0 * size**power for size in sizes]
    assert scaling.exponent(sizes, costs) == pytest.approx(power)
    assert scaling.fitted(sizes, costs) == pytest.approx((3.0, power))


def test_a_fixed_cost_lowers_the_exponent_over_all_and_less_that_of_the_last_two(load):
    lines = load("scaling").table(
        [_row(spots=n, seconds=5.0 + n / 100, peak_bytes=n * 1e7) for n in (100, 200, 800)], "spots"
    )
    over_all, last_two = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines[-2:])
    assert (over_all[0], last_two[0]) == ("exponent, all", "exponent, last two")
    seconds, peak, write = 1, 16, 13
    assert float(over_all[seconds]) == 0.38
    assert float(last_two[seconds]) == round(np.log(13 / 7) / np.log(4), 2) == 0.45
    assert float(over_all[peak]) == 1.0
    assert over_all[write] == "–"  # a hundredth of a second says nothing
    assert {len(line.split("|")) for line in lines} == {len(lines[0].split("|"))}


def test_fits_that_failed_or_read_block_by_block_are_shown_and_not_fitted(load):
    rows = [_row(), _row(spots=200, seconds=20.0), _row(spots=400, failure="no result after 5 s")]
    rows.append(_row(spots=800, seconds=999.0, in_memory=False))
    block = _row(spots=200, seconds=77.0, in_memory=False, memory="1GB")
    text = "\n".join(load("scaling").table(rows, "spots", others=[block]))
    assert "| 400 | none: no result after 5 s |" in text
    assert "| 800* | 999.0 |" in text
    assert "\\* too large for the free memory" in text
    assert "| 200, `--memory 1GB` | 77.0 |" in text
    assert "| exponent, all | 1.00 |" in text


def test_the_report_has_a_table_for_every_size(load):
    rows = [_row(), _row(spots=200, seconds=20.0, peak_bytes=3e9)]
    found = {"machine": "2 cores, 8 GB", "threads": 2, "states": "off", "n_genes": 60, "by_spots": rows, "blocks": None}
    text = load("scaling").report(found | {"by_k": [_row(k=2), _row(k=8)], "by_n_pcs": []})
    assert "60 genes, of which a spot has 50 on average; K 4." in text
    assert "10000.0 s per 100,000 additional spots, 20,000,000 bytes per additional spot." in text
    assert "\n100 spots:\n\n| K |" in text
    assert "| components |" not in text


def test_the_picture_has_the_exponents(load, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("spatialpdvi.plotting.save.save_figure", lambda figure, *_, **__: drawn.append(figure))
    rows = [_row(spots=n, seconds=n / 10, peak_bytes=n**0.5 * 1e8) for n in (100, 200, 800)]
    block = _row(spots=800, in_memory=False, memory="1GB")
    load("scaling").draw({"by_spots": rows, "blocks": block}, tmp_path / "scaling.png")
    told = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in drawn[0].axes]
    assert told[0] == ["all: n$^{1.00}$", "measured; last two: n$^{1.00}$", "block by block, --memory 1GB"]
    assert told[1][0] == "all: n$^{0.50}$"


def test_sizes_that_do_not_tile_are_refused(load, tmp_path):
    line = ["--folder", str(tmp_path / "sections"), "--n-spots", "100,250", "--at", "100"]
    result = CliRunner().invoke(load("scaling").main, line)
    assert result.exit_code == 2
    assert "Expected multiples of the smallest section, 100 spots, found 250." in result.stderr


def test_a_tiled_section_is_thin_copies_that_do_not_touch(load, section, tmp_path):
    small = anndata.read_h5ad(section)
    load("tiling").tile(section, tmp_path / "large.h5ad", 3)
    large = anndata.read_h5ad(tmp_path / "large.h5ad")
    assert large.shape == (900, 60)
    assert large.obs["annotation"].tolist() == 3 * small.obs["annotation"].tolist()
    copies = [large[300 * i : 300 * (i + 1)] for i in range(3)]
    for copy in copies:
        assert 0.93 < copy.X.nnz / small.X.nnz < 0.97
        assert np.all((copy.X.toarray() == 0) | (copy.X.toarray() == small.X.toarray()))
        np.testing.assert_allclose(np.diff(copy.obsm["spatial"], axis=0), np.diff(small.obsm["spatial"], axis=0))
    assert (copies[0].X != copies[1].X).nnz
    assert copies[0].obsm["spatial"][:, 0].max() < copies[1].obsm["spatial"][:, 0].min()
    processes = load("processes")
    assert processes.apart(processes.section_size, tmp_path / "large.h5ad") == (900, 60, large.X.nnz)


def test_a_process_is_measured_by_itself(load):
    run = load("processes").run
    work = "x = bytearray(120_000_000)\nimport time; t = time.process_time()\nwhile time.process_time() < t + .3: pass"
    result = run([sys.executable, "-c", work])
    assert result.failure is None
    assert result.seconds >= 0.3
    assert 0.3 <= result.cpu_seconds < 10
    assert result.peak_bytes > 120_000_000


@pytest.mark.parametrize(
    ("code", "given", "failure"),
    [
        (
            "raise MemoryError('Unable to allocate 16 GiB | at once')",
            {},
            "exit code 1: MemoryError: Unable to allocate",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}, "killed by SIGKILL"),
        ("import time; time.sleep(60)", {"limit": 0.2}, "no result after 0 s"),
        ("x = bytearray(10**9); import time; time.sleep(60)", {"most_bytes": 2e8}, "out of memory: more than 0.2 GB"),
        ("raise SystemExit(3)", {}, "exit code 3: no error message"),
    ],
)
def test_a_process_that_dies_says_why(load, code, given, failure):
    result = load("processes").run([sys.executable, "-c", code], **given)
    assert result.failure.startswith(failure)
    assert result.seconds < 30


def test_a_program_that_is_not_there_and_an_exit_code_that_is_fine(load, tmp_path):
    run = load("processes").run
    assert run([tmp_path / "python"]).failure.startswith("does not start: ")
    assert run([sys.executable, "-c", "raise SystemExit(3)"], fine=(0, 3)).failure is None


@pytest.fixture
def peers(load, monkeypatch, tmp_path):
    """Drivers that answer, die, answer with too few labels, and not at all."""
    speed = load("speed")
    monkeypatch.setattr(speed, "PEERS", tmp_path)
    copy = "import sys, h5py\nlabels = h5py.File(sys.argv[1])['obs/annotation/codes'][()]\n"
    write = "open(sys.argv[2], 'w').writelines(f'{label}\\n' for label in labels)"
    drivers = {
        "good.py": copy + write,
        "dies.py": "import not_installed_anywhere",
        "short.py": copy + "labels = labels[:-1]\n" + write,
        "silent.py": "",
    }
    for name, code in drivers.items():
        (tmp_path / name).write_text(code)
    monkeypatch.setattr(speed, "apart", lambda task, *arguments: task(*arguments))
    monkeypatch.setattr(speed, "METHODS", tuple(speed.Method(name.removesuffix(".py"), name) for name in drivers))
    return speed


def test_every_method_has_its_row(peers, section, tmp_path):
    line = ["--peers-python", sys.executable, "--file", str(section), "3", "--no-warm-up", "--memory", "4"]
    result = CliRunner().invoke(peers.main, [*line, "--json", str(tmp_path / "speed.json")])
    assert result.exit_code == 0, result.output
    rows = {row.split("|")[1].strip(): row for row in result.stdout.splitlines() if row.startswith("|")}
    assert list(rows) == ["method", "---", "good", "dies", "short", "silent"]
    assert rows["good"].endswith("| 1.000 | 3 |")
    assert "| none: exit code 1: ModuleNotFoundError: No module named 'not_installed_anywhere' | – |" in rows["dies"]
    assert rows["short"].endswith("| none: 299 labels for 300 spots | – |")
    assert rows["silent"].endswith("| none: wrote no labels | – |")
    assert "300 x 60" in result.stdout
    assert '"failure": "wrote no labels"' in (tmp_path / "speed.json").read_text()


def test_methods_are_chosen_by_a_part_of_their_name(peers, section):
    line = ["--peers-python", sys.executable, "--file", str(section), "3", "--no-warm-up"]
    result = CliRunner().invoke(peers.main, [*line, "--method", "SIL"])
    assert [row for row in result.stdout.splitlines() if row.startswith("|")][2].startswith("| silent |")
    refused = CliRunner().invoke(peers.main, [*line, "--method", "nobody"])
    assert refused.exit_code == 2
    assert "The methods are: good; dies; short; silent." in refused.stderr


def test_sections_are_chosen_by_name_and_two_of_one_name_are_two(load):
    sections = load("sections")
    found = [sections.Section(Path(folder) / f"{name}.h5ad", 3, {}) for folder, name in ("ax", "bx", "ay")]
    assert sections.chosen(found, ()) == found
    assert sections.chosen(found, ("x",)) == found[:2]
    with pytest.raises(click.BadOptionUsage, match="among x, x, y, found z"):
        sections.chosen(found, ("x", "z"))


def test_labels_of_ours_are_scored_where_the_truth_is_known(load, section, tmp_path):
    output = tmp_path / "labels.h5ad"
    fitted = anndata.read_h5ad(section)
    fitted.obs["pdvi_domain"] = fitted.obs["annotation"].cat.codes.astype(str).astype("category")
    fitted.write_h5ad(output)
    partly = tmp_path / "partly.h5ad"
    half = anndata.read_h5ad(section)
    half.obs.loc[half.obs_names[:100], "annotation"] = np.nan
    half.write_h5ad(partly)
    with h5py.File(output, "r+") as file:
        file["obs/pdvi_domain/codes"][:100] = 0
    assert load("speed").score(partly, "annotation", output) == {"ari": 1.0, "domains": 3}
    assert load("speed").score(section, "annotation", output)["ari"] < 1.0


@pytest.mark.slow
def test_every_experiment_runs_and_writes_its_numbers_and_pictures(tmp_path):
    everything = BENCHMARKS / "experiments" / "everything.py"
    command = [sys.executable, str(everything), "--quick", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in (
        "mixture",
        "published_mixture",
        "rates",
        "first_answer",
        "quadratic",
        "random_scan",
        "gaussian_process",
        "implicit",
        "autoencoder",
    ):
        assert json.loads((tmp_path / f"{name}.json").read_text())
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    scans = json.loads((tmp_path / "random_scan.json").read_text())
    assert scans["shipped"]["over"] == scans["log_concave"]["over"] == 0
    for target in scans["targets"].values():
        for run in target["runs"].values():
            assert run["over_convex"] == 0
            assert run["gap_by_distance"] >= 0.999 * target["lambda_star"]
    rates = json.loads((tmp_path / "rates.json").read_text())
    proven = rates["strongly_convex"]["guaranteed"]
    assert set(proven) == {"p2dvi", "pdvi"}
    assert all(found["one_draw"] <= found["rho"] for found in proven.values())
    theorem = rates["strongly_convex"]["theorem"]
    assert theorem["r"] * theorem["one_draw"] <= 1.0
    assert theorem["eta"] == pytest.approx(1 / (200 * theorem["L"]), rel=1e-4)  # the smallest of the three bounds
    found = json.loads((tmp_path / "gaussian_process.json").read_text())["data"]["digits"]["methods"]
    assert len(found) == 6
    assert found["pg-svi-natural"]["at_the_end"]["excess"] < 0.1 * found["sgd"]["at_the_end"]["excess"]
    for method in found.values():
        assert all(
            left is None or left > -1e-6 for run in method["excess"] for left in run
        )  # none is below the optimum
    assert (tmp_path / "densities.png").stat().st_size > 10_000
    assert (tmp_path / "implicit_regression.png").stat().st_size > 10_000
    implicit = json.loads((tmp_path / "implicit.json").read_text())
    assert set(implicit["toys"]) == {"two modes", "star", "banana"}
    for toy in implicit["toys"].values():
        assert all(0 < kl < 20 for method in toy["methods"].values() for kl in method["kl"][0])
    assert "Waveform" in implicit["regressions"]  # the others need R
    autoencoders = json.loads((tmp_path / "autoencoder.json").read_text())
    assert autoencoders["images"] == [1200, 197, 400]
    assert set(autoencoders["methods"]) == {"CI-VI", "SIVI", "UIVI", "nested", "Gaussian"}
    for method in autoencoders["methods"].values():
        assert method["pilot"][method["step"]] == min(method["pilot"].values())
        (found,) = method["final"]
        assert 15 < -found["log_likelihood"] <= found["neg_elbo"] < 64
    for folder in ("tissue", "published"):
        assert {path.name for path in (tmp_path / folder).iterdir()} == {
            "simulated.md",
            "simulated_convergence.png",
            "simulated_maps.png",
        }


@pytest.mark.cli
def test_a_quick_run_does_not_replace_the_numbers_of_the_documentation():
    everything = BENCHMARKS / "experiments" / "everything.py"
    done = subprocess.run([sys.executable, str(everything), "--quick"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Expected --output with --quick" in done.stderr


@pytest.mark.slow
def test_every_stage_has_its_seconds_its_peak_and_its_exponents(load, section, tmp_path):
    load("tiling").tile(section, tmp_path / "large.h5ad", 3)
    line = [
        str(section),
        str(tmp_path / "large.h5ad"),
        "--k",
        "4",
        "--set",
        "n_init=1",
        "--set",
        "states=off",
        "--json",
        str(tmp_path / "a.json"),
    ]
    done = CliRunner().invoke(load("stages").main, line)
    assert done.exit_code == 0, done.output
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in done.output.splitlines() if row.startswith("|")]
    assert cells[0] == ["stage", "300 x 60", "900 x 60", "exponents"]
    found = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert {"read", "genes", "PCA", "graph", "fit", "write"} <= set(found[0]["seconds"]) == set(found[0]["peaks"])
    for column, row in enumerate(found, start=1):
        peak = max(row["peaks"].values()) / 1e9
        assert 0.1 < peak < 2.0
        assert cells[-5][column] == f"{row['all']:.1f} / {peak:.2f}"
        assert len(row["digest"]) == 12


@pytest.mark.slow
def test_small_bins_take_the_domains_of_large_ones_and_many_cells_take_little(load):
    transfer = load("transfer")
    found = transfer.agreement(150, 200, 3, seed=0)
    assert found["inside"] == 1.0
    assert abs(found["spots"] - found["smooth"]) < 0.01
    assert found["spots"] > found["predict"] + 0.1
    lines = transfer.apart(transfer.table, 2_500, 50_000, 6)  # a process begins with the peak of the one that starts it
    costs = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    assert [row[:2] for row in costs] == [["spots", "50,000"], ["smooth", "50,000"]]
    for _, _, _, cpu_seconds, peak in costs:
        assert float(cpu_seconds) < 30
        assert float(peak.removesuffix(" GB")) < 0.6


@pytest.mark.slow
def test_sections_together_are_scored_beside_each_alone(load, tmp_path):
    pytest.importorskip("harmonypy")
    paths = [tmp_path / "first.h5ad", tmp_path / "second.h5ad"]
    for seed, path in enumerate(paths):
        simulate_file(path, n_spots=300, n_genes=60, k=3, signal=2.0, easy=True, seed=seed)
    command = [*map(str, paths), "--k", "3", "--seeds", "1"]
    done = CliRunner().invoke(load("together").main, command)
    assert done.exit_code == 0, done.output
    *_, of_seed, over_all, mean = ([cell.strip() for cell in row.split("|")[1:-1]] for row in done.output.splitlines())
    found = [[float(ari) for ari in cell.split(", ")] for cell in of_seed[1:]]
    assert [len(aris) for aris in found] == [2] * 4
    assert min(found[0]) > 0.7
    assert over_all[2:] == mean[2:]
    alone = CliRunner().invoke(load("together").main, command[1:])
    assert alone.exit_code == 2
    assert "at least two FILES" in alone.output


@pytest.mark.slow
def test_whole_sections_and_their_parts_are_scored(load, real_data, monkeypatch):
    monkeypatch.setenv("SPATIALPDVI_DATA", str(real_data))
    accuracy = load("accuracy")
    if not (real_data / "starmap_mpfc_BZ5.h5ad").exists():
        pytest.skip("the section is not here")
    found = {}
    for how in ([], ["--parts"]):
        done = CliRunner().invoke(accuracy.main, ["--only", "starmap_mpfc_BZ5", "--seeds", "1", *how])
        assert done.exit_code == 0, done.output
        rows = [line for line in done.output.splitlines() if line.startswith("| starmap")]
        found |= {cells[0]: cells for cells in ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows)}
    names = ["", ".left", ".right", ".low", ".high", ".spots", ".molecules"]
    assert list(found) == [f"starmap_mpfc_BZ5{name}" for name in names]
    columns = dict(zip(accuracy.HEADER, zip(*found.values(), strict=True), strict=True))
    assert columns["K"] == ("4", "3", "2", "4", "4", "4", "4")
    assert all(float(ari) > 0.6 for ari in columns["ARI"])


def test_files_of_ones_own_have_their_labels_and_are_fitted_by_components_without_counts(load, tmp_path):
    path = tmp_path / "own.h5ad"
    simulate_file(path, n_spots=300, n_genes=60, k=3, easy=True)
    with_counts = anndata.read_h5ad(path)
    rare = with_counts.obs["annotation"].astype(str).to_numpy()
    rare[:2] = "rare"  # fewer than 1 % of the spots
    with_counts.obs["annotation"] = pd.Categorical(rare)
    with_counts.write_h5ad(path)
    components = with_counts.copy()
    components.X = components.X.toarray() + 0.5
    components.write_h5ad(tmp_path / "components.h5ad")
    own, other = load("sections").labelled([path, tmp_path / "components.h5ad"])
    assert (own.k, own.options) == (3, {})
    assert (other.k, other.options) == (3, {"rep": "X_pca", "n_pcs": 15})


def test_a_share_of_the_molecules_is_kept_and_spots_that_lose_all_are_left_out(load, tmp_path):
    (tmp_path / "thin").mkdir()
    simulate_file(tmp_path / "whole.h5ad", n_spots=300, n_genes=60, k=3, easy=True)
    whole = anndata.read_h5ad(tmp_path / "whole.h5ad")
    counts = whole.X.toarray()
    counts[:5, 1:] = 0  # spots of a molecule or none
    whole.X = sp.csr_matrix(counts)
    whole.write_h5ad(tmp_path / "whole.h5ad")
    sections = load("sections")
    (of_few,) = sections.thinned(sections.Section(tmp_path / "whole.h5ad", 3, {}), 0.1, tmp_path / "thin")
    few = anndata.read_h5ad(of_few.path)
    assert of_few.k == 3
    assert 295 <= few.n_obs < 300
    assert few.X.sum() == pytest.approx(0.1 * whole.X.sum(), rel=0.05)
    assert (few.X.sum(axis=1) > 0).all()
    assert ((whole[few.obs_names].X - few.X).toarray() >= 0).all()
    assert not list(sections.thinned(sections.Section(of_few.path, 3, sections.PCS), 0.1, tmp_path))


def test_a_search_is_summed_up_by_its_lowest_f_and_by_ranks(load):
    search = load("search")
    neg_elbo, ari = np.array([-40.0, -80.0, -60.0, -100.0]), np.array([0.2, 0.6, 0.4, 0.5])
    others = {"annotation": -90.0, "annotation_ari": 0.9, "chosen_ari": 0.6}
    row = search.Searched(neg_elbo, ari, np.array([0, 0, 1, 2]), **others).row
    assert row == pytest.approx((4, -0.8, 10.0, 0.1, 0.9, 0.5, 2, 0.6))
    same = search.Searched(neg_elbo, np.full(4, 0.7), np.zeros(4), **others).row
    assert np.isnan(same[1])


def test_a_solver_that_is_lowest_in_every_seed_has_nothing_left_and_has_not_failed(load_experiment):
    row = {"gap": 0.0, "n_converged": 1, "n_near_best": 1, "ari_mean": 0.5}
    none = {"gap": None, "n_converged": 0, "n_near_best": 0, "ari_mean": None}
    left = [[0.5, 0.1, 0.0, 0.0], [0.6, 0.2, 0.0, 0.0], [0.7, 0.3, 0.1, 0.0]]
    rows = [row | {"left": values} for values in left]
    solver_row = load_experiment("tissue")._solver_row
    assert solver_row("p2dvi", rows, 3) == ["p2dvi", 3, "0.000", "0.00", 3, "60.0", "20.0", "0.0", "0.0", 3, "0.500"]
    failed = solver_row("sgd", [*rows, none | {"left": [None] * 4}], 0)
    assert failed[1:5] == [3, "failed", "failed", 3]
    assert failed[5:] == ["65.0", "25.0", "5.0", "0.0", 0, "failed"]


def test_changed_options_are_read_as_json_or_as_texts(load):
    changes = load("processes").changes
    given = ["smooth=18", "anisotropy=0.5", "detrend=false", "memory=4GB", "states=off"]
    assert changes(given) == {"smooth": 18, "anisotropy": 0.5, "detrend": False, "memory": "4GB", "states": "off"}
    with pytest.raises(click.BadOptionUsage, match=r"^Expected NAME=VALUE, found 'smooth'\.$"):
        changes(["smooth"])
    with pytest.raises(click.BadOptionUsage, match=r"of another option than k and seed, found 'seed=3'\.$"):
        changes(["seed=3"], fixed=("k", "seed"))


def test_the_size_of_a_section_is_that_of_its_matrix(load, section, tmp_path):
    size = load("processes").section_size
    assert size(section) == (300, 60, anndata.read_h5ad(section).X.nnz)
    anndata.AnnData(np.ones((5, 4), dtype=np.float32)).write_h5ad(tmp_path / "dense.h5ad")
    assert size(tmp_path / "dense.h5ad") == (5, 4, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("usual_defaults")
def test_the_fit_from_the_annotation_is_compared_with_the_lowest_f(load, tmp_path):
    search, path, figure = load("search"), tmp_path / "easy.h5ad", tmp_path / "f.png"
    simulate_file(path, n_spots=1_000, n_genes=200, k=4, signal=2.0, easy=True)
    done = CliRunner().invoke(search.main, [str(path), "--seeds", "1", "--searches", "2", "--figure", str(figure)])
    assert done.exit_code == 0, done.output
    row = [cell.strip() for cell in done.output.splitlines()[-1].split("|")[1:-1]]
    assert row[0] == "easy"
    assert int(row[1]) >= 22  # sixteen starts, of which six are fitted to the end
    assert abs(float(row[3])) <= 1.0  # nats: all domains are found
    assert float(row[5]) == pytest.approx(1.0, abs=0.01)
    assert float(row[6]) == pytest.approx(1.0, abs=0.01)
    assert float(row[8]) == pytest.approx(1.0, abs=0.01)
    assert figure.stat().st_size > 5_000
    simulate_file(path, n_spots=300, n_genes=60, k=4)  # too few for states
    none = CliRunner().invoke(search.main, [str(path), "--seeds", "1"])
    assert none.exit_code == 1
    assert none.output.endswith("found none.\n")


def test_chosen_numbers_are_near_within_one_or_15_percent(load):
    nearness = load("domain_counts").nearness
    said = nearness(np.array([4, 4, 20, 20]), np.array([5, 6, 23, 24]))
    away = np.mean(np.log([5 / 4, 6 / 4, 23 / 20, 24 / 20]))
    assert said == f"Within one or 15 %: 2 of 4. Mean distance in the logarithm: {away:.2f}."


@pytest.mark.slow
def test_the_chosen_number_is_compared_with_the_annotated_one(load, tmp_path):
    counts = load("domain_counts")
    simulate_file(tmp_path / "own.h5ad", n_spots=600, n_genes=150, k=4, easy=True, signal=2.0)
    done = CliRunner().invoke(counts.main, [str(tmp_path / "own.h5ad"), "--k", "3:5", "--every", "--curves"])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    header, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| "))
    found = dict(zip(header, row, strict=True))
    assert (found["spots"], found["annotated"], found["chosen"], found["chosen by"]) == ("600", "4", "4", "found again")
    assert found["ARI at annotated"] == found["ARI at chosen"]
    assert found["best ARI of the range, at"] == f"{found['ARI at chosen']}, 4"
    assert any(line.startswith("    found_again: [") for line in lines)
    assert lines[-1].startswith("Within one or 15 %: 1 of 1.")


def _mean_of_simulated(accuracy, n_spots, *changed):
    """Mean ARI of one fit of each simulated section."""
    line = ["--simulated", str(n_spots), "--seeds", "1", *(part for option in changed for part in ("--set", option))]
    done = CliRunner().invoke(accuracy.main, line)
    assert done.exit_code == 0, done.output
    assert done.output.count("| simulated_") == 6
    return float(done.output.split()[-1])


@pytest.mark.slow
def test_simulated_sections_are_scored(load):
    assert _mean_of_simulated(load("accuracy"), 800, "states=off") > 0.15


@pytest.mark.slow
@pytest.mark.longest
def test_edges_along_layers_find_known_domains_better(load):
    accuracy = load("accuracy")
    assert _mean_of_simulated(accuracy, 3500) > _mean_of_simulated(accuracy, 3500, "anisotropy=0")


@pytest.mark.slow
def test_levels_are_compared_with_direct_fits(load, real_data):
    levels = load("levels")
    if not (real_data / "st_mob_rep12.h5ad").exists():
        pytest.skip("the section is not here")
    done = CliRunner().invoke(levels.main, ["--only", "st_mob_rep12"])
    assert done.exit_code == 0, done.output
    header, _, row, mean = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.output.splitlines()]
    assert len(header) == len(row) == len(mean) == 3 + len(levels.MORE)
    assert row[:2] == ["st_mob_rep12", "4"]
    for cell in row[3:]:
        level, difference = cell.rstrip(")").split(" (")
        assert float(level) - float(row[2]) == pytest.approx(float(difference), abs=0.0011)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_start_up_is_divided_into_stages_and_imports(load):
    line = ["--start-up", "--n-spots", "200", "--n-genes", "60", "--k", "3", "--repeats", "1"]
    done = CliRunner().invoke(load("embryo").main, line, catch_exceptions=False)
    cold_and_warm, stages, libraries = done.output.split("\n\n")[1:]
    assert [row.split(" | ")[0] for row in cold_and_warm.splitlines()[2:]] == ["| cold", "| warm"]
    names, _, seconds = (row.strip("|").split("|") for row in stages.splitlines())
    assert [name.strip() for name in names][:3] == ["imports", "read", "genes"]
    assert all(0 <= float(value) < 100 for value in seconds)
    by_library = dict(row.strip("| ").split(" | ") for row in libraries.splitlines()[2:])
    assert {"numba", "pandas", "spatialpdvi"} <= by_library.keys()
    own = [float(value) for name, value in by_library.items() if name != "all"]
    assert float(by_library["all"]) == pytest.approx(sum(own), abs=0.02)


@pytest.mark.slow
def test_coverage_is_counted_for_every_method(load, tmp_path):
    intervals = load("intervals")
    path = tmp_path / "coverage.json"
    line = ["coverage", "--replicates", "2", "--n-spots", "600", "--tested", "12", "--json", str(path)]
    done = CliRunner().invoke(intervals.main, line)
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())["settings"]
    assert set(found) == set(intervals.SETTINGS)
    for methods in found.values():
        assert set(methods) == set(intervals.USUAL)
        for row in methods.values():
            assert row["mean, expected, 0.5"] < row["mean, expected, 0.9"] <= row["mean, expected, 0.95"]
        assert methods["blocks"]["contrast, expected, 0.9"] > 0.75
        assert methods["blocks"]["share, main, 0.9"] >= methods["blocks"]["share, expected, 0.9"] - 0.05
        widths = [methods[method]["contrast, expected, 0.9, width"] for method in ("blocks", "mean-field")]
        assert widths[0] > widths[1]


@pytest.mark.slow
def test_contrasts_of_two_sections_are_compared(load, tmp_path):
    intervals, paths = load("intervals"), []
    for seed in (1, 2):
        paths.append(tmp_path / f"{seed}.h5ad")
        simulate_file(paths[-1], n_spots=600, n_genes=80, k=4, seed=seed, easy=True)
    line = ["sections", *map(str, paths), "--k", "4", "--tested", "10", "--method", "blocks", "--method", "mean-field"]
    done = CliRunner().invoke(intervals.main, line)
    assert done.exit_code == 0, done.output
    rows = [
        [cell.strip() for cell in text.split("|")[1:-1]] for text in done.output.splitlines() if text.startswith("| ")
    ]
    assert [row[:2] for row in rows[1:]] == [
        [what, method] for what in ("annotated", "fitted") for method in ("blocks", "mean-field")
    ]
    assert all(0.0 <= float(cell) <= 1.0 for row in rows[1:] for cell in row[2:5])


@pytest.mark.slow
def test_visits_that_go_on_and_single_sweeps_are_compared_from_one_start(load):
    result = CliRunner().invoke(load("solvers").main, ["--visits", "2200", "--seeds", "1"])
    assert result.exit_code == 0, result.output
    go_on, single = (line.split(" | ") for line in result.output.splitlines()[-2:])
    assert (go_on[1], single[1]) == ("go on", "single sweeps")
    assert float(go_on[2]) == pytest.approx(float(single[2]), rel=1e-3)
    assert int(go_on[3]) < int(single[3])  # epochs: the second is another run, not the first one twice


def _gains(load, **given):
    """What the mean ARI gains at each rate of the decay where trends are removed."""
    line = [part for name, value in given.items() for part in (f"--{name}", str(value))]
    result = CliRunner().invoke(load("trends").main, [*line, "--seeds", "1"])
    assert result.exit_code == 0, result.output
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in result.output.splitlines()[-4:]]
    assert [float(row[0]) for row in rows] == [0.0, 0.5, 1.0, 2.0]
    left, removed = (np.array([float(row[i].split()[0]) for row in rows]) for i in (1, 2))
    assert left[0] == removed[0]  # a section without a decay stays as it is
    assert rows[-1][3] != "0.0% to 0.0%"
    return removed - left


@pytest.mark.slow
def test_a_section_without_a_decay_stays_as_it_is(load):
    assert _gains(load, spots=400, genes=300, draws=1)[0] == 0.0


@pytest.mark.slow
@pytest.mark.longest
def test_a_decay_that_all_states_share_is_removed(load):
    assert _gains(load, spots=2000, genes=1500, draws=2)[2:].mean() > 0.0
