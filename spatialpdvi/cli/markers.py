"""``spatialpdvi markers``."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from spatialpdvi.cli.common import (
    FILE,
    display,
    echo,
    importing,
    name_written,
    only_counts,
    result_is_written,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import COUNTS, COUNTS_MEMORY, GENE_KEY, KEY_ADDED, LAYER

__all__ = ["markers"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--n-genes", "-n", default=10, show_default=True, help="Largest number of genes per domain or state.")
@click.option(
    "--of",
    type=click.Choice(["domain", "state"]),
    default="domain",
    show_default=True,
    help="What the genes mark: each domain, or each cell state that domains share.",
)
@click.option(
    "--output",
    "-o",
    type=FILE,
    help="Also write the whole table to this file, .csv, .tsv or .parquet. Default: not written.",
)
@click.option(
    "--store",
    is_flag=True,
    help="Also write the table into SECTION, as uns['pdvi_markers'] or uns['pdvi_state_markers']. Default: off.",
)
@KEY_ADDED
@LAYER
@GENE_KEY
@COUNTS
@COUNTS_MEMORY
@verbosity
@user_errors
@table_option
def markers(
    section: Path,
    *,
    n_genes: int,
    of: str,
    output: Path | None,
    store: bool,
    key_added: str,
    layer: str | None,
    gene_key: str | None,
    counts: tuple[Path, ...],
    memory: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """List the marker genes of each domain, or of each cell state, of a fitted SECTION.

    Genes are ranked by Welch's t-test of log-normalised counts, between the spots of a domain and all other spots. The
    numbers in brackets are log2 fold changes. The p-values in the table are not calibrated, because the domains were
    found from the same counts.

    \b
    Example:
      spatialpdvi markers embryo.h5ad -n 5
      spatialpdvi markers cortex.h5ad --of state
      spatialpdvi markers slice.h5ad --gene-key gene_symbol -o markers.csv
    """
    with importing():
        from spatialpdvi.api import check_table, markers_file
        from spatialpdvi.api.tables import write_table
        from spatialpdvi.io.results.keys import Keys
        from spatialpdvi.io.storage.outputs import check_distinct

    if output is not None:
        check_distinct(output, "output", (section, *counts))
        check_table(output)
    with name_written(section if store else None, output):
        with display(quiet=quiet, verbose=verbose) as progress:
            table = markers_file(
                section,
                n=n_genes,
                of=of,
                key_added=key_added,
                layer=layer,
                gene_key=gene_key,
                store=store,
                memory=memory,
                counts=only_counts(section, counts),
                progress=progress,
            )
        if output is not None:
            with result_is_written([section], "table") if store else nullcontext():
                write_table(table, output)
        if not quiet:
            _print_markers(table, of)
            if store:
                echo(f"written: {click.format_filename(section)} (uns['{Keys(key_added).markers_of(of)}'])")
            if output is not None:
                echo(f"written: {click.format_filename(output)}")


def _print_markers(table: Any, of: str) -> None:
    """Print one line for each domain or state of a data frame: its genes, by falling score."""
    width = max(map(len, (of, *table[of])))
    echo(f"{of:<{width}}  marker genes (log2 fold change)")
    for name, rows in table.groupby(of, sort=False):
        pairs = zip(rows["gene"], rows["log_fold_change"], strict=True)
        echo(f"{name:<{width}}  {', '.join(f'{gene} ({change:.1f})' for gene, change in pairs)}")
