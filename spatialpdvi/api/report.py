"""Make an HTML report on fitted files."""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spatialpdvi.errors import InputError, InputWarning, as_flag, option
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import Location, check_once, locate, locate_all
from spatialpdvi.options.validation import read_kind, refuse_without_genes
from spatialpdvi.runtime.memory import memory_limit, parse_size
from spatialpdvi.runtime.progress import Progress, progress_of

if TYPE_CHECKING:
    from pandas import DataFrame

    from spatialpdvi.io.results.expression import Expression
    from spatialpdvi.report import Gene, MappedGene, Material

__all__ = ["report_files"]

_STORED = (
    "This file holds no counts, so these are the genes that the fit stored in it, at most {most} of each domain, and "
    "the maps show no genes. To have both from the counts, name the section that was fitted with {counts}."
)


@dataclass(frozen=True, kw_only=True)
class _ReportOptions:
    """What the caller chose for all files."""

    keys: Keys
    label_key: str | None
    spatial_key: str | None
    sample_key: str | None
    n_genes: int
    layer: str | None
    gene_key: str | None
    memory: str | None


def report_files(
    paths: Sequence[str | Path],
    *,
    key_added: str = "pdvi",
    label_key: str | None = None,
    spatial_key: str | None = None,
    sample_key: str | None = None,
    n_genes: int = 10,
    layer: str | None = None,
    gene_key: str | None = None,
    memory: str | None = None,
    counts: Sequence[str | Path] = (),
    progress: Progress | bool | None = None,
) -> str:
    """Make a self-contained HTML page on fitted files. The files are not changed.

    Parameters
    ----------
    paths
        At least one fitted h5ad file or zarr store, each of them once.
    key_added
        Prefix of the keys that the fits wrote.
    label_key
        Column of ``obs`` with known labels to show; by default the column used by the fit, or ``annotation``.
    spatial_key
        Key in ``obsm`` of the coordinates; by default the key used by the fit.
    sample_key
        Column of ``obs`` that names the section of each spot; by default the column used by the fit.
    n_genes
        Largest number of marker genes per domain (`markers_file`); 0 for none. If a file has no counts, the page says
        so.
    layer
        Where the counts are; by default where the fit found them.
    gene_key
        Column of ``var`` with the gene names to show; by default the index of ``var``.
    memory
        As for `markers_file`.
    counts
        For results that were written with ``slim``: a file with the counts of the same spots for each of ``paths``.
        Without it the page has the marker genes that such a file holds, and no maps of genes.
    progress
        True shows the stages as lines on stderr; by default nothing is shown.

    Returns
    -------
    The page as text, which must be written as UTF-8.

    Raises
    ------
    InputError
        Where no file is given, one is given twice, or one has no fit.

    Examples
    --------
    >>> page = spv.report_files(["fitted.h5ad"], n_genes=3)
    >>> Path("report.html").write_text(page, encoding="utf-8") > 10_000
    True
    """
    from spatialpdvi.io.results.slim import check_number
    from spatialpdvi.report import render

    files = _distinct(paths)
    others = [None if other is None else locate(other) for other in check_number(files, counts)]
    options = _ReportOptions(
        keys=Keys(key_added),
        label_key=label_key,
        spatial_key=spatial_key,
        sample_key=sample_key,
        n_genes=n_genes,
        layer=layer,
        gene_key=gene_key,
        memory=memory,
    )
    if read_kind("n_genes", n_genes, int) < 0:
        raise InputError("at least 0", str(n_genes), option="n_genes")
    if not n_genes:
        refuse_without_genes("marker genes", layer=layer, gene_key=gene_key)
    if memory is not None:
        parse_size(memory)  # before any work
    progress = progress_of(progress)

    def materials() -> Iterator["Material"]:
        for file, other, name in zip(files, others, names, strict=True):
            material = _material(file, other, name, options, progress)
            with progress.stage("draw") as stage:
                stage.note(material.name)
                yield material  # it is drawn before the next one is read

    names = [Path(file.name).stem for file in files]
    # a joint fit names its sections only, so that files of the same name cannot be told apart
    known = {
        name: file.path if other is None else other.path
        for name, file, other in zip(names, files, others, strict=True)
        if names.count(name) == 1
    }
    return render(materials(), n_sections=len(files), paths=known)


def _distinct(paths: Sequence[str | Path]) -> list[Location]:
    if not paths:
        raise InputError("at least one fitted file", "none")
    # a path like "." has no name that the section could be called by
    files = [file if file.path.name not in {"", ".."} else locate(file.real) for file in locate_all(paths)]
    check_once(files)
    return files


