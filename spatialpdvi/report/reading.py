"""Fitted sections read for a page: what the fit has written, and the marker genes."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from pandas import DataFrame

from spatialpdvi.errors import InputError, InputWarning, as_flag, option
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import RenamedError, read_agreement, read_composition, read_states
from spatialpdvi.io.results.described import read_description, read_intervals
from spatialpdvi.io.results.expression import Expression
from spatialpdvi.io.results.fitted import read_fitted
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.io.results.slim import read_markers
from spatialpdvi.io.results.summary import check_fitted
from spatialpdvi.marker_genes import expression_tenths, markers_of
from spatialpdvi.metrics.stored import scores_of_spots
from spatialpdvi.options.validation import read_kind, refuse_without_genes
from spatialpdvi.report.content import Gene, MappedGene, Material, genes_to_map
from spatialpdvi.report.layers import MOST_SPOTS
from spatialpdvi.runtime.memory import memory_limit, parse_size

__all__ = ["ReportOptions", "read_material", "with_markers"]

T = TypeVar("T")

_STORED = (
    "This file holds no counts, so these are the genes that the fit stored in it, at most {most} of each domain, and "
    "the maps show no genes. To have both from the counts, name the section that was fitted with {counts}."
)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What the caller chose for all files, which is checked before anything is read.

    Raises
    ------
    InputError
        Where an option is out of its range.
    """

    keys: Keys
    label_key: str | None
    spatial_key: str | None
    sample_key: str | None
    n_genes: int
    layer: str | None
    gene_key: str | None
    memory: str | None

    def __post_init__(self) -> None:
        if read_kind("n_genes", self.n_genes, int) < 0:
            raise InputError("at least 0", str(self.n_genes), option="n_genes")
        if not self.n_genes:
            refuse_without_genes("marker genes", layer=self.layer, gene_key=self.gene_key)
        if self.memory is not None:
            parse_size(self.memory)


def read_material(
    everything: Source, options: ReportOptions, *, path: Path, name: str, counts: Path | None
) -> Material:
    """Read what a fit has written; marker genes are added by `with_markers`.

    Parameters
    ----------
    everything
        The fitted file, with the spots that the fit left out.
    options
        What the caller chose.
    path
        Where the file is.
    name
        Of the section.
    counts
        The file that marker genes are sought in, where it is another one.

    Raises
    ------
    InputError
        Where there is no fit, or its elements are damaged.
    """
    keys = options.keys
    check_fitted(everything, keys)
    source = select_fitted(everything, keys)
    description = _unless_renamed(read_description, source, keys)
    intervals = _unless_renamed(read_intervals, source, keys) if keys.intervals in source.uns_keys() else None
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
    return Material(
        path=path,
        name=name,
        fitted=fitted,
        selected_scores=selected,
        spot_names=names,
        agreement=agreement,
        markers_note="" if options.n_genes else "Marker genes were not requested.",
        counts=counts,
        composition=composition,
        description=description,
        intervals=intervals,
        states=states,
    )


def with_markers(material: Material, source: Source, options: ReportOptions) -> Material:
    """Add the marker genes of each domain, those that maps show, and a note on what is missing.

    Features that were ready need no counts; for other fits missing counts are also a warning. A file that was written
    without counts holds its marker genes.

    Parameters
    ----------
    material
        From `read_material`.
    source
        The fitted file, with its counts where there are any.
    options
        What the caller chose.

    Raises
    ------
    InputError
        Where counts or names of genes that the caller has named cannot be used.
    """
    memory = memory_limit(options.memory)
    try:
        found, table = markers_of(
            source, options.keys, n=options.n_genes, layer=options.layer, gene_key=options.gene_key, memory=memory
        )
    except InputError as error:
        if options.layer is not None or options.gene_key is not None:
            raise
        stored = _unless_renamed(read_markers, source, options.keys)
        if stored is not None:
            genes = _by_domain(stored, options.n_genes)
            most = max(map(len, genes.values()), default=0)
            return replace(material, markers=genes, markers_note=_STORED.format(most=most, counts=as_flag("counts")))
        if "rep" not in material.params:
            text = f"The report has no marker genes. {error.sentence(option)}"
            warnings.warn(InputWarning(text), stacklevel=4)
        # the page also gives the commands that repeat the fit
        return replace(material, markers_note=f"There are no marker genes. {error.sentence(as_flag)}")
    genes = _by_domain(table, options.n_genes)
    return replace(material, markers=genes, mapped=_mapped(found, genes))


def _unless_renamed(read: Callable[[Source, Keys], T], source: Source, keys: Keys) -> T | None:
    """What was stored of the domains; None, with a warning, where they were renamed since."""
    try:
        return read(source, keys)
    except RenamedError as error:
        warnings.warn(InputWarning(f"The report leaves out what is stored. {error.sentence(option)}"), stacklevel=5)
        return None


def _by_domain(table: DataFrame, n: int) -> dict[str, list[Gene]]:
    """Return the first n genes of each domain by its name."""
    genes: dict[str, list[Gene]] = {}
    for row in table.groupby("domain", sort=False).head(n).itertuples():
        genes.setdefault(row.domain, []).append(Gene(row.gene, row.log_fold_change, row.share_in, row.share_out))
    return genes


def _mapped(found: Expression, markers: Mapping[str, Sequence[Gene]]) -> list[MappedGene]:
    """Return the expression of the genes that maps show."""
    times = Counter(found.genes)
    column = {gene: i for i, gene in enumerate(found.genes) if times[gene] == 1}
    sizes = {str(name): int(size) for name, size in found.groups.value_counts().items()}
    chosen = genes_to_map(markers, sizes, known=column.keys())
    tenths = expression_tenths(found.counts, np.array([column[gene] for gene in chosen], dtype=np.int64))
    return [MappedGene(*pair, own) for pair, own in zip(chosen.items(), tenths.T, strict=True)]
