"""``--checkpoint`` and what belongs to it."""

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

__all__ = ["check_kept", "close", "keep_in", "resumable"]


def check_kept(folder: Path | None, *, every: int | None, resume: bool) -> None:
    """Refuse options of a checkpoint without one."""
    for flag, given in (("--checkpoint-every", every is not None), ("--resume", resume)):
        if given and folder is None:
            msg = f"Expected --checkpoint with {flag}, found none. Name the folder of the checkpoint."
            raise InputError(msg)


def keep_in(folder: Path, *, every: int | None, resume: bool) -> "Checkpoint":
    """Checkpoint that stays until `close`: what is written beside the result can fail too."""
    from spatialpdvi.checkpoints import EVERY, Checkpoint

    return Checkpoint(folder, every=EVERY if every is None else every, resume=resume, keep=True)


@contextmanager
def resumable(kept: "Checkpoint | None") -> Iterator[None]:
    """Let an interruption say how to go on, where there is a checkpoint to go on from; no other run may use it."""
    from spatialpdvi.io.storage.locks import claimed

    try:
        with claimed(None if kept is None else kept.folder):
            yield
    except KeyboardInterrupt as stop:
        if kept is None or kept.saved is None:
            raise
        given = sys.argv[1:]
        command = shlex.join(["spatialpdvi", *given, *([] if "--resume" in given else ["--resume"])])
        msg = f"{str(stop) or 'nothing was written.'} The fit is kept up to {kept.saved}; go on with: {command}"
        raise type(stop)(msg) from stop


def close(kept: "Checkpoint") -> None:
    """Remove the checkpoint, or say why it stays."""
    if not kept.close() and kept.saved is not None:
        folder = click.format_filename(kept.folder)
        click.echo(f"The checkpoint stays in {folder}: go on with a larger --max-epochs and --resume.", err=True)
