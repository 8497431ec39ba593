"""The fit that a checkpoint belongs to: its options and versions by name, and its data by their digest."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from spatialpdvi.errors import option
from spatialpdvi.options.fit import IRRELEVANT, FitOptions

__all__ = ["differences", "digest", "identify"]

# the solver's results depend on these; other libraries compute the features, which have a digest
_VERSIONS = ("spatialpdvi", "numba", "numpy")


def identify(options: FitOptions, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return the options and versions that have to be the same for a run to end with the same bits.

    A fit from one start may resume with another limit of epochs. With several starts, each of them ended at the limit,
    which must then be the same.
    """
    leave_out = IRRELEVANT if options.restarts == "best" else {*IRRELEVANT, "max_epochs"}
    chosen = {name: value for name, value in options.__dict__.items() if name not in leave_out}
    return chosen | {name: versions[name] for name in _VERSIONS}


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Return the entries in which two identities differ, for an error; empty where they are equal."""
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    return ", ".join(
        f"{name if name in _VERSIONS else option(name)} {_show(there.get(name))} there and {_show(here.get(name))} here"
        for name in names
    )


def digest(*parts: np.ndarray | sp.csr_matrix | None) -> str:
    """Return 32 hexadecimal digits computed from the types, shapes and bytes of arrays."""
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
