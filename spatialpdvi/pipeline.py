"""The whole fit of one section on one page: features, start, graph, patches, solver, result."""

import warnings
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi import __version__
from spatialpdvi.certificate import certify, gradient_norm
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.preprocess import principal_components, scaled_genes, select_genes
from spatialpdvi.graph.flow import border_directions, flow_directions
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.weights import weigh_edges
from spatialpdvi.io.sections import Section, read_section
from spatialpdvi.io.sources import Source
from spatialpdvi.optimise import Optimum, StopRule, TraceRow, optimise
from spatialpdvi.options import DEFAULT_N_PCS, SOLVER_OPTIONS, FitOptions, idle_options
from spatialpdvi.patches import Patching, default_n_patches, make_patches
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_gmm import PottsGlobals, PottsGMM
from spatialpdvi.progress import Progress, Stage
from spatialpdvi.result import FitResult, order_by_size
from spatialpdvi.scores import adjusted_rand_index, scores
from spatialpdvi.solvers import Solver, SolverSettings, make_solver
from spatialpdvi.start import Start, average_neighbors, kmeans_labels, one_hot, start_from_labels
from spatialpdvi.threads import single_threaded

__all__ = ["FeatureSet", "Prepared", "fit_section", "make_features", "prepare", "read_inputs", "solver_from"]


class FeatureSet(NamedTuple):
    """Features of a section, before any start."""

    fitted: np.ndarray | sp.csr_matrix  # (n, d) float32, or float64 where it was given so
    for_start: np.ndarray  # (n, p) float32, dense: what k-means sees
    store: bool  # no matrix of the file already
    found: dict[str, Any]  # for params


class Prepared(NamedTuple):
    """A section made into a problem with a start: all that comes before a solver, rows in patch order."""

    problem: PottsGMM
    start: Start  # labels in the user's order
    patching: Patching
    normals: np.ndarray  # (n, 3) border normals
    features: FeatureSet
    codes: np.ndarray | None  # (n,) known labels in patch order, -1 where there is none

    def initial(self) -> tuple[np.ndarray, PottsGlobals]:
        """Fresh (phi, lambda) at the start."""
        k = self.start.lam.m.shape[0]
        return one_hot(self.start.labels[self.patching.order], k), self.start.lam

    def ari(self, phi: np.ndarray) -> float:
        """ARI of a posterior against the known labels, over the labelled spots; NaN without any."""
        if self.codes is None:
            return float("nan")
        scored = self.codes >= 0
        return adjusted_rand_index(self.codes[scored], phi[scored].argmax(axis=1))


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
    )


