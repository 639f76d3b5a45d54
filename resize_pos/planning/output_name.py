"""The default name of an output."""

from __future__ import annotations

from pathlib import Path

from resize_pos.containers.detect import split_suffix
from resize_pos.core.geometry import Size
from resize_pos.planning.plan import IMAGE_ROLES, Plan


def default_output(source: Path, plan: Plan, suffix: str | None = None, *, tag: str = "") -> Path:
    """Return `NAME-384.suffix` beside the source, or a name with the grid if pixels are unknown.

    An empty `suffix` means a folder; None means the suffix of the source.
    """
    request = plan.request
    size, grid, window = request.to_size or plan.to_size, request.to_grid, request.to_window
    tags = []
    if request.to_image:
        by_grid = f"grid{grid.height}x{grid.width}" if grid is not None else ""
        tags.append(by_grid if size is None else str(size))
    if window is not None:
        tags.append(f"window{Size(window.height, window.width, window.depth)}")
    more = {"patch": request.to_patch, "frames": request.to_frames, "rows": request.to_rows}
    tags += [f"{word}{value}" for word, value in more.items() if value is not None]
    if request.to_length is not None:
        mixed = any(step.table.role in IMAGE_ROLES for step in plan.steps)
        tags.append(f"length{request.to_length}" if mixed else str(request.to_length))
    stem, own = split_suffix(source)
    name = source.name if suffix == "" else stem
    words = [name, *tags, *([tag] if tag else [])]
    return source.with_name("-".join(words) + (own if suffix is None else suffix))
