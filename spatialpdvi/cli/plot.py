"""``spatialpdvi plot``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import FILE, display, name_written, table_option, user_errors, verbosity
from spatialpdvi.cli.options import KEY_ADDED

__all__ = ["plot"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, help="Picture to write, ending in .png, .svg or .pdf.")
@click.option(
    "--kind",
    default="overview",
    show_default=True,
    help="Panels to draw, separated by commas: domains, annotation, confidence, entropy, agreement, flow, edges, "
    "trace, scan, states, composition, confusion, reliability; or overview alone, which draws the most important ones.",
)
@KEY_ADDED
@click.option("--label-key", help="Column of obs with known labels. Default: annotation, if there is one.")
@click.option("--spatial-key", default="spatial", show_default=True, help="Key in obsm of the coordinates.")
@click.option("--sample-key", help="Column of obs that names the section of each spot. Default: as in the fit.")
@click.option("--dpi", default=150, show_default=True, help="Resolution in dots per inch.")
@verbosity
@user_errors
@table_option
def plot(
    section: Path,
    *,
    output: Path,
    kind: str,
    key_added: str,
    label_key: str | None,
    spatial_key: str,
    sample_key: str | None,
    dpi: int,
    quiet: bool,
    verbose: bool,
) -> None:
    """Draw the domains of a fitted SECTION.

    The overview shows the known labels, the domains, their confidence and the convergence of the fit. If spots are
    labelled, it also shows how reliable the confidences are: the share of spots with the most frequent label of their
    domain, by confidence. Use --kind to choose other panels. The panels flow and edges need a fit with --save-graph,
    states and composition one whose domains share cell states. Each section of a joint fit has a map of its own.

    \b
    Example:
      spatialpdvi plot embryo.h5ad -o domains.png
      spatialpdvi plot embryo.h5ad --kind domains,entropy,confusion -o more.pdf
    """
    from spatialpdvi.api import plot_file
    from spatialpdvi.io.storage.atomic import check_distinct
    from spatialpdvi.plotting import save_figure

    check_distinct(output, "output", (section,))
    with name_written(output):
        with display(quiet=quiet, verbose=verbose):
            figure = plot_file(
                section,
                kinds=[name.strip() for name in kind.split(",")],
                key_added=key_added,
                label_key=label_key,
                spatial_key=spatial_key,
                sample_key=sample_key,
            )
            save_figure(figure, output, dpi=dpi)
        if not quiet:
            click.echo(f"written: {click.format_filename(output)}")
