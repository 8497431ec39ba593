import pytest

from spatialpdvi.compare.runs import Run


@pytest.fixture
def make_run():
    """A run with a given course of F, one second an epoch."""

    def make(solver, seed, values, *, scale=2000.0, ari=None, failed=False, converged=False, domains=None, step=None):
        n = len(values)
        trace = {
            "epoch": list(range(n)),
            "seconds": [float(i) for i in range(n)],
            "neg_elbo": values,
            "gradient_norm": [10.0**-i for i in range(n)],
        }
        if ari is not None:
            trace["ari"] = [ari] * n
        return Run(
            solver=solver,
            seed=seed,
            step=step,
            neg_elbo=None if failed else values[-1],
            ari=None if failed else ari,
            scale=scale,
            epochs=n - 1,
            seconds=float(n - 1),
            converged=converged,
            failed=failed,
            trace=trace,
            domains=domains,
        )

    return make
