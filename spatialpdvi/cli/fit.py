"""``spatialpdvi fit``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.checkpoint import check_kept, close, keep_in, resumable
from spatialpdvi.cli.common import (
    EXIT_NOT_CONVERGED,
    FILE,
    display,
    limit_threads,
    print_calibration,
    print_scores,
    report_result,
    takes_table,
    true_interruption,
    true_of_the_result,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.dask import workers
from spatialpdvi.cli.options import GroupedCommand, table_options
from spatialpdvi.cli.scan import print_scan
from spatialpdvi.options.fit import FitOptions

if TYPE_CHECKING:
    from spatialpdvi.fitting.result import FitResult

__all__ = ["fit"]


@click.command(cls=GroupedCommand)
@click.argument("sections", type=FILE, nargs=-1, required=True, metavar="SECTION...")
@click.option(
    "--output", "-o", type=FILE, help="File to write to; of several sections the folder. Default: back into the input."
)
@table_options()
@click.option("--threads", type=int, help="Threads at the most; results do not depend on it. Default: all cores.")
@click.option("--report", type=FILE, help="Also write scores, certificate and marker genes as JSON here. Default: no.")
@click.option(
    "--dask",
    metavar="WHERE",
    help="Run the solver on a Dask cluster: local:N workers on this computer, a scheduler's tcp://HOST:PORT, or its "
    "scheduler file. The result is the same. Default: no.",
)
@click.option(
    "--save-model", type=FILE, help="Also write the model here, for `predict` on other sections. Default: no."
)
@click.option(
    "--checkpoint",
    type=FILE,
    help="Folder to keep the fit in while it runs, so that it can go on after it was killed; removed when all is "
    "written. Default: none.",
)
@click.option("--checkpoint-every", type=int, help="Epochs between two checkpoints. Default: 10.")
@click.option(
    "--resume",
    is_flag=True,
    help="Go on from what --checkpoint holds, to the same result; begin where it holds nothing. Default: off.",
)
@verbosity
@user_errors
@takes_table
def fit(
    sections: tuple[Path, ...],
    output: Path | None,
    *,
    threads: int | None,
    dask: str | None,
    report: Path | None,
    save_model: Path | None,
    checkpoint: Path | None,
    checkpoint_every: int | None,
    resume: bool,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the spatial domains of SECTION, an h5ad file or zarr store, and write them into it.

    Several sections are fitted together, with one set of domains for all. An --output that ends in .zarr is a zarr
    store, one that ends in .h5ad a file. Of a SpatialData store a table is fitted, and written to --output alone.

    \b
    Example:
      spatialpdvi fit embryo.h5ad --k 20
      spatialpdvi fit embryo.h5ad --k auto
      spatialpdvi fit one.h5ad two.h5ad --k 7 --correct center -o fitted/
      spatialpdvi fit slice.h5ad --k 7 --rep X_pca --n-pcs 15 -o slice_domains.h5ad --report scores.json
      spatialpdvi fit embryo.h5ad --k 20 --checkpoint embryo.fit --resume
      spatialpdvi fit xenium.zarr --table table --k 12 -o xenium_domains.zarr
    """
    chosen = FitOptions(**options)
    check_kept(checkpoint, every=checkpoint_every, resume=resume)
    limit_threads(threads)
    from spatialpdvi import api
    from spatialpdvi.io.storage.atomic import check_distinct, check_writable

    several = len(sections) > 1
    targets = [path if output is None else output / path.name if several else output for path in sections]
    if report is not None:
        check_distinct(report, "report", (*sections, *targets))
        check_writable(report, "report")
    if save_model is not None:
        check_distinct(save_model, "save_model", (*sections, *targets, *([] if report is None else [report])))
        check_writable(save_model, "save_model")
    kept = None if checkpoint is None else keep_in(checkpoint, every=checkpoint_every, resume=resume)
    with resumable(kept), true_interruption(*targets, report, save_model):
        extra: dict[str, Any] = {
            "keep_model": save_model is not None,
            "find_markers": report is not None,
            "checkpoint": kept,
        }
        with display(quiet=quiet, verbose=verbose) as progress, workers(dask, progress) as cluster:
            extra["cluster"] = cluster
            if several:
                result = api.fit_files(sections, chosen, output=output, progress=progress, **extra)
            else:
                result = api.fit_file(sections[0], chosen, output=output, progress=progress, **extra)
        if report is not None:
            report_result(result, report, targets)
        if save_model is not None:
            with true_of_the_result(targets, "the model"):
                api.save_model(result, save_model)
        if not quiet:
            if result.scan is not None:
                print_scan(result.scan)
            _print_summary(result, targets, chosen.key_added)
            if save_model is not None:
                click.echo(f"model: {click.format_filename(save_model)}")
        if kept is not None:
            close(kept)
        if not result.certificate.converged:
            click.echo(f"NOT CONVERGED. {result.certificate.sentence()} The result was written all the same.", err=True)
            sys.exit(EXIT_NOT_CONVERGED)


def _print_summary(result: "FitResult", written: list[Path], key: str) -> None:
    print_scores({"domains": result.scores, "start": result.scores["baseline"], **_by_sample(result.scores)})
    if "trivial" in result.scores:
        trivial = result.scores["trivial"]
        click.echo(
            f"k-means on the smoothed features, {trivial['n_seeds']} seeds: ARI {trivial['ari']:.3f} "
            f"[{trivial['ari_min']:.3f}-{trivial['ari_max']:.3f}]"
        )
    if result.agreement is not None:
        click.echo(f"restarts: {result.params['n_restarts']}, mean agreement {result.agreement.mean():.0%}")
    print_calibration(result)
    sizes = ", ".join(f"{size:,}" for size in result.domain_sizes)
    click.echo(f"domain sizes: {sizes}")
    if result.certificate.converged:
        click.echo(f"certificate: {result.certificate.sentence()}")
    files = ", ".join(click.format_filename(path) for path in written)
    click.echo(f"written: {files} (obs['{key}_domain'], obsm['{key}_posterior'], uns['{key}'])")


def _by_sample(scores: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Rows of the table for the sections of a joint fit, by name."""
    columns = dict(scores.get("samples", {}))
    names = columns.pop("sample", ())
    return {name: {score: values[i] for score, values in columns.items()} for i, name in enumerate(names)}
