"""What is compared, and checks of it. No heavy imports here: the help of the command line shows these defaults."""

from dataclasses import dataclass

from spatialpdvi.errors import InputError, option
from spatialpdvi.options.fit import SOLVER_OPTIONS, SOLVERS, FitOptions, option_table

__all__ = ["DEFAULT_SEEDS", "DEFAULT_TUNE_EPOCHS", "SHARED", "ComparisonPlan", "parse_solvers"]

DEFAULT_SEEDS = 5
DEFAULT_TUNE_EPOCHS = 10

# options of a fit that a comparison cannot use, and why
_UNUSED = {
    "solver": f"Name the solvers with {option('solvers')}.",
    "seed": f"The seeds are 0, 1, ...; choose their number with {option('seeds')}.",
    "restarts": "For each seed all solvers begin at the same start.",
    "key_added": "Nothing is written into the section.",
    "save_graph": "Nothing is written into the section.",
    **dict.fromkeys(
        (name for name in SOLVER_OPTIONS if name != "duals"),
        "Step sizes are tuned, and each solver has its default settings.",
    ),
}
# options of a fit that all solvers of a comparison share
SHARED = tuple(row["name"] for row in option_table() if row["name"] not in _UNUSED)


@dataclass(frozen=True, kw_only=True)
class ComparisonPlan:
    """The solvers and seeds of a comparison, and the options that all its fits share.

    Parameters
    ----------
    options
        Options of the fits. All options that are not in `SHARED` must have their defaults.
    solvers
        Names of solvers, in the order of the table and the pictures.
    n_seeds
        Number of seeds. They are 0, 1, ..., n_seeds - 1, and each has its own start.
    tune_epochs
        Number of epochs of each trial in the search for a step size.
    constant_steps
        Whether P2D-VI has one constant step for each block, which is tuned as well.

    Raises
    ------
    InputError
        Where a solver is unknown or named twice, a number is below 1, or an option cannot be used in a comparison.
    """

    options: FitOptions
    solvers: tuple[str, ...] = SOLVERS
    n_seeds: int = DEFAULT_SEEDS
    tune_epochs: int = DEFAULT_TUNE_EPOCHS
    constant_steps: bool = False

    def __post_init__(self) -> None:
        for row in option_table():
            value = getattr(self.options, row["name"])
            if row["name"] in _UNUSED and value != row["default"]:
                raise InputError(
                    f"no {option(row['name'])} in a comparison", repr(value), f"{_UNUSED[row['name']]} Leave it out."
                )
        _ = self.options.n_domains  # raises for a range of numbers: the solvers must share one objective
        unknown = [name for name in self.solvers if name not in SOLVERS]
        if unknown or not self.solvers:
            raise InputError(f"some of {', '.join(SOLVERS)}", ", ".join(map(repr, unknown)) or "none", option="solvers")
        twice = sorted({name for name in self.solvers if self.solvers.count(name) > 1})
        if twice:
            raise InputError("different solvers", f"{', '.join(twice)} twice", option="solvers")
        for name, value in (("seeds", self.n_seeds), ("tune_epochs", self.tune_epochs)):
            if value < 1:
                raise InputError("at least 1", str(value), option=name)


def parse_solvers(text: str | None) -> tuple[str, ...]:
    """Return the names in ``a,b,c``, or all solvers for None. `ComparisonPlan` checks them."""
    if text is None:
        return SOLVERS
    return tuple(name for part in text.split(",") if (name := part.strip()))
