"""What is compared, checked before anything is read; light, since the command line asks it for its defaults."""

from dataclasses import dataclass

from spatialpdvi.errors import InputError
from spatialpdvi.options import SOLVERS, FitOptions

__all__ = ["DEFAULT_SEEDS", "DEFAULT_TUNE_EPOCHS", "Plan", "parse_solvers"]

DEFAULT_SEEDS = 5
DEFAULT_TUNE_EPOCHS = 10


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Solvers, seeds and the fit they share.

    Parameters
    ----------
    options
        Everything but solver and seed, which the comparison sets itself.
    solvers
        Names in the registry, in the order of table and pictures.
    n_seeds
        Seeds are 0, 1, ..., n_seeds - 1; each has a start of its own.
    tune_epochs
        Epochs of every trial in the search for a step, for solvers that have one.

    Raises
    ------
    InputError
        Where a solver is unknown or named twice, or a number is below 1.
    """

    options: FitOptions
    solvers: tuple[str, ...] = SOLVERS
    n_seeds: int = DEFAULT_SEEDS
    tune_epochs: int = DEFAULT_TUNE_EPOCHS

    def __post_init__(self) -> None:
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
