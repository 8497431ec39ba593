"""``spatialpdvi compare``."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from spatialpdvi.cli.common import FILE, display, echo, importing, limit_threads, table_option, user_errors, verbosity
from spatialpdvi.cli.memory import OutOfMemoryError
from spatialpdvi.cli.options import PRESET, THREADS, GroupedCommand, options_of, table_options
from spatialpdvi.compare.plan import DEFAULT_SEEDS, DEFAULT_TUNE_EPOCHS, SHARED, ComparisonPlan, parse_solvers

__all__ = ["compare"]


@click.command(cls=GroupedCommand)
@click.argument("section", type=FILE)
@click.option(
    "--output",
    "-o",
    type=FILE,
    required=True,
    help="Folder to write to. It is created if it does not exist; finished runs in it are not repeated.",
)
@table_options(SHARED)
@PRESET
@click.option("--solvers", help="Solvers to compare, separated by commas. Default: all solvers.")
@click.option(
    "--seeds", default=DEFAULT_SEEDS, show_default=True, help="Number of seeds, 0, 1, ... Each seed has its own start."
)
@click.option(
    "--tune-epochs",
    default=DEFAULT_TUNE_EPOCHS,
    show_default=True,
    help="Number of epochs of each trial in the search for a solver's step size. The search uses the first seed.",
)
@click.option(
    "--constant-steps",
    is_flag=True,
    help="Give p2dvi one constant step for each block, which is tuned, instead of steps that follow the curvature. "
    "Default: off.",
)
@THREADS
@verbosity
@user_errors
@table_option
def compare(
    section: Path,
    output: Path,
    *,
    solvers: str | None,
    seeds: int,
    tune_epochs: int,
    constant_steps: bool,
    threads: int | None,
    preset: str | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Compare all solvers on one SECTION, an h5ad file or a zarr store.

    It is a benchmark of algorithms: to compare the domains of a fit with an annotation, use `evaluate`. All solvers
    minimise the same objective, and for each seed they begin at the same start. The command writes a table,
    the traces and two pictures. To continue after an interruption, run the same command again.

    \b
    Example:
      spatialpdvi compare slice.h5ad --k 7 -o slice_solvers
      spatialpdvi compare slice.h5ad --k 7 --solvers p2dvi,cavi,adam --seeds 3 -o slice_solvers
      spatialpdvi compare slice.h5ad --k 7 --preset paper -o slice_as_published
    """
    chosen = options_of(preset, options, quiet=quiet, instead={"step_size": "--constant-steps"})
    plan = ComparisonPlan(
        options=replace(chosen, step_size=None),
        solvers=parse_solvers(solvers),
        n_seeds=seeds,
        tune_epochs=tune_epochs,
        constant_steps=constant_steps or chosen.step_size is not None,
    )
    limit_threads(threads)
    with importing():
        from spatialpdvi.compare.comparison import compare_file
        from spatialpdvi.compare.store import has_results
        from spatialpdvi.io.storage.locks import claimed

    try:
        with display(quiet=quiet, verbose=verbose) as progress, claimed(output):
            comparison = compare_file(section, plan, output=output, progress=progress)
    except (KeyboardInterrupt, MemoryError) as stop:
        msg = "Nothing was written."
        if has_results(output):
            msg = (
                f"Finished runs were saved in {click.format_filename(output)}. Run the same command again to continue."
            )
        if isinstance(stop, MemoryError):
            raise OutOfMemoryError(stop, msg) from stop
        stop.args = (msg,)
        raise
    if not quiet:
        echo(comparison.table, nl=False)
        echo(f"written: {click.format_filename(output)} (compare.json, compare.md, convergence.png, maps.png)")
