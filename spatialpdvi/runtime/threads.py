"""How many threads, and where only one may be used so that results keep their bits."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["n_threads", "single_threaded"]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run libraries whose parallel sums depend on the number of threads (BLAS, OpenMP, scanpy's numba) on one."""
    import numba
    from threadpoolctl import threadpool_limits

    from spatialpdvi.kernels.dispatch import brief_spin

    with brief_spin():  # the question starts the threads
        before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)


def n_threads() -> int:
    """Threads that kernels and readers may use: all cores that the process may run on, or what ``--threads`` says."""
    chosen = os.environ.get("NUMBA_NUM_THREADS", "")
    if chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
