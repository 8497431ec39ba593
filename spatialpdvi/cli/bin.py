"""``spatialpdvi bin``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import FILE, display, echo, importing, name_written, user_errors, verbosity

__all__ = ["bin_sample"]


@click.command("bin")
@click.argument("sample", type=FILE)
@click.option("--output", "-o", type=FILE, required=True, help="AnnData to write, ending in .h5ad or .zarr.")
@click.option(
    "--bin",
    "bin_size",
    type=int,
    help="Side of the square bins that become spots, in DNBs, or in micrometres for Visium HD. Default: 50 DNBs, or 8 "
    "micrometres.",
)
@click.option(
    "--cell-bin",
    is_flag=True,
    help="Use cells as spots: those of a cell-bin GEF, or of the column CellID of a GEM. Default: off.",
)
@click.option(
    "--image",
    type=FILE,
    help="Registered image of a GEF or GEM, such as SN_regist.tif of SAW, to write into uns['spatial'] in a smaller "
    "size. Default: none; that of Space Ranger is always written.",
)
@click.option(
    "--tissue",
    metavar="MASK.tif|COLUMN",
    help="Mark the spots on the tissue in obs['in_tissue']: by a mask of a GEF or GEM, such as SN_tissue_cut.tif, or "
    "by the column in_tissue of Space Ranger. Spots off the tissue stay in the file. Default: not marked; of Space "
    "Ranger only spots under tissue are read.",
)
@click.option(
    "--memory",
    default="1GB",
    show_default=True,
    help="Memory that sorting and images may use. Data that need more are stored on the disk of the output meanwhile.",
)
@verbosity
@user_errors
def bin_sample(
    sample: Path,
    *,
    output: Path,
    bin_size: int | None,
    cell_bin: bool,
    image: Path | None,
    tissue: str | None,
    memory: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """Convert SAMPLE, the output of a sequencing platform, to AnnData.

    SAMPLE is a GEF (square-bin or cell-bin) or a GEM (text, which may be compressed by gzip) of Stereo-seq, or the
    folder outs of 10x Space Ranger (Visium or Visium HD). The AnnData can be given to `fit`.

    \b
    Example:
      spatialpdvi bin SS200000135TL_D1.gef --bin 50 -o sample.h5ad
      spatialpdvi bin SS200000135TL_D1.cellbin.gef --cell-bin -o cells.h5ad
      spatialpdvi bin SN.gef --image SN_regist.tif --tissue SN_tissue_cut.tif -o sample.h5ad
      spatialpdvi bin outs -o visium.h5ad
    """
    with importing():
        from spatialpdvi.api import bin_file

    with name_written(output):
        with display(quiet=quiet, verbose=verbose) as progress:
            written = bin_file(
                sample,
                output,
                bin_size=bin_size,
                cell_bin=cell_bin,
                image=image,
                tissue=tissue,
                memory=memory,
                progress=progress,
            )
        if not quiet:
            elements = ["X", "obsm['spatial']", "uns['binning']"]
            if written.n_tissue is not None:
                elements.append(f"obs['in_tissue'] with {written.n_tissue:,} spots on the tissue")
            if written.image:
                elements.append(f"the image of {written.image!r} in uns['spatial']")
            echo(
                f"written: {click.format_filename(output)} ({written.n_spots:,} spots x {written.n_genes:,} genes, "
                f"{written.n_values:,} values; {', '.join(elements)})"
            )
