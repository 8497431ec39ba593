"""One section of tissue, read and checked, so that later code need not check it again."""

import warnings
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.formats.sources import Source, select_spots
from spatialpdvi.io.section.background import (
    Exclusion,
    enough_counts,
    read_mask,
    warn_of_background,
    warn_of_in_tissue,
)
from spatialpdvi.io.section.coordinates import read_coordinates
from spatialpdvi.io.section.counts import find_counts, read_counts, warn_of_repeated, warn_of_unmeasured
from spatialpdvi.io.section.features import read_features, read_graph
from spatialpdvi.io.section.labels import read_initial, read_labels, read_samples, spots_by_section
from spatialpdvi.runtime.rows import CountRows, SelectedRows, row_sums

__all__ = ["Section", "check_spots", "read_section"]


class Section(NamedTuple):
    """What a fit needs of a file. Its arrays may share memory with the source: do not write to them."""

    counts: CountRows | None  # (n, genes), whole numbers >= 0; None with `rep`
    counts_source: str  # "layers['count']", "X", "raw.X"; "" with `rep`
    gene_names: pd.Index  # (genes,) columns of `counts`; empty with `rep`
    spot_names: pd.Index  # (n,)
    coordinates: np.ndarray  # (n, 2|3) float64, in the file's unit
    labels: pd.Categorical | None  # (n,) strings; missing has code -1
    label_key: str | None
    features: np.ndarray | sp.csr_matrix | None  # (n, d) float32 or float64, with `rep` alone
    rep: str | None
    init_labels: np.ndarray | None  # (n,) int64 codes 0, 1, ...
    graph: sp.csr_matrix | None  # (n, n) float64, symmetric, no diagonal
    samples: pd.Categorical | None = None  # (n,): the section of each spot, where there are several; none missing
    kept: np.ndarray | None = None  # (all spots of the source,) bool: the n of the section; None where it has all
    told_of_background: bool = False  # the user has chosen the spots, or been warned of some that are off the tissue

    def spots_of_samples(self) -> list[np.ndarray]:
        """Return the spots (ascending) of each section, in the order of the categories."""
        return spots_by_section(self.samples, self.coordinates.shape[0])

    def names_of_samples(self) -> list[str]:
        """Return the names of the sections; none where all spots are one section."""
        return [] if self.samples is None else [str(name) for name in self.samples.categories]

    def of(self, spots: np.ndarray) -> Self:
        """Return the section of some of its spots (ascending), whose counts are in memory."""
        samples = self.samples
        return self._replace(
            counts=None if self.counts is None else _rows(self.counts, spots),
            spot_names=self.spot_names[spots],
            coordinates=self.coordinates[spots],
            labels=None if self.labels is None else self.labels[spots],
            features=None if self.features is None else self.features[spots],
            init_labels=None if self.init_labels is None else self.init_labels[spots],
            graph=None if self.graph is None else self.graph[spots][:, spots].tocsr(),
            samples=None if samples is None else samples[spots].remove_unused_categories(),
            kept=None,
        )

    def neighbourhood_groups(self, *, across: bool) -> list[np.ndarray]:
        """Return the groups of spots (ascending) that can be neighbours: one per section, or a single one."""
        return [np.arange(self.coordinates.shape[0])] if across else self.spots_of_samples()

    def coordinates_apart(self, *, across: bool) -> np.ndarray:
        """Return coordinates (n, 2|3) in which the `neighbourhood_groups` lie side by side, none near another.

        Sections often lie on top of each other in the file.
        """
        blocks = self.neighbourhood_groups(across=across)
        if len(blocks) == 1:
            return self.coordinates
        apart, first = np.empty_like(self.coordinates), 0.0
        widest = max(float(np.ptp(self.coordinates[spots], axis=0).max()) for spots in blocks)
        for spots in blocks:
            apart[spots] = self.coordinates[spots] - self.coordinates[spots].min(axis=0)
            apart[spots, 0] += first
            first += 3.0 * widest  # a gap of 2, where no two spots of a section are more than 1.74 apart
        return apart


