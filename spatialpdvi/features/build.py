"""Features of a section before any start: from counts or as given, centred, averaged over neighbours in space."""

import warnings
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.features.components import principal_components
from spatialpdvi.features.harmony import check_harmony, harmonise
from spatialpdvi.features.projection import GeneProjection, centre_samples, learn_projection
from spatialpdvi.features.scaling import pearson_residuals, scaled_genes, take_genes
from spatialpdvi.features.selection import select_genes
from spatialpdvi.features.smoothing import neighbor_averages, predictive_neighbors
from spatialpdvi.features.space import Space
from spatialpdvi.features.tally import tally
from spatialpdvi.io.section.counts import warn_of_empty
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.options.k_range import candidates
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.threads import single_threaded

__all__ = [
    "SCALES",
    "FeatureSet",
    "RawFeatures",
    "correct_sections",
    "leading_components",
    "make_features",
    "raw_features",
]

_WIDEST = 60  # columns that restarts see as they are; of more they see principal components
SCALES = (0.5, 1.0, 2.0)  # of the section's own: what restarts see
_FAR = 10.0  # sd from zero: columns whose mean is farther are fitted about their mean
_DIGITS = 0.1  # of a column's sd: the coarsest step between its numbers that leaves them worth fitting


class RawFeatures(NamedTuple):
    """Features of a section before they are averaged in space: the same for every number of domains."""

    values: np.ndarray | sp.csr_matrix  # (n, d): what is fitted
    components: np.ndarray  # (n, p) dense: what restarts see, the same where possible
    found: dict[str, Any]  # for params
    genes: GeneProjection | None = None  # how they follow from counts, where that is the same for other sections
    origin: np.ndarray | None = None  # (d,) what was taken off columns that are given; None where they are as they were
    scaled: np.ndarray | sp.csr_matrix | None = None  # (n, genes) that components are of, where asked for and counts
    ranked: bool = True  # components come by falling variance, so that the first may be taken alone


class FeatureSet(NamedTuple):
    """Features of a section, before any start."""

    base: np.ndarray | sp.csr_matrix  # (n, d): what is fitted, smoothed where dense, not yet rotated
    smoothed: np.ndarray  # (n, p) dense, at the scale of the section: what a trivial method would cluster
    views: tuple[np.ndarray, ...]  # (n, p) each: the scales that restarts see
    store: bool  # no matrix of the file already
    found: dict[str, Any]  # for params
    space: Space | None = None  # None where another section cannot be brought into it


def raw_features(
    section: Section, options: FitOptions, progress: Progress, *, keep_scaled: bool = False
) -> RawFeatures:
    """Features by `--rep`, or from the counts by the paper's preprocessing; sections brought together if asked.

    With ``keep_scaled`` the scaled genes, which are large, stay beside their components.
    """
    _check_correction(section, options)
    _check_across(section, options)
    raw = _from_counts(section, options, progress) if section.features is None else _given(section, options)
    if not keep_scaled:
        raw = raw._replace(scaled=None)
    if options.correct == "harmony":
        _check_harmonisable(raw, options)
        with progress.stage("harmony"):
            return _corrected(raw, section, options)
    return _corrected(raw, section, options)


def correct_sections(x: np.ndarray, section: Section, options: FitOptions) -> np.ndarray:
    """Dense features (n, d) of several sections, brought together as `--correct` asks."""
    samples = section.spots_of_samples()
    if options.correct == "center":
        return centre_samples(x, samples)
    if options.correct == "harmony":
        with single_threaded():
            return harmonise(x, samples, seed=options.seed)
    return x


def make_features(
    section: Section, options: FitOptions, progress: Progress, *, raw: RawFeatures | None = None
) -> FeatureSet:
    """Features of a section, averaged over neighbours in space; ``raw`` are those of `raw_features`, where made."""
    raw = raw_features(section, options, progress) if raw is None else leading_components(raw, options)
    components, samples = raw.components, section.blocks(across=options.across_sections)
    with progress.stage("smooth") as stage:
        # an average over more than half the spots that a domain has on average would blur the domains themselves
        most = section.coordinates.shape[0] // (2 * options.n_domains * len(samples))
        scale = options.smooth
        if scale is None:
            scale = predictive_neighbors(components, section.coordinates, samples=samples, most=most, seed=options.seed)
        scales = tuple(dict.fromkeys(min(int(factor * scale), max(most, scale)) for factor in SCALES))
        views = neighbor_averages(components, section.coordinates, scales, samples=samples)
        smoothed = views[scales.index(scale)]
        stage.note(f"{scale} nearest spots" if scale else "off")
    base = raw.values
    if scale and isinstance(base, np.ndarray):
        base = smoothed
        if raw.values is not components:
            (base,) = neighbor_averages(raw.values, section.coordinates, (scale,), samples=samples)
    store = section.features is None or base is not section.features
    found = {**raw.found, "smooth": int(scale)}
    return FeatureSet(base, smoothed, tuple(views), store, found, _space(section, raw))


