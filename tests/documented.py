"""What docs/outputs.md names, to be held against the keys of what is really written."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spatialpdvi.options.fit import option_table

PAGE = (Path(__file__).parents[1] / "docs" / "outputs.md").read_text(encoding="utf-8")
# below these, keys are names: of packages, solvers, domains, conditions, stages of a fit or tests of the machine
OF_OTHERS = {"versions", "tuning", "domain_sizes", "markers", "seconds", "shares", "peak_bytes", "speed"}


def part(title: str) -> str:
    """What is under one heading of the page."""
    (found,) = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, flags=re.DOTALL | re.MULTILINE)
    return found


def named(text: str = PAGE) -> set[str]:
    """What stands between backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def keys_within(content: object, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key of nested dicts and lists of them."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield (*above, key)
            if key not in OF_OTHERS:
                yield from keys_within(value, (*above, key))
    elif isinstance(content, Sequence) and not isinstance(content, str):
        for value in content:
            yield from keys_within(value, above)


def undocumented(content: object, text: str = PAGE) -> list[str]:
    """Keys of nested dicts that are not between backticks; ``params`` may also have those of a fit's options."""
    words = named(text)
    options = {row["name"] for row in option_table()}
    paths = {path for path in keys_within(content) if path[-1] not in words}
    return sorted("/".join(path) for path in paths if not ("params" in path[:-1] and path[-1] in options))
