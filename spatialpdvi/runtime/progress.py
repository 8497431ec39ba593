"""What a user sees while waiting: a live bar for each stage on a terminal, plain lines elsewhere, nothing if quiet.

All of it goes to stderr; results go to stdout or to files.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["LiveProgress", "PlainProgress", "Progress", "Stage"]


class Stage:
    """One stage under way; it can say what it is doing and how far it is."""

    def note(self, text: str) -> None:
        """Show the latest state of the stage."""

    def advance(self, done: float, total: float) -> None:
        """Show how much of the stage is done."""


class Progress:
    """Times the stages and shows nothing; the base of those that show something.

    Attributes
    ----------
    seconds
        Wall seconds of each stage that has ended, by its name, in order.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Time a stage, and show it while it runs."""
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
        """Show a line that stays: a choice that was made, a warning."""

    def stop(self) -> None:
        """End any live display; later output is plain again."""

    def _open(self, name: str) -> Stage:
        return Stage()

    def _close(self, stage: Stage, name: str, elapsed: float, *, completed: bool) -> None:
        pass


class _PlainStage(Stage):
    def __init__(self, name: str, stream: TextIO, interval: float) -> None:
        self._name, self._stream, self._interval = name, stream, interval
        self._shown = time.perf_counter()
        self.last = ""

    def note(self, text: str) -> None:
        self.last = text
        if time.perf_counter() - self._shown >= self._interval:
            self._shown = time.perf_counter()
            print(f"{self._name}: {text}", file=self._stream, flush=True)


class PlainProgress(Progress):
    """One line when a stage ends, and its latest state every few seconds before that.

    Parameters
    ----------
    stream
        Where lines go, stderr as a rule.
    interval
        Seconds between two lines of one stage; 0 shows every note.
    """

    def __init__(self, stream: TextIO, interval: float = 10.0) -> None:
        super().__init__()
        self._stream, self._interval = stream, interval

    def message(self, text: str) -> None:
        """One line."""
        print(text, file=self._stream, flush=True)

    def _open(self, name: str) -> Stage:
        return _PlainStage(name, self._stream, self._interval)

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
    """A bar for each stage, drawn by rich, with the stage's latest state beside it."""

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
        """One line above the bars."""
        self.display.console.print(text, markup=False, highlight=False)

    def stop(self) -> None:
        """Leave the bars as they stand."""
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
