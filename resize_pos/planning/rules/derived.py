"""Buffers that are computed from the geometry of other tables: indexes, masks, ids, scalars.

A plan decides only the shapes. The step itself compares the values in the source with the formula,
before anything is written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from resize_pos.core.errors import GeometryError, TableError
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.operations import Extent, Rebuild
from resize_pos.core.request import Request
from resize_pos.families.tables import Action, PositionTable, Step, keep
from resize_pos.families.windows import DerivedRule, Reach
from resize_pos.planning.rules.base import NO_MASK, Match, Surroundings
from resize_pos.planning.rules.window import leader_of, place_of, rule_of

DerivedShape = tuple[Extent, Extent, tuple[int, ...]]  # source, target, target shape


def settle_table(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Find the table from whose geometry a buffer is computed."""
    rule = _rule(match)
    leader = leader_of(match.stem, rule.leader, settled)
    grid, reach = Grid(1, max(match.tensor.elements, 1)), None
    if leader is None:
        evidence = rule.why or "no table that it belongs to was found beside it"
    else:
        grid, evidence = leader.grid, f"computed from the geometry of {leader.name}"
        if rule.formula == "shifted-mask":
            grid, reach = _mask_blocks(match, leader, around)
    return PositionTable(
        match.tensor,
        match.family,
        match.stem,
        match.layout,
        grid,
        evidence=(evidence,),
        follows=None if leader is None else leader.name,
        reach=reach,
    )


def plan_step(table: PositionTable, request: Request, steps: Mapping[str, Step]) -> Step:
    """Recompute the buffer if the geometry of its table changes."""
    if table.follows is None:
        return keep(table, table.evidence[0])
    rule = table.family.derived
    assert rule is not None
    leader = steps[table.follows]
    if rule.formula == "shifted-mask" and _shifts_nothing(table, leader, request):
        return keep(table, NO_MASK)
    source, target, shape = FORMULAS[rule.formula](table, leader, request)
    if source == target:
        return keep(table, f"{table.follows} keeps its geometry")
    grid = leader.target if target.blocks is None else target.blocks
    operation = Rebuild(rule.formula, source, target, rule.normaliser)
    reason = rule.why or f"computed from the new geometry of {table.follows}"
    return Step(table, Action.REGENERATE, grid, shape, operation, reason)


def _rule(match: Match) -> DerivedRule:
    assert match.family.derived is not None
    return match.family.derived


def _mask_blocks(
    match: Match, leader: PositionTable, around: Surroundings
) -> tuple[Grid, Reach | None]:
    """Determine how many windows the source image had along each axis."""
    count, tokens = match.tensor.shape[:2]
    if tokens != leader.grid.cells:
        raise GeometryError(
            f"{match.tensor} masks {tokens} cells, but {leader.name} has the window {leader.grid}."
        )
    place, rule = place_of(match, around), rule_of(match.family)
    reach = Reach(place.stride, patch=place.patch)
    sizes = [around.request.from_size, *(config.size for config in around.configs)]
    for size in sizes:
        if size is not None:
            blocks = _blocks(rule.cells(size, place.stride), leader.grid)
            if blocks.cells == count:
                return blocks, reach
    if match.tensor.name in around.known:
        return around.known[match.tensor.name].grid, reach
    if place.patch is None and match.family.patch:
        told = around.request.from_size is not None
        raise GeometryError(
            f"{match.tensor} masks the windows of one image, and no patch embedding shows how many "
            "pixels a cell has.",
            hint="convert it with its own library."
            if told
            else "pass --from SIZE if a cell is one pixel; else convert it with its own library.",
        )
    side = math.isqrt(count)
    if side * side != count:
        raise GeometryError(
            f"{match.tensor.name} masks {count} windows, which is not a square number.",
            hint="pass --from SIZE (height × width), the image size of the checkpoint.",
        )
    return Grid(side, side), reach


