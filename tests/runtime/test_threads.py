"""Threads that wait spin briefly at the most, whoever starts them."""

import os

import numba
import numpy as np
import pytest

from spatialpdvi.kernels import dispatch as twins
from spatialpdvi.runtime.threads import in_blocks, single_threaded

NAMES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@pytest.mark.parametrize(
    ("chosen", "seen"),
    [
        ((None, None), ("passive", "10000")),
        (("active", None), ("active", None)),
        ((None, "7"), (None, "7")),
    ],
)
def test_threads_are_asked_to_spin_briefly_unless_the_user_chose(monkeypatch, chosen, seen):
    policies = []
    real = numba.get_num_threads

    def starting():
        policies.append(tuple(map(os.environ.get, NAMES)))
        return real()

    monkeypatch.setattr(numba, "get_num_threads", starting)
    monkeypatch.setitem(twins._OPENMP, "started", False)
    for name, value in zip(NAMES, chosen, strict=True):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with single_threaded():
        assert real() == 1
    assert policies == [seen]
    assert tuple(map(os.environ.get, NAMES)) == chosen


def test_blocks_cover_all_rows_once_and_raise_what_one_of_them_raises():
    seen = np.zeros(1003, dtype=int)

    def count(rows):
        seen[rows] += 1

    in_blocks(count, seen.size, 10)
    assert (seen == 1).all()
    in_blocks(count, 0, 10)

    def fail(rows):
        if rows.start == 20:
            raise KeyError(rows.start)

    with pytest.raises(KeyError, match="20"):
        in_blocks(fail, 100, 10)
