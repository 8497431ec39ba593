"""The parts of a section that say what was found and how well: maps, scores, convergence, the number of domains."""

from collections.abc import Mapping

import numpy as np

from spatialpdvi.fitting.certificate import Certificate
from spatialpdvi.report.content import SCORES, Material, joint_samples, number, score_table, shown
from spatialpdvi.report.markup import Markup, data_uri, join, table, tag
from spatialpdvi.report.pictures import LabelMap, Maps, Picture, ValueMap, scan_chart, trace_chart

__all__ = ["chart", "convergence", "maps", "number_of_domains", "scores", "state", "swatch", "text_of"]

_NONE = "–"
_MOST = 60  # entries of a legend
_PROSE = 2_000  # characters of a sentence
_CERTIFICATE = (
    ("relative_change", "change of F over the last epoch, relative to n d / 2", "tolerance_objective"),
    ("stationarity_mean", "farthest mean from its own optimum, in noise sd", "tolerance"),
    ("stationarity_log_variance", "largest relative error of a variance", "tolerance"),
    ("stationarity_posterior", "total variation from its own optimum, mean over spots", "tolerance"),
    ("stationarity_posterior_max", "the same, largest over spots", None),
    ("gradient_norm", "Euclidean norm of dF/d(means, log variances), nats per unit", None),
)


def text_of(value: float | None, form: str = ".3f") -> str:
    """A number as text, a dash where it is not known."""
    return _NONE if value is None or not np.isfinite(value) else format(value, form)


def state(certificate: Certificate) -> Markup:
    """Whether a fit converged, in one or two words."""
    word, kind = ("converged", "good") if certificate.converged else ("not converged", "bad")
    return tag("span", word, class_=f"state {kind}")


def swatch(colour: str) -> Markup:
    """A patch of a colour, ``#rrggbb``."""
    return tag("span", "", class_="swatch", style=f"background:{colour}")


def chart(picture: Picture, caption: str, words: str) -> Markup:
    """A chart with what stands above it, and in words what it shows."""
    return tag("figure", tag("figcaption", caption), _image(picture, words), class_="chart")


def maps(material: Material, drawn: Maps) -> Markup:
    """Maps of annotation, domains, confidence and agreement with their legends."""
    figures = []
    if drawn.annotation is not None:
        key = "" if material.label_key is None else f" (obs['{material.label_key}'])"
        figures.append(_labels(f"Annotation{key}", drawn.annotation))
    figures.append(_labels("Domains", drawn.domains))
    calibrated = "calibrated probability of the domain" if material.fitted.calibrated is not None else "posterior"
    figures.append(_values("Confidence", drawn.confidence, calibrated))
    if drawn.agreement is not None:
        figures.append(_values("Agreement of restarts", drawn.agreement, "share of restarts"))
    notes = []
    if material.fitted.samples is not None:
        names = ", ".join(map(str, material.fitted.samples.categories))
        notes.append(f"Sections side by side, in reading order: {names}.")
    if material.fitted.coordinates is not None and material.fitted.coordinates.shape[1] > 2:
        notes.append("The first two of three axes are drawn.")
    if drawn.annotation is not None:
        notes.append("A domain and the label that it covers best have one colour, one domain per label.")
    return join([tag("p", " ".join(notes), class_="soft") if notes else None, tag("div", *figures, class_="maps")])


def scores(material: Material) -> Markup:
    """Scores of the domains beside those of simpler ways."""
    rows = score_table(material)
    used = [i for i in range(len(SCORES)) if any(row.values[i] is not None for row in rows)]
    heads = [SCORES[i] if len(SCORES[i]) > 5 else SCORES[i].upper() for i in used]
    noted = any(row.note for row in rows)
    cells = [[row.what, *(text_of(row.values[i]) for i in used), *([row.note] if noted else [])] for row in rows]
    return join([tag("p", _about_scores(material)), table(["", *heads, *(["over the seeds"] if noted else [])], cells)])


def _about_scores(material: Material) -> str:
    stored, words = material.scores, []
    labelled, spots = number(stored.get("n_scored")), number(stored.get("n_spots"))
    if "ari" in stored:
        key = material.params.get("label_key")
        against = "known labels" if key is None else f"obs['{shown(key)}']"
        counted = "" if labelled is None or spots is None else f", {labelled:,.0f} of {spots:,.0f} spots"
        words.append(f"Held against {against}{counted}: ARI to completeness, higher is better.")
    else:
        words.append("The fit had no known labels to be held against.")
    words.append("CHAOS and PAS say how scattered domains are in space, without any labels: lower is smoother.")
    if "trivial" in stored:
        words.append("k-means on the same smoothed features is what anyone gets without a model.")
    if len(joint_samples(stored)) > 1:
        words.append("The sections were fitted together.")
    return " ".join(words)


