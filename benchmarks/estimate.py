"""Compare `spatialpdvi estimate` with the fits that it predicts; with --fit, measure its coefficients again.

Nothing else should run on the machine, because the coefficients are wall seconds of a single thread. The share of a
stage that threads divide among them follows from the processor seconds of all threads but the first.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import anndata
import click
import numpy as np
import psutil
from processes import FIT_CODES
from scipy.optimize import nnls
from sections import sections

from spatialpdvi.estimate.cost_model import EPOCHS, Work, predict_bytes, predict_seconds, rate_of
from spatialpdvi.estimate.machine import REFERENCE, Speed, measure_speed
from spatialpdvi.estimate.plan import plan_fit
from spatialpdvi.options.fit import FitOptions

SIZES = ((5_000, 5_000, 8), (15_000, 8_000, 14), (20_000, 8_000, 20), (50_000, 10_000, 15), (150_000, 25_000, 22))
HARD = 15_000  # spots of the section that is not easy: searches of easy ones end early
PLAIN = 50_000  # spots of the section that is also fitted without compression
GENE_WISE = (20_000, 150_000)  # spots of the sections that are also fitted without components
READING = ("packed", "bytes")
_WRITTEN = "spatialpdvi.h5ad"


@click.command()
@click.option("--fit", is_flag=True, help="Print the coefficients from all runs instead of the ratios.")
@click.option("--runs", type=click.Path(path_type=Path), help="JSON lines of earlier runs, to which these are added.")
@click.option("--file", "files", nargs=2, multiple=True, help="Another h5ad file and its K; repeatable.")
@click.option("--largest", default=150_000, show_default=True, help="Spots of the largest simulated section.")
@click.option("--real/--no-real", default=True, show_default=True, help="Include the real sections.")
def main(*, fit: bool, runs: Path | None, files: tuple[tuple[str, str], ...], largest: int, real: bool) -> None:
    """Run every fit once on the command line, as a user would."""
    done = [json.loads(line) for line in runs.read_text().splitlines()] if runs and runs.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for path, k, options in _chosen(Path(folder), files, largest=largest, real=real):
            done.append(measure(path, k, options, Path(folder)))
            if runs:
                runs.write_text("".join(f"{json.dumps(run)}\n" for run in done))
    print(coefficients(done) if fit else ratios(done))


def _chosen(folder: Path, files: tuple[tuple[str, str], ...], *, largest: int, real: bool) -> Any:
    real_ones = sections() if real else []  # where there are none, this is said before anything is fitted
    for n, genes, k in SIZES:
        if n <= largest:
            path = folder / f"simulated_{n}.h5ad"
            sizes = ("--n-spots", str(n), "--n-genes", str(genes), "--k", str(k), "-q")
            easy = () if n == HARD else ("--easy",)
            subprocess.run([sys.executable, "-m", "spatialpdvi", "simulate", path, *sizes, *easy], check=True)
            yield path, k, {}
            if n == PLAIN:
                anndata.read_h5ad(path).write_h5ad(path)
                yield path, k, {}
            if n in GENE_WISE:
                yield path, k, {"n_pcs": 0}
            path.unlink()
    for path, k in files:
        yield Path(path), int(k), {}
    for section in real_ones:
        yield section.path, section.k, section.options


def measure(path: Path, k: int, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Estimate and then fit: wall seconds, processor seconds and peak memory by stage."""
    work, speed = plan_fit(path, FitOptions(k=k, **options), markers=True).work, measure_speed()
    report = folder / "report.json"
    given = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    command = ["fit", path, "--k", k, *given, "-o", folder / _WRITTEN, "--json", report]
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "spatialpdvi", *map(str, command)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    stages = _watch(process)
    wall = time.perf_counter() - began
    found = json.loads(report.read_text())
    known = {"epochs": int(found["certificate"]["epochs"]), "smooth": int(found["params"]["smooth"])}
    return {
        "name": " ".join([path.stem, *given]),
        "work": vars(work),
        "known": known,
        "wall": wall,
        "processor": stages["processor"],
        "others": stages["others"],
        "peak": stages["peak"],
        "seconds": found["seconds"],
        "peak_memory_bytes": found["peak_memory_bytes"],
        "speed": tuple(speed.relative_to(REFERENCE)),
    }


def _watch(process: "subprocess.Popen[str]") -> dict[str, dict[str, float]]:
    """Processor seconds and peak memory between the lines that a fit prints at the end of each stage."""
    child, over = psutil.Process(process.pid), threading.Event()
    now = {"processor": 0.0, "others": 0.0, "peak": 0.0}

    def sample() -> None:
        while not over.wait(0.01):
            try:
                times, first = child.cpu_times(), child.threads()[0]
                now["peak"] = max(now["peak"], child.memory_info().rss)
            except (psutil.Error, IndexError):
                return
            now["processor"] = times.user + times.system
            now["others"] = max(now["others"], now["processor"] - first.user_time - first.system_time)

    sampler = threading.Thread(target=sample)
    sampler.start()
    found: dict[str, dict[str, float]] = {name: {} for name in now}
    before = dict(now)

    def end(stage: str) -> None:
        for name in ("processor", "others"):
            found[name][stage] = now[name] - before[name]
        found["peak"][stage] = now["peak"]
        before.update(now)
        now["peak"] = 0.0

    assert process.stderr is not None
    for line in process.stderr:
        if ended := re.match(r"([\w-]+): \d+\.\d s", line):
            end(ended[1])
    code = process.wait()
    over.set()
    sampler.join()
    end("start-up")  # includes the work after the last stage
    if code not in FIT_CODES:
        msg = f"Expected the fit to succeed, found exit code {code}."
        raise SystemExit(msg)
    return found


