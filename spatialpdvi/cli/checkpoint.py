"""The options ``--checkpoint``, ``--checkpoint-every`` and ``--resume``."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spatialpdvi.errors import InputError

if TYPE_CHECKING:
    from spatialpdvi.checkpoints import Checkpoint

__all__ = ["check_options", "close", "explain_how_to_resume", "make_checkpoint"]


def check_options(folder: Path | None, *, every: int | None, resume: bool) -> None:
    """Raise where an option of checkpoints is given without a folder."""
    for flag, given in (("--checkpoint-every", every is not None), ("--resume", resume)):
        if given and folder is None:
            raise InputError(f"--checkpoint with {flag}", "none", "Name the folder of the checkpoint.")


def make_checkpoint(folder: Path, *, every: int | None, resume: bool) -> "Checkpoint":
    """Return a checkpoint that stays until `close`, because writing a report or a model can still fail."""
    from spatialpdvi.checkpoints import EVERY, Checkpoint

    return Checkpoint(folder, every=EVERY if every is None else every, resume=resume, keep=True)


@contextmanager
def explain_how_to_resume(checkpoint: "Checkpoint | None") -> Iterator[None]:
    """Lock the checkpoint, and add to an interruption how the fit can be resumed from it."""
    from spatialpdvi.io.storage.locks import claimed

    try:
        with claimed(None if checkpoint is None else checkpoint.folder):
            yield
    except KeyboardInterrupt as stop:
        if checkpoint is None or checkpoint.saved is None:
            raise
        given = sys.argv[1:]
        if "--resume" not in given:
            given.insert(given.index("--") if "--" in given else len(given), "--resume")
        command = shlex.join(["spatialpdvi", *given])
        written = str(stop) or "Nothing was written."
        stop.args = (f"{written} The checkpoint holds the fit up to {checkpoint.saved}. Resume it with: {command}",)
        raise


def close(checkpoint: "Checkpoint") -> None:
    """Remove the checkpoint; if the fit reached its limit of epochs, leave it, and print how the fit can be resumed."""
    if not checkpoint.close() and checkpoint.saved is not None:
        folder = click.format_filename(checkpoint.folder)
        click.echo(f"The checkpoint stays in {folder}. Resume it with a larger --max-epochs and --resume.", err=True)
