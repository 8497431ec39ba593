"""Compare `spatialpdvi fit` with other tools: from a file to labels, each tool in its own process.

The other tools run in their own environment (`benchmarks/peers/requirements.txt`). A tool that does not install, takes
too long or takes too much memory has a row in the table that says so. The module imports little, for the reason given
in `processes`.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import click
from processes import FIT_CODES, apart, describe_machine, forget, free_bytes, run, section_size

PEERS = Path(__file__).parent / "peers"
SIZES = ((20_000, 8_000, 20), (150_000, 25_000, 22))  # spots, genes, K
WARM_UP = (2_000, 500, 5)
KEEP_FREE = 0.85  # share of the free memory that a method may take
_LABELS = "annotation"


class Method(NamedTuple):
    """A row of the table: a driver in `peers`, or `spatialpdvi fit` if ``driver`` is None."""

    name: str
    driver: str | None
    options: tuple[str, ...] = ()

    def command(self, section: Path, k: int, output: Path, *, seed: int, threads: int, python: Path) -> list[object]:
        """Command line of the method; ``python`` is that of the environment of the other tools."""
        given = ["--k", k, "--seed", seed, *self.options]
        if self.driver:
            return [python, PEERS / self.driver, section, output, *given]
        ours = [sys.executable, "-m", "spatialpdvi", "fit", section, "-o", output, "--threads", threads]
        return [*ours, *given]


METHODS = (
    Method("spatialpdvi", None),
    Method("spatialpdvi, mean profiles (`--states off`)", None, ("--states", "off")),
    Method("spatialpdvi, genes (`--n-pcs 0`)", None, ("--n-pcs", "0", "--states", "off")),
    Method("smoothed k-means", "smoothed_kmeans.py"),
    Method("squidpy, cellcharter niches", "squidpy_cellcharter.py"),
    Method("NichePCA, PCA first", "nichepca_kmeans.py", ("--pca-first",)),
    Method("NichePCA", "nichepca_kmeans.py"),
    Method("BANKSY", "banksy_leiden.py"),
)


@click.command()
@click.option(
    "--peers-python",
    required=True,
    type=click.Path(path_type=Path),
    help="Python of the environment made from benchmarks/peers/requirements.txt.",
)
@click.option("--file", "files", nargs=2, multiple=True, help="An h5ad and its K. Default: two simulated sections.")
@click.option("--method", "names", multiple=True, help="Part of the name of a method; repeatable. Default: all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=os.cpu_count() or 1, show_default=True)
@click.option("--limit", default=600.0, show_default=True, help="Time limit of a method in seconds.")
@click.option("--memory", type=float, help="Memory limit of a method in GB. Default: 85 % of the free memory.")
@click.option("--label-key", default=_LABELS, show_default=True, help="Column of obs with the annotation.")
@click.option("--warm-up/--no-warm-up", default=True, show_default=True, help="First run a small section, untimed.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="JSON file for all results.")
def main(*, peers_python: Path, files: tuple[tuple[str, str], ...], names: tuple[str, ...], **given: Any) -> None:
    """Run every method on every section and print a table for each section."""
    methods = [method for method in METHODS if not names or any(name.lower() in method.name.lower() for name in names)]
    if not methods:
        known = "; ".join(method.name for method in METHODS)
        msg = f"Expected part of a method's name, found {', '.join(names)}. The methods are: {known}."
        raise click.UsageError(msg)
    most = given["memory"] * 1e9 if given["memory"] else KEEP_FREE * free_bytes()
    how = {name: given[name] for name in ("seed", "threads", "limit")} | {"most": most, "python": peers_python}
    found: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {name: value for name, value in how.items() if name != "python"},
        "versions": {"ours": _versions(Path(sys.executable)), "peers": _versions(peers_python)},
        "sections": [],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given["warm_up"]:
            section = _simulated(folder, WARM_UP)
            for method in methods:
                measure(method, section, WARM_UP[-1], folder, **how, label_key=_LABELS)
        for path, k in _sections(folder, files):
            size, rows = _size(path), []
            for method in methods:
                rows.append(measure(method, path, k, folder, **how, label_key=given["label_key"]))
                print(_progress(rows[-1]), file=sys.stderr, flush=True)
            found["sections"].append({"section": path.stem, "k": k, "size": size, "methods": rows})
            if given["json_path"]:
                given["json_path"].write_text(json.dumps(found, indent=2) + "\n")
    print(report(found))


def measure(
    method: Method,
    section: Path,
    k: int,
    folder: Path,
    *,
    seed: int,
    threads: int,
    limit: float,
    most: float,
    python: Path,
    label_key: str,
) -> dict[str, Any]:
    """Run one method on one section: its cost, and its ARI and number of domains or the reason why it failed."""
    output = folder / ("labels.txt" if method.driver else "labels.h5ad")
    output.unlink(missing_ok=True)
    command = method.command(section, k, output, seed=seed, threads=threads, python=python)
    clean = {name: value for name, value in os.environ.items() if method.driver is None or name != "PYTHONPATH"}
    forget(section)
    fine = (0,) if method.driver else FIT_CODES
    result = run(command, limit=limit, most_bytes=most, threads=threads, fine=fine, environment=clean)
    if result.failure is None and not output.exists():
        result = result._replace(failure="wrote no labels")
    scores: dict[str, Any] = {} if result.failure else apart(score, section, label_key, output)
    output.unlink(missing_ok=True)
    return {"method": method.name, **result._asdict(), "ari": None, "domains": None, **scores}


def score(section: Path, label_key: str, output: Path) -> dict[str, Any]:
    """ARI over the annotated spots, and the number of domains."""
    import anndata
    import h5py
    import pandas as pd
    from sklearn.metrics import adjusted_rand_score

    def column(path: Path, key: str) -> Any:
        with h5py.File(path) as file:
            return pd.Series(anndata.io.read_elem(file["obs"][key]))

    truth = column(section, label_key)
    if output.suffix == ".h5ad":
        labels = column(output, "pdvi_domain").astype(str)
    else:
        labels = pd.Series(output.read_text().split("\n")[:-1])
    if len(labels) != len(truth):
        return {"failure": f"{len(labels):,} labels for {len(truth):,} spots"}
    known = truth.notna().to_numpy()
    ari = adjusted_rand_score(truth[known].astype(str).to_numpy(), labels[known].to_numpy())
    return {"ari": float(ari), "domains": int(labels.nunique())}


def _simulated(folder: Path, size: tuple[int, int, int]) -> Path:
    spots, genes, k = size
    path = folder / f"simulated_{spots}.h5ad"
    command = [sys.executable, "-m", "spatialpdvi", "simulate", path, "-q"]
    sizes = ["--n-spots", spots, "--n-genes", genes, "--k", k, "--seed", 0, "--easy"]
    subprocess.run([*map(str, command), *map(str, sizes)], check=True)
    return path


def _sections(folder: Path, files: tuple[tuple[str, str], ...]) -> Any:
    for name, k in files:
        yield Path(name), int(k)
    for size in () if files else SIZES:
        path = _simulated(folder, size)
        yield path, size[-1]
        path.unlink()


def _size(path: Path) -> str:
    spots, genes, values = apart(section_size, path)
    return f"{spots:,} x {genes:,}, {values / 1e6:,.0f} million values, {path.stat().st_size / 1e6:,.0f} MB"


def _versions(python: Path) -> dict[str, str]:
    """Versions of the relevant packages that an environment has."""
    names = ["spatialpdvi", "anndata", "scanpy", "scikit-learn", "numpy", "numba", "squidpy", "nichepca", "pybanksy"]
    names += ["leidenalg", "torch"]
    code = (
        "import importlib.metadata as m, json, platform, sys\n"
        "found = {'python': platform.python_version()}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    try:
        done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return {"python": f"none: {error}"}
    return dict(json.loads(done.stdout))


def _progress(row: dict[str, Any]) -> str:
    return f"{row['method']}: {row['seconds']:.1f} s, {row['failure'] or format(row['ari'], '.3f')}"


def report(found: dict[str, Any]) -> str:
    """Markdown with the settings, then a table for each section."""
    settings = found["settings"]
    most = f"{settings['limit']:.0f} s and {settings['most'] / 1e9:.1f} GB"
    how = f"{settings['threads']} threads, seed {settings['seed']}; a method may take {most}"
    lines = [f"{found['machine']}; {how}; files not in the cache of the system at the start."]
    for whose, versions in found["versions"].items():
        lines.append(f"Versions, {whose}: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
    for section in found["sections"]:
        lines += ["", f"{section['section']}: {section['size']}, K {section['k']}", "", *table(section["methods"])]
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown lines; a method that failed shows the reason and its cost until then."""
    lines = ["| method | wall s | CPU s | peak MB | ARI | domains |", "|---|---|---|---|---|---|"]
    for row in rows:
        result = f"none: {row['failure']} | –" if row["failure"] is not None else f"{row['ari']:.3f} | {row['domains']}"
        lines.append(
            f"| {row['method']} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | {row['peak_bytes'] / 1e6:,.0f} | "
            f"{result} |"
        )
    return lines


if __name__ == "__main__":
    main()
