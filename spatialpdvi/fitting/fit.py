"""The whole fit of one section: features, a start, the problem, the solver, and the result."""

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.features.build import RawFeatures, raw_features
from spatialpdvi.features.smoothing import smooth_features
from spatialpdvi.fitting.certificate import Certificate, certify
from spatialpdvi.fitting.export import make_model, why_no_model
from spatialpdvi.fitting.inputs import check_section
from spatialpdvi.fitting.prepare import Initialization, Prepared, prepare_start
from spatialpdvi.fitting.result import FitResult, name_domains, order_by_size, state_result
from spatialpdvi.fitting.solve import SolverRun, engine_of, solve
from spatialpdvi.initialization.consensus import renumbered
from spatialpdvi.initialization.restarts import in_unit_range, kmeans_labels
from spatialpdvi.io.section.section import Section
from spatialpdvi.marker_genes import marker_genes, rank_markers
from spatialpdvi.metrics.calibration import Calibration, calibrate
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.metrics.section import section_scores
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.stages import FeatureSettings, SmoothingSettings
from spatialpdvi.options.states import OF_STATES, search_rounds
from spatialpdvi.palette import border_lengths, domain_colours
from spatialpdvi.problems.base import Blocks, blockwise
from spatialpdvi.problems.composition import CompositionGlobals
from spatialpdvi.runtime.progress import Progress, Stage
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.solvers import Solver
from spatialpdvi.version import library_versions

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["explain_empty", "fit_features", "fit_section"]

_TRIVIAL_SEEDS = 5
_NAMED = 3  # domains that the spots of a lost domain went to, at most
_SHOWN = 5  # lost domains that are explained one by one


class _Domains(NamedTuple):
    """Where the solver ended, spots in the user's order and domains by size."""

    posterior: np.ndarray  # (n, K) float32
    labels: np.ndarray  # (n,) int64
    start_labels: np.ndarray  # (n,) labels of the start that won, numbered as the domains they became
    lam: Blocks
    trace: dict[str, np.ndarray]
    certificate: Certificate  # of the rounded posteriors


def fit_section(
    section: Section,
    options: FitOptions,
    progress: Progress,
    *,
    find_markers: bool = False,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
) -> FitResult:
    """Fit one number of domains to a section.

    Parameters
    ----------
    section
        From `read_inputs`.
    options
        Of the fit, with one number for ``k``.
    progress
        Shows a stage for each step.
    find_markers
        Whether the result has marker genes, where there are counts.
    checkpoint
        Saves the state of the fit, from which it may resume. It is open, and the caller closes it.
    cluster
        Runs the solver on its workers, to the same bits.

    Raises
    ------
    InputError
        Where the options do not fit the section, features cannot be made, or F does not stay finite.
    """
    check_section(section, options)
    return fit_features(
        section,
        raw_features(section, FeatureSettings.of(options), progress),
        options,
        progress,
        find_markers=find_markers,
        checkpoint=checkpoint,
        cluster=cluster,
    )


def fit_features(
    section: Section,
    raw: RawFeatures,
    options: FitOptions,
    progress: Progress,
    *,
    find_markers: bool = False,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
) -> FitResult:
    """Fit one number of domains to the features of a section that `check_section` has checked.

    Parameters
    ----------
    section, options, progress, find_markers, checkpoint, cluster
        As for `fit_section`.
    raw
        Features before they are averaged in space.
    """
    smooth = SmoothingSettings.of(options)
    prepared = prepare_start(
        section,
        raw,
        smooth_features(section, raw, smooth, progress),  # without a name here, so that it is freed there
        options,
        progress,
        checkpoint=checkpoint,
    )
    initialization = prepared.initialization
    del raw  # large
    run = SolverRun.of(options)
    with progress.stage("fit") as stage:
        domains = _solve(prepared, run, stage, checkpoint=checkpoint, cluster=cluster)
    _warn_of_empty(domains, options.n_domains)
    agreed = initialization.agreed
    calibration = _calibrated(domains, initialization)
    with progress.stage("scores"):
        scores = section_scores(section, domains.posterior, baseline=prepared.start.labels, calibration=calibration)
        if section.labels is not None:
            scores["trivial"] = _trivial(prepared.features.components, section.labels, options.n_domains)
    samples = section.neighbourhood_groups(across=options.across_sections)
    lengths = border_lengths(domains.labels, section.coordinates, options.n_domains, samples=samples)
    colours = domain_colours(lengths)
    named = name_domains(domains.labels, options.n_domains)
    markers = _markers(section, named, progress) if find_markers else None
    model = None
    if why_no_model(section, options) is None:
        model = make_model(prepared, domains.lam, options, calibration=calibration, colours=colours)
    return FitResult(
        domains=domains.labels,
        posterior=domains.posterior,
        domain_mean=domains.lam.m,
        log_variance=domains.lam.rho,
        states=state_result(prepared.problem, prepared.graph.patching.order, domains.posterior, domains.lam),
        hyperparameters=prepared.start.hyperparameters,
        agreement=None if agreed is None else agreed.agreement,
        calibration=calibration,
        features=initialization.fitted,
        store_features=initialization.rotation is not None or not prepared.features.as_given,
        graph=prepared.graph.patching.graph,
        find_flow=prepared.graph.borders.directions,
        trace=domains.trace,
        certificate=domains.certificate,
        scores=scores,
        params=_params(options, section, prepared, run.solver, calibration=calibration),
        seconds=progress.seconds,
        colours=colours,
        model=model,
        marker_table=markers,
        markers=None if markers is None else marker_genes(markers, named),
        kept=section.kept,
        samples=section.samples,
    )


