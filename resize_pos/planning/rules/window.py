"""Determine a relative table's window from its shape and from other evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, Role, name_pattern
from resize_pos.families.patch_size import Patch, read_patch
from resize_pos.families.tables import PositionTable, stored_grid
from resize_pos.families.windows import Follows, WindowRule
from resize_pos.planning.geometry.grid_solver import Hypothesis
from resize_pos.planning.rules.base import Match, Surroundings, along

_CLASS_ROWS = 3  # rows for class → patch, patch → class, class → class; stored after the offsets
_MOST_LISTED = 6


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a table in its model: tower, stage, and the size of a cell."""

    tower: str
    stage: int
    patch: Size | None  # of the patch embedding
    stride: Size  # pixels per cell


def rule_of(family: Family) -> WindowRule:
    """Return the window rule, which every relative family has."""
    return family.windows or WindowRule(Follows.GLOBAL, leader=family.follows)


def place_of(match: Match, around: Surroundings) -> Place:
    """Determine the stage from the name, or from the table's size if each stage halves it."""
    rule = rule_of(match.family)
    found = rule.place(match.tensor.name)
    if found is None:
        raise GeometryError(
            f"{match.tensor.name}: its stage is not one that {match.family.name} has."
        )
    tower, stage = found
    found_patch = read_root_patch(match, around)
    patch = None if found_patch is None else found_patch.size
    if rule.pyramid:
        tower, stage = match.stem, _level(match, around)
    return Place(tower, stage, patch, rule.stride(stage, patch))


def read_root_patch(match: Match, around: Surroundings) -> Patch | None:
    """Read the patch embedding beside a table or above it."""
    return around.once(
        ("patch", match.family.name, match.stem),
        lambda: read_patch(match.family.patch, _root(match, around), around.tensors),
    )


def _root(match: Match, around: Surroundings) -> str:
    """Return the stem, or its nearest ancestor that contains the patch embedding."""
    for stem in ancestors(match.stem):
        if any(stem + sibling in around.tensors for sibling in match.family.patch):
            return stem
    return match.stem


def ancestors(stem: str) -> Iterator[str]:
    """Yield a stem and each of its ancestors, the empty stem last."""
    parts = stem.split(".")
    yield stem
    for count in range(len(parts) - 2, 0, -1):
        yield ".".join(parts[:count]) + "."
    if stem:
        yield ""


def _level(match: Match, around: Surroundings) -> int:
    """Return how often the image was halved, compared with the largest table of the family."""
    own = cells_along(match.tensor, match.layout, match.family.role)
    largest = max(cells_along(t, match.layout, match.family.role) for t in alike(match, around))
    level = round(math.log2(largest / own))
    if largest >> level != own:
        raise GeometryError(
            f"{match.tensor.name} has {own} cells, which is not {largest} halved {level} times."
        )
    return level


def cells_along(tensor: TensorInfo, layout: Layout, role: Role) -> int:
    """Count the cells of a table with one axis."""
    offsets = layout.grid(tensor.shape)
    assert offsets is not None
    return (offsets.cells + 1) // 2 if role is Role.RELATIVE else offsets.cells


def alike(match: Match, around: Surroundings) -> list[TensorInfo]:
    """List the tables of the same family in the same tower."""
    rule, family = rule_of(match.family), match.family
    own = rule.place(match.tensor.name)
    tower = match.stem if rule.stage is None else own[0] if own else ""
    return alike_everywhere(family, around).get(tower, [])


def alike_everywhere(family: Family, around: Surroundings) -> Mapping[str, list[TensorInfo]]:
    """List the tables of a family by the tower that they belong to."""
    return around.once(("towers", family.name), lambda: _towers(family, around))


def _towers(family: Family, around: Surroundings) -> Mapping[str, list[TensorInfo]]:
    """Group the tables of a family by the tower that they belong to."""
    rule, towers = rule_of(family), dict[str, list[TensorInfo]]()
    for tensor in around.tensors.values():
        stem = family.stem(tensor.name)
        if stem is None or family.objection(stem, around.tensors, tensor.shape):
            continue
        place = rule.place(tensor.name)
        tower = stem if rule.stage is None else place[0] if place else None
        if tower is not None:
            towers.setdefault(tower, []).append(tensor)
    return towers


def extra_rows(tensor: TensorInfo, layout: Layout, role: Role) -> int:
    """Count the rows for the class token. A window has an odd number of offsets without them."""
    grouped = any("s" in term for term in layout.terms if isinstance(term, tuple))
    even = layout.rows(tensor.shape) % 2 == 0
    return _CLASS_ROWS if grouped and even and role is Role.RELATIVE else 0


def read_window(
    tensor: TensorInfo, layout: Layout, role: Role, hypotheses: Sequence[Hypothesis], flag: str
) -> tuple[Grid, str]:
    """Determine a table's window: from its shape, from evidence, or as the only square."""
    stored = layout.grid(tensor.shape)
    rows = layout.rows(tensor.shape) - extra_rows(tensor, layout, role)
    if stored is not None:
        window = _cells(stored, role)
        if window is None:
            raise GeometryError(f"{tensor} should hold 2n − 1 offsets per axis, an odd number.")
        _require_agreement(tensor, window, layout, hypotheses)
        return window, f"its shape {list(tensor.shape)} states the window {window}"
    for hypothesis in hypotheses:
        if stored_grid(role, along(layout, hypothesis.grid)).cells == rows:
            return along(layout, hypothesis.grid), hypothesis.reason
        if hypothesis.binding:
            raise _disagreement(tensor, rows, role, hypothesis, flag)
    if along(layout, Grid(2, 2)).cells == 2:  # one axis of offsets, with rows for the class token
        line = _cells(along(layout, Grid(rows, rows)), role)
        if line is not None:
            return line, f"{rows} offsets along its axis"
    side = math.isqrt(rows)
    square = _cells(Grid(side, side), role) if side * side == rows else None
    if square is not None:
        return square, f"{rows} = {side}²: the only square window that fits"
    raise _open(tensor, rows, role, flag)