def _material(
    file: Location, counts: Location | None, name: str, options: _ReportOptions, progress: Progress
) -> "Material":
    from spatialpdvi.io.formats.h5ad import H5adSource
    from spatialpdvi.io.results.arrays import read_agreement, read_composition, read_states
    from spatialpdvi.io.results.described import read_description, read_intervals
    from spatialpdvi.io.results.fitted import read_fitted
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.io.results.summary import check_fitted, stored_params
    from spatialpdvi.metrics.stored import scores_of_spots
    from spatialpdvi.report import MOST_SPOTS, Material

    keys = options.keys
    with progress.stage("read"), H5adSource(file) as everything:
        check_fitted(everything, keys)
        source = select_fitted(everything, keys)
        description = read_description(source, keys)
        intervals = read_intervals(source, keys) if keys.intervals in source.uns_keys() else None
        fitted = read_fitted(
            source,
            keys,
            label_key=options.label_key,
            spatial_key=options.spatial_key,
            sample_key=options.sample_key,
        )
        selected = scores_of_spots(fitted)
        agreement = read_agreement(source, keys)
        # of more spots than that the page shows no names
        names = source.obs_names() if source.n_obs <= MOST_SPOTS else ()
        composition = states = None
        if "composition" in fitted.summary:
            composition = read_composition(source, keys, fitted.summary, fitted.domains)
            if keys.state in source.obsm_keys():
                states = read_states(source, keys).astype(np.float32, copy=False)  # ample for hundredths
    genes, mapped, note = _markers(file, counts, options, progress, is_ready="rep" in stored_params(fitted.summary))
    return Material(
        path=file.path,
        name=name,
        fitted=fitted,
        selected_scores=selected,
        spot_names=names,
        agreement=agreement,
        markers=genes,
        markers_note=note,
        counts=None if counts is None else counts.path,
        composition=composition,
        description=description,
        intervals=intervals,
        states=states,
        mapped=mapped,
    )


def _markers(
    file: Location, counts: Location | None, options: _ReportOptions, progress: Progress, *, is_ready: bool
) -> tuple[dict[str, list["Gene"]] | None, list["MappedGene"], str]:
    """Return the marker genes of each domain by its name, those that maps show, and a note on what is missing.

    Features that were ready need no counts; for other fits missing counts are also a warning. A file that was written
    without counts holds its marker genes.
    """
    from spatialpdvi.io.results.slim import opened_with_counts, read_markers
    from spatialpdvi.marker_genes import markers_of

    if not options.n_genes:
        return None, [], "Marker genes were not requested."
    memory = memory_limit(options.memory)
    with progress.stage("markers"), opened_with_counts(file, counts) as source:
        try:
            found, table = markers_of(
                source, options.keys, n=options.n_genes, layer=options.layer, gene_key=options.gene_key, memory=memory
            )
        except InputError as error:
            if options.layer is not None or options.gene_key is not None:
                raise
            stored = read_markers(source, options.keys)
            if stored is not None:
                genes = _by_domain(stored, options.n_genes)
                most = max(map(len, genes.values()), default=0)
                return genes, [], _STORED.format(most=most, counts=as_flag("counts"))
            if not is_ready:
                text = f"The report has no marker genes. {error.sentence(option)}"
                warnings.warn(InputWarning(text), stacklevel=4)
            # the page also gives the commands that repeat the fit
            return None, [], f"There are no marker genes. {error.sentence(as_flag)}"
        genes = _by_domain(table, options.n_genes)
        return genes, _mapped(found, genes), ""


def _by_domain(table: "DataFrame", n: int) -> dict[str, list["Gene"]]:
    """Return the first n genes of each domain by its name."""
    from spatialpdvi.report import Gene

    genes: dict[str, list[Gene]] = {}
    for row in table.groupby("domain", sort=False).head(n).itertuples():
        genes.setdefault(row.domain, []).append(Gene(row.gene, row.log_fold_change, row.share_in, row.share_out))
    return genes


def _mapped(found: "Expression", markers: Mapping[str, Sequence["Gene"]]) -> list["MappedGene"]:
    """Return the expression of the genes that maps show."""
    from spatialpdvi.marker_genes import expression_tenths
    from spatialpdvi.report import MappedGene, genes_to_map

    times = Counter(found.genes)
    column = {gene: i for i, gene in enumerate(found.genes) if times[gene] == 1}
    sizes = {str(name): int(size) for name, size in found.groups.value_counts().items()}
    chosen = genes_to_map(markers, sizes, known=column.keys())
    tenths = expression_tenths(found.counts, np.array([column[gene] for gene in chosen], dtype=np.int64))
    return [MappedGene(*pair, own) for pair, own in zip(chosen.items(), tenths.T, strict=True)]
