"""``spatialpdvi transfer``."""

from pathlib import Path
from typing import Any

import click

from spatialpdvi.cli.common import (
    FILE,
    display,
    echo,
    importing,
    name_written,
    print_scores,
    print_written,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import KEY_ADDED

__all__ = ["transfer"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--to", type=FILE, required=True, help="File or store of other spots of SECTION: smaller bins, or cells.")
@click.option("--output", "-o", type=FILE, help="File to write the result to. Default: the file of --to is updated.")
@click.option(
    "--borders",
    type=click.Choice(["spots", "smooth"]),
    default="spots",
    show_default=True,
    help="spots: each spot has the domain of the nearest fitted spot, so that all within a bin have that of the bin. "
    "smooth: the domain with the largest interpolated posterior, so that borders run between the fitted spots.",
)
@click.option(
    "--max-distance",
    type=float,
    help="Largest distance from the nearest fitted spot, in the unit of SECTION; spots that are farther have no "
    "domain. Default: the median distance of a fitted spot to its fourth neighbour, which is the spacing of a "
    "lattice.",
)
@click.option(
    "--scale",
    default=1.0,
    show_default=True,
    help="Factor that brings the coordinates of --to to the unit of SECTION, such as pixels per micrometre.",
)
@click.option("--spatial-key", help="Key in obsm of the coordinates in --to, or columns. Default: as in the fit.")
@click.option("--sample-key", help="Column of obs in --to that names the section of each spot. Default: as in the fit.")
@click.option(
    "--label-key", help="Column of obs in --to with known labels to score by. Default: annotation, if there is one."
)
@KEY_ADDED
@click.option("--new-key", help="Prefix of the keys that are written. Default: that of the fit.")
@verbosity
@user_errors
@table_option
def transfer(section: Path, *, to: Path, output: Path | None, quiet: bool, verbose: bool, **options: Any) -> None:
    """Carry the domains of the fitted SECTION to other spots of it, by place.

    The spots of --to lie in the coordinates of SECTION: bins of another size, or segmented cells. Each takes the domain
    of the place where it lies, and posteriors are interpolated. Its expression is not used; `predict` uses it.

    \b
    Example:
      spatialpdvi fit bin50.h5ad --k 12
      spatialpdvi transfer bin50.h5ad --to cells.h5ad
    """
    with importing():
        from spatialpdvi.api import transfer_file

    written = to if output is None else output
    with name_written(written):
        with display(quiet=quiet, verbose=verbose) as progress:
            result = transfer_file(section, to, output=output, progress=progress, **options)
        if not quiet:
            print_scores(("domains", result.scores))
            for row in result.sections.itertuples():
                name = f"section {row.section}: " if row.section else ""
                echo(
                    f"{name}{row.assigned:,} of {row.spots:,} spots have a domain: those within {row.max_distance:.4g} "
                    "of a fitted spot"
                )
            print_written([written], options["new_key"] or options["key_added"])
