"""Threads that wait spin briefly at the most, whoever starts them."""

import os
import time

import numba
import numpy as np
import pytest

from spatialpdvi.kernels import dispatch as twins
from spatialpdvi.runtime.threads import (
    ahead,
    in_blocks,
    n_threads,
    on_threads,
    own_loops_on_all_threads,
    single_threaded,
)

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


def test_own_loops_run_on_all_threads_among_others_that_may_not(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1000")  # more than numba was imported with
    with single_threaded():
        with own_loops_on_all_threads():
            assert numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS
        assert numba.get_num_threads() == 1


def test_blocks_cover_all_rows_once_and_raise_what_one_of_them_raises():
    seen = np.zeros(1003, dtype=int)

    def count(rows):
        seen[rows] += 1

    in_blocks(count, seen.size, 10)
    assert (seen == 1).all()
    in_blocks(count, 0, 10)
    in_blocks(count, 7, 10)
    assert (seen[:7] == 2).all()
    assert (seen[7:] == 1).all()

    def fail(rows):
        if rows.start == 20:
            raise KeyError(rows.start)

    with pytest.raises(KeyError, match="20"):
        in_blocks(fail, 100, 10)


@pytest.mark.parametrize("threads", [1, 3])
def test_items_made_ahead_come_in_their_order_with_their_error(monkeypatch, threads):
    monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda: threads)
    assert list(ahead(iter(range(100)))) == list(range(100))
    assert list(ahead(iter([]))) == []

    def failing():
        yield 1
        raise ValueError("second")

    items = ahead(failing())
    assert next(items) == 1
    with pytest.raises(ValueError, match="second"):
        next(items)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_makes_items_ahead_is_closed_where_no_more_are_wanted(monkeypatch, threads):
    monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda: threads)
    closed = []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    items = ahead(endless())
    next(items)
    items.close()
    assert closed == [True]


def test_numba_has_its_threads_again_after_work_on_one(several_threads):
    before = numba.get_num_threads()
    numba.set_num_threads(2)
    try:
        with pytest.raises(KeyError), single_threaded():
            raise KeyError
        assert numba.get_num_threads() == 2
    finally:
        numba.set_num_threads(before)


@pytest.mark.parametrize("chosen", ["0", "", "two"])
def test_a_variable_that_is_no_number_of_threads_counts_for_nothing(monkeypatch, chosen):
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    usual = n_threads()
    monkeypatch.setenv("NUMBA_NUM_THREADS", chosen)
    assert n_threads() == usual >= 1


def test_no_more_tasks_are_at_work_than_may_be_at_once(monkeypatch):
    monkeypatch.setattr("spatialpdvi.runtime.threads.n_threads", lambda: 4)
    at_work, most = [], []

    def task(number):
        at_work.append(number)
        most.append(len(at_work))
        time.sleep(0.02)
        at_work.remove(number)
        return number

    assert on_threads(task, range(8), at_once=2) == list(range(8))
    assert max(most) <= 2
