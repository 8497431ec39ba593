"""The whole fit of one section on one page: prepare it, run the solver, hold what was found against what is known."""

import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi import __version__
from spatialpdvi.calibration import Calibration, calibrate, calibration_scores
from spatialpdvi.certificate import certify, gradient_norm
from spatialpdvi.colours import border_lengths, domain_colours
from spatialpdvi.errors import InputWarning
from spatialpdvi.graph.flow import flow_directions
from spatialpdvi.interpretation import marker_genes, rank_markers
from spatialpdvi.io.sections import Section, read_section
from spatialpdvi.io.sources import Source
from spatialpdvi.keeping import keep, unkept
from spatialpdvi.memory import free_memory, parse_size
from spatialpdvi.optimise import Optimum, StopRule, TraceRow, optimise
from spatialpdvi.options import SOLVER_OPTIONS, FitOptions
from spatialpdvi.preparation import Prepared, count_crossing, prepare
from spatialpdvi.problems.base import blockwise
from spatialpdvi.progress import Progress, Stage
from spatialpdvi.result import FitResult, name_domains, order_by_size
from spatialpdvi.scores import adjusted_rand_index, label_agreement, scores
from spatialpdvi.solvers import Solver, SolverSettings, make_solver
from spatialpdvi.start import Start, in_unit_range, kmeans_labels
from spatialpdvi.threads import single_threaded

__all__ = [
    "fit_section",
    "library_versions",
    "read_inputs",
    "section_scores",
    "solver_from",
    "trace_columns",
]

_TRIVIAL_SEEDS = 5


def read_inputs(source: Source, options: FitOptions) -> Section:
    """Section that a fit with these options needs, read and checked."""
    return read_section(
        source,
        layer=options.layer,
        spatial_key=options.spatial_key,
        label_key=options.label_key,
        rep=options.rep,
        init=options.init,
        graph=options.graph,
        sample=options.sample_key,
        memory=free_memory() if options.memory is None else parse_size(options.memory, "--memory"),
    )


def fit_section(section: Section, options: FitOptions, progress: Progress, *, find_markers: bool = False) -> FitResult:
    """Fit a section that was read and checked; raises as `prepare` does."""
    solver = solver_from(options)
    prepared = prepare(section, options, progress)
    rule = StopRule(options.tol, options.tol_objective, options.max_epochs)
    with progress.stage("fit") as stage:
        optimum, ari = _optimise_all(prepared, solver, options, rule, stage)
        # the certificate is of what is written, and float32 is
        phi = optimum.phi.astype(np.float32)
        final = prepared.problem.evaluate(phi.astype(np.float64), optimum.lam)
    posterior = np.empty_like(phi)
    posterior[prepared.patching.order] = phi
    by_size = order_by_size(posterior)
    posterior = np.ascontiguousarray(posterior[:, by_size])
    domains = posterior.argmax(axis=1)
    _warn_of_empty(domains, options.k)
    calibration = None
    if "restart_accord" in prepared.found:
        calibration = calibrate(posterior, prepared.found["restart_accord"])
    with progress.stage("scores"):
        scored = section_scores(section, domains)
        scored["baseline"] = section_scores(section, prepared.start.labels)
        if section.labels is not None:
            scored["trivial"] = _trivial(prepared, options)
            scored["calibration"] = calibration_scores(
                domains,
                section.labels.codes,
                confidence=posterior.max(axis=1),
                calibrated=None if calibration is None else calibration.confidence,
            )
    borders = border_lengths(
        domains, section.coordinates, options.k, samples=section.blocks(across=options.across_sections)
    )
    colours = domain_colours(borders)
    markers = _markers(section, domains, options, progress) if find_markers else None
    lam = blockwise(lambda block: np.ascontiguousarray(block[by_size]), optimum.lam)
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
        trace=trace_columns(optimum.trace, ari),
        certificate=certify(final, optimum.trace, optimum.stop, rule=rule),
        scores=scored,
        params=_params(options, section, prepared, solver, calibration=calibration),
        seconds=progress.seconds,
        colours=colours,
        model=None
        if unkept(section, options)
        else keep(prepared, lam, options, calibration=calibration, colours=colours),
        markers=markers,
    )


def solver_from(options: FitOptions) -> Solver:
    """Solver that the options name; one that it does not have is an `InputError`."""
    chosen = {name: getattr(options, name) for name in SOLVER_OPTIONS if getattr(options, name) is not None}
    settings = {name: value for name, value in chosen.items() if name not in ("step_mean", "step_log_variance")}
    steps = (options.step_mean, options.step_log_variance)
    return make_solver(options.solver, SolverSettings(steps=steps, **settings), given=chosen)


def _optimise_all(
    prepared: Prepared, solver: Solver, options: FitOptions, rule: StopRule, stage: Stage
) -> tuple[Optimum, list[float]]:
    """Run the solver from the start, or from that and every restart for the lowest F."""
    starts = [prepared.start]
    if options.restarts == "best":
        starts += prepared.other_starts()
    best = None
    for position, start in enumerate(starts):
        stage.advance(position, len(starts))
        found = _optimise(prepared, start, solver=solver, options=options, rule=rule, stage=stage)
        if best is None or _final(found) < _final(best):
            best = found
    assert best is not None  # there is always a start
    return best


