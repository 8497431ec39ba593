"""How large domains are, in spots and in area, and what they are made of."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial import QhullError, Voronoi

from spatialpdvi.graph.neighbors import median_spacing
from spatialpdvi.io.results.described import SectionDomains
from spatialpdvi.metrics.clustering import overlap

__all__ = ["composition_table", "domain_sizes", "section_row", "spot_area"]


def spot_area(coordinates: np.ndarray) -> float:
    """Return the area of a spot: the median area of the cells of the Voronoi diagram of the spots.

    A Voronoi cell is all of the plane that is nearer to its spot than to any other. On a square lattice of spacing s
    the area is s², on a hexagonal one (Visium) s² √3 / 2, and for cells that lie anywhere about the area over the
    number of cells. Voronoi cells beside holes and at the edge of the tissue are too large; the median does not depend
    on them, and holes do not count as tissue. The area of a domain is its number of spots times this area.

    Parameters
    ----------
    coordinates
        (n, 2), or (n, 3) with spots that lie in a plane of equal z; any unit.

    Returns
    -------
    The area in the square of the unit; NaN for spots on a line, and for coordinates that fill a volume.
    """
    flat = coordinates[:, np.ptp(coordinates, axis=0) > 0] if len(coordinates) else coordinates
    if flat.shape[1] != 2:
        return float("nan")
    places = np.unique(flat, axis=0)
    spacing = median_spacing(places)
    if len(places) < 4:
        return float("nan")
    try:
        # in units of the spacing and from the centre, where Qhull is exact
        diagram = Voronoi((places - places.mean(axis=0)) / spacing)
    except QhullError:  # all on one line
        return float("nan")
    pairs, ends = np.asarray(diagram.ridge_points), np.asarray(diagram.ridge_vertices)
    open_ended = (ends < 0).any(axis=1)
    length = np.linalg.norm(diagram.vertices[ends[:, 0]] - diagram.vertices[ends[:, 1]], axis=1)
    length[open_ended] = np.inf
    # a side of a cell halves the way to a neighbour, so that it and the spot make a triangle of this area
    triangle = length * np.linalg.norm(diagram.points[pairs[:, 0]] - diagram.points[pairs[:, 1]], axis=1) / 4
    areas = sum(np.bincount(pairs[:, side], weights=triangle, minlength=len(places)) for side in (0, 1))
    area = float(np.median(areas)) * spacing**2
    return area if np.isfinite(area) else float("nan")


def section_row(section: SectionDomains) -> dict[str, Any]:
    """Return the row of the table of sections: ``section``, ``condition``, ``n_spots``, ``spacing``, ``spot_area``."""
    return {
        "section": section.name,
        "condition": section.condition or "",
        "n_spots": len(section.spots),
        "spacing": median_spacing(section.coordinates),
        "spot_area": spot_area(section.coordinates),
    }


def domain_sizes(section: SectionDomains, area: float) -> pd.DataFrame:
    """Return a row for each domain of the file: ``section``, ``domain``, ``spots``, ``share`` and ``area``.

    Parameters
    ----------
    section
        With its domains.
    area
        Of a spot (`spot_area`).
    """
    spots = np.bincount(section.domains.codes, minlength=len(section.domains.categories))
    return pd.DataFrame(
        {
            "section": section.name,
            "domain": [str(name) for name in section.domains.categories],
            "spots": spots,
            "share": spots / spots.sum(),
            "area": spots * area,
        }
    )


def composition_table(section: SectionDomains) -> pd.DataFrame:
    """Return a row for each domain and type: ``section``, ``domain``, ``type``, ``spots`` and ``share``.

    The share is that of the domain's spots that have a type; NaN where none has one.
    """
    assert section.types is not None  # only asked for with types
    domains, types = section.domains.categories, section.types.categories
    counts = overlap(section.domains.codes, section.types.codes, shape=(len(domains), len(types)))
    whole = counts.sum(axis=1, keepdims=True)
    share = np.divide(counts, whole, out=np.full(counts.shape, np.nan), where=whole > 0)
    return pd.DataFrame(
        {
            "section": section.name,
            "domain": np.repeat([str(name) for name in domains], len(types)).astype(object),
            "type": np.tile([str(name) for name in types], len(domains)).astype(object),
            "spots": counts.ravel(),
            "share": share.ravel(),
        }
    )
