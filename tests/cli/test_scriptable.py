"""Every command in a script: JSON as its schema says, nothing printed with --quiet, no questions, documented codes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import anndata
import click
import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner
from documented import PAGE, named, part, undocumented
from referencing import Registry, Resource

from spatialpdvi.cli import main
from spatialpdvi.fitting.certificate import Certificate

pytestmark = pytest.mark.cli

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "schemas"
LATER = {"bin", "report"}  # tested where they are made


def _run(*arguments, code=0):
    # nothing to read from: a question would fail
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input="")
    assert result.exit_code == code, result.output
    return result


def _registry():
    resources = [(path.name, Resource.from_contents(json.loads(path.read_text()))) for path in SCHEMAS.glob("*.json")]
    return Registry().with_resources(resources)


def _errors(content, name):
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema, registry=_registry())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]


def _properties(name):
    return set(json.loads((SCHEMAS / f"{name}.schema.json").read_text())["properties"])


def _read(path):
    return json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.fixture(scope="module")
def files(toy_section, tmp_path_factory):
    """A section, one without labels, and what each command writes of them."""
    folder = tmp_path_factory.mktemp("outputs")
    section = toy_section.copy()
    x, y = (section.obsm["spatial"] > np.median(section.obsm["spatial"], axis=0)).T
    section.obs["half"], section.obs["quarter"] = x.astype(str), (2 * x + y).astype(str)
    section.write_h5ad(folder / "a.h5ad")
    bare = section.copy()
    del bare.obs["annotation"]
    bare.write_h5ad(folder / "b.h5ad")
    return folder


FAST = ["--k", 4, "--n-init", 1]
GRAPH = ["--save-graph"]
MADE = {
    "fit": ["fit", "a.h5ad", *FAST, *GRAPH, "-o", "out.h5ad", "--report", "fit.json", "--save-model", "model.npz"],
    "fit without labels": ["fit", "b.h5ad", *FAST, "--rep", "X_pca", "-o", "bare.h5ad", "--report", "bare.json"],
    "fit auto": ["fit", "a.h5ad", "--k", "3:4", "-o", "auto.h5ad", "--json", "auto.json"],
    "predict": ["predict", "a.h5ad", "--model", "model.npz", "-o", "predicted.h5ad", "--json", "predict.json"],
    "transfer": ["transfer", "out.h5ad", "--to", "b.h5ad", "-o", "carried.h5ad"],
    "evaluate": ["evaluate", "out.h5ad", "--json", "evaluate.json"],
    "estimate": ["estimate", "a.h5ad", "--k", 4, "--json", "estimate.json"],
    "compare": ["compare", "a.h5ad", *FAST, "--solvers", "p2dvi,adam", "--seeds", 2, "--tune-epochs", 2, "-o", "all"],
    "markers": ["markers", "out.h5ad", "--store", "-o", "markers.csv"],
    "describe": [
        *("describe", "out.h5ad", "--by", "annotation", "--sample-key", "quarter", "--condition", "half"),
        *("--n-perms", 20, "--n-genes", 5, "--store", "-o", "domains"),
    ],
    "intervals": ["intervals", "out.h5ad", "-n", 1, "--store", "-o", "intervals"],
    "label rename": ["label", "rename", "out.h5ad", "--from", "annotation", "-o", "named.h5ad"],
    "label merge": ["label", "merge", "out.h5ad", "-d", "0", "-d", "1", "-o", "edited.h5ad"],
    "label levels": ["label", "levels", "edited.h5ad", "--levels", "2"],
    "plot": ["plot", "out.h5ad", "--dpi", 40, "-o", "out.png"],
    "simulate": ["simulate", "new.h5ad", "--n-spots", 200, "--n-genes", 30, "--k", 3],
}


@pytest.fixture(scope="module")
def said(files):
    """What each command printed, run with --quiet in this order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        return {name: _run(*arguments, "--quiet") for name, arguments in MADE.items()}


def test_all_commands_are_here():
    assert {arguments[0] for arguments in MADE.values()} == set(main.commands) - LATER


@pytest.mark.parametrize("name", MADE)
def test_quiet_prints_nothing_of_a_good_run(said, name):
    assert said[name].stdout == ""
    assert said[name].stderr == ""


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("fit.json", "fit"),
        ("bare.json", "fit"),
        ("auto.json", "fit"),
        ("predict.json", "fit"),
        ("evaluate.json", "evaluate"),
        ("estimate.json", "estimate"),
        ("all/compare.json", "compare"),
        ("domains/describe.json", "describe"),
    ],
)
def test_json_is_what_its_schema_says_and_the_schema_names_every_key(said, files, file, schema):
    content = _read(files / file)
    assert _errors(content, schema) == []
    assert set(content) <= _properties(schema)


@pytest.mark.parametrize(
    "file", ["out.h5ad", "bare.h5ad", "auto.h5ad", "predicted.h5ad", "carried.h5ad", "edited.h5ad"]
)
def test_every_key_of_a_section_is_documented(said, files, file):
    before, after = anndata.read_h5ad(files / "a.h5ad"), anndata.read_h5ad(files / file)
    groups = ("obs", "var", "obsm", "varm", "obsp", "varp", "layers", "uns")
    new = [(group, key) for group in groups for key in set(getattr(after, group)) - set(getattr(before, group))]
    assert len(new) >= 8
    # the page has the names of coarser domains for four of them
    written = [f"{group}['{key.replace('_L2', '_L4')}']" for group, key in new]
    assert [name for name in written if name not in named()] == []
    assert (
        undocumented([after.uns[key] for group, key in new if group == "uns" and isinstance(after.uns[key], dict)])
        == []
    )


