"""Pairs of a fine and a broken case, for the measures that one similarity map cannot show.

Each scene has two sides. A side is a map to draw, and the values that the package measures there.
`pictures.py` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from benchmarks.ways.damage import DAMAGE, Table, honest
from resize_pos.core.conventions import CONVENTIONS, DEFAULT, Coordinates, Resampling
from resize_pos.core.geometry import Grid
from resize_pos.core.tensors import numpy_dtype
from resize_pos.quality.measures import energy
from resize_pos.quality.measures.attention import Weights, attentions, by_head, measure_attention
from resize_pos.quality.measures.place import lattices
from resize_pos.quality.measures.table import measure_grid
from resize_pos.quality.pictures import similarity_map
from resize_pos.report.colours import COSINES, Scale
from resize_pos.transforms.absolute import resize_grid, round_once
from resize_pos.transforms.tiled import tile

Wide = NDArray[np.float64]
Shape = tuple[int, int]

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "sample_checkpoints" / "digits_vit_224.safetensors"
PREFIX, SOURCE, TARGET = 1, (14, 14), (20, 28)
SMALL = (5, 6)  # a grid that is much smaller than the source
PLACE = (0.35, 0.4)  # of the cell that is compared with all others
PLAIN = CONVENTIONS["hf"].resampling


@dataclass(frozen=True)
class Side:
    """One half of a picture."""

    drawn: Wide
    values: Mapping[str, float]


@dataclass(frozen=True)
class Scene:
    """A fine and a broken case of the same thing."""

    fine: Side
    broken: Side
    scale: Scale


def weights() -> Mapping[str, Table]:
    """Return the tensors of the sample."""
    tensors: Mapping[str, Table] = load_file(SAMPLE)
    return tensors


def source() -> Table:
    """Return the sample's table."""
    table: Table = weights()["pos_embed"][0]
    return table


def noise(shape: tuple[int, ...]) -> Wide:
    """Return what an untrained table holds."""
    return np.random.default_rng(0).normal(0, 0.02, shape)


def cells(table: Table, shape: Shape) -> Wide:
    """Return the cells of a table without its prefix."""
    return table[PREFIX:].reshape(1, *shape, -1).astype(np.float64)


def similarity(grid: Wide) -> Wide:
    """Compare one cell with all others."""
    with np.errstate(all="ignore"):
        cosines: Wide = np.nan_to_num(np.array(similarity_map(grid, *PLACE).values))
    return cosines


def norms(grid: Wide) -> Wide:
    """Return the length of each cell's vector."""
    lengths: Wide = energy.norm_map(grid).mean(axis=0)
    return lengths


def _around(*maps: Wide) -> Scale:
    return Scale.around(float(value) for each in maps for value in each.ravel())


def scene(sides: Iterable[Side], scale: Scale | None = None) -> Scene:
    """Put two sides together; without a scale, the colours cover the values of both."""
    fine, broken = sides
    return Scene(fine, broken, scale or _around(fine.drawn, broken.drawn))


def _grids(before: Wide, shape: Shape, how: Resampling, shown: Callable[[Wide], Wide]) -> Side:
    after = resize_grid(before, Grid(*shape), how)
    return Side(shown(after), measure_grid(before, after, how).values)


def first_rows(damage: str) -> Scene:
    """Draw the prefix row and the first cells, one line a row, one column a channel."""
    table = source()
    sides = []
    for made in (honest(table, PREFIX, SOURCE, TARGET), DAMAGE[damage](table, 1, SOURCE, TARGET)):
        values = {
            "prefix_change": energy.prefix_change(table[:PREFIX], made[:PREFIX]),
            "prefix_to_grid_after": energy.prefix_to_grid(made[:PREFIX], cells(made, TARGET)),
        }
        sides.append(Side(np.repeat(made[:5].astype(np.float64), 3, axis=0), values))
    return scene(sides)


def first_rows_of_sources() -> Scene:
    """Draw the same for the source, and for one whose class token was overwritten by zeros."""
    sides = []
    for row in (source()[:PREFIX], np.zeros_like(source()[:PREFIX])):
        grid = cells(source(), SOURCE)
        drawn = np.concatenate([row, source()[PREFIX:5]]).astype(np.float64)
        values = {"prefix_to_grid_before": energy.prefix_to_grid(row, grid)}
        sides.append(Side(np.repeat(drawn, 3, axis=0), values))
    return scene(sides)


