"""Draw what the measures see: for each, a sound resize beside one that was botched.

`python -m benchmarks.pictures` writes the pictures to docs/artifacts/ and their table into
docs/artifacts.md. Every picture is a similarity map: the cosine of one cell with all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks.damage import DAMAGE, Table, honest
from resize_pos.quality.measures.table import measure_grid
from resize_pos.quality.pictures import Map, similarity_map
from resize_pos.report.colours import COSINES, VIRIDIS
from resize_pos.report.png import encode_map

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "artifacts"
PAGE = ROOT / "docs" / "artifacts.md"
BEGIN, END = "<!-- pictures: begin -->", "<!-- pictures: end -->"
SAMPLE = ROOT / "sample_checkpoints" / "digits_vit_224.safetensors"
PREFIX, SOURCE, TARGET = 1, (14, 14), (20, 28)
PLACE = (0.35, 0.4)  # of the cell that is compared with all others
SCALE, GAP = 6, 2  # pixels per cell; cells between the two maps

# Measure → the damage that it is there for, and that in words.
SHOWN: Mapping[str, tuple[str, str]] = {
    "norm_ratio": ("halved", "all values were halved; the map looks sound, the norms do not"),
    "norm_change": ("doubled", "all values were doubled"),
    "norm_ratio_p1": ("padded", "the old rows were kept, the missing ones are zero"),
    "norm_ratio_p99": ("noisy", "noise made some cells twice as long"),
    "norm_ratio_interior": ("doubled", "all values were doubled, inside"),
    "norm_ratio_edge": ("padded", "the same, seen at the edge"),
    "norm_ratio_corner": ("padded", "the same, seen in the corners"),
    "norm_sampled": ("halved", "all values were halved, seen on a sample of cells"),
    "gain": ("doubled", "the sound result, times two"),
    "misplaced": ("mirrored", "left and right were exchanged"),
    "affine_cross": ("transposed", "rows and columns were exchanged"),
    "affine_scale_w": ("cropped", "only the top left of the old grid was stretched"),
    "affine_scale_h": ("swapped", "rows and columns were exchanged, seen on the rows"),
    "affine_shift_h": ("cropped", "the top left was stretched, so every cell moved up"),
    "affine_shift_w": ("prefix_as_cell", "the class token was read as the first cell"),
    "affine_residual": ("shuffled", "no straight fit explains where the cells went"),
    "displacement": ("tiled", "the old grid was repeated instead of stretched"),
    "structure": ("one_d", "the rows were interpolated as one long line"),
    "foreign_cells": ("truncated", "the old rows were kept, the missing ones drawn at random"),
    "foreign_channels": ("tiled", "every channel repeats instead of growing"),
    "mean_shift": ("cropped", "the top left has another mean than the whole"),
    "channel_mean_drift": ("cropped", "the same, measured in each channel"),
    "lost_cells": ("constant", "no cell resembles a cell of the source"),
    "best_cosine": ("reinitialised", "the whole table was drawn at random"),
    "neighbour_deficit": ("noisy", "noise of the table's own size was added"),
    "neighbour_cosine": ("shuffled", "neighbours have nothing in common"),
    "imaging": ("reinitialised_whole", "random cells have details that the source cannot have"),
    "overshoot": ("doubled", "doubled values leave the range of their channel"),
    "overshoot_worst": ("noisy", "noise leaves the range by far"),
    "unlikeness": ("shuffled", "the cells were put into a random order"),
    "channel_std_drift": ("doubled", "every channel varies twice as much"),
    "channel_std_ratio": ("constant", "every cell holds the mean of all cells"),
}


def tables() -> tuple[Table, Table]:
    """Return the sample's table and a sound resize of it."""
    source: Table = load_file(SAMPLE)["pos_embed"][0]
    return source, honest(source, PREFIX, SOURCE, TARGET)


def grid(table: Table, shape: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the cells of a table without its prefix."""
    return table[PREFIX:].reshape(1, *shape, -1).astype(np.float64)


def values(source: Table, made: Table) -> Mapping[str, float]:
    """Measure one result."""
    with np.errstate(all="ignore"):
        return measure_grid(grid(source, SOURCE), grid(made, TARGET), None).values


def picture(fine: Table, broken: Table) -> bytes:
    """Draw both maps beside each other."""
    with np.errstate(all="ignore"):
        maps = [similarity_map(grid(made, TARGET), *PLACE).values for made in (fine, broken)]
    rows = [(*left, *[-1.0] * GAP, *right) for left, right in zip(*maps, strict=True)]
    finite = [[value if np.isfinite(value) else 0.0 for value in row] for row in rows]
    enlarged: Map = tuple(
        tuple(value for value in row for _ in range(SCALE)) for row in finite for _ in range(SCALE)
    )
    return encode_map(enlarged, COSINES, VIRIDIS)


def rows() -> Iterator[tuple[str, bytes, str]]:
    """Return each measure with its picture and its line of the table."""
    source, fine = tables()
    sound = values(source, fine)
    for measure, (name, words) in SHOWN.items():
        broken = DAMAGE[name](source, PREFIX, SOURCE, TARGET)
        damaged = values(source, broken).get(measure, float("nan"))
        image = f"![{measure}: fine, then broken](artifacts/{measure}.png)"
        numbers = f"{sound[measure]:.2f} | {damaged:.2f}"
        yield measure, picture(fine, broken), f"| `{measure}` | {image} | {words} | {numbers} |"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
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
