"""The panels of a section, laid out in inches so that spots, legends and titles never overlap."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import is_color_like
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from spatialpdvi.errors import InputError, expect_finite
from spatialpdvi.plotting.charts import draw_scan, draw_trace
from spatialpdvi.plotting.colours import match_colours
from spatialpdvi.plotting.labels import read_labels
from spatialpdvi.plotting.page import Page
from spatialpdvi.plotting.panels import CONFIDENCE, draw_labels, draw_values
from spatialpdvi.plotting.reliability import RELIABILITY_NOTE, draw_reliability
from spatialpdvi.plotting.tissue import place_tissue

__all__ = ["CHART_RIGHT", "CHART_WIDTH", "CURVE_WIDTH", "check_colours", "named_title", "plot_section", "score_line"]

# Inches
CHART_WIDTH, CURVE_WIDTH, CHART_RIGHT = 3.2, 2.8, 0.6


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
    samples: Any | None = None,
) -> Figure:
    """Draw a section: its annotation and domains, how sure they are and may be, and how the fit converged.

    A domain and the annotated label that it covers best have one colour, one domain per label, so
    that the two maps can be compared by eye; unlabelled spots are light grey. The y axis points
    down, as in an image. Several sections stand side by side.

    Parameters
    ----------
    coordinates
        Positions, shape (n, 2) or more columns, of which the first two are drawn.
    domains
        Domain of each spot, shape (n,): a pandas Categorical or Series, names, or integer codes.
    annotation
        Known label of each spot, shape (n,), missing or negative where there is none.
    confidence
        Largest posterior probability of each spot, shape (n,), between 0 and 1.
    trace
        Columns ``epoch``, ``neg_elbo`` (nats) and ``gradient_norm`` (or ``stationarity``) of equal
        length; missing values are left out.
    k_scan
        Columns ``k``, ``found_again`` and ``neg_elbo`` (nats) of equal length, where the number of domains was chosen.
    k
        The number that was chosen, which the scan's chart marks.
    scores
        Scores of the domains, of which ARI, NMI, CHAOS and PAS are printed where present.
    calibration
        As a fit stores it in ``scores['calibration']``: ``reliability`` and ``ece``, and where known both with
        ``_calibrated``. Without ``reliability`` nothing is drawn of it.
    title
        Heading of the figure.
    colours
        Colour of each domain by its name, any that matplotlib knows; chosen here by default.
    samples
        Section of each spot, shape (n,), where there are several: each is drawn on a map of its own.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with its own canvas; pyplot knows nothing of it.

    Examples
    --------
    >>> figure = spv.plot_section(adata.obsm["spatial"], adata.obs["pdvi_domain"], title="embryo")
    >>> figure.savefig("embryo.png")
    """
    position = _check_coordinates(coordinates)
    names, codes = ([], None) if samples is None else _read_samples(samples, len(position))
    tissue = place_tissue(position[:, :2], names=names, codes=codes)
    domain = read_labels(domains, n=len(position), what="domains")
    label = None
    if annotation is not None:
        label = read_labels(annotation, n=len(position), what="labels")
    own = None if colours is None else check_colours(colours, domain.names)
    of_domains, of_labels = match_colours(domain.codes, None if label is None else label.codes, colours=own)
    line = score_line(scores)
    reliable = calibration if calibration is not None and "reliability" in calibration else None
    page = Page(noted=line is not None or reliable is not None)
    height = min(tissue.size[1], 4.2)  # of charts beside the maps
    if label is not None:
        axes, _ = page.add_map(tissue)
        page.keep_free(draw_labels(axes, tissue, label, colours=of_labels, heading=page.heading("Annotation")))
    axes, _ = page.add_map(tissue)
    page.keep_free(draw_labels(axes, tissue, domain, colours=of_domains, heading=page.heading("Domains", line)))
    if confidence is not None:
        values = _check_confidence(confidence, len(position))
        axes, _ = page.add_map(tissue)
        page.keep_free(draw_values(axes, tissue, values, scale=CONFIDENCE, heading=page.heading("Confidence")))
    if trace is not None:
        axes = page.add_chart((CHART_WIDTH, height), right=CHART_RIGHT)
        draw_trace(axes, trace, heading=page.heading("Convergence"))
    if k_scan is not None:
        axes = page.add_chart((CHART_WIDTH, height), right=CHART_RIGHT)
        draw_scan(axes, k_scan, k, heading=page.heading("How many domains"))
    if reliable is not None:
        axes = page.add_chart((CURVE_WIDTH, height), right=0.0)
        draw_reliability(axes, reliable, heading=page.heading("Reliability", RELIABILITY_NOTE))
    return page.finish(named_title(title, position.shape[1]))


def named_title(title: str | None, n_axes: int) -> str | None:
    """The title, with what is left out of a section in space."""
    if n_axes == 2:
        return title
    note = f"first 2 of {n_axes} axes"
    return f"{title} ({note})" if title else note.capitalize()


def score_line(scores: Mapping[str, Any] | None) -> str | None:
    """The scores to print, or None if there is none."""
    scores = scores or {}
    present = [key for key in ("ari", "nmi", "chaos", "pas") if key in scores]
    return "   ".join(f"{key.upper()} {float(scores[key]):.3f}" for key in present) or None


def _check_coordinates(coordinates: ArrayLike) -> NDArray[np.float64]:
    position = np.asarray(coordinates, dtype=np.float64)
    if position.ndim != 2 or position.shape[1] < 2 or len(position) == 0:
        msg = f"Expected coordinates of shape (spots, 2) or (spots, 3), found {position.shape}. Give one row per spot."
        raise InputError(msg)
    expect_finite(position)
    return position


def check_colours(colours: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """The colour of each name; one that matplotlib does not know is refused."""
    for name in names:
        if not is_color_like(colours.get(name)):
            msg = (
                f"Expected a colour for each domain, found {colours.get(name)!r} for {name!r}. Give names or "
                "hexadecimal values that matplotlib knows."
            )
            raise InputError(msg)
    return [colours[name] for name in names]


def _read_samples(samples: Any, n: int) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the sections, and which of them each spot is of."""
    found = read_labels(samples, n=n, what="samples")
    missing = int((found.codes < 0).sum())
    if missing:
        msg = f"Expected the section of every spot, found {missing:,} spots without. Name theirs, too."
        raise InputError(msg)
    return found.names, found.codes


def _check_confidence(confidence: ArrayLike, n: int) -> NDArray[np.float64]:
    values = np.asarray(confidence, dtype=np.float64)
    if values.shape != (n,):
        msg = (
            f"Expected one confidence per spot, {n} of them, found an array of shape "
            f"{values.shape}. Give confidence and coordinates of the same spots."
        )
        raise InputError(msg)
    return values
