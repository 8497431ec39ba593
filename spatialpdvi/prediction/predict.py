"""The domains of a saved model found in another section: its features, and posteriors with fixed globals."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi.engines import LocalEngine
from spatialpdvi.errors import InputError, InputWarning, list_keys, option, own_names
from spatialpdvi.features.correction import centre_samples
from spatialpdvi.features.projection import GeneProjection
from spatialpdvi.features.smoothing import neighbor_averages
from spatialpdvi.features.trends import Covariates, spot_covariates
from spatialpdvi.fitting.certificate import Certificate, certify
from spatialpdvi.fitting.inputs import read_inputs
from spatialpdvi.fitting.loop import Stop, StopRule, TraceRow, optimise
from spatialpdvi.fitting.result import FitResult, state_result
from spatialpdvi.fitting.solve import trace_columns
from spatialpdvi.graph.build import build_graph, join_spots, layered_edges, warn_of_places
from spatialpdvi.initialization.compositions import settle_labels
from spatialpdvi.initialization.start import Start
from spatialpdvi.initialization.states import trends_within
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.section.counts import OR_FEATURES
from spatialpdvi.io.section.section import Section
from spatialpdvi.metrics.calibration import tempered
from spatialpdvi.metrics.section import section_scores
from spatialpdvi.model import RECIPE, Model
from spatialpdvi.options.fit import OF_A_SECTION, FitOptions
from spatialpdvi.options.stages import GraphSettings
from spatialpdvi.options.states import OF_STATES
from spatialpdvi.prediction.shift import Similarity, similarity_to_model, warn_of_shift
from spatialpdvi.problems.base import Evaluation
from spatialpdvi.problems.composition import domain_term
from spatialpdvi.problems.features import wrap_features
from spatialpdvi.problems.potts_mixture import PottsGlobals, PottsMixture, data_term, one_hot
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import single_threaded
from spatialpdvi.solvers import SolverSettings
from spatialpdvi.solvers.fixed_globals import FixedGlobals
from spatialpdvi.version import library_versions

__all__ = ["predict_options", "predict_section", "read_new"]

_FEWEST = 0.5  # of the model's genes: a section with fewer is refused
_OTHER_NAMES = 0.1  # of the model's genes: where fewer are found, the section's names are of another kind
_MISSED = 0.01  # of the model's genes: where more are missing there is a warning
_MOST_SWEEPS = 500
_PASSES = 5  # of the search for the trends of a section, at most
_STRAIGHT = 0.02  # noise sd for each sd of a covariate: a trend that is not worth another pass
_SHOWN = (
    *("k", *OF_A_SECTION, "rep", *RECIPE, "smooth", "correct", "n_neighbors", "flow_neighbors"),
    *("tau", "anisotropy", "beta", "cross_patch_edges", "tol", "tol_objective", "key_added", "save_graph"),
)
_MORE_NEIGHBORS = f"fit a model with a larger {option('n_neighbors')}"
_REASONS = {
    Stop.CONVERGED: "Converged: the domains are the model's, and every posterior is stationary within the tolerance.",
    Stop.EPOCHS: f"Not converged: posteriors still moved after {_MOST_SWEEPS} epochs.",
    Stop.NOT_FINITE: "Not converged: the objective is not finite; the features are too large.",
}
_OF_A_MODEL = {OR_FEATURES: None}  # which says itself what it was fitted on


class _PosteriorRule(StopRule):
    """The stop rule with fixed globals, which need not be stationary for this section."""

    def is_met(self, now: Evaluation, before: Evaluation) -> bool:
        """Return whether the posteriors are stationary and F has settled."""
        return super().is_met(now._replace(stationarity={"globals": 0.0}), before)


def predict_options(model: Model, *, correct: str | None = None, **own: Any) -> FitOptions:
    """Return the options with which a section is predicted: the model's, and those that differ between sections.

    Parameters
    ----------
    model
        Of a fit.
    correct
        "none" or "center"; None for what the model's fit did.
    own
        Options of a fit that belong to this section: `OF_A_SECTION`, ``memory``, ``key_added`` and ``save_graph``. What
        is not given has the default of a fit.

    Raises
    ------
    InputError
        Where ``correct`` is "harmony", or a value is out of range.
    """
    if correct == "harmony":
        raise InputError(
            "none or center for a prediction",
            "harmony, which also uses all spots of the sections that were fitted",
            f"Fit the sections together with {option('correct', 'harmony')}.",
            option="correct",
        )
    return model.fit_options(**own, **({} if correct is None else {"correct": correct}))


@own_names(_OF_A_MODEL)
def read_new(source: Source, model: Model, options: FitOptions) -> Section:
    """Read and check a section to be predicted.

    Raises
    ------
    InputError
        Where it lacks the features that the model was fitted on, or what a fit needs.
    """
    rep = model.space.rep
    if rep is not None and rep not in source.obsm_keys() and not (rep == "X" and source.has_matrix("X")):
        raise InputError(
            f"obsm[{rep!r}] in {source.name}, the features that the model was fitted on",
            f"keys: {list_keys(source.obsm_keys())}",
            "Add them as they were made for the fit, or fit a model on others.",
        )
    return read_inputs(source, options, selects_genes=False)  # the model has its genes


@own_names(_OF_A_MODEL)
def predict_section(section: Section, model: Model, options: FitOptions, progress: Progress) -> FitResult:
    """Find the domains of a model in a section; they are in the order of the model.

    Parameters
    ----------
    section
        From `read_new`.
    model
        Of a fit.
    options
        From `predict_options`.
    progress
        Shows a stage for each step.

    Raises
    ------
    InputError
        Where the section has too few of the model's genes, or features of another width.
    """
    with progress.stage("features"), single_threaded():
        raw, totals, found = _raw_features(section, model)
        features, unlimited = _model_features(raw, totals, section, model, options)
    settings = GraphSettings.of(options)
    edges = None
    if model.states is not None:
        edges = layered_edges(section, features, join_spots(section, settings), settings)
    labels = _first_labels(features, model, edges)
    graph = build_graph(
        section,
        features,
        labels,
        settings,
        progress,
        advice=_MORE_NEIGHBORS,
        weights=edges,
    )
    patching = graph.patching
    warn_of_places(section, raw, patching.graph, settings)
    prior_weight = None if model.states is None else model.states.prior_weight
    start = Start(labels, model.lam, model.hyperparameters, prior_weight)
    problem = start.problem(wrap_features(features[patching.order]), patching.patches)
    with progress.stage("posteriors"):
        phi, certificate, trace = _settle(problem, one_hot(labels[patching.order], options.n_domains), model, options)
    posterior = patching.as_given(phi)
    domains = posterior.argmax(axis=1)
    samples = section.spots_of_samples()
    similarity = [similarity_to_model(features[spots], unlimited[spots], domains[spots], model) for spots in samples]
    warn_of_shift(section, similarity, centred=options.correct == "center", with_states=model.states is not None)
    calibration = None if model.temperature is None else tempered(posterior, model.temperature)
    with progress.stage("scores"):
        scored = section_scores(section, posterior, baseline=labels, calibration=calibration)
        if section.samples is not None:
            scored["samples"] |= {
                name: np.array([getattr(own, name) for own in similarity]) for name in Similarity._fields
            }
    whole = similarity[0] if len(samples) == 1 else similarity_to_model(features, unlimited, domains, model)
    found |= whole._asdict()
    found |= {"n_spots": labels.size, "n_edges": int(patching.graph.nnz // 2), "label_key": section.label_key}
    found["temperature"] = model.temperature
    if section.kept is not None:
        found["n_excluded"] = int(np.sum(~section.kept))
    return FitResult(
        domains=domains,
        posterior=posterior,
        domain_mean=model.lam.m,
        log_variance=model.lam.rho,
        states=state_result(problem, patching.order, posterior, model.lam),
        hyperparameters=model.hyperparameters,
        agreement=None,
        calibration=calibration,
        features=features,
        store_features=True,
        graph=patching.graph,
        find_flow=graph.borders.directions,
        trace=trace_columns(trace, []),
        certificate=certificate,
        scores=scored,
        params=_params(options, model, found),
        seconds=progress.seconds,
        colours=model.colours,
        kept=section.kept,
        samples=section.samples,
    )


def _first_labels(features: np.ndarray, model: Model, edges: sp.csr_matrix | None) -> np.ndarray:
    """Labels (n,) to start from: the likeliest domains, after a few mean-field updates where domains share states."""
    x, noise_precision = wrap_features(features), 1.0 / model.hyperparameters.noise_sd**2
    if edges is None:
        return np.asarray(data_term(x, model.lam, noise_precision).argmax(axis=1))
    return settle_labels(domain_term(x, model.lam, noise_precision), edges)


def _raw_features(section: Section, model: Model) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Features (n, d) before they are averaged in space, counts of the spots, and what was found, for the parameters.

    The counts (n,) are None where the features are given.
    """
    space = model.space
    if space.genes is not None:
        assert section.counts is not None  # a section has counts or features
        missing = _check_genes(section, space.genes)
        found = {"counts": section.counts_source, "n_genes": int(space.genes.genes.size), "n_genes_missing": missing}
        return *space.genes.apply(section.counts, section.gene_names), found
    x = section.features
    assert x is not None
    if x.shape[1] != space.n_columns:
        raise InputError(
            f"{space.rep!r} to have the {space.n_columns} columns that the model was fitted on",
            str(x.shape[1]),
            "Compute it as it was computed for the fit.",
        )
    x = x[:, : space.n_features]
    dense = x if isinstance(x, np.ndarray) else x.toarray()
    if space.origin.any():
        dense = dense - space.origin
    return np.ascontiguousarray(dense), None, {"rep_columns": space.n_features}


