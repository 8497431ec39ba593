"""A Dask cluster: workers that are started here, or those of a scheduler that runs already.

Every task is sent to the address of one worker, because it needs data that this worker stores. A task whose worker is
gone would wait for ever, so we regularly check which workers are still connected.
"""

import asyncio
import concurrent.futures
import contextlib
import json
import logging
import pickle
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spatialpdvi.distributed import worker
from spatialpdvi.engines import PatchesLostError
from spatialpdvi.errors import InputError, ResourceError, missing_package, option
from spatialpdvi.options.validation import read_kind

__all__ = ["Cluster", "connect"]

_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+")
_POLL_SECONDS = 1.0  # between two checks which workers are connected
_STARTUP_SECONDS = 60.0  # to wait for a first worker, or for one that replaces the last
_CONNECT_SECONDS = 10  # that a scheduler may take to answer
_FORMS = "local:N (workers on this computer), tcp://HOST:PORT or the path of a scheduler file (.json)"
_MUST_AGREE = ("spatialpdvi", "numpy", "numba", "python")  # same bits need the same code


class Traffic:
    """Bytes sent to the workers and received from them, in total."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0


class Cluster:
    """The connected workers of a cluster, by address; made by `connect`.

    Parameters
    ----------
    client
        A `distributed.Client`.
    name
        The name of the cluster as the user gave it.
    """

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        self.traffic = Traffic()

    def workers(self) -> list[str]:
        """Return the addresses of the workers in a fixed order; wait until there is at least one.

        Raises
        ------
        ResourceError
            If no worker connects within a minute, or the scheduler is gone.
        InputError
            If a worker runs other versions than this process.
        """
        from distributed import TimeoutError as DaskTimeoutError

        if not self._connected():
            try:
                self._client.wait_for_workers(1, timeout=_STARTUP_SECONDS)
            except DaskTimeoutError as error:
                raise ResourceError(
                    f"No worker of the Dask cluster {self.name!r} connected within {_STARTUP_SECONDS:.0f} seconds.",
                    "Start workers for its scheduler (dask worker); if they ended, their logs say why.",
                ) from error
        addresses = sorted(self._connected())
        self._check_versions(addresses)
        return addresses

    def _connected(self) -> dict[str, int]:
        """The workers that are connected now, with their numbers of threads."""
        try:
            return dict(self._client.nthreads())
        except Exception as error:
            is_closed = isinstance(error, RuntimeError) and "closed" in str(error)  # the pool of connections
            if not is_closed and not isinstance(error, (OSError, *_connection_errors())):
                raise
            raise ResourceError(
                f"The scheduler of the Dask cluster {self.name!r} is gone ({error}).",
                f"Start it again, then run again; a fit with {option('checkpoint')} continues with {option('resume')}.",
            ) from error

    def run(self, function: Any, jobs: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Run ``function(*arguments)`` on each worker that has a job, in parallel; return the results by address.

        ``jobs`` are the arguments by the address of a worker, which must be able to import ``function``.

        Raises
        ------
        PatchesLostError
            If a worker leaves before its job is done, or no longer stores what the job needs.
        """
        futures = {
            address: self._client.submit(function, *arguments, workers=[address], pure=False, retries=0)
            for address, arguments in jobs.items()
        }
        self.traffic.sent += _size(tuple(jobs.values()))

        def check() -> None:
            connected = self._connected()
            gone = [address for address in futures if address not in connected]
            if gone:
                self._client.cancel(list(futures.values()), force=True)
                raise PatchesLostError(_lost(*gone))

        try:
            found = dict(zip(futures, self._gathered(list(futures.values()), check).result(), strict=True))
        except Exception as error:
            if not isinstance(error, (worker.NotStoredError, *_connection_errors())):
                raise
            raise PatchesLostError(str(error) if isinstance(error, worker.NotStoredError) else _lost()) from error
        finally:
            for future in futures.values():
                future.release()
        self.traffic.received += _size(tuple(found.values()))
        return found

    def run_without_waiting(self, function: Any, addresses: Iterable[str], *arguments: Any) -> None:
        """Run ``function(*arguments)`` on those of the workers that are still connected; do not wait for the end."""
        from distributed import fire_and_forget

        connected = self._connected()
        for address in addresses:
            if address in connected:
                fire_and_forget(self._client.submit(function, *arguments, workers=[address], pure=False))

    def map(self, function: Any, jobs: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Run ``function(*arguments)`` for every job on any free worker, and again on another if that one leaves.

        Results are in the order of the jobs.

        Raises
        ------
        InputError
            If the function raises one.
        ResourceError
            If several workers end during the same job, there is no worker for a minute, or the scheduler is gone.
        """
        from distributed import KilledWorker

        jobs = list(jobs)
        futures = [self._client.submit(function, *arguments, pure=False) for arguments in jobs]
        self.traffic.sent += _size(jobs)

        def check() -> None:
            if not self._connected():
                self.workers()

        try:
            gathered = self._gathered(futures, check)
            try:
                found = gathered.result()
            except KilledWorker as error:
                raise ResourceError(
                    f"Several workers of the Dask cluster {self.name!r} ended while they read the same part of the "
                    "file.",
                    "See their logs; they may need more memory.",
                ) from error
            except _connection_errors() as error:
                self.workers()  # raises the error where the scheduler is gone, or all workers are
                raise ResourceError(
                    f"The Dask cluster {self.name!r} has lost the results of its workers ({error}).",
                    "Run again; the logs of its scheduler say why.",
                ) from error
            except InputError as error:
                where = f"A worker of the Dask cluster {self.name!r} found this"
                note = f"({where}; it must see the file under the same path.)"
                raise error.but(advice=" ".join(filter(None, (error.advice, note)))) from error
        finally:
            for future in futures:
                future.release()  # which cancels a job that is not done
        self.traffic.received += _size(found)
        return list(found)

    def send(self, function: Any, address: str, *arguments: Any) -> None:
        """Run ``function(*arguments)`` on the worker at ``address``; arguments do not pass through the scheduler.

        Raises
        ------
        PatchesLostError
            As `run` does.
        """
        from distributed import TimeoutError as DaskTimeoutError

        try:
            (parcel,) = self._client.scatter([arguments], workers=[address], hash=False)
        except (OSError, DaskTimeoutError, ValueError) as error:  # Dask raises any of them where the worker is gone
            if address in self._connected():
                raise
            raise PatchesLostError(_lost(address)) from error
        self.traffic.sent += _size(arguments)
        self.run(worker.call_unpacked, {address: (function, parcel)})

    def _gathered(self, futures: list[Any], check: Callable[[], None]) -> "concurrent.futures.Future[list[Any]]":
        """Wait until all results are here or a task has failed; meanwhile call ``check()``, which may raise an error.

        Dask would wait for ever for a worker that has left, also for one that had yet to send the result of its task.
        After an error it waits on in its own thread, until the caller releases the futures.
        """
        gathered = asyncio.run_coroutine_threadsafe(
            self._client.gather(futures, asynchronous=True), self._client.loop.asyncio_loop
        )
        while not concurrent.futures.wait([gathered], timeout=_POLL_SECONDS).done:
            check()
        return gathered

    def _check_versions(self, addresses: list[str]) -> None:
        here = worker.versions()
        try:
            found = self.run(worker.versions, dict.fromkeys(addresses, ()))
        except PatchesLostError:
            return  # the next task for that worker will raise the error
        except ModuleNotFoundError as error:
            raise InputError(
                f"spatialpdvi on every worker of the Dask cluster {self.name!r}",
                str(error),
                "Start the workers in an environment that has it.",
            ) from error
        for address, versions in found.items():
            different = [name for name in _MUST_AGREE if versions[name] != here[name]]
            if different:
                listed = ", ".join(f"{name} {versions[name]} there and {here[name]} here" for name in different)
                raise InputError(
                    f"the versions of this process on every worker of the Dask cluster {self.name!r}",
                    f"{listed} (worker {address})",
                    "Other versions give other bits; start the workers in the same environment.",
                )


@contextlib.contextmanager
def connect(where: str) -> Iterator[Cluster]:
    """Connect to the workers of a Dask cluster for as long as the ``with`` block lasts.

    Parameters
    ----------
    where
        ``local:N`` to start N workers on this computer, the address of a scheduler, or the path of its scheduler file.

    Yields
    ------
    Cluster
        The connected workers.

    Raises
    ------
    InputError
        If ``where`` has none of these forms, or no scheduler answers there.
    ResourceError
        If Dask is not installed.
    """
    if find_spec("distributed") is None:
        raise missing_package("dask[distributed]", "for a Dask cluster", "'spatialpdvi[dask]'")
    local = re.fullmatch(r"local:(\d+)", read_kind("where", where, str))
    with _quiet():
        if local:
            with _start(int(local[1]), where) as cluster, _quiet_when_stopped():
                yield cluster
            return
        with _client(where) as client, _quiet_when_stopped():
            yield Cluster(client, where)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages and warnings of Dask that help no user; in the end all is as it was."""
    import distributed  # noqa: F401 - the first import sets the levels of its loggers

    loggers = [logging.getLogger(name) for name in ("distributed.client", "asyncio", "tornado.application")]
    before = [(logger, logger.level, logger.filters.copy()) for logger in loggers]
    client, *others = loggers
    try:
        client.setLevel(logging.CRITICAL)  # what it logs is raised here as an error
        for logger in others:
            logger.addFilter(_is_worth_logging)
        with warnings.catch_warnings():
            # borders of patches are sent in every epoch, and no user can send them in another way
            warnings.filterwarnings("ignore", "Sending large graph", module="distributed.client")
            yield
    finally:
        for logger, level, filters in before:
            logger.setLevel(level)
            logger.filters[:] = filters


@contextlib.contextmanager
def _quiet_when_stopped() -> Iterator[None]:
    """Silence Dask's messages about closed connections after Ctrl-C or SIGTERM has ended the work."""
    try:
        yield
    except KeyboardInterrupt:
        logging.getLogger("tornado.application").setLevel(logging.CRITICAL)
        raise


@contextlib.contextmanager
def _start(n_workers: int, name: str) -> Iterator[Cluster]:
    from distributed import Client, LocalCluster

    if n_workers < 1:
        raise InputError("a Dask cluster local:N with at least one worker", repr(name), "Give local:2, for example.")
    # no memory limit, which would kill workers although the computer has memory left; the dashboard takes a free port
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=None,
            dashboard_address=":0",
            silence_logs=logging.ERROR,
        ) as workers,
        Client(workers) as client,
    ):
        yield Cluster(client, name)


