"""Named arrays and plain facts in one file, an npz without pickled objects."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError, ResourceError
from spatialpdvi.errors import option as option_named
from spatialpdvi.io.storage.atomic import replacing
from spatialpdvi.io.storage.damage import reading
from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.paths import AnyPath, another, locate, resolve

__all__ = ["read_archive", "write_archive"]

_FACTS = "facts"  # the array that holds the facts, one JSON text
_MODEL = option_named("save_model")


def write_archive(
    path: AnyPath,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    *,
    option: str,
    compress: bool = True,
) -> None:
    """Write arrays of numbers or texts, and facts that JSON can hold, all or nothing.

    Parameters
    ----------
    path
        Written as it is: no ending is added.
    arrays
        By name; none is called ``facts``.
    facts
        What `json` can write, without NaN.
    option
        The option by which the user gave the path, for errors.
    compress
        Whether to spend time on a smaller file.
    """
    save = np.savez_compressed if compress else np.savez
    everything: dict[str, Any] = {_FACTS: np.array(json.dumps(facts, allow_nan=False)), **arrays}
    target = resolve(path, option=option)
    with clear_errors(path, option=option), replacing(target, target.parent) as temporary, temporary.open("wb") as file:
        save(file, **everything)


def read_archive(
    path: AnyPath, *, option: str, writer: str = _MODEL, advice: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read the arrays and facts that `write_archive` has written; nothing in the file is run.

    Parameters
    ----------
    path
        The file.
    option
        The option by which the user gave the path, for errors.
    writer
        What writes such files, for errors.
    advice
        What to do about another file; None to choose another path.

    Raises
    ------
    InputError
        Where there is no such file, or it is damaged or of another kind.
    """
    location = locate(path)
    expected, advice = f"{location.given!r} to be a file that {writer} wrote", advice or f"Choose {another(option)}."
    file = resolve(location, option=option)
    if not file.is_file():
        found = "a folder" if file.is_dir() else "no such file" if not file.exists() else "a pipe or device"
        raise InputError(expected, found, advice)
    with reading(expected, "another kind of file, or a damaged one", advice):
        try:
            stream = file.open("rb")  # here: numpy leaves a file open that it opened itself and that is no archive
        except PermissionError as error:
            raise ResourceError(f"There is no permission to read {location.given!r}.", advice) from error
        with stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        facts = json.loads(str(arrays.pop(_FACTS)))
        if not isinstance(facts, dict):
            raise TypeError
    return arrays, facts
