"""The operations of `spatialpdvi.kernels.simd` on arrays of eight, for kernels that are run as Python.

Under ``NUMBA_DISABLE_JIT=1``, by which a debugger or coverage sees into kernels, LLVM's vectors do not exist. Results
agree with compiled ones but for last bits: a product and its sum are rounded twice, the exponential is NumPy's.
"""

import numpy as np

__all__ = ["exp", "fill", "fma", "largest", "load", "minus", "over", "pairwise_sum", "plus", "store", "upper"]

_WIDTH = 8
_LOWEST = -708.0


def load(array, offset, count, missing):
    """Entries of a contiguous array from flat ``offset`` on; ``missing`` in the lanes from ``count`` on."""
    lanes = np.full(_WIDTH, missing, dtype=np.float64)
    there = min(max(int(count), 0), _WIDTH)
    lanes[:there] = array.reshape(-1)[offset : offset + there]
    return lanes


def store(array, offset, count, value):
    """Write the first ``count`` lanes, eight at the most, from flat ``offset`` on."""
    there = min(max(int(count), 0), _WIDTH)
    array.reshape(-1)[offset : offset + there] = value[:there]


def fill(value):
    """The same number in every lane."""
    return np.full(_WIDTH, value, dtype=np.float64)


def fma(a, b, c):
    """``a * b + c``."""
    return a * b + c


def plus(a, b):
    """``a + b``."""
    return a + b


def minus(a, b):
    """``a - b``."""
    return a - b


def over(a, b):
    """``a / b``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return a / b


def upper(a, b):
    """The larger of a and b, lane by lane; a where either is NaN."""
    return np.where(a < b, b, a)


def pairwise_sum(a):
    """Sum over lanes, pairwise."""
    for half in (4, 2, 1):
        a = a + np.roll(a, -half)
    return a[0]


def largest(a):
    """Largest lane."""
    for half in (4, 2, 1):
        a = upper(a, np.roll(a, -half))
    return a[0]


def exp(a):
    """``e^a`` for ``a <= 0``; 0 below -708, NaN of NaN."""
    return np.where(a < _LOWEST, 0.0, np.exp(np.maximum(a, _LOWEST)))
