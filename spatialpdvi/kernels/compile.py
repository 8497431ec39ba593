"""How every kernel is compiled: cached on disk where there is a place for it, and never failing for want of one."""

import logging
from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["compiled"]

_log = logging.getLogger("spatialpdvi")


def compiled(function: Callable[..., Any], *, parallel: bool = False) -> Callable[..., Any]:
    """Compile a kernel on its first call; it lets other threads run meanwhile.

    ``error_model="numpy"``: a division by zero gives infinity as in NumPy, and loops need no check that keeps them
    from vectorising. The compiled code is kept beside the source or in the user's cache folder; where neither can be
    written (a container, a node without a home) it is compiled anew in every process, which is said once a kernel.
    """
    try:
        return njit(cache=True, parallel=parallel, nogil=True, error_model="numpy")(function)
    except RuntimeError as error:  # numba: no locator available
        if "cache" not in str(error):
            raise
        _log.info("compiled code of %s is not kept: set NUMBA_CACHE_DIR to a writable folder", function.__name__)
        return njit(parallel=parallel, nogil=True, error_model="numpy")(function)
