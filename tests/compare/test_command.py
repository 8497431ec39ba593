"""The command as a user runs it: same start, tuned steps, kept runs, bad input."""

import json
import re
from pathlib import Path

import anndata
import numpy as np
import pytest
from click.testing import CliRunner
from conftest import interrupt_at

from spatialpdvi import FitOptions, InputError, fit_file, preset_options
from spatialpdvi.cli import main
from spatialpdvi.compare import runs as runs_module
from spatialpdvi.compare.plan import SHARED, ComparisonPlan, parse_solvers
from spatialpdvi.errors import NotConvergedWarning
from spatialpdvi.options.fit import SOLVER_OPTIONS, SOLVERS
from spatialpdvi.solvers import SOLVERS as REGISTRY

pytestmark = pytest.mark.cli

FAST = ["--k", "4", "--rep", "X_pca", "--tune-epochs", "2", "--seeds", "2"]
FILES = ["compare.json", "compare.md", "convergence.png", "maps.png", "runs"]
TUNED = next(name for name in SOLVERS if getattr(REGISTRY[name], "has_step", False))


def _run(*arguments, code=0):
    result = CliRunner().invoke(main, ["compare", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def _content(folder):
    return json.loads(
        (folder / "compare.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name}: no JSON")
    )


def test_every_solver_runs_from_one_start_per_seed_and_all_is_written(toy_file, tmp_path):
    out = tmp_path / "out"
    shown = _run(toy_file, *FAST, "--max-epochs", "30", "-o", out)
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert shown.stdout.startswith((out / "compare.md").read_text())
    content = _content(out)
    assert [(run["solver"], run["seed"]) for run in content["runs"]] == [(s, seed) for s in SOLVERS for seed in (0, 1)]
    for seed in (0, 1):
        begun = [
            {name: run["trace"][name][0] for name in run["trace"]} for run in content["runs"] if run["seed"] == seed
        ]
        assert all(start == begun[0] for start in begun)
    tuned = [name for name in SOLVERS if getattr(REGISTRY[name], "has_step", False)]
    assert list(content["tuning"]) == tuned
    for run in content["runs"]:
        assert ("step" in run) == (run["solver"] in tuned)
        assert {len(column) for column in run["trace"].values()} == {run["epochs"] + 1}
        assert run["trace"]["neg_elbo"][-1] == run["neg_elbo"]
        if "step" in run:
            assert run["step"] == content["tuning"][run["solver"]]["step"]
    page = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text()
    names = {*content, *content["params"], *content["runs"][-1], *content["table"][0], *content["runs"][-1]["trace"]}
    options = set(FitOptions.__dataclass_fields__)
    assert sorted(name for name in names - options if f"`{name}`" not in page) == []


def test_a_run_is_what_fit_does(toy_file, tmp_path):
    _run(toy_file, *FAST, "--solvers", "memoized,p2dvi", "-o", tmp_path / "out")
    content = _content(tmp_path / "out")
    assert [row["solver"] for row in content["table"]] == ["memoized", "p2dvi"]
    for run in content["runs"]:
        options = FitOptions(k=4, rep="X_pca", solver=run["solver"], seed=run["seed"])
        fit = fit_file(toy_file, options, output=tmp_path / "fit.h5ad")
        for name in ("epoch", "neg_elbo", "gradient_norm", "ari"):
            np.testing.assert_array_equal(run["trace"][name], fit.trace[name])
        assert run["ari"] == pytest.approx(fit.scores["ari"])
        assert run["converged"] is fit.certificate.converged is True


def test_counts_are_preprocessed_once(toy_file, tmp_path, monkeypatch):
    from spatialpdvi.features import build as representation

    calls = []
    original = representation.scaled_genes
    monkeypatch.setattr(representation, "scaled_genes", lambda *a, **k: calls.append(1) or original(*a, **k))
    _run(toy_file, "--k", "4", "--n-top-genes", "100", "--seeds", "3", "--solvers", "cavi", "-o", tmp_path / "out")
    assert calls == [1]
    fit = fit_file(toy_file, FitOptions(k=4, n_top_genes=100, solver="cavi"), output=tmp_path / "fit.h5ad")
    assert _content(tmp_path / "out")["runs"][0]["trace"]["neg_elbo"] == fit.trace["neg_elbo"].tolist()


def _watch_runs(monkeypatch):
    """Names of the runs that are made, tuning and warming up left out."""
    from spatialpdvi.compare import comparison

    made = []
    original = comparison.run_solver

    def watched(prepared, name, *, on_epoch=None, seed, **others):
        if on_epoch is not None:
            made.append((name, seed))
        return original(prepared, name, seed=seed, on_epoch=on_epoch, **others)

    monkeypatch.setattr(comparison, "run_solver", watched)
    return made


def test_a_second_call_does_what_is_missing_and_says_so(toy_file, tmp_path, monkeypatch):
    made = _watch_runs(monkeypatch)
    arguments = [toy_file, *FAST, "--max-epochs", "20", "-o", tmp_path / "out"]
    _run(*arguments, "--solvers", f"cavi,{TUNED}")
    assert len(made) == 4
    before = _content(tmp_path / "out")
    made.clear()
    again = _run(*arguments, "--solvers", f"cavi,{TUNED}")
    assert made == []
    assert "4 of 4 runs were finished before and are not repeated." in again.stderr
    assert "tune:" not in again.stderr
    assert _content(tmp_path / "out") == before
    (tmp_path / "out" / "runs" / "cavi.seed1.json").unlink()
    _run(*arguments, "--solvers", f"cavi,{TUNED},memoized")
    assert made == [("memoized", 0), ("cavi", 1), ("memoized", 1)]


def test_another_option_or_input_makes_the_runs_again(toy_file, tmp_path, monkeypatch):
    made = _watch_runs(monkeypatch)
    arguments = [toy_file, *FAST, "--solvers", "cavi,memoized", "-o", tmp_path / "out"]
    _run(*arguments)
    made.clear()
    changed = _run(*arguments, "--beta", "0.5")
    assert len(made) == 4
    sentence = "4 earlier results have another input or other options (beta was 1.0, is 0.5) and are computed again."
    assert sentence in changed.stderr
    assert "finished before" not in changed.stderr
    made.clear()
    toy_file.touch()
    assert "or other options (the input file has changed) and are" in _run(*arguments, "--beta", "0.5").stderr
    assert len(made) == 4


def test_more_epochs_of_tuning_repeat_the_tuning(toy_file, tmp_path):
    arguments = [toy_file, *FAST, "--max-epochs", "5", "--solvers", TUNED, "-o", tmp_path / "out"]
    _run(*arguments)
    again = _run(*arguments, "--tune-epochs", "3")
    assert "tune_epochs was 2, is 3" in again.stderr
    assert "tune:" in again.stderr


def test_a_run_that_leaves_the_finite_numbers_has_failed_and_the_rest_goes_on(toy_file, tmp_path, monkeypatch):
    class Wild(REGISTRY["cavi"]):
        has_step = False

        def merge(self, problem, shared, messages):
            shared = super().merge(problem, shared, messages)
            return shared._replace(lam=shared.lam._replace(m=shared.lam.m * np.nan))

    monkeypatch.setitem(runs_module.SOLVERS, "memoized", Wild)
    shown = _run(toy_file, *FAST, "--solvers", "cavi,memoized", "-o", tmp_path / "out")
    good, wild = _content(tmp_path / "out")["table"]
    assert (good["n_failed"], good["n_converged"]) == (0, 2)
    assert wild["n_failed"] == 2
    assert "0 of 2, 2 failed" in shown.stdout
    run = _content(tmp_path / "out")["runs"][2]
    assert (run["solver"], run["failed"], run["neg_elbo"], run["ari"]) == ("memoized", True, None, None)
    assert run["trace"]["neg_elbo"][-1] is None


def test_without_labels_there_is_no_ari(toy_section, tmp_path):
    section = toy_section.copy()
    del section.obs["annotation"]
    section.write_h5ad(tmp_path / "s.h5ad")
    _run(tmp_path / "s.h5ad", *FAST, "--solvers", "cavi", "-o", tmp_path / "out")
    (run, _) = _content(tmp_path / "out")["runs"]
    assert run["ari"] is None
    assert "ari" not in run["trace"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--solvers", "cavi,em"], ["`--solvers`", *SOLVERS, "found 'em'"]),
        (["--solvers", ""], ["`--solvers`", "found none"]),
        (["--solvers", "cavi,cavi"], ["to be different solvers", "found cavi twice"]),
        (["--seeds", "0"], ["`--seeds`", "found 0"]),
        (["--tune-epochs", "0"], ["`--tune-epochs`", "found 0"]),
        (["--k", "1"], ["`--k`", "found 1"]),
        (["--k", "601"], ["`--k`", "found 601"]),
        (["--rep", "X_none"], ["X_none"]),
    ],
)
def test_what_cannot_be_is_refused(toy_file, tmp_path, arguments, words):
    result = _run(toy_file, *FAST, *arguments, "-o", tmp_path / "out", code=2)
    for word in ("Expected", *words):
        assert word in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_written_are_refused(toy_file, tmp_path):
    before = toy_file.read_bytes()
    assert "Expected `--output` to be a folder, found the file" in _run(toy_file, *FAST, "-o", toy_file, code=2).stderr
    assert "found no" in _run(toy_file, *FAST, "-o", tmp_path / "no" / "out", code=2).stderr
    _run(tmp_path / "none.h5ad", *FAST, "-o", tmp_path / "out", code=2)
    assert toy_file.read_bytes() == before
    assert not (tmp_path / "out").exists()


SHARED_BY_ALL = ["--transform", "sqrt", "--smooth", "4", "--no-whiten", "--n-init", "1", "--n-top-genes", "100"]
OF_THE_GRAPH = ["--tau", "0.5", "--flow-neighbors", "50", "--n-patches", "3", "--no-cross-patch-edges", "--clip", "5"]


def test_it_has_every_option_of_a_fit_that_all_solvers_can_share(toy_file, tmp_path):
    arguments = ["--k", "4", "--seeds", "1", "--solvers", "cavi", *SHARED_BY_ALL, *OF_THE_GRAPH]
    _run(toy_file, *arguments, "-o", tmp_path / "out")
    content = _content(tmp_path / "out")
    chosen = {
        "transform": "sqrt",
        "smooth": 4,
        "whiten": False,
        "n_init": 1,
        "n_top_genes": 100,
        "tau": 0.5,
        "flow_neighbors": 50,
        "n_patches": 3,
        "cross_patch_edges": False,
        "clip": 5.0,
    }
    assert {name: content["params"][name] for name in chosen} == chosen
    fit = fit_file(toy_file, FitOptions(k=4, solver="cavi", **chosen), output=tmp_path / "fit.h5ad")
    assert content["runs"][0]["trace"]["neg_elbo"] == fit.trace["neg_elbo"].tolist()


def test_several_sections_and_a_given_start(toy_file, tmp_path):
    adata = anndata.read_h5ad(toy_file)
    adata.obs["slice"] = np.where(np.arange(adata.n_obs) % 2, "a", "b")
    adata.write_h5ad(toy_file)
    options = {"k": 4, "rep": "X_pca", "sample_key": "slice", "correct": "center", "init": "annotation"}
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    _run(toy_file, *flags, "--seeds", "1", "--solvers", "memoized", "-o", tmp_path / "out")
    run = _content(tmp_path / "out")["runs"][0]
    fit = fit_file(toy_file, FitOptions(solver="memoized", **options), output=tmp_path / "fit.h5ad")
    assert run["trace"]["neg_elbo"] == fit.trace["neg_elbo"].tolist()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"restarts": "best"},
            "Expected no `restarts` in a comparison, found 'best'. For each seed all solvers begin at the same start.",
        ),
        (
            {"seed": 3},
            "Expected no `seed` in a comparison, found 3. The seeds are 0, 1, ...; choose their number with `seeds`.",
        ),
        ({"solver": "cavi"}, "Expected no `solver` in a comparison, found 'cavi'. Name the solvers with `solvers`."),
        (
            {"step_size": 0.1},
            "Expected no `step_size` in a comparison, found 0.1. Step sizes are tuned, and each solver",
        ),
        (
            {"save_graph": True},
            "Expected no `save_graph` in a comparison, found True. Nothing is written into the section. Leave it out.",
        ),
    ],
)
def test_options_of_a_single_fit_are_refused(options, words):
    with pytest.raises(InputError, match=re.escape(words)):
        ComparisonPlan(options=FitOptions(k=4, **options))
    assert not set(options) & set(SHARED)


