"""What the readers of sequencer output have in common: blocks of records, genes, and the limits of both."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from spatialpdvi.errors import InputError

__all__ = ["Genes", "RecordBlock", "Records", "checked_counts"]

_LARGEST = np.iinfo(np.int32).max


class RecordBlock(NamedTuple):
    """Some molecules of a few genes at places of the chip, m records."""

    x: np.ndarray  # (m,) int64, in DNBs (spots of the chip) of the file's own frame
    y: np.ndarray  # (m,) int64
    gene: np.ndarray  # (m,) column of the gene
    counts: np.ndarray  # (m,) int64, molecules, at least 1
    cell: np.ndarray | None  # (m,) int64, cell of each, 0 outside of cells; None where the file has no cells


class Genes(NamedTuple):
    """Genes in the order of their columns."""

    ids: list[str]
    names: list[str]

    def table(self) -> pd.DataFrame:
        """``var``: names as index, ``gene_ids`` beside them; genes that share a name are called by their IDs."""
        names, ids = pd.Index(self.names, dtype=object), pd.Index(self.ids, dtype=object)
        shared = names.duplicated(keep=False)
        index = names.where(~shared, ids)
        columns: dict[str, Any] = {"gene_ids": ids.to_numpy()}
        if shared.any():
            columns["gene_names"] = names.to_numpy()
        return pd.DataFrame(columns, index=index)


class Records(Protocol):
    """Records of a file, read once from its first to its last."""

    def blocks(self, size: int) -> Iterator[RecordBlock]:
        """Blocks of about ``size`` records in the order of the file."""

    def genes(self) -> Genes:
        """Known when the last block has been read, at the latest."""

    def facts(self) -> dict[str, Any]:
        """What the file says of itself: ``offset``, ``resolution`` and so on, where it does."""


def checked_counts(values: np.ndarray, name: str) -> np.ndarray:
    """Counts as int64, or the sentence that names the first value that is none."""
    whole = values.dtype.kind in "iub"
    with np.errstate(invalid="ignore"):
        fine = (values >= 0) & (values <= _LARGEST)
        if not whole:
            fine &= np.floor(values) == values
    if not fine.all():
        value = values[np.argmin(fine)]
        msg = (
            f"Expected the counts in {name} to be whole numbers from 0 to {_LARGEST:,}, found {value:.6g}. "
            "Export the raw counts again."
        )
        raise InputError(msg)
    return values.astype(np.int64)