def prepare(
    section: Section, options: FitOptions, progress: Progress, *, features: FeatureSet | None = None
) -> Prepared:
    """Features, start, graph and patches of a section: everything but the solver.

    ``features`` are those of `make_features`, where several starts share them.

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
        features = make_features(section, options, progress)
    with progress.stage("start"), single_threaded():
        start = _make_start(section, features, options)
    with progress.stage("graph") as stage:
        normals = border_directions(section.coordinates, start.labels, options.flow_neighbors)
        graph = _weigh_graph(section, features.fitted, normals, options)
        n_patches = options.n_patches or default_n_patches(n)
        patching = make_patches(section.coordinates, graph, n_patches, keep_cross_edges=options.cross_patch_edges)
        stage.note(f"{patching.graph.nnz // 2:,} edges, {n_patches} patches")
    x = wrap_features(features.fitted[patching.order])
    problem = PottsGMM(x, patching.patches, start.hyperparameters)
    labels = section.labels
    codes = None if labels is None else labels.codes[patching.order].astype(np.int64)
    return Prepared(problem, start, patching, normals, features, codes)


def fit_section(section: Section, options: FitOptions, progress: Progress) -> FitResult:
    """Fit a section that was read and checked; raises as `prepare` does."""
    solver = solver_from(options)
    prepared = prepare(section, options, progress)
    rule = StopRule(options.tol, options.tol_objective, options.max_epochs)
    with progress.stage("fit") as stage:
        optimum, ari = _optimise(prepared, solver, options, rule, stage)
        # the certificate is of what is written, and float32 is
        phi = optimum.phi.astype(np.float32)
        final = prepared.problem.evaluate(phi.astype(np.float64), optimum.lam)
    posterior = np.empty_like(phi)
    posterior[prepared.patching.order] = phi
    by_size = order_by_size(posterior)
    posterior = np.ascontiguousarray(posterior[:, by_size])
    domains = posterior.argmax(axis=1)
    _warn_of_empty(domains, options.k)
    with progress.stage("scores"):
        xy, labels = section.coordinates, section.labels
        scored: dict[str, Any] = scores(domains, xy, labels=labels)
        scored["baseline"] = scores(prepared.start.labels, xy, labels=labels)
    return FitResult(
        domains=domains,
        posterior=posterior,
        domain_mean=np.ascontiguousarray(optimum.lam.m[by_size]),
        log_variance=np.ascontiguousarray(optimum.lam.rho[by_size]),
        hyperparameters=prepared.start.hyperparameters,
        features=prepared.features.fitted,
        store_features=prepared.features.store,
        graph=prepared.patching.graph,
        flow=flow_directions(prepared.normals, section.coordinates.shape[1]),
        trace=_trace_columns(optimum.trace, ari),
        certificate=certify(final, optimum.trace, optimum.stop, rule=rule),
        scores=scored,
        params=_params(options, section, prepared, solver),
        seconds=progress.seconds,
    )


def _check_sizes(n: int, options: FitOptions) -> None:
    for flag, value in (("--k", options.k), ("--n-patches", options.n_patches)):
        if value is not None and value > n:
            msg = f"Expected `{flag}` to be at most the number of spots, {n}, found {value}. Lower it."
            raise InputError(msg)


def make_features(section: Section, options: FitOptions, progress: Progress) -> FeatureSet:
    """Features by `--rep`, or from the counts by the paper's preprocessing."""
    if section.features is not None:
        return _given_features(section, options)
    counts = section.counts
    assert counts is not None  # a section has counts or features
    with progress.stage("genes") as stage, single_threaded():
        genes = select_genes(counts, options.n_top_genes)
        stage.note(f"{genes.size:,} of {counts.shape[1]:,} genes")
        scaled = scaled_genes(counts, genes, target_sum=options.target_sum, clip=options.clip)
    n_pcs = DEFAULT_N_PCS if options.n_pcs is None else options.n_pcs
    with progress.stage("PCA") as stage, single_threaded():
        components = principal_components(scaled, n_pcs or DEFAULT_N_PCS, seed=options.seed)
        stage.note(f"{components.shape[1]} components" + ("" if n_pcs else ", for the start only"))
    found = {"counts": section.counts_source, "n_genes": int(scaled.shape[1])}
    if options.n_pcs is not None and options.n_pcs > components.shape[1]:
        msg = (
            f"Expected at least {options.n_pcs + 1} spots and genes for --n-pcs {options.n_pcs}, found "
            f"{scaled.shape[0]} and {scaled.shape[1]}; {components.shape[1]} components are used."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return FeatureSet(components if n_pcs else scaled, components, store=True, found=found)


def _given_features(section: Section, options: FitOptions) -> FeatureSet:
    x = section.features
    assert x is not None
    d = x.shape[1]
    n_pcs = options.n_pcs or d
    if n_pcs > d:
        msg = f"Expected `--n-pcs` to be at most the {d} columns of {section.rep!r}, found {n_pcs}. Lower it."
        raise InputError(msg)
    if n_pcs < d:
        x = x[:, :n_pcs]
    if isinstance(x, np.ndarray):
        dense = x
    else:
        with single_threaded():
            dense = principal_components(x, DEFAULT_N_PCS, seed=options.seed)
    return FeatureSet(x, np.ascontiguousarray(dense), store=n_pcs < d, found={"rep_columns": int(n_pcs)})


def _make_start(section: Section, features: FeatureSet, options: FitOptions) -> Start:
    labels = section.init_labels
    if labels is None:
        # an average over more spots than a domain has on average would blur the domains themselves
        n_averaged = min(options.start_neighbors, section.coordinates.shape[0] // options.k)
        smooth = average_neighbors(features.for_start, section.coordinates, n_averaged)
        labels = kmeans_labels(smooth, options.k, seed=options.seed)
    elif labels.max() >= options.k:
        msg = (
            f"Expected `--init` to name at most --k {options.k} labels, found {labels.max() + 1} in "
            f"obs[{options.init!r}]. Raise --k or start from another column."
        )
        raise InputError(msg)
    return start_from_labels(features.fitted, labels, options.k)


def _weigh_graph(
    section: Section, x: np.ndarray | sp.csr_matrix, normals: np.ndarray, options: FitOptions
) -> sp.csr_matrix:
    pattern = section.graph
    if pattern is None:
        pattern = mutual_knn(section.coordinates, options.n_neighbors)
    isolated = int((np.diff(pattern.indptr) == 0).sum())
    if isolated:
        advice = "choose another --graph" if section.graph is not None else "raise --n-neighbors"
        msg = (
            f"Expected every spot to have a neighbour, found {isolated} isolated ones; their domain follows from "
            f"their expression alone. To join them, {advice}."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return weigh_edges(pattern, section.coordinates, normals, features=x, tau=options.tau, beta=options.beta)


def solver_from(options: FitOptions) -> Solver:
    """Solver that the options name; one that it does not have is an `InputError`."""
    chosen = {name: getattr(options, name) for name in SOLVER_OPTIONS if getattr(options, name) is not None}
    settings = {name: value for name, value in chosen.items() if name not in ("step_mean", "step_log_variance")}
    steps = (options.step_mean, options.step_log_variance)
    return make_solver(options.solver, SolverSettings(steps=steps, **settings), given=chosen)


def _optimise(
    prepared: Prepared, solver: Solver, options: FitOptions, rule: StopRule, stage: Stage
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
        prepared.initial(),
        rule=rule,
        rng=np.random.default_rng(options.seed),
        on_epoch=on_epoch,
    )
    return optimum, ari


def _trace_columns(trace: list[TraceRow], ari: list[float]) -> dict[str, np.ndarray]:
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


def _warn_of_empty(domains: np.ndarray, k: int) -> None:
    filled = np.unique(domains).size
    if filled < k:
        msg = (
            f"Expected {k} domains, found spots in {filled}; the last {k - filled} categories are empty. "
            "Lower --k, or start elsewhere with another --seed or --init."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)


def _params(options: FitOptions, section: Section, prepared: Prepared, solver: Solver) -> dict[str, Any]:
    """Every option in force and what it met; options that are off are left out (None cannot be stored everywhere)."""
    features, patching = prepared.features, prepared.patching
    n_features = int(features.fitted.shape[1])
    found = {
        **features.found,
        "n_spots": int(section.coordinates.shape[0]),
        "n_features": n_features,
        "n_pcs": options.n_pcs if section.rep is not None or options.n_pcs == 0 else n_features,
        "n_patches": len(patching.patches),
        "n_edges": int(patching.graph.nnz // 2),
        "n_edges_dropped": patching.n_dropped,
        "label_key": section.label_key,
    }
    settings = SolverSettings()
    defaults = {name: getattr(settings, name) for name in solver.options if hasattr(settings, name)}
    everything = {**defaults, **{key: value for key, value in options.__dict__.items() if value is not None}, **found}
    params = {key: value for key, value in everything.items() if value is not None}
    params["versions"] = {"spatialpdvi": __version__} | {
        name: version(name) for name in ("anndata", "numba", "numpy", "scanpy", "scikit-learn", "scipy")
    }
    return params
