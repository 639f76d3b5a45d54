"""Requests and bytes of a run in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resize_pos.core.printable import human_size

if TYPE_CHECKING:
    from resize_pos.containers.remote.traffic import Traffic


def traffic_words(used: Traffic) -> str:
    """Say how many requests were made, and how many bytes were moved."""
    words = [f"{used.requests} requests", f"{human_size(used.received)} received"]
    words += [f"{human_size(used.sent)} sent"] if used.sent else []
    words += [f"{human_size(used.copied)} copied by the store itself"] if used.copied else []
    return ", ".join(words)
