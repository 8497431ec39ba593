"""The graph of a section and its patches: neighbours, border directions and edge weights."""

import warnings

import numpy as np
import scipy.sparse as sp
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputWarning
from spatialpdvi.graph.flow import border_directions
from spatialpdvi.graph.neighbors import mutual_knn
from spatialpdvi.graph.patches import Patching, default_n_patches, make_patches
from spatialpdvi.graph.weights import weigh_edges
from spatialpdvi.io.section.section import Section
from spatialpdvi.options.fit import FitOptions
from spatialpdvi.runtime.progress import Stage

__all__ = ["count_crossing", "lay_graph"]

_FEW_CROSS = 0.1  # of the spots: with fewer that have an edge into another section the user is warned


def lay_graph(
    section: Section,
    fitted: np.ndarray | sp.csr_matrix,
    labels: np.ndarray,
    options: FitOptions,
    stage: Stage,
    *,
    advice: str = "raise --n-neighbors",
) -> tuple[np.ndarray, Patching]:
    """Border normals (n, 3) between start labels (n,), and patches with the edges that they and the features weigh.

    ``advice`` is what is said of spots without neighbours.
    """
    n = section.coordinates.shape[0]
    samples = section.blocks(across=options.across_sections)
    normals = np.empty((n, 3))
    for spots in samples:
        normals[spots] = border_directions(section.coordinates[spots], labels[spots], options.flow_neighbors)
    patching = make_patches(
        section.coordinates,
        _weigh_graph(section, fitted, normals, options, advice=advice),
        options.n_patches or default_n_patches(n, options.batch_patches or 1),
        keep_cross_edges=options.cross_patch_edges,
        samples=samples,
    )
    across = ""
    if options.across_sections:
        across = f", {_check_crossing(section, patching.graph):,} of them across sections"
    stage.note(f"{patching.graph.nnz // 2:,} edges{across}, {len(patching.patches)} patches")
    return normals, patching


def _join_neighbors(section: Section, n_neighbors: int, *, across: bool) -> sp.csr_matrix:
    """Mutual nearest neighbours within each section, or ``across`` sections, (n, n)."""
    n = section.coordinates.shape[0]
    rows, columns = [], []
    for spots in section.blocks(across=across):
        own = mutual_knn(section.coordinates[spots], n_neighbors).tocoo()
        rows.append(spots[own.row])
        columns.append(spots[own.col])
    pair = (np.concatenate(rows), np.concatenate(columns))
    joined = sp.csr_matrix((np.ones(pair[0].size), pair), shape=(n, n))
    joined.sort_indices()
    return joined


def count_crossing(section: Section, graph: sp.csr_matrix) -> tuple[int, int]:
    """Edges between spots of two sections, and spots that have one."""
    if section.samples is None:
        return 0, 0
    codes = np.asarray(section.samples.codes)
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    crosses = codes[rows] != codes[graph.indices]
    return int(crosses.sum()) // 2, int(np.unique(rows[crosses]).size)


def _check_crossing(section: Section, graph: sp.csr_matrix) -> int:
    """Number of edges across sections; where hardly a spot has one, the user is told."""
    crossing, spots = count_crossing(section, graph)
    n = graph.shape[0]
    if spots < _FEW_CROSS * n:
        own, other = _spacings(section)
        msg = (
            f"Expected sections to share edges with --across-sections, found {crossing:,} of {graph.nnz // 2:,} edges "
            f"between two sections, at {spots:,} of {n:,} spots. The nearest spot of the own section is at "
            f"{own:.3g}, of another at {other:.3g} (medians): bring z to the unit of "
            "x and y, bring sections closer, or raise --n-neighbors."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return crossing


def _spacings(section: Section) -> tuple[float, float]:
    """Median distance of a spot to the nearest other one of its section, and to the nearest of another section."""
    xyz, parts = section.coordinates, section.spots_of_samples()
    own = [cKDTree(xyz[spots]).query(xyz[spots], k=2, workers=-1)[0][:, 1] for spots in parts if spots.size > 1]
    other = []
    for spots in parts:
        rest = np.setdiff1d(np.arange(xyz.shape[0]), spots, assume_unique=True)
        other.append(cKDTree(xyz[rest]).query(xyz[spots], workers=-1)[0])
    return float(np.median(np.concatenate(own))) if own else 0.0, float(np.median(np.concatenate(other)))


def _within_samples(graph: sp.csr_matrix, codes: np.ndarray, options: FitOptions) -> sp.csr_matrix:
    """A given graph without its edges between sections, of which the user is told."""
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    within = codes[rows] == codes[graph.indices]
    if within.all():
        return graph
    msg = (
        f"Expected obsp[{options.graph!r}] to join spots of one section of obs[{options.sample_key!r}], found "
        f"{(~within).sum() // 2:,} edges between two; they are left out."
    )
    warnings.warn(msg, InputWarning, stacklevel=2)
    return sp.csr_matrix((graph.data[within], (rows[within], graph.indices[within])), shape=graph.shape)


def _weigh_graph(
    section: Section, x: np.ndarray | sp.csr_matrix, normals: np.ndarray, options: FitOptions, *, advice: str
) -> sp.csr_matrix:
    pattern = section.graph
    if pattern is None:
        pattern = _join_neighbors(section, options.n_neighbors, across=options.across_sections)
    elif section.samples is not None and not options.across_sections:
        pattern = _within_samples(pattern, np.asarray(section.samples.codes), options)
    isolated = int((np.diff(pattern.indptr) == 0).sum())
    if isolated:
        advice = "choose another --graph" if section.graph is not None else advice
        msg = (
            f"Expected every spot to have a neighbour, found {isolated} isolated ones; their domain follows from "
            f"their expression alone. To join them, {advice}."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    return weigh_edges(pattern, section.coordinates, normals, features=x, tau=options.tau, beta=options.beta)
