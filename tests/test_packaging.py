"""What a release consists of agrees: versions, metadata, changes, workflows, recipe, image and citation."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from workflow.conftest import from_conda

from spatialpdvi import __version__

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
RECIPE = yaml.safe_load((ROOT / "workflows" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "workflows" / "container" / "Dockerfile").read_text(encoding="utf-8")
READ_THE_DOCS = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text(encoding="utf-8"))
TEST, DOCS, RELEASE = (
    yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))
    for name in ("test", "docs", "release")
)
TESTED = TEST["jobs"]["test"]["strategy"]["matrix"]["python"]
# a section of the changes is "[Unreleased]", "[0.2.0] - 2026-11-23", or the one before the first release
HEADINGS = re.findall(r"^## (.*)$", CHANGELOG, flags=re.MULTILINE)


def test_every_file_says_the_version_of_the_last_release():
    newest = re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", HEADINGS[1])
    assert (CITATION["version"], CITATION["date-released"]) == newest.groups()
    assert RECIPE["context"]["version"] == newest.group(1)
    in_methods = re.findall(r"spatialpdvi (\d+\.\d+\.\d+)", (ROOT / "docs" / "citing.md").read_text(encoding="utf-8"))
    assert in_methods == [newest.group(1)]


def test_the_package_says_the_next_version_from_the_first_change_on():
    newest = re.match(r"\[(\d+)\.(\d+)\.(\d+)\]", HEADINGS[1]).groups()
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)^## ", CHANGELOG, flags=re.MULTILINE | re.DOTALL)[1].strip()
    own = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(\.dev0)?", __version__)
    assert (own[4] is not None) == bool(unreleased)
    numbers = tuple(map(int, own.groups()[:3]))
    assert (numbers > tuple(map(int, newest))) if unreleased else (own.groups()[:3] == newest)


def test_the_changes_keep_the_format():
    assert HEADINGS[0] == "[Unreleased]"
    assert HEADINGS[-1] == "0.1.0 (development version)"
    releases = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", heading) for heading in HEADINGS[1:-1]]
    versions = [tuple(map(int, release.groups())) for release in releases]
    assert versions == sorted(set(versions), reverse=True)
    kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
    for section in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]:
        found = re.findall(r"^### (.*)$", section, flags=re.MULTILINE)
        assert found == [kind for kind in kinds if kind in found]
    named = re.findall(r"^## (\[.*?\])", CHANGELOG, flags=re.MULTILINE)
    assert re.findall(r"^(\[.*?\]): https://", CHANGELOG, flags=re.MULTILINE) == named


def test_the_page_of_changes_is_the_changelog():
    page = (ROOT / "docs" / "changes.md").read_text(encoding="utf-8")
    assert page == "```{include} ../CHANGELOG.md\n:relative-docs: docs/\n```\n"
    # Sphinx removes this prefix from the links, so that all of them have to begin with it
    links = [link for link in re.findall(r"\]\(([^)]+)\)", CHANGELOG) if "://" not in link]
    assert links
    assert [link for link in links if not link.startswith("docs/")] == []


def test_the_versions_of_python_are_those_that_the_tests_run_on():
    listed = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert listed == TESTED
    assert PROJECT["requires-python"] == f">={TESTED[0]}"
    assert RECIPE["context"]["python_min"] == TESTED[0]
    assert f"{TESTED[0]} to {TESTED[-1]}" in (ROOT / ".github" / "SUPPORT.md").read_text(encoding="utf-8")
    told = ", ".join(TESTED[:-1]) + f" and {TESTED[-1]}"
    assert told in (ROOT / "docs" / "installation.md").read_text(encoding="utf-8")


def test_documents_release_and_image_are_made_with_a_tested_version_of_python():
    steps = [step for flow in (TEST, DOCS, RELEASE) for job in flow["jobs"].values() for step in job["steps"]]
    used = [step["with"]["python-version"] for step in steps if step.get("uses", "").startswith("actions/setup-python")]
    assert used.count("${{ matrix.python }}") == 1
    used.remove("${{ matrix.python }}")
    images = re.findall(r"^FROM python:([\d.]+)-", DOCKERFILE, re.MULTILINE)
    assert len(set(images)) == 1  # the stage that installs and the one that runs
    assert {*used, *images, READ_THE_DOCS["build"]["tools"]["python"]} <= set(TESTED)


def test_the_recipe_has_the_packages_own_dependencies():
    assert from_conda(RECIPE["requirements"]["run"]) == {"python>=${{python_min}}", *PROJECT["dependencies"]}
    host = {line.replace(" ", "") for line in RECIPE["requirements"]["host"]}
    assert host == {"python${{python_min}}.*", "pip", *PYPROJECT["build-system"]["requires"]}
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == scripts


def test_the_recipe_says_what_the_metadata_say():
    about = RECIPE["about"]
    assert about["license"] == PROJECT["license"] == CITATION["license"]
    assert [about["license_file"]] == PROJECT["license-files"]
    assert (ROOT / about["license_file"]).exists()
    urls = PROJECT["urls"]
    assert (about["homepage"], about["documentation"]) == (urls["Homepage"], urls["Documentation"])
    assert about["repository"] == urls["Source"] == CITATION["repository-code"]


def test_the_image_copies_files_that_exist_and_installs_extras_that_exist():
    lines = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    copied = [name for line in lines for name in line.split()]
    # all that the build reads: the metadata name the README and the licence
    assert set(copied) == {"pyproject.toml", "README.md", *PROJECT["license-files"], "spatialpdvi"}
    assert all((ROOT / name).exists() for name in copied)
    (extras,) = re.findall(r"pip install .*'\.\[(.*)\]'", DOCKERFILE)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    asked = READ_THE_DOCS["python"]["install"][0]["extra_requirements"]
    assert set(asked) <= set(PROJECT["optional-dependencies"])


def test_the_readme_on_the_registry_has_no_relative_link():
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    assert hook["fragments"] == [{"path": "README.md"}]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme
    for rule in hook["substitutions"]:
        shown = re.sub(rule["pattern"], rule["replacement"].replace("$HFPR_VERSION", __version__), shown)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)]+)\)", shown)
    assert len(links) == len(re.findall(r"\]\(", readme)) > 20
    for picture, link in links:
        home = PROJECT["urls"]["Source"]
        if picture:
            home = home.replace("github.com", "raw.githubusercontent.com")
        assert link.startswith("https://"), link
        rest = link.removeprefix(f"{home}/{'' if picture else 'blob/'}v{__version__}/")
        assert "://" in rest or (ROOT / rest.partition("#")[0]).exists(), link


def test_a_release_is_tried_by_the_main_command_of_the_readme():
    main = re.compile(r"spatialpdvi (?:fit|plot) [^&\n]*[^&\n ]")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    python3 .*domains\.png$", readme, re.MULTILINE)
    (step,) = [step["run"] for step in RELEASE["jobs"]["build"]["steps"] if "spatialpdvi fit" in step.get("run", "")]
    commands = main.findall(line.replace("data/", ""))
    assert len(commands) == 2
    assert main.findall(step) == commands


def test_a_release_is_published_without_a_password_by_a_job_of_its_own():
    jobs = RELEASE["jobs"]
    assert {name: job.get("permissions") for name, job in jobs.items()} == {
        "build": None,
        "publish": {"id-token": "write"},
    }
    assert jobs["publish"]["needs"] == "build"
    assert all(flow["permissions"] == {"contents": "read"} for flow in (TEST, DOCS, RELEASE))
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")


def test_the_citation_is_that_of_the_page():
    page = (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    entry = dict(re.findall(r"^  (\w+) += \{(.*)\}", page, flags=re.MULTILINE))
    paper = CITATION["preferred-citation"]
    assert paper["title"] == entry["title"]
    names = [f"{one['family-names']}, {one['given-names']}" for one in paper["authors"]]
    assert " and ".join(names) == entry["author"]
    assert str(paper["year"]) == entry["year"]
    assert paper["url"] == PROJECT["urls"]["Paper"] == f"https://arxiv.org/abs/{entry['eprint']}"
    assert CITATION["keywords"] == PROJECT["keywords"]
    assert [one["name"] for one in CITATION["authors"]] == [one["name"] for one in PROJECT["authors"]]


@pytest.mark.parametrize("name", ["SECURITY.md", "SUPPORT.md", "CONTRIBUTING.md"])
def test_links_of_community_files_lead_somewhere(name):
    text = (ROOT / ".github" / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert links
    for link in links:
        there = link.startswith(f"{PROJECT['urls']['Source']}/") or (ROOT / ".github" / link).exists()
        assert there, link
