"""The imports go where docs/architecture.md says, and heavy libraries stay in the rooms that need them."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "spatialpdvi"

# room -> rooms it may import from; `errors` is open to all
ALLOWED = {
    "__init__": {"", "api", "checkpoints", "options", "plotting", "result", "synthetic"},
    "__main__": {"cli"},
    "cli": {
        "",
        "api",
        "checkpoints",
        "choosing",
        "cluster",
        "compare",
        "estimate",
        "io",
        "memory",
        "options",
        "plotting",
        "progress",
        "result",
        "synthetic",
    },
    "api": {
        "binning",
        "calibration",
        "checkpoints",
        "cluster",
        "interpretation",
        "io",
        "keeping",
        "memory",
        "model",
        "options",
        "pipeline",
        "plotting",
        "prediction",
        "progress",
        "report",
        "result",
        "scores",
    },
    "binning": {"io", "progress"},
    "report": {"", "calibration", "certificate", "colours", "io", "options", "overlap", "patches", "plotting"},
    "compare": {
        "",
        "certificate",
        "colours",
        "io",
        "optimise",
        "options",
        "pipeline",
        "plotting",
        "preparation",
        "progress",
        "representation",
        "scores",
        "solvers",
    },
    "estimate": {"io", "memory", "options", "threads"},
    "pipeline": {
        "",
        "calibration",
        "certificate",
        "checkpoints",
        "choosing",
        "cluster",
        "colours",
        "empty",
        "graph",
        "interpretation",
        "io",
        "keeping",
        "memory",
        "options",
        "preparation",
        "problems",
        "progress",
        "representation",
        "result",
        "scores",
        "scoring",
        "solvers",
        "solving",
        "start",
        "threads",
    },
    "solving": {
        "certificate",
        "checkpoints",
        "cluster",
        "engines",
        "optimise",
        "options",
        "preparation",
        "problems",
        "progress",
        "scores",
        "solvers",
        "start",
    },
    "checkpoints": {"io", "options", "progress"},
    "likeness": {"io", "model"},
    "choosing": {
        "domain_counts",
        "features",
        "graph",
        "io",
        "optimise",
        "options",
        "overlap",
        "preparation",
        "problems",
        "progress",
        "representation",
        "scores",
        "smoothing",
        "solving",
        "start",
        "threads",
    },
    "prediction": {
        "calibration",
        "certificate",
        "engines",
        "features",
        "graph",
        "io",
        "likeness",
        "model",
        "optimise",
        "options",
        "pipeline",
        "preparation",
        "problems",
        "progress",
        "result",
        "scoring",
        "smoothing",
        "solvers",
        "solving",
        "start",
        "threads",
    },
    "keeping": {"", "calibration", "io", "model", "options", "preparation", "problems"},
    "model": {"features", "options", "problems"},
    "preparation": {
        "engines",
        "graph",
        "io",
        "options",
        "patches",
        "problems",
        "progress",
        "representation",
        "scores",
        "start",
        "threads",
    },
    "representation": {"domain_counts", "features", "io", "model", "options", "progress", "smoothing", "threads"},
    "result": {"calibration", "certificate", "choosing", "io", "model", "problems"},
    "calibration": {"overlap"},
    "colours": set(),
    "interpretation": {"features", "streams"},
    "certificate": {"optimise", "problems"},
    "optimise": {"engines", "problems", "solvers"},
    "engines": {"kernels", "problems", "scores", "solvers", "threads"},
    "cluster": {"engines", "kernels", "problems", "scores", "solvers", "start", "streams", "threads"},
    "solvers": {"problems"},
    "problems": {"kernels", "patches"},
    "patches": {"kernels"},
    "graph": {"kernels"},
    "smoothing": {"graph"},
    "start": {"overlap", "problems", "scores", "threads"},
    "overlap": set(),
    "scoring": {"calibration", "io", "scores"},
    "plotting": {"calibration", "colours", "io", "overlap"},
    "pl": {"io", "plotting"},
    "synthetic": {"io"},
    "io": {"streams", "threads"},
    "features": {"kernels", "streams", "threads"},
    "streams": set(),
    "memory": set(),
    "kernels": set(),
    "options": {"domain_counts", "memory", "option_checks"},
    "option_checks": set(),
    "domain_counts": set(),
    "empty": set(),
    "progress": set(),
    "scores": set(),
    "threads": {"kernels"},
    "errors": set(),
}
# library -> rooms that may import it
HOMES = {
    "click": {"cli"},
    "rich": {"progress"},
    "anndata": {"api", "binning", "features", "io", "pl", "synthetic"},
    "scanpy": {"binning", "features"},
    "h5py": {"binning", "io"},
    "zarr": {"io"},
    "harmonypy": {"features"},
    "distributed": {"cluster"},
    "numba": {"kernels", "threads"},
    "matplotlib": {"api", "compare", "pl", "plotting", "report"},
    "sklearn": {"api", "scores", "start"},
    "pandas": {
        "api",
        "binning",
        "features",
        "interpretation",
        "io",
        "plotting",
        "report",
        "result",
        "scores",
        "synthetic",
    },
}
FILES = sorted(PACKAGE.rglob("*.py"))


def _room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_every_room_is_in_the_table_and_in_the_architecture_page():
    rooms = {_room(path) for path in FILES}
    assert rooms == set(ALLOWED)
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    missing = [
        room for room in rooms if not room.startswith("__") and f"`{room}/`" not in page and f"`{room}.py`" not in page
    ]
    assert missing == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    room = _room(path)
    for name in _imports(path):
        top, _, rest = name.partition(".")
        if top == "spatialpdvi":
            other = rest.partition(".")[0]
            assert other in ALLOWED[room] | {room, "errors"}, f"{room} imports {other}"
        elif top in HOMES:
            assert room in HOMES[top], f"{room} imports {top}"


@pytest.mark.parametrize(
    "command",
    [
        ["--version"],
        ["--help"],
        *([name, "--help"] for name in ("fit", "predict", "compare", "markers", "estimate", "bin", "report")),
    ],
)
def test_help_loads_nothing_heavy(command):
    code = (
        "import sys\n"
        "from spatialpdvi.cli import main\n"
        f"try: main({command!r})\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'pandas', 'anndata', 'scanpy', 'scipy', 'sklearn', 'matplotlib', 'rich', 'h5py',\n"
        "         'distributed', 'zarr'}\n"
        "sys.exit(','.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_modules_are_small():
    long = {str(path.relative_to(PACKAGE)): n for path in FILES if (n := len(path.read_text().splitlines())) > 350}
    assert long == {}
