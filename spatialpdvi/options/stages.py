"""The settings of each stage of a fit: the few options that a stage needs, taken from all that a user may set."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from spatialpdvi.options.fit import FitOptions

__all__ = [
    "FeatureSettings",
    "GraphSettings",
    "SmoothingSettings",
    "StartSettings",
    "StateSettings",
    "are_tall",
    "default_n_init",
    "default_n_neighbors",
    "default_n_patches",
    "patches_of_sections",
]

_TALL = 200  # spots for each gene, from which on products of genes cost less than steps of an iterative method
_WIDEST = 5_000  # genes whose products take .2 GB
_FEWEST_RESTARTS, _MOST_RESTARTS = 6, 192  # `n_init`: mixtures at each scale
_RESTARTED_SPOTS = 150_000  # by all mixtures of a scale, which take about as long for any number of spots
_N_NEIGHBORS = 10
_SURROUNDING = 6  # nearest spots on hexagonal lattices, and on average those around a cell


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """Fields have the names and the meaning that `FitOptions` gives them; values were checked there."""

    @classmethod
    def of(cls, options: FitOptions) -> Self:
        """Take the settings of a stage from the options of a fit with one number of domains."""
        return cls._with(options)

    @classmethod
    def _with(cls, options: FitOptions, **own: Any) -> Self:
        """Take all but ``own`` settings from the options."""
        return cls(**{f.name: getattr(options, f.name) for f in fields(cls) if f.name not in own}, **own)


@dataclass(frozen=True, kw_only=True)
class FeatureSettings(_Settings):
    """How features are made of counts, or of the columns that are given, before they are smoothed."""

    n_top_genes: int
    totals: str
    target_sum: float
    transform: str
    clip: float
    n_pcs: int | None  # None for the default, 0 to fit the scaled genes themselves
    n_components: int  # principal components to compute; where n_pcs is 0 they serve the start alone
    correct: str
    memory: str | None
    seed: int

    @classmethod
    def of(cls, options: FitOptions, n_domains: int | None = None) -> Self:
        """Take the settings from the options; a range of K needs the components for its largest, ``n_domains``."""
        n_components = options.components_of(options.n_domains if n_domains is None else n_domains)
        return cls._with(options, n_components=n_components)


@dataclass(frozen=True, kw_only=True)
class SmoothingSettings(_Settings):
    """How many neighbours features are averaged over."""

    smooth: int | None  # None for as many as predict a spot best
    n_domains: int  # bounds the number that is chosen
    across_sections: bool
    seed: int


@dataclass(frozen=True, kw_only=True)
class StartSettings(_Settings):
    """How a start is found on smoothed features."""

    n_domains: int
    init: str | None
    n_init: int
    whiten: bool
    seed: int

    @classmethod
    def of(cls, options: FitOptions, n_spots: int = 1, *, searched: bool = False) -> Self:
        """Take the settings from the options of a fit of so many spots, which is followed by a search or not."""
        few = searched or options.restarts == "best"
        return cls._with(options, n_init=options.n_init or default_n_init(n_spots, few=few))


@dataclass(frozen=True, kw_only=True)
class StateSettings(_Settings):
    """How states are learnt, and how the domains with the lowest F are searched for."""

    n_domains: int
    n_states: int  # C
    if_distinct: bool  # whether there are no states where single spots do not tell them apart
    search: int | None  # rounds; None for the default
    seed: int
    memory: str | None = None

    @classmethod
    def of(cls, options: FitOptions, n_states: int = 0) -> Self:
        """Take the settings from the options of a fit, with the number of states that they stand for."""
        return cls._with(options, n_states=n_states, if_distinct=options.states == "auto")


@dataclass(frozen=True, kw_only=True)
class GraphSettings(_Settings):
    """How spots are joined, how edges are weighed, and how many patches the section is divided into."""

    n_neighbors: int | None  # None for the default
    flow_neighbors: int
    tau: float
    anisotropy: float
    beta: float
    across_sections: bool
    n_patches: int | None  # None for the default
    batch_patches: int | None  # None for the default of the solver
    cross_patch_edges: bool


def default_n_init(n_spots: int, *, few: bool = False) -> int:
    """Return how many Gaussian mixture restarts there are at each scale by default.

    There are 192 up to 781 spots, then as many as take about the same time (48 at 3,125 spots), and at least 6. The
    more there are, the less their consensus depends on the seed.

    Parameters
    ----------
    n_spots
        n.
    few
        Whether 6 are enough: where a search follows, which has other starts too, or a fit from each restart.
    """
    if few:
        return _FEWEST_RESTARTS
    return min(_MOST_RESTARTS, max(_FEWEST_RESTARTS, _RESTARTED_SPOTS // n_spots))


def default_n_neighbors(averaged: int | None = None) -> int:
    """Return how many nearest spots of a spot are joined to it by default.

    There are ten. Where the features of a domain's one Gaussian are averages over fewer spots, which were chosen
    because tissue changes within them, there are as many, and at least the six that surround a spot: edges that reach
    further would blur layers that the averages keep.

    Parameters
    ----------
    averaged
        Number of nearest spots over which the fitted features are averaged; None, or 0, where they are not.
    """
    return min(_N_NEIGHBORS, max(_SURROUNDING, averaged)) if averaged else _N_NEIGHBORS


def are_tall(shape: tuple[int, int]) -> bool:
    """Whether principal components of sparse features of this shape need only two passes over blocks of spots."""
    return shape[1] <= _WIDEST and shape[0] >= _TALL * shape[1]


def patches_of_sections(sizes: Sequence[int], n_patches: int) -> list[int]:
    """Return the number of patches of each section, by its number of spots; each has at least one."""
    n = sum(sizes)
    return [max(1, round(n_patches * size / n)) for size in sizes]


def default_n_patches(n_spots: int, batch: int = 1) -> int:
    """Return the default number of patches: about 30 at 150,000 spots, 9 at 3,600 and 2 at 60, times ``batch``.

    It grows with the cube root of the number of spots. The more patches are updated at once, the more are needed for
    the same number of steps in an epoch.
    """
    return max(1, min(n_spots, batch * round(30.0 * (n_spots / 150_000.0) ** (1.0 / 3.0))))
