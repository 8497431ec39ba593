"""The speed of this machine, measured in half a second with one thread."""

import time
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

__all__ = ["REFERENCE", "Speed", "measure_speed"]

# The best of several repeats counts, since other programs and a processor at its low clock rate only make it slower.
# With three repeats, one measurement in three on a quiet machine gave half its speed.
_REPEATS = 12
_BYTES = 1 << 21


class Speed(NamedTuple):
    """Rates of a machine, or their ratios to those of another machine."""

    inflate: float  # bytes decompressed from gzip per second
    copy: float  # bytes copied in memory per second
    multiply: float  # operations per second in products of small matrices
    python: float  # steps of the interpreter per second

    def relative_to(self, other: "Speed") -> "Speed":
        """Return the ratios of these rates to those of another machine."""
        return Speed(*(own / theirs for own, theirs in zip(self, other, strict=True)))


# the machine that the coefficients were measured on
REFERENCE = Speed(inflate=3.05e8, copy=2.1e10, multiply=3.9e10, python=5.3e7)


def measure_speed() -> Speed:
    """Measure the rates of this machine."""
    rng = np.random.default_rng(0)
    # resembles the column indices of sparse counts: small steps, which gzip compresses to a third
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
    """Return the least processor time of several runs, in seconds."""
    seconds = []
    for _ in range(_REPEATS):
        began = time.thread_time()
        work()
        seconds.append(time.thread_time() - began)
    return min(seconds)
