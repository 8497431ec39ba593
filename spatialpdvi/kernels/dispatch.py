"""One loop, compiled twice: a serial twin for small arrays and a parallel one for large.

A parallel region costs microseconds, and milliseconds when other programs hold the cores; a patch of a small section
is done sooner than that. Both twins run the same iterations with the same sums, so their results have the same bits
and the choice is about time alone. A thread that is itself one of several, `alone_in_thread`, takes the serial one.

Threads that wait by spinning, OpenMP's default, make a fit forty times slower when other programs want the same
cores (measured: 20,000 spots, two busy cores, 11 s against 0.3 s); threads that go to sleep at once have to be woken up
for every region, which takes longer than a patch of 5,000 spots does. So they spin for some 50 microseconds and then
sleep: a fit of 150,000 spots takes two thirds of the time that it takes with sleep at once, as long where two busy
programs hold two cores, three times as long where four do. The environment is set only while the threads start.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from types import FunctionType
from typing import Any

from spatialpdvi.kernels.compile import compiled

__all__ = ["SMALL_WORK", "Twins", "alone_in_thread", "brief_spin", "twins"]

_OPENMP = {"started": False}
_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}
_THREAD = threading.local()
SMALL_WORK = 200_000  # inner-loop iterations of one parallel region below which the serial twin is faster (~0.1 ms)


class Twins:
    """A loop over `numba.prange` in both compilations; calling it picks one by the size of the work."""

    def __init__(self, function: Callable[..., None], work: Callable[..., float]) -> None:
        update_wrapper(self, function)
        self.serial = _compile(function, parallel=False)
        self.parallel = _compile(function, parallel=True)
        self._work = work

    def __call__(self, *arguments: Any) -> None:
        """Run the twin that is faster for these arguments."""
        if self._work(*arguments) > SMALL_WORK and not getattr(_THREAD, "alone", False):
            with brief_spin():
                self.parallel(*arguments)
        else:
            self.serial(*arguments)


def alone_in_thread() -> None:
    """Have loops of the calling thread run on it alone, from now on: other threads have the other cores."""
    _THREAD.alone = True


def twins(work: Callable[..., float]) -> Callable[[Callable[..., None]], Twins]:
    """Decorate a loop whose parallel region has ``work(*arguments)`` inner iterations."""
    return lambda function: Twins(function, work)


@contextmanager
def brief_spin() -> Iterator[None]:
    """Have OpenMP read how its threads wait in the call that loads it, the first; a user's own choice stands."""
    if _OPENMP["started"]:
        yield
        return
    waiting = {name: value for name, value in _WAITING.items() if not _WAITING.keys() & os.environ.keys()}
    os.environ.update(waiting)
    try:
        yield
    finally:
        for name in waiting:
            del os.environ[name]
        _OPENMP["started"] = True


def _compile(function: Callable[..., None], *, parallel: bool) -> Callable[..., None]:
    """Compile under a name of its own: numba's disk cache tells functions apart by name, not by options."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__qualname__ = f"{function.__qualname__}_{'parallel' if parallel else 'serial'}"
    return compiled(copy, parallel=parallel)
