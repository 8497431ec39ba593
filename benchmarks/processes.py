"""Run a command in its own process and measure seconds, peak memory and how it ended.

Linux counts the memory of the parent process towards the peak of a new process. Benchmarks that report peaks therefore
import little themselves and call `apart` for everything else.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, NamedTuple

import click
import psutil

__all__ = [
    "FIT_CODES",
    "Run",
    "apart",
    "changes",
    "describe_machine",
    "finished",
    "forget",
    "free_bytes",
    "run",
    "section_size",
    "set_option",
]

FIT_CODES = (0, 3)  # exit codes of a fit that wrote its result; 3 means that it has not converged

_POLL = 0.02  # seconds
_SHOWN = 90  # characters of an error
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class Run(NamedTuple):
    """Cost of a command, and the reason if it failed."""

    seconds: float  # wall time
    cpu_seconds: float  # of all threads and of the processes that the command waited for
    peak_bytes: int  # resident memory of its largest process
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
    """Run ``command`` until it ends or exceeds its limit of time or memory.

    Parameters
    ----------
    command
        Program and arguments.
    limit
        Seconds after which the command is killed.
    most_bytes
        Resident memory in bytes above which the command is killed.
    threads
        Threads of the numerical libraries; None leaves the choice to them.
    fine
        Exit codes that count as success.
    environment
        Environment variables of the process; None means those of this process.
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
            if not ended:  # Ctrl-C does not reach a process in another session
                os.killpg(process.pid, signal.SIGKILL)
        process.returncode = os.waitstatus_to_exitcode(status)
        if failure is None and process.returncode not in fine:
            failure = _reason(process.returncode, errors)
    peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Run(seconds, used.ru_utime + used.ru_stime, peak, failure)


def finished(command: list[object]) -> subprocess.CompletedProcess[str]:
    """Run a command of spatialpdvi to its end, with what it said; where it failed, end with its error."""
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode not in FIT_CODES:
        raise SystemExit(done.stderr)
    return done


def _excess(pid: int, seconds: float, *, limit: float, most_bytes: float) -> str | None:
    if seconds > limit:
        return f"no result after {limit:.0f} s"
    try:
        resident = psutil.Process(pid).memory_info().rss
    except psutil.Error:  # the process has just ended
        return None
    return f"out of memory: more than {most_bytes / 1e9:.1f} GB" if resident > most_bytes else None


def _reason(code: int, errors: IO[bytes]) -> str:
    """The last line on standard error, or the signal that ended the command."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    errors.seek(0)
    lines = [line.strip() for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    message = lines[-1] if lines else "no error message"
    return f"exit code {code}: {message}"[:_SHOWN].replace("|", "/")


def apart(task: Callable[..., Any], *arguments: Any) -> Any:
    """Result of ``task``, called in its own process, whose imports and memory are freed at its end."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(task, *arguments).result()


def section_size(path: Path) -> tuple[int, int, int]:
    """Spots, genes and stored values of the matrix ``X`` of an h5ad file, sparse or dense."""
    import h5py

    with h5py.File(path) as file:
        matrix = file["X"]
        is_sparse = isinstance(matrix, h5py.Group)
        spots, genes = matrix.attrs["shape"] if is_sparse else matrix.shape
        return int(spots), int(genes), int(matrix["data"].shape[0] if is_sparse else spots * genes)


set_option = click.option(
    "--set", "changed", multiple=True, metavar="NAME=VALUE", help="An option of all fits, such as states=off."
)


def changes(given: Iterable[str], *, fixed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The options of a fit that `--set NAME=VALUE` changes: values in JSON, or texts; ``fixed`` ones have their own."""
    found = {}
    for text in given:
        name, is_given, value = text.partition("=")
        if not is_given or name in fixed:
            expected = "NAME=VALUE" + (f" of another option than {' and '.join(fixed)}" if fixed else "")
            raise click.BadOptionUsage("--set", f"Expected {expected}, found {text!r}.")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def forget(path: Path) -> None:
    """Drop a file from the cache of the system, so that the next read is from the disk."""
    if hasattr(os, "posix_fadvise"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def free_bytes() -> int:
    """Bytes of memory that are available without swapping."""
    return int(psutil.virtual_memory().available)


def describe_machine() -> str:
    """Text with the number of cores and the memory of this machine."""
    return f"{os.cpu_count()} cores, {psutil.virtual_memory().total / 1e9:.0f} GB"
