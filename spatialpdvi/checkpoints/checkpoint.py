"""Save a fit while it runs, in two files in a folder, each of which is replaced in one instant.

``start.checkpoint`` has the labels of the restarts, ``fit.checkpoint`` the state of the solver. Both are npz files
without pickled objects.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np

from spatialpdvi.checkpoints.codec import pack
from spatialpdvi.checkpoints.identity import differences, digest, identify
from spatialpdvi.errors import InputError, InputWarning, ResourceError, option
from spatialpdvi.io.storage.archive import read_archive, write_archive
from spatialpdvi.io.storage.disk import disk_error
from spatialpdvi.io.storage.outputs import check_writable
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.io.storage.temporary import remove_abandoned
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Progress

__all__ = ["EVERY", "Checkpoint"]

EVERY = 10  # epochs
_FORMAT = 3
_OPTION = "checkpoint"
_T = TypeVar("_T")


class Checkpoint:
    """A folder in which a fit is saved while it runs, so that it can resume after it was killed, with the same bits.

    Parameters
    ----------
    folder
        Made when there is something to write; its parent must exist.
    every
        Epochs between two checkpoints.
    resume
        Whether to resume from the checkpoint in the folder, or begin a fit if there is none. If False, a folder that
        holds a checkpoint is an error.
    keep
        Whether the files stay when the fit is done, until the caller calls `close`.

    Raises
    ------
    InputError
        Where ``every`` is below 1.

    Examples
    --------
    >>> checkpoint = spv.Checkpoint("checkpoint", resume=True)
    >>> result = spv.fit(adata, k=3, n_top_genes=60, n_init=1, checkpoint=checkpoint)
    """

    def __init__(self, folder: str | Path, *, every: int = EVERY, resume: bool = False, keep: bool = False) -> None:
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise InputError("a whole number of at least 1", repr(every), option="every")
        self.folder = locate(folder, option="folder").path
        self.every = int(every)
        self.resume = resume
        self.keep = keep
        self.saved: str | None = None
        """What the files hold, in words (``"epoch 20"``); None where there are none yet."""
        self._identity: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._since = 0
        self._warned = False
        self._can_resume = False

    @property
    def files(self) -> tuple[Path, Path]:
        """The files of the fit and of its start, whether or not they exist."""
        return self.folder / "fit.checkpoint", self.folder / "start.checkpoint"

    def open(self, options: FitOptions, versions: Mapping[str, str], progress: Progress) -> None:
        """Check the folder before any work, and report on ``progress`` where the fit begins.

        Parameters
        ----------
        options
            As the user gave them.
        versions
            At least those of spatialpdvi, numba and numpy.
        progress
            Where messages are shown.

        Raises
        ------
        InputError
            Where the folder cannot be written to, holds a checkpoint although `resume` is False, or a checkpoint of
            another fit, or a damaged one.
        """
        self._identity, self._digests = identify(options, versions), {}
        self.saved, self._since, self._warned, self._can_resume = None, 0, False, False
        self._check_folder()
        fit = self.files[0]
        existing = [path for path in self.files if path.exists()]
        if existing and not self.resume:
            raise InputError(
                f"no checkpoint in {str(self.folder)!r}",
                existing[0].name,
                f"Resume from it with {option('resume', True)}, or remove it to begin again.",
            )
        for path in existing:
            _, facts = self._read(path)
            different = differences(facts["identity"], self._identity)
            if different:
                self._refuse(different, "Give the options with which it was made")
            if path == fit and facts["epoch"] >= options.max_epochs:
                raise InputError(
                    f"more than the {facts['epoch']} epochs of the checkpoint in {str(self.folder)!r}",
                    f"{options.max_epochs}",
                    "Raise it, or remove the checkpoint to begin again.",
                    option="max_epochs",
                )
            self.saved = self.saved or facts["saved"]
        if existing:
            progress.message(f"The fit resumes from the checkpoint in {str(self.folder)!r}: {self.saved}.")
        elif self.resume:
            progress.message(
                f"There is no checkpoint in {str(self.folder)!r} yet, so the fit starts from the beginning."
            )

    def load_restarts(self, features: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...] | None:
        """Return the labels (n,) of restarts on these features that an earlier run saved; None where there are none.

        Raises
        ------
        InputError
            Where they were saved for other features, or are damaged.
        """
        path = self.files[1]
        if not (self.resume and path.exists()):
            return None
        arrays, facts = self._read(path)
        self._compare(facts["digests"], {"features": digest(*features)})
        with self._checked(path):
            labels = arrays["labels"]
            if labels.ndim != 2 or labels.shape[1] != features[0].shape[0] or labels.dtype.kind != "u":
                msg = f"labels of {labels.dtype} and shape {labels.shape}"
                raise ValueError(msg)
            return tuple(labels)

    def save_restarts(self, features: tuple[np.ndarray, ...], restarts: tuple[np.ndarray, ...]) -> None:
        """Save the labels (n,) of the restarts on these features, (n, p) each."""
        labels = np.stack(restarts)
        small = labels.astype(np.min_scalar_type(int(labels.max())))
        self._write(self.files[1], {"labels": small}, "the restarts", digests={"features": digest(*features)})

    def begin(self, digests: dict[str, str], read: Callable[[Any, dict[str, np.ndarray]], _T]) -> _T | None:
        """Return the solver's state in the last checkpoint, as ``read(description, arrays)``; None if there is none.

        Parameters
        ----------
        digests
            Digests of all that the solver is given, by names that a user knows; they are written into every checkpoint.
        read
            Converts the result of `pack` back, and raises the errors of `unpack` where it is damaged.

        Raises
        ------
        InputError
            Where the checkpoint belongs to other data, or is damaged.
        """
        self._digests = digests
        return self.last(read) if self.resume else None

    def last(self, read: Callable[[Any, dict[str, np.ndarray]], _T]) -> _T | None:
        """Return the state in the last checkpoint that this run began with or wrote; None if there is none.

        Parameters
        ----------
        read
            As for `begin`.

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

    def after_epoch(self, epoch: int, value: Callable[[], Any]) -> None:
        """Save what ``value()`` returns if it is time to; where it cannot be written, warn and continue."""
        self._since += 1
        if self._since < self.every:
            return
        self._since = 0
        description, arrays = pack(value())
        more = {"value": description, "epoch": epoch}
        self._write(self.files[0], arrays, f"epoch {epoch}", digests=self._digests, compress=False, **more)

    def reached_the_limit(self) -> None:
        """Keep the files: the fit has ended at its limit of epochs, and can resume with a larger one."""
        self._can_resume = self.saved is not None

    def close(self) -> bool:
        """Remove the files, and the folder if it is then empty, unless the fit can resume; return whether it did."""
        if self._can_resume:
            return False
        try:
            for path in self.files:
                path.unlink(missing_ok=True)
            remove_abandoned(self.folder)
        except OSError as error:
            text = f"The checkpoint in {str(self.folder)!r} cannot be removed ({error.strerror}). Please remove it."
            warnings.warn(InputWarning(text), stacklevel=2)
            self.saved = None
            return False
        with contextlib.suppress(OSError):  # other files of the user are in it
            self.folder.rmdir()
        self.saved = None
        return True

    def _check_folder(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(
                f"{str(self.folder)!r} to be a folder to write into", "a file", f"Choose another {option(_OPTION)}."
            )
        for path in self.files if self.folder.is_dir() else (self.folder,):
            check_writable(path, _OPTION)

    def _read(self, path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        advice = f"Remove it to begin {'at the start' if path == self.files[0] else 'again'}, then run again."
        arrays, facts = read_archive(path, option=_OPTION, writer=option(_OPTION), advice=advice)
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
                self._warn(error)
        else:
            self.saved = saved if path == self.files[0] else self.saved or saved

    def _warn(self, error: InputError | OSError) -> None:
        failure = error if isinstance(error, InputError) else disk_error(error, self.folder, option=_OPTION)
        failure = failure or ResourceError(f"Writing {str(self.folder)!r} failed: {error}.")
        last = f"the last checkpoint is of {self.saved}" if self.saved else "there is no checkpoint yet"
        text = (
            f"{failure.but(advice='', outcome='')} The fit goes on, and tries to save again after {self.every} epochs; "
            f"{last}."
        )
        warnings.warn(InputWarning(text), stacklevel=4)

    def _compare(self, saved: dict[str, str], here: dict[str, str]) -> None:
        other = [name for name in here if saved.get(name) != here[name]]
        if other:
            advice = "Give the section with which it was made, on a computer of the same kind"
            self._refuse(f"other {' and '.join(other)}", advice)

    def _refuse(self, found: str, advice: str) -> NoReturn:
        raise InputError(
            f"the checkpoint in {str(self.folder)!r} to belong to this fit",
            found,
            f"{advice}, or remove the checkpoint to begin again.",
        )

    @contextlib.contextmanager
    def _checked(self, path: Path) -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{str(path)!r} to be a file that {option(_OPTION)} wrote",
                f"it damaged ({error})",
                "Remove it, then run again.",
            ) from error
