"""``spatialpdvi fit``."""

import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.common import (
    EXIT_NOT_CONVERGED,
    FILE,
    display,
    limit_threads,
    print_scores,
    true_interruption,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import GroupedCommand, table_options
from spatialpdvi.errors import InputError
from spatialpdvi.options import FitOptions

if TYPE_CHECKING:
    from spatialpdvi.result import FitResult

__all__ = ["fit"]


@click.command(cls=GroupedCommand)
@click.argument("section", type=FILE)
@click.option("--output", "-o", type=FILE, help="File to write to. Default: back into the input.")
@table_options()
@click.option("--threads", type=int, help="Threads at the most; results do not depend on it. Default: all cores.")
@click.option("--report", type=FILE, help="Also write scores and certificate as JSON here. Default: no.")
@verbosity
@user_errors
def fit(
    section: Path,
    output: Path | None,
    *,
    threads: int | None,
    report: Path | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the spatial domains of SECTION, an h5ad file, and write them into it.

    \b
    Example:
      spatialpdvi fit embryo.h5ad --k 20
      spatialpdvi fit slice.h5ad --k 7 --rep X_pca --n-pcs 15 -o slice_domains.h5ad --report scores.json
    """
    chosen = FitOptions(**options)
    limit_threads(threads)
    from spatialpdvi.api import fit_file
    from spatialpdvi.io.atomic import check_distinct, check_writable

    target = section if output is None else output
    if report is not None:
        check_distinct(report, "--report", (section, target))
        check_writable(report, "--report")
    with true_interruption(target, report):
        with display(quiet=quiet, verbose=verbose) as progress:
            result = fit_file(section, chosen, output=output, progress=progress)
        if report is not None:
            _write_report(result, report, target)
        if not quiet:
            _print_summary(result, target, chosen.key_added)
        if not result.certificate.converged:
            click.echo(f"NOT CONVERGED. {result.certificate.sentence()} The result was written all the same.", err=True)
            sys.exit(EXIT_NOT_CONVERGED)


def _print_summary(result: "FitResult", written: Path, key: str) -> None:
    baseline = result.scores["baseline"]
    if "n_scored" in result.scores:
        click.echo(f"{result.scores['n_scored']:,} of {result.scores['n_spots']:,} spots are labelled and scored")
    print_scores({"domains": result.scores, "start": baseline})
    sizes = ", ".join(f"{size:,}" for size in result.domain_sizes)
    click.echo(f"domain sizes: {sizes}")
    if result.certificate.converged:
        click.echo(f"certificate: {result.certificate.sentence()}")
    click.echo(
        f"written: {click.format_filename(written)} (obs['{key}_domain'], obsm['{key}_posterior'], uns['{key}'])"
    )


def _write_report(result: "FitResult", path: Path, written: Path) -> None:
    from spatialpdvi.io.atomic import write_json

    # ru_maxrss is in bytes on macOS, in KiB elsewhere
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    content = {"output": str(written), **result.report(), "peak_memory_bytes": peak}
    try:
        write_json(path, content, option="--report")
    except InputError as error:
        truth = f"The result is written, to {str(written)!r}; the report is not."
        msg = str(error).replace("Nothing was changed.", truth)
        raise InputError(msg) from error