def _solve(
    prepared: Prepared, run: SolverRun, stage: Stage, *, checkpoint: Checkpoint | None, cluster: "Cluster | None"
) -> _Domains:
    """Run the solver, and round its posteriors to float32, as they are written; the certificate is of these.

    Nothing else that the solver has held is left when this returns.
    """
    with engine_of(prepared, cluster) as engine:
        solved = solve(prepared, run, stage=stage, checkpoint=checkpoint, engine=engine)
    del engine  # holds two posteriors in float64, and others follow
    phi = solved.phi.astype(np.float32)
    solved = solved._replace(phi=phi)
    certificate = certify(prepared.problem, phi, solved.lam, trace=solved.last, stop=solved.stop, rule=run.rule)
    if not np.isfinite(certificate.neg_elbo):
        raise InputError(
            "F to stay finite",
            f"{certificate.neg_elbo} after {certificate.epochs} epochs",
            f"The steps are too large, or the features are too large for their squares. {_smaller_steps(run.solver)}",
        )
    posterior = prepared.graph.patching.as_given(phi)
    by_size = order_by_size(posterior)
    posterior = np.ascontiguousarray(posterior[:, by_size])
    labels = (prepared.start.labels, *prepared.initialization.restarts)[solved.position]
    return _Domains(
        posterior=posterior,
        labels=posterior.argmax(axis=1),
        start_labels=np.argsort(by_size)[labels],
        lam=_reordered(solved.lam, by_size),
        trace=solved.columns,
        certificate=certificate,
    )


def _calibrated(domains: _Domains, start: Initialization) -> Calibration | None:
    """The calibrated posterior; None without restarts."""
    if start.agreed is None:
        return None
    searched = None if start.searched is None else start.searched.posterior
    if searched is not None:
        searched = renumbered(searched, searched.argmax(axis=1), domains.labels)
    return calibrate(domains.posterior, start.agreed.pair_agreement, searched=searched)


def _smaller_steps(solver: Solver) -> str:
    """Advice about the steps of a solver, in terms of the options that it has."""
    means = {
        "step_factor": f"raise {option('step_factor')}",
        "step_size": f"lower {option('step_size')}",
        "step_mean": f"leave {option('step_mean')} and {option('step_log_variance')} out",
    }
    advice = " or ".join(text for name, text in means.items() if name in solver.options)
    return f"{advice[:1].upper()}{advice[1:]}." if advice else "Lower the features."


def _reordered(lam: Blocks, domains: np.ndarray) -> Blocks:
    """The globals with domains in another order; states keep theirs."""
    if isinstance(lam, CompositionGlobals):
        return lam._replace(theta=np.ascontiguousarray(lam.theta[domains]))
    return blockwise(lambda block: np.ascontiguousarray(block[domains]), lam)


