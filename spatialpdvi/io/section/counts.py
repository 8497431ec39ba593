"""Find the matrix of a section that holds raw counts, and check that it does."""

import logging
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, list_keys, option
from spatialpdvi.io.formats.matrices import layer_address, matrix_address
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.runtime.rows import Check, CountRows, Rows, columns_of, row_sums

__all__ = [
    "CANDIDATES",
    "COPIES",
    "COUNTS_ADVICE",
    "COUNTS_IN",
    "FITTED_IN",
    "OR_FEATURES",
    "Counts",
    "find_counts",
    "read_counts",
    "slim_from",
    "warn_of_empty",
    "warn_of_other_features",
    "warn_of_repeated",
    "warn_of_unmeasured",
]

logger = logging.getLogger("spatialpdvi")

# The first of these that holds counts is used when no layer is named.
CANDIDATES = (layer_address("count"), layer_address("counts"), "X", "raw.X")

COUNTS_IN = "counts_in"  # field of uns[key] in a file without counts: the name of the file that has them
FITTED_IN = "fitted_in"  # and that of the file that was fitted, where that had no counts either

_WHAT = "raw counts (whole numbers, none negative)"
OR_FEATURES = f", or features with {option('rep')}"  # left out where there are none to be named (`own_names`)
COUNTS_ADVICE = f"Name the layer of the counts with {option('layer')}{OR_FEATURES}."
# Larger whole numbers are not exact in float32, in which features are computed; no spot has so many molecules.
_LARGEST = np.float32(1 << 24)
COPIES = 2  # of the counts in memory: the counts, and what is computed from them
_FEATURE_TYPES = "feature_types"  # column of var in which 10x Genomics says what each feature is
_GENES = "Gene Expression"  # its value for genes
_FEW_SPOTS = 10  # of a section, on average
_SURELY = 20  # counts of a gene that are expected in a section; by chance there is none in one of 5e8
_SEVERAL = 5  # of these genes, below which one that a section lacks is one of a domain that it lacks
_LACKING = 0.1  # of these genes may be missing: domains that a section lacks may have genes of their own
_BLOCK = 1 << 22  # values per check: its temporary arrays stay at some tens of megabytes


