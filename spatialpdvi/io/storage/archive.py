"""Named arrays and plain facts in one file, an npz without pickled objects."""

import json
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import clear_errors, replacing, resolve

__all__ = ["read_archive", "write_archive"]

_FACTS = "facts"  # the array that holds the facts, one JSON text


def write_archive(
    path: str | Path,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    *,
    option: str,
    compress: bool = True,
) -> None:
    """Write arrays of numbers or texts and facts that JSON has, all or nothing.

    Parameters
    ----------
    path
        Written as it is: no ending is added.
    arrays
        By name; none is called ``facts``.
    facts
        What `json` can write, without NaN.
    option
        Where another path is named, for messages.
    compress
        Whether to spend time on a smaller file.
    """
    save = np.savez_compressed if compress else np.savez
    everything: dict[str, Any] = {_FACTS: np.array(json.dumps(facts, allow_nan=False)), **arrays}
    target = resolve(path, option=option)
    with clear_errors(path, option=option), replacing(target, target.parent) as temporary, temporary.open("wb") as file:
        save(file, **everything)


def read_archive(
    path: str | Path, *, option: str, writer: str = "--save-model", advice: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and facts that `write_archive` has written; nothing in the file is run.

    For messages ``option`` names the path and ``writer`` what wrote the file; ``advice`` says what to do about another.
    """
    advice = advice or f"Check {option}."
    file = resolve(path, option=option)
    if not file.is_file():
        found = "a folder" if file.is_dir() else "no such file" if not file.exists() else "a pipe or device"
        msg = f"Expected {str(path)!r} to be a file that {writer} wrote, found {found}. {advice}"
        raise InputError(msg)
    try:
        # opened here: what numpy opens itself stays open where it is no archive
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            facts = json.loads(str(arrays.pop(_FACTS)))
        if not isinstance(facts, dict):
            raise TypeError
    except PermissionError as error:
        msg = f"Expected to read {str(path)!r}, found no permission to. {advice}"
        raise InputError(msg) from error
    except (
        AttributeError,  # an array by itself is no archive
        EOFError,
        KeyError,
        NotImplementedError,
        OSError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        msg = (
            f"Expected {str(path)!r} to be a file that `spatialpdvi fit {writer}` wrote, found another kind of "
            f"file, or a damaged one. {advice}"
        )
        raise InputError(msg) from error
    return arrays, facts
