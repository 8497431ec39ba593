"""A folder of a zarr store whose chunks are checked before they are decompressed; imported where zarr is needed.

Blosc trusts the length in the header of a chunk. If the chunk has been truncated, blosc reads and writes memory that is
not its own, and the process crashes or goes wrong.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore

__all__ = ["CheckedStore"]

_HEADER = 16  # bytes of the header of a chunk of blosc
_LENGTH = slice(12, 16)  # where the header has the length of the chunk, little-endian


class CheckedStore(LocalStore):
    """A store in a folder.

    Parameters
    ----------
    root
        The folder.
    read_only
        Whether the store is read-only.
    blosc
        Paths of the arrays that blosc has compressed.
    """

    def __init__(self, root: Path | str, *, read_only: bool = False, blosc: Collection[str] = ()) -> None:
        super().__init__(root, read_only=read_only)
        self._blosc = frozenset(blosc)

    def with_read_only(self, read_only: bool = False) -> "CheckedStore":  # noqa: FBT001, FBT002 - zarr's own
        """Return a store of the same folder, read-only or writable."""
        return type(self)(self.root, read_only=read_only, blosc=self._blosc)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return the content of a file, or None; raise a `ValueError` for a chunk of another length than it states."""
        return self._checked(key, await super().get(key, prototype, byte_range))

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """Return what `get` does, without waiting; some versions of zarr need it."""
        return self._checked(key, super().get_sync(key, prototype=prototype, byte_range=byte_range))

    def _checked(self, key: str, content: Any) -> Any:
        *folders, name = key.split("/")
        if content is None or name.startswith(".z") or name == "zarr.json" or not self._is_blosc(folders):
            return content
        header = content[:_HEADER].to_bytes()
        if len(header) < _HEADER or int.from_bytes(header[_LENGTH], "little") != len(content):
            msg = f"the chunk {key} is truncated"
            raise ValueError(msg)
        return content

    def _is_blosc(self, folders: list[str]) -> bool:
        """Whether a chunk in these nested folders belongs to an array that blosc has compressed."""
        return any("/".join(folders[:depth]) in self._blosc for depth in range(len(folders) + 1))
