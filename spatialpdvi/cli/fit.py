"""``spatialpdvi fit``."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.checkpoint import check_options, close, explain_how_to_resume, make_checkpoint
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
    print_table,
    print_written,
    report_result,
    result_is_written,
    table_option,
    user_errors,
    verbosity,
    write_label_table,
)
from spatialpdvi.cli.options import LABELS, PRESET, SLIM, THREADS, GroupedCommand, options_of, table_options
from spatialpdvi.errors import own_names

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster
    from spatialpdvi.fitting.result import FitResult, Scan
    from spatialpdvi.runtime.progress import Progress

__all__ = ["fit"]

_MOST_SECTIONS, _WIDEST = 12, 100  # rows and letters of the table of sections that is printed unasked


@click.command(cls=GroupedCommand)
@click.argument("sections", type=FILE, nargs=-1, required=True, metavar="SECTION...")
@click.option(
    "--output",
    "-o",
    type=FILE,
    help="File to write the result to; with several sections a folder, which is made if it does not exist. Default: "
    "the input is updated.",
)
@SLIM
@table_options()
@PRESET
@THREADS
@click.option(
    "--json",
    "--report",
    "report",
    type=FILE,
    help="Also write scores, certificate and marker genes as JSON to this file. Default: not written.",
)
@LABELS
@click.option(
    "--intervals",
    is_flag=True,
    help="Also write credible intervals of the domains' marker genes and composition into the result, as "
    "`intervals --store` does. Default: off.",
)
@click.option(
    "--dask",
    metavar="WHERE",
    help="Run the solver on a Dask cluster. local:N starts N workers on this computer; tcp://HOST:PORT or a scheduler "
    "file connects to a running scheduler. The result does not depend on it. Default: no cluster.",
)
@click.option(
    "--save-model",
    type=FILE,
    help="Also write the model to this file, to be used with `predict` on other sections. Default: not written.",
)
@click.option(
    "--checkpoint",
    type=FILE,
    help="Folder in which the state of the fit is saved while it runs, so that it can be resumed. It is removed when "
    "all results are written, unless the fit stopped at --max-epochs and can be resumed with more. Default: no "
    "checkpoint.",
)
@click.option("--checkpoint-every", type=int, help="Number of epochs between two checkpoints. Default: 10.")
@click.option(
    "--resume",
    is_flag=True,
    help="Resume the fit from the folder of --checkpoint. The result is the same as without the interruption. If there "
    "is no checkpoint, begin a new fit. Default: off.",
)
@verbosity
@user_errors
@table_option
def fit(
    sections: tuple[Path, ...],
    output: Path | None,
    *,
    slim: bool,
    intervals: bool,
    threads: int | None,
    dask: str | None,
    report: Path | None,
    labels: Path | None,
    save_model: Path | None,
    checkpoint: Path | None,
    checkpoint_every: int | None,
    resume: bool,
    preset: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Find the spatial domains of SECTION and write them into it.

    SECTION is an h5ad file or a zarr store. Several sections are fitted together, with one set of domains for all. The
    ending of --output, .h5ad or .zarr, sets its format. Of a SpatialData store, one table is fitted and updated, or
    written to --output; all other elements stay as they are.

    \b
    Example:
      spatialpdvi fit embryo.h5ad --k 20
      spatialpdvi fit embryo.h5ad --k auto
      spatialpdvi fit one.h5ad two.h5ad --k 7 --correct center -o fitted/
      spatialpdvi fit slice.h5ad --k 7 --rep X_pca --n-pcs 15 -o slice_domains.h5ad --json scores.json
      spatialpdvi fit embryo.h5ad --k 20 --checkpoint embryo.fit --resume
      spatialpdvi fit embryo.h5ad --k 20 -o light.h5ad --slim
      spatialpdvi fit xenium.zarr --table table --k 12
    """
    chosen = options_of(preset, options, quiet=quiet)
    check_options(checkpoint, every=checkpoint_every, resume=resume)
    limit_threads(threads)
    with importing():
        from spatialpdvi import api
        from spatialpdvi.api.folders import made_folder
        from spatialpdvi.io.storage.paths import file_names, locate, locate_all, output_of

    several = len(sections) > 1
    if several and output is not None:
        targets = [output / name for name in file_names(locate_all(sections))]
    else:
        targets = [output_of(locate(path), output).path for path in sections]
    # the folder of several results may have the other files as well
    with made_folder(output if several else None, n_files=len(sections)):
        others = (*sections, *targets) if checkpoint is None else (*sections, *targets, checkpoint)
        taken = check_outputs(others, json=report, save_model=save_model)
        check_label_table(labels, taken)
        state = None if checkpoint is None else make_checkpoint(checkpoint, every=checkpoint_every, resume=resume)
        with explain_how_to_resume(state), name_written(*targets, report, labels, save_model):
            with display(quiet=quiet, verbose=verbose) as progress, _connected(dask, progress) as cluster:
                work = partial(api.fit_files, sections) if several else partial(api.fit_file, sections[0])
                result = work(
                    chosen,
                    output=output,
                    slim=slim,
                    intervals=intervals,
                    keep_model=save_model is not None,
                    find_markers=report is not None,
                    progress=progress,
                    checkpoint=state,
                    cluster=cluster,
                )
            if save_model is not None:  # first, since the other two can be made of the result later
                with result_is_written(targets, "model"), own_names({"path": "save_model"}):
                    api.save_model(result, save_model)
            if report is not None:
                report_result(result, report, targets)
            write_label_table(targets, labels, chosen.key_added)
            if state is not None:  # before what is printed, which may fail
                close(state)
            if not quiet:
                if result.scan is not None:
                    _print_scan(result.scan)
                _print_summary(result, targets, chosen.key_added, verbose=verbose)
                for what, path in (("table", labels), ("model", save_model)):
                    if path is not None:
                        echo(f"{what}: {click.format_filename(path)}")
            if not result.certificate.converged:
                exit_not_converged(result.certificate.sentence())


