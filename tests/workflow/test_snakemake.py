"""The workflow by the real snakemake: all is made, nothing twice, what changed alone again, errors in plain words."""

import csv
import json
import os
import shutil
import signal
import time
from pathlib import Path

import anndata
import pytest
from workflow.conftest import ROOT, WORKFLOWS

from spatialpdvi.cli import main

pytestmark = pytest.mark.skipif(not WORKFLOWS.exists(), reason="the workflow is not part of this copy")


def table(path):
    return list(csv.DictReader(Path(path).read_text().splitlines(), delimiter="\t"))


@pytest.fixture(scope="module")
def clone(snakemake, tmp_path_factory):
    """The workflow as it is in a clone, run on the data that come with it."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("workflows", "data"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".snakemake", "results", "logs"))
    snakemake(folder / "workflows", *SETTINGS, snakefile="Snakefile")
    return folder / "workflows"


SETTINGS = ["--config", "seeds=[0, 1]", f"report={'report' in main.commands}".lower()]


def test_a_clone_makes_everything_on_the_data_that_come_with_it(clone):
    stem = "results/embryo/embryo_k8_seed"
    for seed in (0, 1):
        adata = anndata.read_h5ad(clone / f"{stem}{seed}.h5ad")
        assert adata.obs["pdvi_domain"].nunique() == 8
        scores = json.loads((clone / f"{stem}{seed}.scores.json").read_text())["scores"]
        assert scores["ari"] == adata.uns["pdvi"]["scores"]["ari"] > 0.9
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
    assert (clone / "results/report.html").exists() == ("report" in main.commands)


def test_a_second_run_does_nothing(clone, snakemake):
    assert "Nothing to be done" in snakemake(clone, *SETTINGS, snakefile="Snakefile")


@pytest.mark.parametrize(
    ("change", "again"),
    [
        (["dpi=60"], {"plot": 2}),
        (["label_key=annotation"], {"evaluate": 2, "plot": 2, "fit": 2, "estimate": 1, "summary": 1, "report": 1}),
        (["fit_options={beta: 0.9}"], {"evaluate": 2, "plot": 2, "fit": 2, "summary": 1, "report": 1}),
        (
            ["fit_options={n_top_genes: 500}"],
            {"estimate": 1, "evaluate": 2, "plot": 2, "fit": 2, "summary": 1, "report": 1},
        ),
        (["threads=1", "mem_mb=9000"], {}),
    ],
)
def test_a_changed_parameter_runs_again_what_depends_on_it_alone(clone, snakemake, change, again):
    jobs = snakemake.jobs(clone, *SETTINGS, *change)
    expected = {name: count for name, count in again.items() if name != "report" or "report" in main.commands}
    assert jobs == ({**expected, "all": 1} if expected else {})


def test_a_row_of_the_table_overrides_the_config_for_its_sample_alone(project, snakemake):
    project.config(seeds=[3])
    project.samples("sample\tpath\tk\tbeta", "one\ta/section.h5ad\t3\t", "two\tb/section.h5ad\t\t0.5")
    snakemake(project.folder)
    params = {
        name: json.loads((project / f"results/{name}/{name}_k{k}_seed3.fit.json").read_text())["params"]
        for name, k in (("one", 3), ("two", 4))
    }
    assert [(p["k"], p["beta"], p["seed"], p["n_init"]) for p in params.values()] == [(3, 1.0, 3, 1), (4, 0.5, 3, 1)]
    assert [row["k"] for row in table(project / "results/summary.tsv")] == ["3", "4"]
    project.samples("sample\tpath\tk\tbeta", "one\ta/section.h5ad\t3\t", "two\tb/section.h5ad\t\t0.6")
    assert snakemake.jobs(project.folder) == {"fit": 1, "evaluate": 1, "summary": 1, "all": 1}


def test_joint_fits_of_files_with_one_name_over_a_list_of_k(project, snakemake):
    project.config(mode="joint", k=[3, 4])
    snakemake(project.folder)
    for k in (3, 4):
        report = json.loads((project / f"results/joint/k{k}_seed0/fit.json").read_text())
        assert report["scores"]["samples"]["sample"] == ["one", "two"]
        assert len(report["domain_sizes"]) == k
        one, two = (anndata.read_h5ad(project / f"results/joint/k{k}_seed0/{name}.h5ad") for name in ("one", "two"))
        assert list(one.uns["pdvi_domain_colors"]) == list(two.uns["pdvi_domain_colors"])
    assert [(row["sample"], row["k"]) for row in table(project / "results/summary.tsv")] == [
        ("one", "3"),
        ("one", "4"),
        ("two", "3"),
        ("two", "4"),
    ]
    assert snakemake.jobs(project.folder) == {}


def test_a_range_of_k_is_one_fit_with_the_chosen_number(project, snakemake):
    project.config(k="3:4", evaluate=False)
    project.samples("sample\tpath", "one\ta/section.h5ad")
    snakemake(project.folder)
    report = json.loads((project / "results/one/one_k3-4_seed0.fit.json").read_text())
    assert report["k_choice"]["asked"] == "3:4"
    (row,) = table(project / "results/summary.tsv")
    assert (row["k"], row["k_fitted"], row["ari_mean"]) == ("3:4", str(report["k_choice"]["k"]), "")


def test_a_broken_sample_fails_in_the_tools_own_words_and_the_other_is_made(project, snakemake):
    whole = (project / "b/section.h5ad").read_bytes()
    (project / "b/section.h5ad").write_bytes(whole[: len(whole) // 2])
    snakemake(project.folder, "--keep-going", code=1)
    said = (project / "logs/estimate/two_k4.log").read_text()
    assert said.startswith("Error: Expected 'b/section.h5ad' to be a complete h5ad file, found it truncated")
    assert (project / "results/one/one_k4_seed0.scores.json").exists()
    assert not (project / "results/two").exists() or not list((project / "results/two").glob("*.h5ad"))


def test_an_option_that_the_fit_refuses_is_in_its_log(project, snakemake):
    project.samples("sample\tpath\tbeta", "one\ta/section.h5ad\t-1")
    snakemake(project.folder, code=1)
    assert "Error: Expected `--beta`" in (project / "logs/fit/one_k4_seed0.log").read_text()


def test_a_fit_that_has_not_converged_fails_unless_it_is_accepted(project, snakemake):
    project.samples("sample\tpath", "one\ta/section.h5ad")
    unfinished = {"n_init": 1, "max_epochs": 2}
    project.config(fit_options=unfinished)
    snakemake(project.folder, code=1)
    assert "NOT CONVERGED" in (project / "logs/fit/one_k4_seed0.log").read_text()
    project.config(fit_options=unfinished, accept_not_converged=True)
    snakemake(project.folder)
    assert table(project / "results/summary.tsv")[0]["n_converged"] == "0"


def test_a_job_that_is_killed_goes_on_where_it_was(project, snakemake):
    project.samples("sample\tpath", "one\ta/section.h5ad")
    # a solver that takes all epochs there may be, so that there is time to kill it
    endless = {"n_init": 1, "solver": "svi-rm", "tol": 1e-6, "checkpoint_every": 1, "max_epochs": 300}
    project.config(fit_options=endless, estimate=False, accept_not_converged=True)
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
    assert "Going on from the checkpoint" in log, log
    assert list(folder.glob("*.h5ad"))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"k": 255}, 'Quote a range ("4:15")'),
        ({"k": 1}, "1 is not valid under any of the given schemas"),
        ({"kk": 4}, "'kk' was unexpected"),
        ({"fit_options": {"output": "x"}}, "found output. Leave it out."),
        ({"samples": "nowhere.tsv"}, "Expected the table of samples in 'nowhere.tsv', found no such file"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_before_any_job(project, snakemake, config, said):
    project.config(**config)
    shown = snakemake(project.folder, code=1)
    assert said in shown
    assert not (project / "results").exists()


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["sample\tpath", "one\ta/section.h5ad", "one\tb/section.h5ad"], "found one twice"),
        (["sample\tpath", "../one\ta/section.h5ad"], "does not match"),
        (["sample\tpath", "one"], "found no path"),
        (["sample\tpath\tseed", "one\ta/section.h5ad\t3"], "found seed. Leave it out."),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_before_any_job(project, snakemake, lines, said):
    project.samples(*lines)
    assert said in snakemake(project.folder, code=1)
    assert not (project / "results").exists()


def test_joint_fits_have_one_set_of_options(project, snakemake):
    project.config(mode="joint")
    project.samples("sample\tpath\tk", "one\ta/section.h5ad\t3")
    assert "Expected one value of k for all samples of a joint fit" in snakemake(project.folder, code=1)


def test_raw_samples_are_binned_and_reports_made_by_one_command_each(project, snakemake):
    for name in ("x.gef", "y.gem.gz"):
        (project / name).touch()
    (project / "outs").mkdir()
    project.config(report=True, seeds=[5, 6])
    project.samples("sample\tpath\tbin_size", "x\tx.gef\t", "y\ty.gem.gz\t20", "z\touts\t", "one\ta/section.h5ad\t")
    said = snakemake(project.folder, "--dry-run", "--printshellcmds")
    shown = [line.strip().removeprefix("Shell command: ") for line in said.splitlines()]
    assert {line for line in shown if line.startswith("spatialpdvi bin")} == {
        "spatialpdvi bin x.gef --bin 50 -o results/inputs/x.h5ad > logs/bin/x.log 2>&1",
        "spatialpdvi bin y.gem.gz --bin 20 -o results/inputs/y.h5ad > logs/bin/y.log 2>&1",
        "spatialpdvi bin outs  -o results/inputs/z.h5ad > logs/bin/z.log 2>&1",
    }
    fitted = " ".join(f"results/{name}/{name}_k4_seed5.h5ad" for name in ("x", "y", "z", "one"))
    assert [line for line in shown if line.startswith("spatialpdvi report")] == [
        f"spatialpdvi report {fitted} -o results/report.html > logs/report/report.log 2>&1"
    ]


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_lint_finds_nothing(project, snakemake, mode):
    project.config(mode=mode, report=True, plot=True)
    said = snakemake(project.folder, "--lint")
    assert "Congratulations, your workflow is in a good condition" in said, said


def test_the_memory_of_a_fit_is_that_of_its_estimate(project, snakemake):
    project.samples("sample\tpath", "one\ta/section.h5ad")
    snakemake(project.folder, "--until", "estimate")
    peak = json.loads((project / "results/estimates/one_k4.json").read_text())["peak_memory_bytes"]
    said = snakemake(project.folder, "--dry-run")
    (asked,) = [line for line in said.splitlines() if "mem_mb=" in line and "benchmark" not in line][:1]
    megabytes = int(asked.split("mem_mb=")[1].split(",")[0])
    assert 1.3 * peak / 1e6 < megabytes < 1.3 * peak / 1e6 + 600


def test_the_local_profile_runs_it(project, snakemake):
    said = snakemake(project.folder, "--dry-run", "--workflow-profile", WORKFLOWS / "profiles" / "local")
    assert "fit" in said


def test_the_slurm_profile_asks_for_what_the_rules_say(project, snakemake):
    shown = snakemake(project.folder, "--help")
    if "slurm" not in shown.partition("--executor")[2].partition("--")[0]:
        pytest.skip("the plugin is not here: pip install snakemake-executor-plugin-slurm")
    said = snakemake(project.folder, "--dry-run", "--workflow-profile", WORKFLOWS / "profiles" / "slurm")
    assert "runtime=240" in said
