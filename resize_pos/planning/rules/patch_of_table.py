"""The patch size of one table: from flags, from kernels near it, from configs."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.geometry import Grid, Size
from resize_pos.core.tensors import TensorInfo
from resize_pos.families.family import Role
from resize_pos.families.patch_size import (
    Patch,
    chained_patch,
    find_patch,
    made_by_kernels,
    makes_the_rows,
    patch_kernels,
    read_patch,
    reads_features,
    reads_pixels,
    rows_by_width,
    sides_that_fit,
)
from resize_pos.planning.geometry.other_patches import is_usual, other_patches
from resize_pos.planning.rules.base import Match, Surroundings

_FEWEST_OVERLAPPING = 36  # rows; smaller numbers fit some step by chance
_MOST_OWN_ROWS = 8  # of tokens beside the cells
_MOST_AUDIO_TOKENS = 2
_COARSER = 4  # times fewer rows than cells of a kernel: two steps along each axis, or more


def patch_of(match: Match, around: Surroundings) -> Patch | None:
    """Return the patch size of a table: a flag, a kernel of the file, or a config states it."""
    stated = around.request.patch
    overlapping = _overlapping(match, around)
    if overlapping is not None:
        return overlapping
    found = _read_patch(match, around)
    for config in around.configs if match.family.window and stated is None else ():
        if config.step is not None:
            return Patch(config.step, f"{config.file} says one patch every {config.step}")
    if stated is not None and (found is None or found.kernel is not None):
        if found is not None and found.size != stated and around.request.from_size is None:
            raise GeometryError(
                f"--patch {stated}, but {found.reason}.",
                hint="drop --patch; for overlapping patches pass --from SIZE as well.",
            )
        same = found is not None and found.size == stated
        return found if found and same else Patch(stated, f"--patch {stated}")
    if found is not None:
        return found
    for config in around.configs:
        if config.patch is not None:
            return Patch(config.patch, f"{config.file} says patch {config.patch}")
    return None


def _overlapping(match: Match, around: Surroundings) -> Patch | None:
    """Derive the step between overlapping patches from `--from` and a stored number of cells."""
    size, grid = around.request.from_size, match.layout.grid(match.tensor.shape)
    window = read_patch(match.family.window, match.stem, around.tensors)
    if size is None or window is None or around.request.patch is not None:
        return None
    if grid is None:
        return _other_step(match, window.size, size, around)
    sides = (
        ("h", size.height, window.size.height, grid.height),
        ("w", size.width, window.size.width, grid.width),
    )
    steps = []
    for axis, pixels, seen, cells in sides:
        step = (
            seen if axis not in match.layout.axes or cells == 1 else (pixels - seen) // (cells - 1)
        )
        if axis in match.layout.axes and (step < 1 or (pixels - seen) // step + 1 != cells):
            return None
        steps.append(step)
    every = Size(*steps)
    return Patch(every, f"--from {size} over {grid} cells is one patch every {every}")


def _other_step(match: Match, seen: Size, size: Size, around: Surroundings) -> Patch | None:
    """Derive the only step that turns `--from` into flat rows, if a family's own does not."""
    rows, usual = _flat_rows(match), read_patch(match.family.patch, match.stem, around.tensors)
    if usual is None or size.depth or seen.height != seen.width or rows < _FEWEST_OVERLAPPING:
        return None
    own = range(_MOST_AUDIO_TOKENS + 1)
    steps = [n for n in range(1, seen.height + 1) if _rows_beside(seen, size, n, rows) in own]
    if len(steps) != 1 or steps[0] == usual.size.height:
        return None
    every = Size(steps[0], steps[0])
    return Patch(every, f"--from {size} and {rows} rows are one patch every {every}")


def overlapping_patch(
    match: Match, patch: Patch | None, around: Surroundings
) -> tuple[Patch, Patch] | None:
    """Return step and kernel of patches that overlap, if only they turn `--from` into the rows.

    For tables that the user names, or that were found by value: no family says how they are made.
    For others, `--patch` states the step.
    """
    size, rows, stated = around.request.from_size, _flat_rows(match), around.request.patch
    if size is None or size.depth or rows < _FEWEST_OVERLAPPING or match.family.window:
        return None
    seen = patch if stated is None else _read_patch(match, around)
    kernel = None if seen is None or seen.kernel is None else around.tensors[seen.kernel]
    if seen is None or kernel is None or len(kernel.shape) != 4:
        return None
    own = {0, *(each.count for each in (*match.prefixes, *match.suffixes))}
    if stated is not None:
        steps = [stated.height] if stated.height < seen.size.height else []
        own |= set(range(_MOST_OWN_ROWS + 1))
    else:
        unknown = match.family.name in ("custom", "by-value")
        steps = overlapping_steps(seen.size, size, rows, own) if unknown else []
    if not any(_rows_beside(seen.size, size, step, rows) in own for step in steps):
        return None
    every = Size(steps[0], steps[0])
    words = f"--from {size}, {kernel.name} of {seen.size} and {rows} rows are one patch every"
    return Patch(every, f"{words} {every}"), seen


