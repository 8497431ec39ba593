"""``spatialpdvi plot``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import (
    FILE,
    display,
    echo,
    importing,
    name_written,
    only_counts,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import COUNTS, GENE_KEY, KEY_ADDED, SAMPLE_KEY, SPATIAL_KEY

__all__ = ["plot"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, help="Picture to write, ending in .png, .svg or .pdf.")
@click.option(
    "--kind",
    multiple=True,
    help="Panels to draw, separated by commas or given repeatedly: domains, annotation, confidence, entropy, "
    "agreement, flow, edges, trace, scan, states, composition, confusion, reliability, intervals, image; or overview "
    "alone, which draws the most important ones. Default: overview; with --image, image and domains; with --gene "
    "alone, none.",
)
@click.option(
    "--gene",
    "genes",
    multiple=True,
    help="Also draw the expression of this gene. May be given repeatedly. Default: none.",
)
@click.option(
    "--image",
    is_flag=True,
    help="Draw maps over the image of the tissue, uns['spatial'] of SECTION. Default: on white.",
)
@click.option("--alpha", type=float, help="Opacity of the spots over the image, up to 1. Default: 0.6.")
@KEY_ADDED
@click.option("--label-key", help="Column of obs with known labels. Default: as in the fit, or annotation.")
@SPATIAL_KEY
@SAMPLE_KEY
@click.option(
    "--layer",
    help="For --gene: where the raw counts are, the name of a layer, X or raw.X. Default: where the fit found them.",
)
@GENE_KEY
@COUNTS
@click.option(
    "--dpi", type=int, help="Resolution in dots per inch. Default: 150, or as many as so large a picture can have."
)
@verbosity
@user_errors
@table_option
def plot(
    section: Path,
    *,
    output: Path,
    kind: tuple[str, ...],
    genes: tuple[str, ...],
    image: bool,
    alpha: float | None,
    layer: str | None,
    gene_key: str | None,
    counts: tuple[Path, ...],
    key_added: str,
    label_key: str | None,
    spatial_key: str | None,
    sample_key: str | None,
    dpi: int | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Draw the domains of a fitted SECTION.

    The overview shows the known labels, the domains, their confidence and the convergence of the fit. If spots are
    labelled, it also shows how reliable the confidences are: the share of spots with the most frequent label of their
    domain, by confidence. Use --kind to choose other panels. The panels flow and edges need a fit with --save-graph,
    states and composition one whose domains share cell states. Each section of a joint fit has a map of its own.
    With --image the spots of all maps are drawn over the image of the tissue, as wide as they are in the tissue.

    \b
    Example:
      spatialpdvi plot embryo.h5ad -o domains.png
      spatialpdvi plot embryo.h5ad --kind domains,entropy,confusion -o more.pdf
      spatialpdvi plot visium.h5ad --image -o histology.png
      spatialpdvi plot visium.h5ad --gene Mbp --gene Snap25 -o genes.png
    """
    with importing():
        from spatialpdvi.api import plot_file
        from spatialpdvi.io.storage.outputs import check_distinct
        from spatialpdvi.plotting import save_figure

    check_distinct(output, "output", (section, *counts))
    with name_written(output):
        with display(quiet=quiet, verbose=verbose):
            figure = plot_file(
                section,
                kinds=[name.strip() for given in kind for name in given.split(",")] or None,
                genes=genes,
                image=image,
                alpha=alpha,
                layer=layer,
                gene_key=gene_key,
                key_added=key_added,
                label_key=label_key,
                spatial_key=spatial_key,
                sample_key=sample_key,
                counts=only_counts(section, counts),
            )
            save_figure(figure, output, dpi=dpi)
        if not quiet:
            echo(f"written: {click.format_filename(output)}")
