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
    for name in sorted(main.commands):
        context = click.Context(main.commands[name], info_name=name, parent=group, **width)
        context.meta[SHOW_ALL] = True
        parts.append(f"## spatialpdvi {name}\n\n```\n{main.commands[name].get_help(context)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
