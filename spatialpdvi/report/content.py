"""The values that a report shows of a fitted section, without HTML and pictures."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spatialpdvi.description.summary import text_of
from spatialpdvi.errors import InputError
from spatialpdvi.fitting.certificate import Certificate
from spatialpdvi.io.results.described import StoredDescription, StoredIntervals
from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.io.results.summary import is_prediction, joint_samples, stored_params
from spatialpdvi.io.section.counts import COUNTS_IN, FITTED_IN
from spatialpdvi.metrics.clustering import SCORES, overlap
from spatialpdvi.metrics.stored import scores_of_file, scores_of_section
from spatialpdvi.model_selection.recommend import SCAN_COLUMNS

__all__ = [
    "Domain",
    "Gene",
    "MappedGene",
    "Material",
    "certificate_of",
    "certificate_table",
    "confidence_table",
    "domain_rows",
    "genes_to_map",
    "number",
    "scan_table",
    "score_table",
    "shown",
]

_LONGEST = 200  # characters of a parameter that are shown
_MAPPED = 12  # genes that maps can show
_HIGH = 0.9  # confidence; the head of the table in the template names it
_CERTIFICATE = (
    ("relative_change", "change of F over the last epoch, relative to n d / 2", "tolerance_objective"),
    ("stationarity_mean", "largest distance of a mean from its optimum, in standard deviations of noise", "tolerance"),
    ("stationarity_log_variance", "largest relative error of a variance", "tolerance"),
    (
        "stationarity_composition",
        "largest total variation distance of a domain's composition from its optimum",
        "tolerance",
    ),
    (
        "stationarity_posterior",
        "total variation distance of a posterior from its optimum, mean over spots",
        "tolerance",
    ),
    ("stationarity_posterior_max", "the same, largest over spots", None),
    ("gradient_norm", "Euclidean norm of the gradient of F in all global parameters, nats per unit", None),
)
_SCAN = ("k", "evidence", "found_again", "split_ari", "neg_elbo", "smallest")  # columns that are shown


class Gene(NamedTuple):
    """A marker gene of a domain."""

    name: str
    log_fold_change: float  # to base 2
    share_in: float  # of the domain's spots that express it
    share_out: float  # of all others


class MappedGene(NamedTuple):
    """A marker gene that the maps can show."""

    name: str
    domain: str  # that it marks
    tenths: np.ndarray  # (n,) uint8: ten times log(1 + count), for 10,000 counts per spot


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """A fitted section, read and checked.

    Parameters
    ----------
    path
        Where it is; ``name`` without folder and ending.
    fitted
        What the fit has written.
    spot_names
        (n,) index of ``obs``; empty where there are too many spots for the page to name them.
    selected_scores
        The scores of these spots, where they are a selection of those that were fitted.
    agreement
        (n,) share of restarts that agree with their consensus; None for a fit without restarts.
    markers
        Genes of each domain by its name, the highest score first; None if there are none to show.
    markers_note
        Why there are none, or where they are from if not from counts.
    composition
        (K, C) share of each state in each domain; None where domains share no states.
    description
        What `spatialpdvi describe --store` has written; None where it has not.
    intervals
        What `spatialpdvi intervals --store` has written; None where it has not.
    states
        (n, C) posterior of each spot's state; None where domains share no states.
    mapped
        Marker genes that the maps can show.
    counts
        The file that the counts were read from, where it is another one.
    """

    path: Path
    name: str
    fitted: Fitted
    spot_names: Sequence[str]
    selected_scores: Mapping[str, Any] | None = None
    agreement: np.ndarray | None = None
    markers: Mapping[str, list[Gene]] | None = None
    markers_note: str = ""
    composition: np.ndarray | None = None
    description: StoredDescription | None = None
    intervals: StoredIntervals | None = None
    states: np.ndarray | None = None
    mapped: Sequence[MappedGene] = ()
    counts: Path | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        """The stored parameters; empty if there are none."""
        return stored_params(self.fitted.summary)

    @property
    def left_out_of(self) -> Path | None:
        """The file that was fitted, where its counts were neither written nor given; it is known by its name only."""
        name = self.fitted.summary.get(FITTED_IN, self.fitted.summary.get(COUNTS_IN))
        return Path(name) if isinstance(name, str) and name and self.counts is None else None

    @property
    def scores(self) -> Mapping[str, Any]:
        """The stored scores, or those of the spots that there are, where some of the fit are gone."""
        scores: Mapping[str, Any] = self.fitted.summary["scores"]
        return scores if self.selected_scores is None else self.selected_scores

    def own_scores(self, scores: Mapping[str, Any]) -> Mapping[str, Any]:
        """The scores of this file alone, also where it is one of several that were fitted together."""
        return scores_of_file(scores, self.fitted, name=self.name)

    @property
    def is_predicted(self) -> bool:
        """Whether the domains are those of a saved model."""
        return is_prediction(self.fitted.summary)


class Domain(NamedTuple):
    """A row of the table of domains."""

    name: str
    spots: int
    share: float
    confidence: float  # mean; NaN of an empty domain
    agreement: float  # mean; NaN if unknown
    label: str  # the most frequent one; "" if no spot of the domain has a label
    label_share: float  # of its labelled spots


def number(value: Any) -> float | None:
    """Return a value as a finite number, or None if it is not one."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if np.isfinite(found) else None


