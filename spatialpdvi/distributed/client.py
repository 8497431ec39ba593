"""A Dask cluster: workers started here, or those of a scheduler that runs already.

Every task is sent to one worker by its address, since it needs what that worker holds. A task whose worker is gone
would wait for ever, so the workers are counted while tasks are waited for.
"""

import contextlib
import json
import logging
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from spatialpdvi.distributed import worker as holding
from spatialpdvi.engines import PatchesLostError
from spatialpdvi.errors import InputError

__all__ = ["Cluster", "Traffic", "connect"]

_ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://\S+")
_PATIENCE = 1.0  # seconds between two looks at who is still there
_TO_COME = 60.0  # seconds to wait for a first worker, or for one in place of the last
_KINDS = "local:N (workers on this computer), tcp://HOST:PORT or the path of a scheduler file (.json)"
_MUST_AGREE = ("spatialpdvi", "numpy", "numba", "python")  # same bits need the same code


class Traffic:
    """Bytes that went to the workers and came back, in all."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0


class Cluster:
    """Workers that are there, by address; made by `connect`.

    Parameters
    ----------
    client
        `distributed.Client`.
    name
        What the user called it.
    """

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self.name = name
        self.traffic = Traffic()

    def workers(self) -> list[str]:
        """Addresses of the workers, in a fixed order; waits for a first one.

        Raises
        ------
        InputError
            Where none comes within a minute, or one runs other versions than this process.
        """
        from distributed import TimeoutError as Late

        if not self._there():
            try:
                self._client.wait_for_workers(1, timeout=_TO_COME)
            except Late as late:
                msg = (
                    f"Expected a worker on `--dask {self.name}`, found none for {_TO_COME:.0f} seconds. Start workers "
                    "for its scheduler (dask worker), and see their logs for why they ended."
                )
                raise InputError(msg) from late
        addresses = sorted(self._there())
        self._check_versions(addresses)
        return addresses

    def _there(self) -> dict[str, int]:
        """Workers that are there now, with their threads."""
        try:
            return dict(self._client.nthreads())
        except Exception as error:
            if not isinstance(error, (OSError, *_gone())):
                raise
            msg = (
                f"Expected the Dask scheduler of `--dask {self.name}` to stay, found it gone ({error}). Start it "
                "again, then run again; a fit with --checkpoint goes on with --resume."
            )
            raise InputError(msg) from error

    def on_each(self, function: Callable[[], Any]) -> dict[str, Any]:
        """What ``function()`` returns on every worker."""
        return self.run(function, dict.fromkeys(self.workers(), ()))

    def run(self, function: Any, jobs: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """``function(*arguments)`` on each worker that has a job, all at the same time; what they return.

        Raises
        ------
        PatchesLostError
            Where a worker goes before its job is done, or no longer has what the job needs.
        """
        futures = {
            worker: self._client.submit(function, *arguments, workers=[worker], pure=False, retries=0)
            for worker, arguments in jobs.items()
        }
        self.traffic.sent += _size(tuple(jobs.values()))
        try:
            self._wait(futures)
            found = dict(zip(futures, self._client.gather(list(futures.values())), strict=True))
        except Exception as error:
            if not isinstance(error, (holding.NotHereError, *_gone())):
                raise
            who = str(error) if isinstance(error, holding.NotHereError) else "a worker, or the way to it,"
            raise PatchesLostError(_lost([who])) from error
        finally:
            for future in futures.values():
                future.release()
        self.traffic.received += _size(tuple(found.values()))
        return found

    def tell(self, function: Any, workers: Iterable[str], *arguments: Any) -> None:
        """``function(*arguments)`` on those of the workers that are still there, of which nobody waits for the end."""
        from distributed import fire_and_forget

        there = self._there()
        for worker in workers:
            if worker in there:
                fire_and_forget(self._client.submit(function, *arguments, workers=[worker], pure=False))

    def map(self, function: Any, jobs: Iterable[tuple[Any, ...]]) -> list[Any]:
        """``function(*arguments)`` of every job, in their order, on whichever worker is free; another if one goes.

        Raises
        ------
        InputError
            As the function does, or where jobs end several workers.
        """
        from distributed import KilledWorker

        jobs = list(jobs)
        futures = [self._client.submit(function, *arguments, pure=False) for arguments in jobs]
        self.traffic.sent += _size(jobs)
        try:
            found = self._client.gather(futures)
        except KilledWorker as error:
            msg = (
                f"Expected workers of `--dask {self.name}` to read their parts of the file, found that several ended "
                "over the same part. See their logs; they may need more memory."
            )
            raise InputError(msg) from error
        except InputError as error:
            msg = f"{error} (Found by a worker of `--dask {self.name}`: it must see the file under this very path.)"
            raise InputError(msg) from error
        self.traffic.received += _size(found)
        return list(found)

    def send(self, function: Any, worker: str, *arguments: Any) -> None:
        """``function(*arguments)`` on one worker; what it is given may be large, and does not pass the scheduler.

        Raises
        ------
        PatchesLostError
            As `run` does.
        """
        from distributed import TimeoutError as Late

        try:
            (parcel,) = self._client.scatter([arguments], workers=[worker], hash=False)
        except (OSError, Late, ValueError) as error:  # as Dask says that the worker has gone
            if worker in self._there():
                raise
            raise PatchesLostError(_lost([worker])) from error
        self.traffic.sent += _size(arguments)
        self.run(holding.unpacked, {worker: (function, parcel)})

    def _wait(self, futures: Mapping[str, Any]) -> None:
        from distributed import TimeoutError as Late
        from distributed import wait

        while True:
            with contextlib.suppress(Late):
                wait(list(futures.values()), timeout=_PATIENCE)
                return
            there = self._there()
            gone = [worker for worker, future in futures.items() if worker not in there and not future.done()]
            if gone:
                self._client.cancel(list(futures.values()), force=True)
                raise PatchesLostError(_lost(gone))

    def _check_versions(self, workers: list[str]) -> None:
        here = holding.versions()
        try:
            there = self.run(holding.versions, dict.fromkeys(workers, ()))
        except PatchesLostError:
            return  # gone again: whoever needs it will find out
        except ModuleNotFoundError as error:
            msg = (
                f"Expected spatialpdvi on every worker of `--dask {self.name}`, found {error}. Start the workers in an "
                "environment that has it."
            )
            raise InputError(msg) from error
        for worker, versions in there.items():
            other = [name for name in _MUST_AGREE if versions[name] != here[name]]
            if other:
                found = ", ".join(f"{name} {versions[name]} there and {here[name]} here" for name in other)
                msg = (
                    f"Expected the versions of this process on every worker of `--dask {self.name}`, since others "
                    f"give other bits, found {found} ({worker}). Start the workers in the same environment."
                )
                raise InputError(msg)


@contextlib.contextmanager
def connect(where: str) -> Iterator[Cluster]:
    """Workers of ``local:N``, of a scheduler's address or of its scheduler file, while the ``with`` lasts.

    Raises
    ------
    InputError
        Where dask is not installed, ``where`` is neither of these, or nothing answers there.
    """
    if find_spec("distributed") is None:
        msg = (
            "Expected the package dask[distributed] for `--dask`, found it missing. Install it: "
            "pip install 'spatialpdvi[dask]'."
        )
        raise InputError(msg)
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what it would say is said as an error
    logging.getLogger("asyncio").addFilter(_is_no_leaving)
    local = re.fullmatch(r"local:(\d+)", where)
    if local:
        with _start(int(local[1]), where) as cluster, _quiet_when_stopped():
            yield cluster
        return
    with _client(where) as client, _quiet_when_stopped():
        yield Cluster(client, where)


@contextlib.contextmanager
def _quiet_when_stopped() -> Iterator[None]:
    """Where Ctrl-C or SIGTERM ends the work, what Dask's own loop says of connections that close is no news."""
    try:
        yield
    except KeyboardInterrupt:
        logging.getLogger("tornado.application").setLevel(logging.CRITICAL)
        raise


