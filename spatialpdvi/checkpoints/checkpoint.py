"""A fit kept on disk while it runs: two files in a folder, each replaced in one instant.

``start.checkpoint`` has the labels of the restarts, ``fit.checkpoint`` all that the solver needs to go on. Both are npz
without pickled objects.
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from spatialpdvi.checkpoints.codec import pack
from spatialpdvi.checkpoints.identity import differences, digest, identify
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.storage.archive import read_archive, write_archive
from spatialpdvi.io.storage.atomic import check_writable
from spatialpdvi.io.storage.temporary import remove_abandoned
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Progress

__all__ = ["EVERY", "Checkpoint"]

EVERY = 10  # epochs
_FORMAT = 1
_OPTION = "--checkpoint"
_T = TypeVar("_T")


class Checkpoint:
    """Where a fit is kept while it runs, so that it can go on to the same bits after it was killed.

    Parameters
    ----------
    folder
        Made when there is something to write; its parent must exist.
    every
        Epochs between two checkpoints.
    resume
        Whether to go on from what the folder holds, and to begin where it holds nothing; without, a folder that holds
        a checkpoint is refused.
    keep
        Whether the files stay when the fit is done, for the caller to `close`.

    Raises
    ------
    InputError
        Where ``every`` is below 1.

    Examples
    --------
    >>> kept = spv.Checkpoint("kept", resume=True)
    >>> result = spv.fit(adata, k=3, n_top_genes=60, n_init=1, checkpoint=kept)
    """

    def __init__(self, folder: str | Path, *, every: int = EVERY, resume: bool = False, keep: bool = False) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            msg = f"Expected `--checkpoint-every` to be a whole number of at least 1, found {every!r}."
            raise InputError(msg)
        self.folder = Path(folder)
        self.every = every
        self.resume = resume
        self.keep = keep
        self.saved: str | None = None
        """How far the files go, in words; None where there are none yet."""
        self._identity: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._since = 0
        self._warned = False
        self._can_go_on = False

    @property
    def files(self) -> tuple[Path, Path]:
        """Those of the fit and of its start, whether or not they are there."""
        return self.folder / "fit.checkpoint", self.folder / "start.checkpoint"

    def open(self, options: FitOptions, versions: Mapping[str, str], progress: Progress) -> None:
        """Check the folder before any work, and say on ``progress`` where the fit begins.

        ``options`` are those that the user gave, ``versions`` those of spatialpdvi, numba and numpy at the least.

        Raises
        ------
        InputError
            Where the folder cannot be written to, holds a checkpoint that `resume` does not ask for, one of another
            fit, or a damaged one.
        """
        self._identity, self._digests = identify(options, versions), {}
        self.saved, self._since, self._warned, self._can_go_on = None, 0, False, False
        self._check_folder()
        fit = self.files[0]
        there = [path for path in self.files if path.exists()]
        if there and not self.resume:
            msg = (
                f"Expected no checkpoint in {str(self.folder)!r}, found {there[0].name}. Go on from it with --resume, "
                "or remove it to begin again."
            )
            raise InputError(msg)
        for path in there:
            _, facts = self._read(path)
            different = differences(facts["identity"], self._identity)
            if different:
                self._refuse(different, "Give the options that it was made with")
            if path == fit and facts["epoch"] >= options.max_epochs:
                msg = (
                    f"Expected `--max-epochs` to be more than the {facts['epoch']} epochs of the checkpoint in "
                    f"{str(self.folder)!r}, found {options.max_epochs}. Raise it, or remove the checkpoint to begin "
                    "again."
                )
                raise InputError(msg)
            self.saved = self.saved or facts["saved"]
        if there:
            progress.message(f"Going on from the checkpoint in {str(self.folder)!r}: {self.saved}.")
        elif self.resume:
            progress.message(f"There is no checkpoint in {str(self.folder)!r} yet: the fit starts from the beginning.")

    def load_restarts(self, views: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...] | None:
        """Return the labels (n,) of the restarts on some features that an earlier run saved; None where there are none.

        Raises
        ------
        InputError
            Where they were saved for other features, or are damaged.
        """
        path = self.files[1]
        if not (self.resume and path.exists()):
            return None
        arrays, facts = self._read(path)
        self._compare(facts["digests"], {"features": digest(*views)})
        with self._checked(path):
            labels = arrays["labels"]
            if labels.ndim != 2 or labels.shape[1] != views[0].shape[0] or labels.dtype.kind != "u":
                msg = f"labels of {labels.dtype} and shape {labels.shape}"
                raise ValueError(msg)
            return tuple(labels.astype(np.int64))
        return None

    def save_restarts(self, views: tuple[np.ndarray, ...], restarts: tuple[np.ndarray, ...]) -> None:
        """Save the labels (n,) of the restarts on some features."""
        labels = np.stack(restarts)
        small = labels.astype(np.min_scalar_type(int(labels.max())))
        self._write(self.files[1], {"labels": small}, "the restarts", digests={"features": digest(*views)})

    def begin(self, digests: dict[str, str], read: Callable[[Any, dict[str, np.ndarray]], _T]) -> _T | None:
        """What the last checkpoint of the solver holds, by ``read(description, arrays)``; None where there is none.

        Parameters
        ----------
        digests
            Of all that the solver is given, by names that a user knows; they go into every checkpoint.
        read
            The way back from `pack`; what is not as it must be ends in one of `unpack`'s errors.

        Raises
        ------
        InputError
            Where the checkpoint is of other data, or damaged.
        """
        self._digests = digests
        return self.last(read) if self.resume else None

    def last(self, read: Callable[[Any, dict[str, np.ndarray]], _T]) -> _T | None:
        """What the last checkpoint holds that this run began with or wrote, as `begin` does; None where there is none.

        Raises
        ------
        InputError
            As `begin` does.
        """
        path = self.files[0]
        if not path.exists():
            return None
        arrays, facts = self._read(path)
        self._compare(facts["digests"], self._digests)
        with self._checked(path):
            return read(facts["value"], arrays)
        return None

    def after_epoch(self, epoch: int, value: Callable[[], Any]) -> None:
        """Keep what ``value()`` returns if it is time; a disk that refuses it is told of, and no reason to end."""
        self._since += 1
        if self._since < self.every:
            return
        self._since = 0
        description, arrays = pack(value())
        more = {"value": description, "epoch": epoch}
        self._write(self.files[0], arrays, f"epoch {epoch}", digests=self._digests, compress=False, **more)

    def reached_the_limit(self) -> None:
        """Let the files stay: the fit has ended at its limit of epochs, and can go on with a larger one."""
        self._can_go_on = self.saved is not None

    def close(self) -> bool:
        """Remove the files, and the folder if it is empty then, unless the fit can go on; whether they were removed."""
        if self._can_go_on:
            return False
        try:
            for path in self.files:
                path.unlink(missing_ok=True)
            remove_abandoned(self.folder)
        except OSError as error:
            msg = f"Expected to remove the checkpoint in {str(self.folder)!r}, found {error.strerror}. Remove it."
            warnings.warn(msg, InputWarning, stacklevel=2)
            self.saved = None
            return False
        with contextlib.suppress(OSError):  # the user's own files are in it
            self.folder.rmdir()
        self.saved = None
        return True

    def _check_folder(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            msg = f"Expected {str(self.folder)!r} to be a folder to write into, found a file. Choose another {_OPTION}."
            raise InputError(msg)
        for path in self.files if self.folder.is_dir() else (self.folder,):
            check_writable(path, _OPTION)

    def _read(self, path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        advice = f"Remove it to begin {'at the start' if path == self.files[0] else 'again'}, then run again."
        arrays, facts = read_archive(path, option=_OPTION, writer=_OPTION, advice=advice)
        if facts.get("format") != _FORMAT:
            self._refuse(f"format {facts.get('format')} there and {_FORMAT} here", "Use the version that wrote it")
        with self._checked(path):
            kinds = {"identity": dict, "digests": dict, "saved": str, "epoch": int}
            wrong = [name for name, kind in kinds.items() if not isinstance(facts[name], kind)]
            if wrong:
                msg = f"no {wrong[0]}"
                raise TypeError(msg)
        return arrays, facts

    def _write(
        self,
        path: Path,
        arrays: Mapping[str, np.ndarray],
        saved: str,
        *,
        digests: dict[str, str],
        compress: bool = True,
        **more: Any,
    ) -> None:
        facts = {"format": _FORMAT, "identity": self._identity, "digests": digests, "saved": saved, "epoch": 0, **more}
        try:
            self.folder.mkdir(exist_ok=True)
            write_archive(path, arrays, facts, option=_OPTION, compress=compress)
        except (InputError, OSError) as error:
            if not self._warned:
                self._warned = True
                self._tell(error)
        else:
            self.saved = saved if path == self.files[0] else self.saved or saved

    def _tell(self, error: Exception) -> None:
        why = str(error).partition(". Nothing was changed.")[0]
        last = f"the last checkpoint is of {self.saved}" if self.saved else "there is no checkpoint yet"
        msg = f"{why}. The fit goes on, and tries again after {self.every} epochs; {last}."
        warnings.warn(msg, InputWarning, stacklevel=4)

    def _compare(self, there: dict[str, str], here: dict[str, str]) -> None:
        other = [name for name in here if there.get(name) != here[name]]
        if other:
            hint = "Give the section that it was made with, on a computer of the same kind"
            self._refuse(f"other {' and '.join(other)}", hint)

    def _refuse(self, found: str, hint: str) -> None:
        msg = (
            f"Expected the checkpoint in {str(self.folder)!r} to be of this very fit, found {found}. {hint}, or remove "
            "the checkpoint to begin again."
        )
        raise InputError(msg)

    @contextlib.contextmanager
    def _checked(self, path: Path) -> Any:
        try:
            yield
        except InputError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            msg = (
                f"Expected {str(path)!r} to hold what `spatialpdvi fit {_OPTION}` writes, found it damaged ({error}). "
                "Remove it, then run again."
            )
            raise InputError(msg) from error
