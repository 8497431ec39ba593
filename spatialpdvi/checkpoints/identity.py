"""What a checkpoint belongs to: options and versions, told apart by name, and data, told apart by their digest."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi.options.fit import FitOptions

__all__ = ["differences", "digest", "identify"]

# options that change no bit of what a checkpoint holds
_NO_MATTER = {"key_added", "save_graph", "memory"}
# what the solver's own numbers depend on; other libraries make the features, whose digest tells
_VERSIONS = ("spatialpdvi", "numba", "numpy")


def identify(options: FitOptions, versions: Mapping[str, str]) -> dict[str, Any]:
    """Options and versions that a run to the same bits asks for, under the names that a user knows.

    A fit from one start may go on with another limit of epochs; of several starts each ended at it.
    """
    leave_out = _NO_MATTER if options.restarts == "best" else {*_NO_MATTER, "max_epochs"}
    chosen = {"--" + name.replace("_", "-"): value for name, value in options.__dict__.items() if name not in leave_out}
    return chosen | {name: versions[name] for name in _VERSIONS}


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The entries in which two identities differ, for a sentence; empty where they are equal."""
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return ", ".join(f"{name} {_show(there.get(name))} there and {_show(here.get(name))} here" for name in names)


def digest(*parts: np.ndarray | sp.csr_matrix | None) -> str:
    """32 hexadecimal digits of arrays' types, shapes and bytes."""
    total = hashlib.blake2b(digest_size=16)
    for part in parts:
        if part is None:
            total.update(b"none;")
            continue
        arrays = (part,) if isinstance(part, np.ndarray) else (part.indptr, part.indices, part.data)
        for array in arrays:
            total.update(f"{array.dtype.str}{array.shape};".encode())
            total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _show(value: Any) -> str:
    return "not given" if value is None else str(value)
