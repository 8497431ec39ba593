"""What the readers of sequencing output have in common: blocks of records, genes, and their limits."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError

__all__ = ["FARTHEST", "Genes", "RecordBlock", "Records", "check_texts", "checked_counts", "checked_places"]

FARTHEST = 1 << 22  # places on a chip are within +-FARTHEST, which is two metres of DNBs 500 nm apart
_LARGEST = np.iinfo(np.int32).max


class RecordBlock(NamedTuple):
    """Some molecules of a few genes at places of the chip, m records."""

    x: np.ndarray  # (m,) int64, in DNBs (spots of the chip) of the file's frame
    y: np.ndarray  # (m,) int64
    gene: np.ndarray  # (m,) column of the gene
    counts: np.ndarray  # (m,) int64, molecules, at least 1
    cell: np.ndarray | None  # (m,) int64, cell of each, 0 outside of cells; None where the file has no cells


class Genes(NamedTuple):
    """Genes in the order of their columns."""

    ids: list[str]
    names: list[str]

    def table(self) -> pd.DataFrame:
        """Return ``var``, with ``gene_ids`` and an index of names; genes that share a name are indexed by their IDs."""
        check_texts([*self.names, *self.ids], "genes")
        names, ids = pd.Index(self.names, dtype=object), pd.Index(self.ids, dtype=object)
        shared = names.duplicated(keep=False)
        index = names.where(~shared, ids)
        columns: dict[str, Any] = {"gene_ids": ids.to_numpy()}
        if shared.any():
            columns["gene_names"] = names.to_numpy()
        return pd.DataFrame(columns, index=index)


class Records(Protocol):
    """The records of a file, read once from the first to the last."""

    def blocks(self, size: int) -> Iterator[RecordBlock]:
        """Yield blocks of about ``size`` records in the order of the file."""

    def genes(self) -> Genes:
        """Return the genes, which may be known only when the last block has been read."""

    def facts(self) -> dict[str, Any]:
        """Return what the file says about itself (``offset``, ``resolution_nm`` and so on), if anything."""


def checked_counts(values: np.ndarray, name: str) -> np.ndarray:
    """Return counts as int64; raise an `InputError` that names the first value that is no count."""
    strange = _first_strange(values, 0, _LARGEST)
    if strange is not None:
        raise InputError(
            f"the counts in {name} to be whole numbers from 0 to {_LARGEST:,}",
            f"{strange:.6g}",
            "Export the raw counts again.",
        )
    return values.astype(np.int64)


def checked_places(values: np.ndarray, name: str) -> np.ndarray:
    """Return places on a chip as int64; raise an `InputError` that names the first value that is no place."""
    strange = _first_strange(values, -FARTHEST, FARTHEST - 1)
    if strange is not None:
        raise InputError(
            f"places in {name} to be whole numbers within {FARTHEST:,} DNBs of its origin",
            f"{strange:,.12g}",
            "Check the columns x and y.",
        )
    return values.astype(np.int64)


def check_texts(texts: Iterable[str], of: str) -> None:
    """Raise an `InputError` for null characters in names, which come from damage and cannot be written to HDF5."""
    strange = next((text for text in texts if "\0" in text), None)
    if strange is not None:
        raise InputError(
            f"names of {of} to be texts",
            f"a null character in {strange[:60]!r}",
            "Export the data again.",
        )


def _first_strange(values: np.ndarray, least: int, most: int) -> Any:
    """The first value that is no whole number of a range; None where there is none."""
    with np.errstate(invalid="ignore"):
        fine = (values >= least) & (values <= most)
        if values.dtype.kind not in "iub":
            fine &= np.floor(values) == values
    return None if fine.all() else values[np.argmin(fine)]