def read_section(
    source: Source,
    *,
    layer: str | None = None,
    spatial_key: str = "spatial",
    label_key: str | None = None,
    rep: str | None = None,
    init: str | None = None,
    graph: str | None = None,
    sample_key: str | None = None,
    memory: int | None = None,
    exclusion: Exclusion | None = None,
    expression: bool = True,
) -> Section:
    """Read and check what a fit needs, the cheap elements first.

    Parameters
    ----------
    source
        An `H5adSource` (of zarr stores as well) or `AnnDataSource`.
    layer
        Where the counts are (a key of ``layers``, ``X`` or ``raw.X``); None to search for them.
    spatial_key
        Key of ``obsm`` with the coordinates, or columns of ``obs`` with them, such as "x,y".
    label_key
        Column of ``obs`` with the annotation; None for ``annotation`` where there is one.
    rep
        Key of ``obsm`` (or ``X``) with features to fit; counts are then not read.
    init
        Column of ``obs`` with the labels to start from.
    graph
        Key of ``obsp`` with a graph to use as it is.
    sample_key
        Column of ``obs`` that names the section of each spot.
    memory
        Bytes that may be used (`read_counts`).
    exclusion
        Which spots are left out, as if the source did not have them. Without one, a warning is given where spots seem
        to be off the tissue.
    expression
        Whether counts are read where ``rep`` names no features. Without them nothing is fitted.

    Raises
    ------
    InputError
        Where one of them is missing or cannot be used.
    """
    check_spots(source)
    warn_of_repeated(source.obs_names(), "spot", "Results are matched by row, so that none is lost.")
    kept = None
    if exclusion is not None and exclusion.is_given:
        kept = _kept(
            source, exclusion, layer=layer, spatial_key=spatial_key, rep=rep, sample_key=sample_key, memory=memory
        )
        source = select_spots(source, np.flatnonzero(kept))
    samples = None if sample_key is None else read_samples(source, sample_key)
    if samples is not None:
        _check_single_spots(samples, str(sample_key), is_fitted=expression)
    coordinates = read_coordinates(source, spatial_key, samples=samples)
    labels, found_key = read_labels(source, label_key)
    init_labels = None if init is None else read_initial(source, init)
    edges = None if graph is None else read_graph(source, graph)
    features = None if rep is None else read_features(source, rep)
    counts = read_counts(source, layer, memory=memory) if rep is None and expression else None
    section = Section(
        counts=counts.matrix if counts else None,
        counts_source=counts.source if counts else "",
        gene_names=counts.gene_names if counts else pd.Index([], dtype=object),
        spot_names=source.obs_names(),
        coordinates=coordinates,
        labels=labels,
        label_key=found_key,
        features=features,
        rep=rep,
        init_labels=init_labels,
        graph=edges,
        samples=samples,
        kept=None if kept is None or kept.all() else kept,
        told_of_background=not expression or kept is not None or warn_of_in_tissue(source),
    )
    if samples is not None and isinstance(section.counts, sp.csr_matrix):
        warn_of_unmeasured(section.counts, samples)
    if not section.told_of_background and isinstance(section.counts, sp.csr_matrix):
        warn_of_background(
            row_sums(section.counts), coordinates, section.spots_of_samples(), section.names_of_samples()
        )
    return section


def _kept(
    source: Source,
    exclusion: Exclusion,
    *,
    layer: str | None,
    spatial_key: str,
    rep: str | None,
    sample_key: str | None,
    memory: int | None,
) -> np.ndarray:
    """Whether each spot of the source is kept, (all spots,)."""
    kept = np.ones(source.n_obs, dtype=bool) if exclusion.mask is None else read_mask(source, exclusion.mask)
    if exclusion.needs_counts and kept.any():
        needed_by = option("min_genes") if exclusion.min_counts is None else option("min_counts")
        if rep is not None:
            advice = f"Features have no counts. Name the spots to be fitted with {option('mask')}."
            raise InputError(f"no {option('rep')} with {needed_by}", repr(rep), advice)
        spots = np.flatnonzero(kept)
        chosen = select_spots(source, spots)
        samples = coordinates = None
        if exclusion.min_counts == "auto":  # a number needs no places, which spots that are left out may lack
            samples = None if sample_key is None else read_samples(chosen, sample_key)
            with warnings.catch_warnings():  # those of the spots that are kept come when these are read
                warnings.simplefilter("ignore", InputWarning)
                coordinates = read_coordinates(chosen, spatial_key, samples=samples)
        counts = find_counts(chosen, layer, memory=memory).matrix
        kept[spots] = enough_counts(counts, coordinates, spots_by_section(samples, spots.size), exclusion)
    if not kept.any():
        raise InputError(f"spots to fit in {source.name}", f"{kept.size:,}, none of which is kept", "Leave out fewer.")
    return kept


def _rows(counts: CountRows, spots: np.ndarray) -> sp.csr_matrix:
    if isinstance(counts, sp.csr_matrix):
        return counts[spots]
    return sp.csr_matrix(sp.vstack(list(SelectedRows(counts, spots).blocks())))


def _check_single_spots(samples: pd.Categorical, key: str, *, is_fitted: bool) -> None:
    """Warn of sections of one spot; raise where a fit has no others, since no spot has a neighbour then."""
    single, n = int((np.bincount(samples.codes) == 1).sum()), len(samples.categories)
    if is_fitted and single == n > 1:
        found = f"{n:,} sections in obs[{key!r}] for {n:,} spots, so that none has a neighbour in its own"
        advice = f"Name a column of sections with {option('sample_key')}, not one of the IDs of spots."
        raise InputError("sections of several spots", found, advice)
    if single:
        which = f"{single:,} of {n:,} sections in obs[{key!r}] {'has' if single == 1 else 'have'} a single spot"
        text = f"{which}, which has no neighbours. Check {option('sample_key')}."
        warnings.warn(InputWarning(text), stacklevel=3)


def check_spots(source: Source) -> None:
    """Raise an `InputError` where a section has no spots."""
    if not source.n_obs:
        raise InputError(f"{source.name} to have at least one spot", "none", "Check how it was filtered.")
