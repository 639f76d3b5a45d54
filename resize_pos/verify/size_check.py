"""Does a checkpoint fit a size, or a config? Answered from headers; numpy is not needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from resize_pos.configs.read import ConfigSize
from resize_pos.core.errors import ContainerError, GeometryError
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Size
from resize_pos.core.request import Request
from resize_pos.families.tables import Located, Step
from resize_pos.planning.plan import make_plan


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer, in one line."""

    fits: bool
    detail: str


def fit(located: Located, request: Request, inputs: Mapping[str, Size] | None = None) -> Fit:
    """Plan the transfer to that size: a checkpoint that fits needs no step.

    `inputs` are the sizes of images to which an exported graph is fixed.
    """
    wanted = request.to_size if request.to_size is not None else request.to_grid
    try:
        plan = make_plan(located, request)
    except GeometryError as error:
        if located.unsettled:
            raise
        return Fit(False, f"does not fit {wanted}: {error.message}")
    for step in plan.changes:
        table = step.table
        own = f"{table.grid}"
        if table.pixels is not None:
            own += f" ({table.pixels} px at patch {table.tiling})"
        return Fit(False, f"does not fit {wanted}: {table.name} is {own}, not {step.target}")
    if inputs and request.to_size is not None and request.to_size not in inputs.values():
        name, size = next(iter(inputs.items()))
        return Fit(False, f"does not fit {wanted}: {name} is fixed to {size} px")
    if not plan.steps:
        return Fit(True, f"fits {wanted}: nothing in it depends on the resolution")
    names = ", ".join(f"{step.table.name} {_extent(step, request)}" for step in plan.steps[:3])
    more = f" and {len(plan.steps) - 3} more" if len(plan.steps) > 3 else ""
    return Fit(True, f"fits {wanted}: {names}{more}")


def _extent(step: Step, request: Request) -> str:
    """Return the grid, and whether the patch convolution drops a part of the image."""
    size, tiling = request.to_size, step.table.tiling
    if size is None or tiling is None or tiling.window is not None or tiling.divides(size):
        return str(step.target)
    return f"{step.target} ({tiling.pixels(step.target)} px; the rest is dropped)"


def fit_config(located: Located, request: Request, stated: Sequence[ConfigSize], where: str) -> Fit:
    """Compare a checkpoint with every image and patch size that a config states."""
    if not stated:
        raise ContainerError(
            f"{where}: no config there states an image size.",
            hint="name a folder with a config.json or open_clip_config.json; or pass --size.",
        )
    answers = []
    for entry in stated:
        source = f"{entry.file} ({entry.key} {entry.size})"
        for table in located.tables:
            if entry.patch is not None and table.patch not in (None, entry.patch):
                detail = f"{table.name} has patch {table.patch}, not {entry.patch}"
                return Fit(False, f"does not fit {source}: {detail}")
        answer = fit(located, replace(request, to_size=entry.size, to_grid=None))
        if not answer.fits:
            return Fit(False, f"{answer.detail}, as {source} states")
        answers.append(source)
    return Fit(True, f"fits {', '.join(answers)}")