def ratios(runs: list[dict[str, Any]]) -> str:
    """Markdown table of predicted and measured cost, with their ratio."""
    cores = os.cpu_count() or 1
    titles = ["section", "spots", "genes", "K", "read", "wall s", "estimate s", "ratio", "range", "epochs"]
    titles += ["peak GB", "estimate GB", "ratio"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for run in runs:
        work, speed = Work(**run["work"]), Speed(*run["speed"])
        few, guess, many = (
            sum(predict_seconds(replace(work, epochs=epochs), speed, threads=cores).values()) for epochs in EPOCHS
        )
        true, peak = run["peak_memory_bytes"], max(predict_bytes(work).values())
        reading = "blocks" if work.block_bytes else "at once" if work.genes else "features"
        lines.append(
            f"| {run['name']} | {work.n:,} | {work.genes:,} | {work.k} | {reading} | {run['wall']:.1f} | "
            f"{guess:.1f} | {guess / run['wall']:.2f} | {few:.0f} to {many:.0f} | {run['known']['epochs']} | "
            f"{true / 1e9:.2f} | {peak / 1e9:.2f} | {peak / true:.2f} |"
        )
    return "\n".join([f"{cores} cores", "", *lines])


def coefficients(runs: list[dict[str, Any]]) -> str:
    """The tables of `estimate/cost_model.py` from these runs, by non-negative least squares of relative errors."""
    works = [replace(Work(**run["work"]), **run["known"]) for run in runs]
    # states that single spots do not tell apart are learnt, and neither searched with nor fitted
    fitted = [
        work if "search" in run["seconds"] else replace(work, states=0) for run, work in zip(runs, works, strict=True)
    ]
    seconds, shares = {}, {}
    cores = os.cpu_count() or 1
    for stage in works[0].terms():
        known = works if stage == "states" else fitted
        rows = [(run, work) for run, work in zip(runs, known, strict=True) if stage in run["processor"]]
        # with T threads, all but the first do (T - 1) / T of the parallel work
        others = sum(run["others"][stage] for run, _ in rows) / sum(run["processor"][stage] for run, _ in rows)
        share = shares[stage] = round(min(1.0, others * cores / max(1, cores - 1)), 2)
        true = [_wall(run, stage) / (1.0 - share + share / cores) for run, _ in rows]
        terms = [_scaled(work.terms()[stage] | {"once": 1.0}, run["speed"]) for run, work in rows]
        if stage != "read":  # only the first stage has its own coefficients for reading
            terms = [{name: size for name, size in row.items() if name not in READING} for row in terms]
        seconds[stage] = _solve(terms, true, least=0.05)
        if stage == "genes":
            seconds[stage]["packed"] = seconds["read"]["packed"]
    seconds["start-up"]["once"] += seconds["read"].pop("once")
    memory = {"start-up": {"once": 2.5e8}}
    for stage in [name for name in works[0].memory_terms() if name != "start-up"]:
        known = works if stage == "states" else fitted
        rows = [(run, work) for run, work in zip(runs, known, strict=True) if stage in run["peak"]]
        terms = [work.memory_terms()[stage] for _, work in rows]
        memory[stage] = _solve(
            terms, [run["peak"][stage] for run, _ in rows], least=1e8, fixed=("counts", "posteriors")
        )
    return "\n".join(
        f"{name} = {_literal(table)}"
        for name, table in (("SECONDS", seconds), ("PARALLEL", shares), ("MEMORY", memory))
    )


def _wall(run: dict[str, Any], stage: str) -> float:
    """Wall seconds of a stage; start-up is the time outside all stages."""
    stages = run["seconds"]
    return stages[stage] if stage in stages else run["wall"] - sum(stages.values())


def _scaled(terms: dict[str, float], speed: list[float]) -> dict[str, float]:
    rates = dict(zip(REFERENCE._fields, speed, strict=True))
    return {name: size / rates[rate_of(name)] for name, size in terms.items()}


def _solve(
    terms: list[dict[str, float]], true: list[float], *, least: float, fixed: tuple[str, ...] = ()
) -> dict[str, float]:
    """Coefficients >= 0 with the least relative error; a ``fixed`` term has the coefficient 1."""
    names = list(dict.fromkeys(name for row in terms for name in row))
    free = [name for name in names if name not in fixed]
    rest = np.array([value - sum(row.get(name, 0.0) for name in fixed) for row, value in zip(terms, true, strict=True)])
    weight = 1.0 / np.maximum(true, least)
    design = np.array([[row.get(name, 0.0) for name in free] for row in terms]) * weight[:, None]
    scale = np.maximum(design.max(axis=0), 1e-300)
    found = nnls(design / scale, np.maximum(rest, 0.0) * weight)[0] / scale
    return {name: 1.0 if name in fixed else float(f"{found[free.index(name)]:.3g}") for name in names}


def _literal(table: dict[str, Any]) -> str:
    rows = "".join(f"    {name!r}: {value!r},\n" for name, value in table.items())
    return "{\n" + rows + "}"


if __name__ == "__main__":
    main()
