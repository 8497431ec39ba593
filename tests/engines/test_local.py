"""The engine of this process: any number of threads, and the point to which it goes back."""

import numpy as np
import pytest
from conftest import make_toy

from spatialpdvi.engines import LocalEngine, local
from spatialpdvi.fitting.loop import Stop, StopRule, optimise
from spatialpdvi.solvers import SolverSettings, make_solver


@pytest.fixture
def _small_patches_too(monkeypatch):
    """Threads are used for patches of any size."""
    monkeypatch.setattr(local, "_LARGE_PATCH", 1)


@pytest.mark.usefixtures("_small_patches_too")
@pytest.mark.parametrize(("name", "settings"), [("p2dvi", {}), ("p2dvi", {"step_factor": 1e-3}), ("adam", {})])
def test_threads_that_share_a_batch_give_the_same_bits(name, settings):
    toy, ends = make_toy(side=20, k=4, n_patches=7), []
    for threads in (1, 2, 5):
        solver = make_solver(name, SolverSettings(batch_patches=7, **settings))
        engine = LocalEngine(toy.problem, threads=threads)
        rule, rng = StopRule(1e-9, 1e-12, 6), np.random.default_rng(0)
        ends.append(optimise(engine, solver, (toy.phi.copy(), toy.lam), rule=rule, rng=rng))
    for end in ends[1:]:
        np.testing.assert_array_equal(end.phi, ends[0].phi)
        assert [row.evaluation.neg_elbo for row in end.trace] == [row.evaluation.neg_elbo for row in ends[0].trace]


@pytest.mark.usefixtures("_small_patches_too")
@pytest.mark.parametrize("threads", [1, 2])
def test_too_large_a_step_ends_a_run_without_a_warning_in_any_thread(threads):
    toy, solver = make_toy(n_patches=6), make_solver("sgd", SolverSettings(batch_patches=3, step_size=1e4))
    engine = LocalEngine(toy.problem, threads=threads)
    end = optimise(engine, solver, (toy.phi, toy.lam), rule=StopRule(), rng=np.random.default_rng(0))
    assert end.stop is Stop.NOT_FINITE


def test_the_engine_goes_back_more_than_once_to_the_point_that_it_kept(toy):
    solver, engine = make_solver("cavi"), LocalEngine(toy.problem)
    engine.begin(solver, (toy.phi.copy(), toy.lam))
    engine.keep()
    for _ in range(2):
        shared = engine.restart(solver, toy.lam, kept=True)
        np.testing.assert_array_equal(engine.state(shared).phi, toy.phi)
        engine.visit(shared, np.arange(toy.problem.n_patches))
        assert not np.array_equal(engine.state(shared).phi, toy.phi)
        np.testing.assert_array_equal(engine.kept(), toy.phi)
