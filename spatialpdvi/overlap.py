"""How many spots two labellings put together: the table that labels are matched by."""

import numpy as np

__all__ = ["overlap"]


def overlap(first: np.ndarray, second: np.ndarray, *, shape: tuple[int, int]) -> np.ndarray:
    """Spots (A, B) that have each label of the first and each of the second; codes (n,) in 0..A-1 and 0..B-1."""
    pairs = first.astype(np.int64) * shape[1] + second
    return np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)
