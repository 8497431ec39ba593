"""The options of a simulated section, with their defaults and checks."""

from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError, option
from spatialpdvi.options.validation import check_seed, read_value

__all__ = ["Simulation"]

_DEPTH, _GENES, _GROWTH = 2300.0, 8000, 0.2  # molecules of a spot with so many genes, and the power of more genes


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """The arguments of `spatialpdvi.simulate`, which says what they mean.

    Raises
    ------
    InputError
        Where one has the wrong type, or is out of its range.
    """

    n_spots: int = 20_000
    n_genes: int = 8_000
    k: int = 20
    seed: int = 0
    spacing: float = 25.0
    depth: float | None = None
    signal: float = 1.0
    easy: bool = False
    background: int = 0

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, read_value(f, getattr(self, f.name)))
        if self.k < 2:
            raise InputError("at least 2", f"{self.k}", option="k")
        if self.n_spots < self.k:
            raise InputError(
                "at least one spot per domain",
                f"{self.n_spots} spots for {self.k} domains",
                f"Raise {option('n_spots')} or lower {option('k')}.",
            )
        if self.n_genes < 20:
            raise InputError("at least 20", f"{self.n_genes}", option="n_genes")
        if self.background < 0:
            raise InputError("at least 0", f"{self.background:,}", option="background")
        check_seed(self.seed)
        for name, value in (("spacing", self.spacing), ("depth", self.mean_depth)):
            if not (np.isfinite(value) and value > 0):
                raise InputError("a finite number above 0", f"{value}", option=name)
        if not (np.isfinite(self.signal) and self.signal >= 0):
            raise InputError(
                "a finite number of at least 0", f"{self.signal}", "The usual contrast is 1.", option="signal"
            )

    @property
    def mean_depth(self) -> float:
        """The mean number of molecules per spot: the given one, or that of the number of genes."""
        return _DEPTH * (self.n_genes / _GENES) ** _GROWTH if self.depth is None else float(self.depth)

    def facts(self) -> dict[str, Any]:
        """Return the parameters in force, for ``uns``."""
        numbers = {"spacing": float(self.spacing), "depth": self.mean_depth, "signal": float(self.signal)}
        return asdict(self) | numbers
