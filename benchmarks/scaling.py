"""Seconds and peak memory of `spatialpdvi fit` by number of spots, domains and features, and their exponents.

The sections are thin copies of one simulated section side by side (`tiling`). They are written to --folder once. The
module imports little, for the reason given in `processes`.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from statistics import linear_regression
from typing import Any

import click
from processes import FIT_CODES, apart, describe_machine, forget, free_bytes, run, section_size

VALUE_BYTES = 8  # memory per stored count: a number and its gene
STAGES = (
    *("read", "genes", "PCA", "smooth", "start", "states", "search", "graph", "fit", "scores", "markers", "write"),
    "start-up",
)
_LEAST = 0.1  # seconds; shorter stages get no exponent
_COMMAND = [sys.executable, "-m", "spatialpdvi"]


@click.command()
@click.option("--folder", required=True, type=click.Path(path_type=Path), help="Folder in which sections are kept.")
@click.option("--n-spots", "sizes", default="50000,100000,200000,400000,1000000", show_default=True)
@click.option("--n-genes", default=5_000, show_default=True)
@click.option("--true-k", default=20, show_default=True, help="Domains of the sections and of their fits.")
@click.option("--at", default=100_000, show_default=True, help="Spots of the section for --k and --n-pcs.")
@click.option("--k", "ks", default="10,20,40", show_default=True)
@click.option("--n-pcs", "dimensions", default="10,20,40", show_default=True)
@click.option("--states", default="auto", show_default=True, help="Option of every fit.")
@click.option("--memory", default="4GB", show_default=True, help="Memory of a fit of the largest, block by block.")
@click.option("--threads", default=os.cpu_count() or 1, show_default=True)
@click.option("--limit", default=1800.0, show_default=True, help="Time limit of a fit in seconds.")
@click.option("--figure", type=click.Path(path_type=Path), help="Path of a figure of seconds and memory.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="JSON file to which every run is written.")
def main(*, folder: Path, sizes: str, ks: str, dimensions: str, json_path: Path | None, **given: Any) -> None:
    """Fit every section once and print tables with exponents."""
    spots, k = _numbers(sizes), given["true_k"]
    base = spots[0]
    uneven = [n for n in (*spots, given["at"]) if n % base]
    if uneven:
        msg = f"Expected multiples of the smallest section, {base:,} spots, found {uneven[0]:,}."
        raise click.UsageError(msg)
    folder.mkdir(parents=True, exist_ok=True)
    files = {n: _section(folder, n, base=base, n_genes=given["n_genes"], k=k) for n in {*spots, given["at"]}}
    how = {name: given[name] for name in ("threads", "limit", "states")} | {"folder": folder}
    measure(files[base], **how, k=k)  # an untimed fit, which compiles the kernels
    by_spots = [measure(files[n], **how, k=k) for n in spots]
    blocks = measure(files[spots[-1]], **how, k=k, memory=given["memory"]) if given["memory"] else None
    by_k = [measure(files[given["at"]], **how, k=asked, n_pcs=20) for asked in _numbers(ks)]
    by_dimension = [measure(files[given["at"]], **how, k=k, n_pcs=d) for d in _numbers(dimensions)]
    found = {
        "machine": describe_machine(),
        "threads": given["threads"],
        "states": given["states"],
        "n_genes": given["n_genes"],
        "by_spots": by_spots,
        "blocks": blocks,
        "by_k": by_k,
        "by_n_pcs": by_dimension,
    }
    if json_path:
        json_path.write_text(json.dumps(found, indent=2) + "\n")
    print(report(found))
    if given["figure"]:
        draw(found, given["figure"])


def _numbers(text: str) -> list[int]:
    return sorted(int(number) for number in text.split(",") if number.strip())


def _section(folder: Path, n: int, *, base: int, n_genes: int, k: int) -> Path:
    """Path of the file of ``n`` spots, which is written if it does not exist."""
    small, path = (folder / f"{name}_{n_genes}_{k}.h5ad" for name in (f"simulated_{base}", f"tiled_{base}_{n}"))
    if not small.exists():
        sizes = ["--n-spots", base, "--n-genes", n_genes, "--k", k, "--seed", 0, "--easy", "-q"]
        subprocess.run([*_COMMAND, "simulate", str(small), *map(str, sizes)], check=True)
    if not path.exists():
        apart(_tiled, small, path, n // base)
    return path


def _tiled(small: Path, path: Path, copies: int) -> None:
    from tiling import tile

    tile(small, path, copies)


def measure(
    section: Path,
    *,
    folder: Path,
    threads: int,
    limit: float,
    states: str,
    k: int,
    n_pcs: int | None = None,
    memory: str | None = None,
) -> dict[str, Any]:
    """Run one fit on the command line: seconds by stage, peak memory, epochs and ARI."""
    output, report_path = folder / "fitted.h5ad", folder / "report.json"
    spots, _, values = apart(section_size, section)
    command = [*_COMMAND, "fit", section, "-o", output, "--json", report_path, "--k", k, "--threads", threads]
    command += ["--states", states]
    for name, value in (("--n-pcs", n_pcs), ("--memory", memory)):
        command += [] if value is None else [name, value]
    # counts that exceed half of the free memory are read block by block
    in_memory = memory is None and 2 * VALUE_BYTES * values < free_bytes()
    forget(section)
    result = run(command, limit=limit, threads=threads, fine=FIT_CODES)
    output.unlink(missing_ok=True)
    row = {"spots": spots, "values": values, "k": k, "n_pcs": n_pcs, "memory": memory, "in_memory": in_memory}
    row |= result._asdict() | {"stages": {}, "epochs": None, "ari": None}
    if result.failure is None:
        report = json.loads(report_path.read_text())
        stages = {name: report["seconds"].get(name, 0.0) for name in STAGES[:-1]}
        row["stages"] = stages | {STAGES[-1]: result.seconds - sum(report["seconds"].values())}
        row |= {"epochs": report["certificate"]["epochs"], "ari": report["scores"]["ari"]}
        row["n_pcs"] = report["params"]["n_pcs"]
    report_path.unlink(missing_ok=True)
    done = result.failure or f"{result.seconds:.1f} s, {result.peak_bytes / 1e9:.2f} GB"
    print(f"{spots:,} spots, K {k}, {row['n_pcs']} components: {done}", file=sys.stderr, flush=True)
    return row


def exponent(sizes: list[float], costs: list[float]) -> float:
    """Least-squares slope of log cost over log size: cost grows as size to this power."""
    return linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in costs]).slope


def fitted(sizes: list[float], costs: list[float]) -> tuple[float, float]:
    """``(a, b)`` of the least-squares line cost = a size^b in logarithms."""
    line = linear_regression([math.log(size) for size in sizes], [math.log(cost) for cost in costs])
    return math.exp(line.intercept), line.slope


def report(found: dict[str, Any]) -> str:
    """Markdown tables for spots, domains and components, with exponents below the numbers."""
    blocks = [found["blocks"]] if found["blocks"] else []
    values = found["by_spots"][0]["values"] / found["by_spots"][0]["spots"]
    section = f"{found['n_genes']:,} genes, of which a spot has {values:.0f} on average; K {found['by_spots'][0]['k']}"
    lines = [f"{found['machine']}; {found['threads']} threads; `--states {found['states']}`; {section}.", ""]
    lines += table(found["by_spots"], "spots", others=blocks)
    last = [row for row in found["by_spots"] if row["failure"] is None and row["in_memory"]][-2:]
    if len(last) == 2:
        more = last[1]["spots"] - last[0]["spots"]
        seconds, size = (last[1][name] - last[0][name] for name in ("seconds", "peak_bytes"))
        lines.append("")
        lines.append(f"Between the last two sizes: {1e5 * seconds / more:.1f} s per 100,000 additional spots, ")
        lines[-1] += f"{size / more:,.0f} bytes per additional spot."
    for rows, name in ((found["by_k"], "k"), (found["by_n_pcs"], "n_pcs")):
        if rows:
            lines += ["", f"{rows[0]['spots']:,} spots:", "", *table(rows, name)]
    return "\n".join(lines)


def table(rows: list[dict[str, Any]], size: str, *, others: list[dict[str, Any]] | None = None) -> list[str]:
    """Markdown lines: one row per run, then the exponents in ``size`` of every column over all runs and the last two.

    A run that failed shows the reason instead. The exponents leave out ``others`` and all runs that read block by
    block, which exchange seconds for memory.
    """
    titles = [{"spots": "spots", "k": "K", "n_pcs": "components"}[size], "seconds", *STAGES, "CPU s", "peak GB"]
    lines = [f"| {' | '.join([*titles, 'epochs', 'ARI'])} |", "|---" * (len(titles) + 2) + "|"]
    for row in [*rows, *(others or [])]:
        name = f"{row[size]:,}"
        if not row["in_memory"]:
            name += f", `--memory {row['memory']}`" if row["memory"] else "*"
        if row["failure"] is not None:
            lines.append(f"| {name} | none: {row['failure']} |" + " – |" * len(titles))
            continue
        numbers = [f"{value:.1f}" for value in _costs(row)[:-1]]
        numbers += [f"{row['peak_bytes'] / 1e9:.2f}", f"{row['epochs']}", f"{row['ari']:.3f}"]
        lines.append(f"| {' | '.join([name, *numbers])} |")
    counted = [row for row in rows if row["failure"] is None and row["in_memory"]]
    for name, some in (("exponent, all", counted), ("exponent, last two", counted[-2:])):
        if len(some) > 1:
            lines.append(f"| {name} | {' | '.join(_exponents(some, size))} | | |")
    if any(not row["in_memory"] and not row["memory"] for row in rows):
        lines += ["", "\\* too large for the free memory: read block by block and not counted in the exponents."]
    return lines


def _costs(row: dict[str, Any]) -> list[float]:
    """Values of the columns from the seconds to the peak memory."""
    return [row["seconds"], *(row["stages"][name] for name in STAGES), row["cpu_seconds"], row["peak_bytes"]]


def _exponents(rows: list[dict[str, Any]], size: str) -> list[str]:
    sizes = [row[size] for row in rows]
    return [
        f"{round(exponent(sizes, list(costs)), 2) + 0.0:.2f}" if min(costs) >= _LEAST else "–"
        for costs in zip(*(_costs(row) for row in rows), strict=True)
    ]


def draw(found: dict[str, Any], path: Path) -> None:
    """Plot seconds and peak memory over spots on log-log axes, with fitted lines and the fit that reads in blocks."""
    from matplotlib.figure import Figure

    from spatialpdvi.plotting.save import save_figure

    rows = [row for row in found["by_spots"] if row["failure"] is None and row["in_memory"]]
    figure = Figure(figsize=(8.4, 3.7), layout="constrained")
    panels = (("seconds", 1.0, "seconds, from the file to the result"), ("peak_bytes", 1e9, "peak memory, GB"))
    for ax, (name, unit, title) in zip(figure.subplots(1, 2), panels, strict=True):
        sizes, costs = [row["spots"] for row in rows], [row[name] / unit for row in rows]
        factor, power = fitted(sizes, costs)
        ends = [sizes[0] / 1.25, sizes[-1] * 1.25]
        exponents = [power, exponent(sizes[-2:], costs[-2:])]
        labels = [f"{name}: n$^{{{value:.2f}}}$" for name, value in zip(("all", "last two"), exponents, strict=True)]
        ax.plot(ends, [factor * n**power for n in ends], color="0.6", linewidth=1.2, label=labels[0])
        ax.plot(sizes, costs, "o", color="#0b6e99", markersize=5.5, label=f"measured; {labels[1]}", zorder=3)
        block = found["blocks"]
        if block and block["failure"] is None:
            how = {"color": "#d9711a", "markersize": 6, "fillstyle": "none", "linestyle": "none"}
            label = f"block by block, --memory {block['memory']}"
            ax.plot(block["spots"], block[name] / unit, marker="s", label=label, **how)
        _style(ax, sizes, title)
    save_figure(figure, path, dpi=150)


def _style(ax: Any, sizes: list[int], title: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(sizes, [f"{n / 1e6:g} M" if n >= 1e6 else f"{n / 1e3:g} k" for n in sizes])
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0), numticks=20))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("spots")
    ax.set_title(title, fontsize=10)
    ax.grid(color="0.92", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, frameon=False)


if __name__ == "__main__":
    main()
