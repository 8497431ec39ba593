"""The commands as a user runs them: results, exit codes, second runs, interruptions, threads."""

import inspect
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import anndata
import click
import numpy as np
import pytest
from conftest import interrupt_at, run

from spatialpdvi import FitOptions, InputWarning, fit_file
from spatialpdvi.cli import main
from spatialpdvi.cli.common import print_calibration, print_scores
from spatialpdvi.options.validation import _GROUPS
from spatialpdvi.prediction.places import BORDERS
from spatialpdvi.runtime.progress import LiveProgress, PlainProgress
from spatialpdvi.uncertainty.methods import METHODS
from spatialpdvi.version import __version__

pytestmark = pytest.mark.cli

FIT = ["--k", "4", "--n-top-genes", "100", "--n-init", "2"]


def _subprocess(*arguments, **environment):
    command = [sys.executable, "-m", "spatialpdvi", *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )


def test_version():
    assert run("--version").stdout.strip() == f"spatialpdvi, version {__version__}"


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_the_help_shows_what_most_users_need_and_all_on_request(command):
    short, whole = run(command, "--help").stdout, run(command, "--help-all").stdout
    flags = {flag for parameter in main.commands[command].params for flag in parameter.opts if flag.startswith("--")}
    entries = "\n".join(line for line in short.splitlines() if line.startswith("  -"))  # a text may name others
    shown = {flag for flag in flags if re.search(rf"{flag}\b(?!-)", entries)}
    assert flags == {flag for flag in flags if flag in whole}
    assert {"--k", "--n-domains", "--output", "--help-all"} <= shown
    assert len(re.findall(r"^  -", short, flags=re.MULTILINE)) <= 18
    assert "--flow-neighbors" not in short
    n_more = int(re.search(r"(\d+) more options are shown by --help-all\.", short)[1])
    assert "more options" not in whole
    options = [p for p in main.commands[command].params if isinstance(p, click.Option)]
    assert n_more == sum(not set(p.opts) & shown for p in options)
    assert len(short.splitlines()) < 0.6 * len(whole.splitlines())


@pytest.mark.parametrize("flag", ["-k", "--n-domains"])
def test_the_number_of_domains_has_other_names(toy_file, flag):
    run("fit", toy_file, flag, "4", "--n-top-genes", "100")
    assert anndata.read_h5ad(toy_file).uns["pdvi"]["params"]["k"] == 4


def test_fit_writes_into_the_input_by_default_and_prints_scores(toy_file):
    result = run("fit", toy_file, *FIT)
    assert "obs['pdvi_domain']" in result.stdout
    assert "Converged" in result.stdout
    assert "start" in result.stdout
    adata = anndata.read_h5ad(toy_file)
    assert adata.obs["pdvi_domain"].nunique() == 4
    assert f"{adata.uns['pdvi']['scores']['ari']:.3f}" in result.stdout


def test_output_leaves_the_input_alone_and_python_does_the_same(toy_file, toy_section, tmp_path):
    import spatialpdvi

    before = toy_file.read_bytes()
    run("fit", toy_file, *FIT, "-o", tmp_path / "out.h5ad")
    assert toy_file.read_bytes() == before
    written = anndata.read_h5ad(tmp_path / "out.h5ad")
    in_memory = toy_section.copy()
    spatialpdvi.fit(in_memory, k=4, n_top_genes=100, n_init=2)
    np.testing.assert_array_equal(written.obsm["pdvi_posterior"], in_memory.obsm["pdvi_posterior"])
    np.testing.assert_array_equal(written.uns["pdvi"]["domain_mean"], in_memory.uns["pdvi"]["domain_mean"])
    np.testing.assert_array_equal(written.X.toarray(), toy_section.X.toarray())