def _flat_rows(match: Match) -> int:
    """Count the rows of a flattened grid; 0 for any other table."""
    flat = match.layout.grid(match.tensor.shape) is None and not match.layout.has_time
    return match.layout.rows(match.tensor.shape) if flat else 0


def overlapping_steps(
    seen: Size, size: Size, rows: int, own: Collection[int], *, usual: bool = False
) -> list[int]:
    """Return the only step between kernels of `seen` pixels that turns an image into these rows.

    None if kernels side by side do so. None either, unless `usual`, if they would do so for an
    image of a usual size: then the image is probably not the one that was stated.
    """
    if seen.height != seen.width or min(size.height, size.width) <= seen.height:
        return []
    sides = {math.isqrt(rows - count) for count in own if count < rows}
    if _rows_beside(seen, size, seen.height, rows) in own:
        return []
    likely = (side for side in sides if is_usual(Size(*[side * seen.height] * 2)))
    if not usual and any(rows - side**2 in own for side in likely):
        return []
    fits = [n for n in range(1, seen.height) if _rows_beside(seen, size, n, rows) in own]
    return fits if len(fits) == 1 else []


def _rows_beside(seen: Size, size: Size, step: int, rows: int) -> int:
    """Count the rows that are left if a kernel moves by `step` pixels over an image."""
    sides = ((size.height, seen.height), (size.width, seen.width))
    return rows - math.prod((pixels - sees) // step + 1 for pixels, sees in sides)


def require_usual_mel(
    match: Match, patch: Patch | None, window: Size | None, solved: Grid | None = None
) -> None:
    """Refuse a step that is only a family's default, if 128 mel bins would not give these rows.

    Flat rows were `solved`; they are refused if patches side by side would give 128 mel bins.
    """
    rows = solved or match.layout.grid(match.tensor.shape)
    if solved and window and solved.height * window.height != _USUAL_MEL:
        return
    if match.family.audio != "mel time" or rows is None or patch is None or window is None:
        return
    default = patch.kernel is None and patch.reason.startswith("one cell")
    usual = (_USUAL_MEL - window.height) // patch.size.height + 1
    if default and "h" in match.layout.axes and rows.height != usual:
        raise GeometryError(
            f"{match.tensor.name} has {rows.height} rows, which {_USUAL_MEL} mel bins at the usual "
            f"step of {patch.size.height} do not give; the step is not in the file.",
            hint="pass --from MELxTIME, the size of the spectrogram, for example --from 128x998.",
        )


_USUAL_MEL = 128


def _read_patch(match: Match, around: Surroundings) -> Patch | None:
    """Read the kernel that the family names, if it makes the table's rows; else look for one."""
    tensor, layout = match.tensor, match.layout
    found = read_patch(match.family.patch, match.stem, around.tensors)
    width = dict(zip(layout.terms, tensor.shape, strict=False)).get("d")
    if width is not None and found is not None and found.kernel is not None:
        kernel = around.tensors[found.kernel]
        tables = around.once("rows by width", lambda: rows_by_width(around.tensors.values()))
        made = around.once("made by kernels", lambda: made_by_kernels(around.tensors.values()))
        whole = makes_the_rows(kernel, layout.rows(tensor.shape), width, tables)
        if not whole or reads_features(kernel, made):
            found = None
    if found is not None and width is not None and _contradicted(found, match, width, around):
        found = None
    if found is None and width is not None and not match.family.window:
        kernels = around.once(
            ("patch kernels", width), lambda: patch_kernels(width, around.tensors.values())
        )
        found = find_patch(match.stem, kernels) or around.once(
            ("chained patch", width), lambda: chained_patch(width, around.tensors.values())
        )
        found = None if _is_first_step(found, match, around) else found
    found = None if _is_part_of_a_patch(found, around) else found
    found = _of_other_channels(found, match, around)
    both = {"h", "w"} <= layout.axes  # a table of rows or of columns alone counts no frames
    of_one_frame = "spatial" in tensor.name or match.family.one_frame
    flat = match.family.role is Role.ABSOLUTE and not of_one_frame and both
    framed = layout.has_time or "n" in layout.terms
    if found is not None and found.kernel is not None and flat and not framed:
        kernel = around.tensors[found.kernel]
        if len(kernel.shape) == 5:
            # A tube of frames is read by a kernel of another depth; a cube cuts up a volume.
            cube = len(set(kernel.shape[2:])) == 1
            which = "depth comes first, in SIZE as in the rows" if cube else "frames come first"
            flags = f"--pattern '^{re.escape(tensor.name)}$' --axes '{timed(layout)}' --from SIZE"
            raise GeometryError(
                f"{tensor.name}: {kernel} reads a volume or a video, so its rows also count "
                "depth or frames, and the layout of this table has no such axis.",
                hint=f"pass {flags}, if {which}.",
            )
    return found


def _contradicted(found: Patch, match: Match, width: int, around: Surroundings) -> bool:
    """Whether a number that a family states is not that of the kernel which makes the rows.

    The names are then those of another model.
    """
    if found.kernel is not None or match.family.window:
        return False
    kernels = around.once(
        ("patch kernels", width), lambda: patch_kernels(width, around.tensors.values())
    )
    return any(
        reads_pixels(info) and extent[1] != found.size and info.name not in found.reason
        for info, extent in kernels.values()
    )


def _is_part_of_a_patch(found: Patch | None, around: Surroundings) -> bool:
    """Whether a second kernel of the same module and width follows."""
    kernel = None if found is None or found.kernel is None else around.tensors[found.kernel]
    if found is None or kernel is None or len(kernel.shape) != 4:
        return False
    out, inputs = kernel.shape[:2]
    module = kernel.name.removesuffix(".weight").rpartition(".")[0]
    pairs = around.once("halving kernels", lambda: _halving_kernels(around))
    return bool(module) and (module, out) in pairs and inputs != out


def _halving_kernels(around: Surroundings) -> Collection[tuple[str, int]]:
    """List modules and widths of even kernels that read as many channels as they put out."""
    return {
        (info.name.removesuffix(".weight").rpartition(".")[0], info.shape[0])
        for info in around.tensors.values()
        if len(info.shape) == 4 and info.shape[0] == info.shape[1] and info.shape[2] % 2 == 0
    }


def _is_first_step(found: Patch | None, match: Match, around: Surroundings) -> bool:
    """Whether a kernel that was only found nearby is too small for the size that is stated."""
    size, rows = around.request.from_size, match.layout.rows(match.tensor.shape)
    kernel = None if found is None or found.kernel is None else around.tensors[found.kernel]
    if size is None or size.depth or found is None or kernel is None:
        return False
    patch = found.size
    if len(kernel.shape) == 2:  # the stages of a pyramid; or its pixels have other channels
        inputs = kernel.shape[0] if kernel.name.endswith("kernel") else kernel.shape[1]
        if not is_numbered(match.tensor.name) or sides_that_fit(inputs, size, rows):
            return False
    elif len(kernel.shape) != 4:
        return False
    cells = (size.height // patch.height) * (size.width // patch.width)
    return cells >= _COARSER * rows


def is_numbered(name: str) -> bool:
    """Whether a name ends in a number: pos_embeds.0, the first of several scales or stages."""
    return name.removesuffix(".weight")[-1:].isdecimal()


def _of_other_channels(found: Patch | None, match: Match, around: Surroundings) -> Patch | None:
    """Read a linear embedding of another number of channels, if only that fits --from."""
    size = around.request.from_size
    kernel = None if found is None or found.kernel is None else around.tensors[found.kernel]
    if size is None or size.depth or found is None or kernel is None:
        return found
    if len(kernel.shape) == 4:
        return _of_larger_cells(found, kernel, match, around, size)
    if len(kernel.shape) != 2:
        return found
    inputs = kernel.shape[0] if kernel.name.endswith("kernel") else kernel.shape[1]
    fits = sides_that_fit(inputs, size, match.layout.rows(match.tensor.shape))
    if len(fits) != 1 or fits[0][0] == found.size.height:
        return found
    side, channels = fits[0]
    pixels = f"{side}×{side} pixels of {channels} channels"
    words = f"{kernel.name} reads {pixels}, as --from {size} says"
    return Patch(Size(side, side), words, found.tube, found.kernel)


def _of_larger_cells(
    found: Patch, kernel: TensorInfo, match: Match, around: Surroundings, size: Size
) -> Patch:
    """Read a cell as larger than its kernel, if only that fits --from and the model allows it."""
    rows = match.layout.rows(match.tensor.shape)
    width = dict(zip(match.layout.terms, match.tensor.shape, strict=False)).get("d", 0)
    if _own_rows(rows, size, found.size.height):
        return found
    others = other_patches(kernel, found.size, width, around.tensors.values())
    fits = [other for other in others if _own_rows(rows, size, other.side)]
    if len(fits) != 1:
        return found
    every = Size(fits[0].side, fits[0].side)
    return Patch(every, f"{fits[0].words}, as --from {size} says", found.tube)


def _own_rows(rows: int, size: Size, side: int) -> bool:
    """Whether an image gives a table's cells, and leaves a few rows for tokens."""
    return 0 <= rows - (size.height // side) * (size.width // side) <= _MOST_OWN_ROWS


_FRAMES_OF = {"h w d": "n (p h w s) d", "1 h w d": "1 n (p h w s) d"}


def timed(layout: Layout) -> Layout:
    """Return the layout of the same table with frames: before the rows of cells, or as copies."""
    if "(p h" in layout.pattern:
        return Layout.parse(layout.pattern.replace(" h ", " t h "))
    return Layout.parse(_FRAMES_OF.get(layout.pattern, "1 (p t h w s) d"))
