"""``spatialpdvi report``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import FILE, display, takes_table, true_interruption, user_errors, verbosity
from spatialpdvi.cli.options import COUNTS_MEMORY, GENE_KEY, KEY_ADDED
from spatialpdvi.errors import InputError

__all__ = ["report"]


@click.command()
@click.argument("sections", type=FILE, nargs=-1, required=True, metavar="SECTION...")
@click.option("--output", "-o", type=FILE, required=True, help="Page to write: .html.")
@KEY_ADDED
@click.option("--label-key", help="Column of obs with known labels to show. Default: that of the fit.")
@click.option("--spatial-key", help="Key in obsm of the coordinates. Default: that of the fit.")
@click.option("--n-genes", "-n", default=10, show_default=True, help="Marker genes per domain at the most.")
@GENE_KEY
@click.option("--markers/--no-markers", default=True, help="Find marker genes where there are counts. Default: on.")
@COUNTS_MEMORY
@verbosity
@user_errors
@takes_table
def report(
    sections: tuple[Path, ...],
    *,
    output: Path,
    key_added: str,
    label_key: str | None,
    spatial_key: str | None,
    n_genes: int,
    gene_key: str | None,
    markers: bool,
    memory: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write one page of HTML on fitted SECTIONs: maps, scores, certificate, genes, and how to repeat the fit.

    The page is complete in itself and needs no network. Several sections stand one after the other, below a table of
    all. The sections are only read.

    \b
    Example:
      spatialpdvi report embryo.h5ad -o embryo.html
      spatialpdvi report fitted/*.h5ad -o all.html --gene-key gene_symbol
    """
    from spatialpdvi.api import report_files
    from spatialpdvi.io.storage.atomic import check_distinct, check_writable, write_text

    if output.suffix.lower() not in {".html", ".htm"}:
        msg = f"Expected --output to end in .html, found {output.name!r}. Give it this ending."
        raise InputError(msg)
    check_distinct(output, "output", sections)
    check_writable(output, "output")
    with true_interruption(output):
        with display(quiet=quiet, verbose=verbose) as progress:
            page = report_files(
                sections,
                key_added=key_added,
                label_key=label_key,
                spatial_key=spatial_key,
                n_genes=n_genes if markers else 0,
                gene_key=gene_key,
                memory=memory,
                progress=progress,
            )
        write_text(output, page)
        if not quiet:
            click.echo(f"written: {click.format_filename(output)}")
