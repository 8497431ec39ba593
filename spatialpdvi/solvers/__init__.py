"""The one table of solvers: the command line's choices, the contract tests and the benchmarks are read from it.

A solver knows a `spatialpdvi.problems.base.Problem`, never the Potts mixture. A new one is one file and one line.
"""

from collections.abc import Iterable

from spatialpdvi.errors import InputError
from spatialpdvi.solvers.base import Solver, SolverSettings
from spatialpdvi.solvers.coordinate_ascent import CAVI, Memoized, RandomScanCAVI
from spatialpdvi.solvers.gradient import SGD, Adam, ControlVariate, RMSProp
from spatialpdvi.solvers.natural_gradient import PGSVI, SNGVI, SVI, RobbinsMonroSVI
from spatialpdvi.solvers.pdvi import P2DVI, PDVI

__all__ = ["SOLVERS", "Solver", "SolverSettings", "make_solver"]

SOLVERS: dict[str, type[Solver]] = {
    "p2dvi": P2DVI,
    "pdvi": PDVI,
    "cavi": CAVI,
    "rs-cavi": RandomScanCAVI,
    "memoized": Memoized,
    "svi": SVI,
    "svi-rm": RobbinsMonroSVI,
    "pg-svi": PGSVI,
    "sngvi": SNGVI,
    "sgd": SGD,
    "rmsprop": RMSProp,
    "adam": Adam,
    "cv": ControlVariate,
}


def make_solver(name: str, settings: SolverSettings | None = None, *, given: Iterable[str] = ()) -> Solver:
    """Solver by its name in `SOLVERS`.

    ``given`` names the settings that a user chose; one that the solver does not have is an `InputError`.
    """
    if name not in SOLVERS:
        msg = f"Expected `--solver` to be one of {', '.join(SOLVERS)}, found {name!r}."
        raise InputError(msg)
    solver = SOLVERS[name]
    for option in given:
        if option not in solver.options:
            has = ", ".join(_flag(known) for known in solver.options) or "none"
            msg = f"Expected an option of `--solver {name}`, found {_flag(option)}. Its options: {has}."
            raise InputError(msg)
    return solver(settings or SolverSettings())


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
