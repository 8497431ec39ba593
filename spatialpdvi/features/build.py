"""Features of a section before they are averaged in space: made from counts, or given as a matrix of the file."""

import warnings
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.features.correction import correct_sections
from spatialpdvi.features.projection import GeneProjection, Space, learn_projection, principal_components
from spatialpdvi.features.scaling import (
    NormalisedRows,
    normalised_genes,
    pearson_residuals,
    scaled_genes,
    take_genes,
)
from spatialpdvi.features.selection import Tally, select_genes, tally
from spatialpdvi.io.section.background import warn_of_background
from spatialpdvi.io.section.counts import warn_of_empty, warn_of_unmeasured
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.stages import FeatureSettings, are_tall
from spatialpdvi.runtime.memory import fit_bytes, memory_limit, warn_of_limit
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.rows import CountRows, SpreadRows, row_sums

__all__ = ["COMPONENTS", "RawFeatures", "raw_features"]

COMPONENTS = f"Compute their principal components, as scanpy.pp.pca does, and name these by {option('rep')}"
_WIDEST = 60  # given columns that restarts cluster as they are; of more they cluster principal components
_FAR = 10.0  # sd from zero: columns whose mean is farther are fitted about their mean
_DIGITS = 0.1  # of a column's sd: the coarsest step between its numbers that leaves them worth fitting


class RawFeatures(NamedTuple):
    """Features of a section before they are averaged in space; K decides only how many components there are."""

    components: np.ndarray  # (n, p) dense: what restarts cluster, and what is fitted where `full` is None
    found: dict[str, Any]  # for params
    full: np.ndarray | sp.csr_matrix | None = None  # (n, d) all genes or columns, fitted instead of the components
    scaled: np.ndarray | sp.csr_matrix | None = None  # (n, genes) whose components these are, where kept
    projection: GeneProjection | None = None  # from counts to these components; None where there is none
    origin: np.ndarray | None = None  # (d,) subtracted from given columns; None where nothing is
    is_ranked: bool = True  # whether components come by falling variance, so that the first may be taken alone
    as_given: bool = False  # whether what is fitted is a matrix of the file, unchanged
    space: Space | None = None  # None where another section cannot be brought into it
    totals: np.ndarray | None = None  # (n,) counts of each spot; None where the features are given

    @property
    def fitted(self) -> np.ndarray | sp.csr_matrix:
        """What is fitted, once it is smoothed (n, d)."""
        return self.components if self.full is None else self.full

    def has_more_than(self, n_components: int) -> bool:
        """Whether a fit with ``n_components`` would use only the first of these components."""
        return self.is_ranked and n_components < self.components.shape[1]

    def leading(self, n_components: int) -> Self:
        """Return the features for a fit with at most ``n_components``.

        A PCA with fewer components gives the same ones, but not to the last bit.
        """
        if not self.has_more_than(n_components):
            return self
        components = np.ascontiguousarray(self.components[:, :n_components])
        return self._replace(components=components, as_given=self.as_given and self.full is not None, space=None)


def raw_features(
    section: Section, settings: FeatureSettings, progress: Progress, *, keep_scaled: bool = False
) -> RawFeatures:
    """Return the features that `rep` names, or those made from the counts, corrected for differences between sections.

    Parameters
    ----------
    section
        Read and checked.
    settings
        Of this stage.
    progress
        Shows the stages "genes" and "PCA", where there are counts, and "harmony".
    keep_scaled
        Whether the scaled genes, which are large, are returned beside their components.

    Raises
    ------
    InputError
        Where no features can be made: too few genes or columns that vary, or too many columns for Harmony.
    """
    if section.features is None:
        raw = _from_counts(section, settings, progress, as_matrix=keep_scaled or settings.n_pcs == 0)
    else:
        raw = _from_columns(section.features, section.rep, settings)
    if not keep_scaled:
        raw = raw._replace(scaled=None)
    if settings.correct != "none":
        raw = _corrected(raw, section, settings, progress)
    return raw._replace(space=_space(section, raw))


