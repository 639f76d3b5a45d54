"""How much memory this process can still get."""

from __future__ import annotations

import os
import re
from pathlib import Path

from resize_pos.core.lazy_regex import lazy_regex

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = (  # of a control group, versions 2 and 1: the limit, what is used of it, and details
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
# Blocks of at least so many bytes are given back to the system when they are freed.
_GIVEN_BACK = 1 << 18
_M_MMAP_THRESHOLD = -3  # the parameter's number in glibc's malloc.h
_CACHE = lazy_regex(r"^(?:in)?active_file (\d+)$", re.M)
_ENTRY = lazy_regex(r"^(MemAvailable|SwapFree):\s+(\d+) kB", re.M)


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
    """Return what the control group leaves; version 1 writes a huge number for "no limit"."""
    for names in _LIMITS:
        try:
            limit, used, stat = ((_CGROUP / name).read_text(encoding="ascii") for name in names)
            if limit.strip() == "max":
                return None
            cache = sum(map(int, _CACHE.findall(stat)))  # of files: given back when needed
            return max(0, int(limit) - int(used) + cache)
        except (OSError, ValueError):
            continue
    return None


def give_back_freed_memory() -> None:
    """Ask the C library to return large blocks to the system as soon as they are freed.

    glibc raises its own limit for this with every large block that is freed, and keeps a pool for
    each thread. A conversion in a store reads, computes and sends in several threads: without
    this, a quarter of its memory is blocks that nobody uses. Other C libraries have no such call.
    """
    import ctypes

    try:
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _GIVEN_BACK)
    except (OSError, AttributeError, TypeError):  # Windows has no library without a name
        return
