"""Sizes in bytes as users write them, and how much memory is free."""

import re
import sys
from pathlib import Path

from spatialpdvi.errors import InputError

__all__ = ["free_memory", "parse_size", "peak_memory", "show_size"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def parse_size(text: str, option: str) -> int:
    """Bytes of "8GB", "500 MB", "2GiB" or a plain number."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(|[KMGT]I?)B?\s*", text.upper())
    if found is None or float(found[1]) == 0.0:
        msg = f"Expected `{option}` to be a size such as 8GB or 500MB, found {text!r}."
        raise InputError(msg)
    return int(float(found[1]) * _UNITS[found[2]])


def show_size(n_bytes: float) -> str:
    """Bytes as a person says them: 1.3 GB, 250 MB."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.0f} MB"


def peak_memory() -> int:
    """Bytes that this process held at the most.

    Linux hands the number that `getrusage` tells on to what a process starts, so that a small one would show the peak
    of the large one that started it; the kernel's own file of the process begins anew.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), flags=re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    import resource

    # in bytes on macOS, in KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory() -> int:
    """Bytes that can be had without swapping."""
    import psutil

    return int(psutil.virtual_memory().available)
