"""Run `spatialpdvi compare` with every solver and five seeds on a simulated section and on every real section.

Each section is a separate command with one thread, so that the times of its solvers are comparable. Two sections run
side by side. Each section has a Markdown file with a table of the solvers, and tissue.json has all numbers. With
`--preset paper` features, start, patches and steps are those of the paper.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
from common import print_table

from spatialpdvi.options.fit import SOLVERS
from spatialpdvi.options.presets import PRESETS
from spatialpdvi.synthetic import simulate_file

sys.path.insert(0, str(Path(__file__).parents[1]))
from processes import section_size
from sections import Section, chosen, sections

EMBRYO = "simulated"
PICTURED = (EMBRYO, "dlpfc_151673")
EPOCHS = (1, 3, 10, 40)  # at which the descent is compared
FULL_BATCH = ("cavi", "rs-cavi", "memoized")  # not mini-batch methods: their steps need sums over all patches


@click.command()
@click.option("--n-spots", default=20_000, show_default=True, help="Spots of the simulated section.")
@click.option("--seeds", default=5, show_default=True)
@click.option("--max-epochs", default=100, show_default=True)
@click.option("--tune-epochs", default=10, show_default=True)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Of `compare`. Default: none.")
@click.option("--workers", default=2, show_default=True, help="Number of sections at a time, with one thread each.")
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@click.option("--work", type=click.Path(path_type=Path), help="Folder of the runs, from which a comparison resumes.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments/tissue"), show_default=True)
def main(
    *,
    n_spots: int,
    seeds: int,
    max_epochs: int,
    tune_epochs: int,
    preset: str | None,
    workers: int,
    only: tuple[str, ...],
    work: Path | None,
    output: Path,
) -> None:
    """Print how far above the best F each solver ends on each section; write tables, pictures and tissue.json."""
    began = time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = work or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases = _cases(folder, n_spots, only)
        options = ["--seeds", str(seeds), "--max-epochs", str(max_epochs), "--threads", "1"]
        options += ["--tune-epochs", str(tune_epochs), *([] if preset is None else ["--preset", preset])]
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(lambda case: _compare(case, folder / case.path.stem, options), cases))
        for case in cases:
            _keep(folder / case.path.stem, case.path.stem, output)
    record = {
        "seeds": seeds,
        "max_epochs": max_epochs,
        "tune_epochs": tune_epochs,
        "preset": preset,
        "sections": {case.path.stem: {"k": case.k, "solvers": rows} for case, rows in zip(cases, found, strict=True)},
    }
    if not only:
        (output / "tissue.json").write_text(json.dumps(record, indent=1) + "\n")
    _print(record)
    print(f"{time.perf_counter() - began:.0f} s")


def _cases(folder: Path, n_spots: int, only: tuple[str, ...]) -> list[Section]:
    """The chosen sections. The simulated one is first because it takes longest; alone, it needs no real ones."""
    embryo = Section(folder / f"{EMBRYO}.h5ad", 20, {})
    cases = chosen([embryo, *([] if set(only) == {EMBRYO} else sections())], only)
    if embryo in cases and not embryo.path.exists():
        simulate_file(embryo.path, n_spots=n_spots, n_genes=n_spots * 2 // 5, k=embryo.k, seed=0, easy=True)
    if embryo in cases and (found := section_size(embryo.path)[0]) != n_spots:
        msg = f"Expected {n_spots:,} spots in {embryo.path}, from which a comparison resumes, found {found:,}."
        raise SystemExit(msg)
    return cases


def _compare(case: Section, folder: Path, options: list[str]) -> list[dict[str, Any]]:
    """Run the comparison of one section and return the rows of its table."""
    features = [text for name, value in case.options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "spatialpdvi", "compare", str(case.path), "--k", str(case.k), *features, *options]
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "-o", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NUMBA_NUM_THREADS": "1"},
    )
    if done.returncode:
        msg = f"{case.path.stem}: exit {done.returncode}\n{done.stderr}"
        raise SystemExit(msg)
    print(f"{case.path.stem}: {time.perf_counter() - began:.0f} s", flush=True)
    content = json.loads((folder / "compare.json").read_text())
    rows: list[dict[str, Any]] = content["table"]
    left = _left(content["runs"])
    return [row | {"left": left[row["solver"]]} for row in rows]


def _left(runs: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """How much of the descent from the start to the lowest F of any solver is left at `EPOCHS`, mean over seeds."""
    curves = {(run["solver"], run["seed"]): np.array(run["trace"]["neg_elbo"], dtype=float) for run in runs}
    lowest = {seed: min(np.nanmin(f) for (_, s), f in curves.items() if s == seed) for _, seed in curves}
    found: dict[str, list[list[float]]] = {}
    for (solver, seed), f in curves.items():
        shares = (f - lowest[seed]) / max(f[0] - lowest[seed], np.finfo(float).tiny)
        found.setdefault(solver, []).append([float(shares[min(epoch, f.size - 1)]) for epoch in EPOCHS])
    means = {solver: np.mean(shares, axis=0).tolist() for solver, shares in found.items()}
    return {solver: [x if np.isfinite(x) else None for x in mean] for solver, mean in means.items()}


def _keep(folder: Path, name: str, output: Path) -> None:
    """Copy the table of a section and the pictures of some."""
    shutil.copyfile(folder / "compare.md", output / f"{name}.md")
    if name in PICTURED:
        for picture in ("convergence", "maps"):
            shutil.copyfile(folder / f"{picture}.png", output / f"{name}_{picture}.png")


def _print(record: dict[str, Any]) -> None:
    """Print the gaps to the best F of each seed, convergence, ARI, and the rank of P2D-VI among mini-batch solvers."""
    names = list(record["sections"])
    tables = {name: {row["solver"]: row for row in record["sections"][name]["solvers"]} for name in names}
    print("\nF above the lowest of any solver for the seed, in per cent of the problem's scale, mean over seeds\n")
    print_table(["solver", *names], [[s, *(_per_cent(tables[n][s]["gap"]) for n in names)] for s in SOLVERS])
    for place, epoch in enumerate(EPOCHS):
        print(f"\nPer cent of the descent from the start to the lowest F that is left after epoch {epoch}\n")
        rows = [[s, *(_per_cent(tables[n][s]["left"][place], digits=1) for n in names)] for s in SOLVERS]
        print_table(["solver", *names], rows)
    print("\nNumber of seeds that converged\n")
    print_table(["solver", *names], [[s, *(tables[n][s]["n_converged"] for n in names)] for s in SOLVERS])
    print("\nARI, mean over seeds\n")
    print_table(["solver", *names], [[s, *(_ari(tables[n][s]["ari_mean"]) for n in names)] for s in SOLVERS])
    print("\nSection by section: the mini-batch solver with the lowest mean F, P2D-VI above it and above coordinate")
    print("ascent in per cent, what P2D-VI, CAVI and memoised ascent have left after three epochs, ARI (of all)\n")
    heads = ["section", "K", "lowest", "P2D-VI above it", "above coordinate ascent", "left after 3", "ARI (all)"]
    print_table(heads, [_section_row(name, record["sections"][name]["k"], tables[name]) for name in names])
    print("\nSolver by solver: runs that converged, F in per cent above the lowest, runs within 0.1 %, per cent of the")
    print(f"descent that is left after {', '.join(map(str, EPOCHS))} epochs (median over the sections), sections on")
    print("which it is the lowest mini-batch solver, ARI\n")
    lowest = Counter(_lowest(table) for table in tables.values())
    heads = ["solver", "converged", "F, mean", "worst section", "within", *map(str, EPOCHS), "lowest on", "ARI"]
    print_table(heads, [_solver_row(s, [tables[n][s] for n in names], lowest[s]) for s in SOLVERS])


def _lowest(table: dict[str, dict[str, Any]]) -> str:
    """The mini-batch solver with the lowest mean F."""
    ends = {s: row["neg_elbo"] for s, row in table.items() if s not in FULL_BATCH and row["neg_elbo"] is not None}
    return min(ends, key=ends.__getitem__)


def _section_row(name: str, k: int, table: dict[str, dict[str, Any]]) -> list[Any]:
    ours, best = table["p2dvi"], _lowest(table)
    coordinate = min(_or_infinite(table[solver]["gap"]) for solver in FULL_BATCH)
    after_three = [table[solver]["left"][EPOCHS.index(3)] for solver in ("p2dvi", "cavi", "memoized")]
    left = ", ".join(_per_cent(share, digits=1) for share in after_three)
    scores = [row["ari_mean"] for row in table.values() if row["ari_mean"] is not None]
    ari = f"{_ari(ours['ari_mean'])} ({min(scores):.3f} to {max(scores):.3f})"
    above = [_per_cent(_or_infinite(ours["gap"]) - other) for other in (table[best]["gap"], coordinate)]
    return [name, k, best, *above, left, ari]


def _solver_row(solver: str, rows: list[dict[str, Any]], n_lowest: int) -> list[Any]:
    """The row of a solver; where all its runs on a section failed, its mean and worst F say so."""
    gaps = [_or_infinite(row["gap"]) for row in rows]
    left = [np.median([_or_infinite(row["left"][place]) for row in rows]) for place in range(len(EPOCHS))]
    numbers = [sum(row["n_converged"] for row in rows), _per_cent(float(np.mean(gaps))), _per_cent(max(gaps), digits=2)]
    near = sum(row["n_near_best"] for row in rows)
    scores = [row["ari_mean"] for row in rows]
    ari = _ari(None if None in scores else float(np.mean(scores)))
    return [solver, *numbers, near, *(_per_cent(share, digits=1) for share in left), n_lowest, ari]


def _or_infinite(value: float | None) -> float:
    """The value, or infinity where there is none, since all runs have failed."""
    return float("inf") if value is None else value


def _ari(value: float | None) -> str:
    return "failed" if value is None else f"{value:.3f}"


def _per_cent(gap: float | None, *, digits: int = 3) -> str:
    if gap is None or not np.isfinite(gap):
        return "failed"
    return f"{100 * gap:.{digits}f}" if abs(gap) < 1e3 else f"{100 * gap:.0e}"


if __name__ == "__main__":
    main()
