"""SIGTERM, a cluster's way of ending a job: it leaves by the door of Ctrl-C, so that files are whole and none stays."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TerminatedError", "stoppable", "word_and_code"]

# `timeout` sends the signal twice, to the process and to its group; the second must not stop the tidying up
_ONCE = 10.0  # seconds
_AGAIN = 0.05  # seconds


class TerminatedError(KeyboardInterrupt):
    """SIGTERM has come; what keeps finished work raises one with a sentence on it, as of a `KeyboardInterrupt`."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM raise a `TerminatedError` while the ``with`` lasts; in a helper thread nothing is changed.

    What a signal raises is lost where it comes while a library runs a finaliser or is called back from C, which a fit
    does all the time: Python has nobody to hand it to. Then the signal, of Ctrl-C too, is sent once more.

    After a `TerminatedError` the process is to end, and a repeated signal no longer counts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = float("-inf")
    repeats: list[threading.Timer] = []

    def stop(*_: Any) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > _ONCE:
            raise TerminatedError

    def lost(what: Any) -> None:
        nonlocal last
        if not isinstance(what.exc_value, KeyboardInterrupt):
            old_hook(what)
            return
        last = float("-inf")
        number = signal.SIGTERM if isinstance(what.exc_value, TerminatedError) else signal.SIGINT
        repeats.append(threading.Timer(_AGAIN, os.kill, (os.getpid(), number)))
        repeats[-1].daemon = True
        repeats[-1].start()

    old_hook, sys.unraisablehook = sys.unraisablehook, lost
    old = signal.signal(signal.SIGTERM, stop)
    after = signal.SIG_DFL if old is None else old
    try:
        yield
    except TerminatedError:
        after = signal.SIG_IGN  # the sentence is still to be said
        raise
    finally:
        signal.signal(signal.SIGTERM, after)
        sys.unraisablehook = old_hook
        for repeat in repeats:
            repeat.cancel()


def word_and_code(stop: KeyboardInterrupt) -> tuple[str, int]:
    """How the sentence begins, and the exit code: 128 and the number of the signal."""
    if isinstance(stop, TerminatedError):
        return "Stopped by SIGTERM", 128 + signal.SIGTERM
    return "Interrupted", 128 + signal.SIGINT
