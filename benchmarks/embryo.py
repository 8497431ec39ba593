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
    """Simulate a section, then fit it on the command line as a user would."""
    with tempfile.TemporaryDirectory() as folder:
        section, report = Path(folder) / "embryo.h5ad", Path(folder) / "report.json"
        sizes = ["--n-spots", str(n_spots), "--n-genes", str(n_genes), "--k", str(k)]
        print(f"{n_spots:,} spots x {n_genes:,} genes, K {k}, seed 0, {os.cpu_count()} cores\n")
        print(f"simulate: {_timed('simulate', section, *sizes):.1f} s")
        for repeat in range(repeats):
            output = Path(folder) / "out.h5ad"
            wall = _timed("fit", section, "--k", k, "-o", output, "--report", report)
            result = json.loads(report.read_text())
            stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result["seconds"].items())
            scores, peak = result["scores"], result["peak_memory_bytes"] / 1e9
            print(f"fit {repeat + 1}: {wall:.1f} s in all ({stages}; the rest is start-up), peak {peak:.2f} GB")
            print(f"       ARI {scores['ari']:.3f} (start {scores['baseline']['ari']:.3f})")
        print(f"--help: {_timed('--help'):.2f} s")


def _timed(*arguments: object) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "spatialpdvi", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
