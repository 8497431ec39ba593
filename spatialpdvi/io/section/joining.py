"""Join sections of several files: genes are matched by name, spots follow one section after the other."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.io.section.counts import warn_of_unmeasured
from spatialpdvi.io.section.section import Section
from spatialpdvi.runtime.rows import CountRows, JoinedRows

__all__ = ["join_sections"]

_HARDLY = 0.2  # share of the genes of the section with the fewest: if fewer are common, something is wrong
_MOSTLY = 0.8  # share of the genes of the section with the most: if fewer are common, a warning says so
_NAMED = 3  # sections that lack genes, in that warning


def join_sections(sections: Sequence[Section], names: Sequence[str]) -> Section:
    """Join sections to one, whose ``samples`` say which section each spot is from.

    Counts are those of the genes that all sections have, in the order of the first section. Features (with ``rep``)
    must have equally many columns. The graphs become the blocks of one graph. Labels are matched as texts.

    Parameters
    ----------
    sections
        At least one; read with the same options.
    names
        Names of the sections, all different.

    Raises
    ------
    InputError
        Where there is no section, few genes are common, features or coordinates have different numbers of columns, or
        there are labels to start from, whose codes mean nothing across files.
    """
    if not sections:
        raise InputError("at least one section to fit", "none", "Give the paths of their files.")
    _check_alike([s.coordinates.shape[1] for s in sections], names, "coordinates", "dimensions")
    if any(s.init_labels is not None for s in sections):
        advice = f"Join the files into one AnnData, and name the column of the sections with {option('sample_key')}."
        raise InputError(f"one file with {option('init')}", "several", advice)
    sizes = [s.coordinates.shape[0] for s in sections]
    codes = np.repeat(np.arange(len(sections)), sizes)
    counts: CountRows | None = None
    genes = pd.Index([], dtype=object)
    features = None
    if sections[0].features is None:
        counts, genes = _join_counts(sections, names)
    else:
        features = _join_features(sections, names)
    graphs = [s.graph for s in sections if s.graph is not None]
    samples = pd.Categorical.from_codes(codes, pd.Index(list(names), dtype=object))
    if isinstance(counts, sp.csr_matrix):
        warn_of_unmeasured(counts, samples)
    return Section(
        counts=counts,
        counts_source=", ".join(dict.fromkeys(s.counts_source for s in sections)),
        gene_names=genes,
        spot_names=pd.Index(np.concatenate([s.spot_names.to_numpy(dtype=object) for s in sections])),
        coordinates=np.concatenate([s.coordinates for s in sections]),
        labels=_join_labels(sections),
        label_key=next((s.label_key for s in sections if s.label_key is not None), None),
        features=features,
        rep=sections[0].rep,
        init_labels=None,
        graph=sp.csr_matrix(sp.block_diag(graphs)) if graphs else None,
        samples=samples,
        kept=_join_kept(sections),
        told_of_background=all(s.told_of_background for s in sections),
    )


def _join_counts(sections: Sequence[Section], names: Sequence[str]) -> tuple[CountRows, pd.Index]:
    for section, name in zip(sections, names, strict=True):
        if section.gene_names.has_duplicates:
            twice = section.gene_names[section.gene_names.duplicated()][0]
            raise InputError(
                f"the genes of {name!r} to have unique names, by which they are matched",
                f"{twice!r} twice",
                "Rename it.",
            )
    common = sections[0].gene_names
    for section in sections[1:]:
        common = common[common.isin(section.gene_names)]
    fewest = min(section.gene_names.size for section in sections)
    found = f"{common.size:,} of {fewest:,}"
    if common.size < max(2, _HARDLY * fewest):
        first, second = sections[0].gene_names[0], sections[-1].gene_names[0]
        raise InputError(
            "the sections to have genes in common",
            f"{found} (the first gene of {names[0]!r} is {first!r}, that of {names[-1]!r} is {second!r})",
            "Give all files the same kind of gene names.",
        )
    if common.size < _MOSTLY * max(section.gene_names.size for section in sections):
        _warn_of_lost_genes([section.gene_names for section in sections], names, common)
    parts = []
    for section in sections:
        assert section.counts is not None  # read with the same options as the first
        parts.append((section.counts, section.gene_names.get_indexer(common)))
    joined = JoinedRows(parts)
    if all(isinstance(counts, sp.csr_matrix) for counts, _ in parts):
        return sp.csr_matrix(sp.vstack(list(joined.blocks()))), common
    return joined, common


def _warn_of_lost_genes(genes: Sequence[pd.Index], names: Sequence[str], common: pd.Index) -> None:
    """Warn that the ``common`` genes are few of those of the section with the most, and say which sections lack them.

    A section that was filtered by itself, or a smaller panel, takes genes away from all others.
    """
    most = max(range(len(genes)), key=lambda i: genes[i].size)
    lacking = {name: int((~genes[most].isin(own)).sum()) for name, own in zip(names, genes, strict=True)}
    worst = sorted((name for name in lacking if lacking[name]), key=lambda name: -lacking[name])
    told = ", ".join(f"{name!r} lacks {lacking[name]:,}" for name in worst[:_NAMED])
    more = f", and {len(worst) - _NAMED:,} more lack some" if len(worst) > _NAMED else ""
    text = (
        f"The sections share only {common.size:,} of {genes[most].size:,} genes, and only these are used. Of the genes "
        f"of {names[most]!r}, {told}{more}. Give files with all their genes, or leave out the sections that lack them."
    )
    warnings.warn(InputWarning(text), stacklevel=4)


def _join_features(sections: Sequence[Section], names: Sequence[str]) -> np.ndarray | sp.csr_matrix:
    parts = [s.features for s in sections if s.features is not None]
    _check_alike([x.shape[1] for x in parts], names, f"features of {sections[0].rep!r}", "columns")
    if all(isinstance(x, np.ndarray) for x in parts):
        return np.concatenate(parts)
    return sp.csr_matrix(sp.vstack([sp.csr_matrix(x) for x in parts]))


def _join_labels(sections: Sequence[Section]) -> pd.Categorical | None:
    """The labels of all sections, missing for a section that has none; None where no section has any."""
    if all(s.labels is None for s in sections):
        return None
    texts = [
        np.full(s.coordinates.shape[0], None, dtype=object) if s.labels is None else np.asarray(s.labels, dtype=object)
        for s in sections
    ]
    categories = list(dict.fromkeys(c for s in sections if s.labels is not None for c in s.labels.categories))
    return pd.Categorical(np.concatenate(texts), categories=categories)


def _join_kept(sections: Sequence[Section]) -> np.ndarray | None:
    if all(s.kept is None for s in sections):
        return None
    return np.concatenate([np.ones(s.spot_names.size, dtype=bool) if s.kept is None else s.kept for s in sections])


def _check_alike(numbers: Sequence[int], names: Sequence[str], what: str, unit: str) -> None:
    other = next((i for i, number in enumerate(numbers) if number != numbers[0]), None)
    if other is not None:
        raise InputError(
            f"the {what} of all sections to have equally many {unit}",
            f"{numbers[0]} in {names[0]!r} and {numbers[other]} in {names[other]!r}",
            "Fit these sections separately.",
        )
