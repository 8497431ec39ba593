"""The overview of a fit, drawn from arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.errors import InputError
from spatialpdvi.metrics.clustering import expect_finite
from spatialpdvi.plotting.charts import RELIABILITY_NOTE, draw_reliability, draw_scan, draw_trace
from spatialpdvi.plotting.labels import check_labels, choose_colours
from spatialpdvi.plotting.maps import CONFIDENCE, draw_labels, draw_values
from spatialpdvi.plotting.page import Heading, Panel, draw_page
from spatialpdvi.plotting.tissue import place_tissue

__all__ = ["CHART_WIDTH", "CURVE_WIDTH", "EDITED", "HIGHEST_CHART", "named_title", "plot_section", "score_line"]

CHART_WIDTH, CURVE_WIDTH, HIGHEST_CHART = 3.2, 2.8, 4.0  # inches

EDITED = "of the fit, before its domains were edited"
_PROBABILITY = CONFIDENCE._replace(label="probability of the domain")  # calibrated or not


def plot_section(
    coordinates: ArrayLike,
    domains: Any,
    *,
    annotation: Any | None = None,
    confidence: ArrayLike | None = None,
    trace: Mapping[str, ArrayLike] | None = None,
    k_scan: Mapping[str, ArrayLike] | None = None,
    k: int | None = None,
    scores: Mapping[str, Any] | None = None,
    calibration: Mapping[str, Any] | None = None,
    title: str | None = None,
    colours: Mapping[str, str] | None = None,
    label_colours: Mapping[str, str] | None = None,
    edited: bool = False,
    samples: Any | None = None,
) -> Figure:
    """Draw a section: its annotation and domains, their confidence and its reliability, and how the fit converged.

    A domain and the annotated label that it covers best have one colour, one domain per label, so that the two maps
    can be compared by eye; unlabelled spots are light grey. The y axis points down, as in an image. Several sections
    stand side by side.

    Parameters
    ----------
    coordinates
        Positions, shape (n, 2) or more columns, of which the first two are drawn.
    domains
        Domain of each spot, shape (n,): a pandas Categorical or Series, names, or integer codes.
    annotation
        Known label of each spot, shape (n,), missing or negative where there is none.
    confidence
        Largest posterior probability of each spot, calibrated or not, shape (n,), between 0 and 1.
    trace
        Columns ``epoch``, ``neg_elbo`` (nats) and ``gradient_norm`` (or ``stationarity``) of equal length; missing
        values are left out.
    k_scan
        Columns ``k``, ``neg_elbo`` (nats), and ``evidence`` or ``found_again``, of equal length, if K was chosen.
    k
        The chosen number, which is marked in the chart of the scan.
    scores
        Scores of the domains, of which ARI, NMI, CHAOS and PAS are printed where present.
    calibration
        As a fit stores it in ``scores['calibration']``: ``reliability`` and ``ece``, and where known both with
        ``_calibrated``. Without ``reliability`` there is no chart of it.
    title
        Heading of the figure.
    colours
        Colour of each domain by its name, any that matplotlib knows; by default from the package's palette.
    label_colours
        The same for the labels; by default each has the colour of the domain that covers it best.
    edited
        Whether the domains were edited since the fit, which the chart of its convergence then says.
    samples
        Section of each spot, shape (n,), if there are several: each has a map of its own.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with its own canvas, which pyplot does not know.

    Raises
    ------
    InputError
        If the arrays do not belong to the same spots, a coordinate is not finite, or a column is missing.

    Examples
    --------
    >>> figure = spv.plot_section(adata.obsm["spatial"], adata.obs["pdvi_domain"], title="embryo")
    >>> figure.savefig("embryo.png")
    """
    position = _check_coordinates(coordinates)
    n = len(position)
    tissue = place_tissue(position[:, :2], samples)
    domain = check_labels(domains, n=n, what="domains")
    label = None if annotation is None else check_labels(annotation, n=n, what="labels")
    of_domains, of_labels = choose_colours(domain, label, colours=colours, label_colours=label_colours)
    chart = CHART_WIDTH, min(tissue.size[1], HIGHEST_CHART)
    panels: list[Panel] = []

    def add(size: tuple[float, float], draw: Any, *values: Any, heading: Heading, **settings: Any) -> None:
        def on(axes: Axes) -> Heading:
            draw(axes, *values, **settings)
            return heading

        panels.append(Panel(size, on))

    if label is not None:
        add(tissue.size, draw_labels, tissue, label, colours=of_labels, heading=Heading("Annotation"))
    add(tissue.size, draw_labels, tissue, domain, colours=of_domains, heading=Heading("Domains", score_line(scores, n)))
    if confidence is not None:
        values = _check_confidence(confidence, n)
        add(tissue.size, draw_values, tissue, values, scale=_PROBABILITY, heading=Heading("Confidence"))
    if trace is not None:
        add(chart, draw_trace, trace, heading=Heading("Convergence", EDITED if edited else ""))
    if k_scan is not None:
        add(chart, draw_scan, k_scan, k, heading=Heading("Number of domains"))
    if calibration is not None and "reliability" in calibration:
        heading = Heading("Reliability", RELIABILITY_NOTE)
        add((CURVE_WIDTH, chart[1]), draw_reliability, calibration, heading=heading)
    return draw_page(panels, title=named_title(title, position.shape[1]))


def named_title(title: str | None, n_axes: int) -> str | None:
    """Return the title and, if a section has three axes, a note that only two are drawn."""
    if n_axes == 2:
        return title
    note = f"first 2 of {n_axes} axes"
    return f"{title} ({note})" if title else note.capitalize()


def score_line(scores: Mapping[str, Any] | None, n_spots: int) -> str:
    """Return the scores to print above a map of so many spots, in one line; those of more spots say so."""
    scores = scores or {}
    present = [key for key in ("ari", "nmi", "chaos", "pas") if key in scores]
    line = "   ".join(f"{key.upper()} {float(scores[key]):.3f}" for key in present)
    return f"all sections: {line}" if line and int(scores.get("n_spots", n_spots)) > n_spots else line


def _check_coordinates(coordinates: ArrayLike) -> NDArray[np.float64]:
    position = np.asarray(coordinates, dtype=np.float64)
    if position.ndim != 2 or position.shape[1] < 2 or len(position) == 0:
        expected = "coordinates of shape (spots, 2) or (spots, 3)"
        raise InputError(expected, f"{position.shape}", "Give one row per spot.")
    expect_finite(position)
    return position


def _check_confidence(confidence: ArrayLike, n: int) -> NDArray[np.float64]:
    values = np.asarray(confidence, dtype=np.float64)
    if values.shape != (n,):
        raise InputError(
            f"one confidence per spot, {n} of them",
            f"an array of shape {values.shape}",
            "Give confidence and coordinates of the same spots.",
        )
    return values
