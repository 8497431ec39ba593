"""What a report says of a fitted section, as values: no HTML, no pictures."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.errors import InputError
from spatialpdvi.fitting.certificate import Certificate
from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.metrics.calibration import calibration_scores
from spatialpdvi.metrics.clustering import overlap

__all__ = [
    "SCORES",
    "Domain",
    "Gene",
    "Material",
    "Scored",
    "certificate_of",
    "domain_table",
    "joint_samples",
    "measured_calibration",
    "number",
    "own_scores",
    "score_table",
    "shown",
]

SCORES = ("ari", "nmi", "homogeneity", "completeness", "chaos", "pas")
_LONGEST = 200  # characters of a parameter that are shown


class Gene(NamedTuple):
    """A marker gene of a domain."""

    name: str
    log_fold_change: float  # to base 2
    share_in: float  # of the domain's spots that express it
    share_out: float  # of all others


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """A fitted section, read and checked.

    Parameters
    ----------
    path
        Where it is; ``name`` without folder and ending.
    fitted
        What the fit has written.
    agreement
        (n,) share of restarts that agree with their consensus; None of a fit without restarts.
    label_key
        Column of obs that the annotation is from.
    markers
        Genes of each domain by its name, the highest score first; None where they were not looked for or not found.
    no_markers
        Why there are none.
    """

    path: Path
    name: str
    fitted: Fitted
    agreement: np.ndarray | None = None
    label_key: str | None = None
    markers: Mapping[str, list[Gene]] | None = None
    no_markers: str = ""

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters as they were stored; empty where there are none."""
        params = self.fitted.summary.get("params")
        return params if isinstance(params, Mapping) else {}

    @property
    def scores(self) -> Mapping[str, Any]:
        """Scores as they were stored."""
        scores: Mapping[str, Any] = self.fitted.summary["scores"]
        return scores

    @property
    def confidence(self) -> np.ndarray:
        """(n,) calibrated where that is known."""
        return self.fitted.confidence if self.fitted.calibrated is None else self.fitted.calibrated

    @property
    def is_predicted(self) -> bool:
        """Whether the domains are those of a kept model."""
        return "model" in self.params


class Domain(NamedTuple):
    """A row of the table of domains."""

    name: str
    spots: int
    share: float
    confidence: float  # mean; NaN of an empty domain
    agreement: float  # mean; NaN where it is not known
    label: str  # that most of its spots have; "" where none has any
    label_share: float  # of its spots with a label


class Scored(NamedTuple):
    """A row of the table of scores."""

    what: str
    values: tuple[float | None, ...]  # of `SCORES`
    note: str


