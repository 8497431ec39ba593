"""``spatialpdvi predict``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.common import (
    FILE,
    check_label_table,
    check_outputs,
    display,
    echo,
    exit_not_converged,
    importing,
    limit_threads,
    name_written,
    print_calibration,
    print_excluded,
    print_scores,
    print_written,
    report_result,
    table_option,
    user_errors,
    verbosity,
    write_label_table,
)
from spatialpdvi.cli.options import COUNTS_MEMORY, LABELS, SLIM, THREADS, GroupedCommand, table_options
from spatialpdvi.options.fit import OF_A_SECTION

if TYPE_CHECKING:
    from spatialpdvi.fitting.result import FitResult

__all__ = ["predict"]


@click.command(cls=GroupedCommand)
@click.argument("section", type=FILE)
@click.option("--model", type=FILE, required=True, help="Model that `fit --save-model` wrote.")
@click.option("--output", "-o", type=FILE, help="File to write the result to. Default: the input is updated.")
@SLIM
@click.option(
    "--correct",
    help="Correction of differences between SECTION and the sections of the fit: none, or center, which subtracts the "
    "mean of SECTION from its components. Default: as in the fit.",
)
@table_options((*OF_A_SECTION, "key_added", "save_graph"))
@COUNTS_MEMORY
@THREADS
@click.option(
    "--json",
    "--report",
    "report",
    type=FILE,
    help="Also write scores and certificate as JSON to this file. Default: not written.",
)
@LABELS
@verbosity
@user_errors
@table_option
def predict(
    section: Path,
    *,
    model: Path,
    output: Path | None,
    slim: bool,
    report: Path | None,
    labels: Path | None,
    threads: int | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the domains of a model in SECTION and write them into it.

    SECTION is an h5ad file or a zarr store that the model was not fitted on. The domains have the same numbers as in
    the model, whatever their sizes in SECTION.

    \b
    Example:
      spatialpdvi fit one.h5ad --k 7 --save-model cortex.npz
      spatialpdvi predict two.h5ad --model cortex.npz
    """
    limit_threads(threads)
    with importing():
        from spatialpdvi.api import predict_file
        from spatialpdvi.io.storage.paths import locate, output_of

    target = output_of(locate(section), output).path
    taken = check_outputs((section, target, model), json=report)
    check_label_table(labels, taken)
    with name_written(target, report, labels):
        with display(quiet=quiet, verbose=verbose) as progress:
            result = predict_file(section, model=model, output=output, slim=slim, progress=progress, **options)
        if report is not None:
            report_result(result, report, [target])
        write_label_table([target], labels, options["key_added"])
        if not quiet:
            _print_summary(result, target, options["key_added"])
            if labels is not None:
                echo(f"table: {click.format_filename(labels)}")
        if not result.certificate.converged:
            exit_not_converged(result.certificate.reason)


def _print_summary(result: "FitResult", written: Path, key: str) -> None:
    from spatialpdvi.prediction.shift import compared_parts

    print_scores(("domains", result.scores), ("start of the prediction", result.scores["baseline"]))
    print_calibration(result)
    print_excluded(result)
    sizes = ", ".join(f"{size:,}" for size in result.domain_sizes)
    echo(f"domain sizes, in the order of the model: {sizes}")
    of, moved = compared_parts(with_states=result.states is not None)
    echo(
        f"compared with the model's own spots: {result.params['outside']:.1%} of the spots are farther from every {of} "
        f"than 99.9% of those; {moved} moved by {result.params['shift']:.0%} of the way to the nearest other one"
    )
    certificate = result.certificate
    echo(
        f"certificate: {certificate.reason} {certificate.epochs} epochs; posteriors within "
        f"{certificate.stationarity_posterior:.1e} (tolerance {certificate.tolerance:.0e})."
    )
    print_written([written], key)
