"""Several towers or branches in one file, each with a size of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from resize_pos.core.errors import GeometryError, UsageError
from resize_pos.core.geometry import Grid, Size, Tiling, size_of
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import Located, PositionTable, Step

_CELLS = (Role.ABSOLUTE, Role.MIXING)
_NUMBER = lazy_regex(r"\d+")

_Sizes = Mapping[str, tuple[Size, Tiling, Grid]]


def require_one_size(steps: Sequence[Step], request: Request) -> None:
    """Refuse a single target size for towers whose images have different sizes."""
    sizes: dict[str, tuple[Size, Tiling, Grid]] = {}
    for step in steps:
        table, tiling = step.table, step.table.tiling
        on_its_own = table.role in _CELLS and table.follows is None
        if of_another_tower(table, request):
            continue
        if on_its_own and tiling is not None and {"h", "w"} <= table.layout.axes:
            size = table.stated or tiling.pixels(table.grid)
            # 384 px are 27 patches of 14, which cover 378 px, or 24 patches of 16.
            same = any(
                size_of(tiling, table.grid, other) == other or size_of(cut, grid, size) == size
                for other, cut, grid in sizes.values()
            )
            if not same:
                sizes[table.name] = size, tiling, table.grid
    if request.to_size is not None and len(sizes) > 1:
        shown = ", ".join(f"{name} {size} px" for name, (size, _, _) in sizes.items())
        choose = _one_by_one(sizes, request.to_size)
        scales = len({_NUMBER.sub("0", name) for name in sizes}) == 1
        alike = len({tiling for _, tiling, _ in sizes.values()}) == 1  # else kernels state the size
        if scales and alike and request.from_size is None:
            choose = f"if they are scales of one image, pass its --from SIZE; else {choose}"
        raise GeometryError(
            f"--to {request.to_size}: the towers in this file see images of different sizes "
            f"({shown}).",
            hint=choose,
        )


def _one_by_one(sizes: _Sizes, target: Size) -> str:
    """Return the commands that convert one tower after the other.

    Branches of one image keep the ratio of their sizes, as those of CrossViT do.
    """
    first, *rest = sorted(sizes, key=lambda name: -sizes[name][0].height)
    runs = [(first, target), *((name, _scaled(sizes, first, name, target)) for name in rest)]
    others = {name: [other for other in sizes if other != name] for name in sizes}
    flags = [f"--tower {_tower_of(name, *others[name])} --to {size}" for name, size in runs]
    return (
        f"choose one by a part of its tables' names: pass {flags[0]}, then convert the output "
        f"with {', and that with '.join(flags[1:])} (branches of one image; else state each "
        "tower's own size)."
    )


def _scaled(sizes: _Sizes, first: str, name: str, target: Size) -> Size:
    """Give the size of a branch if the first one has the target size, in whole patches."""
    (whole, _, _), (own, tiling, _) = sizes[first], sizes[name]
    sides = (
        (own.height, whole.height, target.height, tiling.step.height),
        (own.width, whole.width, target.width, tiling.step.width),
    )
    return Size(*(max(step, round(s * t / w / step) * step) for s, w, t, step in sides))


def of_another_tower(table: PositionTable, request: Request) -> bool:
    """Whether `--tower` names another tower than that of a table."""
    return request.tower is not None and request.tower not in table.name


def _tower_of(name: str, *others: str) -> str:
    """Return the first part of a name that no other name has."""
    parts = name.split(".")
    return next((part for part in parts if all(part not in other for other in others)), name)


def require_tower(located: Located, request: Request) -> None:
    """Refuse a --tower that no table belongs to."""
    names = [table.name for table in located.tables]
    if request.tower is not None and not any(request.tower in name for name in names):
        raise UsageError(
            f"--tower {request.tower}: no position table has this in its name.",
            hint=f"the tables are {', '.join(names[:5]) or 'none'}.",
        )
