"""``spatialpdvi intervals``."""

from pathlib import Path
from typing import Any

import click

from spatialpdvi.cli.common import (
    FILE,
    display,
    echo,
    importing,
    limit_threads,
    name_written,
    only_counts,
    print_table,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import COUNTS, COUNTS_MEMORY, GENE_KEY, KEY_ADDED, LAYER, SAMPLE_KEY, SPATIAL_KEY, THREADS
from spatialpdvi.errors import InputError

__all__ = ["intervals"]

_MOST = 40  # rows that are printed


@click.command()
@click.argument("section", type=FILE)
@click.option(
    "--gene", "genes", multiple=True, help="Name of a gene; may be given repeatedly. Default: marker genes (-n)."
)
@click.option(
    "--n-genes", "-n", default=3, show_default=True, help="Number of marker genes of each domain, without --gene."
)
@click.option(
    "--contrast",
    "contrasts",
    multiple=True,
    metavar="A,B",
    help="Two domains: how much higher each gene is in A than in B. May be given repeatedly. Default: all pairs.",
)
@click.option(
    "--by",
    help="Column of obs with types, such as cell_type, whose shares in each domain are given. Default: the cell "
    "states, if domains share any.",
)
@click.option(
    "--of",
    type=click.Choice(["domain", "state"]),
    default="domain",
    show_default=True,
    help="Whose expression: that of each domain, or of each cell state that domains share.",
)
@click.option(
    "--method",
    type=click.Choice(["blocks", "bootstrap", "linear-response", "implicit", "mean-field"]),
    default="blocks",
    show_default=True,
    help="How the uncertainty is found: by blocks of neighbouring spots or, slower, by their replicates (bootstrap). "
    "The last three are for comparison, since they are too sure; linear-response and implicit need a fit with "
    "--save-graph, and implicit at most 20 domains and up to a minute for each gene.",
)
@click.option(
    "--level", default=0.9, show_default=True, help="Probability with which an interval is to contain the true value."
)
@click.option(
    "--output",
    "-o",
    type=FILE,
    help="Also write the tables (CSV) and a picture (PNG) to this folder. It is created if it does not exist. Default: "
    "not written.",
)
@click.option(
    "--store", is_flag=True, help="Also write the tables into SECTION, as uns['pdvi_intervals']. Default: off."
)
@KEY_ADDED
@SPATIAL_KEY
@SAMPLE_KEY
@LAYER
@GENE_KEY
@click.option(
    "--seed",
    default=0,
    show_default=True,
    help="Seed of the replicates of the bootstrap and the draws of implicit; other methods have no random numbers.",
)
@COUNTS
@COUNTS_MEMORY
@THREADS
@verbosity
@user_errors
@table_option
def intervals(
    section: Path,
    *,
    contrasts: tuple[str, ...],
    output: Path | None,
    store: bool,
    key_added: str,
    counts: tuple[Path, ...],
    threads: int | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Compute credible intervals of the expression and composition of the domains of a fitted SECTION.

    The mean expression of genes in each domain, in counts per 10,000; log2 fold changes between domains; and the share
    of cell types or states in each domain. The intervals take into account that neighbouring spots are alike, that
    counts vary more than Poisson counts, and that spots may be in the wrong domain. They are about tissue like that of
    the section, not about other donors.

    \b
    Example:
      spatialpdvi intervals cortex.h5ad --gene Snap25 --gene Mbp --contrast 0,3
      spatialpdvi intervals embryo.h5ad --by cell_type --level 0.95 -o embryo_intervals
      spatialpdvi intervals slice.h5ad -n 2 --store
    """
    limit_threads(threads)
    with importing():
        from spatialpdvi.api import intervals_file
        from spatialpdvi.api.folders import LAST_FILES
        from spatialpdvi.io.results.keys import Keys

    pairs = [_pair(text) for text in contrasts]
    written = (section if store else None, None if output is None else output / LAST_FILES["intervals"])
    with name_written(*written):
        with display(quiet=quiet, verbose=verbose) as progress:
            found = intervals_file(
                section,
                contrasts=pairs,
                output=output,
                store=store,
                key_added=key_added,
                counts=only_counts(section, counts),
                progress=progress,
                **options,
            )
        if quiet:
            return
        for position, table in enumerate(found.tables().values()):
            if position:
                echo()
            _print_estimates(table, whole=output is not None or store)
        if store or output is not None:
            echo()
        if store:
            echo(f"written: {click.format_filename(section)} (uns['{Keys(key_added).intervals}'])")
        if output is not None:
            echo(f"written: {click.format_filename(output)}")


def _pair(text: str) -> tuple[str, str]:
    """The two domains of a contrast."""
    names = text.split(",")
    if len(names) != 2 or not all(name.strip() for name in names):
        advice = "Give the names of two domains; those with commas in their names need Python."
        raise InputError("two domains with a comma between them, such as 0,3", repr(text), advice)
    return names[0].strip(), names[1].strip()


def _print_estimates(table: Any, *, whole: bool) -> None:
    """Print the first rows of a data frame: names to the left, an estimate with its interval to the right."""
    names = [column for column in table if table[column].dtype.kind not in "iuf"]  # texts differ between pandas 2 and 3
    value = next(column for column in table if column not in names)
    number = ".1%" if value == "share" else ".3g"
    heads = [*names, value.replace("_", " "), "interval"]
    rows = [
        [
            *(str(row[name]) for name in names),
            f"{row[value]:{number}}",
            f"{row['lower']:{number}} to {row['upper']:{number}}",
        ]
        for _, row in table.head(_MOST).iterrows()
    ]
    print_table(heads, rows, numbers=range(len(names), len(heads)))
    if len(table) > _MOST:
        where = "all are in the output" if whole else "-o or --store writes them"
        echo(f"... and {len(table) - _MOST:,} more rows; {where}.")
