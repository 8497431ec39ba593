"""Click options made from the table of a fit's options, and options that several commands share."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import click
from click.core import ParameterSource

from spatialpdvi.cli.common import FILE
from spatialpdvi.errors import as_flag, in_words
from spatialpdvi.options.fit import FitOptions, option_table
from spatialpdvi.options.presets import PRESETS, preset_options, set_by

__all__ = [
    "COUNTS",
    "COUNTS_MEMORY",
    "COUNTS_OF_EACH",
    "GENE_KEY",
    "KEY_ADDED",
    "LABELS",
    "LAYER",
    "PRESET",
    "SAMPLE_KEY",
    "SHOW_ALL",
    "SLIM",
    "SPATIAL_KEY",
    "THREADS",
    "GroupedCommand",
    "options_of",
    "table_options",
]

# options of several commands on fitted sections
KEY_ADDED = click.option(
    "--key-added", default="pdvi", show_default=True, help="Prefix of the keys that the fit wrote."
)
GENE_KEY = click.option("--gene-key", help="Column of var with the gene names to show. Default: the index of var.")
SAMPLE_KEY = click.option(
    "--sample-key", help="Column of obs that names the section of each spot. Default: as in the fit."
)
SPATIAL_KEY = click.option("--spatial-key", help="Key in obsm of the coordinates. Default: as in the fit.")
LAYER = click.option(
    "--layer", help="Where the raw counts are: the name of a layer, X or raw.X. Default: where the fit found them."
)
COUNTS_MEMORY = click.option(
    "--memory",
    help="Memory that the counts may use, such as 8GB. Counts that need more are read block by block. Default: all "
    "free memory.",
)
_COUNTS = (
    "File with the counts of the same spots, for a SECTION that was written with --slim{}. Default: the counts are in "
)
COUNTS, COUNTS_OF_EACH = (
    click.option("--counts", type=FILE, multiple=True, help=f"{_COUNTS.format(more)}SECTION.")
    for more in ("", "; with several SECTIONs once for each, in their order")
)
SLIM = click.option(
    "--slim",
    is_flag=True,
    help="Write the results, obs, the coordinates and the images of the tissue to --output, without the counts. Plots "
    "and reports can be made of it. Default: off.",
)
LABELS = click.option(
    "--labels",
    type=FILE,
    help="Also write name, place, domain, confidence and posterior of each spot to this table, .csv, .tsv or "
    ".parquet. Default: not written.",
)
THREADS = click.option(
    "--threads", type=int, help="Largest number of threads. Results do not depend on it. Default: all cores."
)
PRESET = click.option(
    "--preset",
    help=f"Set many options at once: {' or '.join(PRESETS)} for the setting of the paper on P2D-VI. Options that are "
    "given win over it. Default: none.",
)

SHOW_ALL = "spatialpdvi.show_all"  # key of ctx.meta
_OTHER_NAMES = {"k": ("-k", "--n-domains")}
_MANY = 25  # options: the help of a command with more of them shows some
_COMMON = {  # what it shows then, beside --help
    *("k", "states", "solvers", "seeds", "seed"),
    *("table", "spatial_key", "label_key", "sample_key", "mask", "min_counts"),
    *("output", "slim", "report", "threads", "memory", "quiet", "verbose", "help_all"),
}
_SECTIONS = ("Model", "Input", "Features", "Start", "Graph", "Patches", "Solver", "Comparison", "Output", "Run")
# groups of the options that only some commands have; options in no group are shown under Run
_GROUPS = {
    "output": "Output",
    "slim": "Output",
    "intervals": "Output",
    "report": "Output",
    "labels": "Output",
    "save_model": "Output",
    "model": "Model",
    "table": "Input",
    "correct": "Features",
    "preset": "Model",
    "solvers": "Comparison",
    "seeds": "Comparison",
    "tune_epochs": "Comparison",
    "constant_steps": "Comparison",
}


class GroupedCommand(click.Command):
    """A command whose help shows the options in groups; with many options, those that most users need."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_long = len(self.params) > _MANY
        if self._is_long:
            self.params.append(_help_all())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section of the help for each group of options; with `SHOW_ALL` in ``ctx.meta``, of all options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        groups = {row["name"]: row["group"] for row in option_table()} | _GROUPS
        hidden = 0
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None or not isinstance(parameter, click.Option):
                continue
            is_common = parameter.name in _COMMON or "--help" in parameter.opts
            if self._is_long and SHOW_ALL not in ctx.meta and not is_common:
                hidden += 1
                continue
            sections.setdefault(groups.get(parameter.name or "", "Run"), []).append(record)
        for title in sorted(sections, key=_SECTIONS.index):
            with formatter.section(title):
                formatter.write_dl(sections[title])
        if hidden:
            formatter.write_paragraph()
            formatter.write_text(f"{hidden} more options are shown by --help-all.")


def table_options(
    names: Collection[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a click option for each option of a fit, or for those named."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for row in reversed(option_table()):
            if names is None or row["name"] in names:
                command = _option(row)(command)
        return command

    return add


def options_of(
    preset: str | None, options: dict[str, Any], *, quiet: bool, instead: Mapping[str, str] | None = None
) -> FitOptions:
    """Return the options of a command: those that were given, then those of a preset, then the defaults.

    Parameters
    ----------
    preset
        Its name, or None.
    options
        Values of the `table_options` of the command that is being run, defaults included.
    quiet
        Whether nothing is printed. Otherwise stderr has a line of what the preset set.
    instead
        What the command calls options that it does not have.
    """
    if preset is None:
        return FitOptions(**options)
    source = click.get_current_context().get_parameter_source
    given = {name: value for name, value in options.items() if source(name) is not ParameterSource.DEFAULT}
    chosen = preset_options(preset, **given)
    if not quiet:
        flags = {name: as_flag(name, value) for name, value in set_by(preset, chosen).items()} | dict(instead or {})
        click.echo(f"preset {preset}: {' '.join(flags.values())}", err=True)
    return chosen


def _help_all() -> click.Option:
    """An option that prints the help with all options."""

    def show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
        if value and not ctx.resilient_parsing:
            ctx.meta[SHOW_ALL] = True
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show all options and exit.",
    )


def _option(row: dict[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    text = in_words(row["help"], as_flag)
    if row["type"] is bool:
        flag = f"{row['flag']}/{as_flag(row['name'], False)}" if row["default"] else row["flag"]
        text += f" Default: {'on' if row['default'] else 'off'}."
        return click.option(flag, row["name"], is_flag=True, default=row["default"], help=text)
    # an explicit default of None would count as a value, and nothing would be required
    default = {} if row["default"] is None else {"default": row["default"], "show_default": True}
    flags = (row["flag"], *_OTHER_NAMES.get(row["name"], ()))
    return click.option(*flags, row["name"], type=row["type"], required=row["required"], help=text, **default)
