"""Threads that wait must not spin, whoever starts them."""

import os

import numba
import pytest

from spatialpdvi.kernels import twins
from spatialpdvi.threads import single_threaded


@pytest.mark.parametrize(("chosen", "seen"), [(None, "passive"), ("active", "active")])
def test_threads_are_asked_for_with_a_passive_policy_unless_the_user_chose(monkeypatch, chosen, seen):
    policies = []
    real = numba.get_num_threads

    def starting():
        policies.append(os.environ.get("OMP_WAIT_POLICY"))
        return real()

    monkeypatch.setattr(numba, "get_num_threads", starting)
    monkeypatch.setitem(twins._OPENMP, "started", False)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", chosen)
    with single_threaded():
        assert real() == 1
    assert policies == [seen]
    assert os.environ.get("OMP_WAIT_POLICY") == chosen
