"""Draw the sample's table after a right resize beside a botched one: docs/right_and_wrong.png.

    python sample_checkpoints/draw_maps.py [FILE]

Each map shows how similar the cell in the middle is to every other cell.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from resize_pos import resize_table
from resize_pos.containers.detect import open_container
from resize_pos.quality.pictures import Map, similarity_map
from resize_pos.report.colours import COSINES, VIRIDIS
from resize_pos.report.png import encode_map

FOLDER = Path(__file__).resolve().parent
TARGET = FOLDER.parent / "docs" / "right_and_wrong.png"
OLD, NEW = 14, 24
PIXELS, GAP = 8, 24  # per cell, and between the maps
PLACE = (0.5, 0.5)


def right(table: NDArray[np.float32]) -> NDArray[np.float64]:
    """Resample the rows as a grid, as `resize-pos` does."""
    made = resize_table(table, OLD, NEW, prefix=1)
    return made[0, 1:].reshape(NEW, NEW, -1).astype(np.float64)


def wrong(table: NDArray[np.float32]) -> NDArray[np.float64]:
    """Resample the rows as if they were one long line."""
    rows = table[0, 1:].astype(np.float64)
    at = np.linspace(0, len(rows) - 1, NEW * NEW)
    columns = [np.interp(at, np.arange(len(rows)), column) for column in rows.T]
    return np.stack(columns, axis=1).reshape(NEW, NEW, -1)


def picture() -> bytes:
    """Return the PNG: the right map, a gap, the wrong map."""
    source = open_container(FOLDER / "digits_vit_224.safetensors")
    table = source.read("pos_embed")
    maps = [
        np.asarray(similarity_map(grid[None], *PLACE).values).repeat(PIXELS, 0).repeat(PIXELS, 1)
        for grid in (right(table), wrong(table))
    ]
    gap = np.full((NEW * PIXELS, GAP), np.nan)
    whole = np.concatenate([maps[0], gap, maps[1]], axis=1)
    values: Map = tuple(tuple(2.0 if np.isnan(v) else min(v, 0.99) for v in row) for row in whole)
    ramp = (*VIRIDIS[:-1], (255, 255, 255))  # the last colour is the gap's
    return encode_map(values, COSINES, ramp)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.write_bytes(picture())
