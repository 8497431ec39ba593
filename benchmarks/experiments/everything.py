"""Run all experiments, two at a time with one thread each; each line of output starts with the name of its script."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import click
from common import print_table

HERE = Path(__file__).parent
AT_ONCE = 2
ONE_THREAD = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Experiment(NamedTuple):
    """How a script of this folder is called."""

    options: tuple[str, ...] = ()
    folder: str = "."  # folder below the output
    is_alone: bool = False  # runs alone, since it starts processes itself


# the longest first, so that the others run beside it
EXPERIMENTS = {
    "mixture": Experiment(),
    "rates": Experiment(),
    "quadratic": Experiment(),
    "random_scan": Experiment(),
    "tissue": Experiment(folder="tissue", is_alone=True),
}


class Outcome(NamedTuple):
    """How a script ended."""

    seconds: float
    status: int  # exit status


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(EXPERIMENTS)), help="Repeatable. Default: all.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("docs/experiments"), show_default=True)
def main(*, only: tuple[str, ...], output: Path) -> None:
    """Run the experiments and print the seconds of each; if some fail, print their names and exit with 1."""
    began = time.perf_counter()
    chosen = [name for name in EXPERIMENTS if not only or name in only]
    outcomes: dict[str, Outcome] = {}
    for names, at_once in (
        ([name for name in chosen if not EXPERIMENTS[name].is_alone], AT_ONCE),
        ([name for name in chosen if EXPERIMENTS[name].is_alone], 1),
    ):
        with ThreadPoolExecutor(at_once) as pool:
            outcomes.update(zip(names, pool.map(lambda name: _run(name, output), names), strict=True))
    print()
    print_table(["experiment", "seconds", "exit"], [[n, f"{o.seconds:.0f}", o.status] for n, o in outcomes.items()])
    print(f"\n{time.perf_counter() - began:.0f} s in total")
    if failed := [name for name, outcome in outcomes.items() if outcome.status]:
        print(f"FAILED: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def _run(name: str, output: Path) -> Outcome:
    """Run one script to its end and print its output line by line as it appears."""
    experiment = EXPERIMENTS[name]
    command = [sys.executable, str(HERE / f"{name}.py"), *experiment.options]
    command += ["--output", str(output / experiment.folder)]
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={**os.environ, **dict.fromkeys(ONE_THREAD, "1"), "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"},
    ) as process:
        for line in process.stdout or ():
            print(f"[{name}] {line}".rstrip(), flush=True)
    return Outcome(time.perf_counter() - began, process.returncode)


if __name__ == "__main__":
    main()
