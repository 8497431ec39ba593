"""The command line that repeats a fit, made from the parameters that the fit stored."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError, as_flag
from spatialpdvi.io.results.summary import files_of_fit, joint_samples, scores_of_fit
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.options.fit import OF_A_SECTION, FitOptions, option_table
from spatialpdvi.options.stages import default_n_patches, patches_of_sections
from spatialpdvi.report.content import Material, number

__all__ = ["fit_command", "predict_command", "repeating_command", "shell_line", "stored_options"]

# Options of `fit` that `predict` takes as well; all others are in the model.
_OF_PREDICT = (*OF_A_SECTION, "key_added", "save_graph", "correct")


def stored_options(params: Mapping[str, Any]) -> FitOptions | None:
    """Return the checked options of a fit; None if the parameters are not those of a fit by this version."""
    try:
        return FitOptions.of_stored(params)
    except InputError:
        return None


def fit_command(
    options: FitOptions, files: Sequence[Path], *, output: Path, sizes: Sequence[int] | None = None
) -> list[str]:
    """Return the words of the `spatialpdvi fit` that gives the same result, to be joined by `shell_line`.

    Values that a default chose are spelled out, so that they stay the same when defaults or data change.

    Parameters
    ----------
    options
        The options of the fit.
    files
        The fitted files.
    output
        File to write, or the folder for several files.
    sizes
        Number of spots of each section, if there are several.
    """
    left_out = {"n_patches"} if sizes is not None and _is_default(options, sizes) else set()
    flags = _flags(options, left_out=left_out, always=("k", "seed"))
    return ["spatialpdvi", "fit", *map(_file, files), *flags, "-o", _file(output)]


def predict_command(params: Mapping[str, Any], file: Path, *, output: Path) -> list[str]:
    """Return the words of the `spatialpdvi predict` that repeats a prediction in the folder of the model's file."""
    options = FitOptions(k=2, **{name: params[name] for name in _OF_PREDICT if name in params})
    others = {f.name for f in fields(FitOptions)} - set(_OF_PREDICT)
    model = _file(Path(str(params["model"])))
    return [
        "spatialpdvi",
        "predict",
        _file(file),
        "--model",
        model,
        *_flags(options, left_out=others, always=("correct",)),  # `predict` does by default what the model does
        "-o",
        _file(output),
    ]


def transfer_command(params: Mapping[str, Any], file: Path, *, output: Path) -> list[str]:
    """Return the words of the `spatialpdvi transfer` that repeats one in the folder of the fit's file."""
    own = {
        "borders": params.get("borders"),
        "max_distance": params.get("max_distance"),
        "scale": params.get("scale"),
        "spatial_key": params.get("spatial_key"),
        "sample_key": params.get("sample_key"),
        "label_key": params.get("label_key"),
        "key_added": params.get("transferred_key"),
        "new_key": params.get("key_added"),
    }
    flags = [f"{as_flag(name)}={value}" for name, value in own.items() if value is not None]
    fitted = _file(Path(str(params["transferred_from"])))
    return ["spatialpdvi", "transfer", fitted, "--to", _file(file), *flags, "-o", _file(output)]


def shell_line(words: Sequence[str]) -> str:
    """Return one line for bash or zsh."""
    return " ".join(map(_quoted, words))


def repeating_command(material: Material, paths: Mapping[str, Path]) -> str | None:
    """Return the line for the shell that repeats a result; None if the stored parameters make none.

    There is none for a model or a fit that was in memory, not in a file.

    Parameters
    ----------
    material
        The fitted section.
    paths
        Files by the names of their sections; those of a joint fit that are not among them are taken to lie in the
        folder of the section. Counts that were left out of a section are in another file, which takes its place.
    """
    params = material.params
    path = material.left_out_of or material.counts or material.path
    if material.left_out_of is not None:
        paths = {}
    beside = _beside(path)
    if material.fitted.carried_from is not None:
        known = "transferred_from" in params
        return shell_line(transfer_command(params, path, output=beside)) if known else None
    if material.is_predicted:
        if "model" not in params:
            return None
        try:
            return shell_line(predict_command(params, path, output=beside))
        except InputError:
            return None
    options = stored_options(params)
    if options is None:
        return None
    scores = scores_of_fit(material.fitted.summary)
    names = joint_samples(scores)
    sizes = _sizes(scores) if names else None
    if not files_of_fit(material.fitted.summary):
        return shell_line(fit_command(options, [path], output=beside, sizes=sizes))
    if any(Path(name).name != name for name in names):
        return None  # not of files
    others = {name: paths.get(name, path.with_name(name + path.suffix)) for name in names}
    files = [path if name == material.name else others[name] for name in names]
    folder = beside.with_name("again")
    line = shell_line(fit_command(options, files, output=folder, sizes=sizes))
    return f"{shell_line(['mkdir', '-p', '--', str(folder)])} && {line}"


def _beside(path: Path) -> Path:
    """Return the path of a further file or store in the same folder; for a table of a store, beside the store."""
    store = locate(path).spatialdata
    if store is None:
        return path.with_name(f"{path.stem}_again{path.suffix}")
    return store.with_name(f"{store.stem}_{path.name}_again{store.suffix}")


def _sizes(scores: Mapping[str, Any]) -> list[int] | None:
    """Return the number of spots of each section of a joint fit."""
    sizes = [number(size) for size in np.atleast_1d(scores["samples"].get("n_spots", ()))]
    known = [int(size) for size in sizes if size]
    return known if known and len(known) == len(sizes) else None


def _is_default(options: FitOptions, sizes: Sequence[int]) -> bool:
    """Return whether the default chose the patches of several sections, which it rounds section by section.

    Their sum as an option could divide them in another way.
    """
    total = default_n_patches(sum(sizes), options.batch_patches or 1)
    return options.n_patches == sum(patches_of_sections(sizes, total))


def _flags(options: FitOptions, *, left_out: set[str], always: tuple[str, ...]) -> list[str]:
    """Return the options that are not the default, and those that are shown always."""
    words: list[str] = []
    for row in option_table():
        name, flag, value = row["name"], row["flag"], getattr(options, row["name"])
        if name in left_out or value is None or (value == row["default"] and name not in always):
            continue
        if isinstance(value, bool):
            words.append(as_flag(name, value))
        elif str(value).startswith("-"):
            words.append(f"{flag}={value}")
        else:
            words += [flag, str(value)]
    return words


def _file(path: Path) -> str:
    """Return a path that is not taken for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def _quoted(word: str) -> str:
    """Return a word as the shell reads it, with bytes that no terminal shows written as escapes."""
    if word.isprintable():
        return shlex.quote(word)
    signs = (sign if sign.isprintable() else _spelled(sign) for sign in word)
    inside = "".join(f"\\{sign}" if sign in {"'", "\\"} else sign for sign in signs)
    return f"$'{inside}'"


def _spelled(sign: str) -> str:
    """Return the escapes of a character; Python stores bytes of a file's name that are not UTF-8 as surrogates."""
    lone = "\udc80" <= sign <= "\udcff"
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", "surrogateescape" if lone else "surrogatepass"))
