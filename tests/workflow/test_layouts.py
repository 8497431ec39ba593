"""The wrapper, the nf-core module, environments and profiles: whole, and in step with the command line."""

import re
import shutil
import tomllib

import anndata
import click
import pytest
import yaml
from workflow.conftest import ROOT, WORKFLOWS, from_conda

from spatialpdvi.cli import main

pytestmark = pytest.mark.skipif(not WORKFLOWS.exists(), reason="the workflow is not part of this copy")

WRAPPER = WORKFLOWS / "wrapper"
MODULE = WORKFLOWS / "nf-core" / "modules" / "spatialpdvi" / "fit"
ENVIRONMENTS = [WORKFLOWS / "environment.yaml", WRAPPER / "environment.yaml", MODULE / "environment.yml"]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def flags_of(command):
    parameters = main.commands[command].params
    return {flag for p in parameters if isinstance(p, click.Option) for flag in (*p.opts, *p.secondary_opts)}


@pytest.mark.parametrize("path", [WRAPPER / "wrapper.py", WRAPPER / "test" / "Snakefile", MODULE / "main.nf"])
def test_every_option_in_wrapper_and_module_is_one_of_fit(path):
    text = path.read_text().replace("spatialpdvi --version", "")
    found = set(FLAG.findall(text))
    assert found
    assert found <= flags_of("fit")


@pytest.mark.parametrize("path", sorted((WORKFLOWS / "rules").glob("*.smk")), ids=lambda path: path.name)
def test_every_command_and_option_in_the_rules_exists(path):
    for name, words in re.findall(r'"spatialpdvi (\w+) (.*?)> \{log:q\}', path.read_text(), flags=re.DOTALL):
        if name not in main.commands:
            pytest.skip(f"spatialpdvi {name} is not part of this copy")
        assert set(FLAG.findall(words)) <= flags_of(name)


def test_the_module_of_another_workflow_has_the_options_of_nextflow_config():
    text = (MODULE / "tests" / "nextflow.config").read_text()
    assert set(FLAG.findall(text)) <= flags_of("fit")


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.parent.name)
def test_environments_are_the_packages_own_dependencies(path):
    content = yaml.safe_load(path.read_text())
    assert content["channels"] == ["conda-forge", "nodefaults"]
    there = from_conda(content["dependencies"][:-2])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert there == {f"python{project['requires-python']}", *project["dependencies"]}
    assert content["dependencies"][-2:] == ["pip", {"pip": ["spatialpdvi"]}]


def test_the_wrapper_describes_itself():
    meta = yaml.safe_load((WRAPPER / "meta.yaml").read_text())
    assert {"name", "description", "url", "authors", "input", "output", "params"} <= set(meta)
    described = {name for part in ("input", "output", "params") for entry in meta[part] for name in entry}
    used = set(
        re.findall(r'snakemake\.(?:input|output|params)\.(?:get\("(\w+)"|(\w+))', (WRAPPER / "wrapper.py").read_text())
    )
    assert described == {name for pair in used for name in pair if name and name != "get"}


@pytest.mark.cli
def test_the_wrapper_runs_as_upstream_runs_its_own(snakemake, tmp_path):
    place = tmp_path / "wrappers" / "master" / "bio" / "spatialpdvi" / "fit"
    shutil.copytree(WRAPPER, place)
    work = tmp_path / "work"
    work.mkdir()
    shutil.copy(ROOT / "data" / "embryo.h5ad", work / "a.h5ad")
    prefix = f"file://{tmp_path / 'wrappers'}/"
    said = snakemake(work, "--wrapper-prefix", prefix, "domains/a.h5ad", snakefile=place / "test" / "Snakefile")
    assert "1 of 1 steps (100%) done" in said
    assert anndata.read_h5ad(work / "domains" / "a.h5ad").obs["pdvi_domain"].nunique() == 8
    assert (work / "domains" / "a.json").exists()
    assert "Converged" in (work / "logs" / "a.log").read_text()


def test_the_module_describes_its_inputs_and_outputs():
    meta = yaml.safe_load((MODULE / "meta.yml").read_text())
    text = (MODULE / "main.nf").read_text()
    assert meta["name"] == "spatialpdvi_fit"
    assert f"process {meta['name'].upper()} {{" in text
    inputs = text.partition("input:")[2].partition("output:")[0]
    named = [next(iter(entry)) for entry in (*meta["input"][0], meta["input"][1])]
    assert re.findall(r"(?:val|path)[ (]+(\w+)", inputs) == named
    outputs = text.partition("output:")[2].partition("when:")[0]
    assert re.findall(r"emit: (\w+)", outputs) == list(meta["output"])
    for name, entries in meta["output"].items():
        pattern = next(iter(entries[0][1] if isinstance(entries[0], list) else entries[0]))
        assert f'"{pattern}"' in next(line for line in outputs.splitlines() if f"emit: {name}" in line)


def test_the_modules_scripts_are_balanced_and_its_test_names_it():
    for path in (MODULE / "main.nf", MODULE / "tests" / "main.nf.test", MODULE / "tests" / "nextflow.config"):
        text = path.read_text()
        assert text.count("{") == text.count("}"), path
        assert text.count('"""') % 2 == 0, path
    test = (MODULE / "tests" / "main.nf.test").read_text()
    assert 'process "SPATIALPDVI_FIT"' in test
    assert 'script "../main.nf"' in test
    assert (MODULE / "tests" / "nextflow.config").exists()


@pytest.mark.parametrize("name", ["local", "slurm"])
def test_profiles_have_options_of_snakemake_alone(name, snakemake_help):
    profile = yaml.safe_load((WORKFLOWS / "profiles" / name / "config.yaml").read_text())
    assert [key for key in profile if f"--{key}" not in snakemake_help] == []
