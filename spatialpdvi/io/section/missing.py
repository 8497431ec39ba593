"""Errors for elements that are not in a section."""

from collections.abc import Sequence

from spatialpdvi.errors import InputError, list_keys, option
from spatialpdvi.io.formats.sources import Source

__all__ = ["misnamed", "missing"]


def missing(source: Source, group: str, key: str, advice: str) -> InputError:
    """Return the error for an element that a result should have; ``advice`` says, as whole sentences, how to get it."""
    found = f"no such {'column' if group == 'obs' else 'element'}"
    return InputError(f"{group}[{key!r}] in {source.name}", found, advice)


def misnamed(source: Source, group: str, key: str, name: str, *, also: Sequence[str] = ()) -> InputError:
    """Return the error for an element that the user has named, which says what there is.

    Columns of a fit are no labels to score it against, and are left out where these are wanted.

    Parameters
    ----------
    source
        The section.
    group
        ``obs``, ``obsm`` or ``obsp``.
    key
        What the user has named with the option ``name``.
    name
        The option.
    also
        What the option may name besides.
    """
    there = [*getattr(source, f"{group}_keys")(), *also]
    if name == "label_key":  # a fit would be scored against itself
        own = tuple(f"{fit}_" for fit in source.uns_keys() if "params" in source.uns_fields(fit))
        there = [column for column in there if not column.startswith(own)]
    found = f"{'columns' if group == 'obs' else 'keys'}: {list_keys(there)}"
    first = f"Add such {'a column' if group == 'obs' else 'an element'} first."
    advice = f"Name one of these with {option(name)}." if there else first
    return InputError(f"{group}[{key!r}] in {source.name}", found, advice)
