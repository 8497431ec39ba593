"""The number of threads, and how to use a single one where results would otherwise depend on it."""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from spatialpdvi.runtime.rows import slices

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

__all__ = ["ahead", "in_blocks", "n_threads", "nearest", "on_threads", "own_loops_on_all_threads", "single_threaded"]

_T = TypeVar("_T")
_Made = TypeVar("_Made")

_SEARCHED = 1 << 13  # points that a thread searches the neighbours of at a time


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run BLAS, OpenMP and numba in a single thread, since their parallel sums depend on the number of threads."""
    import numba
    from threadpoolctl import threadpool_limits

    from spatialpdvi.kernels.dispatch import brief_spin

    with brief_spin():  # this call starts numba's threads
        before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)


@contextmanager
def own_loops_on_all_threads() -> Iterator[None]:
    """Inside `single_threaded`, run this package's compiled loops in parallel: their sums are of fixed blocks."""
    import numba

    before = numba.get_num_threads()
    largest: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba is imported
    numba.set_num_threads(min(n_threads(), largest))
    try:
        yield
    finally:
        numba.set_num_threads(before)


def n_threads() -> int:
    """Return how many threads may be used: NUMBA_NUM_THREADS if it is set, otherwise the cores of this process.

    The command line sets NUMBA_NUM_THREADS to the number of threads that the user chose.
    """
    chosen = os.environ.get("NUMBA_NUM_THREADS", "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """Yield items, each of which another thread makes while the caller uses the one before; with one thread, in turn.

    They must not be made by compiled loops of several threads, of which only one may run at a time. An error of an item
    is raised where the item would have come.
    """
    if n_threads() == 1:
        yield from items
        return
    end = object()
    try:
        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(next, items, end)
            while (item := coming.result()) is not end:
                coming = pool.submit(next, items, end)
                yield cast("_T", item)
    finally:  # where the caller wants no more, files are closed now
        if isinstance(items, Generator):
            items.close()


def on_threads(function: Callable[[_T], _Made], tasks: Sequence[_T], *, at_once: int | None = None) -> list[_Made]:
    """Return ``function(task)`` of each task, in order; several at a time, each on one thread.

    Results are therefore the same bits for any number of threads. Call inside `single_threaded`. There are as many
    tasks at a time as threads, or at most ``at_once``.
    """
    from spatialpdvi.kernels.dispatch import run_serially_in_this_thread

    if len(tasks) == 1:
        return [function(tasks[0])]
    threads = n_threads() if at_once is None else min(n_threads(), at_once)
    with ThreadPoolExecutor(threads, initializer=run_serially_in_this_thread) as pool:
        return list(pool.map(function, tasks))


def in_blocks(task: Callable[[slice], None], n: int, size: int) -> None:
    """Call ``task`` with each block of at most ``size`` of n rows, on all threads; it writes to its own rows.

    A single block needs no other thread. After Ctrl-C the blocks that have begun are finished, and no other begins.
    """
    if 0 < n <= size:
        task(slice(0, n))
        return
    with ThreadPoolExecutor(n_threads()) as pool:
        for _ in pool.map(task, slices(n, size)):
            pass  # an exception of a block is raised here


def nearest(tree: "cKDTree", points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distances and numbers (b, k) of the k nearest points of a tree to each of ``points``, on all threads.

    Queries of the tree with several ``workers`` go on after Ctrl-C in threads that nobody waits for, and crash the
    process when their memory is freed.
    """
    distance, index = np.empty((len(points), k)), np.empty((len(points), k), dtype=np.int64)

    def query(rows: slice) -> None:
        found = tree.query(points[rows], k=k)
        distance[rows], index[rows] = (part.reshape(-1, k) for part in found)  # k = 1 has no second axis

    in_blocks(query, len(points), _SEARCHED)
    return distance, index