def _print_summary(result: "FitResult", written: list[Path], key: str, *, verbose: bool) -> None:
    print_scores(("domains", result.scores), ("start", result.scores["baseline"]), *_by_sample(result.scores))
    if "trivial" in result.scores:
        trivial = result.scores["trivial"]
        echo(
            f"k-means on the smoothed features, {trivial['n_seeds']} seeds: ARI {trivial['ari']:.3f} "
            f"[{trivial['ari_min']:.3f}-{trivial['ari_max']:.3f}]"
        )
    if result.agreement is not None:
        echo(f"restarts: {result.params['n_restarts']}, mean agreement {result.agreement.mean():.0%}")
    print_calibration(result)
    print_excluded(result)
    sizes = ", ".join(f"{size:,}" for size in result.domain_sizes)
    echo(f"domain sizes: {sizes}")
    _print_sections(result, verbose=verbose)
    if result.certificate.converged:
        echo(f"certificate: {result.certificate.sentence()}")
    print_written(written, key)


def _print_sections(result: "FitResult", *, verbose: bool) -> None:
    """Print how many spots of each section of a joint fit every domain has; a large table only if all is wanted."""
    table = result.sizes_by_section()
    if table is None:
        return
    heads = ["", *map(str, table.columns)]
    rows = [[str(name), *map("{:,}".format, sizes)] for name, sizes in zip(table.index, table.to_numpy(), strict=True)]
    if verbose or len(rows) <= _MOST_SECTIONS:
        print_table(heads, rows, numbers=range(1, len(heads)), widest=None if verbose else _WIDEST)


def _by_sample(scores: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the scores of each section of a joint fit."""
    columns = dict(scores.get("samples", {}))
    for i, name in enumerate(columns.pop("sample", ())):
        yield name, {score: values[i] for score, values in columns.items()}


def _print_scan(scan: "Scan") -> None:
    """Print one row for each number of domains, with a mark at the recommended one, and the reason below."""
    from spatialpdvi.model_selection.recommend import SCAN_COLUMNS

    columns = {name: column for name, column in SCAN_COLUMNS.items() if name in scan.table}
    heads = ["", *(head for head, _ in columns.values())]
    marks = [">" if k == scan.k else "" for k in scan.table["k"]]
    cells = [[f"{value:{form}}" for value in scan.table[name]] for name, (_, form) in columns.items()]
    print_table(heads, list(zip(marks, *cells, strict=True)), numbers=range(1, len(heads)))
    echo(f"recommended: {scan.k} domains. {scan.reason}")


@contextmanager
def _connected(where: str | None, progress: "Progress") -> "Iterator[Cluster | None]":
    """Connect to a Dask cluster while the ``with`` lasts; without one, yield None."""
    if where is None:
        yield None
        return
    from spatialpdvi.distributed import connect

    with connect(where) as cluster:
        count = len(cluster.workers())
        progress.message(f"Dask: {count} {'worker' if count == 1 else 'workers'} on {where}.")
        yield cluster
        sent, received = cluster.traffic.sent / 1e6, cluster.traffic.received / 1e6
        progress.message(f"Dask: {sent:,.1f} MB sent to the workers, {received:,.1f} MB received.")
