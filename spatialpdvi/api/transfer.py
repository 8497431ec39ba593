"""Carry the domains of a fitted section to other spots of it, by place."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spatialpdvi.errors import InputError, list_keys, option
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys, check_free
from spatialpdvi.io.storage.paths import locate
from spatialpdvi.options.validation import read_kind
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    import numpy as np
    from anndata import AnnData
    from pandas import Categorical, DataFrame

    from spatialpdvi.io.results.stored import StoredFit
    from spatialpdvi.io.section.section import Section
    from spatialpdvi.prediction.transfer import Carried

__all__ = ["TransferResult", "transfer", "transfer_file"]

# of uns: what belongs to the domains, wherever their spots are; features, states and scans belong to the fit's spots
_OF_DOMAINS = (
    *("domain_mean", "log_variance", "state_mean", "composition", "prior_weight", "noise_sd", "prior_sd", "prior_mean"),
    *("trace", "certificate", "edits"),
)
_OF_FIT = ("k", "temperature")  # of params


@dataclass(frozen=True, eq=False)
class TransferResult:
    """Domains that were carried to the n spots of another file, bin size or segmentation.

    Parameters
    ----------
    domains
        (n,) int64, the position of each spot's domain in ``names``; -1 for a spot without one.
    names
        (K,) of the domains, those of the fit in its order.
    posterior
        (n, K) float32, interpolated; NaN for a spot without a domain.
    calibrated
        The same for the calibrated posterior; None where the fit has none.
    sections
        A row for each section: its name ``section`` (empty where there is one), its ``spots``, how many of them are
        ``assigned``, and ``max_distance``, the largest distance to a fitted spot, in the unit of the fit.
    scores
        As of a fit, over the spots that have a domain.

    Examples
    --------
    >>> result = spv.transfer(adata, other)
    >>> result.posterior.shape
    (400, 3)
    """

    domains: "np.ndarray"
    names: tuple[str, ...]
    posterior: "np.ndarray"
    calibrated: "np.ndarray | None"
    sections: "DataFrame"
    scores: dict[str, Any]

    def __repr__(self) -> str:
        return f"TransferResult({self.domains.size:,} spots, {(self.domains >= 0).sum():,} with a domain)"


class _Columns(NamedTuple):
    """Names in the file that domains are carried to; None for those of the fit."""

    spatial_key: str | None
    sample_key: str | None
    label_key: str | None


class _Choices(NamedTuple):
    """What the caller chose."""

    keys: Keys  # of the fit
    new_keys: Keys
    borders: str
    max_distance: float | None
    scale: float
    columns: _Columns


class _Fit(NamedTuple):
    """The fit whose domains are carried."""

    name: str  # of its file; empty in memory
    stored: "StoredFit"
    coordinates: "np.ndarray"  # (n, 2|3)
    samples: "Categorical | None"
    params: Mapping[str, Any]


def transfer(
    fitted: "AnnData",
    adata: "AnnData",
    *,
    key_added: str = "pdvi",
    new_key: str | None = None,
    borders: str = "spots",
    max_distance: float | None = None,
    scale: float = 1.0,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    label_key: str | None = None,
    progress: Progress | bool | None = None,
) -> TransferResult:
    """Carry the domains of a fitted section to other spots of the same section, by place (docs/transfer.md).

    Bins of another size or segmented cells, in the same coordinates, take the domains of the spots where they lie.
    Their expression is not used.

    Parameters
    ----------
    fitted
        With the result of a fit.
    adata
        n spots with coordinates in the same unit; the domains are written into it.
    key_added
        Prefix of the keys that the fit wrote.
    new_key
        Prefix of the keys that are written; by default that of the fit.
    borders
        "spots": each spot has the domain of the nearest fitted spot, which for a bin of the fit is the bin that it lies
        in. "smooth": it has the domain with the largest interpolated posterior, so that borders run between spots.
    max_distance
        Spots farther from every fitted spot have no domain, in the unit of the fit's coordinates; by default the median
        distance of a fitted spot to its fourth neighbour, which is the spacing of a lattice.
    scale
        What the coordinates of ``adata`` are multiplied by to be in the unit of the fit.
    spatial_key, sample_key
        Coordinates of ``adata``, and its column of ``obs`` with the section of each spot; by default under the names
        that the fit was given. Sections are matched by name.
    label_key
        Column of ``obs`` with known labels to score by; by default ``annotation``, if there is one.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    TransferResult
        Domains (n,), posteriors (n, K) and a table of the sections.

    Raises
    ------
    InputError
        Where there is no fit, sections or coordinates do not match, or an option cannot be used; ``adata`` is then
        unchanged.

    Examples
    --------
    >>> cells = other.copy()
    >>> cells.obsm["spatial"] += 0.1
    >>> result = spv.transfer(adata, cells)
    >>> cells.obs["pdvi_domain"].cat.categories.tolist()
    ['0', '1', '2']
    """
    from spatialpdvi.io.results.writing import apply_elements

    progress = progress_of(progress)
    chosen = _choices(
        _Columns(spatial_key, sample_key, label_key),
        key_added=key_added,
        new_key=new_key,
        borders=borders,
        max_distance=max_distance,
        scale=scale,
    )
    target = AnnDataSource(adata)
    target.check_takes_results()
    if fitted is adata and chosen.keys == chosen.new_keys:
        raise InputError("two AnnData", "the same twice", f"Give {option('new_key')} to write beside the fit.")
    check_free(target, chosen.new_keys)
    with progress.stage("read"):
        fit = _read_fit(AnnDataSource(fitted), chosen, name="")
    result, elements = _carried(fit, target, chosen, progress)
    apply_elements(adata, elements, remove=chosen.new_keys.pairs_in(target))
    return result


def transfer_file(
    path: str | Path,
    to: str | Path,
    *,
    output: str | Path | None = None,
    key_added: str = "pdvi",
    new_key: str | None = None,
    borders: str = "spots",
    max_distance: float | None = None,
    scale: float = 1.0,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    label_key: str | None = None,
    progress: Progress | bool | None = None,
) -> TransferResult:
    """Carry the domains of a fitted file to the spots of another one, and write them into it, as `transfer` does.

    Counts are not read.

    Parameters
    ----------
    path
        A fitted h5ad file or zarr store.
    to
        An h5ad file or zarr store of other spots of the same section.
    output
        Where a copy of ``to`` with the domains is written; by default ``to`` itself is updated, all or nothing.
    key_added, new_key, borders, max_distance, scale, spatial_key, sample_key, label_key, progress
        As for `transfer`.

    Returns
    -------
    The result that `transfer` returns.

    Raises
    ------
    InputError
        Where a file cannot be used, there is no fit, or sections or coordinates do not match; nothing is written then.

    Examples
    --------
    >>> result = spv.transfer_file("fitted.h5ad", "other.h5ad", output="carried.h5ad")
    >>> "pdvi_domain" in anndata.read_h5ad("carried.h5ad").obs
    True
    """
    from spatialpdvi.api.fitting import checked_file
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.writing import write_elements
    from spatialpdvi.io.storage.atomic import check_distinct
    from spatialpdvi.io.storage.locks import claimed

    progress = progress_of(progress)
    chosen = _choices(
        _Columns(spatial_key, sample_key, label_key),
        key_added=key_added,
        new_key=new_key,
        borders=borders,
        max_distance=max_distance,
        scale=scale,
    )
    source_path, target_path = locate(path), locate(to)
    written = target_path if output is None else locate(output)
    if chosen.keys == chosen.new_keys or output is not None:
        check_distinct(written, "to" if output is None else "output", (source_path,))
    with claimed(written):
        with progress.stage("read") as stage:
            with H5adSource(source_path) as source:
                fit = _read_fit(source, chosen, name=Path(source_path.name).name)
            stage.note(f"{fit.stored.codes.size:,} fitted spots, {len(fit.stored.names)} domains")
        with checked_file(target_path, written, chosen.new_keys) as target:
            result, elements = _carried(fit, target, chosen, progress)
            stale = chosen.new_keys.pairs_in(target)
        with progress.stage("write"):
            write_elements(target_path, written, elements, remove=stale)
    return result


def _choices(
    columns: _Columns,
    *,
    key_added: str,
    new_key: str | None,
    borders: str,
    max_distance: float | None,
    scale: float,
) -> _Choices:
    """Return the checked options."""
    from spatialpdvi.prediction.transfer import BORDERS

    if borders not in BORDERS:
        raise InputError(f"one of {', '.join(BORDERS)}", repr(borders), "Choose one of them.", option="borders")
    for name, value in (("max_distance", max_distance), ("scale", scale)):
        if value is not None and not (math.isfinite(read_kind(name, value, float)) and value > 0):
            wanted = "a number above 0" if math.isfinite(value) else "a finite number above 0"
            raise InputError(wanted, f"{value:g}", "Give it in the unit of the fit.", option=name)
    keys = Keys(key_added)
    try:
        new_keys = keys if new_key is None else Keys(new_key)
    except InputError as error:
        raise error.renamed({"key_added": "new_key"}) from error
    return _Choices(keys, new_keys, borders, max_distance, float(scale), columns)


def _read_fit(everything: Source, chosen: _Choices, *, name: str) -> _Fit:
    """Read the domains of a fit, and where its spots are."""
    from spatialpdvi.io.results.fitted import lost_sample_key, samples_of_fit, spatial_key_of_fit
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.io.results.stored import read_stored, stored_params
    from spatialpdvi.io.section.coordinates import read_coordinates

    source = select_fitted(everything, chosen.keys)
    stored = read_stored(source, chosen.keys)
    params = stored_params(stored.summary)
    lost = lost_sample_key(source, stored.summary)
    if lost is not None:
        raise InputError(
            f"obs[{lost!r}], by which the fit told sections apart, in {source.name}",
            f"columns: {list_keys(source.obs_keys())}",
            "Put it back: spots of different sections may lie at the same place.",
        )
    samples = samples_of_fit(source, stored.summary, None)
    try:
        coordinates = read_coordinates(source, spatial_key_of_fit(stored.summary, None), samples=samples)
    except InputError as error:
        raise error.but(advice="The fit has had them there: put them back, or run `spatialpdvi fit` again.") from error
    return _Fit(name, stored, coordinates, samples, params)


def _carried(
    fit: _Fit, target: Source, chosen: _Choices, progress: Progress
) -> tuple[TransferResult, dict[tuple[str, str], Any]]:
    """Return the result, and what is written into the file of the other spots."""
    import numpy as np
    import pandas as pd

    from spatialpdvi.io.results.fitted import spatial_key_of_fit
    from spatialpdvi.io.section.section import read_section
    from spatialpdvi.metrics.section import scores_by_section
    from spatialpdvi.prediction.transfer import FittedSpots, carry

    with progress.stage("read") as stage:
        sample_key = _sample_key(fit, target, chosen.columns.sample_key)
        spatial_key = spatial_key_of_fit(fit.stored.summary, chosen.columns.spatial_key)
        label_key = chosen.columns.label_key
        section = read_section(
            target, spatial_key=spatial_key, label_key=label_key, sample=sample_key, expression=False
        )
        pairs = _matched(fit, section, target)
        stage.note(f"{section.coordinates.shape[0]:,} spots to give a domain")
    places, stored = section.coordinates * chosen.scale, fit.stored
    parts: list[Carried] = []
    with progress.stage("transfer") as stage:
        for name, of_fit, spots in pairs:
            near = FittedSpots(
                fit.coordinates[of_fit],
                stored.codes[of_fit],
                stored.posterior[of_fit],
                None if stored.calibrated is None else stored.calibrated[of_fit],
            )
            parts.append(carry(near, places[spots], borders=chosen.borders, limit=chosen.max_distance, section=name))
        domains = np.full(places.shape[0], -1, dtype=np.int64)
        for (_, _, spots), part in zip(pairs, parts, strict=True):
            domains[spots] = part.codes
        kept = domains >= 0
        stage.note(f"{kept.sum():,} spots have a domain")
    posterior = _joined([part.posterior for part in parts], pairs, places.shape[0])
    calibrated = None
    if stored.calibrated is not None:
        calibrated = _joined([part.calibrated for part in parts], pairs, places.shape[0])
    columns = {
        "section": np.array([name or "" for name, _, _ in pairs], dtype=object),
        "spots": np.array([spots.size for _, _, spots in pairs]),
        "assigned": np.array([int((part.codes >= 0).sum()) for part in parts]),
        "max_distance": np.array([part.limit for part in parts]),
    }
    with progress.stage("scores"):
        chosen_spots = section._replace(
            coordinates=section.coordinates[kept],
            labels=None if section.labels is None else section.labels[kept],
            samples=None if section.samples is None else section.samples[kept].remove_unused_categories(),
        )
        scores = scores_by_section(chosen_spots, domains[kept])
    result = TransferResult(domains, stored.names, posterior, calibrated, pd.DataFrame(columns), scores)
    params = {
        "spatial_key": spatial_key,
        "sample_key": sample_key,
        "label_key": section.label_key,
        "max_distance": chosen.max_distance,
        "n_spots": int(kept.sum()),
        "n_excluded": int((~kept).sum()),
    }
    return result, _elements(result, fit, chosen, params, columns)


def _joined(parts: "list[Any]", pairs: "list[tuple[str | None, Any, Any]]", n: int) -> "np.ndarray":
    """Return the rows of all sections in the order of the file; those of one section are not copied."""
    import numpy as np

    if len(parts) == 1:
        return np.asarray(parts[0])
    rows = np.empty((n, parts[0].shape[1]), dtype=np.float32)
    for (_, _, spots), part in zip(pairs, parts, strict=True):
        rows[spots] = part
    return rows


def _sample_key(fit: _Fit, target: Source, given: str | None) -> str | None:
    """Return the column with the sections of the other spots; None where the fit has one section."""
    if fit.samples is None:
        if given is None:
            return None
        raise InputError(
            f"a fit of several sections with {option('sample_key')}",
            "a fit of one",
            "Leave it out, or take the spots of the section that was fitted.",
        )
    key = given or str(fit.params["sample_key"])
    if key not in target.obs_keys():
        raise InputError(
            f"a column {key!r} with the section of each spot in obs of {target.name}, as the fit has several sections",
            f"columns: {list_keys(target.obs_keys())}",
            f"Name one of these with {option('sample_key')}, or add it.",
        )
    return key


def _matched(
    fit: _Fit, section: "Section", target: Source
) -> "list[tuple[str | None, np.ndarray | slice, np.ndarray]]":
    """Return the name of each section, its spots in the fit, and its other spots."""
    import numpy as np

    axes, others = fit.coordinates.shape[1], section.coordinates.shape[1]
    if axes != others:
        raise InputError(
            f"coordinates of {axes} axes in {target.name}, as in the fit",
            f"{others} axes",
            f"Name coordinates of {axes} columns with {option('spatial_key')}.",
        )
    if fit.samples is None or section.samples is None:
        return [(None, slice(None), np.arange(section.coordinates.shape[0]))]
    known = {str(name): code for code, name in enumerate(fit.samples.categories)}
    names = [str(name) for name in section.samples.categories]
    strange = [name for name in names if name not in known]
    if strange:
        raise InputError(
            f"sections of the fit in {target.name}: {list_keys(known)}",
            f"{', '.join(map(repr, strange[:4]))}{' and others' if len(strange) > 4 else ''}",
            f"Rename these sections, leave them out, or name another column with {option('sample_key')}.",
        )
    codes = np.asarray(fit.samples.codes)
    return [
        (name, np.flatnonzero(codes == known[name]), spots)
        for name, spots in zip(names, section.spots_of_samples(), strict=True)
    ]


def _elements(
    result: TransferResult, fit: _Fit, chosen: _Choices, params: dict[str, Any], columns: dict[str, Any]
) -> dict[tuple[str, str], Any]:
    """Return the value of each (group, key) that is written (docs/outputs.md)."""
    import numpy as np
    import pandas as pd

    from spatialpdvi.io.results.stored import entropies
    from spatialpdvi.version import library_versions

    keys, summary = chosen.new_keys, fit.stored.summary
    source = fit.name or "an AnnData in memory"
    before = summary.get("transfer")  # where the domains had been carried over before
    fit_source = str(before.get("fit", source)) if isinstance(before, Mapping) else source
    params = {
        "transferred_from": source,
        "transferred_key": chosen.keys.prefix,
        **{name: fit.params[name] for name in _OF_FIT if name in fit.params},
        "borders": chosen.borders,
        "scale": chosen.scale,
        "key_added": keys.prefix,
        **params,
    }
    stated = {
        "source": source,
        "key": chosen.keys.prefix,
        "fit": fit_source,
        "certificate": f"The certificate and the trace are those of the fit of {fit_source}. The domains were carried "
        "over by place, which is no fit and has no certificate of its own.",
        "sections": columns,
    }
    own = np.arange(result.domains.size), np.maximum(result.domains, 0)  # a spot without a domain has NaN in its row
    elements: dict[tuple[str, str], Any] = {
        ("obs", keys.domain): pd.Categorical.from_codes(result.domains, list(result.names)),
        ("obs", keys.confidence): result.posterior[own],
        ("obs", keys.entropy): entropies(result.posterior),
        ("obsm", keys.posterior): result.posterior,
        ("uns", keys.uns): {
            "params": {name: value for name, value in params.items() if value is not None}
            | {"versions": library_versions()},
            **{name: summary[name] for name in _OF_DOMAINS if name in summary},
            "scores": result.scores,
            "transfer": stated,
        },
    }
    if result.calibrated is not None:
        elements["obs", keys.calibrated_confidence] = result.calibrated[own]
        elements["obsm", keys.calibrated] = result.calibrated
    if fit.stored.colours is not None:
        elements["uns", keys.colours] = np.array(fit.stored.colours, dtype=object)
    return elements
