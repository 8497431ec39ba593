"""Single steps of the solvers, against their formulas."""

import numpy as np
import pytest
from conftest import make_toy

from spatialpdvi.engines import LocalEngine
from spatialpdvi.fitting.loop import StopRule, optimise
from spatialpdvi.problems.base import blockwise
from spatialpdvi.solvers import SolverSettings, make_solver, pdvi


def _gradients(toy, n, *, seed):
    rng = np.random.default_rng(seed)
    return [blockwise(lambda v: rng.normal(size=v.shape), toy.lam) for _ in range(n)]


def _begun(name, toy, **settings):
    solver, problem = make_solver(name, SolverSettings(**settings)), toy.problem
    shared = solver.init_shared(problem, toy.lam, [])
    return solver, solver.begin_epoch(problem, shared, problem.evaluate(toy.phi, toy.lam), tuple)


def test_sgd_rmsprop_and_adam_take_the_steps_of_their_papers(toy):
    """Against running means that are summed anew; messages of two patches are scaled to all of them."""
    width = [1.0 / np.sqrt(block.max()) for block in toy.problem.evaluate(toy.phi, toy.lam).curvature]
    pairs, n = [_gradients(toy, 2, seed=t) for t in range(5)], toy.problem.n_patches
    solver, shared = _begun("sgd", toy, step_size=0.3, batch_patches=2)
    after = solver.merge(toy.problem, shared, pairs[0])
    for block, w in enumerate(width):
        step = 0.3 * w**2 * n / 2 * (pairs[0][0][block] + pairs[0][1][block])
        np.testing.assert_allclose(shared.lam[block] - after.lam[block], step, rtol=1e-9)
    for name, (a, b), corrected in (("rmsprop", (0.0, 0.9), False), ("adam", (0.9, 0.999), True)):
        solver, shared = _begun(name, toy, step_size=0.3, batch_patches=2)
        for t, pair in enumerate(pairs, start=1):
            before, shared = shared.lam, solver.merge(toy.problem, shared, pair)
            ages = np.arange(t)[::-1]
            for block, w in enumerate(width):
                g = n / 2 * np.stack([one[block] + other[block] for one, other in pairs[:t]])
                first = np.tensordot((1 - a) * a**ages if a else (ages == 0), g, 1)
                second = np.tensordot((1 - b) * b**ages, g**2, 1)
                if corrected:
                    first, second = first / (1 - a**t), second / (1 - b**t)
                np.testing.assert_allclose(
                    before[block] - shared.lam[block], 0.3 * w * first / np.sqrt(second), rtol=1e-4
                )


def test_a_step_of_svi_is_never_longer_than_the_whole_way(toy):
    ends = [
        optimise(
            LocalEngine(toy.problem),
            make_solver("svi", SolverSettings(step_size=size, batch_patches=4)),
            (toy.phi.copy(), toy.lam),
            rule=StopRule(max_epochs=2),
            rng=np.random.default_rng(0),
        )
        for size in (1.0, 2.5)
    ]
    np.testing.assert_array_equal(ends[0].lam.m, ends[1].lam.m)
    np.testing.assert_array_equal(ends[0].lam.rho, ends[1].lam.rho)


@pytest.mark.parametrize("name", ["svi", "pg-svi", "adam", "cv"])
@pytest.mark.parametrize("rounds", [1, 4])
def test_a_visit_has_as_many_sweeps_as_were_chosen(toy, name, rounds):
    solver, engine = make_solver(name, SolverSettings(inner_rounds=rounds)), LocalEngine(toy.problem)
    phi, expected = toy.phi.copy(), toy.phi.copy()
    shared = engine.begin(solver, (phi, toy.lam))
    shared = solver.begin_epoch(toy.problem, shared, engine.evaluate(toy.lam), engine.patch_states)
    engine.visit(shared, np.array([1]))
    for _ in range(rounds):
        toy.problem.update_locals(expected, 1, toy.problem.halo(toy.phi, 1), toy.lam)
    np.testing.assert_array_equal(phi, expected)


@pytest.mark.parametrize("name", ["p2dvi", "pdvi", "memoized", "svi", "adam", "cv"])
def test_patches_come_in_another_order_in_every_epoch_and_with_every_seed(name):
    solver = make_solver(name)

    def epochs(seed):
        rng = np.random.default_rng(seed)
        return [np.concatenate(solver.batches(12, rng)).tolist() for _ in range(3)]

    first, other = epochs(0), epochs(1)
    assert all(sorted(order) == list(range(12)) for order in (*first, *other))
    assert len({tuple(order) for order in (*first, *other)}) == 6
    assert epochs(0) == first


def test_caution_that_an_epoch_raised_above_the_largest_stays(toy):
    """After replaced epochs with a small factor of the user, caution may be above `MOST_CAUTION`; it never falls."""
    solver = make_solver("p2dvi", SolverSettings(step_factor=0.125))
    phi, lam = toy.phi.copy(), toy.lam
    shared = LocalEngine(toy.problem).begin(solver, (phi, lam))._replace(caution=512.0)
    start = toy.problem.evaluate(phi, lam)
    duals = [solver.init_patch(toy.problem, phi, b, lam)[0] for b in range(toy.problem.n_patches)]
    for epoch in range(3 * pdvi.PATIENCE):
        evaluation = start._replace(neg_elbo=float(epoch % 2))
        shared = solver.begin_epoch(toy.problem, shared, evaluation, lambda: duals)
    assert shared.caution == 512.0


