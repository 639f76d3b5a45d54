"""Put versions of the same tables side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from resize_pos.containers.sources import open_source
from resize_pos.core.request import Request
from resize_pos.verify.compare import Comparison, compare_conventions, compare_files


def compare(paths: Sequence[Path], request: Request) -> Comparison:
    """Compare several files, or what every convention makes of one source."""
    containers = [open_source(path) for path in paths]
    if len(containers) == 1 and request.to_image:
        return compare_conventions(containers[0], request)
    return compare_files(containers, request)
