"""A command in a process of its own: seconds, peak memory, and how it ended.

Linux counts the memory of the process that starts another one as a peak of the new one: benchmarks that report peaks
import little themselves, and leave the rest to `apart`.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, NamedTuple

import psutil

__all__ = ["FIT_CODES", "Run", "apart", "describe_machine", "forget", "free_bytes", "run", "section_size"]

FIT_CODES = (0, 3)  # exit codes of a fit that wrote its result; 3 where it had not converged

_POLL = 0.02  # seconds
_SHOWN = 90  # characters of an error
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Run(NamedTuple):
    """What a command took, and why it ended early: None where it did not."""

    seconds: float  # of the clock
    cpu_seconds: float  # of all threads, and of the processes that it waited for
    peak_bytes: int  # resident; of its largest process
    failure: str | None


def run(
    command: list[object],
    *,
    limit: float = float("inf"),
    most_bytes: float = float("inf"),
    threads: int | None = None,
    fine: tuple[int, ...] = (0,),
    environment: dict[str, str] | None = None,
) -> Run:
    """Run ``command`` to its end, or to that of its time or memory.

    Parameters
    ----------
    command
        Program and arguments.
    limit
        Seconds after which it is killed.
    most_bytes
        Resident memory at which it is killed.
    threads
        Of its numerical libraries; by default theirs to choose.
    fine
        Exit codes of a command that did its work.
    environment
        Variables of the process; by default those of this one.
    """
    variables = dict(os.environ if environment is None else environment)
    if threads is not None:
        variables |= dict.fromkeys(_THREADS, str(threads))
    with tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        try:
            process = subprocess.Popen(
                list(map(str, command)), stdout=subprocess.DEVNULL, stderr=errors, env=variables, start_new_session=True
            )
        except OSError as error:
            return Run(0.0, 0.0, 0, f"does not start: {error}"[:_SHOWN])
        failure, ended = None, False
        try:
            while True:
                pid, status, used = os.wait4(process.pid, os.WNOHANG)
                seconds = time.perf_counter() - began
                if ended := bool(pid):
                    break
                failure = failure or _excess(process.pid, seconds, limit=limit, most_bytes=most_bytes)
                if failure:
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(_POLL)
        finally:
            if not ended:  # Ctrl-C does not reach another session
                os.killpg(process.pid, signal.SIGKILL)
        process.returncode = os.waitstatus_to_exitcode(status)
        if failure is None and process.returncode not in fine:
            failure = _reason(process.returncode, errors)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(seconds, used.ru_utime + used.ru_stime, peak, failure)


def _excess(pid: int, seconds: float, *, limit: float, most_bytes: float) -> str | None:
    if seconds > limit:
        return f"no result after {limit:.0f} s"
    try:
        resident = psutil.Process(pid).memory_info().rss
    except psutil.Error:  # has just ended
        return None
    return f"out of memory: more than {most_bytes / 1e9:.1f} GB" if resident > most_bytes else None


def _reason(code: int, errors: IO[bytes]) -> str:
    """The last line of what it said, or the signal that ended it."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    said = lines[-1] if lines else "nothing said"
    return f"exit code {code}: {said}"[:_SHOWN].replace("|", "/")


def apart(task: Callable[..., Any], *arguments: Any) -> Any:
    """What ``task`` returns, from a process of its own: what it imports and holds is gone before the next run."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(task, *arguments).result()


def section_size(path: Path) -> tuple[int, int, int]:
    """Spots, genes and values of an h5ad whose counts are in ``X``."""
    import h5py

    with h5py.File(path) as file:
        spots, genes = file["X"].attrs["shape"]
        return int(spots), int(genes), int(file["X/data"].shape[0])


def forget(path: Path) -> None:
    """Have the system drop its copy of a file in memory, so that the next one to read it reads the disk."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def free_bytes() -> int:
    """Bytes of memory that can be had without swapping."""
    return int(psutil.virtual_memory().available)


def describe_machine() -> str:
    """Cores and memory, in words."""
    return f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB"
