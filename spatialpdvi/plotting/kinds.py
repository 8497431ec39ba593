"""The kinds of pictures of a fitted section, by name: `KINDS`.

A further kind is a function of a `View` and axes, and an entry of that table.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from spatialpdvi.errors import InputError, option
from spatialpdvi.io.results.arrays import read_composition, read_connectivities, read_flow, read_states, why_missing
from spatialpdvi.io.results.summary import not_ours
from spatialpdvi.metrics.stored import measured_calibration, shown_scores
from spatialpdvi.palette import palette
from spatialpdvi.plotting.charts import (
    RELIABILITY_NOTE,
    composition_size,
    confusion_size,
    draw_composition,
    draw_confusion,
    draw_reliability,
    draw_scan,
    draw_stationarity,
    no_labels,
)
from spatialpdvi.plotting.fields import choose_edges, draw_edges, draw_flow
from spatialpdvi.plotting.intervals import intervals_panel, intervals_panel_size
from spatialpdvi.plotting.labels import check_labels, printable
from spatialpdvi.plotting.maps import CONFIDENCE, Scale, draw_labels, draw_values
from spatialpdvi.plotting.page import Heading, Panel, draw_page
from spatialpdvi.plotting.section import CHART_WIDTH, CURVE_WIDTH, EDITED, HIGHEST_CHART, named_title, score_line
from spatialpdvi.plotting.view import View

__all__ = ["GENE", "KINDS", "Kind", "plot_kinds"]

Size = tuple[float, float]

_CHART_HEIGHT = 2.8  # inches, of a chart without maps beside it
_CALIBRATED = CONFIDENCE._replace(label="calibrated posterior of the domain")
_ENTROPY = Scale("entropy of the posterior (nats)", 0.0, None, "viridis_r")
_AGREEMENT = Scale("share of restarts that agree", None, 1.0, "viridis")
_EXPRESSION = Scale("log(1 + counts per 10,000)", 0.0, None, "viridis")
_HIGHEST = 99.0  # percentile of the expression where there is any, above which all spots have one colour


def _map_size(view: View) -> Size:
    return view.tissue.size


def _chart_size(view: View, width: float = CHART_WIDTH) -> Size:
    maps = view.fitted.coordinates is not None
    return width, min(view.tissue.size[1], HIGHEST_CHART) if maps else _CHART_HEIGHT


def _image(view: View, axes: Axes) -> Heading:
    view.pictured.maps(axes)
    return Heading("Image of the tissue")


def _gene(view: View, axes: Axes, *, gene: str) -> Heading:
    values = view.expression[gene]
    expressed = values[values > 0]
    high = float(np.percentile(expressed, _HIGHEST)) if expressed.size else 1.0
    draw_values(axes, view.tissue, values, scale=_EXPRESSION._replace(high=high))
    return Heading(printable(gene), f"expressed in {expressed.size / values.size:.0%} of the spots")


def _first_gene(view: View, axes: Axes) -> Heading:
    return _gene(view, axes, gene=view.genes.names[0])


def _domains(view: View, axes: Axes) -> Heading:
    draw_labels(axes, view.tissue, view.domains, colours=view.colours[0])
    return Heading("Domains", score_line(shown_scores(view.fitted), len(view.domains.codes)))


def _annotation(view: View, axes: Axes) -> Heading:
    draw_labels(axes, view.tissue, view.annotation, colours=view.colours[1])
    return Heading("Annotation")


def _confidence(view: View, axes: Axes) -> Heading:
    if view.calibrated is None:
        draw_values(axes, view.tissue, view.fitted.confidence, scale=CONFIDENCE)
    else:
        draw_values(axes, view.tissue, view.calibrated, scale=_CALIBRATED)
    return Heading("Confidence")


def _entropy(view: View, axes: Axes) -> Heading:
    draw_values(axes, view.tissue, view.number(view.keys.entropy, "Run `spatialpdvi fit` again."), scale=_ENTROPY)
    return Heading("Entropy")


def _agreement(view: View, axes: Axes) -> Heading:
    otherwise = f"Only fits with restarts write it: fit without {option('init')}."
    draw_values(axes, view.tissue, view.number(view.keys.agreement, otherwise), scale=_AGREEMENT)
    return Heading("Agreement of restarts")


def _flow(view: View, axes: Axes) -> Heading:
    flow = read_flow(view.source, view.keys)
    draw_flow(axes, view.tissue, flow, domains=view.domains, colours=view.colours[0])
    if flow.shape[1] == 3:
        return Heading("Border normals", "projected on the plane, towards the spot's own side")
    return Heading("Flow directions", "strokes along the borders")


def _edges(view: View, axes: Axes) -> Heading:
    edges = choose_edges(view.tissue, read_connectivities(view.source, view.keys))
    draw_edges(axes, view.tissue, edges, domains=view.domains, colours=view.colours[0])
    return Heading("Edge weights", edges.note)


def _trace(view: View, axes: Axes) -> Heading:
    certificate = view.fitted.summary.get("certificate", {})
    tolerance = certificate.get("tolerance") if isinstance(certificate, Mapping) else "none"
    if tolerance is not None and (np.ndim(tolerance) or np.asarray(tolerance).dtype.kind not in "iuf"):
        name = f"uns[{view.keys.uns!r}]['certificate']"
        raise not_ours(view.source, name, "no number under 'tolerance'")
    limit = None if tolerance is None else float(tolerance)
    draw_stationarity(axes, view.fitted.summary["trace"], tolerance=limit)
    carried = view.fitted.carried_from
    note = EDITED if view.fitted.edits else "" if carried is None else f"of the fit of {printable(carried)}"
    return Heading("Convergence", note)


def _scan(view: View, axes: Axes) -> Heading:
    scan = view.fitted.summary.get("k_scan")
    if scan is None:
        given = (
            "The number of domains was given to the fit, so there is no scan. "
            f"Fit with {option('k', 'auto')}, or with a range such as {option('k', '4:12')}."
        )
        advice = why_missing(view.source, view.keys, given)
        raise InputError(f"a scan over numbers of domains in {view.source.name}", "none", advice)
    draw_scan(axes, scan, view.fitted.n_fitted)
    return Heading("Number of domains")


def _states(view: View, axes: Axes) -> Heading:
    posterior = read_states(view.source, view.keys)
    likeliest = check_labels(posterior.argmax(axis=1), n=len(view.domains.codes), what="states")
    every = palette(posterior.shape[1])  # a state has the colour that it has in the bars of compositions
    draw_labels(axes, view.tissue, likeliest, colours=[every[int(name)] for name in likeliest.names])
    return Heading("States", "likeliest of each spot")


def _composition(view: View, axes: Axes) -> Heading:
    domains = view.fitted.domains
    names = [printable(str(name)) for name in domains.categories]
    shares = read_composition(view.source, view.keys, view.fitted.summary, domains)
    draw_composition(axes, shares, domains=names, colours=palette(shares.shape[1]))
    return Heading("Compositions", f"shares of {shares.shape[1]} states")


def _confusion(view: View, axes: Axes) -> Heading:
    n = view.confusion.n_unlabelled
    draw_confusion(axes, view.confusion)
    return Heading("Domains and labels", f"{n:,} spots without a label" if n else "")


def _reliability(view: View, axes: Axes) -> Heading:
    _ = view.annotation  # an error where there is none
    calibration = measured_calibration(view.fitted)
    if "reliability" not in calibration:
        raise no_labels()
    draw_reliability(axes, calibration)
    return Heading("Reliability", RELIABILITY_NOTE)


_MAP = ("spatial_key", "sample_key", "image", "alpha")
_NO_FIT = "If there is no fit"


class Kind(NamedTuple):
    """How a kind of picture is drawn, and how the function of its name in `spatialpdvi.pl` is documented."""

    draw: Callable[[View, Axes], Heading]
    summary: str
    size: Callable[[View], Size] = _map_size  # of its axes on a page, inches
    options: tuple[str, ...] = _MAP  # beside `ax` and `key_added`
    raises: str = f"{_NO_FIT}."


KINDS = {
    "domains": Kind(
        _domains,
        "Draw the domain of each spot, in the colours of ``uns['pdvi_domain_colors']``.",
        options=("label_key", *_MAP),
    ),
    "annotation": Kind(
        _annotation,
        "Draw the known label of each spot, in the colour that you stored for it or that of the domain that covers it "
        "best.",
        options=("label_key", *_MAP),
        raises=f"{_NO_FIT}, or there are no labels.",
    ),
    "confidence": Kind(
        _confidence,
        "Draw the confidence of each spot: the posterior of its domain.",
        options=(*_MAP, "calibrated"),
    ),
    "entropy": Kind(_entropy, "Draw the entropy of each spot's posterior, in nats."),
    "agreement": Kind(
        _agreement,
        "Draw the share of restarts that place each spot where their consensus does.",
        raises=f"{_NO_FIT}, or it started from given labels and had no restarts.",
    ),
    "flow": Kind(
        _flow,
        """Draw flow directions as strokes over the domains; for a section in 3-D, border normals as arrows.

        There is one stroke for each square of a grid: that of the spot nearest to its middle. Strokes have no head,
        because the directions g and -g give the same edge weights. An arrow is as long as the part of its normal in
        the plane.""",
        raises=f"{_NO_FIT}, or it did not save its graph (``save_graph=True``).",
    ),
    "edges": Kind(
        _edges,
        """Draw the edges of the graph, coloured by their weight in the objective.

        If there are more than two hundred thousand, a random choice of them is drawn; the title says how many.""",
        raises=f"{_NO_FIT}, or it did not save its graph (``save_graph=True``).",
    ),
    "trace": Kind(
        _trace,
        """Draw the objective F and how far each block of unknowns is from stationary, by epoch.

        The stationarity has an axis of its own on the right.""",
        size=_chart_size,
        options=(),
    ),
    "scan": Kind(
        _scan,
        """Draw what decides on the number of domains, and the complete bound, by number of domains.

        What decides is the share of the evidence, or the number of domains that halves of the data find again. The
        complete bound has an axis of its own on the right.""",
        size=_chart_size,
        options=(),
        raises=f"{_NO_FIT}, or its number of domains was given.",
    ),
    "states": Kind(
        _states,
        "Draw the likeliest cell state of each spot.",
        raises=f"{_NO_FIT}, or its domains share no states.",
    ),
    "composition": Kind(
        _composition,
        """Draw the share of each cell state in each domain as bars.

        States have the colours of the map of states.""",
        size=lambda view: composition_size(len(view.fitted.domains.categories)),
        options=(),
        raises=f"{_NO_FIT}, or its domains share no states.",
    ),
    "confusion": Kind(
        _confusion,
        """Draw numbers of spots by domain and known label, coloured by their share of the domain.

        Each label is paired with one domain, so that pairs share as many spots as possible; pairs are on the
        diagonal.""",
        size=lambda view: confusion_size(view.confusion),
        options=("label_key",),
        raises=f"{_NO_FIT}, or there are no labels.",
    ),
    "reliability": Kind(
        _reliability,
        """Draw the share of spots that have their domain's most frequent label, by confidence.

        Both charts are axes within the axes that are returned (``child_axes``).""",
        size=partial(_chart_size, width=CURVE_WIDTH),
        options=("label_key",),
        raises=f"{_NO_FIT}, or there are no labels.",
    ),
    "intervals": Kind(
        intervals_panel,
        "Draw the log2 fold changes between domains with the intervals that `spatialpdvi.tl.intervals` has written.",
        size=intervals_panel_size,
        options=(),
        raises=f"{_NO_FIT}, or there are no intervals.",
    ),
    "image": Kind(
        _image,
        "Draw the image of the tissue, ``uns['spatial']``, as far as there are spots.",
        options=("spatial_key", "sample_key"),
        raises=f"{_NO_FIT}, or there is no image.",
    ),
}


# a kind that needs the name of a gene
GENE = Kind(
    _first_gene,
    """Draw the expression of a gene in each spot: log(1 + counts per 10,000).

    The highest hundredth of the spots that express the gene have one colour.""",
    options=("layer", "gene_key", *_MAP),
    raises=f"{_NO_FIT} or there are no counts, or there is no gene of this name, and which names are near it.",
)


def plot_kinds(view: View, kinds: Sequence[str], *, title: str | None = None, figure: Figure | None = None) -> Figure:
    """Draw a figure with a panel for each of some kinds of pictures (`KINDS`), in their order, and then for each gene.

    Parameters
    ----------
    view
        The fitted section.
    kinds
        Names; at least one, unless the view has genes.
    title
        Heading of the figure.
    figure
        An empty figure to draw on; by default a new one with its own canvas, which pyplot does not know.

    Raises
    ------
    InputError
        If a kind is unknown, or the section lacks what it shows.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not (kinds or view.genes.names):
        raise InputError(
            "kinds of pictures",
            repr(unknown[0]) if unknown else "none",
            f"Choose from {', '.join(KINDS)}, or overview alone.",
        )
    panels = [Panel(kind.size(view), partial(kind.draw, view)) for kind in map(KINDS.__getitem__, kinds)]
    panels += [Panel(_map_size(view), partial(_gene, view, gene=gene)) for gene in view.genes.names]
    if title and view.fitted.coordinates is not None:
        title = named_title(title, view.fitted.coordinates.shape[1])
    return draw_page(panels, title=title, figure=figure)
