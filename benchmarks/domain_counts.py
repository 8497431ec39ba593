"""Compare the number of domains that `--k auto` chooses on every real section with the annotated one, and their ARI.

Files that are named are fitted instead of those in the folder of the real sections.
"""

import tempfile
import time
import warnings
from pathlib import Path

import click
import numpy as np
from sections import Section, chosen, labelled, sections

from spatialpdvi import FitOptions, InputWarning, fit_file
from spatialpdvi.fitting.result import FitResult

HEADER = (
    "section",
    "spots",
    "annotated",
    "chosen",
    "ARI at annotated",
    "ARI at chosen",
    "best ARI of the range, at",
    "chosen by",
    "at annotated; at chosen",
    "restarts agree best at",
    "halves agree best at",
    "complete F lowest at",
    "seconds",
)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--k", default="auto", show_default=True, help="Range of the scan.")
@click.option("--only", multiple=True, help="Name of a section; repeatable. Default: all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--every", is_flag=True, help="Also fit every number of the range separately, for its ARI.")
@click.option("--curves", is_flag=True, help="Also print the table of each scan.")
def main(files: tuple[Path, ...], k: str, only: tuple[str, ...], seed: int, *, every: bool, curves: bool) -> None:
    """Print one row for each section, and how many of the chosen numbers are near the annotated ones.

    FILES are labelled sections of your own, with labels in obs["annotation"].
    """
    warnings.simplefilter("ignore", InputWarning)
    print(f"`--k {k}`, seed {seed}.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    annotated, found = [], []
    with tempfile.TemporaryDirectory() as folder:
        for section in chosen(labelled(files) or sections(), only):
            began = time.perf_counter()
            result = _fit(section, k, seed, folder)
            seconds = time.perf_counter() - began
            print(f"| {' | '.join(_row(section, result, seed, folder, every=every))} | {seconds:.0f} |", flush=True)
            annotated.append(section.k)
            found.append(result.n_domains)
            if curves:
                _print_curves(result)
    print(f"\n{nearness(np.array(annotated), np.array(found))}")


def nearness(annotated: np.ndarray, chosen: np.ndarray) -> str:
    """Return how many chosen numbers are within one, or 15 %, of the annotated ones, and their distance, in words."""
    near = np.abs(chosen - annotated) <= np.maximum(1.0, 0.15 * annotated)
    away = np.abs(np.log(chosen / annotated)).mean()
    return f"Within one or 15 %: {near.sum()} of {near.size}. Mean distance in the logarithm: {away:.2f}."


def _fit(section: Section, k: int | str, seed: int, folder: str) -> FitResult:
    options = FitOptions(k=k, seed=seed, **section.options)
    return fit_file(section.path, options, output=Path(folder) / "out.h5ad")


def _row(section: Section, result: FitResult, seed: int, folder: str, *, every: bool) -> list[str]:
    assert result.scan is not None  # because --k is a range
    table = result.scan.table
    counts = [int(count) for count in table["k"]]
    plain = {count: _ari(section, count, seed, folder) for count in (counts if every else [section.k])}
    best = max(plain, key=lambda count: plain[count])
    by = "evidence" if "evidence" in table else "found_again"  # compositions of states, or one mean for each domain
    found = dict(zip(counts, table[by], strict=True))
    at_annotated = plain[section.k] if section.k in plain else _ari(section, section.k, seed, folder)
    return [
        section.path.stem,
        f"{result.domains.size:,}",
        str(section.k),
        str(result.scan.k),
        f"{at_annotated:.3f}",
        f"{result.scores['ari']:.3f}",
        f"{plain[best]:.3f}, {best}" if every else "",
        by.replace("_", " "),
        f"{found.get(section.k, np.nan):.2f}, {found[result.scan.k]:.2f}",
        *(str(counts[int(np.argmax(table[name]))]) if name in table else "" for name in ("restart_ari", "split_ari")),
        str(counts[int(np.argmin(table["neg_elbo"]))]),
    ]


def _ari(section: Section, k: int, seed: int, folder: str) -> float:
    return float(_fit(section, k, seed, folder).scores["ari"])


def _print_curves(result: FitResult) -> None:
    assert result.scan is not None
    for name, column in result.scan.table.items():
        print(f"    {name}: {np.array2string(np.asarray(column), precision=3, max_line_width=200)}")


if __name__ == "__main__":
    main()
