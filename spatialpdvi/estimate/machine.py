"""How fast this machine is beside the one that the coefficients were measured on: half a second, one thread."""

import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["REFERENCE", "Speed", "measure_speed"]

# of which the best counts: other programs, and a processor that has yet to speed up, only take away; in three repeats a
# quiet machine showed half its speed one time in three
_REPEATS = 12
_BYTES = 1 << 21


class Speed(NamedTuple):
    """Rates of the machine, or how many times those of another it has."""

    inflate: float  # bytes a second out of gzip
    copy: float  # bytes a second from memory to memory
    multiply: float  # products of small matrices, operations a second
    python: float  # steps of the interpreter a second

    def beside(self, other: "Speed") -> "Speed":
        """These rates over another machine's."""
        return Speed(*(own / theirs for own, theirs in zip(self, other, strict=True)))


REFERENCE = Speed(inflate=3.05e8, copy=2.1e10, multiply=3.9e10, python=5.3e7)


def measure_speed() -> Speed:
    """Rates of this machine as it is now."""
    rng = np.random.default_rng(0)
    # like the columns of counts in a file: small steps, which gzip packs to a third
    columns = np.cumsum(rng.integers(1, 40, _BYTES // 4, dtype=np.int32), dtype=np.int32) % 25_000
    packed = zlib.compress(columns.tobytes(), 4)
    source, target = np.ones(_BYTES), np.empty(_BYTES)
    small, product = rng.random((48, 48)), np.empty((48, 48))

    def multiply() -> None:
        for _ in range(200):
            np.matmul(small, small, out=product)

    return Speed(
        inflate=_BYTES / _best(lambda: zlib.decompress(packed)),
        copy=source.nbytes / _best(lambda: np.copyto(target, source)),
        multiply=200 * 2 * 48**3 / _best(multiply),
        python=100_000 / _best(lambda: sum(i for i in range(100_000))),
    )


def _best(work: Callable[[], object]) -> float:
    """Least seconds of several runs; those of the processor, which other programs do not lengthen much."""
    seconds = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        work()
        seconds.append(time.thread_time() - began)
    return min(seconds)
