"""What the functions of `spatialpdvi.pl` say alike in their docstrings, written once."""

import inspect
from collections.abc import Callable
from typing import TypeVar

__all__ = ["described"]

_PARAMETERS = {
    "adata": "A fitted section.",
    "ax": "Where to draw; by default on a new figure of its own.",
    "key_added": "Prefix of the keys that the fit wrote.",
    "label_key": "Column of ``obs`` with known labels; by default ``annotation``.",
    "spatial_key": "Key in ``obsm`` of the coordinates.",
    "sample_key": "Column of ``obs`` with the section of each spot; by default that of the fit.",
    "calibrated": (
        "Whether to draw the calibrated posterior's where the fit has written one; the colour bar tells which it is."
    ),
}
_DRAWN = "What was drawn on; several sections have axes of their own within it (``child_axes``)."
_F = TypeVar("_F", bound=Callable[..., object])


def described(raises: str, *, returns: str = _DRAWN) -> Callable[[_F], _F]:
    """Decorator that completes a docstring by sections on parameters, the result and the error.

    Parameters
    ----------
    raises
        When there is an `InputError`.
    returns
        What the axes are.
    """

    def complete(function: _F) -> _F:
        names = inspect.signature(function).parameters
        sections = {
            "Parameters": "\n".join(f"{name}\n    {_PARAMETERS[name]}" for name in names),
            "Returns": f"matplotlib.axes.Axes\n    {returns}",
            "Raises": f"InputError\n    {raises}",
        }
        written = (f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())
        function.__doc__ = "\n\n".join([inspect.cleandoc(function.__doc__ or ""), *written])
        return function

    return complete
