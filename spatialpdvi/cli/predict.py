"""``spatialpdvi predict``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.common import (
    EXIT_NOT_CONVERGED,
    FILE,
    display,
    print_calibration,
    print_scores,
    report_result,
    takes_table,
    true_interruption,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import GroupedCommand, table_options

if TYPE_CHECKING:
    from spatialpdvi.fitting.result import FitResult

__all__ = ["predict"]


@click.command(cls=GroupedCommand)
@click.argument("section", type=FILE)
@click.option("--model", type=FILE, required=True, help="File that `fit --save-model` wrote.")
@click.option("--output", "-o", type=FILE, help="File to write to. Default: back into the input.")
@click.option(
    "--correct",
    help="Between the fit's sections and this one: none, or center, which takes this one's mean off its components. "
    "Default: as in the model's fit.",
)
@table_options(("layer", "spatial_key", "label_key", "sample_key", "key_added", "save_graph"))
@click.option("--report", type=FILE, help="Also write scores and certificate as JSON here. Default: no.")
@verbosity
@user_errors
@takes_table
def predict(
    section: Path,
    *,
    model: Path,
    output: Path | None,
    report: Path | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find a model's domains in SECTION, a file or store that the model has not seen, and write them into it.

    The domains keep the model's numbers, whatever their sizes here.

    \b
    Example:
      spatialpdvi fit one.h5ad --k 7 --save-model cortex.npz
      spatialpdvi predict two.h5ad --model cortex.npz
    """
    from spatialpdvi.api import predict_file
    from spatialpdvi.io.storage.atomic import check_distinct, check_writable

    target = section if output is None else output
    check_distinct(target, "output", (model,))
    if report is not None:
        check_distinct(report, "report", (section, target, model))
        check_writable(report, "report")
    with true_interruption(target, report):
        with display(quiet=quiet, verbose=verbose) as progress:
            result = predict_file(section, model=model, output=output, progress=progress, **options)
        if report is not None:
            report_result(result, report, [target])
        if not quiet:
            _print_summary(result, target, options["key_added"])
        if not result.certificate.converged:
            click.echo(f"NOT CONVERGED. {result.certificate.reason} The result was written all the same.", err=True)
            sys.exit(EXIT_NOT_CONVERGED)


def _print_summary(result: "FitResult", written: Path, key: str) -> None:
    print_scores({"domains": result.scores, "each spot by itself": result.scores["baseline"]})
    print_calibration(result)
    sizes = ", ".join(f"{size:,}" for size in result.domain_sizes)
    click.echo(f"domain sizes, in the model's order: {sizes}")
    click.echo(
        f"beside the spots of the model's fit: {result.params['outside']:.1%} farther from every domain than 99.9% of "
        f"those; domains moved by {result.params['shift']:.0%} of the way to the next one"
    )
    certificate = result.certificate
    click.echo(
        f"certificate: {certificate.reason} {certificate.epochs} sweeps; posteriors within "
        f"{certificate.stationarity_posterior:.1e} (tolerance {certificate.tolerance:.0e})."
    )
    file = click.format_filename(written)
    click.echo(f"written: {file} (obs['{key}_domain'], obsm['{key}_posterior'], uns['{key}'])")
