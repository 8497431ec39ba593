"""The spatial graph of a section, from its coordinates, features and start labels to patches with weighted edges."""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputWarning, option
from spatialpdvi.graph.flow import Borders
from spatialpdvi.graph.layers import layer_forms
from spatialpdvi.graph.neighbors import between_groups, mutual_knn, only_edges
from spatialpdvi.graph.patches import Patching, make_patches
from spatialpdvi.graph.weights import weigh_by_layers, weigh_edges
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.stages import GraphSettings, default_n_neighbors, default_n_patches
from spatialpdvi.runtime.progress import Progress
from spatialpdvi.runtime.rows import some_rows
from spatialpdvi.runtime.threads import nearest

__all__ = ["SpatialGraph", "build_graph", "join_spots", "layered_edges", "warn_of_places"]

# Real sections lie above, at .24 to .98, and most of them with a twentieth of their molecules too; with their places
# shuffled, all of a thousand spots lie below (docs/results_accuracy.md)
_ALIKE = 0.15
_COMPARED = 20_000  # spots of a section, at most, that are compared with their neighbours
_FEWEST = 1_000  # spots of a section: of fewer, chance alone can make such a correlation, or hide it
_FEW_ACROSS = 0.1  # of the spots: where fewer have an edge into another section there is a warning
_NUMBERED = 0.25  # of the spacing of spots: planes that are 1 apart, and closer than this, seem to be numbered


class SpatialGraph(NamedTuple):
    """The edges of a section, divided into patches."""

    borders: Borders  # between start labels
    patching: Patching
    n_across: int | None  # edges between sections; None where none are allowed


def build_graph(
    section: Section,
    features: np.ndarray | sp.csr_matrix,
    labels: np.ndarray,
    settings: GraphSettings,
    progress: Progress,
    *,
    advice: str = f"raise {option('n_neighbors')}",
    weights: sp.csr_matrix | None = None,
) -> SpatialGraph:
    """Join the spots of a section, weigh the edges, and divide spots and edges into patches.

    Parameters
    ----------
    section
        Read and checked; its own graph is used where it has one.
    features
        x (n, d) as fitted.
    labels
        (n,) of the start; borders between them give the flow directions.
    settings
        Of this stage.
    progress
        Shows the stage "graph".
    advice
        What joins isolated spots, for the warning about them.
    weights
        Of the edges of a mixture of compositions, from `layered_edges`.
    """
    xy, samples = section.coordinates, section.neighbourhood_groups(across=settings.across_sections)
    borders = Borders(xy, labels, samples, settings.flow_neighbors)
    with progress.stage("graph") as stage:
        pattern = join_spots(section, settings) if weights is None else weights
        if settings.beta > 0.0:
            _warn_of_isolated(pattern, xy, samples, "choose another graph" if section.graph is not None else advice)
        if weights is None:
            weights = weigh_edges(pattern, xy, borders.normals, features=features, tau=settings.tau, beta=settings.beta)
        n_patches = settings.n_patches or default_n_patches(xy.shape[0], settings.batch_patches or 1)
        patching = make_patches(xy, weights, n_patches, keep_cross_edges=settings.cross_patch_edges, samples=samples)
        if settings.beta > 0.0 and not settings.cross_patch_edges:
            _warn_of_patches(pattern, patching)
        n_across = None
        if settings.across_sections:
            n_across = _count_across(section, patching.graph) if settings.beta > 0.0 else 0
        across = "" if n_across is None else f", {n_across:,} of them across sections"
        stage.note(f"{patching.graph.nnz // 2:,} edges{across}, {len(patching.patches)} patches")
    return SpatialGraph(borders, patching, n_across)


def join_spots(section: Section, settings: GraphSettings) -> sp.csr_matrix:
    """Return which spots are joined (n, n): those of the given graph, or mutual nearest neighbours.

    Parameters
    ----------
    section
        Read and checked; its own graph is used where it has one.
    settings
        Of the graph.
    """
    if section.graph is None:
        samples = section.neighbourhood_groups(across=settings.across_sections)
        return _join_neighbors(section.coordinates, samples, settings.n_neighbors or default_n_neighbors())
    if section.samples is None or settings.across_sections:
        return section.graph
    return _within_samples(section.graph, np.asarray(section.samples.codes))


