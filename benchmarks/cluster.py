"""Compare one fit in this process with fits on Dask workers: equal bits, seconds, bytes sent, and a killed worker.

The workers share the cores of this computer, so their seconds show the cost of the communication and not the gain of a
cluster. The last table is extrapolated from this run to sizes and numbers of workers that were not measured.
"""

import os
import re
import signal
import tempfile
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import click
import numba
import numpy as np
from processes import changes, describe_machine, set_option

from spatialpdvi import FitOptions, fit_file
from spatialpdvi.distributed import Cluster, connect
from spatialpdvi.fitting.result import FitResult
from spatialpdvi.runtime.progress import Progress, Stage

_ON_WORKERS = ("read", "genes", "fit")  # stages whose work the workers share; all others run in the driver
_TASK = 1e-3  # seconds that the scheduler takes for a task, from the documentation of Dask


class _Watching(Progress):
    """Counts the bytes of every epoch, and kills a worker in the chosen epoch."""

    def __init__(self, cluster: Cluster | None = None, kill: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.cluster, self.kill = cluster, kill
        self.bytes: list[tuple[int, int]] = []

    def _open(self, name: str) -> Stage:
        stage = super()._open(name)
        stage.note = self._note
        return stage

    def _note(self, text: str) -> None:
        epoch = re.match(r"epoch (\d+)", text)
        if epoch and self.cluster is not None:
            self.bytes.append((self.cluster.traffic.sent, self.cluster.traffic.received))
            if self.kill is not None and int(epoch[1]) == self.kill[0]:
                pid, self.kill = self.kill[1], None
                os.kill(pid, signal.SIGKILL)


class _Run(NamedTuple):
    result: FitResult
    seconds: dict[str, float]
    sent: float  # MB per epoch
    received: float
    is_killed: bool  # one of the workers


@click.command()
@click.option(
    "--section", type=click.Path(exists=True, path_type=Path), required=True, help="An h5ad file with counts."
)
@click.option("--k", default=22, show_default=True)
@set_option
@click.option("--workers", default="1,2,4", show_default=True)
@click.option("--batch", default=2, show_default=True, help="Number of patches that are updated together.")
@click.option("--kill-epoch", default=4, show_default=True, help="Epoch after which a worker is killed; 0 for none.")
def main(*, section: Path, k: int, changed: tuple[str, ...], workers: str, batch: int, kill_epoch: int) -> None:
    """Fit in this process, on each number of workers, and once more with a worker that is killed."""
    began = time.perf_counter()
    others = changes(changed, fixed=("k", "batch_patches"))
    options = FitOptions(k=k, batch_patches=batch, **others)
    print(f"{describe_machine()}; seed {options.seed}; {others or 'default settings'}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.h5ad"
        _fit(section, options, out)  # untimed, since the first fit may compile the loops
        here = _fit(section, options, out)
        n, epochs = here.result.posterior.shape[0], len(here.result.trace["epoch"]) - 1
        print(f"{n:,} spots, K {k}, {here.result.params['n_patches']} patches, {batch} at a time, {epochs} epochs")
        stages = " | ".join(here.seconds)
        print(f"\n| | {stages} | MB sent per epoch | received | same bits |\n|{'---|' * (len(here.seconds) + 4)}")
        _row("this process", here, here)
        for count in map(int, workers.split(",")):
            with connect(f"local:{count}") as cluster:
                _row(f"{count} workers", _fit(section, options, out, cluster), here)
        if kill_epoch:
            with connect("local:2") as cluster, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pid = min(cluster.run(os.getpid, dict.fromkeys(cluster.workers(), ())).values())
                run = _fit(section, options, out, cluster, kill=(kill_epoch, pid))
                killed = "one killed" if run.is_killed else f"none killed, as the fit ended before epoch {kill_epoch}"
                _row(f"2 workers, {killed}", run, here)
            print("\n" + "\n".join(str(warning.message) for warning in caught))
        _carry(here)
    print(f"\n{time.perf_counter() - began:.0f} s in total")


def _fit(
    section: Path,
    options: FitOptions,
    out: Path,
    cluster: Cluster | None = None,
    *,
    kill: tuple[int, int] | None = None,
) -> _Run:
    watching = _Watching(cluster, kill)
    result = fit_file(section, options, output=out, progress=watching, cluster=cluster)
    per_epoch = np.diff(np.array(watching.bytes), axis=0) / 1e6 if len(watching.bytes) > 1 else np.zeros((1, 2))
    sent, received = np.median(per_epoch, axis=0)
    is_killed = kill is not None and watching.kill is None
    return _Run(result, watching.seconds, float(sent), float(received), is_killed)


def _row(name: str, run: _Run, here: _Run) -> None:
    same = all(
        np.array_equal(a, b)
        for a, b in (
            (run.result.posterior, here.result.posterior),
            (run.result.domains, here.result.domains),
            (run.result.domain_mean, here.result.domain_mean),
            (run.result.trace["neg_elbo"], here.result.trace["neg_elbo"]),
        )
    )
    seconds = " | ".join(f"{run.seconds.get(stage, 0.0):.1f}" for stage in here.seconds)
    print(f"| {name} | {seconds} | {run.sent:.1f} | {run.received:.1f} | {'yes' if same else 'NO'} |", flush=True)


def _carry(here: _Run) -> None:
    """Print the expected cost of sizes that were not measured, from the seconds per spot of this run."""
    result, seconds = here.result, here.seconds
    n, k = result.posterior.shape
    d = result.domain_mean.shape[1]
    epochs = len(result.trace["epoch"]) - 1
    a_spot = numba.get_num_threads() * seconds["fit"] / epochs / n  # CPU seconds, since all threads are used
    driver = sum(taken for stage, taken in seconds.items() if stage not in _ON_WORKERS) / n
    reading = sum(seconds[stage] for stage in ("read", "genes")) / n
    print(
        "\n| spots | workers | epoch: loops, s | tasks, s | borders, GB | reading, h | driver: stages, h | memory, GB |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for size in (1e7, 1e8, 1e9):
        for count in (10, 100, 1000):
            patches = 30 * count
            border = patches * 4.0 * 1.5 * np.sqrt(size / patches) * k * 8  # a border one and a half spots wide
            memory = size * (4.0 * d * 3 + 8 * k * 2 + 12 * 16 * 3)  # features, posteriors, edges
            print(
                f"| {size:.0e} | {count} | {size * a_spot / count:.1f} | {30 * count * _TASK:.1f} | {border / 1e9:.2f} "
                f"| {size * reading / count / 3600:.2f} | {size * driver / 3600:.1f} | {memory / 1e9:.0f} |"
            )


if __name__ == "__main__":
    main()
