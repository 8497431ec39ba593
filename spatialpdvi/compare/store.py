"""Finished runs on disk, one file each, with the input and the options that they belong to."""

import json
import os
from pathlib import Path
from typing import Any

from spatialpdvi.io.storage.atomic import write_json
from spatialpdvi.io.storage.disk import disk_error
from spatialpdvi.io.storage.folders import file_status
from spatialpdvi.io.storage.outputs import check_is_folder, check_output_folder, not_a_folder
from spatialpdvi.io.storage.paths import AnyPath, locate
from spatialpdvi.options.fit import IRRELEVANT, FitOptions
from spatialpdvi.version import __version__

__all__ = ["Store", "check_folder", "has_results", "identify"]

_RUNS = "runs"  # the folder in the output

_OF_A_RUN = {"seed", "solver"}


def identify(path: AnyPath, options: FitOptions) -> dict[str, Any]:
    """Return all that results depend on: the input file and its state, the options of the fit, and our version."""
    location = locate(path)
    size, changed = file_status(location.table())
    return {
        "input": str(location.real),
        "input_size": size,
        "input_mtime_ns": changed,
        **{name: value for name, value in options.__dict__.items() if name not in IRRELEVANT | _OF_A_RUN},
        "version": __version__,
    }


def check_folder(folder: str | Path) -> Path:
    """Return the folder; raise where results cannot be written into it. It need not exist, but its parent must."""
    found = check_output_folder(folder, "compare.json")
    check_is_folder(found / _RUNS)
    return found


def has_results(folder: str | os.PathLike[str]) -> bool:
    """Return whether runs of any identity were saved in the folder."""
    return any((Path(folder) / _RUNS).glob("*"))


class Store:
    """Results in the folder ``runs`` of ``folder``. Those with another identity are ignored.

    Parameters
    ----------
    folder
        Created when the first result is saved; its parent must exist.
    identity
        The input and the options, as `identify` returns them.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self._runs = folder / _RUNS
        self._identity = identity

    def load(self, name: str, **more: Any) -> dict[str, Any] | None:
        """Return the result of that name, or None if there is none with this identity and ``more``."""
        stored = self._read(name)
        return stored["result"] if stored is not None and stored["identity"] == self._identity | more else None

    def save(self, name: str, result: dict[str, Any], **more: Any) -> None:
        """Write a result, all or nothing."""
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise not_a_folder(self._runs) from error
        except OSError as error:
            raise disk_error(error, self._runs) or error from error
        write_json(self._path(name), {"identity": self._identity | more, "result": result})

    def changes(self, name: str, **more: Any) -> dict[str, tuple[Any, Any]]:
        """Return the stored and the present value of all that differs from the stored result; empty without one."""
        stored = self._read(name)
        if stored is None:
            return {}
        then, now = stored["identity"], self._identity | more
        return {key: (then.get(key), now[key]) for key in now if then.get(key) != now[key]}

    def _path(self, name: str) -> Path:
        return self._runs / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        """Return the content of a file, or None if it does not exist or is of another kind."""
        try:
            content = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, json.JSONDecodeError):
            return None
        is_result = isinstance(content, dict) and {"identity", "result"} <= set(content)
        return content if is_result and isinstance(content["identity"], dict) else None
