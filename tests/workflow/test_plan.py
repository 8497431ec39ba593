"""The plan by itself: options to words of a command line, and what it shares with the command line."""

import importlib.util
import json
import os

import click
import jsonschema
import pytest
from workflow.conftest import WORKFLOWS

from spatialpdvi.checkpoints.identity import identify
from spatialpdvi.cli import main
from spatialpdvi.model_selection.scan import _WIDEST
from spatialpdvi.options.fit import FitOptions, option_table
from spatialpdvi.plotting import save

pytestmark = pytest.mark.skipif(not WORKFLOWS.exists(), reason="the workflow is not part of this copy")


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if WORKFLOWS.exists():
    plan = _load("plan", WORKFLOWS / "plan.py")
    summary = _load("summary", WORKFLOWS / "scripts" / "summary.py")


def options_of(command):
    return {parameter.name for parameter in main.commands[command].params if isinstance(parameter, click.Option)}


def test_switches_that_are_on_by_default_are_those_of_the_fit():
    of_report = {p.name for p in main.commands["report"].params if isinstance(p, click.Option) and p.default is True}
    assert set(plan.ON_BY_DEFAULT) == {row["name"] for row in option_table() if row["default"] is True} | of_report


def test_the_largest_number_of_domains_is_that_of_the_scan():
    assert plan._MOST_DOMAINS == _WIDEST


def test_every_option_of_a_fit_is_known():
    options = [p for p in main.commands["fit"].params if isinstance(p, click.Option)]
    names = {text.lstrip("-").replace("-", "_") for p in options for text in p.opts if text.startswith("--")}
    of_kinds = {
        "switches": {p.name for p in options if p.is_flag},
        "numbers": {p.name for p in options if p.type in (click.INT, click.FLOAT)},
    }
    assert set(plan.SWITCHES) == of_kinds["switches"] - set(plan.RESERVED)
    assert set(plan.NUMBERS) == of_kinds["numbers"] - set(plan.RESERVED)
    assert names == {*plan.SWITCHES, *plan.NUMBERS, *plan.TEXTS, *plan.RESERVED}


def test_what_the_plan_says_of_options_is_so_in_the_commands():
    assert set(plan._SAME_FIT) <= options_of("fit")
    shared = options_of("estimate") & options_of("fit") - {*plan.RESERVED}
    assert set(plan.ESTIMATED) == shared
    assert {"label_key", "table", "json_path"} <= options_of("estimate")
    assert {"label_key", "spatial_key", "domain_key", "report"} <= options_of("evaluate")
    assert {"label_key", "spatial_key", "key_added", "dpi", "output"} <= options_of("plot")
    schema = json.loads((WORKFLOWS / "schemas" / "config.schema.json").read_text())
    dots = schema["properties"]["dpi"]
    assert (dots["minimum"], dots["maximum"]) == (save._LEAST_DPI, save._MOST_DPI)
    assert {"counts"} <= options_of("report")
    assert {*plan._OF_FITS, *schema["properties"]["report_options"]["properties"]} <= options_of("report")


@pytest.mark.parametrize("restarts", ["merge", "best"])
def test_options_that_leave_a_fit_the_same_are_those_that_a_checkpoint_does_not_ask_for(restarts):
    asked = identify(FitOptions(k=4, restarts=restarts), dict.fromkeys(("spatialpdvi", "numba", "numpy"), ""))
    free = {row["name"] for row in option_table() if row["name"] not in asked}
    named = {name for name in plan._SAME_FIT if name in {row["name"] for row in option_table()}}
    assert named - ({"max_epochs"} if restarts == "best" else set()) == free


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ""),
        ({"n-top-genes": 50, "spatial_key": "x,y,z"}, "--n-top-genes 50 --spatial-key x,y,z"),
        ({"save_graph": True, "whiten": False, "across_sections": False, "rep": None}, "--save-graph --no-whiten"),
        ({"label_key": "a b; rm -rf $HOME"}, "--label-key 'a b; rm -rf $HOME'"),
        ({"tau": 0.5, "memory": "8GB"}, "--tau 0.5 --memory 8GB"),
    ],
)
def test_options_become_words_of_a_command_line(options, words):
    assert plan.flags(options) == words