def shown(value: Any, *, most: int = _LONGEST) -> str:
    """Return a parameter as text of at most ``most`` characters."""
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
    """Return the stored certificate.

    Raises
    ------
    InputError
        If it is not what a fit writes.
    """
    stored = material.fitted.summary.get("certificate")
    values: dict[str, Any] = {}
    for field in fields(Certificate):
        value = stored.get(field.name) if isinstance(stored, Mapping) else None
        if isinstance(value, np.generic):
            value = value.item()
        kinds = (int, float) if field.type is float else (field.type,)
        if not isinstance(value, kinds):  # type: ignore[arg-type]
            raise InputError(
                f"the certificate of {str(material.path)!r} to be what a fit has written",
                f"{value!r:.60} for {field.name!r}",
                "Run `spatialpdvi fit` again.",
            )
        values[field.name] = value
    return Certificate(**values)


def domain_rows(material: Material) -> list[Domain]:
    """Return a row for every domain, in the order of the categories."""
    fitted = material.fitted
    codes, n_domains = fitted.domains.codes.astype(np.int64), len(fitted.domains.categories)
    sizes = np.bincount(codes, minlength=n_domains)

    def means(values: np.ndarray | None) -> np.ndarray:
        if values is None:
            return np.full(n_domains, np.nan)
        total = np.bincount(codes, weights=values, minlength=n_domains)
        return np.divide(total, sizes, out=np.full(n_domains, np.nan), where=sizes > 0)

    confidence, agreement = means(material.fitted.shown_confidence), means(material.agreement)
    labels, shares = _main_labels(fitted, codes, n_domains)
    return [
        Domain(str(name), int(sizes[k]), sizes[k] / codes.size, confidence[k], agreement[k], labels[k], shares[k])
        for k, name in enumerate(fitted.domains.categories)
    ]


def _main_labels(fitted: Fitted, codes: np.ndarray, n_domains: int) -> tuple[list[str], np.ndarray]:
    """Return the most frequent label of each domain and its share of the labelled spots."""
    if fitted.annotation is None or not len(fitted.annotation.categories):
        return [""] * n_domains, np.full(n_domains, np.nan)
    names = fitted.annotation.categories
    counts = overlap(codes, fitted.annotation.codes, shape=(n_domains, len(names)))
    labelled, most = counts.sum(axis=1), counts.argmax(axis=1)
    shares = np.divide(counts.max(axis=1), labelled, out=np.full(n_domains, np.nan), where=labelled > 0)
    return [str(names[most[k]]) if labelled[k] else "" for k in range(n_domains)], shares


