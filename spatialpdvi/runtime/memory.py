"""Memory: sizes as users write them, free memory, and the peak of this process."""

import re
import sys
import warnings
from pathlib import Path

from spatialpdvi.errors import InputError, InputWarning, option

__all__ = [
    "FIXED_BYTES",
    "SPOT_BYTES",
    "fit_bytes",
    "free_memory",
    "memory_limit",
    "parse_size",
    "peak_memory",
    "show_size",
    "warn_of_limit",
]

FIXED_BYTES = 500_000_000  # that any fit takes: libraries and a few blocks of counts
SPOT_BYTES = 1_500  # that a fit takes for each spot besides: features, posteriors, edges
_VALUE_BYTES = 8  # that it takes for each value of the selected genes, where these are in memory

_LEAST = 1_000_000_000  # bytes that a fit may take under any limit

_LEAST_MEGABYTES = 1000  # below it, a number without a unit is more likely one of gigabytes
_FEWEST = 1_000_000  # bytes, below which a number without a unit was meant to have one
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def fit_bytes(n_spots: int, n_values: int = 0) -> int:
    """Return what a fit takes beside its counts, with so many values of the selected genes in memory."""
    return FIXED_BYTES + SPOT_BYTES * n_spots + _VALUE_BYTES * n_values


def parse_size(text: str) -> int:
    """Return the bytes of the option ``memory``: "8GB", "500 MB", "2GiB" or a plain number of at least a million.

    Raises
    ------
    InputError
        Where the text is no size, is less than a byte, or has no unit and is less than a megabyte.
    """
    known = text if isinstance(text, str) else ""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*((?:|[KMGT]I?)B?)\s*", known.upper())
    size = 0 if found is None else int(float(found[1]) * _UNITS[found[2].removesuffix("B")])
    if size == 0:
        raise InputError("a size such as 8GB or 500MB", repr(text), option="memory")
    if found is not None and not found[2] and size < _FEWEST:
        unit = "GB" if size < _LEAST_MEGABYTES else "MB"  # SLURM counts memory in megabytes
        advice = f"Give the unit as well, {found[1] + unit!r} for example."
        raise InputError("a size such as 8GB or 500MB", f"{text!r}, which is {size:,} bytes", advice, option="memory")
    return size


def show_size(n_bytes: float) -> str:
    """Return a number of bytes in words: 1.3 GB, 250 MB, 0.2 MB."""
    if n_bytes >= 1e9:
        return f"{n_bytes / 1e9:.1f} GB"
    return f"{n_bytes / 1e6:.{0 if n_bytes >= 1e7 else 1}f} MB"


def peak_memory() -> int:
    """Return the largest number of bytes that this process has used so far.

    On Linux, a process inherits the peak that `getrusage` reports from the process that started it. The kernel's status
    file starts at zero, and is read where it exists.
    """
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), flags=re.MULTILINE)
        if found is not None:
            return int(found[1]) * 1024
    import resource

    # macOS reports bytes, other systems KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def free_memory() -> int:
    """Return the number of bytes that can be allocated without swapping, within the limit of a container or a job."""
    import psutil

    return int(min([psutil.virtual_memory().available, *_left_in_groups(Path("/")), *_left_of_addresses()]))


def _left_of_addresses() -> list[int]:
    """The bytes that are left of the address space, which `ulimit -v` and some schedulers (h_vmem) limit."""
    import resource

    import psutil

    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return [] if most == resource.RLIM_INFINITY else [max(0, most - psutil.Process().memory_info().vms)]


def _left_in_groups(root: Path) -> list[int]:
    """The bytes that are left of each limit on the control groups of this process; there are none outside Linux.

    A limit on a group holds for all groups within it.
    """
    left = []
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in groups:  # "0::/group" in version 2, "5:memory,cpu:/group" in version 1
        _, kinds, group = line.split(":", 2)
        if kinds and "memory" not in kinds.split(","):
            continue
        top, names, cached = root / "sys/fs/cgroup", ("memory.max", "memory.current"), "inactive_file"
        if kinds:
            top, names = top / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
            cached = "total_inactive_file"
        own = top / group.lstrip("/")
        for folder in (own, *(parent for parent in own.parents if parent.is_relative_to(top))):
            try:
                limit, used = (int((folder / name).read_text()) for name in names)
                found = re.search(rf"^{cached} (\d+)$", (folder / "memory.stat").read_text(), flags=re.MULTILINE)
            except (OSError, ValueError):
                continue  # there is no limit, or no such group, as in a container that sees its own at the top
            # what the system remembers of files counts as used, and is given up where memory is wanted
            left.append(max(0, limit - used + (0 if found is None else int(found[1]))))
    return left


def memory_limit(memory: str | None) -> int:
    """Return the bytes that the option ``memory`` allows; without it, those that are free."""
    return free_memory() if memory is None else parse_size(memory)


def warn_of_limit(needed: float, memory: str | None, what: str, advice: str) -> None:
    """Warn where a fit needs more bytes than the option ``memory`` allows; nobody is warned of less than 1 GB."""
    if memory is not None and needed > max(parse_size(memory), _LEAST):
        text = f"{what} takes about {show_size(needed)}, more than {option('memory', memory)}. {advice}"
        warnings.warn(InputWarning(text), stacklevel=3)
