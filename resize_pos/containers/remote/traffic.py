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
    notes: tuple[str, ...] = ()  # why bytes went through this machine

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(
            self.requests - earlier.requests,
            self.received - earlier.received,
            self.sent - earlier.sent,
            self.copied - earlier.copied,
            self.notes[len(earlier.notes) :],
        )


_lock = threading.Lock()
_total = Traffic()


def traffic() -> Traffic:
    """Return what this process has used so far."""
    return _total


def count(
    requests: int = 0, *, received: int = 0, sent: int = 0, copied: int = 0, note: str = ""
) -> None:
    """Add to what this process has used."""
    global _total
    with _lock:
        _total = Traffic(
            _total.requests + requests,
            _total.received + received,
            _total.sent + sent,
            _total.copied + copied,
            (*_total.notes, note) if note else _total.notes,
        )
