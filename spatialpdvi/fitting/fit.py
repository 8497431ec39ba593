"""The whole fit of one section on one page: prepare it, run the solver, hold what was found against what is known."""

import warnings
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from spatialpdvi.checkpoints import Checkpoint
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.build import RawFeatures, leading_components, raw_features
from spatialpdvi.fitting.certificate import certify
from spatialpdvi.fitting.export import keep, unkept
from spatialpdvi.fitting.prepare import Prepared, prepare
from spatialpdvi.fitting.result import FitResult, name_domains, order_by_size
from spatialpdvi.fitting.solve import engine_of, solve, solver_from, stop_rule
from spatialpdvi.graph.build import count_crossing
from spatialpdvi.graph.flow import flow_directions
from spatialpdvi.initialization import in_unit_range, kmeans_labels
from spatialpdvi.io.section.section import Section
from spatialpdvi.marker_genes import marker_genes, rank_markers
from spatialpdvi.metrics.calibration import Calibration, calibrate
from spatialpdvi.metrics.clustering import adjusted_rand_index
from spatialpdvi.metrics.section import section_scores
from spatialpdvi.model_selection.scan import Scan, scan_domains
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.palette import border_lengths, domain_colours
from spatialpdvi.problems.base import blockwise
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.solvers import Solver
from spatialpdvi.version import __version__

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["explain_empty", "fit_section", "library_versions"]

_TRIVIAL_SEEDS = 5
_NAMED = 3  # domains that a lost one's spots went to, at the most
_SHOWN = 5  # lost domains that are explained one by one


def fit_section(
    section: Section,
    options: FitOptions,
    progress: Progress,
    *,
    find_markers: bool = False,
    checkpoint: Checkpoint | None = None,
    cluster: "Cluster | None" = None,
) -> FitResult:
    """Fit a section that was read and checked; raises as `prepare` does.

    A ``checkpoint`` that is open keeps the fit, or has it go on; it stays for the caller to close. With a ``cluster``
    the solver runs on its workers, to the same bits.
    """
    solver = solver_from(options)
    options, scan, raw = _settle_k(section, options, progress)
    remember = None if checkpoint is None else checkpoint.restarts
    prepared = prepare(section, options, progress, raw=raw, remember=remember)
    with progress.stage("fit") as stage:
        with engine_of(prepared, cluster) as engine:
            solved = solve(prepared, solver, options, stage=stage, checkpoint=checkpoint, engine=engine)
        # the certificate is of what is written, and float32 is
        phi = solved.phi.astype(np.float32)
        final = prepared.problem.evaluate(phi.astype(np.float64), solved.lam)
    if not np.isfinite(final.neg_elbo):
        msg = (
            f"Expected F to stay finite, found {final.neg_elbo} after {solved.last[-1].epoch} epochs: the steps are "
            "too large, or the features too large for their squares. Raise --step-factor, lower --step-size, or leave "
            "fixed steps out."
        )
        raise InputError(msg)
    posterior = np.empty_like(phi)
    posterior[prepared.patching.order] = phi
    by_size = order_by_size(posterior)
    posterior = np.ascontiguousarray(posterior[:, by_size])
    domains = posterior.argmax(axis=1)
    begun = (prepared.start.labels, *prepared.restarts)[solved.position]
    _warn_of_empty(domains, np.argsort(by_size)[begun], options.n_domains)
    calibration = None
    if "restart_accord" in prepared.found:
        calibration = calibrate(posterior, prepared.found["restart_accord"])
    with progress.stage("scores"):
        scored = section_scores(section, posterior, baseline=prepared.start.labels, calibration=calibration)
        if section.labels is not None:
            scored["trivial"] = _trivial(prepared, options)
    blocks = section.blocks(across=options.across_sections)
    colours = domain_colours(border_lengths(domains, section.coordinates, options.n_domains, samples=blocks))
    markers = _markers(section, domains, options, progress) if find_markers else None
    lam = blockwise(lambda block: np.ascontiguousarray(block[by_size]), solved.lam)
    return FitResult(
        domains=domains,
        posterior=posterior,
        domain_mean=lam.m,
        log_variance=lam.rho,
        hyperparameters=prepared.start.hyperparameters,
        agreement=prepared.agreement,
        calibration=calibration,
        features=prepared.fitted,
        store_features=prepared.features.store,
        graph=prepared.patching.graph,
        flow=flow_directions(prepared.normals, section.coordinates.shape[1]),
        trace=solved.columns,
        certificate=certify(final, solved.last, solved.stop, rule=stop_rule(options)),
        scores=scored,
        params=_params(options, section, prepared, solver, calibration=calibration),
        seconds=progress.seconds,
        colours=colours,
        model=None
        if unkept(section, options)
        else keep(prepared, lam, options, calibration=calibration, colours=colours),
        markers=markers,
        scan=scan,
    )


