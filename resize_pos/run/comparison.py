"""Put versions of the same tables side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from resize_pos.containers.metering import Meter
from resize_pos.containers.sources import open_source
from resize_pos.core.request import Request
from resize_pos.verify.compare import Comparison, compare_conventions, compare_files


def compare(paths: Sequence[Path], request: Request) -> Comparison:
    """Compare several files, or what every convention makes of one source."""
    metered = Meter.of(*paths)
    containers = [open_source(path) for path in paths]
    if len(containers) == 1 and request.to_image:
        compared = compare_conventions(containers[0], request)
    else:
        compared = compare_files(containers, request)
    return replace(compared, traffic=metered.used())
