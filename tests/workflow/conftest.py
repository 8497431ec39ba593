"""The workflow run by the real snakemake, with the spatialpdvi of these tests on the PATH."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from conftest import PROGRAM

ROOT = Path(__file__).parents[2]
WORKFLOWS = ROOT / "workflows"


def _snakemake():
    if importlib.util.find_spec("snakemake") is not None:
        return [sys.executable, "-m", "snakemake"]
    found = shutil.which("snakemake")
    return None if found is None else [found]


class Runner(NamedTuple):
    """Runs snakemake in a folder."""

    command: list[str]
    environment: dict[str, str]

    def start(self, folder, *arguments, **changes):
        command = [*self.command, "--cores", "2", *map(str, arguments)]
        return subprocess.Popen(
            command,
            cwd=folder,
            env=self.environment | changes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, folder, *arguments, code=0, snakefile=WORKFLOWS / "Snakefile"):
        process = self.start(folder, "--snakefile", snakefile, *arguments)
        said, _ = process.communicate(timeout=600)
        assert process.returncode == code, said
        return said

    def jobs(self, folder, *arguments):
        """How many jobs of each rule a run would have."""
        said = self(folder, "--dry-run", *arguments)
        lines = iter(said.splitlines())
        for line in lines:
            if line.split() == ["job", "count"]:
                break
        else:
            assert "Nothing to be done" in said, said
            return {}
        next(lines)
        return {words[0]: int(words[1]) for words in map(str.split, _until_blank(lines)) if words[0] != "total"}


def _until_blank(lines):
    for line in lines:
        if not line.strip():
            return
        yield line


@pytest.fixture(scope="session")
def snakemake(tmp_path_factory):
    command = _snakemake()
    if command is None:
        pytest.skip("snakemake is not here: pip install 'spatialpdvi[workflow]'")
    folder = tmp_path_factory.mktemp("bin")
    ours = folder / "spatialpdvi"
    # $$ is the fit's own number: a test kills it as a cluster would
    note = 'if [ -n "$PID_FILE" ]; then echo $$ > "$PID_FILE"; fi'
    program = folder / "program.py"
    program.write_text(PROGRAM)
    ours.write_text(f'#!/bin/sh\n{note}\nexec "{sys.executable}" "{program}" "$@"\n')
    ours.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
    }
    return Runner(command, environment)


@pytest.fixture(scope="session")
def snakemake_help(snakemake, tmp_path_factory):
    return snakemake(tmp_path_factory.mktemp("help"), "--help")


@pytest.fixture
def project(toy_section, tmp_path):
    return Project(tmp_path, toy_section)


class Project:
    """A folder with two sections of one name, and what writes config and samples for them."""

    def __init__(self, folder, section):
        self.folder = folder
        for name in ("a", "b", "config"):
            (folder / name).mkdir()
        for name in "ab":
            section.write_h5ad(folder / name / "section.h5ad")
        self.samples("sample\tpath", "one\ta/section.h5ad", "two\tb/section.h5ad")
        self.config()

    def config(self, **changed):
        steps = dict.fromkeys(("estimate", "evaluate", "plot", "report"), False)
        content = {"k": 4, **steps, "fit_options": {"n_init": 1}} | changed
        (self.folder / "config" / "config.yaml").write_text(yaml.safe_dump(content))

    def samples(self, *lines):
        (self.folder / "config" / "samples.tsv").write_text("\n".join(lines) + "\n")

    def __truediv__(self, name):
        return self.folder / name


def from_conda(lines):
    """Requirements of conda, in the names and the form of pyproject.toml."""
    names = {"matplotlib-base": "matplotlib", "python-isal": "isal"}
    for conda, name in names.items():
        lines = [line.replace(conda, name) for line in lines]
    return {line.replace(" ", "") for line in lines}
