"""``spatialpdvi label`` with its commands ``rename``, ``merge``, ``split``, ``pieces`` and ``levels``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spatialpdvi.cli.common import (
    FILE,
    display,
    echo,
    importing,
    limit_threads,
    name_written,
    table_option,
    user_errors,
    verbosity,
)
from spatialpdvi.cli.options import COUNTS_MEMORY, KEY_ADDED, THREADS

if TYPE_CHECKING:
    from spatialpdvi.editing.edits import Edit

__all__ = ["label"]

_OUTPUT = click.option(
    "--output",
    "-o",
    type=FILE,
    help="File or store to write, which leaves SECTION as it is. Default: SECTION itself.",
)
_DOMAIN = click.option("--domain", "-d", required=True, help="Name of the domain.")


@click.group()
def label() -> None:
    """Edit the domains of a fitted SECTION.

    Posteriors, confidences, colours, means and scores follow the domains. The certificate stays that of the fit, and
    uns['pdvi']['edits'] lists what was done since. The domains of the fit are kept as obs['pdvi_domain_fitted']; write
    to another file with --output to keep all of the fit.
    """


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all edits share."""
    return _OUTPUT(KEY_ADDED(verbosity(user_errors(table_option(command)))))


@label.command()
@click.argument("section", type=FILE)
@click.option("--names", type=FILE, help="CSV file with the columns domain and name. Default: not used.")
@click.option(
    "--from",
    "from_key",
    help="Column of obs, such as annotation, whose most frequent value in a domain becomes its name; equal names are "
    "numbered. Default: not used.",
)
@click.option("--merge", is_flag=True, help="Merge domains that would share a name. Default: off.")
@_shared
def rename(section: Path, *, names: Path | None, from_key: str | None, merge: bool, **shared: Any) -> None:
    """Rename the domains of SECTION, from a table or from an annotation.

    Give either --names or --from. Domains that the table leaves out, and those without an annotated spot, keep their
    names.

    \b
    Example:
      spatialpdvi label rename cortex.h5ad --names names.csv
      spatialpdvi label rename embryo.h5ad --from annotation -o named.h5ad
    """

    def edit() -> "Edit":
        from spatialpdvi.api import read_names
        from spatialpdvi.editing.edits import Rename

        return Rename(None if names is None else read_names(names), from_key, merge)

    _run(edit, section, read=() if names is None else (names,), **shared)


@label.command()
@click.argument("section", type=FILE)
@click.option(
    "--domain", "-d", multiple=True, required=True, help="Name of a domain; give the option for each of them."
)
@click.option("--name", help="Name of the union. Default: the names of the domains, joined by +.")
@_shared
def merge(section: Path, *, domain: tuple[str, ...], name: str | None, **shared: Any) -> None:
    """Merge domains of SECTION.

    Their posteriors add. The union takes the place and the colour of the first of them.

    \b
    Example:
      spatialpdvi label merge cortex.h5ad -d 0 -d 3 --name Cortex
    """

    def edit() -> "Edit":
        from spatialpdvi.editing.edits import Merge

        return Merge(domain, name)

    _run(edit, section, **shared)


@label.command()
@click.argument("section", type=FILE)
@_DOMAIN
@click.option("--into", required=True, type=int, help="Number of parts, at least 2.")
@click.option("--seed", default=0, show_default=True, help="Seed of the random numbers.")
@COUNTS_MEMORY
@THREADS
@_shared
def split(
    section: Path, *, domain: str, into: int, seed: int, memory: str | None, threads: int | None, **shared: Any
) -> None:
    """Split one domain of SECTION into parts, by a fit inside it with the options of the fit.

    The parts of 3 are called 3.1, 3.2 and so on, the largest first. Their posteriors sum to that of the domain. All
    other domains stay as they are.

    \b
    Example:
      spatialpdvi label split cortex.h5ad -d 3 --into 2
    """
    limit_threads(threads)

    def edit() -> "Edit":
        from spatialpdvi.editing.edits import Split

        return Split(domain, into, seed)

    _run(edit, section, memory=memory, **shared)


@label.command()
@click.argument("section", type=FILE)
@_DOMAIN
@click.option(
    "--min-spots",
    default=30,
    show_default=True,
    help="Fewest spots of a part that becomes a domain; those of smaller parts go to the nearest that does.",
)
@_shared
def pieces(section: Path, *, domain: str, min_spots: int, **shared: Any) -> None:
    """Make the connected parts of one domain of SECTION domains of their own.

    Spots are connected by the graph of the fit. The parts of 3 are called 3.1, 3.2 and so on, the largest first.

    \b
    Example:
      spatialpdvi label pieces embryo.h5ad -d 3 --min-spots 50
    """

    def edit() -> "Edit":
        from spatialpdvi.editing.edits import Pieces

        return Pieces(domain, min_spots)

    _run(edit, section, **shared)


@label.command()
@click.argument("section", type=FILE)
@click.option("--levels", required=True, help="Numbers of coarser domains, such as 4,6,8, or a range such as 4:8.")
@_shared
def levels(section: Path, *, levels: str, **shared: Any) -> None:
    """Write nested coarser domains of SECTION beside its domains.

    At every step, the two domains whose union raises the objective F least become one. Each number is written as a
    column of its own, such as obs['pdvi_domain_L4']. The domains themselves stay as they are.

    \b
    Example:
      spatialpdvi label levels embryo.h5ad --levels 4,6,8
    """

    def edit() -> "Edit":
        from spatialpdvi.editing.edits import Levels

        return Levels(levels)

    _run(edit, section, **shared)


def _run(
    edit: "Callable[[], Edit]",
    section: Path,
    *,
    read: Sequence[Path] = (),
    output: Path | None,
    key_added: str,
    quiet: bool,
    verbose: bool,
    memory: str | None = None,
) -> None:
    """Edit the domains of a file, and print its table; the edit reads other files, which are not to be replaced."""
    with importing():
        from spatialpdvi.api import label_file
        from spatialpdvi.io.storage.outputs import check_distinct

    written = section if output is None else output
    if read:
        check_distinct(written, "output", read)
    with name_written(written):
        with display(quiet=quiet, verbose=verbose) as progress:
            table = label_file(section, edit(), output=output, key_added=key_added, memory=memory, progress=progress)
        if not quiet:
            formats = {"confidence": "{:.3f}".format, "rise": "{:,.1f}".format, "spots": "{:,}".format}
            echo(table.to_string(index=False, formatters=formats))
            echo(f"written: {click.format_filename(written)}")
