"""Seconds and peak memory of every stage of a fit, for one section or several, with exponents.

The peak of a stage is read from the kernel, which is told to forget it when a stage begins: Linux only.
"""

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
from processes import apart, changes, describe_machine, section_size, set_option
from scaling import exponent

__all__ = ["fit_by_stages", "table"]

_STATUS = Path("/proc/self/status")
_FORGET_PEAK = Path("/proc/self/clear_refs"), "5"
_LEAST = 0.1  # seconds, and GB: what takes less gets no exponent


def fit_by_stages(
    path: Path, options: dict[str, Any], *, markers: bool = False, dask: str | None = None
) -> dict[str, Any]:
    """Fit a section, and return its seconds and the peak bytes of this process by stage, and what tells fits apart.

    Parameters
    ----------
    path
        The section.
    options
        Of `FitOptions`.
    markers
        Whether marker genes are found.
    dask
        A cluster, such as ``local:2``; its workers are not counted in the peaks.
    """
    began = time.perf_counter()
    import numpy as np

    from spatialpdvi import FitOptions, fit_file
    from spatialpdvi.distributed import connect  # dask loads when a cluster starts
    from spatialpdvi.runtime.progress import Progress, Stage

    peaks: dict[str, int] = {}

    class Watched(Progress):
        @contextmanager
        def stage(self, name: str) -> Iterator[Stage]:
            place, text = _FORGET_PEAK
            place.write_text(text)
            with super().stage(name) as stage:
                yield stage
            peaks[name] = max(peaks.get(name, 0), _peak())

    progress = Watched()
    cluster_of = nullcontext() if dask is None else connect(dask)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, cluster_of as cluster:
        result = fit_file(
            path,
            FitOptions(**options),
            output=Path(folder) / "fit.h5ad",
            find_markers=markers,
            progress=progress,
            cluster=cluster,
        )
    certificate = result.certificate
    return {
        "seconds": progress.seconds,
        "all": time.perf_counter() - began,
        "peaks": peaks,
        "epochs": certificate.epochs,
        "converged": certificate.converged,
        "neg_elbo": float(result.trace["neg_elbo"][-1]),
        "ari": result.scores.get("ari"),
        "digest": hashlib.sha256(np.ascontiguousarray(result.posterior)).hexdigest()[:12],
    }


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Markdown lines: a column for each section, a row for each stage, seconds before the slash and GB after it."""
    stages = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    lines = [f"| stage | {' | '.join(row['name'] for row in rows)} |" + (" exponents |" if len(rows) > 1 else "")]
    lines.append("|---" * (lines[0].count("|") - 1) + "|")
    for name in stages:
        costs = [(row["seconds"].get(name, 0.0), row["peaks"].get(name, 0) / 1e9) for row in rows]
        lines.append(_line(name, costs, rows))
    lines.append(_line("all", [(row["all"], max(row["peaks"].values()) / 1e9) for row in rows], rows))
    for title, name in (("epochs", "epochs"), ("converged", "converged"), ("ARI", "ari"), ("bits", "digest")):
        shown = [f"{row[name]:.3f}" if isinstance(row[name], float) else str(row[name]) for row in rows]
        lines.append(f"| {title} | {' | '.join(shown)} |" + (" |" if len(rows) > 1 else ""))
    return lines


def _line(name: str, costs: list[tuple[float, float]], rows: list[dict[str, Any]]) -> str:
    shown = [f"{seconds:.1f} / {peak:.2f}" for seconds, peak in costs]
    if len(rows) > 1:
        sizes = [row["spots"] for row in rows]
        differ = len(set(sizes)) > 1
        powers = [
            f"{exponent(sizes, list(some)):.2f}" if differ and min(some) > _LEAST else "–"
            for some in zip(*costs, strict=True)
        ]
        shown.append(" / ".join(powers))
    return f"| {name} | {' | '.join(shown)} |"


def _peak() -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB", _STATUS.read_text(), flags=re.MULTILINE)
    assert found is not None  # every Linux has it
    return int(found[1]) * 1024


@click.command()
@click.argument("sections", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--k", default=20, show_default=True, help="Domains.")
@set_option
@click.option("--markers", is_flag=True, help="Find marker genes as well.")
@click.option("--dask", help="Cluster of the fit, such as local:2.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="JSON file to which every fit is written.")
def main(sections: tuple[Path, ...], k: int, changed: tuple[str, ...], json_path: Path | None, **how: Any) -> None:
    """Fit every section once, each in a process of its own, and print the table."""
    options: dict[str, Any] = {"k": k} | changes(changed, fixed=("k",))
    rows = []
    for path in sections:
        spots, genes, values = apart(section_size, path)
        row = apart(partial(fit_by_stages, **how), path.absolute(), options)
        rows.append({"name": f"{spots:,} x {genes:,}", "spots": spots, "values": values} | row)
        if json_path:
            json_path.write_text(json.dumps(how | {"options": options, "rows": rows}, indent=2) + "\n")
    print(f"{apart(describe_machine)}; {options}. Seconds / peak GB; values: {[row['values'] for row in rows]}.\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