def _from_counts(section: Section, settings: FeatureSettings, progress: Progress, *, as_matrix: bool) -> RawFeatures:
    """Principal components of the counts, or the scaled genes themselves, which are then needed as a matrix."""
    counts = section.counts
    assert counts is not None  # a section has counts or features
    recipe: dict[str, Any] = {
        "target_sum": settings.target_sum,
        "transform": settings.transform,
        "clip": settings.clip,
    }
    with progress.stage("genes") as stage:
        tallied = tally(counts)
        if not isinstance(counts, sp.csr_matrix):  # for counts in memory the reader has warned
            warn_of_empty(tallied.totals, section.spot_names)
            if not section.told_of_background:
                blocks, names = section.spots_of_samples(), section.names_of_samples()
                warn_of_background(tallied.totals, section.coordinates, blocks, names)
        genes = select_genes(tallied, settings.n_top_genes)
        stage.note(f"{genes.size:,} of {counts.shape[1]:,} genes")
        scaled_counts = None
        if settings.transform != "pearson":
            normalised = _normalised(counts, genes, tallied, section.samples, settings, as_matrix=as_matrix)
            scaled_counts = scaled_genes(normalised, genes, clip=settings.clip)
        scaled = pearson_residuals(counts, genes) if scaled_counts is None else scaled_counts.values
    if scaled.shape[1] < 2 and genes.size == settings.n_top_genes < counts.shape[1]:  # there are more to select
        selected = f"{scaled.shape[1]} with {option('n_top_genes', settings.n_top_genes)}"
        raise InputError("at least 2 genes that vary for a PCA", selected, "Raise it.")
    fits_genes = settings.n_pcs == 0
    with progress.stage("PCA") as stage:
        pca = principal_components(scaled, settings.n_components, seed=settings.seed)
        n_components = pca.scores.shape[1]
        stage.note(f"{n_components} components" + (", for the start only" if fits_genes else ""))
    if settings.n_pcs is not None and settings.n_pcs > n_components:
        text = (
            f"{scaled.shape[0]:,} spots and {scaled.shape[1]:,} genes have {n_components} principal components, fewer "
            f"than {option('n_pcs', settings.n_pcs)}; all of them are used."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    projection = None
    if scaled_counts is not None and not fits_genes:
        counted = genes if settings.totals == "selected" else np.arange(counts.shape[1])
        projection = learn_projection(scaled_counts, pca, section.gene_names, counted=counted, **recipe)
    found = {"counts": section.counts_source, "n_genes": int(scaled.shape[1])}
    full = scaled if fits_genes else None
    return RawFeatures(pca.scores, found, full=full, scaled=scaled, projection=projection, totals=tallied.totals)


def _normalised(
    counts: CountRows,
    genes: np.ndarray,
    tallied: Tally,
    samples: pd.Categorical | None,
    settings: FeatureSettings,
    *,
    as_matrix: bool,
) -> sp.csr_matrix | NormalisedRows:
    """The selected genes of each spot, in memory where there is room for them, or nothing else is possible."""
    recipe: dict[str, Any] = {"target_sum": settings.target_sum, "transform": settings.transform}
    totals = tallied.totals if settings.totals == "all" else None
    n_values, n = int(tallied.spots()[genes].sum()), counts.shape[0]
    if not isinstance(counts, sp.csr_matrix):
        needed = fit_bytes(n, n_values)
        if needed > memory_limit(settings.memory):
            can_be_read_again = are_tall((n, genes.size)) and not isinstance(counts, SpreadRows)
            if can_be_read_again and not as_matrix:
                return NormalisedRows(counts, genes, totals, **recipe)
            what = f"The fit of {n:,} spots with {n_values:,} values of {genes.size:,} selected genes"
            warn_of_limit(needed, settings.memory, what, f"Select fewer genes with {option('n_top_genes')}.")
    taken = take_genes(counts, genes, n_values)
    if samples is not None and not isinstance(counts, sp.csr_matrix):  # for counts in memory the reader has warned
        warn_of_unmeasured(taken, samples)
    totals = row_sums(taken) if totals is None else totals
    return normalised_genes(taken, totals, **recipe, in_place=True)


def _from_columns(x: np.ndarray | sp.csr_matrix, rep: str | None, settings: FeatureSettings) -> RawFeatures:
    """Given columns: all of them, or the first where they are the components of a PCA."""
    width, n_pcs = x.shape[1], settings.n_pcs
    if n_pcs is not None and n_pcs > width:
        raise InputError(f"at most the {width} columns of {rep!r}", str(n_pcs), "Lower it.", option="n_pcs")
    is_ranked = _is_ranked(x)
    d = n_pcs or (min(settings.n_components, width) if is_ranked else width)
    if d < width and not is_ranked:
        text = (
            f"The variances of the columns of {rep!r} do not fall, so that they are no principal components. The first "
            f"{d} of {width} are fitted, as {option('n_pcs', d)} says; leave it out to fit all of them."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    chosen = x if d == width else x[:, :d]
    found: dict[str, Any] = {"rep_columns": int(d)}
    origin = None
    if isinstance(chosen, np.ndarray):
        chosen = np.ascontiguousarray(chosen)
        origin = _far_origin(chosen, rep)
        if origin is not None:
            found["rep_centred"] = True
            chosen = (chosen - origin).astype(chosen.dtype)
    as_given = d == width and origin is None
    if isinstance(chosen, np.ndarray) and d <= _WIDEST:
        return RawFeatures(chosen, found, origin=origin, is_ranked=is_ranked, as_given=as_given)
    components = principal_components(chosen, settings.n_components, seed=settings.seed).scores
    return RawFeatures(components, found, full=chosen, origin=origin, as_given=as_given)


def _far_origin(x: np.ndarray, rep: str | None) -> np.ndarray | None:
    """Mean (d,) of columns some of which lie far from zero, compared with their spread; None where none does.

    F and its data term hold squares of the features: at a mean of 1e8 sd no digits are left for their differences, and
    from some 100 sd on F settles to fewer digits than its tolerance asks for. A shift of all spots changes neither
    domains nor posteriors, and the cosines of edges between features that all lie on one side of zero say nothing.
    """
    mean, sd = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    varies = x.min(axis=0) < x.max(axis=0)
    if not varies.any():
        return None
    spread = np.where(varies, sd, np.median(sd[varies]))  # that of a constant is rounding
    if not (np.abs(mean) > _FAR * spread).any():
        return None
    steps = np.spacing(np.abs(mean).astype(x.dtype)).astype(np.float64)
    coarse = np.flatnonzero(varies & (steps > _DIGITS * sd))
    if coarse.size:
        worst = coarse[0]
        text = (
            f"{coarse.size:,} columns of {rep!r} lie so far from zero that {x.dtype} has few digits left to tell spots "
            f"apart (first: column {worst}, mean {mean[worst]:.3g}, standard deviation {sd[worst]:.3g}, steps of "
            f"{steps[worst]:.3g}). Subtract the mean before the columns are stored."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return np.asarray(mean)


def _is_ranked(x: np.ndarray | sp.csr_matrix) -> bool:
    """Whether dense columns come by falling variance, as those of a PCA do: then the first ones matter most."""
    if not isinstance(x, np.ndarray):
        return False
    variance = x.var(axis=0, dtype=np.float64)
    return bool(variance.size > 1 and (np.diff(variance) <= 1e-6 * variance[0]).all())


def _corrected(raw: RawFeatures, section: Section, settings: FeatureSettings, progress: Progress) -> RawFeatures:
    """Features whose dense matrices are corrected for differences between sections."""
    is_harmony = settings.correct == "harmony"
    if is_harmony and raw.full is not None:
        _refuse_to_harmonise(raw.full, section.rep)
    correct = partial(correct_sections, samples=section.spots_of_samples(), method=settings.correct, seed=settings.seed)
    with progress.stage("harmony") if is_harmony else nullcontext():
        components = correct(raw.components)
        if not isinstance(raw.full, np.ndarray):
            if raw.full is not None:
                _warn_of_uncentred(section.rep)
            return raw._replace(components=components, as_given=raw.as_given and raw.full is not None)
        return raw._replace(components=components, full=correct(raw.full), as_given=False)


def _warn_of_uncentred(rep: str | None) -> None:
    text = (
        f"The columns of {rep!r} are sparse, so that {option('correct', 'center')} cannot subtract anything from them: "
        f"the sections differ in what is fitted as they do in the file, and only the start is centred. {COMPONENTS}."
    )
    warnings.warn(InputWarning(text), stacklevel=2)


def _refuse_to_harmonise(full: np.ndarray | sp.csr_matrix, rep: str | None) -> None:
    """Raise because what is fitted is not the components, which are all that Harmony corrects."""
    kind = "dense" if isinstance(full, np.ndarray) else "sparse"
    advice = COMPONENTS if kind == "sparse" else f"Fit their leading columns with {option('n_pcs')}"
    raise InputError(
        f"at most {_WIDEST} dense columns with {option('correct', 'harmony')}",
        f"{full.shape[1]} {kind} ones of {rep!r}",
        f"{advice}, or choose {option('correct', 'none')}.",
    )


def _space(section: Section, raw: RawFeatures) -> Space | None:
    """The space of dense features that a projection or the columns of another section lead into."""
    fitted = raw.fitted
    if not isinstance(fitted, np.ndarray) or (raw.projection is None and section.features is None):
        return None
    width = 0 if section.features is None else int(section.features.shape[1])
    centre = fitted.mean(axis=0, dtype=np.float64)
    origin = np.zeros_like(centre) if raw.origin is None else raw.origin
    return Space(raw.projection, section.rep, width, centre, origin)