def lone_window(tensor: TensorInfo, layout: Layout, role: Role) -> Grid:
    """Read a window that no evidence explains: from its shape, as a square, or as one line."""
    try:
        return read_window(tensor, layout, role, (), "--from-window")[0]
    except GeometryError:  # no square: only the number of its offsets is known
        line = Grid(1, layout.rows(tensor.shape))
        return _cells(line, role) or line


def _cells(stored: Grid, role: Role) -> Grid | None:
    if role is not Role.RELATIVE:
        return stored
    if stored.height % 2 == 0 or stored.width % 2 == 0:
        return None
    return Grid((stored.height + 1) // 2, (stored.width + 1) // 2)


def _require_agreement(
    tensor: TensorInfo, window: Grid, layout: Layout, hypotheses: Sequence[Hypothesis]
) -> None:
    for hypothesis in hypotheses:
        if hypothesis.binding and along(layout, hypothesis.grid) != window:
            raise GeometryError(
                f"{tensor.name} holds the offsets of a {window} window; {hypothesis.reason} would "
                f"be {along(layout, hypothesis.grid)}.",
                hint="drop --from, or correct it.",
            )


def _disagreement(
    tensor: TensorInfo, rows: int, role: Role, hypothesis: Hypothesis, flag: str
) -> GeometryError:
    answers = _answers(rows, role)
    shown = f"; {rows} fits {', '.join(map(str, answers[:_MOST_LISTED]))}" if answers else ""
    needed = stored_grid(role, hypothesis.grid).cells
    return GeometryError(
        f"{tensor.name} has {rows} offsets; {hypothesis.reason} would need {needed}{shown}.",
        hint=f"drop --from, or state the window with {flag} HxW.",
    )


def _open(tensor: TensorInfo, rows: int, role: Role, flag: str) -> GeometryError:
    answers = _answers(rows, role)
    if not answers:
        return GeometryError(f"{tensor.name} has {rows} offsets, which no window has.")
    shown = ", ".join(map(str, answers[:_MOST_LISTED]))
    return GeometryError(
        f"{tensor.name} has {rows} offsets, which are those of a window {shown}.",
        hint=f"settle it with --from SIZE (height × width) or {flag} HxW.",
    )


def _answers(rows: int, role: Role) -> list[Grid]:
    grids = [Grid(h, rows // h) for h in range(1, rows + 1) if rows % h == 0]
    windows = [w for w in (_cells(grid, role) for grid in grids) if w is not None]
    return sorted(windows, key=lambda w: abs(math.log(w.width / w.height)))


def image_hypotheses(
    match: Match,
    place: Place,
    around: Surroundings,
    settled: Mapping[str, PositionTable],
) -> Iterator[Hypothesis]:
    """List the windows that flags, siblings, the file and configs imply for an image table."""
    request, rule = around.request, rule_of(match.family)
    whole = place.patch is not None and rule.strides == (1,)
    if request.from_grid is not None and whole:
        yield Hypothesis(request.from_grid, f"--from-grid {request.from_grid}", binding=True)
    if request.from_size is not None:
        try:
            cells = _whole_cells(rule, request.from_size, place.stride, whole)
        except GeometryError as error:
            message = f"{match.tensor.name}: --from {error.message}"
            raise GeometryError(message, hint=error.hint) from None
        yield Hypothesis(cells, f"{request.from_size} px at {place.stride} px a cell", binding=True)
    leader = leader_of(match.stem, (rule.leader,) if rule.leader else (), settled)
    if leader is not None:
        yield Hypothesis(leader.grid, f"the grid of {leader.name}")
    if match.tensor.name in around.known:
        known = around.known[match.tensor.name]
        yield Hypothesis(known.grid, "; ".join(known.evidence))
    for config in around.configs:
        try:
            cells = _whole_cells(rule, config.size, place.stride, whole)
        except GeometryError:
            continue
        yield Hypothesis(cells, f"{config.file} says {config.key} {config.size}")


def window_hypotheses(match: Match, place: Place, around: Surroundings) -> Iterator[Hypothesis]:
    """List the windows that are stated for a table that does not follow the image."""
    stated = around.request.from_window
    if stated is not None:
        times = rule_of(match.family).multiple(place.stage)
        window = Grid(stated.height * times, stated.width * times)
        yield Hypothesis(window, f"--from-window {stated}")
    if match.tensor.name in around.known:
        known = around.known[match.tensor.name]
        yield Hypothesis(known.grid, "; ".join(known.evidence))


def _whole_cells(rule: WindowRule, size: Size, stride: Size, whole: bool) -> Grid:
    return Tiling(stride).whole_patches(size) if whole else rule.cells(size, stride)


def leader_of(
    stem: str, names: Sequence[str], settled: Mapping[str, PositionTable]
) -> PositionTable | None:
    """Find the nearest settled table with one of these names, beside or above a stem."""
    for base in ancestors(stem):
        for name in names:
            if base + name in settled:
                return settled[base + name]
    return None


def stays(place: Place, around: Surroundings) -> bool:
    """Whether --leave names a relative table of a model that restores images, pixel by pixel.

    Then the windows of its other blocks are no images either.
    """
    if around.request.leave is None or place.stride != Size(1, 1):
        return False
    leave = name_pattern("--leave", *around.request.leave)
    return any(leave.search(n) for n in around.tensors if n.endswith("position_bias_table"))
