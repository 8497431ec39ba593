"""``spatialpdvi compare``."""

from pathlib import Path
from typing import Any

import click

from spatialpdvi.cli.common import FILE, display, limit_threads, takes_table, user_errors, verbosity
from spatialpdvi.cli.memory import OutOfMemoryError
from spatialpdvi.cli.options import GroupedCommand, table_options
from spatialpdvi.compare.plan import DEFAULT_SEEDS, DEFAULT_TUNE_EPOCHS, SHARED, Plan, parse_solvers
from spatialpdvi.options.fit import FitOptions

__all__ = ["compare"]


@click.command(cls=GroupedCommand)
@click.argument("section", type=FILE)
@click.option(
    "--output",
    "-o",
    type=FILE,
    required=True,
    help="Folder to write to; made where it is missing. Finished runs in it are kept.",
)
@table_options(SHARED)
@click.option("--solvers", help="Names with commas between. Default: every solver there is.")
@click.option("--seeds", default=DEFAULT_SEEDS, show_default=True, help="Starts, from seeds 0, 1, ...")
@click.option(
    "--tune-epochs",
    default=DEFAULT_TUNE_EPOCHS,
    show_default=True,
    help="Epochs of a trial in the search for a step, on the first seed, for solvers that have a step.",
)
@click.option("--threads", type=int, help="Threads at the most; results do not depend on it. Default: all cores.")
@verbosity
@user_errors
@takes_table
def compare(
    section: Path,
    output: Path,
    *,
    solvers: str | None,
    seeds: int,
    tune_epochs: int,
    threads: int | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Run every solver on SECTION, an h5ad file or zarr store, on one objective and from one start per seed.

    Writes a table, the traces and two pictures. Run again after an interruption, it goes on where it was.

    \b
    Example:
      spatialpdvi compare slice.h5ad --k 7 -o slice_solvers
      spatialpdvi compare slice.h5ad --k 7 --solvers p2dvi,cavi,adam --seeds 3 -o slice_solvers
    """
    plan = Plan(options=FitOptions(**options), solvers=parse_solvers(solvers), n_seeds=seeds, tune_epochs=tune_epochs)
    limit_threads(threads)
    from spatialpdvi.compare.session import compare_file
    from spatialpdvi.io.storage.locks import claimed

    try:
        with display(quiet=quiet, verbose=verbose) as progress, claimed(output):
            comparison = compare_file(section, plan, output=output, progress=progress)
    except (KeyboardInterrupt, MemoryError) as stop:
        msg = f"finished runs are kept in {click.format_filename(output)}; the same command goes on from there."
        if isinstance(stop, MemoryError):
            raise OutOfMemoryError(stop, f"F{msg[1:]}") from stop
        raise type(stop)(msg) from stop
    if not quiet:
        click.echo(comparison.table, nl=False)
        click.echo(f"written: {click.format_filename(output)} (compare.json, compare.md, convergence.png, maps.png)")