@pytest.mark.parametrize("rounds", [1, 3])
def test_one_step_of_algorithm_one_is_that_of_the_paper(rounds):
    """Lines 3 to 5 for a batch of two of five patches: h takes 1/B of the way, B the number of all patches."""
    toy = make_toy(n_patches=5)
    solver, problem = make_solver("p2dvi", SolverSettings(batch_patches=2, inner_rounds=rounds)), toy.problem
    engine, phi = LocalEngine(problem), toy.phi.copy()
    shared = engine.begin(solver, (phi, toy.lam))
    shared = solver.begin_epoch(problem, shared, engine.evaluate(toy.lam), engine.patch_states)
    duals = engine.patch_states()
    for block in range(2):  # h = eta * mean dual
        np.testing.assert_allclose(
            shared.h[block] * shared.inv_step[block], sum(dual[block] for dual in duals) / 5, rtol=1e-12
        )
    expected, before = [], phi.copy()
    for b in (1, 3):  # line 2 alternates between the posteriors and the copy of the globals
        halo, copy = problem.halo(before, b), shared.lam
        rows = slice(problem.patches[b].start, problem.patches[b].stop)
        own = before.copy()
        for _ in range(rounds):
            problem.update_locals(own, b, halo, copy)
            statistics = problem.statistics(own, b, copy)
            copy = problem.augmented_globals(statistics, b, shared.lam, duals[b], shared.inv_step)
        expected.append((rows, own[rows]))
    messages = engine.visit(shared, np.array([1, 3]))
    for rows, own in expected:
        np.testing.assert_array_equal(phi[rows], own)
    after = solver.merge(problem, shared, messages)
    for block in range(2):
        copies, old = [own[block] for own in messages], shared.lam[block]
        h = shared.h[block] + sum(copy - old for copy in copies) / 5
        np.testing.assert_allclose(after.h[block], h, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(after.lam[block], sum(copies) / 2 + h, rtol=1e-9, atol=1e-12)
        for b, copy in zip((1, 3), copies, strict=True):
            moved = engine.patch_states()[b][block] - duals[b][block]
            np.testing.assert_allclose(moved, (copy - old) * shared.inv_step[block], rtol=1e-9, atol=1e-9)


def test_the_scalar_step_of_pd_vi_follows_the_factor_of_the_user(toy):
    largest = max(float(block.max()) for block in toy.problem.evaluate(toy.phi, toy.lam).visit_curvature)
    for factor in (1.0, 2.0):
        solver, engine = make_solver("pdvi", SolverSettings(step_factor=factor)), LocalEngine(toy.problem)
        shared = engine.begin(solver, (toy.phi.copy(), toy.lam))
        shared = solver.begin_epoch(toy.problem, shared, engine.evaluate(toy.lam), engine.patch_states)
        assert set(np.unique(np.concatenate([block.ravel() for block in shared.inv_step]))) == {factor * largest}


def test_each_window_of_caution_counts_for_itself(toy):
    """Rises, and the best stationarity, are those of one window: 2 rises in each of two are no circle."""
    solver = make_solver("p2dvi")
    shared = LocalEngine(toy.problem).begin(solver, (toy.phi.copy(), toy.lam))
    start = toy.problem.evaluate(toy.phi, toy.lam)
    start = start._replace(stationarity=dict.fromkeys(start.stationarity, 0.0))
    duals = [solver.init_patch(toy.problem, toy.phi, b, toy.lam)[0] for b in range(toy.problem.n_patches)]

    def window(shared, rises, worst):
        for epoch in range(pdvi.PATIENCE):
            f = shared.neg_elbo + (1.0 if epoch < rises else -1.0) if np.isfinite(shared.neg_elbo) else 0.0
            shared = solver.begin_epoch(
                toy.problem, shared, start._replace(neg_elbo=f, residual_mean=worst), lambda: duals
            )
        return shared

    slow = window(window(window(shared, 0, 0.5), 2, 0.5), 2, 0.5)
    assert (slow.caution, slow.rises, slow.best) == (1.0, 0, np.inf)
    # stationarity jumps and falls again: each window is compared with the one before, not with the best so far
    circling = window(window(window(shared, 0, 0.1), 5, 0.5), 5, 0.4)
    assert circling.caution == pdvi.CAUTION  # only the second window was no better than the one before


@pytest.mark.parametrize("name", ["sgd", "svi", "cv"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_batches_estimate_the_sum_over_all_patches_without_bias(name, size):
    """Also where the last batches lack a patch: the mean over an epoch is the sum over all patches."""
    toy = make_toy(n_patches=5)
    solver = make_solver(name, SolverSettings(batch_patches=size))
    batches = solver.batches(5, np.random.default_rng(0))
    scale = solver.n_batches(toy.problem)
    assert sorted(np.concatenate(batches)) == list(range(5))
    assert scale == len(batches)


def test_a_step_of_sgd_at_the_optimum_is_nothing_on_average():
    """Five patches in batches of two, of which the last one has one patch."""
    toy = make_toy(n_patches=5)
    solver, shared = _begun("sgd", toy, step_size=0.3, batch_patches=2)
    sent = _gradients(toy, 5, seed=0)
    mean = blockwise(lambda *parts: sum(parts) / 5, *sent)
    sent = [blockwise(np.subtract, one, mean) for one in sent]  # they sum to nothing
    steps = [
        blockwise(np.subtract, solver.merge(toy.problem, shared, [sent[patch] for patch in batch]).lam, shared.lam)
        for batch in solver.batches(5, np.random.default_rng(1))
    ]
    for block in blockwise(lambda *parts: sum(parts), *steps):
        np.testing.assert_allclose(block, 0.0, atol=1e-12)
