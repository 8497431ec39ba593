"""Which matrix of a section holds the raw counts, and the proof that it does."""

import logging
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, list_keys
from spatialpdvi.io.formats.matrices import layer_address
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.runtime.rows import CountRows, Rows

__all__ = ["CANDIDATES", "COPIES", "Counts", "find_counts", "read_counts", "warn_of_empty"]

logger = logging.getLogger("spatialpdvi")

# The first of these that holds counts is used when no layer is named.
CANDIDATES = (layer_address("count"), layer_address("counts"), "X", "raw.X")

_WHAT = "raw counts (whole numbers, none negative)"
_HINT = "Point --layer at the counts, or give ready features with --rep."
# Whole numbers beyond this are not exact in float32, in which features are computed; no spot has so many molecules.
_LARGEST = np.float32(1 << 24)
COPIES = 2  # of the counts: themselves, and what is made of them
_BLOCK = 1 << 22  # values per check: its temporary arrays stay at some tens of megabytes


class CheckedRows:
    """Counts read block by block, of which every block is found to hold counts when it is first read."""

    def __init__(self, rows: Rows, where: str) -> None:
        self._rows, self._where, self._checked = rows, where, False
        self.shape = rows.shape

    def split(self, n_parts: int) -> list["CheckedRows"]:
        """The same rows in parts, each checked by whoever reads it."""
        return [CheckedRows(part, self._where) for part in self._rows.split(n_parts)]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Blocks of rows in their order."""
        for block in self._rows.blocks():
            refusal = "" if self._checked else _refusal(block.data)
            if refusal:
                msg = f"Expected {self._where} to hold {_WHAT}, found {refusal}. {_HINT}"
                raise InputError(msg)
            yield block
        self._checked = True


class Counts(NamedTuple):
    """Validated counts and where they were found."""

    matrix: CountRows  # (n, genes), in the type in which they are stored
    source: str  # "layers['count']", "X" or "raw.X"
    gene_names: pd.Index  # (genes,)


def read_counts(source: Source, layer: str | None, *, memory: int | None = None, hint: str = _HINT) -> Counts:
    """Counts from the named layer, else from the first of `CANDIDATES` that holds counts.

    Parameters
    ----------
    source
        The section.
    layer
        A key of ``layers``, or ``X`` or ``raw.X``; None to look.
    memory
        Bytes that may be taken; of counts that would take more than half of them, rows are read when they are needed,
        and checked then. None for as much as they take.
    hint
        What to do where there are none.
    """
    found = find_counts(source, layer, memory=memory, hint=hint)
    logger.info("Counts are read from %s.", found.source)
    _warn(found, source.obs_names())
    return found


def find_counts(source: Source, layer: str | None, *, memory: int | None = None, hint: str = _HINT) -> Counts:
    """`read_counts` that says nothing; with a ``memory`` of 0 no more is read than a first glance."""
    found = _search(source, memory, hint) if layer is None else _named(source, layer, memory=memory, hint=hint)
    if not found.matrix.shape[1]:
        msg = f"Expected {found.source} to have at least one gene, found none. {hint}"
        raise InputError(msg)
    return found


def _named(source: Source, layer: str, *, memory: int | None, hint: str) -> Counts:
    where = layer if layer in {"X", "raw.X"} else layer_address(layer)
    if not source.has_matrix(where):
        msg = f"Expected {where} to be in {source.name}, found {_present(source)}. Give one of these to --layer."
        raise InputError(msg)
    counts, refusal = _try(source, where, memory)
    if counts is None:
        msg = f"Expected {where} to hold {_WHAT}, found {refusal}. {hint}"
        raise InputError(msg)
    return counts


def _search(source: Source, memory: int | None, hint: str) -> Counts:
    refusals: dict[str, str] = {}
    for where in CANDIDATES:
        if not source.has_matrix(where):
            continue
        counts, refusal = _try(source, where, memory)
        if counts is not None:
            _explain(refusals, where)
            return counts
        refusals[where] = refusal
    tried = "; ".join(f"{refusal} in {where}" for where, refusal in refusals.items())
    others = sorted(set(map(layer_address, source.layer_keys())) - set(CANDIDATES))
    msg = (
        f"Expected {_WHAT} in {', '.join(CANDIDATES[:-1])} or {CANDIDATES[-1]} of {source.name}, "
        f"found {tried or 'none of these'}. {hint}"
    )
    if others:
        msg += f" Not tried: {', '.join(others)}."
    raise InputError(msg)


def _explain(refusals: dict[str, str], chosen: str) -> None:
    """A normalised X beside a raw.X is usual; a layer called counts without counts is not."""
    for where, refusal in refusals.items():
        if where == "X":
            logger.info("%s was passed over: it holds %s.", where, refusal)
            continue
        msg = (
            f"Expected {where} to hold {_WHAT}, found {refusal}. "
            f"The counts are read from {chosen} instead; choose others with --layer."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)


def _try(source: Source, where: str, memory: int | None) -> tuple[Counts | None, str]:
    """The counts at `where`, or why these are none. A glance spares reading what is none."""
    refusal = _refusal(source.first_values(where))
    if refusal:
        return None, refusal
    if memory is not None and COPIES * source.stored_bytes(where) > memory:
        return Counts(CheckedRows(source.rows(where), where), where, source.var_names(where)), ""
    matrix = source.matrix(where)
    refusal = _refusal(matrix.data)
    if not refusal and matrix.shape[1] and not np.any(matrix.data):
        refusal = "no value but zero"
    if refusal:
        return None, refusal
    return Counts(matrix, where, source.var_names(where)), ""


def _refusal(values: np.ndarray) -> str:
    """Why the first offending value is no count; empty where all are."""
    if values.dtype.kind not in "buif":
        return f"values of type {values.dtype}"
    for start in range(0, len(values), _BLOCK):
        block = values[start : start + _BLOCK]
        # NaN and infinity fail the comparisons of this one pass as well.
        with np.errstate(invalid="ignore"):
            fine = (block >= 0) & (block <= _LARGEST)
            if values.dtype.kind == "f":
                fine &= np.floor(block) == block
        if not fine.all():
            return _reason(float(block[np.argmin(fine)]))
    return ""


def _reason(value: float) -> str:
    if not np.isfinite(value):
        return f"{value} (not finite)"
    what = "negative" if value < 0 else "not a whole number" if value % 1 else f"above {_LARGEST:,.0f}"
    return f"{value:.6g} ({what})"


def _present(source: Source) -> str:
    places = [place for place in ("X", "raw.X") if source.has_matrix(place)]
    return list_keys(places + source.layer_keys())


def _warn(counts: Counts, spot_names: pd.Index) -> None:
    repeated = counts.gene_names.duplicated()
    if repeated.any():
        msg = (
            f"Expected unique gene names, found {repeated.sum():,} that repeat an earlier one "
            f"(first: {counts.gene_names[repeated][0]!r}). Each is used as a gene of its own."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
    if isinstance(counts.matrix, sp.csr_matrix):
        warn_of_empty(np.asarray(counts.matrix.sum(axis=1)).ravel(), spot_names)


def warn_of_empty(totals: np.ndarray, spot_names: pd.Index) -> None:
    """Tell of spots without counts; ``totals`` (n,) of all genes."""
    empty = totals == 0
    if empty.any():
        msg = (
            f"Expected every spot to have counts, found {empty.sum():,} of {len(empty):,} without "
            f"(first: {spot_names[empty][0]!r}). Their place alone decides their domain; "
            "filter them out if they are no tissue."
        )
        warnings.warn(msg, InputWarning, stacklevel=2)
