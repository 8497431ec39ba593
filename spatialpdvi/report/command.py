"""The command line that repeats a fit, made of the parameters that the fit has stored."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.graph.patches import default_n_patches
from spatialpdvi.options.fit import FitOptions, option_table

__all__ = ["fit_command", "predict_command", "shell_line", "stored_options"]

_ALWAYS = ("k", "seed")  # shown even where they are the default
# Options of `fit` that `predict` takes as well; the model has all others.
_OF_PREDICT = ("layer", "spatial_key", "label_key", "sample_key", "key_added", "save_graph", "correct")


def stored_options(params: Mapping[str, Any]) -> FitOptions | None:
    """Options of a fit, checked; None where the parameters are not those of a fit by this version."""
    known = {f.name for f in fields(FitOptions)}
    given = {name: _plain(value) for name, value in params.items() if name in known}
    needed = {f.name for f in fields(FitOptions) if f.default is MISSING}
    if not needed <= given.keys():
        return None
    try:
        return FitOptions(**given)
    except InputError:
        return None


def fit_command(
    options: FitOptions, files: Sequence[Path], *, output: Path, sizes: Sequence[int] | None = None
) -> list[str]:
    """Words of the `spatialpdvi fit` that gives the same result, to be joined by `shell_line`.

    What a default has chosen is spelled out, so that it stays when defaults or data change.

    Parameters
    ----------
    options
        As they were in force.
    files
        What was fitted.
    output
        File to write, or the folder for several files.
    sizes
        Spots of each section where there are several.
    """
    left_out = {"n_patches"} if sizes is not None and _is_default(options, sizes) else set()
    return ["spatialpdvi", "fit", *map(_file, files), *_flags(options, left_out=left_out), "-o", _file(output)]


def predict_command(params: Mapping[str, Any], file: Path, *, output: Path) -> list[str]:
    """Words of the `spatialpdvi predict` that gives the same result, with the model's file in the working folder."""
    options = FitOptions(k=2, **{name: _plain(params[name]) for name in _OF_PREDICT if name in params})
    others = {f.name for f in fields(FitOptions)} - set(_OF_PREDICT)
    model = _file(Path(str(params["model"])))
    return [
        "spatialpdvi",
        "predict",
        _file(file),
        "--model",
        model,
        *_flags(options, left_out=others),
        "-o",
        _file(output),
    ]


def shell_line(words: Sequence[str]) -> str:
    """One line for bash or zsh."""
    return " ".join(map(_quoted, words))


def _is_default(options: FitOptions, sizes: Sequence[int]) -> bool:
    """Whether the patches of several sections are those of the default, which are rounded section by section.

    Asked for by their sum they could be dealt otherwise.
    """
    n = sum(sizes)
    asked = default_n_patches(n, options.batch_patches or 1)
    return options.n_patches == sum(max(1, round(asked * size / n)) for size in sizes)


def _flags(options: FitOptions, *, left_out: set[str]) -> list[str]:
    words: list[str] = []
    for row in option_table():
        name, flag, value = row["name"], row["flag"], getattr(options, row["name"])
        if name in left_out or value is None or (value == row["default"] and name not in _ALWAYS):
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag.removeprefix('--')}")
        elif str(value).startswith("-"):
            words.append(f"{flag}={value}")
        else:
            words += [flag, str(value)]
    return words


def _file(path: Path) -> str:
    """A path that is not taken for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _quoted(word: str) -> str:
    """A word as the shell reads it; bytes that no terminal shows are spelled."""
    if word.isprintable():
        return shlex.quote(word)
    signs = (sign if sign.isprintable() else _spelled(sign) for sign in word)
    inside = "".join(f"\\{sign}" if sign in {"'", "\\"} else sign for sign in signs)
    return f"$'{inside}'"


def _spelled(sign: str) -> str:
    """A character by its bytes; those of a file's name that are no UTF-8 are kept as surrogates."""
    lone = "\udc80" <= sign <= "\udcff"
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape" if lone else "surrogatepass"))


def _plain(value: Any) -> Any:
    """A number or text of NumPy as Python's own."""
    return value.item() if isinstance(value, np.generic) else value