PUBLISHED = [
    *("--n-top-genes", "5000", "--totals", "selected", "--transform", "log1p", "--n-pcs", "0", "--states", "off"),
    *("--init", "kmeans", "--n-patches", "30", "--no-cross-patch-edges", "--duals", "zero", "--step-size", "1.0"),
]


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # twenty epochs show what is asked
def test_the_preset_of_the_paper_is_its_single_options_to_the_bit(toy_file, toy_section, tmp_path):
    import spatialpdvi

    limit = ("--max-epochs", "20")
    shown = run("fit", toy_file, "--k", "4", "--preset", "paper", *limit, "-o", tmp_path / "a.h5ad", code=3)
    assert f"preset paper: {' '.join(PUBLISHED)}\n" in shown.stderr
    shown = run("fit", toy_file, "--k", "4", *PUBLISHED, *limit, "-o", tmp_path / "b.h5ad", code=3)
    assert "preset" not in shown.stderr
    with pytest.warns(InputWarning, match="fewer than `n_top_genes=5000`"):
        spatialpdvi.fit(section := toy_section.copy(), k=4, preset="paper", max_epochs=20)
    first, second = (anndata.read_h5ad(tmp_path / f"{name}.h5ad") for name in "ab")
    for other in (second, section):
        np.testing.assert_array_equal(first.obsm["pdvi_posterior"], other.obsm["pdvi_posterior"])
        assert list(first.uns["pdvi"]["trace"]["neg_elbo"]) == list(other.uns["pdvi"]["trace"]["neg_elbo"])
        assert dict(first.uns["pdvi"]["params"]) == dict(other.uns["pdvi"]["params"])


@pytest.mark.parametrize("where", ["before", "after"])
def test_given_options_win_over_a_preset(toy_file, tmp_path, where):
    given, preset = ["--transform", "none", "--init", "annotation"], ["--preset", "paper", "--max-epochs", "2"]
    words = [*given, *preset] if where == "before" else [*preset, *given]
    shown = run("fit", toy_file, "--k", "4", *words, "-o", tmp_path / "a.h5ad", code=3)
    (line,) = (line for line in shown.stderr.splitlines() if line.startswith("preset"))
    assert "--transform" not in line
    assert "--init" not in line
    params = anndata.read_h5ad(tmp_path / "a.h5ad").uns["pdvi"]["params"]
    assert (params["transform"], params["init"], params["totals"]) == ("none", "annotation", "selected")


def test_a_preset_is_silent_and_known(toy_file, tmp_path):
    words = ("--k", "4", "--preset", "paper", "--max-epochs", "2", "--quiet")
    shown = run("fit", toy_file, *words, "-o", tmp_path / "a.h5ad", code=3)
    assert "preset" not in shown.stderr
    wrong = run("fit", toy_file, "--k", "4", "--preset", "published", "-o", tmp_path / "a.h5ad", code=2)
    assert wrong.stderr == "Error: Expected `--preset` to be one of paper, found 'published'.\n"


def test_a_second_run_replaces_the_first(toy_file):
    run("fit", toy_file, *FIT, "--save-graph")
    assert "pdvi_connectivities" in anndata.read_h5ad(toy_file).obsp
    size = toy_file.stat().st_size
    for _ in range(3):
        run("fit", toy_file, "--k", "3", "--rep", "X_pca", "--smooth", "0", "--no-whiten")
    adata = anndata.read_h5ad(toy_file)
    assert list(adata.obs["pdvi_domain"].cat.categories) == ["0", "1", "2"]
    assert adata.uns["pdvi"]["params"]["k"] == 3
    for group, key in (("obsp", "pdvi_connectivities"), ("obsm", "pdvi_flow"), ("obsm", "X_pdvi")):
        assert key not in getattr(adata, group)
    # HDF5 does not reuse all of the space of what is replaced; without any, three more results would double the file
    assert toy_file.stat().st_size <= 1.1 * size


def test_another_prefix_stands_beside_the_first(toy_file):
    run("fit", toy_file, *FIT)
    run("fit", toy_file, *FIT, "--key-added", "other")
    adata = anndata.read_h5ad(toy_file)
    assert {"pdvi_domain", "other_domain"} <= set(adata.obs)
    assert {"pdvi", "other"} <= set(adata.uns)


def test_not_converged_is_loud_written_and_exit_3(toy_file):
    result = run("fit", toy_file, *FIT, "--max-epochs", "2", "--quiet", code=3)
    assert result.stdout == ""
    assert result.stderr.startswith("NOT CONVERGED: the limit of epochs was reached first")
    certificate = anndata.read_h5ad(toy_file).uns["pdvi"]["certificate"]
    assert not certificate["converged"]
    assert certificate["epochs"] == 2


