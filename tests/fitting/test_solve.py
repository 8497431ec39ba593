"""What runs of the solver take from the options of a fit, from its starts, and from a checkpoint."""

from contextlib import nullcontext

import numpy as np
import pytest

import spatialpdvi
from spatialpdvi import Checkpoint, FitOptions, InputWarning
from spatialpdvi.engines import LocalEngine, PatchesLostError
from spatialpdvi.fitting.loop import optimise
from spatialpdvi.fitting.solve import SolverRun

QUICK = {"k": 4, "rep": "X_pca", "states": "off", "n_init": 1, "restarts": "best"}


def test_a_run_takes_its_settings_from_the_options():
    chosen = {"batch_patches": 3, "inner_rounds": 2, "duals": "zero", "step_factor": 4.0}
    steps = {"step_mean": 0.01, "step_log_variance": 1.0}
    run = SolverRun.of(FitOptions(k=2, seed=5, tol=1e-3, tol_objective=1e-6, max_epochs=7, **steps, **chosen))
    assert run.solver.settings.steps == (0.01, 1.0)
    assert {name: getattr(run.solver.settings, name) for name in chosen} == chosen
    assert (run.rule.tolerance, run.rule.relative_change, run.rule.max_epochs) == (1e-3, 1e-6, 7)
    assert (run.seed, run.every_restart) == (5, False)
    assert SolverRun.of(FitOptions(k=2, restarts="best")).every_restart


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")  # a few epochs show what is asked
def test_the_best_of_several_starts_ends_with_the_lowest_objective(toy_section, monkeypatch):
    """Each is visited in the order of the seed, and one whose F is not finite never wins."""
    orders, ends = [], []

    def noted(*given, rng, **settings):
        orders.append(rng.bit_generator.state)
        found = optimise(*given, rng=rng, **settings)
        if not ends:
            row = found.trace[-1]
            row = row._replace(evaluation=row.evaluation._replace(neg_elbo=np.nan))
            found = found._replace(trace=[*found.trace[:-1], row])
        ends.append(found.trace[-1].evaluation.neg_elbo)
        return found

    monkeypatch.setattr("spatialpdvi.fitting.solve.optimise", noted)
    result = spatialpdvi.fit(toy_section.copy(), **QUICK, max_epochs=5, seed=3)
    assert len(ends) == 1 + result.params["n_restarts"] == 7
    assert result.trace["neg_elbo"][-1] == np.nanmin(ends) < np.nanmax(ends)
    assert orders == [np.random.default_rng(3).bit_generator.state] * 7


@pytest.mark.filterwarnings("ignore:Not converged:spatialpdvi.InputWarning")
def test_patches_that_are_lost_before_a_start_is_saved_are_not_those_of_the_start_before(
    toy_section, tmp_path, monkeypatch
):
    class Losing(LocalEngine):
        begun, lost = 0, False

        def begin(self, solver, start):
            self.begun += 1
            return super().begin(solver, start)

        def visit(self, shared, batch):
            if self.begun == 2 and not self.lost:  # the last checkpoint is of the first start
                self.lost = True
                raise PatchesLostError("A worker left.")
            return super().visit(shared, batch)

    chosen = QUICK | {"solver": "cavi", "max_epochs": 3}
    straight = spatialpdvi.fit(toy_section.copy(), **chosen)
    monkeypatch.setattr(
        "spatialpdvi.fitting.fit.engine_of",
        lambda prepared, _: nullcontext(Losing(prepared.problem, codes=prepared.codes)),
    )
    with pytest.warns(InputWarning, match=r"^A worker left\. The fit goes on from the start\.$"):
        result = spatialpdvi.fit(toy_section.copy(), checkpoint=Checkpoint(tmp_path / "kept", every=1), **chosen)
    np.testing.assert_array_equal(result.posterior, straight.posterior)
    np.testing.assert_array_equal(result.trace["neg_elbo"], straight.trace["neg_elbo"])
