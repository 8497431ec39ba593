"""Every solver goes on from a file to the same bits, at whatever epoch it was cut."""

import numpy as np
import pytest

from spatialpdvi.checkpoints import named_types, pack, same_shapes, unpack
from spatialpdvi.engines import LocalEngine
from spatialpdvi.fitting.loop import Best, StopRule, TraceRow, Underway, optimise
from spatialpdvi.io.storage.archive import read_archive, write_archive
from spatialpdvi.problems.base import Evaluation
from spatialpdvi.solvers import SOLVERS, SolverSettings, make_solver
from spatialpdvi.solvers.base import State

pytestmark = pytest.mark.slow

RULE = StopRule(1e-12, 1e-15, 24)  # P2D-VI grows cautious at its tenth and twentieth epoch


def _same(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            _same(left, right)
    else:
        assert a == b


def _without_seconds(rows):
    return [(row.epoch, *row.evaluation) for row in rows]


# the last has steps so large that epochs are replaced: a checkpoint then also has the best point so far
CASES = [
    (name, settings)
    for settings in ({}, {"batch_patches": 3}, {"step_factor": 1e-3})
    for name in SOLVERS
    if set(settings) <= set(make_solver(name, SolverSettings()).options)
]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=str)
def test_a_run_that_is_read_from_a_file_ends_with_the_same_bits(name, settings, toy, tmp_path):
    kept = {}
    rng = np.random.default_rng(2)

    def keep(epoch, underway):
        run = underway()
        assert epoch == run.row.epoch
        description, arrays = pack((run, dict(rng.bit_generator.state)))
        path = tmp_path / f"{run.row.epoch}"
        write_archive(path, arrays, {"value": description}, option="checkpoint", compress=False)
        kept[run.row.epoch] = path

    def solver():
        return make_solver(name, SolverSettings(**settings))

    def start():
        return toy.phi.copy(), toy.lam

    straight = optimise(LocalEngine(toy.problem), solver(), start(), rule=RULE, rng=rng, on_state=keep)
    assert list(kept) == list(range(1, RULE.max_epochs))  # none after the last
    for epoch in (1, 2, 9, 10, 23):
        arrays, facts = read_archive(kept[epoch], option="checkpoint")
        engine = LocalEngine(toy.problem)
        like = engine.state(engine.begin(solver(), start()))
        run, state = unpack(
            facts["value"], arrays, named_types(like, also=(Best, State, Underway, TraceRow, Evaluation))
        )
        assert same_shapes(run.state, like)
        again = np.random.default_rng()
        again.bit_generator.state = state
        end = optimise(LocalEngine(toy.problem), solver(), run, rule=RULE, rng=again)
        _same(end.state, straight.state)
        assert end.stop is straight.stop
        assert end.trace[0].seconds == straight.trace[epoch].seconds
        _same(_without_seconds(end.trace), _without_seconds(straight.trace[epoch:]))
        assert again.bit_generator.state == rng.bit_generator.state
