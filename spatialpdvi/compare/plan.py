"""What is compared, checked before anything is read; light, since the command line asks it for its defaults."""

from dataclasses import dataclass

from spatialpdvi.errors import InputError
from spatialpdvi.options.fit import SOLVER_OPTIONS, SOLVERS, FitOptions, option_table

__all__ = ["DEFAULT_SEEDS", "DEFAULT_TUNE_EPOCHS", "SHARED", "Plan", "parse_solvers"]

DEFAULT_SEEDS = 5
DEFAULT_TUNE_EPOCHS = 10

# options of a fit that a comparison has no use for, and why
_REFUSED = {
    "solver": "name the solvers with --solvers",
    "seed": "its seeds are 0, 1, ...; choose how many with --seeds",
    "restarts": "all solvers of a seed begin at one start",
    "key_added": "nothing is written into the section",
    "save_graph": "nothing is written into the section",
    **dict.fromkeys(SOLVER_OPTIONS, "steps are tuned and all else is the solver's own"),
}
# those that it shares with a fit
SHARED = tuple(row["name"] for row in option_table() if row["name"] not in _REFUSED)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Solvers, seeds and the fit they share.

    Parameters
    ----------
    options
        Those in `SHARED`; all others are as they are by default.
    solvers
        Names in the registry, in the order of table and pictures.
    n_seeds
        Seeds are 0, 1, ..., n_seeds - 1; each has a start of its own.
    tune_epochs
        Epochs of every trial in the search for a step, for solvers that have one.

    Raises
    ------
    InputError
        Where a solver is unknown or named twice, a number is below 1, or an option is not of a comparison.
    """

    options: FitOptions
    solvers: tuple[str, ...] = SOLVERS
    n_seeds: int = DEFAULT_SEEDS
    tune_epochs: int = DEFAULT_TUNE_EPOCHS

    def __post_init__(self) -> None:
        for row in option_table():
            value = getattr(self.options, row["name"])
            if row["name"] in _REFUSED and value != row["default"]:
                reason = _REFUSED[row["name"]]
                msg = f"Expected no `{row['flag']}` in a comparison, found {value!r}: {reason}. Leave it out."
                raise InputError(msg)
        _ = self.options.n_domains  # refuses a range of them: solvers are compared on one objective
        unknown = [name for name in self.solvers if name not in SOLVERS]
        if unknown or not self.solvers:
            found = ", ".join(map(repr, unknown)) or "none"
            msg = f"Expected `--solvers` to be some of {', '.join(SOLVERS)}, found {found}. Separate them by commas."
            raise InputError(msg)
        twice = sorted({name for name in self.solvers if self.solvers.count(name) > 1})
        if twice:
            msg = f"Expected `--solvers` to name each solver once, found {', '.join(twice)} twice. Name it once."
            raise InputError(msg)
        for flag, value in (("--seeds", self.n_seeds), ("--tune-epochs", self.tune_epochs)):
            if value < 1:
                msg = f"Expected `{flag}` to be at least 1, found {value}."
                raise InputError(msg)


def parse_solvers(text: str | None) -> tuple[str, ...]:
    """Names from ``a,b,c``; all solvers for None. `Plan` checks them."""
    if text is None:
        return SOLVERS
    return tuple(name for part in text.split(",") if (name := part.strip()))