def _final(found: tuple[Optimum, list[float]]) -> float:
    """F at the end; infinite where it left the finite numbers."""
    f = found[0].trace[-1].evaluation.neg_elbo
    return f if np.isfinite(f) else np.inf


def _optimise(
    prepared: Prepared, start: Start, *, solver: Solver, options: FitOptions, rule: StopRule, stage: Stage
) -> tuple[Optimum, list[float]]:
    """Run the solver; also returns ARI by epoch, empty without labels."""
    ari: list[float] = []

    def on_epoch(row: TraceRow, phi: np.ndarray) -> None:
        score = ""
        if prepared.codes is not None:
            ari.append(prepared.ari(phi))
            score = f"  ARI {ari[-1]:.3f}"
        e = row.evaluation
        stage.note(f"epoch {row.epoch}  F {e.neg_elbo:.6g}  gradient {e.worst:.1e} (to {rule.tolerance:.0e}){score}")

    optimum = optimise(
        prepared.problem,
        solver,
        prepared.initial(start),
        rule=rule,
        rng=np.random.default_rng(options.seed),
        on_epoch=on_epoch,
    )
    return optimum, ari


def section_scores(section: Section, domains: np.ndarray) -> dict[str, Any]:
    """Scores over all spots; of several sections also each one's own, since CHAOS and PAS are of one place."""
    xy, labels = section.coordinates, section.labels
    if section.samples is None:
        return dict(scores(domains, xy, labels=labels))
    own = [
        scores(domains[spots], xy[spots], labels=None if labels is None else labels[spots])
        for spots in section.spots_of_samples()
    ]
    # names of sections are the user's, and may be none that a file could have as a key: columns, not a dict
    columns: dict[str, Any] = {name: np.array([scored[name] for scored in own]) for name in own[0]}
    agreement = {} if labels is None else label_agreement(domains, labels)
    size = columns["n_spots"]
    spatial = {name: float((columns[name] * size).sum() / size.sum()) for name in ("chaos", "pas")}
    names = np.array([str(name) for name in section.samples.categories], dtype=object)
    return {**agreement, **spatial, "n_spots": int(size.sum()), "samples": {"sample": names, **columns}}


def _trivial(prepared: Prepared, options: FitOptions) -> dict[str, float | int]:
    """ARI of k-means on the smoothed features over five seeds: what anyone gets without a model."""
    assert prepared.codes is not None  # the section has labels
    order = prepared.patching.order
    scored = prepared.codes >= 0
    features = in_unit_range(prepared.features.smoothed)
    with single_threaded():
        ari = [
            adjusted_rand_index(
                prepared.codes[scored], kmeans_labels(features, options.k, seed=seed, n_init=1)[order][scored]
            )
            for seed in range(_TRIVIAL_SEEDS)
        ]
    return {"ari": float(np.mean(ari)), "ari_min": min(ari), "ari_max": max(ari), "n_seeds": _TRIVIAL_SEEDS}


def trace_columns(trace: list[TraceRow], ari: list[float]) -> dict[str, np.ndarray]:
    """Columns of equal length, one entry per epoch."""
    evaluations = [row.evaluation for row in trace]
    columns = {
        "epoch": np.array([row.epoch for row in trace]),
        "seconds": np.array([row.seconds for row in trace]),
        "neg_elbo": np.array([e.neg_elbo for e in evaluations]),
        "gradient_norm": np.array([gradient_norm(e) for e in evaluations]),
        "stationarity_mean": np.array([e.stationarity["mean"] for e in evaluations]),
        "stationarity_log_variance": np.array([e.stationarity["log_variance"] for e in evaluations]),
        "stationarity_posterior": np.array([e.residual_mean for e in evaluations]),
    }
    if ari:
        columns["ari"] = np.array(ari)
    return columns


def _markers(
    section: Section, domains: np.ndarray, options: FitOptions, progress: Progress
) -> dict[str, list[str]] | None:
    """Marker genes of each domain; None where the fit has no counts, or none that are in memory."""
    if section.counts is None:
        return None
    if not isinstance(section.counts, sp.csr_matrix):
        msg = (
            "Expected counts in memory to rank marker genes for the report, found ones that are read block by block; "
            "the report has none. Raise --memory for them."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
        return None
    named = name_domains(domains, options.k)
    with progress.stage("markers"):
        return marker_genes(rank_markers(section.counts, section.gene_names.to_numpy(), named), named)


def _warn_of_empty(domains: np.ndarray, k: int) -> None:
    filled = np.unique(domains).size
    if filled < k:
        msg = (
            f"Expected {k} domains, found spots in {filled}; the last {k - filled} categories are empty. "
            "Lower --k, or start elsewhere with another --seed or --init."
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
    settings = SolverSettings()
    defaults = {name: getattr(settings, name) for name in solver.options if hasattr(settings, name)}
    everything = {**defaults, **{key: value for key, value in options.__dict__.items() if value is not None}, **found}
    params = {key: value for key, value in everything.items() if value is not None}
    params["versions"] = library_versions(*(("harmonypy",) if options.correct == "harmony" else ()))
    return params


def library_versions(*optional: str) -> dict[str, str]:
    """Versions of what numbers depend on, and of optional packages that were used."""
    names = ("anndata", "numba", "numpy", "scanpy", "scikit-learn", "scipy", *optional)
    return {"spatialpdvi": __version__} | {name: version(name) for name in names}
