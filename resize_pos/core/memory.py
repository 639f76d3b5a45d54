"""How much memory this process can still get."""

from __future__ import annotations

import os
import re
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_ENTRY = re.compile(r"^(MemAvailable|SwapFree):\s+(\d+) kB", re.M)


def available_memory() -> int | None:
    """Return the bytes that this process can still allocate; None if the system does not tell.

    The limits of the machine, of the process (`ulimit -v`) and of its container all count.
    """
    found = [
        limit for limit in (_of_machine(), _of_process(), _of_container()) if limit is not None
    ]
    return min(found, default=None)


def _of_machine() -> int | None:
    try:
        entries = _ENTRY.findall(_MEMINFO.read_text(encoding="ascii"))
        if entries:
            return sum(1024 * int(number) for _, number in entries)
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _of_process() -> int | None:
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _of_container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text(encoding="ascii").strip()
        used = (_CGROUP / "memory.current").read_text(encoding="ascii")
        return None if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return None