def convergence(material: Material, certificate: Certificate) -> Markup:
    """The curve of the objective and the certificate, in words and in numbers."""
    trace = material.fitted.summary["trace"]
    words = f"F fell to {certificate.neg_elbo:.6g} nats in {certificate.epochs} epochs."
    rows = []
    for name, meaning, limit in _CERTIFICATE:
        bound = _NONE if limit is None else f"{getattr(certificate, limit):.0e}"
        rows.append([name, meaning, f"{getattr(certificate, name):.2e}", bound])
    about = (
        "Every number is of the result as it is stored, so anyone can compute it again from the file. Where the "
        "numbers are within their tolerances, no block of variables has anywhere better to go: this is a stationary "
        "point of the objective, which need not be the lowest one."
    )
    if material.is_predicted:
        about = (
            "The domains are those of a kept model, and were held: the posteriors alone are asked to be stationary, "
            "the other numbers say how far this section by itself would move the domains."
        )
    said = tag(
        "div",
        tag("p", certificate.sentence(), class_=None if certificate.converged else "bad"),
        tag("p", about, class_="soft"),
    )
    curve = chart(trace_chart(trace), "F (lower is better) and its gradient", words)
    numbers = table(["number", "meaning", "found", "tolerance"], rows, texts=2)
    return join([tag("div", curve, said, class_="charts"), numbers])


def number_of_domains(material: Material) -> Markup | None:
    """Why this number of domains, where it was chosen of several."""
    scan = material.fitted.summary.get("k_scan")
    if scan is None:
        return None
    choice = material.fitted.summary.get("k_choice")
    choice = choice if isinstance(choice, Mapping) else {}
    k = len(material.fitted.domains.categories)
    drawn = chart(
        scan_chart(scan, k), "Domains found again (higher is better) and F", f"Of the numbers tried, {k} was chosen."
    )
    columns = [name for name in ("k", "found_again", "split_ari", "neg_elbo", "smallest") if name in scan]
    heads = {
        "k": "domains",
        "found_again": "found again, net",
        "split_ari": "ARI of halves",
        "neg_elbo": "complete F, nats",
        "smallest": "smallest, spots",
    }
    forms = {"k": ".0f", "neg_elbo": ".6g", "smallest": ",.0f"}
    rows = [
        [text_of(number(value), forms.get(name, ".3f")) for name, value in zip(columns, values, strict=True)]
        for values in zip(*(np.asarray(scan[name]) for name in columns), strict=False)
    ]
    said = tag(
        "div",
        tag("p", shown(choice.get("reason", ""), most=_PROSE)),
        table([heads[name] for name in columns], rows, texts=0),
    )
    return tag("div", drawn, said, class_="charts")


def _labels(caption: str, drawn: LabelMap) -> Markup:
    entries = list(zip(drawn.colours, drawn.names, strict=True))
    items = [tag("li", swatch(colour), shown(name)) for colour, name in entries[:_MOST]]
    if len(entries) > _MOST:
        items.append(tag("li", f"and {len(entries) - _MOST:,} more"))
    if drawn.unlabelled is not None:
        items.append(tag("li", swatch(drawn.unlabelled), "unlabelled"))
    words = f"Map of {len(entries)} regions."
    return tag("figure", tag("figcaption", caption), _image(drawn.picture, words), tag("ul", *items, class_="legend"))


def _values(caption: str, drawn: ValueMap, unit: str) -> Markup:
    style = f"background:linear-gradient(to right,{','.join(drawn.gradient)})"
    scale = [f"{drawn.low:.1f}", tag("span", "", class_="bar", style=style), f"{drawn.high:.1f} {unit}"]
    picture = _image(drawn.picture, f"Map of {unit}, {drawn.low:.1f} to {drawn.high:.1f}.")
    return tag("figure", tag("figcaption", caption), picture, tag("div", *scale, class_="scale"))


def _image(picture: Picture, words: str) -> Markup:
    return tag("img", src=data_uri(picture.png), width=picture.width, height=picture.height, alt=words)
