"""The page: one section after the other, and above several of them a table that leads to each."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from spatialpdvi.report.content import Material, certificate_of, domain_table, number, own_scores
from spatialpdvi.report.details import confidence, domains, markers, repeat
from spatialpdvi.report.markup import Markup, join, table, tag
from spatialpdvi.report.parts import convergence, maps, number_of_domains, scores, state, text_of
from spatialpdvi.report.pictures import draw_maps
from spatialpdvi.report.style import CSS
from spatialpdvi.version import __version__

__all__ = ["render"]

# The browser itself sees to it that the page asks for nothing and runs nothing.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_HEADS = ("section", "spots", "domains", "ARI", "ARI of the start", "CHAOS", "PAS", "mean confidence", "epochs", "fit")


class _Section(NamedTuple):
    title: str
    lead: Markup  # one line on what it is
    body: Markup
    row: list[str]  # of the table above several


def render(sections: Iterable[Material], *, paths: Mapping[str, Path]) -> str:
    """The page of one fitted section, or of several.

    Parameters
    ----------
    sections
        At least one; each is drawn and let go before the next is asked for.
    paths
        Files by the names of their sections, which the command of a joint fit lists.

    Raises
    ------
    InputError
        Where a section does not hold what a fit writes.
    """
    made = [_section(material, f"section-{i}", paths) for i, material in enumerate(sections, start=1)]
    if len(made) == 1:
        (only,) = made
        title = f"Spatial domains of {only.title}"
        content = [tag("header", tag("h1", title), only.lead), tag("section", only.body, id="section-1")]
    else:
        title = f"Spatial domains of {len(made)} sections"
        summary = table(_HEADS, [section.row for section in made])
        content = [tag("header", tag("h1", title), summary, id="summary")]
        for i, section in enumerate(made, start=1):
            back = tag("p", tag("a", "to all sections", href="#summary"), class_="back")
            head = tag("h2", section.title)
            content.append(tag("section", head, section.lead, section.body, back, id=f"section-{i}", class_="sample"))
    return _document(title, content)


def _section(material: Material, anchor: str, paths: Mapping[str, Path]) -> _Section:
    certificate = certificate_of(material)
    found, drawn = domain_table(material), draw_maps(material)
    parts = {
        "Maps": maps(material, drawn),
        "Scores": scores(material),
        "Convergence": convergence(material, certificate),
        "Number of domains": number_of_domains(material),
        "Domains": domains(found, drawn.colours),
        "Marker genes": markers(material, found, drawn.colours),
        "Confidence": confidence(material),
        "To repeat it": repeat(material, paths),
    }
    there = {title: part for title, part in parts.items() if part is not None}
    anchors = {title: f"{anchor}-{title.lower().replace(' ', '-')}" for title in there}
    menu = tag("nav", *(tag("a", title, href=f"#{anchors[title]}") for title in there))
    pieces = (tag("section", tag("h3", title), part, id=anchors[title]) for title, part in there.items())
    spots, filled = material.fitted.confidence.size, sum(domain.spots > 0 for domain in found)
    epochs = f"{certificate.epochs} {'sweeps' if material.is_predicted else 'epochs'}"
    lead = tag("p", str(material.path), f": {spots:,} spots, {filled} domains, ", state(certificate), f", {epochs}")
    row = [
        tag("a", material.name, href=f"#{anchor}"),
        f"{spots:,}",
        f"{filled}",
        *_summary(material),
        f"{material.confidence.mean():.2f}",
        f"{certificate.epochs}",
        state(certificate),
    ]
    return _Section(material.name, lead, join([menu, *pieces]), row)


def _summary(material: Material) -> list[str]:
    """ARI, that of the start, CHAOS and PAS."""
    own, baseline = own_scores(material), material.scores.get("baseline")
    begun = own_scores(material, baseline) if isinstance(baseline, Mapping) else {}
    values = (own.get("ari"), begun.get("ari"), own.get("chaos"), own.get("pas"))
    return [text_of(number(value)) for value in values]


def _document(title: str, content: Iterable[Markup]) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(CSS)),
    )
    made_by = tag("footer", f"Made by spatialpdvi {__version__}. This page is complete in itself: it asks for nothing.")
    body = tag("body", *content, made_by)
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"