def _check_genes(section: Section, genes: GeneProjection) -> int:
    """Number of the model's genes that the section lacks; with a warning for more than a few, an error for many."""
    names = section.gene_names
    used = names[names.isin(genes.counted)]
    if used.has_duplicates:
        twice = used[used.duplicated()].unique()
        found = f"{str(twice[0])!r} twice" + (f", and so {len(twice) - 1:,} more" if len(twice) > 1 else "")
        advice = "Which of them the model means is not known. Give each its own name: `adata.var_names_make_unique()`."
        raise InputError("unique gene names, to match genes by", found, advice)
    n, missing = genes.genes.size, int((~np.isin(genes.genes, np.asarray(used, dtype=str))).sum())
    if _OTHER_NAMES * n <= n - missing < _FEWEST * n:
        raise InputError(
            f"most of the model's {n:,} genes",
            f"{n - missing:,}",
            f"At least {_FEWEST:.0%} are needed. Give the section with all of its genes, or fit another model on the "
            "genes that both have.",
        )
    if n - missing < _FEWEST * n:
        raise InputError(
            f"most of the model's {n:,} genes",
            f"{n - missing:,} (its first is {str(genes.genes[0])!r}, the section's {str(names[0])!r})",
            "Give the section the kind of gene names that the model has, or fit another model.",
        )
    if missing > _MISSED * n:
        text = (
            f"The section lacks {missing:,} of the model's {n:,} genes ({missing / n:.0%}); they count as 0 in every "
            "spot. Give the section with all genes that it has, or fit a model on the genes that both have."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return missing


def _model_features(
    raw: np.ndarray, totals: np.ndarray | None, section: Section, model: Model, options: FitOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) float32 in the space of the model's domains, and the same without a limit for far spots.

    They are centred if the fit's were, and averaged over neighbours or, with states, freed from the section's own
    trends and drawn in to the limit; then rotated.
    """
    samples = section.spots_of_samples()
    if options.correct == "center":
        raw = centre_samples(raw, samples, model.space.centre)
    if model.states is not None:
        limit = model.states.limit
        if model.states.detrend:
            covariates = spot_covariates(section.coordinates, samples, totals)
            raw = _detrended(raw, covariates, model, seed=options.seed)
        unlimited, limited = (
            (values @ model.rotation).astype(np.float32) for values in (raw - limit.centre, limit.apply(raw))
        )
        return limited, unlimited
    (averaged,) = neighbor_averages(raw, section.coordinates, (options.smooth or 0,), samples=samples)
    features = (averaged @ model.rotation).astype(np.float32)
    return features, features


def _detrended(raw: np.ndarray, covariates: Covariates, model: Model, *, seed: int) -> np.ndarray:
    """Features (n, d) less the section's own trends within the model's states.

    Where a trend is strong, spots are told apart better without it, and what is left of it is found in the next pass.
    """
    assert model.states is not None
    lam, share = PottsGlobals(model.lam.m, model.lam.rho), model.states.prior_weight
    back = np.linalg.inv(model.rotation)
    for _ in range(_PASSES):
        features = model.states.limit.apply(raw) @ model.rotation
        within = trends_within(features, lam, share, covariates, n_kinds=model.n_domains, seed=seed)
        raw = raw - covariates.times([trend @ back for trend in within])
        if max(np.abs(trend).max() for trend in within) < _STRAIGHT:
            break
    return raw


def _settle(
    problem: PottsMixture, phi: np.ndarray, model: Model, options: FitOptions
) -> tuple[np.ndarray, Certificate, list[TraceRow]]:
    """Posteriors (n, K) float32 that are stationary with fixed globals, their certificate and the trace."""
    rule = _PosteriorRule(options.tol, options.tol_objective, _MOST_SWEEPS)
    rng = np.random.default_rng(options.seed)
    optimum = optimise(LocalEngine(problem), FixedGlobals(SolverSettings()), (phi, model.lam), rule=rule, rng=rng)
    phi = optimum.phi.astype(np.float32)
    certificate = certify(problem, phi, model.lam, trace=optimum.trace, stop=optimum.stop, rule=rule)
    return phi, replace(certificate, reason=_REASONS[optimum.stop]), optimum.trace


def _params(options: FitOptions, model: Model, found: dict[str, Any]) -> dict[str, Any]:
    """Every option in force and what was found; what is off or empty is left out."""
    absent = {*(() if model.space.rep is None else RECIPE), *(() if model.states else OF_STATES)}
    everything = {
        "model": model.name,
        "model_version": model.version,
        **{name: getattr(options, name) for name in _SHOWN if name not in absent},
        **found,
    }
    params = {key: value for key, value in everything.items() if value not in {None, ""}}
    params["versions"] = library_versions()
    return params
