"""Draw what the measures see: for each, a fine case beside a broken one.

`python -m benchmarks.pictures` writes the pictures to docs/artifacts/ and their table into
docs/artifacts.md. Most are similarity maps: the cosine of one cell with all others. The other
pairs come from `picture_scenes.py` and `picture_operations.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.picture_operations import OTHER_SCENES
from benchmarks.picture_scenes import (
    PREFIX,
    SCENES,
    SOURCE,
    TARGET,
    Scene,
    Side,
    Wide,
    cells,
    norms,
    scene,
    similarity,
    source,
)
from benchmarks.ways.damage import DAMAGE, Table, honest
from resize_pos.quality.measures.catalogue import MEASURES
from resize_pos.quality.measures.table import measure_grid
from resize_pos.quality.pictures import Map
from resize_pos.report.colours import COSINES, VIRIDIS
from resize_pos.report.png import encode_map

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "artifacts"
PAGE = ROOT / "docs" / "artifacts.md"
BEGIN, END = "<!-- pictures: begin -->", "<!-- pictures: end -->"
WIDTH, HEIGHT, GAP = 168, 120, 12  # pixels of one side, and between both

# Measure → the damage that it is there for, and that in words.
SHOWN: Mapping[str, tuple[str, str]] = {
    "norm_ratio": ("halved", "all values were halved"),
    "norm_change": ("doubled", "all values were doubled"),
    "norm_ratio_p1": ("padded", "the old rows were kept, the missing ones are zero"),
    "norm_ratio_p99": ("noisy", "noise made some cells twice as long"),
    "norm_ratio_interior": ("doubled", "all values were doubled; seen inside"),
    "norm_ratio_edge": ("padded", "the missing rows are zero; seen at the edge"),
    "norm_ratio_corner": ("padded", "the missing rows are zero; seen in the corners"),
    "norm_sampled": ("halved", "all values were halved; seen on a sample of cells"),
    "gain": ("doubled", "the sound result, times two"),
    "overshoot": ("doubled", "doubled values leave the range of their channel"),
    "overshoot_worst": ("noisy", "noise leaves the range by far"),
    "channel_std_drift": ("doubled", "every channel varies twice as much"),
    "misplaced": ("mirrored", "left and right were exchanged"),
    "affine_cross": ("transposed", "rows and columns were exchanged"),
    "affine_scale_w": ("cropped", "only the top left of the old grid was stretched"),
    "affine_scale_h": ("swapped", "rows and columns were exchanged; seen on the rows"),
    "affine_shift_h": ("cropped", "the top left was stretched, so every cell moved up"),
    "affine_shift_w": ("prefix_as_cell", "the class token was read as the first cell"),
    "affine_residual": ("shuffled", "no straight fit explains where the cells went"),
    "displacement": ("tiled", "the old grid was repeated instead of stretched"),
    "structure": ("one_d", "the rows were interpolated as one long line"),
    "foreign_cells": ("truncated", "the old rows were kept, the missing ones drawn at random"),
    "foreign_channels": ("tiled", "every channel repeats instead of growing"),
    "mean_shift": ("cropped", "the top left has another mean than the whole"),
    "channel_mean_drift": ("cropped", "the top left has another mean; seen in each channel"),
    "lost_cells": ("constant", "no cell resembles a cell of the source"),
    "best_cosine": ("reinitialised", "the whole table was drawn at random"),
    "neighbour_deficit": ("noisy", "noise of the table's own size was added"),
    "neighbour_cosine": ("shuffled", "neighbours have nothing in common"),
    "imaging": ("reinitialised_whole", "random cells have details that the source cannot have"),
    "unlikeness": ("shuffled", "the cells were put into a random order"),
    "channel_std_ratio": ("constant", "every cell holds the mean of all cells"),
}

# Similarity ignores the length of a vector, so for these measures the lengths are drawn.
LENGTHS = ("norm_", "gain", "overshoot", "channel_std_drift")


def _side(made: Table, lengths: bool) -> Side:
    grid = cells(made, TARGET)
    with np.errstate(all="ignore"):
        values = measure_grid(cells(source(), SOURCE), grid, None).values
    return Side(norms(grid) if lengths else similarity(grid), values)


@cache
def scene_of(measure: str) -> tuple[Scene, str]:
    """Return the pair of a measure, and what broke the second."""
    found = SCENES.get(measure) or OTHER_SCENES.get(measure)
    if found is not None:
        return found[0](), found[1]
    damage, words = SHOWN[measure]
    lengths = measure.startswith(LENGTHS)
    made = (each(source(), PREFIX, SOURCE, TARGET) for each in (honest, DAMAGE[damage]))
    fine, broken = (_side(table, lengths) for table in made)
    return scene((fine, broken), None if lengths else COSINES), words


def picture(pair: Scene) -> bytes:
    """Draw both sides beside each other; maps of any size fill the same space."""
    gap = np.full((HEIGHT, GAP), pair.scale.low)
    joined = np.concatenate([_fitted(pair.fine.drawn), gap, _fitted(pair.broken.drawn)], axis=1)
    pixels: Map = tuple(tuple(map(float, row)) for row in joined)
    return encode_map(pixels, pair.scale, VIRIDIS)


def _fitted(drawn: Wide) -> Wide:
    rows = np.arange(HEIGHT) * drawn.shape[0] // HEIGHT
    columns = np.arange(WIDTH) * drawn.shape[1] // WIDTH
    fitted: Wide = drawn[rows][:, columns]
    return fitted


def rows() -> Iterator[tuple[str, bytes, str]]:
    """Return each measure with its picture and its line of the table."""
    for measure in MEASURES:
        pair, words = scene_of(measure)
        image = f"![{measure}: fine, then broken](artifacts/{measure}.png)"
        fine, broken = (_number(side.values[measure]) for side in (pair.fine, pair.broken))
        line = f"| `{measure}` | {image} | {words} | {fine} | {broken} |"
        yield measure, picture(pair), line


def _number(value: float) -> str:
    return f"{value + 0.0:.0f}" if abs(value) >= 100 else f"{round(value, 2) + 0.0:.2f}"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.png"):
        old.unlink()
    lines = ["| measure | fine, broken | what broke it | fine | broken |", "|---|---|---|--:|--:|"]
    for measure, image, line in rows():
        (FOLDER / f"{measure}.png").write_bytes(image)
        lines.append(line)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    text = "\n".join(lines)
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
