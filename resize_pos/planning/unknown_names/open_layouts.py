"""Refusals of tables under unknown names whose layout or grid is open."""

from __future__ import annotations

from collections.abc import Sequence

from resize_pos.core.axes import Layout
from resize_pos.core.errors import GeometryError
from resize_pos.core.lazy_regex import lazy_regex
from resize_pos.core.tensors import TensorInfo
from resize_pos.planning.geometry.coordinates import MOST_COORDINATES, coordinates
from resize_pos.planning.rules.base import Surroundings
from resize_pos.planning.unknown_names.candidates import TableCandidate
from resize_pos.planning.unknown_names.commands import command, either, from_flag, name_regex

_MOST_BYTES = 2**24  # of coordinates
_STEP_FLAG = lazy_regex(r"--patch \d+(?:x\d+)?")
_GRID_FLAGS = lazy_regex(r"--prefix \d+ --from-grid \d+x\d+")


def several_layouts(
    candidate: TableCandidate, readings: Sequence[Layout], around: Surroundings
) -> GeometryError:
    """Say that the shape of a tensor can be read in more than one way."""
    layouts = " or ".join(f"'{each}'" for each in readings)
    tensor = candidate.tensor
    flags = command(tensor, readings[0], around.tensors) + from_flag(around.request)
    return GeometryError(
        f"{candidate.tensor} may be a position table, but more than one of its axes is as long as "
        f"a width of this model ({layouts}), and its values do not tell.",
        hint=either(flags, tensor, around.tensors),
    )


def with_pattern(
    candidate: TableCandidate, error: GeometryError, around: Surroundings
) -> GeometryError:
    """Say that a table is one under an unknown name, and that its grid is open, too."""
    if error.hint is not None and ("--pattern" in error.hint or "drop --from" in error.hint):
        return error
    flags = command(candidate.tensor, candidate.layouts[0], around.tensors)
    shown = _GRID_FLAGS.search(error.hint or "")  # what the values support
    flags += f" {shown[0]}" if shown else from_flag(around.request)
    step = _STEP_FLAG.search(error.hint or "")  # with which the stated size fits
    flags += f" {step[0]}" if step else ""
    return GeometryError(
        f"{error.message.rstrip('.')}; no family knows its name.",
        hint=either(flags, candidate.tensor, around.tensors),
    )


def coordinates_in(tensor: TensorInfo, around: Surroundings) -> GeometryError | None:
    """Refuse to resample coordinates of cells: the code computes them from the size."""
    shape = tuple(length for length in tensor.shape if length > 1)
    few = len(shape) > 1 and min(shape[0], shape[-1]) <= MOST_COORDINATES
    if not few or around.read is None or tensor.nbytes > _MOST_BYTES:
        return None
    reason = coordinates(around.read(tensor.name), shape)
    if not reason:
        return None
    leave = f"--leave '{name_regex(tensor.name, around.tensors)}'"
    return GeometryError(
        f"{tensor} {reason}; no family explains it.",
        hint=f"convert it with its own library, or pass {leave} if it does not depend on the "
        "resolution.",
    )