def layered_edges(
    section: Section, features: np.ndarray, pattern: sp.csr_matrix, settings: GraphSettings
) -> sp.csr_matrix:
    """Return the weights (n, n) of the edges of a mixture of compositions.

    Parameters
    ----------
    section
        Read and checked.
    features
        x (n, d) dense, in the coordinates of its states.
    pattern
        Which spots are joined, from `join_spots`.
    settings
        Of the graph.
    """
    samples = section.neighbourhood_groups(across=settings.across_sections)
    forms = layer_forms(features, section.coordinates, pattern, samples=samples)
    return weigh_by_layers(pattern, section.coordinates, forms, anisotropy=settings.anisotropy, beta=settings.beta)


def warn_of_places(
    section: Section, features: np.ndarray | sp.spmatrix, graph: sp.csr_matrix, settings: GraphSettings
) -> None:
    """Warn of sections in which spots are hardly more like their neighbours than like any others.

    Their places are wrong, or their molecules too few. Nothing else says so: a fit of shuffled coordinates, or of
    fields of view that lie over each other, converges. So does one of planes that are numbered instead of placed along
    z, of which the user is warned too.

    Parameters
    ----------
    section
        Read and checked.
    features
        (n, d) of single spots; sparse ones are not looked at.
    graph
        (n, n) the spots that are joined.
    settings
        Of the graph.
    """
    if section.graph is None and section.coordinates.shape[1] > 2:
        for spots in section.neighbourhood_groups(across=settings.across_sections):
            _warn_of_numbered_planes(section.coordinates[spots])
    if not isinstance(features, np.ndarray):
        return
    found = {}
    for number, spots in enumerate(section.spots_of_samples()):
        if spots.size >= _FEWEST:
            alike = _similarity(features, spots, graph)
            if alike < _ALIKE:
                found[number] = alike
    if not found:
        return
    which = ""
    if section.samples is not None:
        which = f" of {', '.join(repr(str(section.samples.categories[number])) for number in found)}"
    places = f"{option('spatial_key')} has"
    if section.graph is not None:
        places = f"{option('spatial_key')} and the graph given by {option('graph')} have"
    text = (
        f"Neighbouring spots{which} are hardly more alike than others (correlation of at most "
        f"{max(found.values()):.2f} between a spot's features and the mean of its neighbours'), so domains may say "
        f"nothing. Check that {places} the places of these spots in their order, in one system for the whole section, "
        f"and that {option('sample_key')} names the sections if there are several. Where all this is right, single "
        f"spots have too few molecules for domains, and larger bins tell more."
    )
    warnings.warn(InputWarning(text), stacklevel=2)


def _similarity(features: np.ndarray, spots: np.ndarray, graph: sp.csr_matrix) -> float:
    """Largest correlation, over features, of spots (m,) of a section with the mean of those joined to each."""
    some = some_rows(spots[np.diff(graph.indptr)[spots] > 0], 0, _COMPARED)
    if some.size < _FEWEST:
        return np.inf  # too few spots have neighbours to say
    joined = graph[some]
    joined.data = np.repeat(1.0 / np.diff(joined.indptr), np.diff(joined.indptr))
    own, around = features[some].astype(np.float64), joined @ features
    own -= own.mean(axis=0)
    around -= around.mean(axis=0)
    size = np.sqrt((own**2).sum(axis=0) * (around**2).sum(axis=0))
    both = (own * around).sum(axis=0)
    return float(np.divide(both, size, out=np.zeros_like(both), where=size > 0.0).max())


def _join_neighbors(coordinates: np.ndarray, samples: list[np.ndarray], n_neighbors: int) -> sp.csr_matrix:
    """Mutual nearest neighbours (n, n) among the spots of each sample."""
    n = coordinates.shape[0]
    if len(samples) == 1 and samples[0].size == n:
        return mutual_knn(coordinates, n_neighbors)
    rows, columns = [], []
    for spots in samples:
        own = mutual_knn(coordinates[spots], n_neighbors).tocoo()
        rows.append(spots[own.row])
        columns.append(spots[own.col])
    pair = (np.concatenate(rows), np.concatenate(columns))
    joined = sp.csr_matrix((np.ones(pair[0].size), pair), shape=(n, n))
    joined.sort_indices()
    return joined


def _within_samples(graph: sp.csr_matrix, codes: np.ndarray) -> sp.csr_matrix:
    """A given graph without its edges between sections, about which the user is warned."""
    crossing = between_groups(graph, codes)
    if not crossing.any():
        return graph
    text = (
        f"{crossing.sum() // 2:,} edges of the graph given by {option('graph')} join spots of two sections; they are "
        "left out."
    )
    warnings.warn(InputWarning(text), stacklevel=2)
    return only_edges(graph, ~crossing)


