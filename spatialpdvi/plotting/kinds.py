"""Every kind of picture of a fitted section: what it reads, and which panel it draws.

The kinds by name are `KINDS`; a further one is a function of a `View` and a `Place`, and a line there.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from spatialpdvi.errors import InputError
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.fitted import Fitted, not_ours, read_connectivities, read_flow, read_number
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.metrics.calibration import calibration_scores
from spatialpdvi.plotting.charts import draw_scan, draw_stationarity
from spatialpdvi.plotting.colours import match_colours
from spatialpdvi.plotting.confusion import count_confusion, draw_confusion
from spatialpdvi.plotting.fields import choose_edges, draw_edges, draw_flow
from spatialpdvi.plotting.labels import Labels, printable, read_labels
from spatialpdvi.plotting.page import Page, Place
from spatialpdvi.plotting.panels import CONFIDENCE, Scale, draw_labels, draw_values
from spatialpdvi.plotting.reliability import RELIABILITY_NOTE, draw_reliability
from spatialpdvi.plotting.section import CHART_RIGHT, CHART_WIDTH, CURVE_WIDTH, check_colours, named_title, score_line
from spatialpdvi.plotting.tissue import Tissue, place_tissue

__all__ = ["KINDS", "Kind", "View", "draw_confidence", "plot_kinds"]

_CHART_HEIGHT, _HIGHEST_CHART = 3.2, 4.2  # inches: alone, and beside maps
_CALIBRATED = CONFIDENCE._replace(label="calibrated posterior of the domain")
_ENTROPY = Scale("entropy of the posterior (nats)", 0.0, None, "viridis_r")
_AGREEMENT = Scale("share of restarts that agree", None, 1.0, "viridis")


class View:
    """A fitted section as pictures see it; what is not asked for is not computed.

    Parameters
    ----------
    source
        Where the section is.
    keys
        Names under which the fit has written.
    fitted
        What `spatialpdvi.io.results.fitted.read_fitted` has read of it.
    """

    def __init__(self, source: Source, keys: Keys, fitted: Fitted) -> None:
        self.source, self.keys, self.fitted = source, keys, fitted

    @property
    def coordinates(self) -> NDArray[np.float64]:
        """Where the spots are, (n, 2) or (n, 3)."""
        if self.fitted.coordinates is None:
            msg = "a map needs coordinates: read them with the fit"
            raise ValueError(msg)
        return self.fitted.coordinates

    @cached_property
    def tissue(self) -> Tissue:
        """The sections and their maps."""
        samples = self.fitted.samples
        if samples is None:
            return place_tissue(self.coordinates[:, :2])
        names = [printable(str(name)) for name in samples.categories]
        return place_tissue(self.coordinates[:, :2], names=names, codes=samples.codes)

    @cached_property
    def domains(self) -> Labels:
        """The domain of each spot."""
        return read_labels(self.fitted.domains, n=len(self.fitted.domains), what="domains")

    @cached_property
    def annotation(self) -> Labels:
        """The known label of each spot."""
        if self.fitted.annotation is None:
            msg = (
                f"Expected known labels in {self.source.name}, found no annotation. "
                "Name a column of obs that holds labels with --label-key (label_key=)."
            )
            raise InputError(msg)
        return read_labels(self.fitted.annotation, n=len(self.domains.codes), what="labels")

    @cached_property
    def colours(self) -> tuple[list[str], list[str]]:
        """Of the domains and of the labels (none without an annotation)."""
        stored = self.fitted.colours
        own = None if stored is None else check_colours(stored, self.domains.names)
        codes = None if self.fitted.annotation is None else self.annotation.codes
        return match_colours(self.domains.codes, codes, colours=own)

    @property
    def chart_height(self) -> float:
        """Inches that suit a chart beside the maps."""
        return _CHART_HEIGHT if self.fitted.coordinates is None else min(self.tissue.size[1], _HIGHEST_CHART)

    def number(self, key: str, otherwise: str) -> NDArray[np.float64]:
        """A column of ``obs`` that a fit has written, (n,)."""
        return read_number(self.source, key, otherwise=otherwise)


class Kind(NamedTuple):
    """How a kind of picture is drawn."""

    draw: Callable[[View, Place], Axes]
    noted: bool = False  # whether it may have a note below its title


def plot_kinds(view: View, kinds: Sequence[str], *, title: str | None = None) -> Figure:
    """A figure with a panel for each of some kinds of picture (`KINDS`), in their order.

    Parameters
    ----------
    view
        The fitted section.
    kinds
        Names; at least one.
    title
        Heading of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with its own canvas; pyplot knows nothing of it.

    Raises
    ------
    InputError
        Where a kind is unknown, or what it shows is not in the section.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        found = repr(unknown[0]) if unknown else "none"
        msg = f"Expected kinds of pictures, found {found}. Choose of {', '.join(KINDS)}, or overview alone, for --kind."
        raise InputError(msg)
    page = Page(noted=any(KINDS[kind].noted for kind in kinds))
    for kind in kinds:
        KINDS[kind].draw(view, page)
    return page.finish(named_title(title, view.coordinates.shape[1]))


