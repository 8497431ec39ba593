"""Python's way to a report: fitted files in, one page of HTML out."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spatialpdvi.api.markers import markers_file
from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import section_name
from spatialpdvi.runtime.progress import Progress

if TYPE_CHECKING:
    from spatialpdvi.io.formats.sources import Source
    from spatialpdvi.report import Gene, Material

__all__ = ["report_files"]


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What the caller asked for, the same of every file."""

    keys: Keys
    label_key: str | None
    spatial_key: str | None
    n_genes: int
    gene_key: str | None
    memory: str | None


def report_files(
    paths: Sequence[str | Path],
    *,
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str | None = None,
    n_genes: int = 10,
    gene_key: str | None = None,
    memory: str | None = None,
    progress: Progress | None = None,
) -> str:
    """One page of HTML on fitted h5ad files or zarr stores, complete in itself; the files are only read.

    Parameters
    ----------
    paths
        At least one fitted file, none twice.
    key_added
        Prefix of the keys that the fits wrote.
    label_key, spatial_key
        Known labels to show, and coordinates; by default those of the fit.
    n_genes
        Marker genes of each domain at the most (`markers_file`); 0 for none. Where a file has no counts, the page says
        so.
    gene_key
        Column of ``var`` with the names of genes to show.
    memory
        As for `markers_file`.
    progress
        Where stages are shown; nothing is shown by default.

    Returns
    -------
    The page, to be written as UTF-8.

    Raises
    ------
    InputError
        Where there is no file, one is given twice, or one holds no fit.

    Examples
    --------
    >>> page = spv.report_files(["fitted.h5ad"], n_genes=3)
    >>> Path("report.html").write_text(page, encoding="utf-8") > 10_000
    True
    """
    from spatialpdvi.report import render

    files = _distinct(paths)
    wanted = _Wanted(
        keys=Keys(key_added),
        label_key=label_key,
        spatial_key=spatial_key,
        n_genes=n_genes,
        gene_key=gene_key,
        memory=memory,
    )
    if n_genes < 0:
        msg = f"Expected at least 0 genes per domain, found {n_genes}. Give --n-genes 10, for example."
        raise InputError(msg)
    progress = progress or Progress()

    def materials() -> Iterator["Material"]:
        for path in files:
            material = _material(path, wanted, progress)
            with progress.stage("draw") as stage:
                stage.note(material.name)
                yield material  # and is drawn meanwhile

    names = [_name(path) for path in files]
    # of two files of one name nobody knows which a joint fit was of
    known = {name: path for name, path in zip(names, files, strict=True) if names.count(name) == 1}
    return render(materials(), paths=known)


def _distinct(paths: Sequence[str | Path]) -> list[Path]:
    if not paths:
        msg = "Expected at least one fitted file, found none. Give one."
        raise InputError(msg)
    # a path like "." has no name that others could be made of
    files = [Path(path) if Path(path).name not in {"", ".."} else Path(path).resolve() for path in paths]
    places = [path.resolve() for path in files]
    twice = next((path for path, place in zip(files, places, strict=True) if places.count(place) > 1), None)
    if twice is not None:
        msg = f"Expected every file once, found {str(twice)!r} twice. Leave one out."
        raise InputError(msg)
    return files


def _name(path: Path) -> str:
    return Path(section_name(path)).stem


def _material(path: Path, wanted: _Wanted, progress: Progress) -> "Material":
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.fitted import check_fitted, read_agreement, read_fitted
    from spatialpdvi.report import Material

    keys = wanted.keys
    with progress.stage("read"), H5adSource(path) as source:
        check_fitted(source, keys)
        params = _params(source, keys)
        label_key = wanted.label_key or _column(source, params, "label_key")
        spatial_key = wanted.spatial_key or str(params.get("spatial_key", "spatial"))
        fitted = read_fitted(source, keys, label_key=label_key, spatial_key=spatial_key)
        agreement = read_agreement(source, keys)
    genes, reason = _markers(path, wanted, progress, is_ready="rep" in params)
    return Material(
        path=path,
        name=_name(path),
        fitted=fitted,
        agreement=agreement,
        label_key=label_key,
        markers=genes,
        no_markers=reason,
    )


def _params(source: "Source", keys: Keys) -> Mapping[str, Any]:
    summary = source.uns(keys.uns)
    params = summary.get("params") if isinstance(summary, Mapping) else None
    return params if isinstance(params, Mapping) else {}


def _column(source: "Source", params: Mapping[str, Any], option: str) -> str | None:
    """The column of obs that an option of the fit named, where it is still there."""
    key = params.get(option)
    return str(key) if key is not None and str(key) in source.obs_keys() else None


def _markers(
    path: Path, wanted: _Wanted, progress: Progress, *, is_ready: bool
) -> tuple[dict[str, list["Gene"]] | None, str]:
    """Genes of each domain by its name, or why there are none; of a fit that needed counts the user is told, too."""
    from spatialpdvi.report import Gene

    if not wanted.n_genes:
        return None, "Marker genes were not asked for."
    options: dict[str, Any] = {"key_added": wanted.keys.prefix, "gene_key": wanted.gene_key, "memory": wanted.memory}
    try:
        table = markers_file(path, n=wanted.n_genes, progress=progress, **options)
    except InputError as error:
        if wanted.gene_key is not None:
            raise
        if not is_ready:
            warnings.warn(f"No marker genes in the report. {error}", InputWarning, stacklevel=4)
        return None, f"There are no marker genes. {error}"
    genes: dict[str, list[Gene]] = {}
    for row in table.itertuples():
        genes.setdefault(row.domain, []).append(Gene(row.gene, row.log_fold_change, row.share_in, row.share_out))
    return genes, ""