def number(value: Any) -> float | None:
    """A value as a finite number, None where it is none."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found) else None


def shown(value: Any, *, most: int = _LONGEST) -> str:
    """A parameter as text of at most so many characters."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bool):
        text = "on" if value else "off"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key} {shown(inner)}" for key, inner in value.items())
    elif isinstance(value, list | tuple):
        text = ", ".join(map(shown, value))
    else:
        text = str(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def certificate_of(material: Material) -> Certificate:
    """The certificate that was stored.

    Raises
    ------
    InputError
        Where it is not what a fit writes.
    """
    stored = material.fitted.summary.get("certificate")
    values: dict[str, Any] = {}
    for field in fields(Certificate):
        value = stored.get(field.name) if isinstance(stored, Mapping) else None
        if isinstance(value, np.generic):
            value = value.item()
        kinds = (int, float) if field.type is float else (field.type,)
        if not isinstance(value, kinds):  # type: ignore[arg-type]
            msg = (
                f"Expected the certificate of {str(material.path)!r} to be what a fit has written, found "
                f"{value!r:.60} for {field.name!r}. Run `spatialpdvi fit` again."
            )
            raise InputError(msg)
        values[field.name] = value
    return Certificate(**values)


def domain_table(material: Material) -> list[Domain]:
    """Every domain in the order of the categories."""
    fitted = material.fitted
    codes, n_domains = fitted.domains.codes.astype(np.int64), len(fitted.domains.categories)
    sizes = np.bincount(codes, minlength=n_domains)

    def means(values: np.ndarray | None) -> np.ndarray:
        if values is None:
            return np.full(n_domains, np.nan)
        total = np.bincount(codes, weights=values, minlength=n_domains)
        return np.divide(total, sizes, out=np.full(n_domains, np.nan), where=sizes > 0)

    confidence, agreement = means(material.confidence), means(material.agreement)
    labels, shares = _main_labels(fitted, codes, n_domains)
    return [
        Domain(str(name), int(sizes[k]), sizes[k] / codes.size, confidence[k], agreement[k], labels[k], shares[k])
        for k, name in enumerate(fitted.domains.categories)
    ]


def _main_labels(fitted: Fitted, codes: np.ndarray, n_domains: int) -> tuple[list[str], np.ndarray]:
    """The label that most labelled spots of each domain have, and their share."""
    if fitted.annotation is None or not len(fitted.annotation.categories):
        return [""] * n_domains, np.full(n_domains, np.nan)
    labels = fitted.annotation.codes.astype(np.int64)
    names, known = fitted.annotation.categories, labels >= 0
    counts = overlap(codes[known], labels[known], shape=(n_domains, len(names)))
    labelled, most = counts.sum(axis=1), counts.argmax(axis=1)
    shares = np.divide(counts.max(axis=1), labelled, out=np.full(n_domains, np.nan), where=labelled > 0)
    return [str(names[most[k]]) if labelled[k] else "" for k in range(n_domains)], shares


def joint_samples(scores: Mapping[str, Any]) -> list[str]:
    """Names of the sections of a joint fit, in their order; empty of a fit of one."""
    samples = scores.get("samples")
    names = samples.get("sample") if isinstance(samples, Mapping) else None
    return [] if names is None else [str(name) for name in np.atleast_1d(names)]


def own_scores(material: Material, scores: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Scores of the section alone: of a file of a joint fit its own, of any other all."""
    scores = material.scores if scores is None else scores
    names = joint_samples(scores)
    if material.name not in names or "sample_key" in material.params:
        return scores
    return _of_sample(scores, names.index(material.name))


def score_table(material: Material) -> list[Scored]:
    """Scores of the domains, of where they started, of k-means over seeds, and section by section."""
    scores = material.scores
    several = " (all sections)" if joint_samples(scores) else ""
    rows = [_row(f"domains{several}", scores)]
    baseline = scores.get("baseline")
    if isinstance(baseline, Mapping):
        rows.append(_row("each spot by itself" if material.is_predicted else "start of the fit", baseline))
    trivial = scores.get("trivial")
    if isinstance(trivial, Mapping):
        rows.append(_trivial(trivial))
    rows += [_row(name, _of_sample(scores, i)) for i, name in enumerate(joint_samples(scores))]
    return rows


def _row(what: str, scores: Mapping[str, Any], note: str = "") -> Scored:
    return Scored(what, tuple(number(scores.get(name)) for name in SCORES), note)


def _trivial(trivial: Mapping[str, Any]) -> Scored:
    low, high, seeds = (number(trivial.get(name)) for name in ("ari_min", "ari_max", "n_seeds"))
    note = "" if low is None or high is None else f"ARI {low:.3f} to {high:.3f}"
    name = "k-means on the smoothed features" + ("" if seeds is None else f", mean of {seeds:.0f} seeds")
    return _row(name, trivial, note)


def _of_sample(scores: Mapping[str, Any], i: int) -> dict[str, Any]:
    columns = scores["samples"]
    return {name: np.atleast_1d(values)[i] for name, values in columns.items() if np.size(values) > i}


def measured_calibration(material: Material) -> dict[str, Any]:
    """Calibration of the confidences against the annotation that the maps show; empty where there is none."""
    fitted = material.fitted
    if fitted.annotation is None:
        return {}
    codes = fitted.annotation.codes.astype(np.int64)
    return calibration_scores(
        fitted.domains.codes.astype(np.int64), codes, confidence=fitted.confidence, calibrated=fitted.calibrated
    )