def test_progress_is_on_stderr_with_a_line_per_stage(toy_file):
    result = run("fit", toy_file, *FIT)
    for stage in ("read", "genes", "PCA", "start", "graph", "fit", "scores", "write"):
        assert any(line.startswith(f"{stage}: ") for line in result.stderr.splitlines()), stage
    assert "Counts are read from X." in result.stderr
    assert "ARI" in next(line for line in result.stderr.splitlines() if line.startswith("fit: "))


def test_verbose_shows_every_epoch(toy_file):
    result = run("fit", toy_file, *FIT, "--verbose")
    epochs = anndata.read_h5ad(toy_file).uns["pdvi"]["certificate"]["epochs"]
    assert sum("epoch" in line for line in result.stderr.splitlines()) >= epochs


def test_the_live_display_shows_the_same_stages(toy_file):
    import io

    screen = io.StringIO()
    progress = LiveProgress(screen)
    fit_file(toy_file, FitOptions(k=4, n_top_genes=100), progress=progress)
    progress.stop()
    text = screen.getvalue()
    for word in ("genes", "PCA", "fit", "epoch", "write"):
        assert word in text
    assert set(progress.seconds) == {"read", "genes", "PCA", "smooth", "start", "graph", "fit", "scores", "write"}


def test_a_stage_that_failed_is_not_shown_as_done():
    import io

    screen = io.StringIO()
    progress = PlainProgress(screen)
    with pytest.raises(ZeroDivisionError), progress.stage("fit"):
        _ = 1 / 0
    assert screen.getvalue() == ""
    assert progress.seconds == {}


def test_the_report_is_json_with_scores_certificate_and_times(toy_file, tmp_path):
    path = tmp_path / "report.json"
    run("fit", toy_file, *FIT, "--report", path)
    report = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert report["certificate"]["converged"] is True
    assert set(report["scores"]["baseline"]) >= {"ari", "nmi", "homogeneity", "completeness", "chaos", "pas"}
    assert sum(report["domain_sizes"]) == 600
    assert report["seconds"]["fit"] > 0
    assert report["peak_memory_bytes"] > 1e7
    assert report["output"] == str(toy_file)


def test_evaluate_scores_any_two_columns(toy_file, tmp_path):
    run("fit", toy_file, *FIT)
    path = tmp_path / "scores.json"
    shown = run("evaluate", toy_file, "--label-key", "annotation", "--domain-key", "pdvi_domain", "--report", path)
    scores = json.loads(path.read_text())["scores"]
    stored = anndata.read_h5ad(toy_file).uns["pdvi"]["scores"]
    for name in ("ari", "nmi", "homogeneity", "completeness", "chaos", "pas"):
        assert scores[name] == pytest.approx(stored[name])
        assert f"{scores[name]:.3f}" in shown.stdout
    same = run("evaluate", toy_file, "--domain-key", "annotation", "--report", path)
    assert "1.000" in same.stdout
    result = run("evaluate", toy_file, "--domain-key", "leiden", code=2)
    assert "Expected obs['leiden']" in result.stderr


def test_scores_stand_in_columns_and_those_that_there_are_not_are_free(capsys):
    domains = {"n_scored": 1_200, "n_spots": 3_000, "ari": 0.5, "homogeneity": 0.25, "pas": 0.125, "other": 1.0}
    print_scores(("domains", domains), ("start of it", {"ari": 0.75, "pas": 1.0}))
    assert capsys.readouterr().out.splitlines() == [
        "1,200 of 3,000 spots have a label and are scored",
        "               ARI  homogeneity    PAS",
        "domains      0.500        0.250  0.125",
        "start of it  0.750               1.000",
    ]


