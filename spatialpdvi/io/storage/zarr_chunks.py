"""A folder of a zarr store whose chunks are looked at before they are decompressed; imported where zarr is needed.

Blosc believes what the head of a chunk says of its length. Of one that has been cut off it reads, and writes, memory
that is not its own; the process then ends, or does something else.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from zarr.storage import LocalStore

__all__ = ["CheckedStore"]

_HEAD = 16  # bytes of the head of a chunk of blosc
_LENGTH = slice(12, 16)  # where in it the length of the chunk is, little-endian


class CheckedStore(LocalStore):
    """A store in a folder.

    Parameters
    ----------
    root
        The folder.
    read_only
        Whether nothing can be written.
    blosc
        Paths of the arrays that blosc has compressed.
    """

    def __init__(self, root: Path | str, *, read_only: bool = False, blosc: Collection[str] = ()) -> None:
        super().__init__(root, read_only=read_only)
        self._blosc = frozenset(blosc)

    def with_read_only(self, read_only: bool = False) -> "CheckedStore":  # noqa: FBT001, FBT002 - zarr's own
        """The same folder for reading alone, or for writing too."""
        return type(self)(self.root, read_only=read_only, blosc=self._blosc)

    async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
        """Content of a file, or None; a `ValueError` where it is a chunk of another length than it says."""
        return self._checked(key, await super().get(key, prototype, byte_range))

    def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
        """The same at once, which some versions of zarr ask for."""
        return self._checked(key, super().get_sync(key, prototype=prototype, byte_range=byte_range))

    def _checked(self, key: str, content: Any) -> Any:
        *folders, name = key.split("/")
        if content is None or name.startswith(".z") or name == "zarr.json" or not self._is_blosc(folders):
            return content
        head = content[:_HEAD].to_bytes()
        if len(head) < _HEAD or int.from_bytes(head[_LENGTH], "little") != len(content):
            msg = f"the chunk {key} is cut off"
            raise ValueError(msg)
        return content

    def _is_blosc(self, folders: list[str]) -> bool:
        """Whether a chunk in these folders, one in the other, is of such an array."""
        return any("/".join(folders[:depth]) in self._blosc for depth in range(len(folders) + 1))