def _blocks(cells: Grid, window: Grid) -> Grid:
    return Grid(-(-cells.height // window.height), -(-cells.width // window.width))


def _index(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """One entry per pair of cells, including the class token if the table has rows for it."""
    extra, own = leader.table.suffix, table.tensor.shape
    source, target = (
        Extent(grid=grid, extra=extra, depth=depth)
        for grid, depth in (
            (leader.table.grid, leader.table.frames),
            (leader.target, leader.frames),
        )
    )
    tokens = target.depth * leader.target.cells + (1 if extra else 0)
    return source, target, (tokens * tokens,) if len(own) == 1 else (tokens, tokens)


def _axis_index(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """The same for one of two separate tables per axis."""
    extra = leader.table.suffix
    tokens = math.isqrt(table.tensor.elements) - (1 if extra else 0)
    side = max(leader.table.grid.height, leader.table.grid.width)
    if side * side != tokens:
        raise GeometryError(
            f"{table.tensor} does not fit the square window that {leader.table.name} has."
        )
    goal = max(leader.target.height, leader.target.width)
    source, target = (Extent(grid=Grid(n, n), extra=extra) for n in (side, goal))
    total = goal * goal + (1 if extra else 0)
    return source, target, (total, total)


def _axis_pairs(table: PositionTable, leader: Step, request: Request) -> DerivedShape:
    """One entry per pair of rows; columns share it, so the grid must be square."""
    side, goal = (max(g.height, g.width) for g in (leader.table.grid, leader.target))
    if table.tensor.shape != (side, side):
        raise GeometryError(f"{table.tensor} does not fit the {side} rows of {leader.table.name}.")
    size = request.to_size or request.to_grid
    if size is not None and size.height != size.width and goal != side:
        raise GeometryError(
            f"{table.tensor} numbers rows and columns alike, but {size} is not square.",
            hint="convert it to a square size; the library itself has no other.",
        )
    source, target = (Extent(grid=Grid(n, n)) for n in (side, goal))
    return source, target, (goal, goal)


def _distance_index(
    table: PositionTable,
    leader: Step,
    request: Request,  # noqa: ARG001
) -> DerivedShape:
    """One entry per query and key. If the block halves the image, queries use every second cell."""
    source, target = Extent(grid=leader.table.grid), Extent(grid=leader.target)
    halved = table.tensor.shape[0] != leader.table.grid.cells
    grid = leader.target
    queries = Grid(-(-grid.height // 2), -(-grid.width // 2)) if halved else grid
    return source, target, (queries.cells, grid.cells)


def _mask(table: PositionTable, leader: Step, request: Request) -> DerivedShape:
    """A mask for shifted windows, which can hold cells from opposite edges of the image."""
    window, goal = leader.table.grid, leader.target
    found, size, blocks = table.reach, request.to_size, table.grid
    assert found is not None
    if request.to_grid is not None and found.patch is not None:
        size = request.to_grid.pixels(found.patch)
    if size is not None:
        cells = rule_of(table.family).cells(size, found.stride)
        if min(cells.height, cells.width) <= min(goal.height, goal.width):
            raise TableError(  # the window changes, too, so the old mask fits nothing
                f"{table.name}: at {size} px its stage has {cells} cells, no more than the window "
                f"{goal}; the library shifts nothing there and has no such mask.",
                hint="remove the attn_mask buffers from the file first; Swin's own loader drops "
                "them and builds its own.",
            )
        blocks = _blocks(cells, goal)
    elif goal != window:
        raise GeometryError(
            f"{table.name}: the mask of a window of {goal} depends on the image size.",
            hint="pass --to SIZE, the image size of the converted model, as well.",
        )
    source = Extent(grid=window, blocks=table.grid, shift=_shift(window))
    target = Extent(grid=goal, blocks=blocks, shift=_shift(goal))
    return source, target, (blocks.cells, goal.cells, goal.cells)


def _shifts_nothing(table: PositionTable, leader: Step, request: Request) -> bool:
    """Whether a stage of the new image is no larger than its window, so that nothing is shifted."""
    found, size, goal = table.reach, request.to_size, leader.target
    if found is None or goal != leader.table.grid:
        return False
    if request.to_grid is not None and found.patch is not None:
        size = request.to_grid.pixels(found.patch)
    if size is None:
        return False
    cells = rule_of(table.family).cells(size, found.stride)
    return min(cells.height, cells.width) <= min(goal.height, goal.width)


def _shift(window: Grid) -> int:
    return min(window.height, window.width) // 2


def _positions(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """Row numbers. Rows before the first number are padding rows of the table."""
    rows = leader.table.layout.rows(leader.table.tensor.shape)
    goal = leader.table.layout.rows(leader.target_shape)
    count = table.tensor.shape[-1]
    skipped = rows - count
    if skipped < 0 or goal <= skipped:
        raise GeometryError(f"{table.tensor} numbers more rows than {leader.table.name} has.")
    source, target = (Extent(rows=n, extra=skipped) for n in (rows, goal))
    return source, target, (*table.tensor.shape[:-1], goal - skipped)


def _square_mask(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """One row and one column per position."""
    rows = leader.table.layout.rows(leader.table.tensor.shape)
    goal = leader.table.layout.rows(leader.target_shape)
    if table.tensor.shape[-2:] != (rows, rows):
        raise GeometryError(f"{table.tensor} is not as long as {leader.table.name}, {rows} rows.")
    return Extent(rows=rows), Extent(rows=goal), (*table.tensor.shape[:-2], goal, goal)


def _resolution(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """The image side in pixels, as a number."""
    patch = leader.table.patch
    if patch is None:
        raise GeometryError(f"{table.name} is an image size, and the patch size is not known.")
    sizes = [grid.pixels(patch) for grid in (leader.table.grid, leader.target)]
    return _scalars(table, sizes[0], sizes[1])


def _scalars(table: PositionTable, source: Size, target: Size) -> DerivedShape:
    if target.height != target.width:
        raise TableError(
            f"{table.name} is a single number and cannot store {target} px.",
            hint="convert to a square size, or remove this tensor first.",
        )
    return Extent(value=source.height), Extent(value=target.height), ()


def _length(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """The number of text positions."""
    source, target = leader.table.grid.cells, leader.target.cells
    return Extent(value=source), Extent(value=target), table.tensor.shape


def _rotary(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """One row of angles per patch."""
    if table.tensor.shape[0] != leader.table.grid.cells:
        raise GeometryError(
            f"{table.tensor} does not have one row per patch of the {leader.table.grid} grid."
        )
    source, target = Extent(grid=leader.table.grid), Extent(grid=leader.target)
    return source, target, (leader.target.cells, *table.tensor.shape[1:])


def _cached(table: PositionTable, leader: Step, request: Request) -> DerivedShape:  # noqa: ARG001
    """One row per token, or one per pair of tokens."""
    before, after = leader.table.grid.cells, leader.target.cells
    shape = table.tensor.shape
    counted = slice(-2, None) if len(shape) == 4 else slice(1, 2)
    if any(length != before for length in shape[counted]):
        raise GeometryError(f"{table.tensor} does not fit the {before} tokens of {leader.name}.")
    new = list(shape)
    new[counted] = [after] * len(shape[counted])
    return Extent(rows=before), Extent(rows=after), tuple(new)


FORMULAS: Mapping[str, Callable[[PositionTable, Step, Request], DerivedShape]] = {
    "relative-index": _index,
    "relative-index-high": _axis_index,
    "relative-index-width": _axis_index,
    "axis-index": _axis_pairs,
    "distance-index": _distance_index,
    "shifted-mask": _mask,
    "positions": _positions,
    "zeros": _positions,
    "causal-mask": _square_mask,
    "input-resolution": _resolution,
    "context-length": _length,
    "rotary": _rotary,
    "cached-bias": _cached,
}
