"""``spatialpdvi describe``."""

from math import isnan
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
    print_table,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import (
    COUNTS_MEMORY,
    COUNTS_OF_EACH,
    GENE_KEY,
    KEY_ADDED,
    LAYER,
    SAMPLE_KEY,
    SPATIAL_KEY,
    THREADS,
)

__all__ = ["describe"]


@click.command()
@click.argument("sections", type=FILE, nargs=-1, required=True, metavar="SECTION...")
@click.option(
    "--by", help="Column of obs with types, such as cell_type, whose shares in each domain are counted. Default: none."
)
@click.option(
    "--condition",
    help="Column of obs with the condition of each section. Shares are compared between conditions, with the sections "
    "as replicates. Default: nothing is compared.",
)
@click.option(
    "--output",
    "-o",
    type=FILE,
    help="Also write tables (CSV), describe.json and pictures (PNG) to this folder. It is created if it does not "
    "exist. Default: not written.",
)
@click.option(
    "--store",
    is_flag=True,
    help="Also write the tables of its sections into each file, as uns['pdvi_describe'], for the report. Default: off.",
)
@click.option(
    "--domain-key", help="Column of obs with other domains, such as an annotation. Default: the domains of the fit."
)
@KEY_ADDED
@SPATIAL_KEY
@SAMPLE_KEY
@LAYER
@GENE_KEY
@click.option(
    "--n-genes",
    "-n",
    default=100,
    show_default=True,
    help="Largest number of genes that are tested in each domain, those with the largest variance; 0 for none.",
)
@click.option(
    "--n-perms",
    default=1000,
    show_default=True,
    help="Number of times that the domains are shuffled, to compare the contacts between them with chance.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the shuffles.")
@COUNTS_OF_EACH
@COUNTS_MEMORY
@THREADS
@verbosity
@user_errors
@table_option
def describe(
    sections: tuple[Path, ...],
    *,
    output: Path | None,
    store: bool,
    key_added: str,
    threads: int | None,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Describe the domains of one or more fitted SECTIONs.

    For each section by itself: the size and area of each domain, the cell types in it (--by), the domains that it
    touches, and the genes that vary in space within it. With --condition, also the differences between groups of
    sections. squidpy computes the statistics: pip install 'spatialpdvi[squidpy]'.

    \b
    Example:
      spatialpdvi describe embryo.h5ad --by cell_type -o embryo_domains
      spatialpdvi describe cortex.h5ad --domain-key layer --gene-key gene_symbol
      spatialpdvi describe fitted/*.h5ad --condition treatment --store
    """
    limit_threads(threads)
    with importing():
        from spatialpdvi.api import describe_files
        from spatialpdvi.api.folders import LAST_FILES
        from spatialpdvi.io.results.keys import Keys

    written = [*(sections if store else ()), *(() if output is None else (output / LAST_FILES["describe"],))]
    with name_written(*written):
        with display(quiet=quiet, verbose=verbose) as progress:
            found = describe_files(
                sections, output=output, store=store, key_added=key_added, progress=progress, **options
            )
        if quiet:
            return
        for section in found.sections.itertuples():
            _print_section(section, found)
        if found.differences is not None:
            _print_differences(found)
        if store:
            for section in sections:
                echo(f"written: {click.format_filename(section)} (uns['{Keys(key_added).description}'])")
        if output is not None:
            echo(f"written: {click.format_filename(output)}")


def _print_section(section: Any, found: Any) -> None:
    """Print a line about the section, and a table with one row for each of its domains."""
    from spatialpdvi.description.summary import summary_rows

    area = "" if isnan(section.spot_area) else f" with an area of {section.spot_area:.4g}"
    echo(f"{section.section}: {section.n_spots:,} spots{area}; neighbours: {section.neighbours}")
    print_table(*summary_rows(found.tables(), section.section, found.params["by"]), numbers=range(1, 4))


def _print_differences(found: Any) -> None:
    """Print the shares of the domains by condition, and of types in them, by condition."""
    from spatialpdvi.description.summary import text_of

    table = found.differences
    shares = [name for name in table if name.startswith("share_")]
    conditions = found.sections.groupby("condition").size()
    groups = (f"{name} ({n} section{'s' * (n != 1)})" for name, n in conditions.items())
    echo(f"differences between {', '.join(groups)}")
    by_type = "type" in table
    heads = ["domain", *(["type"] if by_type else []), *(name.replace("_", " ", 1) for name in shares), "p", "q"]
    rows = []
    for _, row in table.iterrows():
        names = [row["domain"], *([row["type"] or "(all spots)"] if by_type else [])]
        rows.append(
            [*names, *(text_of(row[name], ".1%") for name in shares), *(text_of(row[name], ".3g") for name in "pq")]
        )
    print_table(heads, rows, numbers=range(len(heads) - len(shares) - 2, len(heads)))
    smallest = table["smallest_p"].min()
    if not isnan(smallest):
        echo(f"With these numbers of sections the smallest possible p is {smallest:.3g}.")
