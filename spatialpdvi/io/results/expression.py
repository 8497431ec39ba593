"""Counts and domains of a fitted section: what genes are compared by."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError, list_keys
from spatialpdvi.io.formats.matrices import layer_of
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.fitted import check_fitted
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.section.counts import read_counts
from spatialpdvi.io.section.labels import read_domains
from spatialpdvi.runtime.rows import CountRows

__all__ = ["Expression", "read_expression"]

_HINT = "Point --layer at the counts; features of --rep have no genes that could be compared."


class Expression(NamedTuple):
    """Counts of a fitted section."""

    counts: CountRows  # (n, genes), whole numbers >= 0
    genes: np.ndarray  # (genes,) their names, as text
    domains: pd.Categorical  # (n,); only those that have spots


def read_expression(
    source: Source, keys: Keys, *, layer: str | None = None, gene_key: str | None = None, memory: int | None = None
) -> Expression:
    """Read and check the domains that a fit has written, and counts from where the fit had them.

    Parameters
    ----------
    source
        The fitted section.
    keys
        Names under which the fit has written.
    layer
        Where the counts are; None for where the fit found them, or, after a fit of ready features, to look for them.
    gene_key
        Column of ``var`` with the names to use; a gene without one keeps its own.
    memory
        Bytes that may be taken (`read_counts`).
    """
    check_fitted(source, keys)
    domains = read_domains(source, keys.domain)
    if layer is None:
        layer = _layer_of_the_fit(source, keys)
    found = read_counts(source, layer, memory=memory, hint=_HINT)
    names = np.asarray(found.gene_names, dtype=object)
    if gene_key is not None:
        names = _named_by(source, gene_key, found.source, names)
    return Expression(found.matrix, names, domains)


def _layer_of_the_fit(source: Source, keys: Keys) -> str | None:
    """The option that names the counts of the fit; None where it used none, or they are no longer there."""
    summary = source.uns(keys.uns)
    params = summary.get("params") if isinstance(summary, Mapping) else None
    where = str(params.get("counts", "")) if isinstance(params, Mapping) else ""
    # of several files with counts in different places a fit remembers them all
    if (where in {"X", "raw.X"} or layer_of(where) is not None) and source.has_matrix(where):
        return layer_of(where) or where
    return None


def _named_by(source: Source, key: str, where: str, names: np.ndarray) -> np.ndarray:
    if key not in source.var_keys(where):
        msg = (
            f"Expected a column {key!r} with names of genes in var of {source.name}, found columns: "
            f"{list_keys(source.var_keys(where))}. Name one of these with --gene-key."
        )
        raise InputError(msg)
    column = source.var(key, where)
    return np.where(column.isna(), names, column.astype(object).map(str))
