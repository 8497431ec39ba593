"""``spatialpdvi report``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import (
    FILE,
    check_outputs,
    display,
    echo,
    importing,
    name_written,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import COUNTS_MEMORY, COUNTS_OF_EACH, GENE_KEY, KEY_ADDED, LAYER, SAMPLE_KEY, SPATIAL_KEY
from spatialpdvi.errors import InputError

__all__ = ["report"]


@click.command()
@click.argument("sections", type=FILE, nargs=-1, required=True, metavar="SECTION...")
@click.option("--output", "-o", type=FILE, required=True, help="HTML page to write, ending in .html.")
@KEY_ADDED
@click.option("--label-key", help="Column of obs with known labels to show. Default: as in the fit.")
@SPATIAL_KEY
@SAMPLE_KEY
@click.option("--n-genes", "-n", default=10, show_default=True, help="Largest number of marker genes per domain.")
@LAYER
@GENE_KEY
@click.option("--markers/--no-markers", default=True, help="Find marker genes, if a section has counts. Default: on.")
@COUNTS_OF_EACH
@COUNTS_MEMORY
@verbosity
@user_errors
@table_option
def report(
    sections: tuple[Path, ...],
    *,
    output: Path,
    key_added: str,
    label_key: str | None,
    spatial_key: str | None,
    sample_key: str | None,
    n_genes: int,
    layer: str | None,
    gene_key: str | None,
    markers: bool,
    counts: tuple[Path, ...],
    memory: str | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Write an HTML report on one or more fitted sections.

    The report shows maps, scores, the certificate of convergence, marker genes, and how to repeat the fit. It is a
    single page that needs no network. With several sections it begins with a table of all of them. The sections are not
    changed.

    \b
    Example:
      spatialpdvi report embryo.h5ad -o embryo.html
      spatialpdvi report fitted/*.h5ad -o all.html --gene-key gene_symbol
    """
    with importing():
        from spatialpdvi.api import report_files
        from spatialpdvi.io.storage.atomic import write_text

    if output.suffix.lower() not in {".html", ".htm"}:
        raise InputError("a file that ends in .html", repr(output.name), option="output")
    check_outputs((*sections, *counts), output=output)
    with name_written(output):
        with display(quiet=quiet, verbose=verbose) as progress:
            page = report_files(
                sections,
                key_added=key_added,
                label_key=label_key,
                spatial_key=spatial_key,
                sample_key=sample_key,
                n_genes=n_genes if markers else min(n_genes, 0),  # a negative number is refused either way
                layer=layer,
                gene_key=gene_key,
                memory=memory,
                counts=counts,
                progress=progress,
            )
        write_text(output, page)
        if not quiet:
            echo(f"written: {click.format_filename(output)}")
