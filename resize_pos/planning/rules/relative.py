"""Relative tables: one row per offset between two patches, so 2n − 1 along an axis of n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Size, Tiling
from resize_pos.families.tables import PositionTable
from resize_pos.families.windows import Clamp, Follows, Reach, WindowRule
from resize_pos.planning.geometry.grid_solver import Hypothesis
from resize_pos.planning.rules.base import Match, Surroundings, along
from resize_pos.planning.rules.deep import deep_window
from resize_pos.planning.rules.whole_image import ONLY_A_WINDOW, is_the_image
from resize_pos.planning.rules.window import (
    Place,
    alike,
    extra_rows,
    image_hypotheses,
    leader_of,
    lone_window,
    place_of,
    read_window,
    rule_of,
    stays,
    window_hypotheses,
)
from resize_pos.planning.unknown_names.commands import name_regex


def settle_table(
    match: Match, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Determine a table's window, and what the window depends on."""
    rule, place = rule_of(match.family), place_of(match, around)
    if rule.deep:
        return _settle_deep(match, place, around)
    return _SETTLE[rule.follows](match, place, around, settled)


def _settle_image(
    match: Match, place: Place, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    rule, tensor, layout = rule_of(match.family), match.tensor, match.layout
    if stays(place, around) or not is_the_image(match, around, settled):
        return _table(match, lone_window(tensor, layout, match.family.role), (ONLY_A_WINDOW,))
    hypotheses = list(image_hypotheses(match, place, around, settled))
    window, evidence = read_window(tensor, layout, match.family.role, hypotheses, "--from-grid")
    leader = leader_of(match.stem, (rule.leader,) if rule.leader else (), settled)
    if leader is not None and window != along(layout, leader.grid):
        raise GeometryError(
            f"{tensor.name} holds the offsets of {window}, but {leader.name} has the grid "
            f"{leader.grid}; they should be the same.",
            hint="state the grid of the file with --from-grid HxW.",
        )
    lone = place.patch is not None and rule.strides == (1,)
    table = _table(
        match,
        window,
        (evidence, f"its window is the whole image, {place.stride} px a cell"),
        follows=None if leader is None else leader.name,
        patch=place.stride if place.stride == rule.stride(0, place.patch) else None,
        reach=Reach(place.stride, patch=place.patch if lone else None),
    )
    _require_one_image(table, around)
    return table


def _settle_global(
    match: Match, place: Place, around: Surroundings, settled: Mapping[str, PositionTable]
) -> PositionTable:
    """Distinguish blocks that see the whole image from windowed ones, by both axes together."""
    rule, tensor = rule_of(match.family), match.tensor
    stated = match.layout.grid(tensor.shape)
    if stated is None or stated.cells % 2 == 0:
        raise GeometryError(f"{tensor} should hold 2n − 1 offsets per axis, an odd number.")
    pairs = around.once(("pairs", match.stem), lambda: _pairs(match.stem, around))
    own = pairs[tensor.name]
    window = along(match.layout, own)
    leader_name = match.stem + rule.leader if rule.leader else ""
    leader = settled.get(leader_name)
    if leader is None and leader_name in around.tensors:
        raise GeometryError(f"{tensor.name} follows {leader_name}, whose grid is not settled.")
    if leader is not None and leader.layout.grid(leader.tensor.shape) is None:
        leader = None  # the library resamples a flat (pretraining) table
    if leader is not None:
        grid, evidence = leader.grid, f"the grid of {leader.name}"
    else:
        grid, evidence = _image_grid(match, place, around, pairs)
    depth = _depth(tensor.name, around)
    whole = own == grid and (not depth or leader is None or depth == leader.frames)
    evidence = evidence if whole else f"not {evidence}, {grid}"
    if whole and set(pairs.values()) == {grid}:
        whole, evidence = _alike_global(tensor.name, pairs, around, rule)
    frames = depth if match.layout.has_time else 1
    own = replace(own, depth=depth)
    if not whole:
        words = f"its window {own} is {evidence}: windowed attention"
        return replace(_table(match, window, (words,)), frames=frames)
    words = f"its window {own} is {evidence}: global attention"
    follows = leader.name if leader is not None else None
    found = Reach(place.stride, patch=place.patch)
    table = _table(match, window, (words,), follows=follows, reach=found)
    return replace(table, frames=frames)


_AXES = ("rel_pos_d", "rel_pos_h", "rel_pos_w")


def _pairs(stem: str, around: Surroundings) -> dict[str, Grid]:
    """Return the windows of all blocks under a stem, by the names of their tables."""
    blocks = [name for name in around.tensors if name.startswith(stem)]
    return {n: _both_axes(n, around) for n in blocks if n.endswith(_AXES)}


def _depth(name: str, around: Surroundings) -> int:
    """Return the depth of a block's window in a volume; 0 without one."""
    deep = around.tensors.get(f"{name[:-1]}d")
    return 0 if deep is None else (deep.shape[0] + 1) // 2


def _both_axes(name: str, around: Surroundings) -> Grid:
    """Return the window of a block from its two tables, rel_pos_h and rel_pos_w."""
    stem = name[: -len("h")]
    names = [stem + axis for axis in "hw" if stem + axis in around.tensors]
    lengths = [around.tensors[name].shape[0] for name in names]
    lengths = lengths if len(lengths) == 2 else lengths * 2
    return Grid(*((length + 1) // 2 for length in lengths))


def _alike_global(
    name: str, pairs: Mapping[str, Grid], around: Surroundings, rule: WindowRule
) -> tuple[bool, str]:
    """Distinguish global from windowed blocks when all have the same window, the image grid."""
    stated = around.request.from_window
    if stated is not None and stated != pairs[name]:
        return True, f"not the window of --from-window {stated}"
    if any(other in around.known for other in pairs):
        recorded = name in around.known
        words = "recorded" if recorded else "not recorded"
        return recorded, f"{words} in the file by an earlier conversion"
    blocks = sorted({_block(other) for other in pairs})
    quarter, rest = divmod(len(blocks), 4)
    if rule.quarters and rest == 0 and quarter > 1 and blocks == list(range(len(blocks))):
        last = blocks[quarter - 1 :: quarter]
        shown = ", ".join(map(str, last))
        words = f"the image grid, as in every block; in SAM and ViTDet blocks {shown} are global"
        return _block(name) in last, words
    raise GeometryError(
        f"{name}: every block has the window {pairs[name]}, which may also be the image grid, so "
        "that windowed blocks cannot be told from global ones.",
        hint="pass --from SIZE if the image is larger than that; --from-window N, the window of "
        "windowed blocks, if it is another one; or convert a checkpoint of another size.",
    )


def _block(name: str) -> int:
    """Return the block number of a table name like blocks.7.attn.rel_pos_h."""
    return int(name.split(".")[-3])


def _image_grid(
    match: Match, place: Place, around: Surroundings, pairs: Mapping[str, Grid]
) -> tuple[Grid, str]:
    """Determine the image grid if no absolute table states it."""
    for hypothesis in _stated_grids(place, around):
        if hypothesis.grid in pairs.values() or len(set(pairs.values())) == 1:
            return hypothesis.grid, hypothesis.reason
        if hypothesis.binding:
            shown = ", ".join(sorted({str(pair) for pair in pairs.values()}))
            raise GeometryError(
                f"{match.tensor.name}: {hypothesis.reason} would be {hypothesis.grid}, which no "
                f"block has; there are {shown}.",
                hint="drop --from, or correct it.",
            )
    return max(pairs.values(), key=lambda window: window.cells), "the largest of all windows"


def _stated_grids(place: Place, around: Surroundings) -> list[Hypothesis]:
    request = around.request
    found: list[Hypothesis] = []
    if request.from_grid is not None:
        found.append(Hypothesis(request.from_grid, "--from-grid", binding=True))
    if place.patch is None:
        return found
    if request.from_size is not None:
        grid = Tiling(place.patch).whole_patches(request.from_size)
        found.append(Hypothesis(grid, f"{request.from_size} px", binding=True))
    for config in around.configs:
        if Tiling(place.patch).divides(config.size):
            grid = Tiling(place.patch).grid(config.size)
            found.append(Hypothesis(grid, f"{config.file} says {config.size}"))
    return found


def _settle_window(
    match: Match,
    place: Place,
    around: Surroundings,
    settled: Mapping[str, PositionTable],  # noqa: ARG001
) -> PositionTable:
    rule = rule_of(match.family)
    window, evidence = _own_window(match, place, around)
    key = ("stages", match.family.name, match.stem, place)
    stages = around.once(key, lambda: _windows_by_stage(match, place, around))
    nominal = Grid(
        max((w.height for w in stages.values()), default=window.height),
        max((w.width for w in stages.values()), default=window.width),
    )
    image = around.request.from_size or (around.configs[0].size if around.configs else None)
    clamped = _may_be_clamped(rule, place, nominal, stages, image)
    reasons = [evidence, "its window does not follow the image"]
    if _by_design(rule, stages):
        nominal, clamped = window, False
        shown = ", ".join(str(stages[stage]) for stage in sorted(stages))
        reasons.append(
            f"windows {shown} by stage are those of Swin-S3, so each stage keeps its own; "
            "pass --to-window N if all stages share one window"
        )
    multiple = rule.multiple(place.stage)
    if rule.clamp is Clamp.NEVER:  # so its own shape states the window
        multiple = multiple if not (window.height % multiple or window.width % multiple) else 1
        nominal = Grid(window.height // multiple, window.width // multiple)
    reach_ = Reach(place.stride, multiple, nominal, clamped, image, place.patch)
    return _table(match, window, tuple(reasons), reach=reach_)


def _windows_by_stage(match: Match, place: Place, around: Surroundings) -> dict[int, Grid]:
    """Return the window of each stage of the tower, divided by the stage's multiple."""
    rule, role = rule_of(match.family), match.family.role
    stages: dict[int, Grid] = {}
    seen = set()
    for tensor in alike(match, around):
        other = Match(tensor, match.family, match.stem, match.layout)
        where = rule.place(tensor.name)
        assert where is not None
        kind = (where, tensor.shape, around.known.get(tensor.name))
        if kind in seen:
            continue
        seen.add(kind)
        found, _ = read_window(
            tensor,
            match.family.layout(tensor.shape) or match.layout,
            role,
            list(window_hypotheses(other, place, around)),
            "--from-window",
        )
        times = rule.multiple(where[1])
        if found.height % times == 0 and found.width % times == 0:
            stages[where[1]] = Grid(found.height // times, found.width // times)
    return stages


def _by_design(rule: WindowRule, stages: Mapping[int, Grid]) -> bool:
    """Whether a known model has these windows, which differ by stage, by design."""
    squares = all(window.is_square for window in stages.values())
    return squares and tuple(stages[stage].height for stage in sorted(stages)) in rule.designs


def _settle_deep(match: Match, place: Place, around: Surroundings) -> PositionTable:
    index = around.tensors.get(match.tensor.name.replace("bias_table", "index"))
    known, stated = around.known.get(match.tensor.name), around.request.from_window
    if stated is None and known is not None:
        stated = replace(known.grid, depth=known.frames)
    layout, window, depth = deep_window(match.tensor, match.layout, index, stated)
    between = f" between {index.shape[0]} cells" if index is not None else ""
    evidence = (f"{match.tensor.shape[0]} offsets{between}", "its window does not follow the image")
    found = Reach(place.stride, nominal=window)
    table = _table(replace(match, layout=layout), window, evidence, reach=found)
    return replace(table, frames=depth)


def _own_window(match: Match, place: Place, around: Surroundings) -> tuple[Grid, str]:
    hypotheses = list(window_hypotheses(match, place, around))
    return read_window(match.tensor, match.layout, match.family.role, hypotheses, "--from-window")


def _may_be_clamped(
    rule: WindowRule, place: Place, nominal: Grid, stages: Mapping[int, Grid], image: Size | None
) -> bool:
    """Whether even the largest window may have been clamped, because its stage was small."""
    having = [stage for stage, window in stages.items() if window == nominal]
    if rule.clamp is Clamp.NEVER or len(having) > 1:
        return False
    if image is None or not having:
        return True
    cells = rule.cells(image, rule.stride(having[0], place.patch))
    return cells.height <= nominal.height or cells.width <= nominal.width


def _settle_nothing(
    match: Match,
    place: Place,
    around: Surroundings,
    settled: Mapping[str, PositionTable],  # noqa: ARG001
) -> PositionTable:
    window, evidence = _own_window(match, place, around)
    return _table(match, window, (evidence, rule_of(match.family).why))


def _settle_unknown(
    match: Match,
    place: Place,  # noqa: ARG001
    around: Surroundings,
    settled: Mapping[str, PositionTable],  # noqa: ARG001
) -> PositionTable:
    # Encoder and decoder have such tables under different names; one command names them all.
    last = match.tensor.name.rpartition(".")[2]
    alike = [name for name in around.tensors if name.rpartition(".")[2] == last]
    regex = "|".join(dict.fromkeys(name_regex(name, around.tensors) for name in alike))
    raise GeometryError(
        f"{match.tensor} is a relative table of a model that no family knows. It is unknown "
        "whether its window follows the image, so the file could only be converted in part.",
        hint=f"pass --leave '{regex}' if its window is the same at every size; else convert it "
        "with its own library.",
    )


def _table(
    match: Match,
    window: Grid,
    evidence: tuple[str, ...],
    *,
    follows: str | None = None,
    patch: Size | None = None,
    reach: Reach | None = None,
) -> PositionTable:
    suffix = extra_rows(match.tensor, match.layout, match.family.role)
    return PositionTable(
        match.tensor,
        match.family,
        match.stem,
        match.layout,
        window,
        0,
        suffix,
        patch,
        evidence,
        follows,
        reach=reach,
    )


def _require_one_image(table: PositionTable, around: Surroundings) -> None:
    """Refuse if no single image size fits this table and the others."""
    tower = table.name.split(".")[0]
    seen = around.once(("images", tower), dict[object, PositionTable])
    kind = (table.family.name, table.grid, table.reach)  # one of each kind is enough
    for other in () if kind in seen else seen.values():
        for axis in ("height", "width"):
            spans = [_span(t, axis) for t in (table, other)]
            if None in spans:
                continue
            (low, high), (low_other, high_other) = (span for span in spans if span is not None)
            if high < low_other or high_other < low:
                raise GeometryError(
                    f"{table.name} reads as {table.grid} ({low}–{high} px {axis}), {other.name} as "
                    f"{other.grid} ({low_other}–{high_other} px): no image size gives both.",
                    hint="state the size of the file with --from SIZE.",
                )
    seen.setdefault(kind, table)


def _span(table: PositionTable, axis: str) -> tuple[int, int] | None:
    rule, cells = rule_of(table.family), getattr(table.grid, axis)
    if table.reach is None or along(table.layout, Grid(2, 2)) != Grid(2, 2):
        return None
    return rule.sizes(cells, getattr(table.reach.stride, axis))


_SETTLE = {
    Follows.IMAGE: _settle_image,
    Follows.GLOBAL: _settle_global,
    Follows.WINDOW: _settle_window,
    Follows.UNKNOWN: _settle_unknown,
    Follows.NOTHING: _settle_nothing,
}
