"""`--to-time` and `--to-mel`: the size of a spectrogram, as the size or length of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resize_pos.configs.read import config_sizes
from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.json_edit import Document
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Located, PositionTable

_NORM_OF_BINS = "init_bn."  # dasheng/train/models.py: a norm over the spectrogram
_FRAMES_PER_ROW = 2  # of Whisper: its second convolution has a step of two


def as_image_or_length(
    request: Request, located: Located, documents: Mapping[str, Document]
) -> Request:
    """Turn frames and mel bins into a size or a length; a side that is not given stays."""
    if request.to_time is None and request.to_mel is None:
        return request
    tables = [table for table in located.tables if table.family.audio]
    grids = [table for table in tables if table.role is Role.ABSOLUTE]
    plain = replace(request, to_time=None, to_mel=None)
    if grids:
        size = _spectrogram(grids, documents)
        time, mel = request.to_time, request.to_mel
        _require_same_bins(mel, size, located)
        return replace(plain, to_size=Size(mel or size.height, time or size.width))
    if any(left.family.audio for left in located.left_alone):
        time, mel = request.to_time or request.to_mel, request.to_mel or request.to_time
        assert time is not None and mel is not None  # a side that is not given decides nothing
        return replace(plain, to_size=Size(mel, time))
    if not tables:
        raise TableError(
            "--to-time, --to-mel: no table in this file belongs to a spectrogram.",
            hint="`resize-pos inspect` shows what there is.",
        )
    if request.to_mel is not None:
        raise TableError(
            f"--to-mel {request.to_mel}: the mel bins are the input channels of this model's first "
            "convolution; its tables do not depend on them."
        )
    assert request.to_time is not None
    if request.to_time % _FRAMES_PER_ROW:
        raise GeometryError(
            f"--to-time {request.to_time}: one row of {tables[0].name} stands for "
            f"{_FRAMES_PER_ROW} frames.",
            hint="pass an even number of frames.",
        )
    length = request.to_time // _FRAMES_PER_ROW
    return replace(plain, to_length=length, from_length=tables[0].length)


def _require_same_bins(mel: int | None, size: Size, located: Located) -> None:
    """Refuse other mel bins if a norm has one value for each (Dasheng): it cannot be resized."""
    if mel is None or mel == size.height:
        return
    for name, info in located.others.items():
        if _NORM_OF_BINS in name and info.shape == (size.height,):
            raise TableError(
                f"--to-mel {mel}: {name} has one value for each of {size.height} mel bins, so the "
                "model cannot take another number.",
                hint="pass --to-time alone.",
            )


def _spectrogram(tables: Sequence[PositionTable], documents: Mapping[str, Document]) -> Size:
    """Return the old size: what a config states, or the smallest that has these grids."""
    height = width = 1
    for table in tables:
        if table.tiling is None:
            raise GeometryError(
                f"{table.name}: the step from one patch to the next is not known.",
                hint="pass --from MELxTIME, for example --from 128x1024.",
            )
        for config in config_sizes(documents):
            if {"h", "w"} <= table.layout.axes and table.tiling.grid(config.size) == table.grid:
                return config.size
        pixels = table.tiling.pixels(Grid(table.grid.height, table.grid.width))
        height = max(height, pixels.height if "h" in table.layout.axes else 1)
        width = max(width, pixels.width if "w" in table.layout.axes else 1)
    return Size(height, width)
