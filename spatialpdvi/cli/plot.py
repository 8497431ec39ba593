"""``spatialpdvi plot``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import FILE, display, takes_table, true_interruption, user_errors, verbosity

__all__ = ["plot"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, help="Picture to write: .png, .svg or .pdf.")
@click.option("--key-added", default="pdvi", show_default=True, help="Prefix of the keys that the fit wrote.")
@click.option("--label-key", help="Column of obs with known labels. Default: annotation, where there is one.")
@click.option("--spatial-key", default="spatial", show_default=True, help="Key in obsm of the coordinates.")
@click.option("--dpi", default=150, show_default=True, help="Dots per inch.")
@verbosity
@user_errors
@takes_table
def plot(
    section: Path,
    *,
    output: Path,
    key_added: str,
    label_key: str | None,
    spatial_key: str,
    dpi: int,
    quiet: bool,
    verbose: bool,
) -> None:
    """Draw the domains of a fitted SECTION beside its annotation, their confidence, and the fit's convergence.

    Where spots are labelled, also how reliable confidences are: the share of spots that have their domain's most
    frequent label, by confidence.

    \b
    Example:
      spatialpdvi plot embryo.h5ad -o domains.png
    """
    from spatialpdvi.api import plot_file
    from spatialpdvi.io.atomic import check_distinct
    from spatialpdvi.plotting import save_figure

    check_distinct(output, "--output", (section,))
    with true_interruption(output):
        with display(quiet=quiet, verbose=verbose):
            figure = plot_file(section, key_added=key_added, label_key=label_key, spatial_key=spatial_key)
            save_figure(figure, output, dpi=dpi)
        if not quiet:
            click.echo(f"written: {click.format_filename(output)}")