def test_every_key_of_a_model_is_documented(said, files):
    with np.load(files / "model.npz") as model:
        kept = dict(model)
    text = part("The file of `--save-model`")
    assert undocumented(dict.fromkeys(kept), text) == []
    facts = json.loads(kept["facts"].item())
    assert undocumented({key: facts[key] for key in facts if key != "options"}, text) == []
    assert undocumented({"params": facts["options"]}, text) == ["params"]


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("fit.json", PAGE),
        ("auto.json", PAGE),
        ("predict.json", PAGE),
        ("evaluate.json", PAGE),
        ("estimate.json", part("The JSON of `spatialpdvi estimate --json`")),
        ("all/compare.json", part("The folder of `spatialpdvi compare`")),
        ("domains/describe.json", part("The description of domains")),
    ],
)
def test_every_key_of_the_json_is_documented(said, files, file, where):
    assert undocumented(_read(files / file), where) == []


def test_every_column_of_the_markers_is_documented(said, files):
    columns = (files / "markers.csv").read_text().splitlines()[0].split(",")
    assert undocumented(dict.fromkeys(columns), part("Marker genes")) == []


def test_a_joint_fit_is_in_the_schema_too(toy_section, tmp_path):
    for name in "ab":
        toy_section.write_h5ad(tmp_path / f"{name}.h5ad")
    (tmp_path / "out").mkdir()
    _run(
        "fit",
        tmp_path / "a.h5ad",
        tmp_path / "b.h5ad",
        *FAST,
        "--states",
        6,
        "--search",
        0,
        "-o",
        tmp_path / "out",
        "--report",
        tmp_path / "j.json",
    )
    assert _errors(_read(tmp_path / "j.json"), "fit") == []
    assert undocumented(_read(tmp_path / "j.json")) == []


@pytest.mark.parametrize(
    ("file", "schema", "path", "wrong"),
    [
        ("fit.json", "fit", ("certificate", "converged"), "yes"),
        ("fit.json", "fit", ("scores", "chaos"), "x"),
        ("fit.json", "fit", ("scores", "baseline", "pas"), "low"),
        ("evaluate.json", "evaluate", ("scores", "n_scored"), -1),
        ("estimate.json", "estimate", ("reading",), "somehow"),
        ("all/compare.json", "compare", ("table", 0, "n_runs"), 1.5),
        ("domains/describe.json", "describe", ("contacts", 0, "contacts"), -1),
        ("domains/describe.json", "describe", ("differences", 0, "p"), 2),
        ("all/compare.json", "compare", ("runs", 0, "trace", "epoch"), 7),
    ],
)
def test_the_schemas_refuse_what_is_wrong(said, files, file, schema, path, wrong):
    content = _read(files / file)
    place = content
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    assert len(_errors(content, schema)) == 1
    del place[path[-1]]
    assert len(_errors(content, schema)) == 1


def test_the_schema_of_the_certificate_names_all_its_fields():
    assert _properties("certificate") == set(Certificate.__dataclass_fields__)


@pytest.mark.parametrize("command", main.commands)
def test_no_command_asks_questions(command):
    options = [parameter for parameter in main.commands[command].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if option.prompt or option.confirmation_prompt] == []


def test_json_of_a_section_whose_labels_are_all_missing(files, tmp_path):
    """Its calibration was an empty object, where the schema requires an error."""
    section = anndata.read_h5ad(files / "a.h5ad")
    section.obs["annotation"] = np.full(section.n_obs, np.nan)
    section.write_h5ad(tmp_path / "a.h5ad")
    fit = _run("fit", tmp_path / "a.h5ad", *FAST, "--json", tmp_path / "fit.json")
    assert "has no label at all" in fit.stderr
    content = _read(tmp_path / "fit.json")
    assert _errors(content, "fit") == []
    assert "calibration" not in content["scores"]


def test_nothing_reads_from_the_terminal():
    asking = re.compile(r"\bclick\.(confirm|prompt|getchar|pause)\b|(?<![\w.])input\(|sys\.stdin")
    assert [path.name for path in (ROOT / "spatialpdvi").rglob("*.py") if asking.search(path.read_text())] == []


@pytest.mark.parametrize("command", main.commands)
def test_the_exit_codes_of_every_command_are_documented(command):
    page = (ROOT / "docs" / "pipelines.md").read_text().partition("## Any other script")[2]
    (row,) = [line for line in page.splitlines() if line.startswith(f"| `{command}` |")]
    codes = {int(code) for code in re.findall(r"\b(\d+)\b", row.split("|")[2])}
    assert {0, 1, 2, 130, 143} <= codes
    assert (3 in codes) == (command in {"fit", "predict"})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("buffered", [True, False])
def test_a_full_disk_below_stdout_is_one_sentence(tmp_path, buffered):
    command = [sys.executable, "-m", "spatialpdvi"] if buffered else [sys.executable, "-u", "-m", "spatialpdvi"]
    arguments = ["simulate", tmp_path / "a.h5ad", "--n-spots", "50", "--n-genes", "20", "--k", "2"]
    free = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, env=free)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1] == (
        "Error: There is no space left on the disk for what this command prints. The files that it writes were written "
        "before. Free some space, or use --quiet."
    )
    assert anndata.read_h5ad(tmp_path / "a.h5ad").n_obs == 50
