"""A config's values before and after a conversion, in every form that configs use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from resize_pos.configs.keys import CONFIG_FILES, PLACES, KeyKind
from resize_pos.configs.read import as_size
from resize_pos.core.errors import GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid, Size, Tiling, size_of
from resize_pos.core.request import Request
from resize_pos.families.family import Role
from resize_pos.families.tables import OF_IMAGES, Action, Located, PositionTable, Step

_TEXT_FILES = {place.file for place in PLACES if place.kind is KeyKind.LENGTH}
_IMAGE_FILES = {place.file for place in PLACES if place.kind is not KeyKind.LENGTH}


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """One value of one config file, before and after."""

    file: str
    path: tuple[str, ...]
    before: Any  # None: the key was missing, so the library's default applied
    after: Any

    @property
    def key(self) -> str:
        """The path with dots."""
        return ".".join(self.path)

    def __str__(self) -> str:
        before = "(not set)" if self.before is None else self.before
        return f"{self.file}: {self.key} {before} → {self.after}"


@dataclass(frozen=True, slots=True)
class Transfer:
    """The changes of a conversion that a config can state."""

    from_size: Size | None = None
    to_size: Size | None = None
    from_grid: Grid | None = None
    to_grid: Grid | None = None
    lengths: Mapping[int, int] = field(default_factory=dict)  # old → new, with and without offset
    from_window: Grid | None = None
    to_window: Grid | None = None
    asked: Size | None = None  # the requested size, even if no table follows it
    stated: Size | None = None  # the old size in configs: 384 although 27 patches cover 378
    tokens: tuple[int, int] | None = None  # image tokens before and after, if known
    tables: bool = True  # whether a table of the weights has this grid
    counts: bool = True  # whether image tokens follow this tower's grid
    cell: Size | None = None  # pixels from one patch to the next, after the conversion
    free: bool = False  # no table depends on the image, so only configs state its size
    frames: tuple[int, int] | None = None  # of a video, before and after, if they change
    asked_frames: int | None = None  # the requested frames, if no table has a time axis

    @classmethod
    def of(cls, steps: Sequence[Step], request: Request) -> Transfer:
        """Read the changes from the steps of a plan: the first image table, and every text table.

        If the request does not change images, image configs are ignored. The requested size is
        used if the tables do not determine the size. With overlapping patches or rounding, several
        sizes have the same grid. Tables of offsets along one axis or inside a window have no image
        grid. If no table depends on the image at all, only the configs state its size.
        """
        asked, images_too = request.to_size, request.to_image or request.to_patch is not None
        lengths: dict[int, int] = {}
        images = []
        windows = _windows(steps)
        for step in steps:
            table = step.table
            if _of_image(step):
                images.append(step)
            elif table.role is Role.SEQUENCE and step.action is not Action.KEEP:
                extra = table.prefix + table.suffix
                before, after = table.grid.cells, step.target.cells
                lengths[before + extra] = after + extra
                lengths.setdefault(before, after)
        moved = [step for step in images if step.action is not Action.KEEP] or images
        if not moved or not images_too:
            pixels = asked if request.to_image else None
            reaches = [step.table.reach for step in steps if step.table.reach is not None]
            free = not any(step.table.role in OF_IMAGES for step in steps)
            wanted = pixels if reaches or free else None
            source = next((reach.image for reach in reaches if wanted), None)
            return cls(
                source,
                wanted,
                None,
                None,
                lengths,
                *windows,
                asked=pixels,
                free=free,
                frames=_frames(steps),
                asked_frames=_asked_frames(steps, request),
            )
        table, target = moved[0].table, moved[0].target
        tiling = table.tiling
        cut = Tiling(request.to_patch) if request.to_patch and table.kernel else tiling
        deep = table.tube if table.family.volume else 0
        return cls(
            None if tiling is None else _deep(tiling.pixels(table.grid), deep * table.frames),
            None
            if cut is None
            else _deep(_size_of(table, cut, target, asked or table.stated), deep * moved[0].frames),
            table.grid,
            target,
            lengths,
            *windows,
            asked=asked,
            stated=None if deep else table.stated,  # of a volume, it lacks the depth
            cell=None if cut is None else cut.step,
            frames=_frames(steps),
            asked_frames=_asked_frames(steps, request),
        )

    @property
    def old_size(self) -> Size | None:
        """The old size as configs state it."""
        return self.stated or self.from_size

    def states(self, size: Size | None) -> bool:
        """Whether a size in a config is the table's, up to a remainder of less than a patch."""
        if size is None or self.from_size is None or size == self.from_size:
            return size is not None and size == self.from_size
        grid = self.from_grid
        if grid is None:
            return False
        tall, wide = self.from_size.height // grid.height, self.from_size.width // grid.width
        return Grid(max(1, size.height // tall), max(1, size.width // wide)) == grid


def _deep(size: Size, depth: int) -> Size:
    return Size(size.height, size.width, depth)


def _size_of(table: PositionTable, tiling: Tiling, target: Grid, asked: Size | None) -> Size:
    tied = asked is not None and table.role in _TIED
    return asked if asked is not None and tied else size_of(tiling, target, asked)


def _frames(steps: Sequence[Step]) -> tuple[int, int] | None:
    """Return the frames of a video before and after; cells may take in several frames each."""
    for step in steps:
        table = step.table
        video = table.role is Role.ABSOLUTE and not table.family.volume
        if video and step.state is None and step.frames != table.frames:
            return table.frames * table.tube, step.frames * table.tube
    return None


def _asked_frames(steps: Sequence[Step], request: Request) -> int | None:
    timed = any(step.table.layout.has_time for step in steps if step.table.role is Role.ABSOLUTE)
    return None if timed else request.to_frames


def _of_image(step: Step) -> bool:
    """Whether a table's grid determines the image size; the grid of a reference may not."""
    table = step.table
    if table.role in (Role.ABSOLUTE, Role.MIXING):
        return {"h", "w"} <= table.layout.axes and not table.family.scaled
    if table.role is Role.REFERENCE:
        return step.action is not Action.KEEP and {"h", "w"} <= table.layout.axes
    return table.role in _TIED and table.patch is not None and {"h", "w"} <= table.layout.axes


_TIED = frozenset({Role.RELATIVE, Role.DISTANCE})  # with a patch size, it follows the image


def _windows(steps: Sequence[Step]) -> tuple[Grid | None, Grid | None]:
    """Return the model's window before and after, which is the largest of all stages."""
    before, after = [], []
    for step in steps:
        reach = step.table.reach
        if reach is not None and reach.nominal is not None:
            before.append(reach.nominal)
            times = reach.multiple
            after.append(Grid(step.target.height // times, step.target.width // times))
    if not before:
        return None, None
    return _largest(before), _largest(after)


def _largest(windows: Sequence[Grid]) -> Grid:
    return Grid(max(w.height for w in windows), max(w.width for w in windows))


def as_pixels(size: Size) -> object:
    """Return a size as configs write it: one number if it is square, depth first in a volume."""
    if size.depth:
        return [size.depth, size.height, size.width]
    return size.height if size.height == size.width else [size.height, size.width]


def _new_size(value: object, transfer: Transfer) -> object:
    size = transfer.to_size
    assert size is not None
    if type(value) is int:
        return as_pixels(size)
    if isinstance(value, dict):
        return {**value, "height": size.height, "width": size.width}
    if isinstance(value, list) and as_size(value) is not None:
        if len(value) == 1:
            return [size.height] if size.height == size.width else [size.height, size.width]
        return [*value[:-2], size.height, size.width]
    return None


def _new_height(value: object, transfer: Transfer) -> object:  # noqa: ARG001
    return None if transfer.to_size is None else transfer.to_size.height


def _new_width(value: object, transfer: Transfer) -> object:  # noqa: ARG001
    return None if transfer.to_size is None else transfer.to_size.width


def _new_grid(value: object, transfer: Transfer) -> object:
    old, new = transfer.from_grid, transfer.to_grid
    assert old is not None and new is not None
    pairs = {old.height: new.height, old.width: new.width}
    if type(value) is int:
        if value in pairs and not new.is_square:
            raise GeometryError(
                f"a config states {value} patches per side as one number, which cannot state "
                f"{new}.",
                hint="choose a square target; or pass --no-config to convert the weights alone.",
            )
        return pairs.get(value)
    return [new.height, new.width] if value == [old.height, old.width] else None


def _new_per_cell(value: object, transfer: Transfer) -> object:
    """Return the new size of an image that has a whole number of pixels per cell."""
    old, new, size = transfer.from_grid, transfer.to_grid, as_size(value)
    if old is None or new is None or size is None:
        return None
    if size.height % old.height or size.width % old.width:
        return None
    tall, wide = size.height // old.height * new.height, size.width // old.width * new.width
    if isinstance(value, dict):
        return {**value, "height": tall, "width": wide}
    return tall if type(value) is int and tall == wide else [tall, wide]


def _new_cells(value: object, transfer: Transfer) -> object:
    assert transfer.from_grid is not None and transfer.to_grid is not None
    return transfer.to_grid.cells if value == transfer.from_grid.cells else None


def _new_tokens(value: object, transfer: Transfer) -> object:
    old, new = transfer.from_grid, transfer.to_grid
    if type(value) is not int or value < 1 or not transfer.counts or old is None or new is None:
        return None
    if transfer.tokens is not None:
        before, after = transfer.tokens
        known = {before: after, before + 1: after + 1, old.cells: new.cells}  # + 1: a class token
        return known.get(value)
    if old.cells % value and value % old.cells:
        return None
    if value * new.cells % old.cells:
        raise GeometryError(
            f"a config states {value} image tokens for {old} cells; at the same ratio, {new} cells "
            "do not give a whole number of tokens.",
            hint=f"choose a size whose grid is a multiple of {_pooled(old, value)} per side; or "
            "pass --no-config to convert the weights alone.",
        )
    return value * new.cells // old.cells


def _pooled(grid: Grid, tokens: int) -> int:
    return max(1, math.isqrt(grid.cells // tokens))


def _new_token_side(value: object, transfer: Transfer) -> object:
    """Return the new tokens per side, if the old number of tokens is a square."""
    if transfer.tokens is None or type(value) is not int:
        return None
    before, after = (math.isqrt(tokens) for tokens in transfer.tokens)
    return after if value == before and before**2 == transfer.tokens[0] else None


def _new_sides(value: object, transfer: Transfer) -> object:
    old, new = transfer.old_size, transfer.to_size
    if old is None or new is None or not isinstance(value, list) or new.height != new.width:
        return None
    return [new.height if side == old.height else side for side in value]


def _new_multiples(value: object, transfer: Transfer) -> object:
    """Scale a list of sizes; each may have channels before it."""
    old, new = transfer.old_size, transfer.to_size
    assert old is not None and new is not None
    if not isinstance(value, list):
        return None
    scaled = []
    for entry in value:
        whole = isinstance(entry, list) and len(entry) in (2, 3)
        if not whole or not all(type(part) is int for part in entry):
            return None
        *channels, height, width = entry
        if height % old.height or width % old.width:
            return None
        tall, wide = height // old.height, width // old.width
        scaled.append([*channels, tall * new.height, wide * new.width])
    return scaled


def _new_grid_height(value: object, transfer: Transfer) -> object:
    assert transfer.from_grid is not None and transfer.to_grid is not None
    return transfer.to_grid.height if value == transfer.from_grid.height else None


def _new_grid_width(value: object, transfer: Transfer) -> object:
    assert transfer.from_grid is not None and transfer.to_grid is not None
    return transfer.to_grid.width if value == transfer.from_grid.width else None


def _new_window(value: object, transfer: Transfer) -> object:
    old, new = transfer.from_window, transfer.to_window
    if old is None or new is None or value not in (old.height, [old.height, old.width]):
        return None
    square = new.is_square and type(value) is int
    return new.height if square else [new.height, new.width]


def _new_frames(value: object, transfer: Transfer) -> object:
    if transfer.frames is None or value != transfer.frames[0]:
        return None
    return transfer.frames[1]


_NEW_VALUES: Mapping[KeyKind, Callable[[object, Transfer], object]] = {
    KeyKind.SIZE: _new_size,
    KeyKind.HEIGHT: _new_height,
    KeyKind.WIDTH: _new_width,
    KeyKind.GRID: _new_grid,
    KeyKind.PER_CELL: _new_per_cell,
    KeyKind.CELLS: _new_cells,
    KeyKind.GRID_HEIGHT: _new_grid_height,
    KeyKind.GRID_WIDTH: _new_grid_width,
    KeyKind.TOKENS: _new_tokens,
    KeyKind.TOKEN_SIDE: _new_token_side,
    KeyKind.SIDES: _new_sides,
    KeyKind.MULTIPLES: _new_multiples,
    KeyKind.WINDOW: _new_window,
    KeyKind.FRAMES: _new_frames,
}


def new_value(kind: KeyKind, value: object, transfer: Transfer) -> Any:
    """Return the new value in the form of the old one; None if it does not state this table's."""
    return _NEW_VALUES[kind](value, transfer)


def config_files(located: Located) -> Iterable[str]:
    """Return the config files to read. Without a text table, tokenizer configs are not needed."""
    if any(table.role is Role.SEQUENCE for table in located.tables):
        return CONFIG_FILES
    return [name for name in CONFIG_FILES if name in _IMAGE_FILES or name not in _TEXT_FILES]
