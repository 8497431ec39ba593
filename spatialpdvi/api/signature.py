"""Signatures and docstrings that name every option of a fit, made from the table of `FitOptions`."""

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import fields
from inspect import Parameter
from typing import Any, TypeVar

from spatialpdvi.errors import as_argument, in_words
from spatialpdvi.options.fit import FitOptions

__all__ = ["spell_out"]

_F = TypeVar("_F", bound=Callable[..., Any])
_ENTRY = re.compile(r"^( *)options\n(?:\1 +\S.*\n)+", flags=re.MULTILINE)


def spell_out(*, only: Collection[str] | None = None, without: Collection[str] = ()) -> Callable[[_F], _F]:
    """Return a decorator that shows what ``**options`` of a function accepts, in its signature and its docstring.

    Parameters
    ----------
    only
        Names of the options that it accepts; None for all.
    without
        Options that it does not accept, besides those that are parameters of its own.
    """

    def spell(function: _F) -> _F:
        signature = inspect.signature(function)
        own = {name: p for name, p in signature.parameters.items() if p.kind is not Parameter.VAR_KEYWORD}
        chosen = [f for f in fields(FitOptions) if f.name not in {*own, *without} and (only is None or f.name in only)]
        added = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type) for f in chosen]
        function.__signature__ = signature.replace(parameters=[*own.values(), *added])  # type: ignore[attr-defined]
        if function.__doc__:  # there is none with `python -OO`
            function.__doc__ = _ENTRY.sub(
                lambda entry: "".join(
                    f"{entry[1]}{f.name}\n{entry[1]}    {in_words(f.metadata['help'], as_argument)}\n" for f in chosen
                ),
                function.__doc__,
            )
        return function

    return spell