def genes_to_map(
    markers: Mapping[str, Sequence[Gene]], sizes: Mapping[str, int], *, known: Collection[str]
) -> dict[str, str]:
    """Choose the genes that maps can show: the first marker of each domain, of the 12 largest domains.

    Parameters
    ----------
    markers
        Genes of each domain by its name, the highest score first.
    sizes
        Spots of each domain.
    known
        Names of one gene only; others name several genes and are passed over.

    Returns
    -------
    dict
        The domain by the name of its gene, in the order of ``sizes``. A domain whose first gene is taken has its next.
    """
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_MAPPED]
    chosen: dict[str, str] = {}
    for domain in (name for name in sizes if name in largest):
        names = (gene.name for gene in markers.get(domain, ()))
        gene = next((name for name in names if name in known and name not in chosen), None)
        if gene is not None:
            chosen[gene] = domain
    return chosen


def score_table(material: Material) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: scores of the domains, of their start, of k-means over seeds, and of each section."""
    stored = material.scores
    samples = joint_samples(stored)
    rows = [("domains (all sections)" if samples else "domains", stored, "")]
    baseline, trivial = stored.get("baseline"), stored.get("trivial")
    of_all = ""
    if isinstance(baseline, Mapping):
        # an edit has scored one file of several alone, and is compared with the start of that one; of k-means, the
        # scores of all are stored
        of_all = " (all sections)" if joint_samples(baseline) and not samples else ""
        start = baseline if samples else material.own_scores(baseline)
        rows.append(("start of the prediction" if material.is_predicted else "start of the fit", start, ""))
    if isinstance(trivial, Mapping):
        low, high, seeds = (number(trivial.get(name)) for name in ("ari_min", "ari_max", "n_seeds"))
        note = "" if low is None or high is None else f"ARI {low:.3f} to {high:.3f}"
        mean = "" if seeds is None else f", mean of {seeds:.0f} seeds"
        rows.append((f"k-means on the smoothed features{mean}{of_all}", trivial, note))
    rows += [(name, scores_of_section(stored, i), "") for i, name in enumerate(samples)]
    used = [name for name in SCORES if any(number(scores.get(name)) is not None for _, scores, _ in rows)]
    noted = any(note for *_, note in rows)
    cells = [
        [what, *(text_of(number(scores.get(name))) for name in used), *([note] if noted else [])]
        for what, scores, note in rows
    ]
    return ["", *(SCORES[name] for name in used), *(["range over seeds"] if noted else [])], cells


def certificate_table(certificate: Certificate) -> list[list[str]]:
    """Return a row for each number of the certificate: its name, what it means, its value and its tolerance."""
    return [
        [
            name,
            meaning,
            f"{getattr(certificate, name):.2e}",
            text_of(None if limit is None else getattr(certificate, limit), ".0e"),
        ]
        for name, meaning, limit in _CERTIFICATE
        if getattr(certificate, name) is not None  # only domains that share states have compositions
    ]


def scan_table(scan: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: what was found for each number of domains that was tried."""
    columns = {name: SCAN_COLUMNS[name] for name in _SCAN if name in scan}
    rows = [
        [text_of(number(value), form) for value, (_, form) in zip(values, columns.values(), strict=True)]
        for values in zip(*(np.asarray(scan[name]) for name in columns), strict=False)
    ]
    return [head for head, _ in columns.values()], rows


def confidence_table(material: Material) -> list[list[str]]:
    """Return a row for the posterior and, if it was calibrated, for the calibrated one."""
    fitted = material.fitted
    rows = {"posterior": fitted.confidence, "calibrated posterior": fitted.calibrated}
    return [
        [name, f"{values.mean():.3f}", f"{np.median(values):.3f}", f"{(values >= _HIGH).mean():.0%}"]
        for name, values in rows.items()
        if values is not None
    ]