@contextlib.contextmanager
def _start(n_workers: int, name: str) -> Iterator[Cluster]:
    from distributed import Client, LocalCluster

    if n_workers < 1:
        msg = f"Expected at least one worker in `--dask {name}`, found {n_workers}."
        raise InputError(msg)
    # a limit would have workers killed that the computer has memory for; a port that is free
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
            msg = (
                f"Expected `--dask {where}` to be the file that `dask scheduler --scheduler-file` writes, found "
                f"{type(error).__name__}: {error}. Start the scheduler, then run again."
            )
            raise InputError(msg) from error
    else:
        msg = f"Expected `--dask` to be {_KINDS}, found {where!r}."
        raise InputError(msg)
    try:
        return Client(**arguments, timeout=10)
    except (OSError, ValueError) as error:
        msg = f"Expected a Dask scheduler at `--dask {where}`, found {error}. Check its address, and that it runs."
        raise InputError(msg) from error


def _size(value: Any) -> int:
    """Bytes that a value takes on its way; its arrays are not copied to be counted."""
    arrays: list[pickle.PickleBuffer] = []
    frame = pickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    return len(frame) + sum(array.raw().nbytes for array in arrays)


def _is_no_leaving(record: logging.LogRecord) -> bool:
    """Whether asyncio has something to tell; that a signal ended a wait of Dask's is told already."""
    from distributed.client import AllExit

    return record.exc_info is None or not isinstance(record.exc_info[1], AllExit)


def _gone() -> tuple[type[Exception], ...]:
    """What Dask raises where a worker has gone with a task or its result."""
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm.core import CommClosedError

    return KilledWorker, CancelledError, CommClosedError


def _lost(workers: list[str]) -> str:
    return f"Expected every worker to stay until the fit is done, found that {' and '.join(workers)} left."