def _trivial(smoothed: np.ndarray, labels: pd.Categorical, k: int) -> dict[str, float | int]:
    """ARI of k-means on the smoothed features over five seeds: what clustering without a model reaches."""
    features = in_unit_range(smoothed)
    with single_threaded():
        ari = [adjusted_rand_index(labels, kmeans_labels(features, k, seed=seed)) for seed in range(_TRIVIAL_SEEDS)]
    return {"ari": float(np.mean(ari)), "ari_min": min(ari), "ari_max": max(ari), "n_seeds": _TRIVIAL_SEEDS}


def _markers(section: Section, domains: pd.Categorical, progress: Progress) -> pd.DataFrame | None:
    """The table of marker genes; None where the fit has no counts."""
    if section.counts is None:
        return None
    with progress.stage("markers"):
        return rank_markers(section.counts, section.gene_names.to_numpy(), domains)


def _params(
    options: FitOptions, section: Section, prepared: Prepared, solver: Solver, *, calibration: Calibration | None
) -> dict[str, Any]:
    """Every option in force and what was found, without options that are off: None cannot be stored everywhere."""
    patching = prepared.graph.patching
    n_spots, n_features = section.coordinates.shape[0], int(prepared.initialization.fitted.shape[1])
    searched = prepared.initialization.searched is not None
    found = {
        **prepared.found(),
        "search": search_rounds(options.search, n_spots) if searched else None,
        "n_spots": int(n_spots),
        "n_excluded": None if section.kept is None else int(np.sum(~section.kept)),
        "n_features": n_features,
        "n_pcs": options.n_pcs if section.rep is not None or options.n_pcs == 0 else n_features,
        "n_patches": len(patching.patches),
        "n_edges": int(patching.graph.nnz // 2),
        "n_edges_dropped": patching.n_dropped,
        "n_edges_across": prepared.graph.n_across,
        "label_key": section.label_key,
        "temperature": None if calibration is None else calibration.temperature,
    }
    settings = solver.settings
    in_force = {name: getattr(settings, name) for name in solver.options if hasattr(settings, name)}
    everything = {**in_force, **{key: value for key, value in options.__dict__.items() if value is not None}, **found}
    absent = OF_STATES if prepared.initialization.states is None else ()
    params = {key: value for key, value in everything.items() if value is not None and key not in absent}
    params["versions"] = library_versions(*(("harmonypy",) if options.correct == "harmony" else ()))
    return params


def _warn_of_empty(domains: _Domains, k: int) -> None:
    filled = np.unique(domains.labels).size
    if filled < k:
        last = "category is" if filled == k - 1 else f"{k - filled} categories are"
        text = (
            f"Only {filled} of {k} domains have spots; the last {last} empty: "
            f"{explain_empty(domains.labels, domains.start_labels, k)}. Lower {option('k')}, or choose another start "
            f"with {option('seed')} or {option('init')}."
        )
        warnings.warn(InputWarning(text), stacklevel=3)


def explain_empty(domains: np.ndarray, start_labels: np.ndarray, k: int) -> str:
    """Say which domains are empty and why: they had no spot at the start, or lost them to others during the fit.

    Parameters
    ----------
    domains
        (n,) in 0..k-1 at the end of the fit.
    start_labels
        (n,) labels of the start, numbered like the domains that they became.
    k
        Number of domains, at least one of which has no spot.
    """
    empty = np.setdiff1d(np.arange(k), domains)
    at_start = np.bincount(start_labels, minlength=k)[empty]
    reasons = [_lost(lost, domains, start_labels) for lost in empty[at_start > 0][:_SHOWN]]
    more = int((at_start > 0).sum()) - len(reasons)
    if more > 0:
        reasons.append(f"{more} more lost theirs in the same way")
    never = empty[at_start == 0]
    if never.size:
        names = ", ".join(map(str, never))
        reasons.append(f"{names} had no spot at the start, which has fewer than {k} labels")
    return "; ".join(reasons)


def _lost(lost: int, domains: np.ndarray, start_labels: np.ndarray) -> str:
    """Where the spots went that a domain had at the start."""
    own = domains[start_labels == lost]
    to, spots = np.unique(own, return_counts=True)
    largest = np.argsort(-spots, kind="stable")[:_NAMED]
    where = ", ".join(f"{spots[i]:,} to {to[i]}" for i in largest)
    others = "" if to.size <= _NAMED else f" and {own.size - spots[largest].sum():,} elsewhere"
    return f"{lost} lost all its spots ({own.size:,}) during the fit: {where}{others}"