def draw_confidence(view: View, place: Place, *, calibrated: bool = True) -> Axes:
    """How sure each spot's domain is: calibrated, unless the fit could not know (`--init`) or it is not wanted."""
    known = view.fitted.calibrated if calibrated else None
    if known is None:
        return _values(view, place, view.fitted.confidence, scale=CONFIDENCE, title="Confidence")
    return _values(view, place, known, scale=_CALIBRATED, title="Confidence")


def _domains(view: View, place: Place) -> Axes:
    axes, tissue = place.add_map(view.tissue)
    heading = place.heading("Domains", score_line(view.fitted.summary["scores"]))
    place.keep_free(draw_labels(axes, tissue, view.domains, colours=view.colours[0], heading=heading))
    return axes


def _annotation(view: View, place: Place) -> Axes:
    labels = view.annotation
    axes, tissue = place.add_map(view.tissue)
    heading = place.heading("Annotation")
    place.keep_free(draw_labels(axes, tissue, labels, colours=view.colours[1], heading=heading))
    return axes


def _entropy(view: View, place: Place) -> Axes:
    values = view.number(view.keys.entropy, "Run `spatialpdvi fit` again.")
    return _values(view, place, values, scale=_ENTROPY, title="Entropy")


def _agreement(view: View, place: Place) -> Axes:
    otherwise = "Only fits from several restarts write it: fit without --init."
    return _values(view, place, view.number(view.keys.agreement, otherwise), scale=_AGREEMENT, title="Agreement")


def _values(view: View, place: Place, values: NDArray[np.float64], *, scale: Scale, title: str) -> Axes:
    axes, tissue = place.add_map(view.tissue)
    place.keep_free(draw_values(axes, tissue, values, scale=scale, heading=place.heading(title)))
    return axes


def _flow(view: View, place: Place) -> Axes:
    flow = read_flow(view.source, view.keys)
    axes, tissue = place.add_map(view.tissue)
    in_space = flow.shape[1] == 3
    note = "arrows: part in the plane, towards the own side" if in_space else "strokes along the borders"
    heading = place.heading("Border normals" if in_space else "Flow directions", note)
    colours = view.colours[0]
    place.keep_free(draw_flow(axes, tissue, flow, domains=view.domains, colours=colours, heading=heading))
    return axes


def _edges(view: View, place: Place) -> Axes:
    graph = read_connectivities(view.source, view.keys)
    axes, tissue = place.add_map(view.tissue)
    edges = choose_edges(tissue, graph)
    heading, colours = place.heading("Edge weights", edges.note), view.colours[0]
    place.keep_free(draw_edges(axes, tissue, edges, domains=view.domains, colours=colours, heading=heading))
    return axes


def _trace(view: View, place: Place) -> Axes:
    certificate = view.fitted.summary.get("certificate", {})
    tolerance = certificate.get("tolerance") if isinstance(certificate, Mapping) else "none"
    if tolerance is not None and (np.ndim(tolerance) or np.asarray(tolerance).dtype.kind not in "iuf"):
        name = f"uns[{view.keys.uns!r}]['certificate']"
        raise not_ours(view.source, name, "no number under 'tolerance'")
    axes = place.add_chart((CHART_WIDTH, view.chart_height), right=CHART_RIGHT)
    draw_stationarity(
        axes,
        view.fitted.summary["trace"],
        tolerance=None if tolerance is None else float(tolerance),
        heading=place.heading("Convergence"),
    )
    return axes


def _scan(view: View, place: Place) -> Axes:
    scan = view.fitted.summary.get("k_scan")
    if scan is None:
        msg = (
            f"Expected a scan over numbers of domains in {view.source.name}, found none. "
            "The fit was given their number: fit with --k auto, or a range such as --k 4:12."
        )
        raise InputError(msg)
    axes = place.add_chart((CHART_WIDTH, view.chart_height), right=CHART_RIGHT)
    draw_scan(axes, scan, len(view.fitted.domains.categories), heading=place.heading("How many domains"))
    return axes


def _reliability(view: View, place: Place) -> Axes:
    fitted = view.fitted
    # not what the fit has stored: that is of the labels it was given
    codes, known = view.annotation.codes, fitted.calibrated
    calibration = calibration_scores(view.domains.codes, codes, confidence=fitted.confidence, calibrated=known)
    if "reliability" not in calibration:
        msg = "Expected spots with a label, found none. Name a column with labels with --label-key (label_key=)."
        raise InputError(msg)
    axes = place.add_chart((CURVE_WIDTH, view.chart_height), right=0.0)
    draw_reliability(axes, calibration, heading=place.heading("Reliability", RELIABILITY_NOTE))
    return axes


def _confusion(view: View, place: Place) -> Axes:
    return draw_confusion(place, count_confusion(view.domains, view.annotation))


KINDS = {
    "domains": Kind(_domains, noted=True),
    "annotation": Kind(_annotation),
    "confidence": Kind(draw_confidence),
    "entropy": Kind(_entropy),
    "agreement": Kind(_agreement),
    "flow": Kind(_flow, noted=True),
    "edges": Kind(_edges, noted=True),
    "trace": Kind(_trace),
    "scan": Kind(_scan),
    "confusion": Kind(_confusion, noted=True),
    "reliability": Kind(_reliability, noted=True),
}
