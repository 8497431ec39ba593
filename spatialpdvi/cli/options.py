"""The table of a fit's options as click options: all of them, or those that a command shares with ``fit``."""

from collections.abc import Callable, Collection
from typing import Any

import click

from spatialpdvi.options.fit import option_table

__all__ = ["COUNTS_MEMORY", "GENE_KEY", "KEY_ADDED", "GroupedCommand", "table_options"]

# What several commands on fitted sections take.
KEY_ADDED = click.option("--key-added", default="pdvi", show_default=True, help="Prefix of the keys that a fit wrote.")
GENE_KEY = click.option("--gene-key", help="Column of var with names of the genes to show. Default: the names in var.")
COUNTS_MEMORY = click.option(
    "--memory",
    help="Memory that counts may take, as 8GB; larger ones are read block by block. Default: what is free.",
)

_SECTIONS = ("Model", "Input", "Features", "Start", "Graph", "Patches", "Solver", "Comparison", "Output", "Run")
# of the options that single commands add to the table's; all others are shown with the run
_GROUPS = {
    "output": "Output",
    "report": "Output",
    "save_model": "Output",
    "model": "Model",
    "table": "Input",
    "correct": "Features",
    "solvers": "Comparison",
    "seeds": "Comparison",
    "tune_epochs": "Comparison",
}


class GroupedCommand(click.Command):
    """Help in sections: the options of one stage together."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group, in the order of the table."""
        sections: dict[str, list[tuple[str, str]]] = {}
        groups = {row["name"]: row["group"] for row in option_table()} | _GROUPS
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                sections.setdefault(groups.get(parameter.name or "", "Run"), []).append(record)
        for title in sorted(sections, key=_SECTIONS.index):
            with formatter.section(title):
                formatter.write_dl(sections[title])


def table_options(
    names: Collection[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that adds one click option for every row of the table of options, or for those named."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for row in reversed(option_table()):
            if names is None or row["name"] in names:
                command = _option(row)(command)
        return command

    return add


def _option(row: dict[str, Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    if row["type"] is bool:
        flag = f"{row['flag']}/--no-{row['flag'].removeprefix('--')}" if row["default"] else row["flag"]
        text = f"{row['help']} Default: {'on' if row['default'] else 'off'}."
        return click.option(flag, row["name"], is_flag=True, default=row["default"], help=text)
    # an explicit default of None would count as a value, and nothing would be required
    default = {} if row["default"] is None else {"default": row["default"], "show_default": True}
    return click.option(
        row["flag"], row["name"], type=row["type"], required=row["required"], help=row["help"], **default
    )
