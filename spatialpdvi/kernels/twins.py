"""One loop, compiled twice: a serial twin for small arrays and a parallel one for large.

A parallel region costs microseconds, and milliseconds when other programs hold the cores; a patch of a small section
is done sooner than that. Both twins run the same iterations with the same sums, so their results have the same bits
and the choice is about time alone. A thread that is itself one of several, `alone_in_thread`, takes the serial one.

Threads that wait by spinning, OpenMP's default, make a fit forty times slower when other programs want the same
cores (measured: 20,000 spots, two busy cores, 11 s against 0.3 s). The threads are therefore started with the
passive policy: 0.4 s, busy or not. The environment is set only while they start.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from types import FunctionType
from typing import Any

from spatialpdvi.kernels.compile import compiled

__all__ = ["SMALL_WORK", "Twins", "alone_in_thread", "passive_start", "twins"]

_OPENMP = {"started": False}
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
            with passive_start():
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
def passive_start() -> Iterator[None]:
    """Have OpenMP read a passive wait policy in the call that loads it, the first; a user's own choice stands."""
    if _OPENMP["started"] or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["OMP_WAIT_POLICY"] = "passive"
    try:
        yield
    finally:
        del os.environ["OMP_WAIT_POLICY"]
        _OPENMP["started"] = True


def _compile(function: Callable[..., None], *, parallel: bool) -> Callable[..., None]:
    """Compile under a name of its own: numba's disk cache tells functions apart by name, not by options."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__qualname__ = f"{function.__qualname__}_{'parallel' if parallel else 'serial'}"
    return compiled(copy, parallel=parallel)