def _settle_k(
    section: Section, options: FitOptions, progress: Progress
) -> tuple[FitOptions, Scan | None, RawFeatures | None]:
    """Options with one K: as given, or chosen from a range; the fit that follows is what that K alone would give."""
    if not isinstance(options.k, str):
        return options, None, None
    raw = raw_features(section, options, progress, keep_scaled=True)
    scan = scan_domains(section, options, raw, progress)
    options = replace(options, k=scan.k)
    raw = raw._replace(scaled=None)
    # a PCA for the largest K of the range has the same leading components, but not to the last bit
    return options, scan, raw if leading_components(raw, options) is raw else None


def _trivial(prepared: Prepared, options: FitOptions) -> dict[str, float | int]:
    """ARI of k-means on the smoothed features over five seeds: what anyone gets without a model."""
    assert prepared.codes is not None  # the section has labels
    order = prepared.patching.order
    scored = prepared.codes >= 0
    features = in_unit_range(prepared.features.smoothed)
    with single_threaded():
        ari = [
            adjusted_rand_index(
                prepared.codes[scored], kmeans_labels(features, options.n_domains, seed=seed, n_init=1)[order][scored]
            )
            for seed in range(_TRIVIAL_SEEDS)
        ]
    return {"ari": float(np.mean(ari)), "ari_min": min(ari), "ari_max": max(ari), "n_seeds": _TRIVIAL_SEEDS}


def _markers(
    section: Section, domains: np.ndarray, options: FitOptions, progress: Progress
) -> dict[str, list[str]] | None:
    """Marker genes of each domain; None where the fit has no counts."""
    if section.counts is None:
        return None
    named = name_domains(domains, options.n_domains)
    with progress.stage("markers"):
        return marker_genes(rank_markers(section.counts, section.gene_names.to_numpy(), named), named)


def _warn_of_empty(domains: np.ndarray, begun: np.ndarray, k: int) -> None:
    """Say which domains ended without a spot and why, from the labels that the fit began with, numbered as domains."""
    filled = np.unique(domains).size
    if filled < k:
        msg = (
            f"Expected {k} domains, found spots in {filled}; the last {k - filled} categories are empty: "
            f"{explain_empty(domains, begun, k)}. Lower --k, or start elsewhere with another --seed or --init."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)


def _params(
    options: FitOptions, section: Section, prepared: Prepared, solver: Solver, *, calibration: Calibration | None
) -> dict[str, Any]:
    """Every option in force and what it met; options that are off are left out (None cannot be stored everywhere)."""
    patching = prepared.patching
    n_features = int(prepared.fitted.shape[1])
    found = {
        **prepared.found,
        "n_spots": int(section.coordinates.shape[0]),
        "n_features": n_features,
        "n_pcs": options.n_pcs if section.rep is not None or options.n_pcs == 0 else n_features,
        "n_patches": len(patching.patches),
        "n_edges": int(patching.graph.nnz // 2),
        "n_edges_dropped": patching.n_dropped,
        "n_edges_across": count_crossing(section, patching.graph)[0] if options.across_sections else None,
        "label_key": section.label_key,
        "temperature": None if calibration is None else calibration.temperature,
    }
    settings = solver.settings
    in_force = {name: getattr(settings, name) for name in solver.options if hasattr(settings, name)}
    everything = {**in_force, **{key: value for key, value in options.__dict__.items() if value is not None}, **found}
    params = {key: value for key, value in everything.items() if value is not None}
    params["versions"] = library_versions(*(("harmonypy",) if options.correct == "harmony" else ()))
    return params


def library_versions(*optional: str) -> dict[str, str]:
    """Versions of what numbers depend on, and of optional packages that were used."""
    names = ("anndata", "numba", "numpy", "scanpy", "scikit-learn", "scipy", *optional)
    return {"spatialpdvi": __version__} | {name: version(name) for name in names}


def explain_empty(domains: np.ndarray, begun: np.ndarray, k: int) -> str:
    """Which domains are empty and why, in words: none at the start, or lost to which others during the fit.

    Parameters
    ----------
    domains
        (n,) in 0..k-1 at the end of the fit.
    begun
        (n,) labels that the fit began with, numbered like the domains they became.
    k
        Number of domains, at least one of which has no spot.
    """
    empty = np.setdiff1d(np.arange(k), domains)
    at_start = np.bincount(begun, minlength=k)[empty]
    reasons = [_lost(lost, domains, begun) for lost in empty[at_start > 0][:_SHOWN]]
    more = int((at_start > 0).sum()) - len(reasons)
    if more > 0:
        reasons.append(f"{more} more lost theirs in the same way")
    never = empty[at_start == 0]
    if never.size:
        names = ", ".join(map(str, never))
        reasons.append(f"{names} had no spot from the start on, whose labels are fewer than {k}")
    return "; ".join(reasons)


def _lost(lost: int, domains: np.ndarray, begun: np.ndarray) -> str:
    """Where the spots went that a domain began with."""
    own = domains[begun == lost]
    to, spots = np.unique(own, return_counts=True)
    largest = np.argsort(-spots, kind="stable")[:_NAMED]
    where = ", ".join(f"{spots[i]:,} to {to[i]}" for i in largest)
    others = "" if to.size <= _NAMED else f" and {own.size - spots[largest].sum():,} elsewhere"
    return f"{lost} lost the {own.size:,} spots it began with during the fit, {where}{others}"
