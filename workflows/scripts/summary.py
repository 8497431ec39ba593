"""Write results/summary.tsv: one row for each sample and number of domains, with means over seeds.

Uses the standard library alone.
"""

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

COLUMNS = ("sample", "k", "k_fitted", "n_seeds", "n_converged", "ari_mean", "ari_sd", "ari_min", "ari_max", "neg_elbo")


def summarise(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the table from those of `Plan.rows`; missing values are empty."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["sample"], row["k"]), []).append(row)
    return [_one(sample, k, members) for (sample, k), members in groups.items()]


def _one(sample: str, k: str, members: Sequence[dict[str, Any]]) -> dict[str, Any]:
    reports = [json.loads(Path(row["report"]).read_text()) for row in members]
    scores = [json.loads(Path(row["scores"]).read_text())["scores"] for row in members if row["scores"]]
    ari = [found["ari"] for found in scores if found["ari"] is not None]
    spread = {"ari_mean": mean, "ari_sd": lambda x: stdev(x) if len(x) > 1 else 0.0, "ari_min": min, "ari_max": max}
    return {
        "sample": sample,
        "k": k.replace("-", ":"),
        "k_fitted": ",".join(map(str, sorted({len(report["domain_sizes"]) for report in reports}))),
        "n_seeds": len(members),
        "n_converged": sum(report["certificate"]["converged"] for report in reports),
        **{name: f"{of(ari):.4f}" if ari else "" for name, of in spread.items()},
        "neg_elbo": f"{mean(report['certificate']['neg_elbo'] for report in reports):.6g}",
    }


def write(rows: Iterable[dict[str, Any]], path: str) -> None:
    """Write the rows as a tab-separated table."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if "snakemake" in globals():
    job = globals()["snakemake"]
    write(summarise(job.params.rows), job.output[0])