def test_cells_of_the_table(tmp_path):
    path = tmp_path / "samples.tsv"
    path.write_text(
        "# a note\nsample\tpath\tk\tseeds\tevaluate\tbeta\trep\tn_init\n"
        "one\tx y.h5ad\t4:15\t0,1\tFALSE\t.5\tX_pca\t3\n\ntwo\tb.h5ad\t6, 70\t\t\t\t\t\n"
    )
    one, two = plan.read_samples(str(path))
    own = {"k": "4:15", "seeds": [0, 1], "evaluate": False, "beta": 0.5, "rep": "X_pca", "n_init": 3}
    assert (one.name, one.path, one.own) == ("one", "x y.h5ad", own)
    assert two.own == {"k": [6, 70]}
    assert make_plan([one, two], k=4, seeds=[0]).ks("two") == ["6", "70"]


def test_names_in_the_table_stay_text(tmp_path):
    path = tmp_path / "samples.tsv"
    path.write_text("sample\tpath\tkey-added\tlabel_key\tlayer\trep\none\ta.h5ad\t0012\t0\t1e3\ttrue\n")
    (one,) = plan.read_samples(str(path))
    assert one.own == {"key-added": "0012", "label_key": "0", "layer": "1e3", "rep": "true"}
    words = "--k 4 --seed 0 --slim --key-added 0012 --layer 1e3 --rep true --label-key 0"
    assert make_plan([one], k=4).fit_flags("one", "4", "0") == words


def make_plan(samples, **config):
    """A plan as rules/common.smk makes it: rows and config against their schemas, defaults filled in."""
    plan.read_switches(config)
    for sample in samples:
        check({"sample": sample.name, "path": sample.path, **sample.own}, "samples")
    check(config, "config")
    schema = json.loads((WORKFLOWS / "schemas" / "config.schema.json").read_text())
    filled = {name: what["default"] for name, what in schema["properties"].items() if "default" in what}
    return plan.Plan(filled | config, samples)


def check(content, schema):
    jsonschema.validate(content, json.loads((WORKFLOWS / "schemas" / f"{schema}.schema.json").read_text()))


def test_another_choice_of_options_has_another_checkpoint():
    def name(**options):
        made = make_plan([plan.Sample("one", "a.h5ad", {})], k=4, fit_options=options)
        return made.checkpoint("one", "4", "0")

    assert name() == name(max_epochs=900) == name(memory="2GB")
    assert name() != name(beta=0.5)
    assert name(restarts="best") != name(restarts="best", max_epochs=900)


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_a_changed_section_has_another_checkpoint(tmp_path, mode):
    paths = [tmp_path / name for name in ("a.h5ad", "b.h5ad")]
    for path in paths:
        path.write_bytes(b"before")
    made = make_plan([plan.Sample(path.stem, str(path), {}) for path in paths], k=4, mode=mode)
    names = [made.checkpoint("a", "4", "0")]
    for path in paths:
        path.write_bytes(b"after it")
        names.append(made.checkpoint("a", "4", "0"))
    assert len(set(names)) == (3 if mode == "joint" else 2)


def test_other_bins_have_another_checkpoint():
    names = [
        make_plan([plan.Sample("one", "a.gef", {"bin_size": size})], k=4).checkpoint("one", "4", "0")
        for size in (50, 100)
    ]
    assert names[0] != names[1]


