"""What comes between features and a solver: the start, the graph and the patches."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.engines import LocalEngine
from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.features.build import FeatureSet, RawFeatures, make_features
from spatialpdvi.graph.build import lay_graph
from spatialpdvi.graph.patches import Patching
from spatialpdvi.initialization import (
    Consensus,
    Start,
    consensus,
    in_unit_range,
    noise_rotation,
    one_hot,
    restart_labels,
    start_from_labels,
)
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions, idle_options
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsGlobals, PottsMixture
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Prepared", "Remember", "prepare"]


Labels = tuple[np.ndarray, ...]
# features that restarts see, and what makes their labels -> these, made now or earlier
Remember = Callable[[tuple[np.ndarray, ...], Callable[[], Labels]], Labels]


class Prepared(NamedTuple):
    """A section made into a problem with a start: all that comes before a solver, rows in patch order."""

    problem: PottsMixture
    start: Start  # labels in the user's order
    restarts: tuple[np.ndarray, ...]  # (n,) labels each, in the user's order; empty where labels were given
    agreement: np.ndarray | None  # (n,) of the restarts, in the user's order
    patching: Patching
    normals: np.ndarray  # (n, 3) border normals
    fitted: np.ndarray | sp.csr_matrix  # (n, d) in the user's order
    features: FeatureSet
    codes: np.ndarray | None  # (n,) known labels in patch order, -1 where there is none
    found: dict[str, Any]  # for params
    rotation: np.ndarray | None = None  # (d, d) W; None without

    def initial(self, start: Start | None = None) -> tuple[np.ndarray, PottsGlobals]:
        """Fresh (phi, lambda) at the start, or at another."""
        start = start or self.start
        k = start.lam.m.shape[0]
        return one_hot(start.labels[self.patching.order], k), start.lam

    def other_starts(self) -> list[Start]:
        """A start from each restart, with the hyperparameters of their consensus: their F can be compared."""
        k, hyperparameters = self.start.lam.m.shape[0], self.start.hyperparameters
        return [start_from_labels(self.fitted, labels, k, hyperparameters=hyperparameters) for labels in self.restarts]

    def engine(self) -> LocalEngine:
        """The problem's patches in this process."""
        return LocalEngine(self.problem, codes=self.codes)


def prepare(
    section: Section,
    options: FitOptions,
    progress: Progress,
    *,
    features: FeatureSet | None = None,
    raw: RawFeatures | None = None,
    remember: Remember | None = None,
) -> Prepared:
    """Features, start, graph and patches of a section: everything but the solver.

    ``features`` are those of `make_features`, where several starts share them; ``raw`` those of `raw_features`, where
    several numbers of domains do. ``remember`` may hand out the labels of restarts that an earlier call made of the
    same features.

    Raises
    ------
    InputError
        Where the options do not fit the section: more domains or patches than spots, features that cannot be made.
    """
    n = section.coordinates.shape[0]
    _check_sizes(n, options)
    for idle, chosen in idle_options(options):
        msg = f"{option(idle)} has no effect together with {option(chosen)}, and is not used."
        warnings.warn(msg, InputWarning, stacklevel=2)
    if features is None:
        features = make_features(section, options, progress, raw=raw)
    with progress.stage("start") as stage, single_threaded():
        restarts: tuple[np.ndarray, ...] = ()
        agreement, found = None, dict(features.found)
        labels = _given_labels(section, options)
        if labels is None:
            restarts, agreed = _restart(features, options, remember or _make)
            labels, agreement = agreed.labels, agreed.agreement
            found |= {"n_restarts": len(restarts), "restart_ari": agreed.similarity, "restart_accord": agreed.accord}
            found["start"] = "consensus" if agreed.collapsed is None else "restart"
            stage.note(f"{len(restarts)} restarts, ARI {agreed.similarity:.2f} between two")
        fitted, rotation = features.base, None
        if options.whiten and isinstance(fitted, np.ndarray):
            rotation = noise_rotation(fitted, labels, options.n_domains)
            fitted = (fitted @ rotation).astype(fitted.dtype)
        start = start_from_labels(fitted, labels, options.n_domains)
    with progress.stage("graph") as stage:
        normals, patching = lay_graph(section, fitted, labels, options, stage)
    problem = PottsMixture(wrap_features(fitted[patching.order]), patching.patches, start.hyperparameters)
    codes = None if section.labels is None else section.labels.codes[patching.order].astype(np.int64)
    store = features.store or fitted is not features.base
    features = features._replace(views=(), store=store)
    return Prepared(problem, start, restarts, agreement, patching, normals, fitted, features, codes, found, rotation)


def _given_labels(section: Section, options: FitOptions) -> np.ndarray | None:
    labels = section.init_labels
    if labels is not None and labels.max() >= options.n_domains:
        msg = (
            f"Expected `--init` to name at most --k {options.n_domains} labels, found {labels.max() + 1} in "
            f"obs[{options.init!r}]. Raise --k or start from another column."
        )
        raise InputError(msg)
    return labels


def _make(views: tuple[np.ndarray, ...], make: Callable[[], Labels]) -> Labels:
    return make()


def _restart(features: FeatureSet, options: FitOptions, remember: Remember) -> tuple[Labels, Consensus]:
    """Restarts on every scale, and their consensus."""
    k = options.n_domains

    def make() -> Labels:
        return restart_labels(map(in_unit_range, features.views), k, n_init=options.n_init, seed=options.seed)

    restarts = remember(features.views, make)
    agreed = consensus(restarts, k)
    if agreed.collapsed is not None:
        msg = (
            f"Expected restarts to agree on {k} domains, found that they agree on {agreed.collapsed} at the most "
            f"({k} have {features.smoothed.shape[0] / k:,.1f} spots each). The start is the restart that is most like "
            "all others instead. Lower --k to have what they agree on."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return restarts, agreed


def _check_sizes(n: int, options: FitOptions) -> None:
    for flag, value in (("--k", options.n_domains), ("--n-patches", options.n_patches), ("--smooth", options.smooth)):
        if value is not None and value > n:
            msg = f"Expected `{flag}` to be at most the number of spots, {n}, found {value}. Lower it."
            raise InputError(msg)
