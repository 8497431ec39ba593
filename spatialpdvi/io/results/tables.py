"""A result that consists of tables, and the columns as which they are stored."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd

__all__ = ["Tables"]


class Tables:
    """Tables, some of which may be None, and the options in ``params`` with which they were made."""

    names: ClassVar[tuple[str, ...]]  # of the tables, in their order
    params: Mapping[str, Any]

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables that there are, by their names."""
        found = {name: getattr(self, name) for name in self.names}
        return {name: table for name, table in found.items() if table is not None}

    def columns(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
        """Return the columns of these tables, but for those without rows, and the options that were given."""
        filled = {
            name: {column: table[column].to_numpy() for column in table} for name, table in tables.items() if len(table)
        }
        return {"params": {name: value for name, value in self.params.items() if value is not None}, **filled}
