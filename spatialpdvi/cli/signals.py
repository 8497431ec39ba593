"""The signals with which schedulers end a job raise an exception as Ctrl-C does, so that no damaged file is left.

SIGTERM is the usual one. A closed terminal sends SIGHUP; schedulers send SIGUSR1 or SIGUSR2 ahead of the end where a
user asks for it, and SIGXCPU where the time of the processor is spent. All of these end a process that does not heed
them.
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

# besides SIGTERM; Windows has none of them
_OTHERS = [getattr(signal, n) for n in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU") if hasattr(signal, n)]
# `timeout` sends the signal twice, to the process and to its group, and users press Ctrl-C repeatedly; the second
# signal must not interrupt the cleaning up
_ONCE = 10.0  # seconds
_AGAIN = 0.05  # seconds


class TerminatedError(KeyboardInterrupt):
    """A signal that ends the process was received. As in a `KeyboardInterrupt`, the text says what had been written."""

    def __init__(self, *args: object, number: int = signal.SIGTERM) -> None:
        super().__init__(*args)
        self.number = number


@contextmanager
def stop_on_sigterm() -> Iterator[None]:
    """Let SIGTERM and its like raise a `TerminatedError` within the ``with``. Outside the main thread nothing changes.

    Python drops an exception that is raised in a finaliser or in a callback from C, and both are common during a fit.
    If that happens to the exception of a signal, it is sent again.

    Signals other than SIGTERM are left alone where they are handled, or ignored as `nohup` and the background of a
    shell do. After a signal the process should end; further ones are ignored.
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
            raise KeyboardInterrupt if number == signal.SIGINT else TerminatedError(number=number)

    def resend(what: Any) -> None:
        nonlocal last
        if not isinstance(what.exc_value, KeyboardInterrupt):
            old_hook(what)
            return
        last = float("-inf")
        number = _number(what.exc_value)
        repeats.append(threading.Timer(_AGAIN, os.kill, (os.getpid(), number)))
        repeats[-1].daemon = True
        repeats[-1].start()

    old_hook, sys.unraisablehook = sys.unraisablehook, resend
    numbers = [signal.SIGTERM, *(number for number in _OTHERS if signal.getsignal(number) == signal.SIG_DFL)]
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
    number = _number(stop)
    named = "Interrupted" if number == signal.SIGINT else f"Stopped by {signal.Signals(number).name}"
    return named, 128 + number


def _number(stop: KeyboardInterrupt) -> int:
    return stop.number if isinstance(stop, TerminatedError) else signal.SIGINT