def _warn_of_isolated(pattern: sp.csr_matrix, xy: np.ndarray, samples: list[np.ndarray], advice: str) -> None:
    lonely = np.diff(pattern.indptr) == 0
    if len(samples) > 1:  # those that are a section of their own were warned of when they were read
        lonely[[spots[0] for spots in samples if spots.size == 1]] = False
    isolated = int(lonely.sum())
    if not isolated:
        return
    n_shared = 0  # at the place of another of them
    for spots in samples:
        _, at_place = np.unique(xy[spots[lonely[spots]]], axis=0, return_counts=True)
        n_shared += int(at_place[at_place > 1].sum())
    if n_shared > isolated / 2:
        text = (
            f"{isolated:,} spots have no neighbour, most of which share their place with others: more lie there than "
            f"a spot has neighbours. Correct these places, or leave such spots out with {option('mask')}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
        return
    text = "1 spot has no neighbour; its domain follows from its features alone. To join it, "
    if isolated > 1:
        text = f"{isolated:,} spots have no neighbour; their domains follow from their features alone. To join them, "
    warnings.warn(InputWarning(f"{text}{advice}."), stacklevel=2)


def _warn_of_patches(pattern: sp.csr_matrix, patching: Patching) -> None:
    """Warn where the neighbours of most spots are all in other patches, to which no edges are kept."""
    n, n_alone = pattern.shape[0], int((np.diff(patching.graph.indptr) == 0).sum())
    if n_alone > n / 2 > int((np.diff(pattern.indptr) == 0).sum()):
        text = (
            f"{n_alone:,} of {n:,} spots have no neighbour in their patch, so that their domains follow "
            f"from their features alone. Lower {option('n_patches')}, or keep edges between patches "
            f"with {option('cross_patch_edges', True)}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)


def _warn_of_numbered_planes(coordinates: np.ndarray) -> None:
    """Warn of spots (n, 3) that are joined, and whose z seems to be the number of their plane."""
    planes = np.unique(coordinates[:, 2])
    if planes.size < 2 or planes[0] not in {0.0, 1.0} or (np.diff(planes) != 1.0).any():
        return
    spacing = _spacing([coordinates[coordinates[:, 2] == z, :2] for z in planes])
    if _NUMBERED * spacing < 1.0:
        return
    text = (
        f"The third axis of {option('spatial_key')} has the numbers {planes[0]:g} to {planes[-1]:g}, while "
        f"neighbouring spots of a plane are {spacing:.3g} apart (median), so that spots of several planes count as if "
        "they lay at the same place. If it numbers the sections, multiply it by their distance in the unit of x and y."
    )
    warnings.warn(InputWarning(text), stacklevel=2)


def _count_across(section: Section, graph: sp.csr_matrix) -> int:
    """Number of edges between spots of two sections, with a warning where few spots have one."""
    assert section.samples is not None  # there are several sections
    crossing = between_groups(graph, np.asarray(section.samples.codes))
    n_across, n_spots = int(crossing.sum()) // 2, int(np.unique(graph.indices[crossing]).size)  # stored either way
    n = graph.shape[0]
    if n_spots < _FEW_ACROSS * n:
        own, other = _spacings(section)
        join = f"raise {option('n_neighbors')}" if section.graph is None else "choose another graph"
        text = (
            f"Only {n_across:,} of {graph.nnz // 2:,} edges join spots of two sections, at {n_spots:,} of {n:,} spots, "
            f"with {option('across_sections')}. The median distance to the nearest spot of the same section is "
            f"{own:.3g}, that to the nearest spot of another section is {other:.3g}. Bring z to the unit of x and y, "
            f"bring the sections closer, or {join}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    return n_across


def _spacings(section: Section) -> tuple[float, float]:
    """Median distance of a spot to the nearest other one of its section, and to the nearest of another section."""
    xyz, parts = section.coordinates, section.spots_of_samples()
    other = []
    for spots in parts:
        rest = np.setdiff1d(np.arange(xyz.shape[0]), spots, assume_unique=True)
        other.append(nearest(cKDTree(xyz[rest]), xyz[spots], 1)[0][:, 0])
    return _spacing([xyz[spots] for spots in parts]), float(np.median(np.concatenate(other)))


def _spacing(parts: list[np.ndarray]) -> float:
    """Median distance of a spot to the nearest other one of its part, (m, d) each; 0 where none has two."""
    own = [nearest(cKDTree(places), places, 2)[0][:, 1] for places in parts if len(places) > 1]
    return float(np.median(np.concatenate(own))) if own else 0.0
