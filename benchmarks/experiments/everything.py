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

    quick: tuple[str, ...]  # options of a run that takes seconds, and says only that the script works
    folder: str = "."  # folder below the output
    script: str = ""  # where it has another name than the experiment
    always: tuple[str, ...] = ()  # options of every run
    is_alone: bool = False  # runs alone, since it starts processes itself


# the longest first, so that the others run beside it
EXPERIMENTS = {
    "implicit": Experiment(("--iterations", "12", "--seeds", "1", "--regression-iterations", "5", "--draws", "20")),
    "gaussian_process": Experiment(
        ("--only", "digits", "--passes", "12", "--pilot-passes", "1", "--seeds", "2"),
    ),
    "autoencoder": Experiment(("--iterations", "8", "--seeds", "1", "--draws", "20")),
    "mixture": Experiment(("--n", "4000", "--batch", "200", "--epochs", "3", "--seeds", "1")),
    "published_mixture": Experiment(
        ("--n", "4000", "--batch", "200", "--epochs", "3", "--seeds", "1"), script="mixture", always=("--published",)
    ),
    "rates": Experiment(("--samples", "1000", "--epochs", "4", "--seeds", "1")),
    "first_answer": Experiment(("--n", "2000", "--batch", "100", "--epochs", "2", "--seeds", "1")),
    "quadratic": Experiment(("--samples", "1000", "--epochs", "12")),
    "random_scan": Experiment(("--seeds", "10", "--sweeps", "20")),
    "tissue": Experiment(
        ("--n-spots", "400", "--seeds", "1", "--max-epochs", "3", "--tune-epochs", "1", "--only", "simulated"),
        folder="tissue",
        is_alone=True,
    ),
    "published": Experiment(
        ("--n-spots", "400", "--seeds", "1", "--max-epochs", "2", "--tune-epochs", "1", "--only", "simulated"),
        folder="published",
        script="tissue",
        always=(
            *("--preset", "paper", "--n-spots", "5000"),
            *("--seeds", "2", "--max-epochs", "40", "--tune-epochs", "5"),
        ),
        is_alone=True,
    ),
}


class Outcome(NamedTuple):
    """How a script ended."""

    seconds: float
    status: int  # exit status


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(EXPERIMENTS)), help="Repeatable. Default: all.")
@click.option("--quick", is_flag=True, help="Run each for seconds, only to see that it works. Needs --output.")
@click.option("--output", type=click.Path(path_type=Path), help="Default: docs/experiments.")
def main(*, only: tuple[str, ...], quick: bool, output: Path | None) -> None:
    """Run the experiments and print the seconds of each; if some fail, print their names and exit with 1."""
    if quick and output is None:
        msg = "Expected --output with --quick, since its numbers must not replace those of the documentation."
        raise click.UsageError(msg)
    output = output or Path("docs/experiments")
    began = time.perf_counter()
    chosen = [name for name in EXPERIMENTS if not only or name in only]
    outcomes: dict[str, Outcome] = {}
    for names, at_once in (
        ([name for name in chosen if not EXPERIMENTS[name].is_alone], AT_ONCE),
        ([name for name in chosen if EXPERIMENTS[name].is_alone], 1),
    ):
        with ThreadPoolExecutor(at_once) as pool:
            outcomes.update(zip(names, pool.map(lambda name: _run(name, output, quick=quick), names), strict=True))
    print()
    print_table(["experiment", "seconds", "exit"], [[n, f"{o.seconds:.0f}", o.status] for n, o in outcomes.items()])
    print(f"\n{time.perf_counter() - began:.0f} s in total")
    if failed := [name for name, outcome in outcomes.items() if outcome.status]:
        print(f"FAILED: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def _run(name: str, output: Path, *, quick: bool) -> Outcome:
    """Run one script to its end and print its output line by line as it appears."""
    experiment = EXPERIMENTS[name]
    script = HERE / f"{experiment.script or name}.py"
    command = [sys.executable, str(script), *experiment.always, *(experiment.quick if quick else ())]
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
