"""Signatures and docstrings that name every option of a fit, made from the table of `FitOptions`."""

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import fields
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter
from typing import Any, TypeVar, cast

from spatialpdvi.errors import as_argument, in_words
from spatialpdvi.options.fit import FitOptions

__all__ = ["spell_out"]

_F = TypeVar("_F", bound=Callable[..., Any])
_ELSEWHERE = {"n_clusters": "k", "n_domains": "k", "random_state": "seed", "use_rep": "rep"}  # in other tools
_ENTRY = r"^( *){}\n(?:\1 +\S.*\n)+"  # of a parameter, in a docstring


def spell_out(*, only: Collection[str] | None = None, without: Collection[str] = ()) -> Callable[[_F], _F]:
    """Return a decorator that shows what ``**options`` of a function accepts, in its signature and its docstring.

    Any other option is a `TypeError` that names the closest one.

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
        (by_name,) = signature.parameters.keys() - own.keys()
        chosen = [f for f in fields(FitOptions) if f.name not in {*own, *without} and (only is None or f.name in only)]
        added = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type) for f in chosen]
        function.__signature__ = signature.replace(parameters=[*own.values(), *added])  # type: ignore[attr-defined]
        if function.__doc__:  # there is none with `python -OO`
            function.__doc__ = re.sub(
                _ENTRY.format(by_name),
                lambda entry: "".join(
                    f"{entry[1]}{f.name}\n{entry[1]}    {in_words(f.metadata['help'], as_argument)}\n" for f in chosen
                ),
                function.__doc__,
                flags=re.MULTILINE,
            )
        known = {*own, *(f.name for f in chosen), *without}

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            unknown = next((name for name in kwargs if name not in known), None)
            if unknown is None:
                return function(*args, **kwargs)
            if _ELSEWHERE.get(unknown) in known:
                near = f" It is called {_ELSEWHERE[unknown]!r} here."
            else:
                near = "".join(f" The closest is {name!r}." for name in get_close_matches(unknown, known, n=1))
            name = function.__name__
            msg = f"{name}() has no option {unknown!r}.{near} All options are in its docstring: help({name})."
            raise TypeError(msg)

        return cast("_F", call)

    return spell
