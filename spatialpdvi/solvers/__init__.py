"""The table of solvers, from which the contract tests and the benchmarks are made.

A solver knows a `spatialpdvi.problems.base.Problem`; it must not know the Potts mixture or where patches are stored. A
new solver is one file, one line here and its name in `spatialpdvi.options.fit.SOLVERS`, where the command line finds it
without an import of numba.
"""

from collections.abc import Iterable

from spatialpdvi.errors import InputError, option
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
    """Make a solver from its name.

    Parameters
    ----------
    name
        A key of `SOLVERS`.
    settings
        Settings; by default the defaults of `SolverSettings`.
    given
        Names of the settings that the user chose.

    Raises
    ------
    InputError
        If there is no such solver, or it does not have a setting that the user chose.
    """
    if name not in SOLVERS:
        raise InputError(f"one of {', '.join(SOLVERS)}", f"{name!r}", option="solver")
    solver = SOLVERS[name]
    for chosen in given:
        if chosen not in solver.options:
            known = ", ".join(option(own) for own in solver.options)
            raise InputError(
                f"an option of {option('solver', name)}",
                option(chosen),
                f"Its options are {known}." if known else "It has no options.",
            )
    return solver(settings or SolverSettings())
