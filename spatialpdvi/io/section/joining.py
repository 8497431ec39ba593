"""Several sections, each of a file of its own, as one: genes by name, spots one section after the other."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning
from spatialpdvi.io.section.section import Section
from spatialpdvi.runtime.rows import CountRows, JoinedRows

__all__ = ["join_sections"]

_HARDLY = 0.2  # of the genes of the section with the fewest: with less in common something is wrong
_MOSTLY = 0.8  # with less in common the user is told


def join_sections(sections: Sequence[Section], names: Sequence[str]) -> Section:
    """One section whose `samples` are the given ones, in their order.

    Counts are those of the genes that all have, in the order of the first; features (with `rep`) need equally many
    columns. Graphs are put side by side. Labels are compared as texts.

    Parameters
    ----------
    sections
        At least one; read with the same options.
    names
        Of the sections, all different.

    Raises
    ------
    InputError
        Where genes hardly overlap, features or coordinates have different numbers of columns, or labels to start from
        were asked for: their codes mean nothing across files.
    """
    _check_alike([s.coordinates.shape[1] for s in sections], names, "coordinates", "dimensions")
    if any(s.init_labels is not None for s in sections):
        msg = "Expected one file with `--init`, found several. Join them into one AnnData, and name its --sample-key."
        raise InputError(msg)
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
        samples=pd.Categorical.from_codes(codes, pd.Index(list(names), dtype=object)),
    )


def _join_counts(sections: Sequence[Section], names: Sequence[str]) -> tuple[CountRows, pd.Index]:
    for section, name in zip(sections, names, strict=True):
        if section.gene_names.has_duplicates:
            twice = section.gene_names[section.gene_names.duplicated()][0]
            msg = f"Expected genes of {name!r} to have a name each, to be matched by, found {twice!r} twice. Rename it."
            raise InputError(msg)
    common = sections[0].gene_names
    for section in sections[1:]:
        common = common[common.isin(section.gene_names)]
    fewest = min(section.gene_names.size for section in sections)
    found = f"{common.size:,} of {fewest:,}"
    if common.size < max(2, _HARDLY * fewest):
        msg = (
            f"Expected the sections to have genes in common, found {found} (of {names[0]!r} the first is "
            f"{sections[0].gene_names[0]!r}, of {names[1]!r} {sections[1].gene_names[0]!r}). Give all files the same "
            "kind of gene names."
        )
        raise InputError(msg)
    if common.size < _MOSTLY * fewest:
        msg = f"Expected the sections to share most genes, found {found} in all of them; those alone are used."
        warnings.warn(msg, InputWarning, stacklevel=3)
    parts = []
    for section in sections:
        assert section.counts is not None  # read with the same options as the first
        parts.append((section.counts, section.gene_names.get_indexer(common)))
    joined = JoinedRows(parts)
    if all(isinstance(counts, sp.csr_matrix) for counts, _ in parts):
        return sp.csr_matrix(sp.vstack(list(joined.blocks()))), common
    return joined, common


def _join_features(sections: Sequence[Section], names: Sequence[str]) -> np.ndarray | sp.csr_matrix:
    parts = [s.features for s in sections if s.features is not None]
    _check_alike([x.shape[1] for x in parts], names, f"features of {sections[0].rep!r}", "columns")
    if all(isinstance(x, np.ndarray) for x in parts):
        return np.concatenate(parts)
    return sp.csr_matrix(sp.vstack([sp.csr_matrix(x) for x in parts]))


def _join_labels(sections: Sequence[Section]) -> pd.Categorical | None:
    """Labels of all, missing for a section without any; None where none has any."""
    if all(s.labels is None for s in sections):
        return None
    texts = [
        np.full(s.coordinates.shape[0], None, dtype=object) if s.labels is None else np.asarray(s.labels, dtype=object)
        for s in sections
    ]
    categories = list(dict.fromkeys(c for s in sections if s.labels is not None for c in s.labels.categories))
    return pd.Categorical(np.concatenate(texts), categories=categories)


def _check_alike(numbers: Sequence[int], names: Sequence[str], what: str, unit: str) -> None:
    other = next((i for i, number in enumerate(numbers) if number != numbers[0]), None)
    if other is not None:
        msg = (
            f"Expected {what} of all sections to have the same {unit}, found {numbers[0]} in {names[0]!r} and "
            f"{numbers[other]} in {names[other]!r}. Fit those apart."
        )
        raise InputError(msg)
