"""The number of domains chosen from a range: every K fitted and measured, one recommended, and its fit."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.errors import InputWarning
from spatialpdvi.features.build import RawFeatures, raw_features
from spatialpdvi.features.smoothing import smooth_features
from spatialpdvi.fitting.fit import fit_features
from spatialpdvi.fitting.inputs import check_section
from spatialpdvi.fitting.loop import Stop
from spatialpdvi.fitting.prepare import prepare_start
from spatialpdvi.fitting.result import FitResult, Scan
from spatialpdvi.fitting.solve import SolverRun, solve
from spatialpdvi.fitting.states import covariates_of, learn_sets, number_of_states
from spatialpdvi.graph.build import join_spots, layered_edges
from spatialpdvi.initialization.states import States
from spatialpdvi.io.section.section import Section
from spatialpdvi.model_selection.bound import complete_bound
from spatialpdvi.model_selection.evidence import (
    SPARE,
    Level,
    levels,
    levels_of,
    share_of_evidence,
    strength_of_evidence,
)
from spatialpdvi.model_selection.recommend import recommend, recommend_by_evidence
from spatialpdvi.model_selection.stability import Replication, persistence
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.k_range import AUTO, candidates
from spatialpdvi.options.stages import FeatureSettings, GraphSettings, SmoothingSettings, StateSettings
from spatialpdvi.options.states import n_state_sets
from spatialpdvi.runtime.progress import Progress, Stage
from spatialpdvi.runtime.threads import on_threads, single_threaded

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["fit_range", "scan_domains"]

_WIDEST = 30  # domains of `auto`, where the evidence still rises at 20
_SETS = 3  # of states, at most
_SPOTS_EACH = 50  # of a state, at least; smaller sections have too little evidence, and halves of the data decide
_WEAKEST = 0.1  # nats a spot; with less evidence that there are domains at all, it does not tell how many
_RESTARTS = 2  # largest `n_init`: the table needs fewer restarts than the fit that follows


class _Row(NamedTuple):
    """One number of domains."""

    k: int
    neg_elbo: float
    found_again: float
    split_ari: float
    restart_ari: float
    smallest: int
    n_empty: int
    smooth: int
    converged: bool
    seconds: float


def fit_range(
    section: Section,
    options: FitOptions,
    progress: Progress,
    *,
    find_markers: bool = False,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
) -> FitResult:
    """Fit the recommended number of domains of a range; the result has the same bits as a fit with that number alone.

    Parameters
    ----------
    section, options, progress, find_markers, checkpoint, cluster
        As for `spatialpdvi.fitting.fit.fit_section`; ``options.k`` is a range or ``"auto"``.

    Returns
    -------
    The fit, with the table of all numbers in its ``scan``.

    Raises
    ------
    InputError
        As `fit_section` does, and where the range goes beyond the number of spots.
    """
    check_section(section, options)
    most = candidates(str(options.k), section.coordinates.shape[0])[-1]
    scanned = FeatureSettings.of(options, n_domains=most)
    raw = raw_features(section, scanned, progress, keep_scaled=True)
    scan = scan_domains(section, options, raw, progress)
    raw = raw._replace(scaled=None)
    chosen = replace(options, k=scan.k)
    settings = FeatureSettings.of(chosen)
    # the first of these components have not the last bits of a smaller PCA, and a wider range needs more of them
    if raw.has_more_than(settings.n_components) or settings.n_components > scanned.n_components:
        raw = raw_features(section, settings, progress)
    result = fit_features(
        section, raw, chosen, progress, find_markers=find_markers, checkpoint=checkpoint, cluster=cluster
    )
    return replace(result, scan=scan)


def scan_domains(section: Section, options: FitOptions, raw: RawFeatures, progress: Progress) -> Scan:
    """Look at every number of domains that ``options.k`` stands for, and recommend one.

    Where domains are compositions of states, the evidence for each number decides (`spatialpdvi.model_selection.
    evidence`). Elsewhere, and where that evidence is weak, the section is fitted with each number of domains with mean
    profiles, from fewer restarts than a fit has, and the number of domains that halves of the data share decides. The
    features are made once for all numbers.

    Parameters
    ----------
    section, options
        As for `fit_range`.
    raw
        Features before they are averaged in space, with the components for the largest number.
    progress
        Shows the stage "scan", and "states" where these are looked for.

    Raises
    ------
    InputError
        Where the range goes beyond the number of spots.
    """
    scan, weak = _scan_states(section, options, raw, progress)
    if scan is not None:
        return scan
    scan = _scan_halves(section, options, raw, progress)
    return scan._replace(reason=f"{weak} {scan.reason}") if weak else scan


def _scan_states(
    section: Section, options: FitOptions, raw: RawFeatures, progress: Progress
) -> tuple[Scan | None, str]:
    """The scan of a section whose domains are compositions of states.

    None where they are not, and where evidence is too weak to tell numbers apart or there are too few spots or states
    for it, which the text then says.
    """
    asked, ranges = str(options.k), _ranges_of_states(section, raw, options)
    scan = None
    fewest = candidates(asked, section.coordinates.shape[0])[0]
    if not ranges and number_of_states(section, raw, replace(options, k=fewest)):
        why = "few spots" if options.states == "auto" else "few spots or states"
        return None, f"There are too {why} for evidence from compositions of states, so halves of the data decide."
    covariates = covariates_of(section, raw, options)
    for counts in ranges:
        few = replace(options, k=counts[0])  # the components of a fit with few domains
        leading = raw.leading(FeatureSettings.of(few).n_components)
        typical = replace(options, k=round((counts[0] * counts[-1]) ** 0.5))  # as many kinds of neighbourhood
        settings = StateSettings.of(typical, number_of_states(section, raw, replace(options, k=counts[-1])))
        n_sets = min(_SETS, n_state_sets(section.coordinates.shape[0]))
        sets = learn_sets(section, leading, settings, n_sets, progress, covariates=covariates)
        if not sets:
            break
        with progress.stage("scan") as stage:
            table, strength = _evidence(section, options, counts, sets, stage)
            if strength < _WEAKEST:
                weak = f"The evidence for domains is weak ({strength:.2f} nats a spot), so halves of the data decide."
                stage.note(weak)
                return None, weak
            k, reason = recommend_by_evidence(table)
            stage.note(f"K {k} of {asked}")
        scan = Scan(asked, k, reason, table)
        if table["evidence"].argmax() + 1 < len(counts):
            break
    return scan, ""


def _ranges_of_states(section: Section, raw: RawFeatures, options: FitOptions) -> list[range]:
    """The range that was asked for, if a fit of its largest number has more states than domains, and spots for them.

    ``auto`` ends where a small section has states for no more domains, and has a wider range, which is looked at where
    the evidence is still rising at the end of the first.
    """
    counts = candidates(str(options.k), section.coordinates.shape[0])

    def has_states(most: int) -> bool:
        n_states = number_of_states(section, raw, replace(options, k=most))
        return n_states >= most + SPARE and section.coordinates.shape[0] >= _SPOTS_EACH * n_states

    if options.k != AUTO:
        return [counts] if has_states(counts[-1]) else []
    ends = [end for end in (*counts[1:], _WIDEST) if has_states(end)]
    ranges = [range(counts[0], end + 1) for end in ends if end <= counts[-1]][-1:]
    return ranges + [range(counts[0], _WIDEST + 1)] * (_WIDEST in ends)


def _evidence(
    section: Section, options: FitOptions, counts: range, sets: Sequence[States], stage: Stage
) -> tuple[dict[str, np.ndarray], float]:
    """The table of a section whose domains are compositions of states, and the evidence in nats a spot."""
    settings = GraphSettings.of(options)
    pattern = join_spots(section, settings)
    apart = section.coordinates_apart(across=settings.across_sections)

    done: list[States] = []

    def of_set(states: States) -> list[Level]:
        edges = layered_edges(section, states.features, pattern, settings)
        found = levels(states, apart, edges, counts[-1], seed=options.seed)[1]
        done.append(states)
        stage.advance(len(done), len(sets))
        return found

    with single_threaded():
        of_sets = on_threads(of_set, sets)
    return _measured(of_sets, counts), float(np.mean([strength_of_evidence(found) for found in of_sets]))


def _measured(of_sets: Sequence[Sequence[Level]], counts: range) -> dict[str, np.ndarray]:
    """Columns of the table: those of the first set of states, and what can be compared of all.

    F of different states cannot be compared, but parts of it can; a number is missing where most sets lack it.
    """
    first, n_found = levels_of(of_sets[0], counts), [[level.k for level in levels_of(own, counts)] for own in of_sets]
    return {
        "k": np.array(counts),
        "neg_elbo": np.array([level.neg_evidence for level in first]),
        "smallest": np.array([np.bincount(level.labels).min() for level in first]),
        "n_empty": np.median(np.array(counts) - np.array(n_found), axis=0).astype(np.int64),
        "persistence": persistence([level.labels for level in first]),
        "evidence": np.mean([share_of_evidence(found, counts) for found in of_sets], axis=0),
    }


def _scan_halves(section: Section, options: FitOptions, raw: RawFeatures, progress: Progress) -> Scan:
    """The scan of a section whose domains have one mean each."""
    asked = str(options.k)
    counts = candidates(asked, section.coordinates.shape[0])
    rows: list[_Row] = []
    domains: list[np.ndarray] = []
    with progress.stage("scan") as stage, warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # the fit that follows shows them
        replication = Replication(section, raw, FeatureSettings.of(options, counts[-1]), across=options.across_sections)
        for k in counts:
            stage.advance(len(rows), len(counts))
            tried = replace(options, k=k, n_init=min(options.n_init or _RESTARTS, _RESTARTS), states="off")
            row, found = _fit_one(section, tried, raw, replication=replication)
            rows.append(row)
            domains.append(found)
            stage.note(f"K {k}  found again {row.found_again:.1f}  smallest domain {row.smallest:,}")
        table = _columns(rows, persistence(domains))
        k, reason = recommend(table)
        stage.note(f"K {k} of {asked}")
    return Scan(asked, k, reason, table)


def _fit_one(
    section: Section, options: FitOptions, raw: RawFeatures, *, replication: Replication
) -> tuple[_Row, np.ndarray]:
    """A row of the table, and the domains (n,) in the user's order."""
    began = time.perf_counter()
    k, progress = options.n_domains, Progress()
    raw = raw.leading(FeatureSettings.of(options).n_components)
    features = smooth_features(section, raw, SmoothingSettings.of(options), progress)
    prepared = prepare_start(section, raw, features, options, progress)
    initialization = prepared.initialization
    solved = solve(prepared, SolverRun.of(options), stage=Stage())
    domains = prepared.graph.patching.as_given(solved.phi.argmax(axis=1))
    sizes = np.bincount(domains, minlength=k)
    found, smooth = prepared.found(), int(features.found["smooth"])
    again = replication.of(k, n_neighbors=smooth, n_components=features.components.shape[1])
    row = _Row(
        k=k,
        neg_elbo=complete_bound(
            solved.last[-1].evaluation.neg_elbo,
            initialization.fitted,
            prepared.graph.patching.graph,
            k=k,
            hyperparameters=prepared.start.hyperparameters,
            rotation=initialization.rotation,
            seed=options.seed,
        ),
        found_again=again.net,
        split_ari=again.ari,
        restart_ari=float(found["restart_ari"]),
        smallest=int(sizes[sizes > 0].min()),
        n_empty=int((sizes == 0).sum()),
        smooth=smooth,
        converged=solved.stop is Stop.CONVERGED,
        seconds=time.perf_counter() - began,
    )
    return row, domains


def _columns(rows: Sequence[_Row], persisting: np.ndarray) -> dict[str, np.ndarray]:
    columns = {name: np.array(values) for name, values in zip(_Row._fields, zip(*rows, strict=True), strict=True)}
    return {**columns, "persistence": persisting}