def _check_correction(section: Section, options: FitOptions) -> None:
    """Refuse a correction that has nothing to do or to do it with, before any work is done."""
    if options.correct == "none":
        return
    _check_several(section, f"`--correct {options.correct}`")
    if options.correct == "harmony":
        check_harmony()


def _check_across(section: Section, options: FitOptions) -> None:
    """Refuse edges across sections where there is one section, or where these are not aligned in space."""
    if not options.across_sections:
        return
    _check_several(section, "--across-sections")
    if section.coordinates.shape[1] != 3:
        msg = (
            f"Expected coordinates in 3-D with --across-sections, found 2 columns in {options.spatial_key!r}: without "
            "a z, spots above each other would be at one place. Name aligned x, y and z with --spatial-key: a key of "
            "obsm with 3 columns, or columns of obs with commas between (x,y,z)."
        )
        raise InputError(msg)


def _check_several(section: Section, flag: str) -> None:
    if section.samples is None or len(section.samples.categories) < 2:
        msg = f"Expected several sections with {flag}, found one. Name --sample-key, or give more files."
        raise InputError(msg)


def _most_components(section: Section, options: FitOptions) -> int:
    """Components for the largest number of domains that is asked for."""
    k = options.k
    return options.components_of(candidates(k, section.coordinates.shape[0])[-1] if isinstance(k, str) else k)


def leading_components(raw: RawFeatures, options: FitOptions) -> RawFeatures:
    """Raw features for one K of a range, of features that have the components for its largest."""
    d = options.components_of(options.n_domains)
    if options.n_pcs or d >= raw.components.shape[1] or not raw.ranked:
        return raw
    components = np.ascontiguousarray(raw.components[:, :d])
    return raw._replace(values=components if raw.values is raw.components else raw.values, components=components)


