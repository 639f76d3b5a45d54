"""Tables that the user names with `--pattern` and describes with `--axes`; either may be enough."""

from __future__ import annotations

import re
from collections.abc import Sequence

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Family, custom_family
from resize_pos.planning.rules.base import Surroundings
from resize_pos.planning.unknown_names.candidates import Sound, candidate_of, widths_of

_MOST_LISTED = 4


def custom_families(around: Surroundings) -> tuple[Family, ...]:
    """Make a family of every --pattern, with its --axes; of --axes alone, find the table."""
    patterns, axes = around.request.pattern, around.request.axes
    if patterns is not None:
        layouts: Sequence[str | None] = axes or (None,)
        each = layouts if len(layouts) == len(patterns) else [layouts[0]] * len(patterns)
        return tuple(map(custom_family, patterns, each))
    if axes is None:
        return ()
    name = _only_table(axes[0], around)
    return (custom_family(f"^{re.escape(name)}$", axes[0]),)


def _only_table(axes: str, around: Surroundings) -> str:
    """Return the only tensor that --axes can mean."""
    layout = Layout.parse(axes)
    widths = widths_of(around.tensors.values())
    found = [
        candidate
        for info in around.tensors.values()
        if layout.mismatch(info.shape) is None
        and (candidate := candidate_of(info, widths)) is not None
        and _is_width(layout, info, widths)
        and _is_table(layout, info)
    ]
    named = [each for each in found if each.sound is Sound.POSITION]
    best = named or found
    if len(best) == 1:
        return best[0].tensor.name
    if not best:
        raise UsageError(
            f"--axes '{axes}' fits no tensor that may be a position table.",
            hint="name the table as well, for example --pattern 'my_pos$'.",
        )
    names = ", ".join(each.tensor.name for each in best[:_MOST_LISTED])
    first = re.escape(best[0].tensor.name)
    raise UsageError(
        f"--axes '{axes}' fits {len(best)} tensors: {names}{' …' * (len(best) > _MOST_LISTED)}",
        hint=f"name the table as well, for example --pattern '^{first}$'.",
    )


def _is_width(layout: Layout, info: TensorInfo, widths: dict[int, int]) -> bool:
    if "d" not in layout.terms or not widths:
        return True
    channels = info.shape[layout.terms.index("d")]
    return channels > 1 and channels in widths  # one value, as of a depth, is no width


def chosen_layout(tensor: TensorInfo, fits: Sequence[Layout], around: Surroundings) -> Layout:
    """Choose among the usual layouts: the one whose channels are a width of the model."""
    widths = around.once("widths", lambda: widths_of(around.tensors.values()))
    likely = [
        layout for layout in fits if _is_width(layout, tensor, widths) and _is_table(layout, tensor)
    ]
    if len(likely) == 1:
        return likely[0]
    candidates = likely or [layout for layout in fits if _is_table(layout, tensor)] or list(fits)
    if len(candidates) == 1 or not likely:
        return candidates[0]
    supported = [layout for layout in candidates if _smooth(tensor, layout, around)]
    if len(supported) == 1:
        return supported[0]
    shown = " or ".join(f"--axes '{layout}'" for layout in candidates)
    raise GeometryError(
        f"{tensor}: more than one of its axes is as long as a width of this model, and its values "
        "do not tell which one holds the channels.",
        hint=f"pass {shown}.",
    )


def _is_table(layout: Layout, tensor: TensorInfo) -> bool:
    grid = layout.grid(tensor.shape)
    return grid is None or min(grid.height, grid.width) > 1


def _smooth(tensor: TensorInfo, layout: Layout, around: Surroundings) -> bool:
    """Whether the values support some grid of the rows in this layout."""
    if around.read is None or layout.grid(tensor.shape) is not None:
        return False
    from resize_pos.planning.geometry.grid_solver import RowCount, readings
    from resize_pos.planning.geometry.smoothness import judge_readings

    pairs = [(RowCount(count, ""), RowCount(0, "")) for count in (0, 1, 2, 5)]
    rows = layout.rows(tensor.shape)
    some = readings(rows, [pair for pair in pairs if pair[0].count < rows])
    return judge_readings(around.read(tensor.name), layout, some).choice is not None
