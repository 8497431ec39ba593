"""Run the whole command on a simulated section, repeatedly: wall seconds by stage, peak memory and scores."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click


@click.command()
@click.option("--n-spots", default=20_000, show_default=True)
@click.option("--n-genes", default=8_000, show_default=True)
@click.option("--k", default=20, show_default=True)
@click.option("--repeats", default=2, show_default=True, help="Number of fits; the first may compile the kernels.")
def main(n_spots: int, n_genes: int, k: int, repeats: int) -> None:
    """Simulate a section as hard as tissue and an easy one, then fit each on the command line as a user would."""
    sizes = ["--n-spots", str(n_spots), "--n-genes", str(n_genes), "--k", str(k)]
    print(f"{n_spots:,} spots x {n_genes:,} genes, K {k}, seed 0, {os.cpu_count()} cores\n")
    for options in ([], ["--easy"]):
        with tempfile.TemporaryDirectory() as folder:
            _report(Path(folder), [*sizes, *options], k, repeats)
    print(f"--help: {_timed('--help'):.2f} s")


def _report(folder: Path, simulated: list[str], k: int, repeats: int) -> None:
    section, output, report = folder / "embryo.h5ad", folder / "out.h5ad", folder / "report.json"
    print(f"simulate {' '.join(simulated)}: {_timed('simulate', section, *simulated):.1f} s")
    for states in ("auto", "off"):
        for repeat in range(repeats):
            wall = _timed("fit", section, "--k", k, "--states", states, "-o", output, "--json", report)
            result = json.loads(report.read_text())
            stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result["seconds"].items())
            scores, peak = result["scores"], result["peak_memory_bytes"] / 1e9
            print(f"  --states {states}, fit {repeat + 1}: {wall:.1f} s in all ({stages}), peak {peak:.2f} GB")
            print(f"    ARI {scores['ari']:.3f} (start {scores['baseline']['ari']:.3f})", flush=True)


def _timed(*arguments: object) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "spatialpdvi", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