def round_trips() -> Scene:
    """Draw what comes back to the source grid, from a larger grid and from a small one."""
    before = cells(source(), SOURCE)

    def back(after: Wide) -> Wide:
        return similarity(resize_grid(after, Grid(*SOURCE), DEFAULT.resampling))

    fine, broken = (_grids(before, shape, DEFAULT.resampling, back) for shape in (TARGET, SMALL))
    return scene((fine, broken), COSINES)


def borders() -> Scene:
    """Mark the rows and columns beyond the source's outermost centres."""
    before, shape = cells(source(), SOURCE), (28, 56)
    sides = []
    for how in (CONVENTIONS["torchvision"].resampling, DEFAULT.resampling):
        outside = []
        for old, new in zip(SOURCE, shape, strict=True):
            corners = how.coordinates is Coordinates.CORNERS
            step = (old - 1) / (new - 1) if corners else old / new
            place = np.arange(new) * step + (0.0 if corners else (step - 1) / 2)
            outside.append((place < -1e-9) | (place > old - 1 + 1e-9))
        marked = outside[0][:, None] | outside[1][None, :]
        after = resize_grid(before, Grid(*shape), how)
        sides.append(Side(marked.astype(np.float64), measure_grid(before, after, how).values))
    return scene(sides, Scale(0.0, 1.0))


def stored(dtypes: tuple[str, str] = ("F32", "F8_E5M2")) -> Scene:
    """Draw the error of each cell that rounding to the stored dtype leaves."""
    before, how = cells(source(), SOURCE), DEFAULT.resampling
    exact = resize_grid(before, Grid(*TARGET), how)
    sides = []
    for dtype in dtypes:
        kept = round_once(exact, numpy_dtype(dtype)).astype(np.float64)
        error = np.linalg.norm(kept - exact, axis=-1)[0] / np.linalg.norm(exact, axis=-1)[0]
        sides.append(Side(error.astype(np.float64), measure_grid(before, kept, how).values))
    return scene(sides)


def sources(shape: Shape = TARGET, how: Resampling = DEFAULT.resampling) -> Scene:
    """Draw the trained source beside an untrained one; both are resized alike."""
    trained, untrained = cells(source(), SOURCE), noise((1, *SOURCE, 48))
    sides = []
    for before in (trained, untrained):
        after = resize_grid(before, Grid(*shape), how)
        sides.append(Side(similarity(before), measure_grid(before, after, how).values))
    return scene(sides, COSINES)


def kernels_disagree(
    rough: Callable[[], Wide], target: Shape = (7, 5), shown: Callable[[Wide], Wide] = similarity
) -> Scene:
    """Draw the trained source beside one on which proper kernels differ; both shrink."""
    sides = []
    for before in (cells(source(), SOURCE), rough()):
        after = resize_grid(before, Grid(*target), DEFAULT.resampling)
        sides.append(Side(shown(before), measure_grid(before, after, None).values))
    return scene(sides, COSINES if shown is similarity else None)


def relative_lengths(grid: Wide) -> Wide:
    """Return the length of each cell's vector against their mean."""
    lengths = norms(grid)
    relative: Wide = lengths / lengths.mean()
    return relative


def checkerboard() -> Wide:
    """Make a table whose neighbours are opposites."""
    signs = 1 - 2 * (np.indices((28, 20)).sum(axis=0) % 2)
    table: Wide = signs[None, :, :, None] + noise((1, 28, 20, 48))
    return table


def spikes() -> Wide:
    """Make a table in which every fourth cell of each row and column is ten times as long."""
    table = noise((1, 28, 20, 48))
    table[:, 2::4, 2::4] *= 10
    return table


def sizes() -> Scene:
    """Draw a result of many cells, and one of few."""
    before = cells(source(), SOURCE)
    sides = [_grids(before, shape, DEFAULT.resampling, similarity) for shape in (TARGET, (2, 3))]
    return scene(sides, COSINES)


def shrunk() -> Scene:
    """Draw an untrained table on a small grid, by a kernel with and one without antialiasing."""
    before = noise((1, *SOURCE, 48))
    fine, broken = (_grids(before, (6, 9), how, similarity) for how in (DEFAULT.resampling, PLAIN))
    return scene((fine, broken), COSINES)


def windows_in_the_source() -> Scene:
    """Draw the sample, and the same with a window of 7×7 cells that repeats."""
    plain = np.concatenate([cells(source(), SOURCE)] * 2, axis=2)
    windowed = plain + 50 * tile(noise((1, 7, 7, 48)), Grid(14, 28))
    sides = [
        Side(similarity(each), measure_grid(each, each, None).values) for each in (plain, windowed)
    ]
    return scene(sides, COSINES)


