"""The parts of a section for those who go on with it: its domains, their genes, how sure they are, how to repeat it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.report.command import fit_command, predict_command, shell_line, stored_options
from spatialpdvi.report.content import Domain, Gene, Material, joint_samples, measured_calibration, number, shown
from spatialpdvi.report.markup import Markup, escaped, join, table, tag
from spatialpdvi.report.parts import chart, swatch, text_of
from spatialpdvi.report.pictures import reliability_chart

__all__ = ["confidence", "domains", "markers", "repeat"]

_SURE = 0.9


def domains(found: list[Domain], colours: Mapping[str, str]) -> Markup:
    """Sizes of the domains in their colours, how sure they are, and what labels they cover."""
    agreed = any(np.isfinite(domain.agreement) for domain in found)
    labelled = any(domain.label for domain in found)
    heads = ["domain", *(["mostly"] if labelled else []), "spots", "share", "mean confidence"]
    rows: list[list[str]] = []
    for domain in found:
        label = f"{shown(domain.label)} ({domain.label_share:.0%})" if domain.label else "–"
        row = [_name(domain.name, colours), *([label] if labelled else [])]
        row += [f"{domain.spots:,}", f"{domain.share:.1%}", text_of(domain.confidence, ".2f")]
        rows.append([*row, *([text_of(domain.agreement, ".0%")] if agreed else [])])
    heads += ["restarts agree"] if agreed else []
    return table(heads, rows, texts=2 if labelled else 1)


def markers(material: Material, found: list[Domain], colours: Mapping[str, str]) -> Markup:
    """The genes of each domain."""
    if material.markers is None:
        return tag("p", material.no_markers)
    about = (
        "Genes that a domain expresses more than all other spots, the highest score first (Welch's t of normalised "
        "counts); in brackets the log2 fold change and the shares of spots that express the gene, in the domain and "
        "outside. The domains were found on the same counts: read this as an order, not as evidence."
    )
    rows = [
        tag(
            "tr",
            tag("td", _name(domain.name, colours)),
            tag("td", _genes(material.markers.get(domain.name, [])), class_="genes"),
        )
        for domain in found
    ]
    head = tag("thead", tag("tr", tag("th", "domain"), tag("th", "genes")))
    return join([tag("p", about, class_="soft"), tag("div", tag("table", head, tag("tbody", *rows)), class_="wide")])


def _genes(genes: list[Gene]) -> Markup:
    def one(gene: Gene) -> Markup:
        shares = f" ({gene.log_fold_change:.1f}; {gene.share_in:.0%}, {gene.share_out:.0%})"
        return join([tag("b", shown(gene.name)), tag("span", shares, class_="soft")])

    return join(map(one, genes), between=", ") if genes else Markup("–")


def confidence(material: Material) -> Markup:
    """How sure the domains of spots are, how far that can be believed, and how far restarts agree."""
    fitted = material.fitted
    rows = [_spread("posterior", fitted.confidence)]
    if fitted.calibrated is not None:
        rows.append(_spread("calibrated", fitted.calibrated))
    words = [
        "The posterior counts what neighbours share many times, and is too sure of itself."
        + (
            " Calibrated, it is as sure as two restarts are of each other, which takes no labels to know."
            if fitted.calibrated is not None
            else ""
        )
    ]
    measured = measured_calibration(material)
    if "ece_calibrated" in measured:
        words.append(
            f"Against the annotation, where a spot is right that has its domain's most frequent label "
            f"({measured['accuracy']:.0%} are), the expected calibration error is {measured['ece']:.3f}, calibrated "
            f"{measured['ece_calibrated']:.3f}."
        )
    words.append(_about_restarts(material))
    said = tag(
        "div",
        *(tag("p", text) for text in words if text),
        table(["confidence", "mean", "median", f"spots of {_SURE:.0%} or more"], rows),
    )
    if "reliability" not in measured:
        return said
    drawn = chart(
        reliability_chart(measured), "Confidence against the share that is right", "Reliability of confidences."
    )
    return tag("div", drawn, said, class_="charts")


def _spread(name: str, values: np.ndarray) -> list[str]:
    return [name, f"{values.mean():.3f}", f"{np.median(values):.3f}", f"{(values >= _SURE).mean():.0%}"]


def _about_restarts(material: Material) -> str:
    params = material.params
    if material.agreement is None:
        return "There are no restarts to compare: the domains are a model's." if material.is_predicted else ""
    n, similarity, accord = (number(params.get(name)) for name in ("n_restarts", "restart_ari", "restart_accord"))
    agreed = f"{material.agreement.mean():.0%}"
    words = [f"Of {text_of(n, '.0f')} restarts {agreed} on average put a spot where their consensus does"]
    if similarity is not None:
        words.append(f"; the mean ARI between two of them is {similarity:.2f}")
    if accord is not None:
        words.append(f", and two of them say the same of a spot with a chance of {accord:.0%}")
    if params.get("start") == "restart":
        words.append(". Their consensus had collapsed: the fit began with the restart that is most like all others")
    return "".join(words) + "."


def repeat(material: Material, paths: Mapping[str, Path]) -> Markup:
    """The command that gives the same result, all parameters, and the versions."""
    parts: list[Markup | None] = []
    line = _command(material, paths)
    if line is None:
        parts.append(tag("p", "The stored parameters are not those of a fit of this version: there is no command."))
    else:
        parts += [tag("p", _about_command(material)), tag("pre", tag("code", escaped(line, keep="\n\t")))]
    params = material.params
    plain = {key: value for key, value in params.items() if key != "versions"}
    parts += [tag("h4", "Parameters"), _list(plain)]
    versions = params.get("versions")
    if isinstance(versions, Mapping):
        parts += [tag("h4", "Versions"), _list(versions)]
    return join(parts)


def _about_command(material: Material) -> str:
    if material.is_predicted:
        return "Finds the same domains again, with the model's file in the folder it is run in, and writes them beside."
    words = "Gives the same result again, bit for bit with the same versions, on any number of threads, and writes it "
    words += "beside. What was chosen by default is spelled out."
    choice = material.fitted.summary.get("k_choice")
    if isinstance(choice, Mapping) and "asked" in choice:
        words += f" The number of domains was chosen by --k {shown(choice['asked'])}."
    return words


def _command(material: Material, paths: Mapping[str, Path]) -> str | None:
    """The line for the shell; None where what is stored makes none."""
    path, params = material.path, material.params
    beside = path.with_name(f"{path.stem}_again{path.suffix}")
    if material.is_predicted:
        try:
            return shell_line(predict_command(params, path, output=beside))
        except InputError:
            return None
    options = stored_options(params)
    if options is None:
        return None
    names = joint_samples(material.scores)
    sizes = _sizes(material.scores) if names else None
    if not names or options.sample_key is not None:
        return shell_line(fit_command(options, [path], output=beside, sizes=sizes))
    if any(Path(name).name != name for name in names):
        return None  # not of files
    others = {name: paths.get(name, path.with_name(name + path.suffix)) for name in names}
    files = [path if name == material.name else others[name] for name in names]
    folder = path.with_name("again")
    line = shell_line(fit_command(options, files, output=folder, sizes=sizes))
    return f"{shell_line(['mkdir', '-p', '--', str(folder)])} && {line}"


def _sizes(scores: Mapping[str, Any]) -> list[int] | None:
    """Spots of each section of a joint fit."""
    sizes = [number(size) for size in np.atleast_1d(scores["samples"].get("n_spots", ()))]
    known = [int(size) for size in sizes if size]
    return known if known and len(known) == len(sizes) else None


def _name(domain: str, colours: Mapping[str, str]) -> Markup:
    return tag("span", swatch(colours[domain]) if domain in colours else None, shown(domain), class_="name")


def _list(values: Mapping[str, Any]) -> Markup:
    return tag(
        "dl", *(tag("div", tag("dt", str(key)), tag("dd", shown(value))) for key, value in sorted(values.items()))
    )
