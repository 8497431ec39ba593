"""Progress of the stages of a run: live bars on a terminal, plain lines elsewhere, or nothing.

Progress is written to stderr, results to stdout or to files.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from spatialpdvi.errors import InputError

__all__ = ["NO_STAGE", "LiveProgress", "PlainProgress", "Progress", "Stage", "progress_of"]


class Stage:
    """A stage that is running. This base class shows nothing."""

    def note(self, text: str) -> None:
        """Show what the stage is doing now."""

    def advance(self, done: float, total: float) -> None:
        """Show that ``done`` of ``total`` units are complete."""


NO_STAGE = Stage()


class _Lines:
    """Writes lines to a stream until it takes none: a full disk or a reader that has gone must not end the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._open = stream, True

    def write(self, text: str) -> None:
        if self._open:
            try:
                print(text, file=self._stream, flush=True)
            except OSError:
                self._open = False


class Progress:
    """Measures how long the stages take, and shows nothing. Subclasses show the stages.

    Attributes
    ----------
    seconds
        Wall-clock seconds of each completed stage by name, in the order of the stages.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Measure the time of a stage, and show the stage while it runs."""
        began = time.perf_counter()
        stage = self._open(name)
        completed = False
        try:
            yield stage
            completed = True
        finally:
            elapsed = time.perf_counter() - began
            if completed:
                self.seconds[name] = self.seconds.get(name, 0.0) + elapsed
            self._close(stage, name, elapsed, completed=completed)

    def message(self, text: str) -> None:
        """Show a line that stays on the screen, such as a warning."""

    def stop(self) -> None:
        """End the live display, so that later output is not overwritten."""

    def _open(self, name: str) -> Stage:
        return NO_STAGE

    def _close(self, stage: Stage, name: str, elapsed: float, *, completed: bool) -> None:
        pass


class _PlainStage(Stage):
    def __init__(self, name: str, lines: _Lines, interval: float) -> None:
        self._name, self._lines, self._interval = name, lines, interval
        self._shown = time.perf_counter()
        self.last = ""

    def note(self, text: str) -> None:
        self.last = text
        if time.perf_counter() - self._shown >= self._interval:
            self._shown = time.perf_counter()
            self._lines.write(f"{self._name}: {text}")


class PlainProgress(Progress):
    """Writes a line when a stage ends, and its latest note every few seconds until then.

    Parameters
    ----------
    stream
        Where the lines are written, usually stderr.
    interval
        Least number of seconds between two notes of a stage; 0 shows every note.
    """

    def __init__(self, stream: TextIO, interval: float = 10.0) -> None:
        super().__init__()
        self._lines, self._interval = _Lines(stream), interval

    def message(self, text: str) -> None:
        """Write a line."""
        self._lines.write(text)

    def _open(self, name: str) -> Stage:
        return _PlainStage(name, self._lines, self._interval)

    def _close(self, stage: Stage, name: str, elapsed: float, *, completed: bool) -> None:
        if completed:
            last = f"  {stage.last}" if isinstance(stage, _PlainStage) and stage.last else ""
            self.message(f"{name}: {elapsed:.1f} s{last}")


class _LiveStage(Stage):
    def __init__(self, bars: "LiveProgress", name: str) -> None:
        self._bars = bars.display
        self._task = self._bars.add_task(name, total=None, note="")

    def note(self, text: str) -> None:
        self._bars.update(self._task, note=text)

    def advance(self, done: float, total: float) -> None:
        self._bars.update(self._task, completed=done, total=total)

    def close(self, *, completed: bool) -> None:
        self._bars.update(self._task, total=1.0, completed=1.0 if completed else 0.0)
        self._bars.stop_task(self._task)
        self._bars.refresh()


class LiveProgress(Progress):
    """Draws a bar for each stage, with its latest note beside it.

    Parameters
    ----------
    stream
        The terminal, usually stderr.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self.display = Bars(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(file=stream),
            refresh_per_second=8,
        )
        self._started = False

    def message(self, text: str) -> None:
        """Write a line above the bars."""
        self.display.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        """Stop the bars and leave them on the screen."""
        if self._started:
            self.display.stop()
            self._started = False

    def _open(self, name: str) -> Stage:
        if not self._started:
            self.display.start()
            self._started = True
        return _LiveStage(self, name)

    def _close(self, stage: Stage, name: str, elapsed: float, *, completed: bool) -> None:
        if isinstance(stage, _LiveStage):
            stage.close(completed=completed)


def progress_of(progress: Progress | bool | None) -> Progress:  # noqa: FBT001 - users name it
    """Return what shows the stages of a call: lines on stderr for True, nothing for False or None.

    Raises
    ------
    InputError
        Where it is none of these, and no `Progress`.
    """
    if isinstance(progress, Progress):
        return progress
    if progress is None or isinstance(progress, bool):
        return PlainProgress(sys.stderr) if progress and sys.stderr is not None else Progress()
    raise InputError("True, False or None", repr(progress), "True shows the stages as they end.", option="progress")