def test_options_are_either_shared_or_refused(toy_file, tmp_path):
    rest = set(FitOptions.__dataclass_fields__) - set(SHARED)
    assert rest == {"solver", "seed", "restarts", "key_added", "save_graph", *SOLVER_OPTIONS} - {"duals"}
    shown = _run(toy_file, *FAST, "--restarts", "best", "-o", tmp_path / "out", code=2)
    assert "No such option" in shown.stderr
    assert not (tmp_path / "out").exists()


def test_names_may_have_spaces_around_them():
    assert parse_solvers(" p2dvi, cavi ,") == ("p2dvi", "cavi")
    assert parse_solvers(None) == SOLVERS


def test_quiet_says_nothing(toy_file, tmp_path):
    result = _run(toy_file, *FAST, "--solvers", "cavi", "-o", tmp_path / "out", "--quiet")
    assert result.stdout == result.stderr == ""


def test_an_interruption_before_the_first_run_says_that_nothing_was_written(toy_file, tmp_path):
    arguments = ["compare", toy_file, *FAST, "--seeds", "100", "--solvers", "cavi", "-o", tmp_path / "out", "-v"]
    code, stdout, stderr = interrupt_at("start", arguments)
    assert code == 130
    assert "Interrupted. Nothing was written." in stderr
    assert "Traceback" not in stdout + stderr
    assert not (tmp_path / "out").exists()


