"""Rooms import only rooms that docs/architecture.md lists before them; heavy libraries stay where they are needed."""

import ast
import re
from pathlib import Path

import pytest
from conftest import loaded_by

PACKAGE = Path(__file__).parents[1] / "spatialpdvi"

# library -> rooms that may import it
HOMES = {
    "PIL": {"binning", "report"},
    "anndata": {"api", "binning", "description", "features", "io", "pl", "pp", "synthetic", "tl"},
    "click": {"cli"},
    "distributed": {"distributed"},
    "filelock": {"io"},
    "h5py": {"binning", "io"},
    "harmonypy": {"features"},
    "jinja2": {"report"},
    "llvmlite": {"kernels"},
    "matplotlib": {"api", "compare", "pl", "plotting", "report"},
    "numba": {"kernels", "runtime"},
    "pandas": {
        *("api", "binning", "description", "editing", "features", "fitting", "io", "marker_genes", "metrics"),
        *("plotting", "prediction", "report", "synthetic", "uncertainty"),
    },
    "psutil": {"runtime"},
    "rich": {"runtime"},
    "scanpy": {"binning", "features"},
    "sklearn": {"api", "initialization"},
    "skmisc": {"features"},
    "sknetwork": {"initialization"},
    "squidpy": {"description"},
    "tifffile": {"binning"},
    "threadpoolctl": {"runtime"},
    "zarr": {"io"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
PAGE = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
# the page's tables have a row for each room, `room/` or `room.py`, from the lowest layer to the highest
ON_PAGE = re.findall(r"^\| `(\w+(?:/|\.py))` \|", PAGE, flags=re.MULTILINE)
IMPORTED = r"import ([\w, ]+|\([^)]+\))"
ORDER = [room.removesuffix("/").removesuffix(".py") for room in ON_PAGE]


def _room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path):
    """Dotted names of what a module imports, `from spatialpdvi import io` as `spatialpdvi.io`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "spatialpdvi":
            yield from (f"spatialpdvi.{alias.name if alias.name in ORDER else '__init__'}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_every_room_has_one_row_of_the_architecture_page():
    rooms = {f"{_room(path)}{'.py' if path.parent == PACKAGE else '/'}" for path in FILES}
    assert sorted(ON_PAGE) == sorted(rooms)
    assert set().union(*HOMES.values()) <= set(ORDER)


def test_the_picture_of_the_layers_shows_their_tables():
    picture = re.findall(r"^(\d)  \S.*?   +(\S.*)$", PAGE, flags=re.MULTILINE)
    tables = re.split(r"^## Layer (\d): .*$", PAGE, flags=re.MULTILINE)[1:]
    rooms = {
        layer: re.findall(r"^\| `(\w+)(?:/|\.py)` \|", table, flags=re.MULTILINE)
        for layer, table in zip(tables[::2], tables[1::2], strict=True)
    }
    assert {layer: names.split() for layer, names in picture} == rooms


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    room = _room(path)
    lower = {*ORDER[: ORDER.index(room)], room, "errors"}
    for name in _imports(path):
        top, _, rest = name.partition(".")
        if top == "spatialpdvi":
            other = rest.partition(".")[0] or "__init__"
            assert other in lower, f"{room} imports {other}, which stands after it in docs/architecture.md"
        elif top in HOMES:
            assert room in HOMES[top], f"{room} imports {top}"


def test_what_modules_offer_is_used_elsewhere():
    """A name of `__all__` is imported, is an attribute or is a text in another module, a test, a benchmark or docs."""
    others = [path for folder in ("tests", "benchmarks", "docs") for path in (PACKAGE.parent / folder).rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in (*FILES, *others)}
    used = {
        path: {*re.findall(r"[.\"](\w+)", text), *re.findall(r"\w+", " ".join(re.findall(IMPORTED, text)))}
        for path, text in texts.items()
    }
    idle = []
    for path in FILES:
        offered = re.findall(r"^__all__ = (\[[^]]*\])$", texts[path], flags=re.MULTILINE)
        # an edit of the kernels has them all compiled again; rooms offer what users and other rooms take from them
        if offered and path.name != "__init__.py" and _room(path) != "kernels":
            elsewhere = set().union(*(names for other, names in used.items() if other != path))
            idle += [f"{path.stem}.{name}" for name in ast.literal_eval(offered[0]) if name not in elsewhere]
    assert idle == []


def test_only_some_rooms_open_and_write_files():
    doors = {"spatialpdvi.io.formats.h5ad", "spatialpdvi.io.results.writing"}
    doors |= {f"spatialpdvi.io.storage.{module}" for module in ("atomic", "disk", "outputs")}
    rooms = {_room(path) for path in FILES if doors & set(_imports(path))} - {"cli", "io"}
    (named,) = re.findall(r"only `api`, and (.*?) for what is\s+theirs,\s+open\s+and\s+write", PAGE, flags=re.DOTALL)
    assert rooms - {"api"} <= set(re.findall(r"`(\w+)`", named))


@pytest.mark.cli
@pytest.mark.parametrize(
    "command",
    [
        ["--version"],
        ["--help"],
        *(
            [name, "--help"]
            for name in ("fit", "predict", "compare", "describe", "intervals", "markers", "estimate", "bin", "report")
        ),
        ["label", "merge", "--help"],
        ["fit", "none.h5ad", "--k", "3"],
        ["report", "none.zarr", "-o", "none.html"],
    ],
)
def test_help_and_a_missing_section_load_nothing_heavy(command):
    loaded = loaded_by(f"from spatialpdvi.cli import main\ntry: main({command!r})\nexcept SystemExit: pass")
    heavy = {"numpy", "numba", "pandas", "anndata", "scanpy", "scipy", "sklearn", "matplotlib", "rich", "h5py"}
    assert loaded.isdisjoint(heavy | {"distributed", "squidpy", "zarr"})


@pytest.mark.cli
@pytest.mark.parametrize(("n_spots", "given"), [(100, []), (400, ["--states", "10", "--search", "0"])])
def test_a_fit_loads_no_library_that_it_does_not_need(n_spots, given, tmp_path):
    import spatialpdvi as spv

    spv.simulate(n_spots=n_spots, n_genes=60, k=3, easy=True).write_h5ad(tmp_path / "section.h5ad")
    code = (
        "import gc\n"
        "from spatialpdvi.cli import main\n"
        f"try: main(['fit', {str(tmp_path / 'section.h5ad')!r}, '--k', '3', '-q', *{given}])\n"
        "except SystemExit as done: assert done.code in (0, 3), done.code\n"
        "assert gc.isenabled() and gc.get_freeze_count()"
    )
    idle = {"sklearn", "scipy.stats", "scipy.signal", "scanpy", "matplotlib", "distributed", "squidpy"}
    assert loaded_by(code).isdisjoint(idle | {"spatialpdvi.uncertainty"})


def test_modules_are_small():
    long = {str(path.relative_to(PACKAGE)): n for path in FILES if (n := len(path.read_text().splitlines())) > 500}
    assert long == {}
