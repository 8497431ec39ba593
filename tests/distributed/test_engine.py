"""The engine of a cluster without one: its workers are in this process, and what is sent is pickled."""

import pickle

import numpy as np
import pytest
from conftest import make_toy

pytest.importorskip("distributed", reason="the extra [dask] is not installed")

from spatialpdvi.distributed import ClusterEngine, engine, worker
from spatialpdvi.engines import LocalEngine, PatchesLostError
from spatialpdvi.errors import ResourceError
from spatialpdvi.fitting.loop import Stop, StopRule, one_epoch, optimise
from spatialpdvi.solvers import SolverSettings, make_solver


class _Here:
    """A `Cluster` of workers in this process, which tell their patches apart by the name of the run."""

    name = "here"

    def __init__(self, *addresses):
        self.addresses = addresses
        self.left = set()
        self.has_scheduler = True

    def workers(self):
        return self.addresses

    def run(self, function, jobs):
        found = {}
        for address, arguments in jobs.items():
            if address in self.left:
                raise PatchesLostError("A worker left.")
            run, *more = pickle.loads(pickle.dumps(arguments))
            try:
                with np.errstate(over="warn", invalid="warn", divide="warn"):  # as in a thread of its own
                    answer = function(f"{run} {address}", *more)
            except worker.NotStoredError as error:
                raise PatchesLostError(str(error)) from error
            found[address] = pickle.loads(pickle.dumps(answer))
        return found

    def send(self, function, address, *arguments):
        self.run(function, {address: arguments})

    def run_without_waiting(self, function, addresses, *arguments):
        if not self.has_scheduler:
            raise ResourceError("The scheduler is gone.")
        self.run(function, dict.fromkeys(set(addresses) - self.left, arguments))


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(worker, "run_serially_in_this_thread", lambda: None)  # it is the thread of the tests
    monkeypatch.setattr(worker, "_STORED", {})
    return _Here("a", "b", "c")


def _solver(**settings):
    return make_solver("p2dvi", SolverSettings(batch_patches=3, **settings))


def _objective(rows):
    return [row.evaluation.neg_elbo for row in rows]


@pytest.mark.parametrize("largest", [engine._LARGEST_TASK, 0])
def test_patches_that_are_sent_in_several_tasks_all_arrive(here, monkeypatch, largest):
    monkeypatch.setattr(engine, "_LARGEST_TASK", largest)
    toy, rule = make_toy(side=20, k=4, n_patches=7), StopRule(1e-9, 1e-12, 12)
    ours, theirs = (
        optimise(made, _solver(), (toy.phi.copy(), toy.lam), rule=rule, rng=np.random.default_rng(3))
        for made in (LocalEngine(toy.problem), ClusterEngine(here, toy.problem))
    )
    np.testing.assert_array_equal(ours.phi, theirs.phi)
    assert _objective(ours.trace) == _objective(theirs.trace)


@pytest.mark.parametrize("tasks", [1, 2, 9])
def test_a_worker_that_is_restarted_between_two_tasks_has_lost_its_patches(here, monkeypatch, tasks):
    """Also after the last: no patch is in the memory of the new process."""
    monkeypatch.setattr(engine, "_LARGEST_TASK", 0)
    toy, left, send = make_toy(n_patches=6), [tasks], here.send

    def restarting(*arguments):
        send(*arguments)
        left[0] -= 1
        if left[0] == 0:
            worker._STORED.clear()

    monkeypatch.setattr(here, "send", restarting)
    with pytest.raises(PatchesLostError, match=r"^A worker was restarted and no longer has its patches\.$"):
        ClusterEngine(here, toy.problem).begin(_solver(), (toy.phi, toy.lam))


def test_a_run_resumes_on_workers_at_its_best_point(here):
    """Its steps are so large that epochs are replaced by one from that point, which a checkpoint holds."""
    toy, solver, rng = make_toy(side=16, n_patches=6, seed=3), _solver(step_factor=1e-3), np.random.default_rng(0)
    rule, saved = StopRule(1e-9, 1e-12, 12), []

    def keep(epoch, underway):
        if underway().best.phi is not None:
            saved.append(pickle.dumps((underway(), rng)))

    straight = optimise(LocalEngine(toy.problem), solver, (toy.phi.copy(), toy.lam), rule=rule, rng=rng, on_state=keep)
    assert saved
    for state in saved:
        for made in (LocalEngine(toy.problem), ClusterEngine(here, toy.problem)):
            start, again = pickle.loads(state)
            end = optimise(made, solver, start, rule=rule, rng=again)
            np.testing.assert_array_equal(end.phi, straight.phi)
            assert _objective(end.trace) == _objective(straight.trace[end.trace[0].epoch :])


def test_workers_go_back_with_their_borders_more_than_once(here):
    toy, solver = make_toy(n_patches=4), make_solver("cavi")
    ours, theirs = ClusterEngine(here, toy.problem), LocalEngine(toy.problem)
    for made in (ours, theirs):
        shared = made.begin(solver, (toy.phi.copy(), toy.lam))
        made.keep()
        one_epoch(made, solver, shared, made.evaluate(toy.lam), rng=np.random.default_rng(0))
    for _ in range(3):
        found = []
        for made in (ours, theirs):
            shared = made.restart(solver, toy.lam, kept=True)
            first = made.evaluate(toy.lam)
            shared = one_epoch(made, solver, shared, first, rng=np.random.default_rng(0))
            found.append((first.neg_elbo, made.evaluate(shared.lam).neg_elbo))
        assert found[0] == found[1]


def test_workers_hold_the_patches_of_one_run_and_none_after_it(here):
    toy = make_toy(n_patches=6)
    made = ClusterEngine(here, toy.problem)
    for _ in range(2):  # a fit begins again where a worker has left
        made.begin(_solver(), (toy.phi, toy.lam))
        assert sorted(b for own in worker._STORED.values() for b in own) == list(range(6))
    made.close()
    made.close()
    assert not worker._STORED


def test_the_end_of_a_run_does_not_need_the_scheduler(here):
    """It may be gone after the last epoch, and the result is here."""
    toy = make_toy(n_patches=6)
    made = ClusterEngine(here, toy.problem)
    made.begin(_solver(), (toy.phi, toy.lam))
    here.has_scheduler = False
    made.close()


def test_a_worker_that_leaves_again_and_again_ends_the_fit(here):
    toy = make_toy(n_patches=6)
    made = ClusterEngine(here, toy.problem)
    here.left.add("b")
    for _ in range(10):
        with pytest.raises(PatchesLostError):
            made.begin(_solver(), (toy.phi, toy.lam))
    with pytest.raises(ResourceError, match=r"^Workers of the Dask cluster 'here' left 11 times\. See their logs; "):
        made.begin(_solver(), (toy.phi, toy.lam))


def test_too_large_a_step_ends_a_run_without_a_warning_of_a_worker(here):
    toy, solver = make_toy(n_patches=6), make_solver("sgd", SolverSettings(batch_patches=3, step_size=1e4))
    made = ClusterEngine(here, toy.problem)
    end = optimise(made, solver, (toy.phi, toy.lam), rule=StopRule(), rng=np.random.default_rng(0))
    assert end.stop is Stop.NOT_FINITE
