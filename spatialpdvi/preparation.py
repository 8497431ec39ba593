"""What comes between features and a solver: the start, the graph and the patches."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.engines import LocalEngine
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.graph.flow import border_directions
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import weigh_edges
from spatialpdvi.io.sections import Section
from spatialpdvi.options import FitOptions, idle_options
from spatialpdvi.patches import Patching, default_n_patches, make_patches
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_gmm import PottsGlobals, PottsGMM
from spatialpdvi.progress import Progress, Stage
from spatialpdvi.representation import FeatureSet, RawFeatures, make_features
from spatialpdvi.start import (
    Consensus,
    Start,
    consensus,
    in_unit_range,
    noise_rotation,
    one_hot,
    restart_labels,
    start_from_labels,
)
from spatialpdvi.threads import single_threaded

__all__ = ["Prepared", "Remember", "count_crossing", "lay_graph", "prepare"]

_FEW_CROSS = 0.1  # of the spots: with fewer that have an edge into another section the user is told


Labels = tuple[np.ndarray, ...]
# features that restarts see, and what makes their labels -> these, made now or earlier
Remember = Callable[[tuple[np.ndarray, ...], Callable[[], Labels]], Labels]


class Prepared(NamedTuple):
    """A section made into a problem with a start: all that comes before a solver, rows in patch order."""

    problem: PottsGMM
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
        msg = f"Expected no {idle} beside {chosen}, which leaves it nothing to do; {idle} is not used."
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
    problem = PottsGMM(wrap_features(fitted[patching.order]), patching.patches, start.hyperparameters)
    codes = None if section.labels is None else section.labels.codes[patching.order].astype(np.int64)
    store = features.store or fitted is not features.base
    features = features._replace(views=(), store=store)
    return Prepared(problem, start, restarts, agreement, patching, normals, fitted, features, codes, found, rotation)


def lay_graph(
    section: Section,
    fitted: np.ndarray | sp.csr_matrix,
    labels: np.ndarray,
    options: FitOptions,
    stage: Stage,
    *,
    advice: str = "raise --n-neighbors",
) -> tuple[np.ndarray, Patching]:
    """Border normals (n, 3) between start labels (n,), and patches with the edges that they and the features weigh.

    ``advice`` is what is said of spots without neighbours.
    """
    n = section.coordinates.shape[0]
    samples = section.blocks(across=options.across_sections)
    normals = np.empty((n, 3))
    for spots in samples:
        normals[spots] = border_directions(section.coordinates[spots], labels[spots], options.flow_neighbors)
    patching = make_patches(
        section.coordinates,
        _weigh_graph(section, fitted, normals, options, advice=advice),
        options.n_patches or default_n_patches(n, options.batch_patches or 1),
        keep_cross_edges=options.cross_patch_edges,
        samples=samples,
    )
    across = ""
    if options.across_sections:
        across = f", {_check_crossing(section, patching.graph):,} of them across sections"
    stage.note(f"{patching.graph.nnz // 2:,} edges{across}, {len(patching.patches)} patches")
    return normals, patching


def _join_neighbors(section: Section, n_neighbors: int, *, across: bool) -> sp.csr_matrix:
    """Mutual nearest neighbours within each section, or ``across`` sections, (n, n)."""
    n = section.coordinates.shape[0]
    rows, columns = [], []
    for spots in section.blocks(across=across):
        own = mutual_knn(section.coordinates[spots], n_neighbors).tocoo()
        rows.append(spots[own.row])
        columns.append(spots[own.col])
    pair = (np.concatenate(rows), np.concatenate(columns))
    joined = sp.csr_matrix((np.ones(pair[0].size), pair), shape=(n, n))
    joined.sort_indices()
    return joined


def count_crossing(section: Section, graph: sp.csr_matrix) -> tuple[int, int]:
    """Edges between spots of two sections, and spots that have one."""
    if section.samples is None:
        return 0, 0
    codes = np.asarray(section.samples.codes)
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    crosses = codes[rows] != codes[graph.indices]
    return int(crosses.sum()) // 2, int(np.unique(rows[crosses]).size)


def _check_crossing(section: Section, graph: sp.csr_matrix) -> int:
    """Number of edges across sections; where hardly a spot has one, the user is told."""
    crossing, spots = count_crossing(section, graph)
    n = graph.shape[0]
    if spots < _FEW_CROSS * n:
        own, other = _spacings(section)
        msg = (
            f"Expected sections to share edges with --across-sections, found {crossing:,} of {graph.nnz // 2:,} edges "
            f"between two sections, at {spots:,} of {n:,} spots. The nearest spot of the own section is at "
            f"{own:.3g}, of another at {other:.3g} (medians): bring z to the unit of "
            "x and y, bring sections closer, or raise --n-neighbors."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return crossing


def _spacings(section: Section) -> tuple[float, float]:
    """Median distance of a spot to the nearest other one of its section, and to the nearest of another section."""
    xyz, parts = section.coordinates, section.spots_of_samples()
    own = [cKDTree(xyz[spots]).query(xyz[spots], k=2, workers=-1)[0][:, 1] for spots in parts if spots.size > 1]
    other = []
    for spots in parts:
        rest = np.setdiff1d(np.arange(xyz.shape[0]), spots, assume_unique=True)
        other.append(cKDTree(xyz[rest]).query(xyz[spots], workers=-1)[0])
    return float(np.median(np.concatenate(own))) if own else 0.0, float(np.median(np.concatenate(other)))


def _within_samples(graph: sp.csr_matrix, codes: np.ndarray, options: FitOptions) -> sp.csr_matrix:
    """A given graph without its edges between sections, of which the user is told."""
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    within = codes[rows] == codes[graph.indices]
    if within.all():
        return graph
    msg = (
        f"Expected obsp[{options.graph!r}] to join spots of one section of obs[{options.sample_key!r}], found "
        f"{(~within).sum() // 2:,} edges between two; they are left out."
    )
    warnings.warn(msg, InputWarning, stacklevel=2)
    return sp.csr_matrix((graph.data[within], (rows[within], graph.indices[within])), shape=graph.shape)


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


def _weigh_graph(
    section: Section, x: np.ndarray | sp.csr_matrix, normals: np.ndarray, options: FitOptions, *, advice: str
) -> sp.csr_matrix:
    pattern = section.graph
    if pattern is None:
        pattern = _join_neighbors(section, options.n_neighbors, across=options.across_sections)
    elif section.samples is not None and not options.across_sections:
        pattern = _within_samples(pattern, np.asarray(section.samples.codes), options)
    isolated = int((np.diff(pattern.indptr) == 0).sum())
    if isolated:
        advice = "choose another --graph" if section.graph is not None else advice
        msg = (
            f"Expected every spot to have a neighbour, found {isolated} isolated ones; their domain follows from "
            f"their expression alone. To join them, {advice}."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return weigh_edges(pattern, section.coordinates, normals, features=x, tau=options.tau, beta=options.beta)
