"""When the loop stops and which epochs it replaces, for values of F that are given."""

from types import SimpleNamespace

import numpy as np
import pytest

from spatialpdvi.fitting.loop import Best, Stop, StopRule, optimise
from spatialpdvi.problems.base import Evaluation


def _evaluation(neg_elbo, worst=1.0, *, scale=1.0):
    return Evaluation(neg_elbo, scale, None, None, None, {"mean": worst}, 0.0, 0.0)


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize(
    ("before", "now", "worst", "met"),
    [
        (5.0, 5.0, 1e-5, True),
        (5.0, 5.0, 1e-3, False),
        (5.0, 5.1, 1e-5, False),  # F has not settled
        (5.1, 5.0, 1e-5, False),  # nor where it falls
        (5.0, 5.0 + 0.9e-7, 1e-5, True),
        (5.0, 5.0 + 1.1e-7, 1e-5, False),
        (5.0, float("nan"), 1e-5, False),
    ],
)
def test_a_run_has_converged_where_it_is_stationary_and_f_has_settled(before, now, worst, met, scale):
    ends = _evaluation(now * scale, worst, scale=scale), _evaluation(before * scale, scale=scale)
    assert StopRule(1e-4, 1e-7).is_met(*ends) is met


class _Scripted:
    """An engine and a solver in one, for which F is given; a replaced epoch reads one value more."""

    needs_evaluation, problem = False, SimpleNamespace(n_patches=1)

    def __init__(self, values):
        self.values, self.fallback, self.replaced, self.clock = iter(values), self, 0, 0.0
        self.smaller = []  # of which epochs steps became smaller

    def evaluate(self, lam):
        return _evaluation(*np.atleast_1d(next(self.values)).tolist())

    def begin(self, solver, start):
        return SimpleNamespace(lam="start", ends=None)

    def restart(self, solver, lam, *, kept):
        self.replaced += kept
        return SimpleNamespace(lam=lam, ends=None)

    def keep(self, phi=None):
        pass

    def batches(self, n_patches, rng):
        self.clock += 1.0  # an epoch takes a second
        return []

    def begin_epoch(self, problem, shared, evaluation, patch_states):
        return SimpleNamespace(lam=shared.lam, ends=self.clock)

    def with_smaller_steps(self, shared, failed):
        self.smaller.append((shared.ends, failed.ends))
        return shared

    def patch_states(self):
        return ()

    def state(self, shared):
        return SimpleNamespace(phi=None)


def _run(values, max_epochs, monkeypatch, *, scripted=_Scripted):
    run = scripted(values)
    monkeypatch.setattr("spatialpdvi.fitting.loop.time.perf_counter", lambda: run.clock)
    end = optimise(run, run, (None, None), rule=StopRule(max_epochs=max_epochs), rng=np.random.default_rng(0))
    assert len(run.smaller) == run.replaced
    return end, [row.evaluation.neg_elbo for row in end.trace], run


def test_an_epoch_that_gives_up_half_of_what_was_gained_is_replaced(monkeypatch):
    """7.4 is less than half of the way from 5 back to 10; 7.6 is more, and 4.9 comes in its place."""
    _, trace, run = _run([10.0, 5.0, 7.4, 7.6, 4.9, 4.8], 4, monkeypatch)
    assert (trace, run.replaced) == ([10.0, 5.0, 7.4, 4.9, 4.8], 1)
    assert run.smaller == [(None, 2.0)]  # of the epoch that began after two others; the one in its place has none yet


def test_a_run_does_not_converge_above_its_best_point(monkeypatch):
    values = [10.0, (5.0, 1.0), (6.0, 1.0), (6.0, 0.0), (4.0, 1.0), (4.0, 0.0)]
    end, trace, run = _run(values, 9, monkeypatch)
    assert end.stop is Stop.CONVERGED
    assert (trace, run.replaced) == ([10.0, 5.0, 6.0, 4.0, 4.0], 1)


def test_seconds_hold_the_epoch_that_was_replaced_and_the_one_in_its_place(monkeypatch):
    end, trace, _ = _run([10.0, 5.0, 9.0, 4.0, 3.0], 3, monkeypatch)
    assert trace == [10.0, 5.0, 4.0, 3.0]
    assert [row.seconds for row in end.trace] == [0.0, 1.0, 3.0, 4.0]


@pytest.mark.parametrize("scale", [1.0, 1e6])
@pytest.mark.parametrize(
    ("rise", "ends", "given_up"),
    [
        (0.9e-4, False, False),  # rounding
        (1.1e-4, False, True),
        (0.5e-6, True, False),
        (2e-6, True, True),  # the last epoch may not be above the best
        (float("nan"), False, True),
    ],
)
def test_how_far_f_may_rise_from_where_it_began(rise, ends, given_up, scale):
    now = _evaluation((rise - 3.0) * scale, scale=scale)
    assert Best(-3.0 * scale, -3.0 * scale, None).is_given_up(now, ends=ends) is given_up


def test_seconds_hold_the_evaluations_that_a_solver_needs(monkeypatch):
    class Slow(_Scripted):
        needs_evaluation = True

        def evaluate(self, lam):
            self.clock += 0.5
            return super().evaluate(lam)

    end, _, _ = _run([10.0, 5.0, 9.0, 4.0, 3.0], 3, monkeypatch, scripted=Slow)
    assert [row.seconds for row in end.trace] == [0.0, 1.5, 4.5, 6.0]
