"""The number of threads, and how to use a single one where results would otherwise depend on it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["n_threads", "single_threaded"]


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


def n_threads() -> int:
    """Return how many threads may be used: NUMBA_NUM_THREADS if it is set, otherwise the cores of this process.

    The command line sets NUMBA_NUM_THREADS to the number of threads that the user chose.
    """
    chosen = os.environ.get("NUMBA_NUM_THREADS", "")
    if chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
