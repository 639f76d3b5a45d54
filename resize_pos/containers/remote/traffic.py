"""How many requests a run made, and how many bytes it moved."""

from __future__ import annotations

import threading

from resize_pos.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests and bytes between this machine and stores."""

    requests: int = 0
    received: int = 0  # bytes of objects; headers of the protocol are not counted
    sent: int = 0
    copied: int = 0  # bytes that a store copied by itself
    notes: tuple[str, ...] = ()  # what was left out, or why bytes went through this machine

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(
            self.requests - earlier.requests,
            self.received - earlier.received,
            self.sent - earlier.sent,
            self.copied - earlier.copied,
            self.notes[len(earlier.notes) :],
        )

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.requests + other.requests,
            self.received + other.received,
            self.sent + other.sent,
            self.copied + other.copied,
            self.notes + other.notes,
        )


_lock = threading.Lock()
_total = Traffic()
_planned = 0
_here = threading.local()


def count_by_thread() -> None:
    """Let this thread count for itself, because others work for other jobs at the same time."""
    _here.total = Traffic()


def traffic() -> Traffic:
    """Return what this process has used so far, or this thread if it counts for itself."""
    own: Traffic | None = getattr(_here, "total", None)
    return _total if own is None else own


def plan_to_write(length: int) -> None:
    """Add to the bytes that this process is going to write."""
    global _planned
    with _lock:
        _planned += length


def planned() -> int:
    """Return how many bytes this process has begun to write."""
    return _planned


def count(
    requests: int = 0, *, received: int = 0, sent: int = 0, copied: int = 0, note: str = ""
) -> None:
    """Add to what this process has used."""
    global _total
    used = Traffic(requests, received, sent, copied, (note,) if note else ())
    with _lock:
        _total += used
    own: Traffic | None = getattr(_here, "total", None)
    if own is not None:
        _here.total = own + used
