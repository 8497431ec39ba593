"""``spatialpdvi plot``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import FILE, display, takes_table, true_interruption, user_errors, verbosity
from spatialpdvi.cli.options import KEY_ADDED

__all__ = ["plot"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, help="Picture to write: .png, .svg or .pdf.")
@click.option(
    "--kind",
    default="overview",
    show_default=True,
    help="What to draw, with commas between several: domains, annotation, confidence, entropy, agreement, flow, edges, "
    "trace, scan, confusion, reliability; or overview, the most important of these, alone.",
)
@KEY_ADDED
@click.option("--label-key", help="Column of obs with known labels. Default: annotation, where there is one.")
@click.option("--spatial-key", default="spatial", show_default=True, help="Key in obsm of the coordinates.")
@click.option("--sample-key", help="Column of obs with the section of each spot. Default: that of the fit.")
@click.option("--dpi", default=150, show_default=True, help="Dots per inch.")
@verbosity
@user_errors
@takes_table
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
    """Draw the domains of a fitted SECTION beside its annotation, their confidence, and the fit's convergence.

    Where spots are labelled, also how reliable confidences are: the share of spots that have their domain's most
    frequent label, by confidence. `--kind` names other pictures, a panel each. `flow` and `edges` need a fit with
    `--save-graph`. Sections of a fit with `--sample-key` have a map each.

    \b
    Example:
      spatialpdvi plot embryo.h5ad -o domains.png
      spatialpdvi plot embryo.h5ad --kind domains,entropy,confusion -o more.pdf
    """
    from spatialpdvi.api import plot_file
    from spatialpdvi.io.storage.atomic import check_distinct
    from spatialpdvi.plotting import save_figure

    check_distinct(output, "output", (section,))
    with true_interruption(output):
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
