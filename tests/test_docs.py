"""The documents say what the code does: options, keys, equation numbers."""

import importlib.util
import json
import re
from dataclasses import MISSING, fields
from difflib import unified_diff
from pathlib import Path

import anndata
import click
import numpy as np
import pandas as pd
import pytest
from documented import PAGE

from spatialpdvi import FitOptions
from spatialpdvi.cli import main
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.options.stages import default_n_neighbors, default_n_patches
from spatialpdvi.options.states import search_rounds
from spatialpdvi.solvers import SolverSettings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def test_the_page_of_commands_is_their_help():
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    make_cli = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_cli)
    written = (DOCS / "cli.md").read_text(encoding="utf-8").splitlines()
    stale = "\n".join(unified_diff(written, make_cli.render().splitlines(), lineterm="", n=0))
    assert not stale, f"{stale}\nrun `python docs/make_cli.py`"


@pytest.mark.parametrize("command", main.commands)
def test_every_option_has_help_with_its_default(command):
    for parameter in main.commands[command].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            ends = not parameter.expose_value  # --help-all prints something and has no value
            told = ends or parameter.required or parameter.show_default or "Default: " in parameter.help
            assert told, f"{parameter.name} does not say its default"


@pytest.mark.parametrize("command", main.commands)
def test_every_option_is_on_the_page_of_commands(command):
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## spatialpdvi {command}\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    shown = {
        flag
        for line in re.findall(r"^  (-[^\n]*)", section, flags=re.MULTILINE)
        for flag in re.findall(r"(?:^|(?<=, )|(?<=/ ))--?[a-z][a-z-]*", line.split("  ")[0])
    }
    options = [one for one in main.commands[command].params if isinstance(one, click.Option)]
    assert [one.name for one in options if one.hidden] == []
    assert shown == {flag for one in options for flag in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}


def test_the_table_of_keys_has_all_of_them_and_no_other():
    # that a fit writes no other either is held against real files in cli/test_scriptable.py
    table = PAGE[: PAGE.index("\n`uns['pdvi']`:")]
    rows = re.findall(r"^\| (.*?) \|", table, flags=re.MULTILINE)
    written = set(re.findall(r"`(\w+)\['(\w+)'\]`", " ".join(rows)))
    assert written == set(Keys().all_pairs())


def test_every_field_of_the_certificate_is_documented():
    from spatialpdvi.fitting.certificate import Certificate

    page = (DOCS / "outputs.md").read_text()
    assert [name for name in Certificate.__dataclass_fields__ if f"`{name}`" not in page] == []


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.ipynb")))
def test_notebooks_are_kept_without_what_they_show(page):
    # the build of the documents runs them
    cells = json.loads((DOCS / page).read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []


def test_equation_numbers_match():
    in_code = {
        tag
        for path in (ROOT / "spatialpdvi").rglob("*.py")
        for group in re.findall(r"\(([ECU]\d+(?:, [ECU]\d+)*)\)", path.read_text())
        for tag in group.split(", ")
    }
    page = (DOCS / "math.md").read_text()
    defined = re.findall(r"\\tag\{([ECU]\d+)\}$", page, flags=re.MULTILINE)
    assert len(defined) == len(set(defined))
    numbers = {"E": 15, "C": 14, "U": 5}
    assert in_code == set(defined) == {f"{letter}{i + 1}" for letter, n in numbers.items() for i in range(n)}


PAGES = ["README.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in DOCS.glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert ((ROOT / page).parent / target).exists(), target


# programs with options of their own
_OTHERS = ("pip install", "benchmarks", "snakemake", "dask scheduler", "dask worker", "rattler-build", "docker")


def test_options_in_the_documents_exist():
    page = (DOCS / "cli.md").read_text()
    ours = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
    for path in map(ROOT.joinpath, PAGES):
        lines = path.read_text().splitlines()
        text = "\n".join(line for line in lines if not any(program in line for program in _OTHERS))
        unknown = [flag for flag in ours.findall(text) if flag not in page]
        assert unknown == [], path.name


def _fit_defaults_on_the_page():
    """Name and stated default of every option of `fit`, read from docs/cli.md."""
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## spatialpdvi fit\n(.*?)(?=^## )", page, flags=re.DOTALL | re.MULTILINE)
    entries = re.split(r"^  (?=-)", section, flags=re.MULTILINE)[1:]
    for entry in entries:
        text = " ".join(entry.split("\n\n")[0].split())
        (name,) = re.findall(r"^(?:-\w, )?--([a-z-]+)", text)
        stated = re.findall(r"\[default: (.*?)\]|Default: (.+?)(?:$|[.,;:](?= |$)| for )", text)
        yield name.replace("-", "_"), ["".join(one) for one in stated]


def _value(stated):
    """The value that a stated default means; words such as "the only one" mean that nothing is set."""
    if stated in {"on", "off"}:
        return stated == "on"
    try:
        return float(stated)
    except ValueError:
        return None


def test_the_defaults_on_the_page_are_those_of_a_fit():
    stated = dict(_fit_defaults_on_the_page())
    options = FitOptions(k=2)
    solver = SolverSettings()
    # options that are None until something else decides: what decides, where the page states a number
    decided = {name: getattr(solver, name) for name in ("batch_patches", "inner_rounds", "step_factor")}
    decided |= {"n_pcs": options.components_of(2), "n_patches": default_n_patches(150_000)}
    decided["n_neighbors"] = default_n_neighbors()
    decided["search"] = search_rounds(options.search, 10_000)
    for field in fields(FitOptions):
        if field.default is MISSING:
            assert stated[field.name] == [], field.name
            continue
        (found,) = stated[field.name]
        value = getattr(options, field.name)
        if isinstance(value, str):
            assert found == value, field.name
        else:
            assert _value(found) == decided.get(field.name, value), field.name


def test_a_matrix_and_a_table_of_places_become_a_section(tmp_path, monkeypatch):
    spots = [f"spot{i}" for i in range(6)]
    counts = np.arange(18).reshape(6, 3)
    pd.DataFrame(counts, spots, ["a", "b", "c"]).to_csv(tmp_path / "counts.csv")
    pd.DataFrame({"x": range(6), "y": 1.5}, spots).iloc[::-1].to_csv(tmp_path / "places.csv")
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "input.md").read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "input.md", "exec"), {})
    written = anndata.read_h5ad("slice.h5ad")
    np.testing.assert_array_equal(written.X, counts)
    np.testing.assert_array_equal(written.obsm["spatial"], np.column_stack([np.arange(6), np.full(6, 1.5)]))
