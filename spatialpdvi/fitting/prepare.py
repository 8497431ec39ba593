"""The stages between features and a solver: a start, then the graph and the problem on its patches."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.engines import LocalEngine
from spatialpdvi.errors import InputWarning, option
from spatialpdvi.features.build import RawFeatures
from spatialpdvi.features.smoothing import SmoothedFeatures
from spatialpdvi.fitting.states import covariates_of, learn_sets, number_of_states, warn_of_few_spots
from spatialpdvi.graph.build import SpatialGraph, build_graph, join_spots, layered_edges, warn_of_places
from spatialpdvi.initialization.compositions import Sample, search_sets, start_from_composition
from spatialpdvi.initialization.consensus import Consensus, consensus
from spatialpdvi.initialization.landscape import lacking
from spatialpdvi.initialization.restarts import in_unit_range, kmeans_labels, restart_labels
from spatialpdvi.initialization.search import Found
from spatialpdvi.initialization.start import Start, noise_rotation, start_from_labels
from spatialpdvi.initialization.states import States
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import KMEANS, FitOptions
from spatialpdvi.options.idle import idle_options_of, option_as_set
from spatialpdvi.options.stages import GraphSettings, StartSettings, StateSettings, default_n_neighbors
from spatialpdvi.options.states import SAMPLED, SAMPLED_FROM, n_state_sets, search_rounds
from spatialpdvi.problems.base import Blocks
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsMixture, one_hot
from spatialpdvi.runtime.memory import FIXED_BYTES, warn_of_limit
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.rows import some_rows
from spatialpdvi.runtime.threads import single_threaded

__all__ = ["Initialization", "Prepared", "compose", "prepare", "prepare_start"]

_SEARCH_BYTES = 1_800  # for each spot, that a search takes beside its likelihoods and posteriors


class Initialization(NamedTuple):
    """A start and how it was found, with the features as they are fitted; rows in the user's order."""

    start: Start
    fitted: np.ndarray | sp.csr_matrix  # (n, d) x: the features, whitened if the options say so
    rotation: np.ndarray | None  # (d, d) W; None where features are not whitened
    restarts: tuple[np.ndarray, ...]  # (n,) labels each, of a small type; empty where labels were given
    agreed: Consensus | None  # of the restarts; None where labels were given
    states: States | None = None  # that domains share; None where they share none
    edges: sp.csr_matrix | None = None  # (n, n) weights of a mixture of compositions; None without states
    searched: Found | None = None  # for the lowest F of compositions; None without states, or where labels were given


class Prepared(NamedTuple):
    """A section made into a problem with a start, ready for a solver."""

    problem: PottsMixture  # rows in patch order
    initialization: Initialization
    graph: SpatialGraph
    features: SmoothedFeatures  # without those at every scale, which restarts alone need
    codes: np.ndarray | None  # (n,) known labels in patch order, -1 where there is none
    n_neighbors: int | None  # nearest spots that are joined; None where the graph was given

    @property
    def start(self) -> Start:
        """The start, labels in the user's order."""
        return self.initialization.start

    def initial(self, start: Start | None = None) -> tuple[np.ndarray, Blocks]:
        """Return fresh (phi, lambda) at the start, or at another."""
        start = start or self.start
        return one_hot(start.labels[self.graph.patching.order], start.n_domains), start.lam

    def other_starts(self) -> list[Start]:
        """Return a start from each restart, with the hyperparameters of their consensus: their F can be compared."""
        k, hyperparameters = self.start.n_domains, self.start.hyperparameters
        fitted, states = self.initialization.fitted, self.initialization.states
        restarts = [labels.astype(np.int64) for labels in self.initialization.restarts]
        if states is not None:
            with single_threaded():
                return [start_from_composition(states, labels, k) for labels in restarts]
        return [start_from_labels(fitted, labels, k, hyperparameters=hyperparameters) for labels in restarts]

    def engine(self) -> LocalEngine:
        """Return an engine with the problem's patches in this process."""
        return LocalEngine(self.problem, codes=self.codes)

    def found(self) -> dict[str, Any]:
        """Return what the stages found, for the parameters of a result."""
        agreed, states, searched = self.initialization.agreed, self.initialization.states, self.initialization.searched
        found = self.features.found | {"n_neighbors": self.n_neighbors}
        if states is not None:
            found = found | {"n_states": int(states.share.size), "detrended": states.detrended}
        if searched is not None:
            found = found | {
                "search_start": searched.started_at,
                "search_end": searched.ended_at,
                "search_proposed": searched.n_proposed,
                "search_accepted": searched.n_accepted,
            }
        if agreed is None:
            return found
        return found | {
            "n_restarts": len(self.initialization.restarts),
            "restart_ari": agreed.similarity,
            "restart_accord": agreed.pair_agreement,
            "start": "consensus" if agreed.collapsed is None else "restart",
        }