def test_a_store_that_changed_below_has_another_checkpoint(tmp_path):
    store = tmp_path / "a.zarr"
    (store / "X").mkdir(parents=True)
    (store / "X" / "0").write_bytes(b"before")
    made = make_plan([plan.Sample("a", str(store), {})], k=4)
    before = made.checkpoint("a", "4", "0")
    (store / "X" / "0").write_bytes(b"after it")
    assert made.checkpoint("a", "4", "0") != before


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"k": 60}, r"below 60 or quoted, found 60\."),
        ({"k": [4, 255]}, "below 60 or quoted, found 255"),
        ({"k": 255}, r'Quote a range \("4:15"\)'),
        ({"k": 1}, "^1 is "),
        ({"k": 4, "kk": 4}, "'kk' was unexpected"),
        ({"k": 4, "bin_size": "cells"}, "^'cells' "),
        ({"k": 4, "fit_options": {"output": "x"}}, "found output. Leave it out."),
        ({"k": 4, "fit_options": {"n-domains": 5}}, "in `fit_options`, found n_domains. Leave it out."),
        ({"k": 4, "fit_options": {"n_top_gene": 50}}, "in `fit_options`, found n_top_gene. Did you mean n_top_genes?"),
        ({"k": 4, "fit_options": {"Q": 50}}, "found Q. `spatialpdvi fit --help-all` lists them"),
        ({"k": 4, "fit_options": {"whiten": "no"}}, "Expected true or false for whiten in `fit_options`, found 'no'"),
        ({"k": 4, "fit_options": {"beta": "high"}}, "Expected a number for beta in `fit_options`, found 'high'"),
        ({"k": 4, "fit_options": {"beta": True}}, "Expected a number for beta in `fit_options`, found True"),
        ({"k": 4, "fit_options": {"states": False}}, "a text for states in `fit_options`, found false. Quote words li"),
        ({"k": 4, "report_options": {"output": "x"}}, "'output' was unexpected"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused(config, said):
    with pytest.raises((plan.PlanError, jsonschema.ValidationError), match=said):
        make_plan([plan.Sample("one", "a.h5ad", {})], **config)


@pytest.mark.parametrize(
    ("lines", "config", "said"),
    [
        (["sample\tpath", "one\ta.h5ad", "one\tb.h5ad"], {}, "found one twice"),
        (["sample\tpath", "../one\ta.h5ad"], {}, "does not match"),
        (["sample\tpath", "one"], {}, "found no path"),
        (["sample,path", "one,a.h5ad"], {}, "Expected columns sample and path, with tabs between them, in the first "),
        (["#sample\tpath", "one\ta.h5ad"], {}, "that does not begin with #, found 'one\\\\ta.h5ad'"),
        (["# nothing else"], {}, "each with its own name, found none"),
        (["sample\tpath\tk\tk", "one\ta.h5ad\t3\t4"], {}, "Expected every column once in .*, found k 2 times"),
        (["sample\tpath", "one\ta.h5ad\t3"], {}, "found none for '3' of"),
        (["sample\tpath\t", "one\ta.h5ad\t3"], {}, "found none for '3' of"),
        (["sample\tpath\tbta", "one\ta.h5ad\t3"], {}, "in the table, for sample one, found bta. Did you mean beta?"),
        (["sample\tpath", "one\t{a}.h5ad"], {}, "Expected a path without braces, which Snakemake fills in, found '{a}"),
        (["sample\tpath\tseed", "one\ta.h5ad\t3"], {}, "found seed. Leave it out."),
        (["sample\tpath\tk", "one\ta.h5ad\t3"], {"mode": "joint"}, "one value of k for all samples of a joint fit"),
        (
            ["sample\tpath\tlabel_key\tevaluate\tbeta", "one\ta.h5ad\tlayer\tfalse\t0.5"],
            {"mode": "joint"},
            "one value of beta for all samples of a joint fit, found one for one in the table",
        ),
        (["sample\tpath", "one\ta.zarr"], {"mode": "joint"}, "Expected files for a joint fit, found the store"),
        (
            ["sample\tpath\tkey_added", "one\ta.h5ad\t", "two\tb.h5ad\tdom"],
            {},
            "one value of key_added for all samples of a report, found 'none' and 'dom'",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path, lines, config, said):
    path = tmp_path / "samples.tsv"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises((plan.PlanError, jsonschema.ValidationError), match=said):
        make_plan(plan.read_samples(str(path)), k=4, **config)


def test_a_table_as_spreadsheets_write_it_is_read(tmp_path):
    path = tmp_path / "samples.tsv"
    path.write_text("sample\tpath\tk\t\none\ta.h5ad\t4.0\t\n", encoding="utf-8-sig")
    assert plan.read_samples(str(path)) == [plan.Sample("one", "a.h5ad", {"k": 4})]


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
def test_a_table_in_another_encoding_is_refused(tmp_path, encoding):
    path = tmp_path / "samples.tsv"
    path.write_text("sample\tpath\none\tMäuse.h5ad\n", encoding=encoding)
    with pytest.raises(plan.PlanError, match=r"^Expected a table in UTF-8 in .*, found another encoding\. Save it as "):
        plan.read_samples(str(path))


@pytest.mark.parametrize(
    ("column", "cell"),
    [("sample", "s 1"), ("sample", "joint"), ("k", "4.5"), ("k", "²"), ("seeds", "a"), ("evaluate", "no")],
)
def test_a_cell_that_the_schema_refuses_is_named(tmp_path, column, cell):
    path, cells = tmp_path / "samples.tsv", {"sample": "one", "path": "a.h5ad"} | {column: cell}
    path.write_text("\t".join(cells) + "\n" + "\t".join(cells.values()) + "\n")
    (sample,) = plan.read_samples(str(path))
    row = {"sample": sample.name, "path": sample.path, **sample.own}
    with pytest.raises(jsonschema.ValidationError) as caught:
        check(row, "samples")
    assert caught.value.absolute_path[0] == column
    said = str(plan.unusable("samples.tsv", sample, column, row[column]))
    assert said.endswith(f"as {column} of sample {sample.name!r} in 'samples.tsv', found {row[column]!r}.")


def test_a_report_finds_what_the_fits_wrote_under_their_own_key():
    samples = [plan.Sample("one", "a.h5ad", {}), plan.Sample("two", "b.h5ad", {"memory": "1GB"})]
    made = make_plan(
        samples,
        k=4,
        fit_options={"key-added": "dom", "memory": "2GB"},
        report_options={"gene_key": "a b", "markers": False},
    )
    assert made.report_flags() == "--key-added dom --memory 2GB --gene-key 'a b' --no-markers"
    assert make_plan(samples, k=4).report_flags() == ""


def test_fitted_files_leave_out_the_counts_and_a_report_reads_them_from_the_sections():
    samples = [
        plan.Sample("one", "a b.h5ad", {"k": [3, 4]}),
        plan.Sample("raw", "x.gef", {}),
        plan.Sample("store", "s.zarr", {"table": "cells"}),
    ]
    made = make_plan(samples, k=4)
    assert made.fit_flags("one", "3", "0") == "--k 3 --seed 0 --slim"
    assert made.counts("report") == ["a b.h5ad", "results/inputs/raw.h5ad", "s.zarr"]
    named = "--counts 'a b.h5ad' --counts 'a b.h5ad' --counts results/inputs/raw.h5ad --counts s.zarr/tables/cells"
    assert made.counts_flags("report") == named
    assert len(made.pages()["report"]) == named.count("--counts")
    for changed in ({"slim": False}, {"report_options": {"markers": False}}):
        made = make_plan(samples, k=4, **changed)
        assert (made.counts("report"), made.counts_flags("report")) == ([], "")
    assert make_plan(samples, k=4, slim=False).fit_flags("one", "3", "0") == "--k 3 --seed 0"
    joint = make_plan([plan.Sample("one", "a.h5ad", {}), samples[1]], k=[4, 5], mode="joint")
    assert joint.counts("report_k5") == ["results/inputs/one.h5ad", "results/inputs/raw.h5ad"]


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_what_a_sequencer_wrote_has_no_labels_to_be_scored_against(mode):
    samples = [plan.Sample("raw", "a.gem.gz", {}), plan.Sample("one", "b.h5ad", {})]
    made = make_plan(samples, mode=mode, k=4, label_key="layer")
    assert {found.sample for found in made.evaluated()} == {"one"}
    assert [made.fit_flags(name, "4", "0").count("--label-key") for name in made.samples] == [0, mode == "separate"]
    assert [made.plot_flags(name).count("--label-key layer") for name in made.samples] == [0, 1]
    asked = [plan.Sample("raw", "a.gef", {"evaluate": True, "label_key": "layer"})]
    assert [found.sample for found in make_plan(asked, k=4).evaluated()] == ["raw"]


def test_a_row_of_the_table_overrides_the_options_of_the_config():
    samples = [plan.Sample("one", "a.h5ad", {"beta": 0.5, "memory": "1GB"}), plan.Sample("two", "b.h5ad", {})]
    made = make_plan(samples, k=4, fit_options={"beta": 2.0, "tau": 3.0}, slim=False)
    assert made.fit_flags("one", "4-15", "7") == "--k 4:15 --seed 7 --beta 0.5 --tau 3.0 --memory 1GB"
    assert made.fit_flags("two", "auto", "7") == "--k auto --seed 7 --beta 2.0 --tau 3.0"


def test_an_estimate_has_the_largest_number_of_domains_and_the_options_that_it_knows():
    sample = plan.Sample("one", "a.h5ad", {"table": "cells", "beta": 0.5, "n_pcs": 20})
    made = make_plan([sample], k=["4:15", "auto", 7], label_key="layer", fit_options={"max-epochs": 9, "whiten": False})
    words = "--max-epochs 9 --n-pcs 20 --label-key layer --table cells"
    assert [made.estimate_flags("one", k) for k in made.ks("one")] == [f"--k {k} {words}" for k in (15, 30, 7)]
    published = make_plan([sample], k=4, fit_options={"preset": "paper"})
    assert published.estimate_flags("one", "4") == "--k 4 --preset paper --n-pcs 20 --table cells"


@pytest.mark.parametrize("mode", ["separate", "joint"])
def test_the_memory_of_a_fit_is_that_of_all_its_sections_and_more_at_each_attempt(tmp_path, mode):
    samples = [plan.Sample(name, f"{name}.h5ad", {}) for name in ("one", "two")]
    made = make_plan(samples, k=4, mode=mode)
    assert made.estimates(["one", "two"], "4") == ["results/estimates/one_k4.json", "results/estimates/two_k4.json"]
    paths = [tmp_path / f"{peak}.json" for peak in (1, 2)]
    for path in paths:
        path.write_text(json.dumps({"peak_memory_bytes": int(path.stem) * 1_000_000_000}))
    assert [made.memory_mb([str(path) for path in paths], attempt) for attempt in (1, 3)] == [4400, 13200]
    without = make_plan(samples, k=4, mode=mode, estimate=False, mem_mb=700)
    assert (without.estimates(["one"], "4"), without.memory_mb([], 2)) == ([], 1400)


def test_scores_and_pictures_are_of_the_columns_of_the_fit():
    made = make_plan(
        [plan.Sample("one", "a.h5ad", {"label_key": "layer"}), plan.Sample("two", "b.h5ad", {})],
        k=4,
        fit_options={"key-added": "dom", "spatial_key": "x,y"},
        dpi=60,
    )
    assert made.evaluate_flags("one") == "--label-key layer --spatial-key x,y --domain-key dom_domain"
    assert made.plot_flags("one") == "--label-key layer --key-added dom --spatial-key x,y --dpi 60"
    plain = make_plan([plan.Sample("one", "a.h5ad", {})], k=4)
    assert (plain.evaluate_flags("one"), plain.plot_flags("one")) == ("", "--dpi 150")


@pytest.mark.parametrize(
    ("path", "own", "raw", "words"),
    [
        ("x.gef", {}, True, "--bin 30"),
        ("x.gem.gz", {"bin_size": 20}, True, "--bin 20"),
        ("x.gem", {"bin_size": "cell"}, True, "--cell-bin"),
        ("outs", {}, True, ""),
        ("outs/", {"bin_size": 8}, True, "--bin 8"),
        ("s.zarr", {}, False, None),
        ("a.h5ad", {}, False, None),
    ],
)
def test_what_a_sequencer_wrote_is_binned_before_the_fit(tmp_path, monkeypatch, path, own, raw, words):
    monkeypatch.chdir(tmp_path)
    for folder in ("outs", "s.zarr"):
        (tmp_path / folder).mkdir()
    made = make_plan([plan.Sample("one", path, own)], k=4, bin_size=30)
    assert made.samples["one"].is_raw == raw
    assert made.source("one") == ("results/inputs/one.h5ad" if raw else path)
    if raw:
        assert made.bin_flags("one") == words


def test_all_files_of_a_run_are_asked_for():
    samples = [plan.Sample("one", "a.h5ad", {"seeds": [8, 9]}), plan.Sample("two", "b.h5ad", {"evaluate": False})]
    made = make_plan(samples, k="2:3", seeds=[5], plot_format="svg")
    one, two = [f"results/one/one_k2-3_seed{seed}" for seed in (8, 9)], "results/two/two_k2-3_seed5"
    assert made.targets() == [
        *(f"{stem}.h5ad" for stem in (*one, two)),
        "results/summary.tsv",
        *(f"{stem}.scores.json" for stem in one),
        *(f"{stem}.svg" for stem in (*one, two)),
        "results/report.html",
    ]
    assert made.pages() == {"report": [f"{one[0]}.h5ad", f"{two}.h5ad"]}  # the first seed of each sample
    scores = [f"{stem}.scores.json" for stem in one]
    assert [(row["report"], row["scores"]) for row in made.rows()] == [
        *((f"{stem}.fit.json", score) for stem, score in zip(one, scores, strict=True)),
        (f"{two}.fit.json", None),
    ]
    steps = dict.fromkeys(("evaluate", "plot", "report"), False)
    assert make_plan(samples[1:], k=2, **steps).targets() == ["results/two/two_k2_seed0.h5ad", "results/summary.tsv"]


def _row(tmp_path, seed, ari, *, k="4", chosen=4):
    report, scores = tmp_path / f"fit{k}{seed}.json", tmp_path / f"scores{k}{seed}.json"
    certificate = {"converged": seed != 1, "neg_elbo": -100.0 * (seed + 1)}
    report.write_text(json.dumps({"domain_sizes": [1] * chosen, "certificate": certificate}))
    scores.write_text(json.dumps({"scores": {"ari": ari}}))
    return {"sample": "one", "k": k, "seed": seed, "report": str(report), "scores": str(scores)}


def test_the_summary_has_mean_and_spread_over_seeds(tmp_path):
    rows = [_row(tmp_path, seed, ari) for seed, ari in enumerate([0.5, 0.6, 0.7])]
    rows += [_row(tmp_path, 0, None, k="auto", chosen=5) | {"scores": None}]
    found = summary.summarise(rows)
    assert found[0] == {
        "sample": "one",
        "k": "4",
        "k_fitted": "4",
        "n_seeds": 3,
        "n_converged": 2,
        "ari_mean": "0.6000",
        "ari_sd": "0.1000",
        "ari_min": "0.5000",
        "ari_max": "0.7000",
        "neg_elbo": "-200",
    }
    assert (found[1]["k"], found[1]["k_fitted"], found[1]["ari_mean"]) == ("auto", "5", "")


def test_labels_without_a_single_labelled_spot_have_no_ari(tmp_path):
    (found,) = summary.summarise([_row(tmp_path, 0, None)])
    assert found["ari_mean"] == found["ari_sd"] == ""


def test_the_table_has_tabs(tmp_path):
    summary.write(summary.summarise([_row(tmp_path, 0, 0.5)]), tmp_path / "t.tsv")
    header, line = (tmp_path / "t.tsv").read_text().splitlines()
    assert header.split("\t") == list(summary.COLUMNS)
    assert len(line.split("\t")) == len(summary.COLUMNS)


def test_a_part_of_a_store_that_was_written_again_in_the_same_size_has_another_checkpoint(tmp_path):
    part = tmp_path / "a.zarr" / "X" / "0"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"before")
    made = make_plan([plan.Sample("a", str(tmp_path / "a.zarr"), {})], k=4)
    before = made.checkpoint("a", "4", "0")
    later = part.stat().st_mtime_ns + 10**9
    part.write_bytes(b"after!")
    os.utime(part, ns=(later, later))
    assert made.checkpoint("a", "4", "0") != before


@pytest.mark.parametrize(("ari", "spread"), [([0.5], "0.0000"), ([0.5, 0.7], "0.1414")])
def test_two_seeds_have_a_spread_and_one_has_none(tmp_path, ari, spread):
    (found,) = summary.summarise([_row(tmp_path, seed, own) for seed, own in enumerate(ari)])
    assert found["ari_sd"] == spread
