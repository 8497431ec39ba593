"""How kernels are compiled, and how a loop that exists twice is called: serial for small arrays, parallel for large.

Starting a parallel region costs microseconds, and milliseconds when other programs use the cores; a patch of a small
section is finished sooner than that. Both versions run the same iterations and the same sums, so their results have the
same bits and the choice affects only time. A thread that is itself one of several always runs the serial version
(`run_serially_in_this_thread`), and so does a process that was forked after OpenMP had started: OpenMP's threads stay
in the parent, and numba ends a child that would use them.

Where one loop follows another on arrays so small that calling each from Python takes as long as what it does, they are
one function (`steps_of_loops`): compiled as a whole for small arrays, and for large ones run by Python step by step.
Python runs one thread at a time, compiled code as many as there are, so that this is also what lets several searches of
a small section go on at once.

By default, idle OpenMP threads spin. With that, a fit is forty times slower when other programs want the same cores
(measured: 20,000 spots, two busy cores, 11 s instead of 0.3 s). Threads that sleep at once must be woken up for every
region, which takes longer than a patch of 5,000 spots does. Here they spin for about 50 microseconds and then sleep. A
fit of 150,000 spots then takes two thirds of the time that it takes with immediate sleep; it takes as long as that when
two busy programs share two cores, and three times as long when four do. The environment variables for this are set only
while OpenMP starts its threads.
"""

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, update_wrapper
from pathlib import Path
from types import FunctionType
from typing import Any

from numba import njit

__all__ = [
    "SMALL_WORK",
    "SerialOrParallel",
    "Steps",
    "brief_spin",
    "compiled",
    "parallel_if_large",
    "run_serially_in_this_thread",
    "steps_of_loops",
]

_log = logging.getLogger("spatialpdvi")

_NOT_CACHED = "Compiled code of %s is not cached: set NUMBA_CACHE_DIR to a writable folder on a disk with room."
_OPENMP = {"started": False, "lost": False}
_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}
_THREAD = threading.local()
_STARTING = threading.Lock()
SMALL_WORK = 200_000  # inner-loop iterations of one parallel region below which the serial version is faster (~0.1 ms)


def compiled(function: Callable[..., Any], *, parallel: bool = False) -> Callable[..., Any]:
    """Compile a kernel on its first call; it releases Python's global lock while it runs.

    With ``error_model="numpy"`` a division by zero gives infinity, as in NumPy, and loops need no check that would
    prevent their vectorisation. The compiled code is cached beside the source or in the user's cache folder. Where
    neither can be written (in a container, on a node without a home folder, or on a full disk), every process compiles
    anew, and one message per kernel is logged. Code that was cached before any module of the kernels changed is not
    used: what a kernel calls is compiled into it, while numba looks at the kernel's own file alone.
    """
    try:
        return _cached(njit(cache=True, parallel=parallel, nogil=True, error_model="numpy")(function))
    except RuntimeError as error:  # numba: no locator available
        if "cache" not in str(error):
            raise
        _log.info(_NOT_CACHED, function.__name__)
        return njit(parallel=parallel, nogil=True, error_model="numpy")(function)


@cache
def _sources() -> str:
    """A digest of all modules of the kernels."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _cached(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Have a kernel's cache depend on all modules, and the kernel go on where its code cannot be kept.

    Of a full disk, numba would end the call with the error.
    """
    own = getattr(kernel, "_cache", None)  # none where numba is told to interpret
    if own is None:
        return kernel
    own._cache_file._source_stamp = (own._cache_file._source_stamp, _sources())
    save = own.save_overload

    def save_if_possible(*overload: Any) -> None:
        try:
            save(*overload)
        except OSError:
            _log.info(_NOT_CACHED, kernel.__name__)

    own.save_overload = save_if_possible
    return kernel


class SerialOrParallel:
    """A loop over `numba.prange`, compiled serially and in parallel; a call picks one by the amount of work."""

    def __init__(self, function: Callable[..., None], work: Callable[..., float]) -> None:
        update_wrapper(self, function)
        self.serial = _compile(function, parallel=False)
        self.parallel = _compile(function, parallel=True)
        self._work = work

    def __call__(self, *arguments: Any) -> None:
        """Run the version that is faster for these arguments."""
        if _is_parallel(self._work, arguments):
            with brief_spin():
                self.parallel(*arguments)
        else:
            self.serial(*arguments)


class Steps:
    """A function that calls loops: compiled as a whole with their serial versions, or run step by step by Python.

    Its body must therefore mean the same to numba and to Python, and what it calls must be defined before it. The loops
    may themselves be such functions.
    """

    def __init__(self, function: Callable[..., Any], work: Callable[..., float]) -> None:
        update_wrapper(self, function)
        self.steps = function
        loops = {name: own.serial for name, own in function.__globals__.items() if isinstance(own, _LOOPS)}
        code = function.__code__
        self.serial: Callable[..., Any] = compiled(
            FunctionType(code, {**function.__globals__, **loops}, function.__name__)
        )
        self._work = work

    def __call__(self, *arguments: Any) -> Any:
        """Run the version that is faster for these arguments."""
        return (self.steps if _is_parallel(self._work, arguments) else self.serial)(*arguments)


_LOOPS = (SerialOrParallel, Steps)


def run_serially_in_this_thread() -> None:
    """Run all loops that this thread calls from now on serially, because other threads use the other cores."""
    _THREAD.serial = True


def parallel_if_large(work: Callable[..., float]) -> Callable[[Callable[..., None]], SerialOrParallel]:
    """Decorate a loop; ``work(*arguments)`` is the number of inner iterations of one parallel region."""
    return lambda function: SerialOrParallel(function, work)


def steps_of_loops(work: Callable[..., float]) -> Callable[[Callable[..., Any]], Steps]:
    """Decorate a function that calls loops; ``work(*arguments)`` is what the largest of them has in one region."""
    return lambda function: Steps(function, work)


@contextmanager
def brief_spin() -> Iterator[None]:
    """Have OpenMP's threads spin briefly and then sleep, around the first call, which loads OpenMP.

    Variables that the user has set are respected.
    """
    if _OPENMP["started"]:
        yield
        return
    with _STARTING:
        waiting = {name: value for name, value in _WAITING.items() if not _WAITING.keys() & os.environ.keys()}
        os.environ.update(waiting)
    try:
        yield
    finally:
        for name in waiting:
            del os.environ[name]
        _OPENMP["started"] = True


def _is_parallel(work: Callable[..., float], arguments: tuple[Any, ...]) -> bool:
    return work(*arguments) > SMALL_WORK and not (getattr(_THREAD, "serial", False) or _OPENMP["lost"])


def _lose_threads() -> None:
    """Note in a child that was just forked whether OpenMP's threads stayed in the parent."""
    _OPENMP["lost"] = _OPENMP["started"]


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_lose_threads)


def _compile(function: Callable[..., None], *, parallel: bool) -> Callable[..., None]:
    """Compile under a separate name: numba's cache on disk tells functions apart by name, not by options."""
    code = function.__code__
    copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__qualname__ = f"{function.__qualname__}_{'parallel' if parallel else 'serial'}"
    return compiled(copy, parallel=parallel)
