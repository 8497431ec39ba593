"""How every kernel is compiled. It must not know what any kernel computes."""

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled"]

_log = logging.getLogger("spatialpdvi")


def compiled(function: Callable[..., Any], *, parallel: bool = False) -> Callable[..., Any]:
    """Compile a kernel on its first call; it releases Python's global lock while it runs.

    With ``error_model="numpy"`` a division by zero gives infinity, as in NumPy, and loops need no check that would
    prevent their vectorisation. The compiled code is cached beside the source or in the user's cache folder. Where
    neither can be written (in a container, or on a node without a home folder), every process compiles anew, and one
    message per kernel is logged.
    """
    try:
        return njit(cache=True, parallel=parallel, nogil=True, error_model="numpy")(function)
    except RuntimeError as error:  # numba: no locator available
        if "cache" not in str(error):
            raise
        _log.info("Compiled code of %s is not cached: set NUMBA_CACHE_DIR to a writable folder.", function.__name__)
        return njit(parallel=parallel, nogil=True, error_model="numpy")(function)