def initialize(
    features: SmoothedFeatures,
    given: np.ndarray | None,
    settings: StartSettings,
    progress: Progress,
    *,
    checkpoint: Checkpoint | None = None,
) -> Initialization:
    """Find a start: given labels, one k-means, or the consensus of restarts, and the parameters that follow from it.

    Parameters
    ----------
    features
        Of the section, with those at every scale, which restarts cluster.
    given
        (n,) labels to start from; None to find some.
    settings
        Of this stage.
    progress
        Shows the stage "start".
    checkpoint
        Supplies the labels of restarts that an earlier run saved, or saves them.
    """
    restarts: tuple[np.ndarray, ...] = ()
    agreed, fitted, rotation = None, features.fitted, None
    with progress.stage("start") as stage, single_threaded():
        labels = given
        if labels is None and settings.init == KMEANS:
            dense = isinstance(fitted, np.ndarray)
            labels = kmeans_labels(
                in_unit_range(fitted) if dense else fitted, settings.n_domains, seed=settings.seed, n_init=10
            )
        elif labels is None:
            restarts = _restarts(features.by_scale, settings, checkpoint)
            agreed = consensus(restarts, settings.n_domains)
            _warn_of_collapse(agreed, settings.n_domains)
            labels = agreed.labels
            stage.note(f"{len(restarts)} restarts, ARI {agreed.similarity:.2f} between two")
        if settings.whiten and isinstance(fitted, np.ndarray):
            rotation = noise_rotation(fitted, labels, settings.n_domains)
            fitted = (fitted @ rotation).astype(fitted.dtype)
        start = start_from_labels(fitted, labels, settings.n_domains)
    return Initialization(start, fitted, rotation, restarts, agreed)


def compose(
    section: Section,
    sets: Sequence[States],
    initialization: Initialization,
    settings: StateSettings,
    *,
    graph: GraphSettings,
    progress: Progress,
) -> Initialization:
    """Turn a start with one Gaussian for each domain into one whose domains are compositions of states.

    Parameters
    ----------
    section
        Read and checked.
    sets
        Of states, from `learn_sets`; one where labels are given.
    initialization
        From `initialize`. Its labels and its restarts are among those that the search starts from; given labels are
        kept, and nothing is searched.
    settings
        Of the states.
    graph
        Settings of the spots that are joined, and of their edges' weights.
    progress
        Shows the stage "search".
    """
    k, labels = settings.n_domains, initialization.start.labels
    found, best = None, 0
    if initialization.agreed is None:
        edges = _edges(section, sets, graph)
        with single_threaded():
            start = start_from_composition(sets[0], labels, k)
    else:
        n = section.coordinates.shape[0]
        per_spot = _SEARCH_BYTES + 4 * settings.n_states + 24 * k
        warn_of_limit(
            FIXED_BYTES + per_spot * n,
            settings.memory,
            f"The search for the domains of {n:,} spots with {settings.n_states} states",
            f"Leave states out with {option('states', 'off')}, or raise {option('memory')}.",
        )
        with progress.stage("search") as stage:
            edges = _edges(section, sets, graph)
            sample = _sample(section, sets[0], graph, settings.seed) if n >= SAMPLED_FROM else None
            with single_threaded():
                best, start, found = search_sets(
                    sets,
                    section.coordinates_apart(across=graph.across_sections),
                    edges,
                    k,
                    labels=(labels, *initialization.restarts),
                    rounds=search_rounds(settings.search, n),
                    seed=settings.seed,
                    sample=sample,
                )
            change, several = found.ended_at - found.started_at, sample is None and len(sets) > 1
            chosen, searches = (" with the states in use", f" of {len(sets)} searches") if several else ("", "")
            accepted = f", {found.n_accepted} of {found.n_proposed} proposals{searches} accepted"
            n_lacking = lacking(start.labels, k)
            given_up = f", {n_lacking} of {k} domains left with few spots or none" if n_lacking else ""
            stage.note(f"F {change:+.1f} nats{chosen}{accepted if found.n_proposed else ''}{given_up}")
    states = sets[best]
    return initialization._replace(
        start=start, fitted=states.features, rotation=states.rotation, states=states, edges=edges[best], searched=found
    )


def prepare(
    section: Section,
    features: SmoothedFeatures,
    initialization: Initialization,
    settings: GraphSettings,
    progress: Progress,
) -> Prepared:
    """Build the graph of a section around a start, and the problem on its patches.

    Parameters
    ----------
    section
        Read and checked.
    features, initialization
        Of the section, from `smooth_features` and `initialize`, or `compose`.
    settings
        Of the graph and its patches.
    progress
        Shows the stage "graph".
    """
    fitted, start = initialization.fitted, initialization.start
    graph = build_graph(section, fitted, start.labels, settings, progress, weights=initialization.edges)
    order, patches = graph.patching.order, graph.patching.patches
    problem = start.problem(wrap_features(fitted[order]), patches)
    codes = None if section.labels is None else section.labels.codes[order].astype(np.int64)
    n_neighbors = settings.n_neighbors if section.graph is None else None
    return Prepared(problem, initialization, graph, features, codes, n_neighbors)


