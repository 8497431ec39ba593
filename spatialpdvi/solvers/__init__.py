"""The one table of solvers: the command line's choices, the contract tests and the benchmarks are read from it.

A solver knows a `spatialpdvi.problems.base.Problem`, never the Potts mixture. A new one is one file and one line.
"""

from collections.abc import Callable

from spatialpdvi.errors import InputError
from spatialpdvi.solvers.base import Solver, SolverSettings
from spatialpdvi.solvers.coordinate_ascent import CAVI, Memoized
from spatialpdvi.solvers.pdvi import P2DVI, PDVI

__all__ = ["SOLVERS", "Solver", "SolverSettings", "make_solver"]

SOLVERS: dict[str, Callable[[SolverSettings], Solver]] = {
    "p2dvi": P2DVI,
    "pdvi": PDVI,
    "cavi": CAVI,
    "memoized": Memoized,
}


def make_solver(name: str, settings: SolverSettings | None = None) -> Solver:
    """Solver by its name in `SOLVERS`."""
    if name not in SOLVERS:
        msg = f"Expected `--solver` to be one of {', '.join(SOLVERS)}, found {name!r}."
        raise InputError(msg)
    return SOLVERS[name](settings or SolverSettings())
