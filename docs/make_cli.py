"""Write docs/cli.md from the help of the commands: ``python docs/make_cli.py``. A test compares the two."""

from pathlib import Path

import click

from spatialpdvi.cli import main
from spatialpdvi.cli.options import SHOW_ALL

PAGE = Path(__file__).with_name("cli.md")


def render() -> str:
    """Return the page, with the help of the program and of each command at a width of 100."""
    parts = ["# Commands and options\n\nMade from the help by `docs/make_cli.py`; do not edit.\n"]
    width = {"max_content_width": 100, "terminal_width": 100}
    group = click.Context(main, info_name="spatialpdvi", **main.context_settings, **width)
    parts.append(f"```\n{main.get_help(group)}\n```\n")
    parts += _sections(main, group, "## spatialpdvi", width)
    return "\n".join(parts)


def _sections(group: click.Group, parent: click.Context, title: str, width: dict[str, int]) -> list[str]:
    """Return a section for each command of a group, and for the commands of groups within it."""
    parts = []
    for name in sorted(group.commands):
        command = group.commands[name]
        context = click.Context(command, info_name=name, parent=parent, **width)
        context.meta[SHOW_ALL] = True
        parts.append(f"{title} {name}\n\n```\n{command.get_help(context)}\n```\n")
        if isinstance(command, click.Group):
            parts += _sections(command, context, f"{title} {name}", width)
    return parts


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
