"""``spatialpdvi simulate``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import FILE, display, echo, importing, name_written, user_errors, verbosity

__all__ = ["simulate"]


@click.command()
@click.argument("output", type=FILE)
@click.option("--n-spots", default=20_000, show_default=True, help="Number of spots. They lie on a square lattice.")
@click.option("--n-genes", default=8_000, show_default=True, help="Number of genes.")
@click.option(
    "-k",
    "--k",
    "--n-domains",
    default=20,
    show_default=True,
    help="Number of domains. They are contiguous and differ in size.",
)
@click.option(
    "--signal",
    default=1.0,
    show_default=True,
    help="Factor of the log fold changes between cell states. Smaller values make the domains harder to find.",
)
@click.option(
    "--easy",
    is_flag=True,
    help="Give every domain an expression profile of its own, and leave out the skin and thin layers. Default: off.",
)
@click.option(
    "--background", default=0, show_default=True, help="Number of additional spots off the tissue, with few counts."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the random numbers.")
@verbosity
@user_errors
def simulate(
    output: Path,
    *,
    n_spots: int,
    n_genes: int,
    k: int,
    signal: float,
    easy: bool,
    background: int,
    seed: int,
    quiet: bool,
    verbose: bool,
) -> None:
    """Simulate a section with known domains and write it to OUTPUT.

    The section has the shape of an embryo, sparse counts, and domains that share
    cell states and differ in their proportions. OUTPUT ends in .h5ad or .zarr.

    \b
    Example:
      spatialpdvi simulate embryo.h5ad --n-spots 20000 --n-genes 8000 --k 20 --seed 0
    """
    with importing():
        from spatialpdvi.synthetic import simulate_file

    with name_written(output):
        with display(quiet=quiet, verbose=verbose) as progress:
            simulate_file(
                output,
                n_spots=n_spots,
                n_genes=n_genes,
                k=k,
                seed=seed,
                signal=signal,
                easy=easy,
                background=background,
                progress=progress,
            )
        if not quiet:
            echo(f"written: {click.format_filename(output)} (X, obsm['spatial'], obs['annotation'])")
