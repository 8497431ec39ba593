"""Run the whole command on a simulated section, repeatedly: wall seconds by stage, peak memory and scores.

``--start-up`` measures instead what a small section waits for: the fit with and without its programs in the cache of
the system, and the seconds of every library's import.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
from processes import FIT_CODES, finished, forget, run

_SHOWN = 0.005  # seconds: libraries whose imports take less are added up
# Run in place of the command line: the processor seconds of each stage, and the files that the fit has loaded.
_INSIDE = """
import json, sys, time, types
import spatialpdvi.runtime.progress as progress
from spatialpdvi.cli import main

seconds = {}
progress.time = types.SimpleNamespace(perf_counter=time.process_time)
begin, progress.Progress.stop = progress.Progress._open, lambda self: seconds.update(self.seconds)
progress.Progress._open = lambda *args: seconds.setdefault("imports", time.process_time()) and begin(*args)
try:
    main(sys.argv[1:])
except SystemExit:
    pass
seconds["all else"] = time.process_time() - sum(seconds.values())
modules = [(m.__dict__.get("__file__"), m.__dict__.get("__cached__")) for m in list(sys.modules.values())]
maps = [line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps")]
files = sorted({path for path in [*sum(modules, ()), *maps] if path and path.startswith("/")})
print(json.dumps({"seconds": seconds, "files": files}))
"""


@click.command()
@click.option("--n-spots", default=20_000, show_default=True)
@click.option("--n-genes", default=8_000, show_default=True)
@click.option("--k", default=20, show_default=True)
@click.option("--repeats", default=2, show_default=True, help="Number of fits; the first may compile the kernels.")
@click.option("--start-up", is_flag=True, help="Measure the start-up: cold, warm, and import by import. Linux only.")
def main(n_spots: int, n_genes: int, k: int, repeats: int, *, start_up: bool) -> None:
    """Simulate a section as hard as tissue and an easy one, then fit each on the command line as a user would."""
    if start_up:
        with tempfile.TemporaryDirectory() as folder:
            _report_start_up(Path(folder), n_spots, n_genes, k, repeats)
        return
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


def _report_start_up(folder: Path, n_spots: int, n_genes: int, k: int, repeats: int) -> None:
    """Print the least seconds of several fits: other programs can only add to them."""
    section, output = folder / "embryo.h5ad", folder / "out.h5ad"
    _timed("simulate", section, "--n-spots", n_spots, "--n-genes", n_genes, "--k", k, "--seed", 0)
    arguments = [str(item) for item in ("fit", section, "--k", k, "-o", output, "-q")]
    inside = [_inside(arguments) for _ in range(repeats)]
    loaded = [Path(name) for name in inside[0]["files"] if Path(name).is_file()]
    fit = [sys.executable, "-m", "spatialpdvi", *arguments]
    print(
        f"{n_spots:,} spots x {n_genes:,} genes, K {k}, seed 0; {os.cpu_count()} cores; the least of {repeats} runs\n"
    )
    print("| | wall s | CPU s |\n|---|---|---|")
    for name, cold in (("cold", True), ("warm", False)):
        runs = []
        for _ in range(repeats):
            for path in loaded if cold else []:
                forget(path)
            runs.append(run(list(fit), fine=FIT_CODES))
        failures = [one.failure for one in runs if one.failure]
        if failures:
            raise SystemExit(failures[0])
        print(f"| {name} | {min(one.seconds for one in runs):.2f} | {min(one.cpu_seconds for one in runs):.2f} |")
    stages = {name: min(one["seconds"][name] for one in inside) for name in inside[0]["seconds"]}
    print(f"\n| {' | '.join(stages)} |\n|{'---|' * len(stages)}")
    print(f"| {' | '.join(f'{seconds:.2f}' for seconds in stages.values())} |")
    by_library = [_imports(arguments) for _ in range(repeats)]
    least = Counter({name: min(found[name] for found in by_library) for name in by_library[0]})
    shown = {name: seconds for name, seconds in least.most_common() if seconds >= _SHOWN}
    print("\n| library | seconds of its own modules |\n|---|---|")
    for name, seconds in shown.items():
        print(f"| {name} | {seconds:.3f} |")
    print(f"| {len(least) - len(shown)} others | {least.total() - sum(shown.values()):.3f} |")
    print(f"| all | {least.total():.3f} |")


def _inside(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", _INSIDE, *arguments], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _imports(arguments: list[str]) -> Counter[str]:
    """Seconds that the modules of each library take to be imported, without those that they import in turn."""
    command: list[object] = [sys.executable, "-X", "importtime", "-m", "spatialpdvi", *arguments]
    said = finished(command).stderr
    found: Counter[str] = Counter()
    for micros, name in re.findall(r"^import time: +(\d+) \| +\d+ \| *(\S+)$", said, flags=re.MULTILINE):
        found[name.partition(".")[0]] += int(micros) / 1e6
    return found


def _timed(*arguments: object) -> float:
    began = time.perf_counter()
    finished([sys.executable, "-m", "spatialpdvi", *arguments])
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