def test_the_calibration_error_is_told_before_and_after(capsys):
    found = SimpleNamespace(scores={"calibration": {"ece": 0.2, "ece_calibrated": 0.031}}, params={"temperature": 2.46})
    print_calibration(found)
    said = "expected calibration error: 0.200, calibrated 0.031 (temperature 2.5)\n"
    assert capsys.readouterr().out == said
    print_calibration(SimpleNamespace(scores={"calibration": {"ece": 0.2}}, params={}))
    assert capsys.readouterr().out == ""


def test_simulate_then_fit(tmp_path):
    path = tmp_path / "embryo.h5ad"
    run("simulate", path, "--n-spots", "300", "--n-genes", "60", "--k", "3", "--seed", "2")
    adata = anndata.read_h5ad(path)
    assert adata.shape == (300, 60)
    assert adata.obs["annotation"].nunique() == 3
    run("fit", path, "--k", "3", "--n-top-genes", "50")
    assert "Expected" in run("simulate", tmp_path / "no" / "x.h5ad", code=2).stderr
    assert "--k" in run("simulate", path, "--k", "1", code=2).stderr


# what does the work of a command, and what it calls an option by another name
WORK = {
    "bin": ("spatialpdvi.api.bin_file", {}),
    "describe": ("spatialpdvi.api.describe_files", {}),
    "evaluate": ("spatialpdvi.api.evaluate_file", {}),
    "intervals": ("spatialpdvi.api.intervals_file", {}),
    "markers": ("spatialpdvi.api.markers_file", {"n_genes": "n"}),
    "plot": ("spatialpdvi.api.plot_file", {"kind": "kinds"}),
    "predict": ("spatialpdvi.api.predict_file", {}),
    "report": ("spatialpdvi.api.report_files", {}),
    "simulate": ("spatialpdvi.synthetic.simulate_file", {}),
    "transfer": ("spatialpdvi.api.transfer_file", {}),
}
NOT_HANDED = {"quiet", "verbose", "threads", "table", "output", "report", "labels", "to", "dpi", "help_all"}


def _chosen(command, option):
    """Words that set an option to another value than its default, and what is to be handed on."""
    flag = option.opts[0]
    if option.name == "contrasts":
        return [flag, "a, b", flag, "c,d"], [("a", "b"), ("c", "d")]
    if option.name == "kind":
        return [flag, "domains, trace"], ["domains", "trace"]
    if option.is_flag:
        return [option.secondary_opts[0] if option.default is True else flag], option.default is not True
    if isinstance(option.type, click.Choice):
        return [flag, option.type.choices[-1]], option.type.choices[-1]
    value = {"integer": 7, "float": 0.75}.get(option.type.name, "2GB" if option.name == "memory" else option.name)
    handed = Path(value) if isinstance(option.type, click.Path) else value
    is_one = not option.multiple or (option.name == "counts" and command not in ("describe", "report"))
    return [flag, value], handed if is_one else (handed,)


@pytest.mark.parametrize("name", WORK)
def test_every_option_of_a_command_reaches_what_does_the_work(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.h5ad").write_text("a section")
    where, names = WORK[name]
    handed = {}

    def work(*_, **options):
        handed.update(options)
        return "" if name == "report" else SimpleNamespace(certificate=SimpleNamespace(converged=True))

    monkeypatch.setattr(where, work)
    monkeypatch.setattr("spatialpdvi.plotting.save_figure", lambda *_, **__: None)
    words, expected = [name, "new.h5ad" if name == "simulate" else "a.h5ad", "--quiet"], {}
    for option in main.commands[name].params:
        if isinstance(option, click.Option) and option.name not in NOT_HANDED:
            chosen, expected[names.get(option.name, option.name)] = _chosen(name, option)
            words += chosen
    if name == "report":  # without markers there are no genes
        assert expected.pop("markers") is False
        expected["n_genes"] = 0
    if name == "transfer":
        words += ["--to", "b.h5ad"]
    if name in ("bin", "plot", "report"):
        words += ["-o", {"bin": "b.h5ad", "plot": "b.png", "report": "b.html"}[name]]
    run(*words)
    assert {key: handed[key] for key in expected} == expected


@pytest.mark.parametrize("name", [name for name in WORK if name != "simulate"])
def test_defaults_of_a_command_are_those_of_what_does_the_work(name):
    where, names = WORK[name]
    parameters = inspect.signature(pkgutil.resolve_name(where)).parameters
    options = {names.get(option.name, option.name): option for option in main.commands[name].params}
    stated = {key: option.default for key, option in options.items() if isinstance(option.default, str | int | float)}
    both = stated.keys() & parameters.keys()
    assert both
    assert {key: stated[key] for key in both} == {key: parameters[key].default for key in both}


@pytest.mark.parametrize(
    ("name", "option", "known"),
    [
        ("intervals", "method", METHODS),
        ("intervals", "of", _GROUPS),
        ("markers", "of", _GROUPS),
        ("transfer", "borders", BORDERS),
    ],
)
def test_a_command_offers_what_there_is_to_choose_from(name, option, known):
    (choice,) = (p.type for p in main.commands[name].params if p.name == option)
    assert sorted(choice.choices) == sorted(known)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_plot_draws_a_fitted_section(toy_file, tmp_path, suffix):
    message = run("plot", toy_file, "-o", tmp_path / f"d.{suffix}", code=2).stderr
    assert "Expected a fitted section" in message
    assert "spatialpdvi fit" in message
    run("fit", toy_file, *FIT)
    run("plot", toy_file, "-o", tmp_path / f"d.{suffix}")
    head = (tmp_path / f"d.{suffix}").read_bytes()[:8]
    assert head.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])
    assert "Expected" in run("plot", toy_file, "-o", tmp_path / "d.bmp", code=2).stderr