class CheckedRows:
    """Counts that are read block by block; each block is checked when it is first read."""

    def __init__(self, rows: Rows, where: str) -> None:
        self._rows, self._where, self._checked = rows, where, False
        self.shape = rows.shape

    def split(self, n_parts: int) -> list["CheckedRows"]:
        """Return the same rows in parts, each checked by whoever reads it."""
        return [CheckedRows(part, self._where) for part in self._rows.split(n_parts)]

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """Yield blocks of rows in their order."""
        for block in self._rows.blocks():
            if not self._checked:
                self._expect_counts(block.data)
            yield block
        self._checked = True

    def columns(
        self, chosen: np.ndarray, check: Check | None = None, own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Do as `spatialpdvi.runtime.rows.columns_of`."""

        def expect_counts(values: np.ndarray) -> None:
            self._expect_counts(values)
            if check is not None:
                check(values)

        return columns_of(self._rows, chosen, expect_counts, own)

    def _expect_counts(self, values: np.ndarray) -> None:
        refusal = _refusal(values)
        if refusal:
            raise InputError(f"{self._where} to hold {_WHAT}", refusal, COUNTS_ADVICE)


class Counts(NamedTuple):
    """Validated counts and where they were found."""

    matrix: CountRows  # (n, genes), in the type in which they are stored
    source: str  # "layers['count']", "X" or "raw.X"
    gene_names: pd.Index  # (genes,)
    are_boolean: bool = False  # whether they are stored as true and false


def read_counts(
    source: Source,
    layer: str | None,
    *,
    memory: int | None = None,
    advice: str = COUNTS_ADVICE,
    are_fitted: bool = True,
) -> Counts:
    """Read counts from the named layer, else from the first of `CANDIDATES` that holds counts.

    Parameters
    ----------
    source
        The section.
    layer
        A key of ``layers``, or ``X`` or ``raw.X``; None to search.
    memory
        Bytes that may be used. Rows of counts that would take more than half of them are read, and checked, when they
        are needed. None for no limit.
    advice
        What to do where there are no counts.
    are_fitted
        Whether domains are found from them. There is then a warning of spots without counts, whose neighbours decide.

    Raises
    ------
    InputError
        Where there are no counts.
    """
    found = find_counts(source, layer, memory=memory, advice=advice)
    logger.info("Counts are read from %s.", found.source)
    warn_of_repeated(found.gene_names, "gene", "Genes of the same name are used as different genes.")
    if are_fitted and found.are_boolean:
        text = (
            f"{found.source} is a matrix of true and false: it says which genes a spot has, and not how often. Name "
            f"the layer of the counts with {option('layer')} if there is one."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
    if are_fitted and isinstance(found.matrix, sp.csr_matrix):
        warn_of_empty(row_sums(found.matrix), source.obs_names())
    return found


def find_counts(source: Source, layer: str | None, *, memory: int | None = None, advice: str = COUNTS_ADVICE) -> Counts:
    """Do as `read_counts` without warnings; with a ``memory`` of 0 only the first values are read."""
    left_out_of = slim_from(source)
    if left_out_of is not None:
        raise InputError(
            f"{_WHAT} in {source.name}",
            f"none, since it was written with {option('slim', True)}",
            f"They are in {left_out_of!r}, from which it was made. {_readers(source)} read them from there with "
            f"{option('counts')}; all else needs a result that was written without {option('slim', True)}.",
        )
    found = _search(source, memory, advice) if layer is None else _named(source, layer, memory=memory, advice=advice)
    if not found.matrix.shape[1]:
        raise InputError(f"{found.source} to have at least one gene", "none", advice)
    return found


def _readers(source: Source) -> str:
    """What reads the counts of a file without any from another file; functions for an AnnData in memory cannot."""
    if hasattr(source, "root"):  # of a file
        return "`markers`, `intervals`, `describe`, `plot` and `report`"
    functions = "`markers_file`, `intervals_file`, `describe_files`, `plot_file` and `report_files`"
    return f"Give the file of this AnnData to one of {functions}, which"


def slim_from(source: Source) -> str | None:
    """Return the name of the file that a section without counts was made from; None where it may have counts."""
    if source.n_vars:
        return None
    for key in source.uns_keys():
        if {COUNTS_IN, "params"} <= set(source.uns_fields(key)):
            return str(source.uns(key)[COUNTS_IN])
    return None


def _named(source: Source, layer: str, *, memory: int | None, advice: str) -> Counts:
    where = matrix_address(layer)
    if not source.has_matrix(where):
        raise InputError(
            f"{where} to be in {source.name}", _present(source), f"Name one of these with {option('layer')}."
        )
    counts, refusal = _try(source, where, memory)
    if counts is None:
        raise InputError(f"{where} to hold {_WHAT}", refusal, advice)
    return counts


def _search(source: Source, memory: int | None, advice: str) -> Counts:
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
    raise InputError(
        f"{_WHAT} in {', '.join(CANDIDATES[:-1])} or {CANDIDATES[-1]} of {source.name}",
        tried or "none of these",
        f"{advice} Not tried: {', '.join(others)}." if others else advice,
    )


def _explain(refusals: dict[str, str], chosen: str) -> None:
    """Log or warn of matrices without counts: a normalised X beside a raw.X is usual, such a layer of counts is not."""
    for where, refusal in refusals.items():
        if where == "X":
            logger.info("%s is not used: it holds %s.", where, refusal)
            continue
        text = (
            f"{where} does not hold {_WHAT}, but {refusal}. The counts are read from {chosen} instead; choose others "
            f"with {option('layer')}."
        )
        warnings.warn(InputWarning(text), stacklevel=2)


def _try(source: Source, where: str, memory: int | None) -> tuple[Counts | None, str]:
    """The counts at `where`, or why there are none; the first values are checked before the whole is read."""
    first = source.first_values(where)
    refusal, are_boolean = _refusal(first), first.dtype.kind == "b"
    if refusal:
        return None, refusal
    if memory is not None and COPIES * source.stored_bytes(where) > memory:
        return Counts(CheckedRows(source.rows(where), where), where, source.var_names(where), are_boolean), ""
    matrix = source.matrix(where)
    refusal = _refusal(matrix.data)
    if not refusal and matrix.shape[1] and not np.any(matrix.data):
        refusal = "no value but zero"
    if refusal:
        return None, refusal
    return Counts(matrix, where, source.var_names(where), are_boolean), ""


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
    shown = f"{value:.6g}"
    if value > 0 and float(shown) % 1 == 0 and float(shown) <= float(_LARGEST):  # rounded, it would be a count
        shown = repr(value).removesuffix(".0")
    return f"{shown} ({what})"


def _present(source: Source) -> str:
    places = [place for place in ("X", "raw.X") if source.has_matrix(place)]
    return list_keys(places + source.layer_keys())


def warn_of_repeated(names: pd.Index, what: str, outcome: str) -> None:
    """Warn of names that are not unique: ``what`` has them, "gene", and ``outcome`` says what becomes of these."""
    repeated = names.duplicated()
    if repeated.any():
        n = repeated.sum()
        text = (
            f"{n:,} {what} {'name repeats' if n == 1 else 'names repeat'} an earlier one (first: "
            f"{str(names[repeated][0])!r}). {outcome}"
        )
        warnings.warn(InputWarning(text), stacklevel=3)


def warn_of_other_features(source: Source, where: str) -> None:
    """Warn of proteins, control probes and the like in the matrix at `where`, if its table says what features are."""
    if _FEATURE_TYPES not in source.var_keys(where):
        return
    types = source.var(_FEATURE_TYPES, where).astype(object)
    if not (types == _GENES).any():  # a matrix of proteins alone is fitted on purpose, other words are the user's own
        return
    others = types[types != _GENES].fillna("no type").astype(str).value_counts()
    if others.empty:
        return
    n = int(others.sum())
    named = ", ".join(f"{count:,} {kind!r}" for kind, count in sorted(others.items()))
    table, whole = ("raw.var", "adata.raw.to_adata()") if where == "raw.X" else ("var", "adata")
    genes = f'{whole}[:, adata.{table}["{_FEATURE_TYPES}"] == "{_GENES}"].copy()'
    text = (
        f"{n:,} of {types.size:,} features in {where} {'is no gene' if n == 1 else 'are no genes'} by "
        f"{table}[{_FEATURE_TYPES!r}]: {named}. They are fitted like genes, and a bright protein can decide the "
        f"domains. Leave them out with `{genes}`."
    )
    warnings.warn(InputWarning(text), stacklevel=3)


def warn_of_unmeasured(counts: sp.csr_matrix, samples: pd.Categorical) -> None:
    """Warn of sections without counts, and of those without a single one of many genes that others have.

    A gene counts if its share of all counts lets expect `_SURELY` of it in the section. Panels differ in such genes,
    and are filled up with zeros where sections are concatenated; domains would follow the panels.
    """
    names, codes = samples.categories, np.asarray(samples.codes)
    if len(names) * _FEW_SPOTS > codes.size:
        return  # too few spots for each to expect a gene of it
    member = sp.csr_matrix((np.ones(codes.size), (codes, np.arange(codes.size))), shape=(len(names), codes.size))
    of_genes = np.asarray((member @ counts).todense(), dtype=np.float64)
    totals = of_genes.sum(axis=1)
    expected = np.outer(totals, of_genes.sum(axis=0) / max(1.0, totals.sum())) >= _SURELY
    for name, total, own, sure in zip(names, totals, of_genes, expected, strict=True):
        lacking, n = int((own[sure] == 0).sum()), int(sure.sum())
        if total and (n < _SEVERAL or lacking <= _LACKING * n):
            continue
        text = f"Section {str(name)!r} has no counts. Check the matrix, or leave the section out."
        if total:
            text = (
                f"Section {str(name)!r} has no count of {lacking:,} of {n:,} genes that are common in others. If its "
                "panel lacks them, domains will follow the panels: select the genes that all sections have."
            )
        warnings.warn(InputWarning(text), stacklevel=2)


def warn_of_empty(totals: np.ndarray, spot_names: pd.Index) -> None:
    """Warn of spots without counts; ``totals`` (n,) are sums over all genes."""
    empty = totals == 0
    if empty.any():
        n = empty.sum()
        text = (
            f"{n:,} of {len(empty):,} spots {'has' if n == 1 else 'have'} no counts (first: "
            f"{str(spot_names[empty][0])!r}). Only its neighbours decide the domain of such a spot; remove it if it is "
            "not tissue."
        )
        warnings.warn(InputWarning(text), stacklevel=2)
