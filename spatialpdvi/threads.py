"""How many threads, and where only one may be used so that results keep their bits."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["single_threaded"]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run libraries whose parallel sums depend on the number of threads (BLAS, OpenMP, scanpy's numba) on one."""
    import numba
    from threadpoolctl import threadpool_limits

    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        numba.set_num_threads(before)
