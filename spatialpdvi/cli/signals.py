"""SIGTERM, with which a scheduler ends a job, raises an exception as Ctrl-C does, so that no damaged file is left.

SIGHUP, which a closed terminal sends, counts as SIGTERM.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["TerminatedError", "name_signal", "stop_on_sigterm"]

# `timeout` sends the signal twice, to the process and to its group, and users press Ctrl-C repeatedly; the second
# signal must not interrupt the cleaning up
_ONCE = 10.0  # seconds
_AGAIN = 0.05  # seconds


class TerminatedError(KeyboardInterrupt):
    """SIGTERM was received. As in a `KeyboardInterrupt`, the text says what had been written."""


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise a `TerminatedError` while the ``with`` lasts. Outside the main thread nothing is changed.

    Python drops an exception that is raised in a finaliser or in a callback from C, and both are common during a fit.
    If that happens to the exception of SIGTERM or Ctrl-C, the signal is sent again.

    SIGHUP and SIGINT are left alone where they are ignored, as `nohup` and the background of a shell do. After a signal
    the process should end; further ones are ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last = float("-inf")
    repeats: list[threading.Timer] = []

    def stop(number: int, _: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last > _ONCE:  # from the one that was heeded: pressing again and again must not put it off
            last = now
            raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError

    def resend(what: Any) -> None:
        nonlocal last
        if not isinstance(what.exc_value, KeyboardInterrupt):
            old_hook(what)
            return
        last = float("-inf")
        number = signal.SIGTERM if isinstance(what.exc_value, TerminatedError) else signal.SIGINT
        repeats.append(threading.Timer(_AGAIN, os.kill, (os.getpid(), number)))
        repeats[-1].daemon = True
        repeats[-1].start()

    old_hook, sys.unraisablehook = sys.unraisablehook, resend
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        numbers.append(signal.SIGHUP)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    after = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    except KeyboardInterrupt:
        if last > float("-inf"):
            after = dict.fromkeys(numbers, signal.SIG_IGN)  # the message is still to be printed
        raise
    finally:
        for number, handler in after.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        sys.unraisablehook = old_hook
        for repeat in repeats:
            repeat.cancel()


def name_signal(stop: KeyboardInterrupt) -> tuple[str, int]:
    """Return how the message begins, and the exit code: 128 plus the number of the signal."""
    if isinstance(stop, TerminatedError):
        return "Stopped by SIGTERM", 128 + signal.SIGTERM
    return "Interrupted", 128 + signal.SIGINT
