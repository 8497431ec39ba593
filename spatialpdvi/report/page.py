"""The page: one section after the other; if there are several, a table at the top links to each."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spatialpdvi.description.summary import summary_rows, text_of
from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.io.results.summary import joint_samples, scores_of_fit
from spatialpdvi.metrics.stored import measured_calibration
from spatialpdvi.plotting.labels import printable
from spatialpdvi.report.command import repeating_command
from spatialpdvi.report.content import (
    Material,
    certificate_of,
    certificate_table,
    confidence_table,
    domain_rows,
    number,
    scan_table,
    score_table,
    shown,
)
from spatialpdvi.report.layers import MOST_SPOTS, map_data
from spatialpdvi.report.pictures import (
    composition_chart,
    contacts_chart,
    draw_maps,
    intervals_chart,
    reliability_chart,
    scan_chart,
    trace_chart,
)
from spatialpdvi.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["environment", "render", "script_of_maps"]

_HEADS = ("spots", "domains", "ARI", "ARI of the start", "CHAOS", "PAS", "mean confidence", "epochs")
_PROSE = 2_000  # characters of a sentence
_FEWEST = 10_000  # spots of a section that are embedded one by one, however many sections there are


class _Section(NamedTuple):
    """What the page shows of one section."""

    name: str
    path: str
    spots: int
    domains: int  # that have spots
    epochs: str
    converged: bool
    row: list[str]  # of the table above several sections
    body: str  # HTML


@cache
def environment() -> "Environment":
    """Return the environment of the templates: every text is escaped, and what no font can draw becomes ``?``."""
    import jinja2

    def printed(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("spatialpdvi.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"number": number, "shown": shown, "text": text_of}
    return templates


def render(sections: Iterable[Material], *, n_sections: int, paths: Mapping[str, Path]) -> str:
    """Write the page of one fitted section, or of several.

    Parameters
    ----------
    sections
        At least one; each is drawn before the next one is read.
    n_sections
        How many they are: the more there are, the fewer spots of each are embedded one by one.
    paths
        Files by the names of their sections, which the command of a joint fit lists.

    Returns
    -------
    str
        The page as HTML, to be written as UTF-8.

    Raises
    ------
    InputError
        If a section does not hold what a fit writes.
    """
    most = max(_FEWEST, MOST_SPOTS // n_sections)
    made = [_section(material, f"section-{i}", paths, most) for i, material in enumerate(sections, start=1)]
    page, script = environment().get_template("report.html.jinja"), script_of_maps()
    fingerprint = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return page.render(sections=made, heads=_HEADS, version=__version__, script=script, fingerprint=fingerprint) + "\n"


def script_of_maps() -> str:
    """Return the script of the page, the only one that its security policy lets the browser run."""
    return resources.files("spatialpdvi.report").joinpath("templates", "maps.js").read_text(encoding="utf-8")


def _section(material: Material, anchor: str, paths: Mapping[str, Path], most: int) -> _Section:
    fitted, params, certificate = material.fitted, material.params, certificate_of(material)
    domains, measured = domain_rows(material), measured_calibration(fitted)
    versions, choice = params.get("versions"), fitted.summary.get("k_choice")
    choice = choice if isinstance(choice, Mapping) else {}
    drawn = draw_maps(material)
    body = (
        environment()
        .get_template("section.html.jinja")
        .render(
            agreed=any(np.isfinite(domain.agreement) for domain in domains),
            anchor=anchor,
            asked=choice.get("asked"),
            certificate=certificate,
            certificate_rows=certificate_table(certificate),
            command=repeating_command(material, paths),
            composition=_composition(material),
            confidence_rows=confidence_table(material),
            described=_described(material),
            forest=None if material.intervals is None else intervals_chart(material.intervals),
            domains=domains,
            drawn=drawn,
            edits=fitted.edits,
            fitted=fitted,
            joint=len(joint_samples(scores_of_fit(fitted.summary))) > 1,
            labelled=any(domain.label for domain in domains),
            map_data=map_data(material, drawn, most=most),
            material=material,
            measured=measured,
            parameters={key: value for key, value in params.items() if key != "versions"},
            reliability=reliability_chart(measured) if "reliability" in measured else None,
            scan=_scan(fitted, choice),
            score_table=score_table(material),
            trace=trace_chart(fitted.summary["trace"]),
            versions=versions if isinstance(versions, Mapping) else {},
        )
    )
    spots, filled = fitted.confidence.size, sum(domain.spots > 0 for domain in domains)
    mean = f"{fitted.shown_confidence.mean():.2f}"
    return _Section(
        name=material.name,
        path=str(material.path),
        spots=spots,
        domains=filled,
        epochs=f"{certificate.epochs} epochs{_whose(material)}",
        converged=certificate.converged,
        row=[f"{spots:,}", f"{filled}", *_summary(material), mean, f"{certificate.epochs}"],
        body=body,
    )


def _whose(material: Material) -> str:
    """Return whose epochs these are, where the domains were carried over from another fit."""
    carried = material.fitted.carried_from
    return "" if carried is None else f" of the fit of {carried}, from which the domains were carried over"


def _scan(fitted: Fitted, choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the page shows of the scan that chose the number of domains."""
    table, chosen = fitted.summary.get("k_scan"), fitted.n_fitted
    if table is None:
        return None
    heads, rows = scan_table(table)
    return {
        "chart": scan_chart(table, chosen),
        "by_evidence": "evidence" in table,
        "chosen": chosen,
        "heads": heads,
        "rows": rows,
        "reason": shown(choice.get("reason", ""), most=_PROSE),
    }


def _composition(material: Material) -> dict[str, Any] | None:
    """Return what the page shows of the states that domains share."""
    if material.composition is None:
        return None
    names = [str(name) for name in material.fitted.domains.categories]
    return {"chart": composition_chart(material.composition, names), "states": material.composition.shape[1]}


def _described(material: Material) -> dict[str, Any] | None:
    """Return what the page shows of a stored description: a picture, and the heads and rows of each section."""
    if material.description is None:
        return None
    tables, by = material.description
    names = [str(name) for name in tables["sections"]["section"]]
    shown = [(name, *summary_rows(tables, name, by)) for name in names]
    return {"chart": contacts_chart(tables["contacts"]), "sections": shown}


def _summary(material: Material) -> list[str]:
    """Return the ARI, that of the start, CHAOS and PAS."""
    own, baseline = material.own_scores(material.scores), material.scores.get("baseline")
    start = material.own_scores(baseline) if isinstance(baseline, Mapping) else {}
    values = (own.get("ari"), start.get("ari"), own.get("chaos"), own.get("pas"))
    return [text_of(number(value)) for value in values]
