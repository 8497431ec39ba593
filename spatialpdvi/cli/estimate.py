"""``spatialpdvi estimate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.common import (
    FILE,
    check_outputs,
    display,
    echo,
    importing,
    limit_threads,
    name_written,
    print_table,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import PRESET, GroupedCommand, options_of, table_options
from spatialpdvi.runtime.memory import show_size

if TYPE_CHECKING:
    from spatialpdvi.estimate.estimate import Estimate

__all__ = ["estimate"]

# options that the time or memory of a fit depends on, and those that say where its data are
_MATTER = (
    "k",
    "layer",
    "label_key",
    "rep",
    "n_top_genes",
    "n_pcs",
    "smooth",
    "init",
    "n_init",
    "restarts",
    "n_neighbors",
    "flow_neighbors",
    "states",
    "search",
    "max_epochs",
    "memory",
    "save_graph",
)


@click.command(cls=GroupedCommand)
@click.argument("section", type=FILE)
@table_options(_MATTER)
@PRESET
@click.option("--threads", type=int, help="Largest number of threads of the fit. Default: all cores.")
@click.option(
    "--markers/--no-markers", default=True, help="Include the search for marker genes of `fit --json`. Default: on."
)
@click.option(
    "--json", "json_path", type=FILE, help="Also write the estimate as JSON to this file. Default: not written."
)
@verbosity
@user_errors
@table_option
def estimate(
    section: Path,
    *,
    preset: str | None,
    threads: int | None,
    markers: bool,
    json_path: Path | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Estimate the time and memory that a fit of SECTION will need.

    The estimate is made from the sizes that are stored in the file and from a short test of this machine's speed. It
    holds for the default solver on a machine that does nothing else. SECTION is not changed.

    \b
    Example:
      spatialpdvi estimate embryo.h5ad --k 20
      spatialpdvi estimate embryo.h5ad --k 20 --memory 4GB --json estimate.json
    """
    chosen = options_of(preset, options, quiet=quiet)
    limit_threads(threads)
    with importing():
        from spatialpdvi.estimate.estimate import estimate_file
        from spatialpdvi.io.storage.atomic import write_json

    check_outputs([section], json=json_path)
    with name_written(json_path):
        with display(quiet=quiet, verbose=verbose):
            found = estimate_file(section, chosen, markers=markers)
        if json_path is not None:
            write_json(json_path, {"file": str(section), **found.as_dict()}, option="json")
    if not quiet:
        _print_estimate(found)


def _print_estimate(found: "Estimate") -> None:
    work, prediction = found.plan.work, found.prediction
    sizes = f"{work.n:,} spots"
    if work.genes:
        sizes += f" x {work.genes:,} genes, {work.values:,} counts in {found.plan.source}"
    echo(f"{sizes}; {found.threads} thread{'' if found.threads == 1 else 's'}")
    stages = {stage: (seconds, prediction.peak_bytes[stage]) for stage, seconds in prediction.seconds.items()}
    stages["total"] = prediction.total_seconds, prediction.peak_memory_bytes
    rows = [(stage, f"{seconds:.1f}", show_size(peak)) for stage, (seconds, peak) in stages.items()]
    print_table(("stage", "seconds", "peak memory"), rows, numbers=range(1, 3))
    low, high = found.seconds_range
    few, many = found.epochs_range
    least, most = f"{low:.0f}", f"{high:.0f}"
    total = f"about {least}" if least == most else f"{least} to {most}"
    echo(f"{total} s with {few} to {many} epochs")
    echo(f"assumed: {'; '.join(found.plan.assumed)}")
    if work.genes:
        how = "in memory" if found.in_memory else "block by block"
        echo(
            f"counts: read {how}; as a whole they need {show_size(found.plan.needed)}, and the fit may use "
            f"{show_size(found.plan.memory)}"
        )