def _from_counts(section: Section, options: FitOptions, progress: Progress) -> RawFeatures:
    """Principal components of the counts, or the scaled genes themselves."""
    counts = section.counts
    assert counts is not None  # a section has counts or features
    with progress.stage("genes") as stage:
        tallied = tally(counts)
        if not isinstance(counts, sp.csr_matrix):  # of others it was told when they were read
            warn_of_empty(tallied.totals, section.spot_names)
        genes = select_genes(tallied, options.n_top_genes)
        stage.note(f"{genes.size:,} of {counts.shape[1]:,} genes")
        scaled: np.ndarray | sp.csr_matrix
        recipe: dict[str, Any] = {
            "target_sum": options.target_sum,
            "transform": options.transform,
            "clip": options.clip,
        }
        kept = None
        if options.transform == "pearson":
            scaled = pearson_residuals(counts, genes)
        else:
            kept = scaled_genes(take_genes(counts, genes), genes, tallied.totals, **recipe)
            scaled = kept.values
    fit_genes = options.n_pcs == 0
    with progress.stage("PCA") as stage:
        pca = principal_components(scaled, _most_components(section, options), seed=options.seed)
        components = pca.scores
        stage.note(f"{components.shape[1]} components" + (", for the start only" if fit_genes else ""))
    if options.n_pcs is not None and options.n_pcs > components.shape[1]:
        msg = (
            f"Expected at least {options.n_pcs + 1} spots and genes for --n-pcs {options.n_pcs}, found "
            f"{scaled.shape[0]} and {scaled.shape[1]}; {components.shape[1]} components are used."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    found = {"counts": section.counts_source, "n_genes": int(scaled.shape[1])}
    if fit_genes or kept is None:
        return RawFeatures(scaled if fit_genes else components, components, found, scaled=scaled)
    genes_kept = learn_projection(kept, pca, section.gene_names, **recipe)
    return RawFeatures(components, components, found, genes_kept, scaled=scaled)


def _given(section: Section, options: FitOptions) -> RawFeatures:
    """The features that `--rep` names."""
    x = section.features
    assert x is not None
    width = x.shape[1]
    if options.n_pcs is not None and options.n_pcs > width:
        msg = (
            f"Expected `--n-pcs` to be at most the {width} columns of {section.rep!r}, found {options.n_pcs}. Lower it."
        )
        raise InputError(msg)
    most = _most_components(section, options)
    d = options.n_pcs or (min(most, width) if _are_components(x) else width)
    chosen = x if d == width else x[:, :d]
    found: dict[str, Any] = {"rep_columns": int(d)}
    origin = None
    if isinstance(chosen, np.ndarray):
        chosen = np.ascontiguousarray(chosen)
        origin = _far_origin(chosen, section)
        if origin is not None:
            found["rep_centred"] = True
            chosen = (chosen - origin).astype(chosen.dtype)
        if d <= _WIDEST:
            return RawFeatures(chosen, chosen, found, origin=origin, ranked=_are_components(x))
    components = principal_components(chosen, most, seed=options.seed).scores
    return RawFeatures(chosen, components, found, origin=origin)


def _far_origin(x: np.ndarray, section: Section) -> np.ndarray | None:
    """Mean (d,) of columns some of which lie far from zero beside their spread; None where none does.

    F and its data term hold squares of the features: at a mean of 1e8 sd their differences have no digits left, and
    from some 100 sd on F settles to fewer digits than its tolerance asks. A shift of all spots changes neither domains
    nor posteriors, and the cosines of edges between features that all lie on one side of zero say nothing.
    """
    mean, sd = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    varies = x.min(axis=0) < x.max(axis=0)  # the spread of a constant is that of rounding
    if not (np.abs(mean) > _FAR * sd)[varies].any():
        return None
    steps = np.spacing(np.abs(mean).astype(x.dtype)).astype(np.float64)
    coarse = np.flatnonzero(varies & (steps > _DIGITS * sd))
    if coarse.size:
        worst = coarse[0]
        msg = (
            f"Expected features with digits to tell spots apart, found {coarse.size:,} columns of {section.rep!r} so "
            f"far from zero that {x.dtype} has few left (first: column {worst}, mean {mean[worst]:.3g}, standard "
            f"deviation {sd[worst]:.3g}, steps of {steps[worst]:.3g}). Take the mean off before they are stored."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return np.asarray(mean)


def _are_components(x: np.ndarray | sp.csr_matrix) -> bool:
    """Whether dense columns come by falling variance, as those of a PCA do: then the first ones matter most."""
    if not isinstance(x, np.ndarray):
        return False
    variance = x.var(axis=0, dtype=np.float64)
    return bool(variance.size > 1 and (np.diff(variance) <= 1e-6 * variance[0]).all())


def _corrected(raw: RawFeatures, section: Section, options: FitOptions) -> RawFeatures:
    """Features of which what is dense went through `correct_sections`."""
    components = correct_sections(raw.components, section, options)
    values = raw.values
    if values is raw.components:
        values = components
    elif isinstance(values, np.ndarray):
        values = correct_sections(values, section, options)
    return raw._replace(values=values, components=components)


def _check_harmonisable(raw: RawFeatures, options: FitOptions) -> None:
    """Refuse Harmony where components are not what is fitted."""
    values = raw.values
    if values is not raw.components:
        kind = "dense" if isinstance(values, np.ndarray) else "sparse"
        msg = (
            f"Expected at most {_WIDEST} dense columns with `--correct harmony`, found {values.shape[1]} {kind} ones "
            f"of --rep {options.rep!r}. Fit their leading columns with --n-pcs, or choose --correct none."
        )
        raise InputError(msg)


def _space(section: Section, raw: RawFeatures) -> Space | None:
    if not isinstance(raw.values, np.ndarray) or (raw.genes is None and section.features is None):
        return None
    width = 0 if section.features is None else int(section.features.shape[1])
    centre = raw.values.mean(axis=0, dtype=np.float64)
    origin = np.zeros_like(centre) if raw.origin is None else raw.origin
    return Space(raw.genes, section.rep, width, centre, origin)
