"""Finished work on disk, one file each, with the identity of the input and the options that it belongs to."""

import json
import os
from pathlib import Path
from typing import Any

from spatialpdvi.errors import InputError
from spatialpdvi.io.storage.atomic import check_writable, disk_error, write_json
from spatialpdvi.io.storage.folders import file_status
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.version import __version__

__all__ = ["Store", "check_folder", "identify"]

# these change neither the objective nor the start, or belong to a single run
_NO_MATTER = {"seed", "solver", "key_added", "save_graph"}


def identify(path: str | Path, options: FitOptions) -> dict[str, Any]:
    """What results follow from: the input file as it stands, every option of the fit, our version."""
    location = locate(path)
    size, changed = file_status(location.table())
    return {
        "input": str(location.real),
        "input_size": size,
        "input_mtime_ns": changed,
        **{name: value for name, value in options.__dict__.items() if name not in _NO_MATTER},
        "version": __version__,
    }


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Whether results can be written into the folder, which may not exist yet while its parent does."""
    folder = Path(folder)
    if folder.is_dir():
        check_writable(folder / "compare.json", "output")
    elif os.path.lexists(folder):
        msg = f"Expected {str(folder)!r} to be a folder to write into, found a file. Choose another --output."
        raise InputError(msg)
    else:
        check_writable(folder, "output")
    return folder


class Store:
    """Results under ``folder/runs``; one whose identity is another's does not count.

    Parameters
    ----------
    folder
        Made when the first result is saved; its parent must exist.
    identity
        Of the input and the options, as `identify` gives it.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self._runs = folder / "runs"
        self._identity = identity

    def load(self, name: str, **more: Any) -> dict[str, Any] | None:
        """The result of that name, if there is one and it belongs to this identity and to ``more``."""
        stored = self._read(name)
        return stored["result"] if stored is not None and stored["identity"] == self._identity | more else None

    def save(self, name: str, result: dict[str, Any], **more: Any) -> None:
        """Write a result, all or nothing."""
        try:
            self._runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(error, self._runs) or error from error
        write_json(self._path(name), {"identity": self._identity | more, "result": result})

    def changes(self, name: str, **more: Any) -> dict[str, tuple[Any, Any]]:
        """Stored and present value of what tells the stored result from this identity; empty where none is stored."""
        stored = self._read(name)
        if stored is None:
            return {}
        then, now = stored["identity"], self._identity | more
        return {key: (then.get(key), now[key]) for key in now if then.get(key) != now[key]}

    def _path(self, name: str) -> Path:
        return self._runs / f"{name}.json"

    def _read(self, name: str) -> dict[str, Any] | None:
        """None where there is no such file, or one that is not ours."""
        try:
            content = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, json.JSONDecodeError):
            return None
        ours = isinstance(content, dict) and {"identity", "result"} <= set(content)
        return content if ours and isinstance(content["identity"], dict) else None