def prepare_start(
    section: Section,
    raw: RawFeatures,
    features: SmoothedFeatures,
    options: FitOptions,
    progress: Progress,
    *,
    checkpoint: Checkpoint | None = None,
) -> Prepared:
    """Do all that lies between features and a solver: `initialize`, `compose` where there are states, `prepare`.

    States come first, since the search that follows makes starts of its own, and needs fewer restarts beside them.

    Parameters
    ----------
    section
        Read and checked.
    raw, features
        Of the section, before and after they are averaged in space.
    options
        Of a fit with one number of domains.
    progress
        Shows a stage for each step.
    checkpoint
        As for `initialize`.

    Raises
    ------
    InputError
        Where there are more states than spots, or the features are sparse and states were requested.
    """
    settings = GraphSettings.of(options)
    n, of_states = section.coordinates.shape[0], StateSettings.of(options, number_of_states(section, raw, options))
    sets: list[States] = []
    if of_states.n_states:
        warn_of_few_spots(of_states.n_states, n)
        n_sets = 1 if options.init is not None else n_state_sets(n)
        covariates = covariates_of(section, raw, options)
        sets = learn_sets(section, raw, of_states, n_sets, progress, covariates=covariates)
    of_start = StartSettings.of(options, n, searched=bool(sets))
    start = initialize(features, section.init_labels, of_start, progress, checkpoint=checkpoint)
    features = features._replace(by_scale=())  # large, and clustered by now
    if sets:
        start = compose(section, sets, start, of_states, graph=settings, progress=progress)
    if options.states == "auto":
        _warn_of_idle(options, with_states=bool(sets))
    if settings.n_neighbors is None:
        averaged = start.states is None and isinstance(features.fitted, np.ndarray)
        n_neighbors = default_n_neighbors(features.found["smooth"] if averaged else None)
        settings = replace(settings, n_neighbors=n_neighbors)
    prepared = prepare(section, features, start, settings, progress)
    warn_of_places(section, raw.fitted, prepared.graph.patching.graph, settings)
    return prepared


def _edges(section: Section, sets: Sequence[States], settings: GraphSettings) -> list[sp.csr_matrix]:
    """Weights (n, n) of the edges, in the features of each set of states."""
    pattern = join_spots(section, settings)
    return [layered_edges(section, states.features, pattern, settings) for states in sets]


def _restarts(
    by_scale: tuple[np.ndarray, ...], settings: StartSettings, checkpoint: Checkpoint | None
) -> tuple[np.ndarray, ...]:
    """Labels (n,) of restarts on every scale, made by an earlier run or now."""
    saved = None if checkpoint is None else checkpoint.load_restarts(by_scale)
    if saved is not None:
        return saved
    scaled = map(in_unit_range, by_scale)
    made = restart_labels(scaled, settings.n_domains, n_init=settings.n_init, seed=settings.seed)
    if checkpoint is not None:
        checkpoint.save_restarts(by_scale, made)
    return made


def _warn_of_idle(options: FitOptions, *, with_states: bool) -> None:
    """Warn of options that have no effect on the kind of domains that ``auto`` chose."""
    auto = option("states", "auto")
    wanted = option("states", "off") if with_states else f"{option('states')} a number"
    kind = "compositions of cell states" if with_states else "mean profiles and no compositions of cell states"
    for idle in idle_options_of(options, with_states=with_states):
        text = f"{option_as_set(options, idle)} has no effect on domains that are {kind}, as {auto} chose here."
        warnings.warn(InputWarning(f"{text} Give {wanted} to use it."), stacklevel=2)


def _warn_of_collapse(agreed: Consensus, k: int) -> None:
    if agreed.collapsed is not None:
        text = (
            f"The restarts agree on {agreed.collapsed} domain{'s' * (agreed.collapsed != 1)} at most, not on {k}, "
            f"which have {agreed.labels.size / k:,.1f} spots each on average. The fit starts from the restart that is "
            f"most similar to all others instead. Lower {option('k')} to fit domains on which restarts agree."
        )
        warnings.warn(InputWarning(text), stacklevel=2)


def _sample(section: Section, states: States, settings: GraphSettings, seed: int) -> Sample:
    """Some spots of a large section, each joined to its nearest among them.

    Spots that are drawn one by one have the tissue's domains with all their borders. In pieces of a section borders are
    missing, and domains of whole pieces cost no edges.
    """
    spots = some_rows(np.arange(section.coordinates.shape[0]), seed, SAMPLED)
    some = section._replace(counts=None, features=None, graph=None).of(spots)  # places alone are needed
    return Sample(spots, layered_edges(some, states.features[spots], join_spots(some, settings), settings))