def test_the_same_bits_for_one_and_two_threads_and_on_a_second_run(tmp_path):
    """Large enough that the parallel twins are used: 12,000 spots."""
    section = tmp_path / "section.h5ad"
    run("simulate", section, "--n-spots", "12000", "--n-genes", "60", "--k", "6")
    results = []
    for threads in ("1", "2", "2"):
        out = tmp_path / "out.h5ad"
        done = _subprocess(
            "fit", section, "--k", "6", "--n-top-genes", "50", "--n-init", "4", "--n-patches", "2", "--quiet",
            "-o", out, "--save-graph",
            NUMBA_NUM_THREADS=threads, OMP_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        adata = anndata.read_h5ad(out)
        trace = adata.uns["pdvi"]["trace"]
        results.append(
            [
                adata.obsm["pdvi_posterior"],
                adata.obsm["X_pdvi"],
                adata.obsm["pdvi_flow"],
                adata.obsp["pdvi_connectivities"].data,
                adata.uns["pdvi"]["domain_mean"],
                adata.uns["pdvi"]["log_variance"],
                *(trace[name] for name in sorted(trace) if name != "seconds"),
            ]
        )
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fit_leaves_the_input_and_no_other_file(toy_file, sent, code):
    before = toy_file.read_bytes()
    arguments = ["fit", toy_file, *FIT, "--tol", "1e-6", "--tol-objective", "1e-300", "--max-epochs", "1000000", "-v"]
    exit_code, stdout, stderr = interrupt_at("fit: epoch 5", arguments, sent=sent)
    assert exit_code == code
    assert "Traceback" not in stderr + stdout
    assert toy_file.read_bytes() == before
    time.sleep(0.1)
    assert list(toy_file.parent.iterdir()) == [toy_file]


def test_labels_that_are_all_missing_are_scored_as_null(toy_file, tmp_path):
    adata = anndata.read_h5ad(toy_file)
    adata.obs["nothing"] = np.nan
    adata.write_h5ad(toy_file)
    path = tmp_path / "report.json"
    shown = run("fit", toy_file, *FIT, "--label-key", "nothing", "--report", path)
    assert "0 of 600 spots have a label and are scored" in shown.stdout
    assert json.loads(path.read_text())["scores"]["ari"] is None


def test_the_peak_is_of_this_process_not_of_the_one_that_started_it(tmp_path):
    code = (
        "import subprocess, sys\n"
        "large = bytearray(700_000_000)\n"
        "print(subprocess.run([sys.executable, '-c', 'from spatialpdvi.runtime.memory import peak_memory; "
        "print(peak_memory())'], capture_output=True, text=True, check=True).stdout)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1e6 < int(done.stdout) < 3e8