def attention_maps(damage: str) -> Scene:
    """Draw where the middle place attends to, from positions alone."""
    table = source()
    made = [honest(table, PREFIX, SOURCE, TARGET), DAMAGE[damage](table, PREFIX, SOURCE, TARGET)]
    return _attention([(cells(table, SOURCE), cells(each, TARGET)) for each in made])


def attentions_of_sources() -> Scene:
    """Draw the same for the source, and for one whose values are a tenth."""
    table = cells(source(), SOURCE)
    flat = table.copy()
    flat[:] = table.mean(axis=(1, 2), keepdims=True) + (table - table.mean(axis=(1, 2))) * 0.1
    return _attention([(table, table), (flat, flat)])


def _attention(pairs: list[tuple[Wide, Wide]]) -> Scene:
    tensors = weights()
    query, key, _ = np.split(tensors["blocks.0.attn.qkv.weight"], 3)
    first = Weights(tensors["blocks.0.norm1.weight"], by_head(query), by_head(key))
    sides = []
    for before, after in pairs:
        old, new = lattices(before, after, 7)
        sigma = float(np.sqrt(np.mean((old - old.mean(axis=1, keepdims=True)) ** 2)))
        drawn = attentions([new / sigma], first)[0][0][24].reshape(7, 7)
        sides.append(Side(drawn, measure_attention(before, after, first)))
    return scene(sides)


# Measure → its scene, and what broke it.
SCENES: Mapping[str, tuple[Callable[[], Scene], str]] = {
    "prefix_change": (
        partial(first_rows, "prefix_dropped"),
        "the first line is the class token's row; a cell stands in its place",
    ),
    "prefix_to_grid_before": (
        first_rows_of_sources,
        "the class token's row of the source is zero",
    ),
    "prefix_to_grid_after": (
        partial(first_rows, "doubled"),
        "all cells were doubled, the class token's row was not",
    ),
    "round_trip": (round_trips, "resized to 5×6 and back to 14×14"),
    "round_trip_best": (round_trips, "the same; no linear way back recovers it"),
    "clamped_rows": (
        borders,
        "rows beyond the outermost centres of the source repeat its border; "
        "with aligned corners there are none",
    ),
    "clamped_columns": (borders, "the same for columns"),
    "rounding": (stored, "stored as float8 (e5m2): the error of each cell"),
    "rounding_share": (stored, "the same, against the distance between libraries"),
    "neighbour_cosine_source": (sources, "the source was never trained"),
    "fewest_cells": (sizes, "a result of 2×3 cells is too small for most checks"),
    "unlikeness_honest": (
        partial(kernels_disagree, checkerboard),
        "neighbours in the source are opposites, so proper kernels disagree",
    ),
    "misplaced_honest": (
        partial(kernels_disagree, checkerboard, (9, 12)),
        "neighbours are opposites, on another grid",
    ),
    "foreign_cells_honest": (
        partial(kernels_disagree, checkerboard, (9, 12)),
        "the same",
    ),
    "foreign_channels_honest": (
        partial(kernels_disagree, checkerboard),
        "neighbours are opposites",
    ),
    "mean_shift_honest": (partial(kernels_disagree, checkerboard), "neighbours are opposites"),
    "norm_honest_low": (partial(sources, SMALL), "an untrained table that shrinks averages out"),
    "norm_honest_high": (
        partial(kernels_disagree, spikes, shown=relative_lengths),
        "a few cells are ten times as long, and some kernels pick only these",
    ),
    "aliasing": (shrunk, "a rough table was reduced without antialiasing"),
    "beyond_target": (
        partial(sources, SMALL),
        "an untrained table has details that a small grid cannot hold",
    ),
    "window_period": (windows_in_the_source, "windows of 7×7 cells repeat in the source"),
    "window_prominence": (windows_in_the_source, "the same"),
    "attention_drift": (
        partial(attention_maps, "shuffled"),
        "where the middle attends to; the cells were put into a random order",
    ),
    "attention_entropy_before": (
        attentions_of_sources,
        "the positions of the source differ too little to attend to one place",
    ),
    "attention_entropy_after": (
        partial(attention_maps, "doubled"),
        "all values were doubled, so attention is too sharp",
    ),
}
