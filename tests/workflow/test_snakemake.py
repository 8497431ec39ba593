"""The workflow by the real snakemake: all is made, nothing twice, what changed alone again, errors in plain words."""

import csv
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import NamedTuple

import anndata
import numpy as np
import pytest
from binning_samples import Molecules, write_gef
from workflow.conftest import ROOT, WORKFLOWS, Project

pytestmark = [
    pytest.mark.cli,
    pytest.mark.skipif(not WORKFLOWS.exists(), reason="the workflow is not part of this copy"),
]


def table(path):
    return list(csv.DictReader(Path(path).read_text().splitlines(), delimiter="\t"))


@pytest.fixture(scope="module")
def clone(snakemake, tmp_path_factory):
    """The workflow as it is in a clone, run on the data that come with it."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("workflows", "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".snakemake", "results", "logs"))
    said = snakemake(folder / "workflows", *SETTINGS, snakefile="Snakefile")
    (folder / "said").write_text(said)
    return folder / "workflows"


SETTINGS = ["--config", "seeds=[0, 1]"]


def test_a_clone_makes_everything_on_the_data_that_come_with_it(clone):
    stem = "results/embryo/embryo_k8_seed"
    for seed in (0, 1):
        adata = anndata.read_h5ad(clone / f"{stem}{seed}.h5ad")
        assert adata.obs["pdvi_domain"].nunique() == 8
        scores = json.loads((clone / f"{stem}{seed}.scores.json").read_text())["scores"]
        fitted = adata.uns["pdvi"]["scores"]
        assert scores["ari"] == fitted["ari"] > fitted["trivial"]["ari"]  # k-means
        assert (clone / f"{stem}{seed}.png").stat().st_size > 10_000
    (row,) = table(clone / "results/summary.tsv")
    assert (row["sample"], row["k"], row["k_fitted"], row["n_seeds"], row["n_converged"]) == (
        "embryo",
        "8",
        "8",
        "2",
        "2",
    )
    assert float(row["ari_min"]) <= float(row["ari_mean"]) <= float(row["ari_max"])
    assert "Converged" in (clone / "logs/fit/embryo_k8_seed0.log").read_text()
    (measured,) = table(clone / "benchmarks/fit/embryo_k8_seed0.tsv")
    assert float(measured["s"]) > 0
    assert adata.n_vars == 0
    assert (clone / f"{stem}0.h5ad").stat().st_size < (clone.parent / "data/embryo.h5ad").stat().st_size / 2
    page = (clone / "results/report.html").read_text()
    assert "log(1 + counts per 10,000)" in page  # maps of genes, from the counts of the section
    assert "embryo_k8_seed0" in page
    assert "embryo_k8_seed1" not in page


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (["dpi=60"], {"plot": 2}),
        (["accept_not_converged=true"], {}),
        (["report_options={n_genes: 3}"], {"report": 1}),
        (["fit_options={beta: 0.9}"], {"evaluate": 2, "plot": 2, "fit": 2, "summary": 1, "report": 1}),
        (
            ["fit_options={n_top_genes: 500}"],
            {"estimate": 1, "evaluate": 2, "plot": 2, "fit": 2, "summary": 1, "report": 1},
        ),
        (["threads=1", "mem_mb=9000"], {}),
    ],
)
def test_a_changed_parameter_runs_again_what_depends_on_it_alone(clone, snakemake, change, again):
    assert snakemake.jobs(clone, *SETTINGS, *change) == ({**again, "all": 1} if again else {})


def test_the_memory_of_a_fit_is_that_of_its_estimate(clone):
    peak = json.loads((clone / "results/estimates/embryo_k8.json").read_text())["peak_memory_bytes"]
    lines = iter((clone.parent / "said").read_text().splitlines())
    assert any("output: results/embryo/embryo_k8_seed0.h5ad" in line for line in lines)
    asked = next(line for line in lines if "mem_mb=" in line)
    megabytes = int(asked.split("mem_mb=")[1].split(",")[0])
    assert 1.3 * peak / 1e6 < megabytes < 1.3 * peak / 1e6 + 600


class Study(NamedTuple):
    """Samples of which two cannot be fitted and one does not converge; then the rest of them again, accepted."""

    project: Project
    said: str


HEADER = "sample\tpath\tk\tbeta\tmax_epochs\tevaluate"
UNFINISHED = "unfinished\ta/section.h5ad\t3\t\t2\t"
RANGE = "range\tb/section.h5ad\t3:4\t0.5\t\ttrue"
RAW = "raw\tx.gef\t\t\t\t"


@pytest.fixture(scope="module")
def study(snakemake, toy_section, tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("study"), toy_section)
    whole = (project / "a/section.h5ad").read_bytes()
    (project / "broken.h5ad").write_bytes(whole[: len(whole) // 2])
    write_gef(project / "x.gef", squares_of(toy_section))
    bad = ["broken\tbroken.h5ad\t\t\t\t", "refused\ta/section.h5ad\t\t-1\t\t"]
    project.samples(HEADER, UNFINISHED, RANGE, RAW, *bad)
    project.config(seeds=[3])
    said = snakemake(project.folder, "--workflow-profile", WORKFLOWS / "profiles" / "local", code=1)
    project.samples(HEADER, UNFINISHED, RANGE, RAW)
    project.config(seeds=[3], accept_not_converged=True)
    snakemake(project.folder)
    return Study(project, said)


def squares_of(section):
    """Molecules of a section whose spots are squares of 50."""
    counts = section.X.tocoo()
    order = np.lexsort((counts.row, counts.col))
    spot, gene = counts.row[order], counts.col[order]
    x, y = (np.unique(column, return_inverse=True)[1] * 50 for column in section.obsm["spatial"].T)
    ids = list(section.var_names)
    return Molecules(ids, ids, x[spot], y[spot], gene, counts.data[order].astype(int), spot + 1)


def fit_of(study, name, k):
    return json.loads((study.project / f"results/{name}/{name}_k{k}_seed3.fit.json").read_text())


def rows_of(study):
    return {row["sample"]: row for row in table(study.project / "results/summary.tsv")}


@pytest.mark.longest
def test_a_row_of_the_table_overrides_the_config_for_its_sample_alone(study, snakemake):
    params = [fit_of(study, name, k)["params"] for name, k in (("unfinished", 3), ("range", "3-4"), ("raw", 4))]
    assert [(p["beta"], p["max_epochs"] == 2, p["seed"], p["n_init"]) for p in params] == [
        (1.0, True, 3, 1),
        (0.5, False, 3, 1),
        (1.0, False, 3, 1),
    ]
    rows = rows_of(study)
    assert [rows[name]["k"] for name in ("unfinished", "range", "raw")] == ["3", "3:4", "4"]
    assert [name for name, row in rows.items() if row["ari_mean"]] == ["range"]
    study.project.samples(HEADER, UNFINISHED, RANGE.replace("\t0.5\t", "\t0.6\t"), RAW)
    assert snakemake.jobs(study.project.folder) == {"fit": 1, "evaluate": 1, "summary": 1, "all": 1}


@pytest.mark.longest
def test_a_range_of_k_is_one_fit_with_the_chosen_number(study):
    chosen = fit_of(study, "range", "3-4")["k_choice"]
    assert chosen["asked"] == "3:4"
    assert rows_of(study)["range"]["k_fitted"] == str(chosen["k"])


@pytest.mark.longest
def test_a_file_of_a_sequencer_is_binned_and_fitted(study, toy_section):
    assert "spatialpdvi bin x.gef --bin 50 -o results/inputs/raw.h5ad > logs/bin/raw.log 2>&1" in study.said
    binned, fitted = (
        anndata.read_h5ad(study.project / "results" / name) for name in ("inputs/raw.h5ad", "raw/raw_k4_seed3.h5ad")
    )
    assert binned.n_obs == toy_section.n_obs
    assert binned.X.sum() == toy_section.X.sum()
    assert fitted.obs["pdvi_domain"].nunique() == 4


@pytest.mark.longest
def test_a_broken_sample_fails_in_the_tools_own_words_and_the_others_are_made(study):
    why = "Error: Expected 'broken.h5ad' to be a complete h5ad file, found it truncated"
    assert why in (study.project / "logs/fit/broken_k4_seed3.log").read_text()
    assert why in study.said
    assert not list((study.project / "results").glob("broken/*.h5ad"))
    assert (study.project / "results/range/range_k3-4_seed3.scores.json").exists()


@pytest.mark.longest
def test_an_option_that_the_fit_refuses_is_in_its_log(study):
    assert "Error: Expected `--beta`" in (study.project / "logs/fit/refused_k4_seed3.log").read_text()
    assert not list((study.project / "results").glob("refused/*.h5ad"))


@pytest.mark.longest
def test_a_fit_that_has_not_converged_fails_unless_it_is_accepted(study):
    assert "NOT CONVERGED" in (study.project / "logs/fit/unfinished_k3_seed3.log").read_text()
    assert "Error in rule fit:" in study.said
    converged = {name: row["n_converged"] for name, row in rows_of(study).items()}
    assert converged == {"unfinished": "0", "range": "1", "raw": "1"}


@pytest.mark.longest
def test_joint_fits_of_files_with_one_name_over_a_list_of_k(project, snakemake):
    project.config(mode="joint", k=[3, 4], evaluate=True, slim=False)
    project.samples("sample\tpath\tevaluate", "one\ta/section.h5ad\t", "two\tb/section.h5ad\tfalse")
    snakemake(project.folder)
    for k in (3, 4):
        report = json.loads((project / f"results/joint/k{k}_seed0/fit.json").read_text())
        assert report["scores"]["samples"]["sample"] == ["one", "two"]
        assert len(report["domain_sizes"]) == k
        one, two = (anndata.read_h5ad(project / f"results/joint/k{k}_seed0/{name}.h5ad") for name in ("one", "two"))
        assert list(one.uns["pdvi_domain_colors"]) == list(two.uns["pdvi_domain_colors"])
        assert one.n_vars == two.n_vars == anndata.read_h5ad(project / "a/section.h5ad").n_vars
    found = [(row["sample"], row["k"], bool(row["ari_mean"])) for row in table(project / "results/summary.tsv")]
    assert found == [("one", "3", True), ("one", "4", True), ("two", "3", False), ("two", "4", False)]
    assert snakemake.jobs(project.folder) == {}


def test_a_joint_fit_of_one_sample_whose_path_has_a_space(project, snakemake):
    (project / "a").rename(project / "a b")
    project.config(mode="joint", k=3, estimate=False, report=False, plot=False)
    project.samples("sample\tpath", "one\ta b/section.h5ad")
    snakemake(project.folder)
    assert "pdvi_domain" in anndata.read_h5ad(project / "results/joint/k3_seed0/one.h5ad").obs


@pytest.mark.longest
def test_a_job_that_is_killed_goes_on_where_it_was(project, snakemake):
    project.samples("sample\tpath", "one\ta/section.h5ad")
    # a solver that takes all epochs there may be, so that there is time to kill it
    endless = {"n_init": 1, "solver": "svi-rm", "tol": 1e-6, "checkpoint_every": 1, "max_epochs": 300}
    project.config(fit_options=endless, accept_not_converged=True)
    pid = project / "pid"
    process = snakemake.start(project.folder, "-s", WORKFLOWS / "Snakefile", PID_FILE=str(pid))
    folder = project / "results/one"
    deadline = time.monotonic() + 120
    while not list(folder.glob("checkpoint_*/fit.checkpoint")):
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert not list(folder.glob("*.h5ad"))
    snakemake(project.folder, "--rerun-incomplete")
    log = (project / "logs/fit/one_k4_seed0.log").read_text()
    assert "The fit resumes from the checkpoint" in log, log
    assert list(folder.glob("*.h5ad"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"kk": 4}, "'kk' was unexpected"),
        ({"samples": "nowhere.tsv"}, "Expected the table of samples in 'nowhere.tsv', found no such file"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_before_any_job(project, snakemake, config, said):
    project.config(**config)
    assert said in snakemake(project.folder, code=1)
    assert not (project / "results").exists()


def test_a_cell_of_the_table_that_cannot_be_used_is_named_before_any_job(project, snakemake):
    project.config(k=4)
    project.samples("sample\tpath\tk", "one\ta/section.h5ad\t4.5")
    expected = (
        "Expected a number from 2, a range such as 4:15, auto, or a list of these with commas as k of sample 'one'"
    )
    assert expected in " ".join(snakemake(project.folder, code=1).split())
    assert not (project / "results").exists()


def test_raw_samples_are_binned_and_reports_made_by_one_command_each(project, snakemake):
    for name in ("x.gef", "y.gem.gz", "c.gef"):
        (project / name).touch()
    (project / "outs").mkdir()
    project.config(report=True, seeds=[5, 6], fit_options={"key_added": "dom"}, report_options={"gene_key": "symbol"})
    raw = ["x\tx.gef\t", "y\ty.gem.gz\t20", "z\touts\t", "c\tc.gef\tcell"]
    project.samples("sample\tpath\tbin_size", *raw, "one\ta/section.h5ad\t")
    said = snakemake(project.folder, "--dry-run", "--printshellcmds")
    shown = [line.strip().removeprefix("Shell command: ") for line in said.splitlines()]
    assert {line for line in shown if line.startswith("spatialpdvi bin")} == {
        "spatialpdvi bin x.gef --bin 50 -o results/inputs/x.h5ad > logs/bin/x.log 2>&1",
        "spatialpdvi bin y.gem.gz --bin 20 -o results/inputs/y.h5ad > logs/bin/y.log 2>&1",
        "spatialpdvi bin outs  -o results/inputs/z.h5ad > logs/bin/z.log 2>&1",
        "spatialpdvi bin c.gef --cell-bin -o results/inputs/c.h5ad > logs/bin/c.log 2>&1",
    }
    fitted = " ".join(f"results/{name}/{name}_k4_seed5.h5ad" for name in ("x", "y", "z", "c", "one"))
    (report,) = [line for line in shown if line.startswith("spatialpdvi report")]
    asked = "--key-added dom --gene-key symbol -o results/report.html"
    counts = [f"--counts {path}" for path in (*(f"results/inputs/{name}.h5ad" for name in "xyzc"), "a/section.h5ad")]
    assert report == f"spatialpdvi report {fitted} {' '.join(counts)} {asked} > logs/report/report.log 2>&1"


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_lint_finds_nothing(project, snakemake, mode):
    project.config(mode=mode, estimate=True, evaluate=True, report=True, plot=True)
    said = snakemake(project.folder, "--lint")
    assert "Congratulations, your workflow is in a good condition" in said, said


def test_the_slurm_profile_asks_for_what_the_rules_say(project, snakemake, snakemake_help):
    if "slurm" not in snakemake_help.partition("--executor")[2].partition("--")[0]:
        pytest.skip("the plugin is not here: pip install snakemake-executor-plugin-slurm")
    said = snakemake(project.folder, "--dry-run", "--workflow-profile", WORKFLOWS / "profiles" / "slurm")
    assert "runtime=240" in said