def test_an_interruption_leaves_the_finished_runs(toy_file, tmp_path):
    out = tmp_path / "out"
    endless = ["--tol", "1e-6", "--tol-objective", "1e-300", "--max-epochs", "3000"]
    arguments = ["compare", toy_file, *FAST, *endless, "--seeds", "100", "--solvers", "cavi", "-o", out, "-v"]
    code, stdout, stderr = interrupt_at("cavi, seed 1: epoch 5 ", arguments)
    assert code == 130
    assert f"Interrupted. Finished runs were saved in {out}. Run the same command again to continue." in stderr
    assert "Traceback" not in stdout + stderr
    kept = sorted(path.name for path in (out / "runs").iterdir())
    assert kept[0] == "cavi.seed0.json"
    assert len(kept) < 100
    assert sorted(path.name for path in out.iterdir()) == ["runs"]


def test_the_preset_of_the_paper_tunes_one_constant_step_for_p2d_vi(toy_file, tmp_path):
    words = ["--k", "4", "--n-top-genes", "50", "--tune-epochs", "1", "--seeds", "1", "--max-epochs", "2"]
    shown = _run(toy_file, *words, "--preset", "paper", "--solvers", "p2dvi,pdvi,cavi", "-o", tmp_path / "out")
    assert "--duals zero --constant-steps\n" in shown.stderr
    assert "--step-size" not in shown.stderr
    content = _content(tmp_path / "out")
    assert list(content["tuning"]) == ["p2dvi", "pdvi"]
    assert content["params"]["constant_steps"] is True
    assert content["params"]["duals"] == "zero"
    run = content["runs"][0]
    options = {"n_top_genes": 50, "step_size": run["step"], "max_epochs": 2}
    with pytest.warns(NotConvergedWarning):
        fit = fit_file(toy_file, preset_options("paper", k=4, **options), output=tmp_path / "fit.h5ad")
    assert run["trace"]["neg_elbo"] == fit.trace["neg_elbo"].tolist()


def test_domains_are_kept_of_the_first_seed_alone_and_no_options_are_told_that_a_comparison_has_not(toy_file, tmp_path):
    _run(toy_file, *FAST, "--max-epochs", "2", "--solvers", "cavi", "-o", tmp_path / "out")
    first, second = (
        json.loads((tmp_path / "out" / "runs" / f"cavi.seed{seed}.json").read_text())["result"]["domains"]
        for seed in (0, 1)
    )
    assert len(first) == anndata.read_h5ad(toy_file).n_obs
    assert second is None
    assert not {"solver", "seed", "key_added", "save_graph"} & set(_content(tmp_path / "out")["params"])
