"""Counts of a fitted section, and the domains or states between which genes are compared."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, list_keys, option
from spatialpdvi.io.formats.matrices import layer_of
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import read_states
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.left_out import select_fitted
from spatialpdvi.io.results.summary import check_fitted, stored_params
from spatialpdvi.io.section.counts import Counts, find_counts, read_counts
from spatialpdvi.io.section.labels import read_domains
from spatialpdvi.options.validation import read_kind
from spatialpdvi.runtime.rows import CountRows, columns_of

__all__ = [
    "Expression",
    "layer_of_the_fit",
    "memory_after_fit",
    "read_expression",
    "read_gene_counts",
    "read_genes",
]

_ADVICE = (
    f"Name the layer of the counts with {option('layer')}; features of {option('rep')} have no genes to be compared."
)
_NEAR = 5  # names that an error lists


class Expression(NamedTuple):
    """Counts of a fitted section."""

    counts: CountRows  # (n, genes), whole numbers >= 0
    genes: np.ndarray  # (genes,) names, as text
    groups: pd.Categorical  # (n,) domains or states; without empty categories


def read_expression(
    source: Source,
    keys: Keys,
    *,
    of: str,
    layer: str | None,
    gene_key: str | None,
    memory: int | None,
) -> Expression:
    """Read and check the domains or states that a fit has written, and counts from where the fit had them.

    Parameters
    ----------
    source
        The fitted section.
    keys
        The names under which the fit was written.
    of
        "domain" for the spots' domains, "state" for their likeliest states.
    layer
        Where the counts are; None for where the fit found them, or, after a fit of features, to search for them.
    gene_key
        Column of ``var`` with the names to use; a gene without such a name keeps its own.
    memory
        Bytes that may be used (`read_counts`).

    Raises
    ------
    InputError
        Where there is no fit, there are no counts, or domains share no states whose genes could be compared.
    """
    check_fitted(source, keys)
    source = select_fitted(source, keys)
    groups = read_domains(source, keys.domain) if of == "domain" else _likeliest_states(source, keys)
    return Expression(*read_genes(source, keys, layer=layer, gene_key=gene_key, memory=memory), groups)


def read_genes(
    source: Source, keys: Keys, *, layer: str | None = None, gene_key: str | None = None, memory: int | None = None
) -> tuple[CountRows, np.ndarray]:
    """Read the counts (n, genes) and the names of the genes (genes,), as `read_expression` does.

    Where there is no fit under these names, counts are searched for.
    """
    found = read_counts(source, _layer(source, keys, layer), memory=memory, advice=_ADVICE, are_fitted=False)
    return found.matrix, _names(source, found, gene_key)


class GeneCounts(NamedTuple):
    """Counts of a few genes."""

    counts: np.ndarray  # (n, g) float64, whole numbers
    totals: np.ndarray  # (n,) float64, of all genes


def read_gene_counts(
    source: Source, keys: Keys, genes: Sequence[str], *, layer: str | None = None, gene_key: str | None = None
) -> GeneCounts:
    """Read the counts of some genes, and the total of each spot; the matrix is never in memory as a whole.

    Parameters
    ----------
    source
        The section.
    keys
        The names under which a fit was written, if there is one.
    genes
        Names.
    layer, gene_key
        As for `read_expression`.

    Raises
    ------
    InputError
        Where there are no counts, no gene has a name, or several have it.
    """
    found = find_counts(source, _layer(source, keys, layer), memory=0, advice=_ADVICE)
    names = _names(source, found, gene_key)
    chosen = [_position(gene, names, source, found.source) for gene in genes]
    return GeneCounts(*columns_of(found.matrix, np.array(chosen, dtype=np.int64)))


def _position(gene: str, names: np.ndarray, source: Source, where: str) -> int:
    """The column of the gene of a name."""
    read_kind("genes", gene, str)
    own = np.flatnonzero(names == gene)
    if own.size == 1:
        return int(own[0])
    columns = source.var_keys(where)
    others = f" Columns of var with other names: {list_keys(columns)} (see {option('gene_key')})." if columns else ""
    if own.size:
        advice = f"Name it by another column.{others}" if columns else "Give each gene a name of its own."
        raise InputError(f"one gene called {gene!r} in the counts", f"{own.size}", advice)
    texts = [str(name) for name in names]
    same = [name for name in texts if name.lower() == gene.lower()]
    near = same or get_close_matches(gene, texts, n=_NEAR) or [name for name in texts if gene.lower() in name.lower()]
    found = "none of this name"
    if near:
        found += f"; near it are {', '.join(map(repr, dict.fromkeys(near[:_NEAR])))}"
    raise InputError(f"a gene called {gene!r} in the counts", found, f"Give the name of a gene.{others}")


def _likeliest_states(source: Source, keys: Keys) -> pd.Categorical:
    """The state of each spot (n,) with the largest posterior, by its number as text; of the states that have spots."""
    found, codes = np.unique(read_states(source, keys).argmax(axis=1), return_inverse=True)
    return pd.Categorical.from_codes(codes, categories=[str(state) for state in found])


def layer_of_the_fit(source: Source, summary: Any) -> str | None:
    """Return the value of ``layer`` for the counts of a fit; None where it used none, or they are no longer there.

    Parameters
    ----------
    source
        The section.
    summary
        Of the fit, ``uns[key]``.
    """
    where = str(stored_params(summary).get("counts", ""))
    # a fit of several files with counts in different places has stored all these places
    if (where in {"X", "raw.X"} or layer_of(where) is not None) and source.has_matrix(where):
        return layer_of(where) or where
    return None


def memory_after_fit(source: Source, summary: Any, memory: int) -> int:
    """Return the bytes that the counts of a fit may take when they are read again, while it still has its own.

    They are 0, so that the counts are read block by block, unless they are stored by columns.

    Parameters
    ----------
    source
        The file of the section.
    summary
        Of the fit, ``uns[key]``.
    memory
        What counts that are stored by columns may take.

    Raises
    ------
    InputError
        Where there are no counts.
    """
    found = find_counts(source, layer_of_the_fit(source, summary), memory=0)
    return 0 if source.by_rows(found.source) else memory


def _layer(source: Source, keys: Keys, given: str | None) -> str | None:
    """The layer that was given, or that of the fit where there is one."""
    if given is None and keys.uns in source.uns_keys():
        return layer_of_the_fit(source, source.uns(keys.uns))
    return given


def _names(source: Source, counts: Counts, key: str | None) -> np.ndarray:
    """The names of the genes (genes,); a gene without one in the column ``key`` keeps its own."""
    names, where = np.asarray(counts.gene_names, dtype=object), counts.source
    if key is None:
        return names
    if key not in source.var_keys(where):
        raise InputError(
            f"a column {key!r} with names of genes in var of {source.name}",
            f"columns: {list_keys(source.var_keys(where))}",
            f"Name one of these with {option('gene_key')}.",
        )
    column = source.var(key, where)
    texts = column.astype(object).map(str)
    return np.where(column.isna() | (texts.str.strip() == ""), names, texts)
