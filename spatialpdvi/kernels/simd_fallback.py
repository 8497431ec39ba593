"""The operations of `spatialpdvi.kernels.simd` on NumPy arrays of eight, for kernels that run as plain Python.

They take over under ``NUMBA_DISABLE_JIT=1``, which lets a debugger or coverage see into kernels; LLVM's vectors do not
exist then. Results agree with compiled ones except in the last bits: a product and its sum are rounded twice, and the
exponential is NumPy's.
"""

import numpy as np

__all__ = ["exp", "fill", "fma", "largest", "load", "log", "minus", "over", "pairwise_sum", "plus", "store", "upper"]

_WIDTH = 8
_LOWEST = -708.0


def load(array, offset, count, missing):
    """Load entries of a contiguous array from flat ``offset`` on; lanes from ``count`` on are ``missing``."""
    lanes = np.full(_WIDTH, missing, dtype=np.float64)
    n_lanes = min(max(int(count), 0), _WIDTH)
    lanes[:n_lanes] = array.reshape(-1)[offset : offset + n_lanes]
    return lanes


def store(array, offset, count, value):
    """Write the first ``count`` lanes, at most eight, from flat ``offset`` on."""
    n_lanes = min(max(int(count), 0), _WIDTH)
    array.reshape(-1)[offset : offset + n_lanes] = value[:n_lanes]


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
    """``e^a`` for ``a <= 0``; 0 below -708, NaN for NaN."""
    return np.where(a < _LOWEST, 0.0, np.exp(np.maximum(a, _LOWEST)))


def log(a):
    """The natural logarithm of normal positive numbers; NaN for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(a)
