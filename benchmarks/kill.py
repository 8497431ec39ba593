"""Compare fits that are killed at random moments and resumed with an uninterrupted one: bits, seconds and bytes."""

import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anndata
import click
import numpy as np
from processes import FIT_CODES, describe_machine, finished

from spatialpdvi import Checkpoint, FitOptions, fit_file
from spatialpdvi.runtime.progress import PlainProgress

_STAGE = re.compile(r"(\w+): (\d+\.\d) s")


class _Timed(Checkpoint):
    """A checkpoint that measures how long the fit waits for it."""

    def __init__(self, folder: Path, *, every: int) -> None:
        super().__init__(folder, every=every, keep=True)
        self.seconds: list[float] = []

    def after_epoch(self, epoch: int, value: Any) -> None:
        began = time.perf_counter()
        super().after_epoch(epoch, value)
        if epoch % self.every == 0:
            self.seconds.append(time.perf_counter() - began)


@click.command()
@click.option("--section", type=click.Path(path_type=Path), help="An h5ad file. Default: a simulated section.")
@click.option("--n-spots", default=20_000, show_default=True, help="Spots of the simulated section.")
@click.option("--n-genes", default=8_000, show_default=True, help="Genes of the simulated section.")
@click.option("--k", default=20, show_default=True)
@click.option("--kills", default=10, show_default=True)
@click.option("--every", default=5, show_default=True, help="Epochs between two checkpoints.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random moments.")
def main(*, section: Path | None, n_spots: int, n_genes: int, k: int, kills: int, every: int, seed: int) -> None:
    """Fit without and with checkpoints, then kill and resume, and compare every array that is written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if section is None:
            section = folder / "section.h5ad"
            _run("simulate", section, "--n-spots", n_spots, "--n-genes", n_genes, "--k", k, "--easy")
        print(f"{describe_machine()}; K {k}, seed {seed} of the moments", flush=True)
        whole = folder / "whole.h5ad"
        stages = _run("fit", section, "--k", k, "-o", whole)
        print(f"without checkpoints: {_show(stages)}", flush=True)
        kept = _Timed(folder / "kept", every=every)
        fit_file(
            section, FitOptions(k=k), output=folder / "kept.h5ad", progress=PlainProgress(sys.stderr), checkpoint=kept
        )
        sizes = [path.stat().st_size / 1e6 for path in kept.files]
        print(f"{len(kept.seconds)} checkpoints, one every {every} epochs, {np.mean(kept.seconds):.3f} s each (mean)")
        print(f"{sizes[0]:.1f} MB per checkpoint, and {sizes[1]:.1f} MB of restarts", flush=True)
        _compare(whole, folder / "kept.h5ad")
        _kill_and_resume(section, whole, folder, k=k, kills=kills, every=every, seed=seed, longest=stages["fit"])


def _kill_and_resume(
    section: Path, whole: Path, folder: Path, *, k: int, kills: int, every: int, seed: int, longest: float
) -> None:
    moments, killed, finished, out = random.Random(seed), 0, 0, folder / "out.h5ad"
    command = (
        "fit",
        section,
        "--k",
        k,
        "-o",
        out,
        "--checkpoint",
        folder / "fit",
        "--checkpoint-every",
        every,
        "--resume",
    )
    while True:
        after = moments.uniform(0.0, longest) if killed < kills else None
        stages, message = _start(command, after)
        if stages is None:
            killed += 1
            print(
                f"kill {killed}: {after:.1f} s after the graph stage; the run had started with: {message}", flush=True
            )
            continue
        finished += 1
        _compare(whole, out)
        print(f"finished, {message} {_show(stages)}", flush=True)
        out.unlink()
        if killed == kills:
            break
    print(f"{killed} kills and {finished} finished fits, each with the same bits")


def _start(command: tuple[object, ...], after: float | None) -> tuple[dict[str, float] | None, str]:
    """Seconds of each stage, or None if the fit was killed ``after`` seconds into the solver; and its first message."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spatialpdvi", *map(str, command)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if after is not None and re.match(r"graph: \d+\.\d s", line):
            time.sleep(after)
            process.send_signal(signal.SIGKILL)
    code = process.wait()
    message = lines[0].strip().rpartition("': ")[2] if lines else ""
    if code == -signal.SIGKILL:
        return None, message
    if code not in FIT_CODES:
        raise SystemExit("".join(lines))
    return _stages(lines), message


def _run(*arguments: object) -> dict[str, float]:
    return _stages(finished([sys.executable, "-m", "spatialpdvi", *arguments]).stderr.splitlines())


def _stages(lines: list[str]) -> dict[str, float]:
    found = [match for line in lines if (match := _STAGE.match(line))]
    return {match[1]: float(match[2]) for match in found}


def _show(stages: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages.items()) + " s"


def _compare(expected: Path, found: Path) -> None:
    """Compare every array of two results bit by bit, except for the seconds."""
    a, b = anndata.read_h5ad(expected), anndata.read_h5ad(found)
    for group in ("obs", "obsm", "uns"):
        _same(dict(getattr(a, group)), dict(getattr(b, group)), group)


def _same(a: Any, b: Any, where: str) -> None:
    if isinstance(a, dict):
        same = set(a) == set(b)
        for key in (set(a) & set(b)) - {"seconds"}:
            _same(a[key], b[key], f"{where}/{key}")
    else:
        left, right = np.asarray(a), np.asarray(b)
        same = left.tobytes() == right.tobytes() or np.array_equal(left, right)
    if not same:
        msg = f"Expected the same bits in {where}, found different ones."
        raise SystemExit(msg)


if __name__ == "__main__":
    main()
