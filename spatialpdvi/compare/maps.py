"""Figure of maps: the annotation first, then every solver's domains of one seed in the annotation's colours."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spatialpdvi.compare.runs import Run
from spatialpdvi.plotting.labels import check_labels, match_colours
from spatialpdvi.plotting.maps import draw_labels, paint_labels
from spatialpdvi.plotting.page import Heading, Panel, draw_page
from spatialpdvi.plotting.tissue import Tissue, place_tissue

__all__ = ["draw_maps"]

_SCALE = 0.5  # of the size that a map has on a page of its own


def draw_maps(
    coordinates: NDArray[np.float64], samples: Any | None, annotation: Any | None, runs: Sequence[Run]
) -> Figure:
    """Draw the annotation with its legend, and the domains of every run with the ARI in the title.

    A domain has the colour of the label that it covers best; without labels, of the domain that it covers best of
    the first run that did not fail. A run that failed is grey.

    Parameters
    ----------
    coordinates
        (n, 2) or more columns, of which the first two are drawn.
    samples
        Section of each spot (n,), if there are several.
    annotation
        Known labels (n,), if there are any.
    runs
        Of one seed, with their domains.
    """
    tissue = place_tissue(coordinates[:, :2], samples)
    tissue = tissue._replace(size=(_SCALE * tissue.size[0], _SCALE * tissue.size[1]))
    labels = None if annotation is None else check_labels(annotation, n=len(coordinates), what="labels")
    reference = np.array(next((run for run in runs if not run.failed), runs[0]).domains)
    panels = []
    if labels is not None and labels.names:
        colours = match_colours(reference, labels.codes)[1]
        reference = labels.codes

        def draw_annotation(axes: Axes) -> Heading:
            draw_labels(axes, tissue, labels, colours=colours)
            return Heading("Annotation")

        panels.append(Panel(tissue.size, draw_annotation))
    panels += [Panel(tissue.size, partial(_draw_run, tissue=tissue, run=run, reference=reference)) for run in runs]
    return draw_page(panels)


def _draw_run(axes: Axes, tissue: Tissue, run: Run, reference: NDArray[np.int64]) -> Heading:
    domains = np.array(run.domains)
    for section in tissue.maps(axes):
        paint_labels(section, domains, match_colours(domains, reference)[0])
    if run.failed:
        return Heading(f"{run.solver}  failed")
    return Heading(run.solver if run.ari is None else f"{run.solver}  ARI {run.ari:.3f}")