def _client(where: str) -> Any:
    from distributed import Client

    if _ADDRESS.fullmatch(where):
        arguments = {"address": where}
    elif where.endswith(".json"):
        arguments = {"scheduler_file": where}
        try:
            json.loads(Path(where).read_text())["address"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"a scheduler file of Dask at {where!r}",
                f"{type(error).__name__}: {error}",
                "Start the scheduler with a scheduler file, then run again.",
            ) from error
    else:
        raise InputError(f"the Dask cluster to be {_FORMS}", repr(where), "Give local:2, for example.")
    try:
        return Client(**arguments, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise InputError(
            f"a Dask scheduler at {where!r}", str(error), "Check its address, and that it is running."
        ) from error


def _size(value: Any) -> int:
    """Bytes that a value takes in transit; arrays are counted without a copy."""
    arrays: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    return len(frame) + sum(array.raw().nbytes for array in arrays)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for messages that a signal ended one of Dask's waits: the user knows that already.

    Such a wait is cancelled by Dask's `sync`, which fails, and is logged, where the wait had not begun.
    """
    from distributed.client import AllExit

    if "sync.<locals>.cancel" in record.getMessage():
        return False
    return record.exc_info is None or not isinstance(record.exc_info[1], AllExit)


def _connection_errors() -> tuple[type[Exception], ...]:
    """What Dask raises where a worker has left with a task or its result."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    return KilledWorker, CancelledError, CommClosedError


def _lost(*addresses: str) -> str:
    who = "A worker" if len(addresses) < 2 else f"{len(addresses)} workers"
    named = f" ({', '.join(addresses)})" if addresses else ""
    return f"{who}{named} left before the fit was done."
