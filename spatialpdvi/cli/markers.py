"""``spatialpdvi markers``."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from spatialpdvi.cli.common import (
    FILE,
    display,
    takes_table,
    true_interruption,
    true_of_the_result,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import COUNTS_MEMORY, GENE_KEY, KEY_ADDED

__all__ = ["markers"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--n-genes", "-n", default=10, show_default=True, help="Genes per domain at the most.")
@click.option("--output", "-o", type=FILE, help="Also write the whole table as CSV here. Default: no.")
@click.option("--store", is_flag=True, help="Also write it into SECTION, as uns['pdvi_markers']. Default: off.")
@KEY_ADDED
@click.option("--layer", help="Where the raw counts are: a layer, or X or raw.X. Default: where the fit had them.")
@GENE_KEY
@COUNTS_MEMORY
@verbosity
@user_errors
@takes_table
def markers(
    section: Path,
    *,
    n_genes: int,
    output: Path | None,
    store: bool,
    key_added: str,
    layer: str | None,
    gene_key: str | None,
    memory: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """List the genes that each domain of a fitted SECTION expresses more than the rest.

    Ranked by a t-test of log-normalised counts, each domain against all other spots; in brackets log2 fold changes.
    The p-values in the table are not calibrated, since the domains were found on the same counts.

    \b
    Example:
      spatialpdvi markers embryo.h5ad -n 5
      spatialpdvi markers slice.h5ad --gene-key gene_symbol -o markers.csv
    """
    from spatialpdvi.api import markers_file
    from spatialpdvi.io.storage.atomic import check_distinct, check_writable, write_text

    if output is not None:
        check_distinct(output, "output", (section,))
        check_writable(output, "output")
    with true_interruption(section if store else None, output):
        with display(quiet=quiet, verbose=verbose) as progress:
            table = markers_file(
                section,
                n=n_genes,
                key_added=key_added,
                layer=layer,
                gene_key=gene_key,
                store=store,
                memory=memory,
                progress=progress,
            )
        if output is not None:
            with true_of_the_result([section], "the table") if store else nullcontext():
                write_text(output, table.to_csv(index=False), option="output")
        if not quiet:
            _print_table(table)
            if store:
                click.echo(f"written: {click.format_filename(section)} (uns['{key_added}_markers'])")
            if output is not None:
                click.echo(f"written: {click.format_filename(output)}")


def _print_table(table: Any) -> None:
    """A data frame, one line for each domain: its genes, the highest score first."""
    width = max(map(len, ("domain", *table["domain"])))
    click.echo(f"{'domain':<{width}}  marker genes (log2 fold change)")
    for domain, rows in table.groupby("domain", sort=False):
        pairs = zip(rows["gene"], rows["log_fold_change"], strict=True)
        click.echo(f"{domain:<{width}}  {', '.join(f'{gene} ({change:.1f})' for gene, change in pairs)}")
