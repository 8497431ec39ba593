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
    keys = list_keys([*getattr(source, f"{group}_keys")(), *also])
    found = f"{'columns' if group == 'obs' else 'keys'}: {keys}"
    return InputError(f"{group}[{key!r}] in {source.name}", found, f"Name one of these with {option(name)}.")
