"""Take every measure of one resized table, whatever its role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.containers.base import Container
from resize_pos.core.axes import Unfolded
from resize_pos.core.conventions import DEFAULT, OffsetResampling, Resampling
from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.operations import Resample, ResampleKernel, ScaleQueries, SetLength
from resize_pos.core.tensors import TensorInfo, numpy_dtype
from resize_pos.families.family import Role
from resize_pos.families.tables import Step, stored_frames, stored_grid
from resize_pos.quality.measures import energy, loss, place, spectrum
from resize_pos.quality.measures.attention import Rows, find_keys, measure_attention, read_weights
from resize_pos.quality.measures.catalogue import Measured
from resize_pos.quality.measures.likeness import likeness
from resize_pos.quality.measures.relative import measure_relative
from resize_pos.quality.measures.sampling import in_range, spread
from resize_pos.transforms.absolute import resize_frames
from resize_pos.transforms.relative import mirrored

_LARGE = 1 << 20  # numbers in a table of which not all channels are measured,
_MEASURED = 1 << 18  # but about this many numbers


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The checkpoint around a table, for measures that need more than the table."""

    tensors: Mapping[str, TensorInfo]
    rows: Rows  # reads a few rows of a tensor

    @classmethod
    def of(cls, container: Container) -> Neighbours:
        """Look at an opened checkpoint."""

        def rows(name: str, start: int, count: int) -> NDArray[Any]:
            info = container.tensors[name]
            row = info.nbytes // info.shape[0]
            data = container.peek(name, start * row, count * row)
            stored = numpy_dtype(info.dtype).newbyteorder("<")
            return np.frombuffer(data, stored).reshape(count, *info.shape[1:])

        return cls(container.tensors, rows)


def measure_table(
    step: Step,
    before: NDArray[Any],
    after: NDArray[Any],
    around: Neighbours | None,
    resampling: Resampling | None,
) -> Measured:
    """Measure a table before and after; `resampling` is what made it, None if nobody knows."""
    _, (before, after) = in_range(before, after)
    old, new = unfold(step, before, after)
    chosen = _measured_channels(new.grid)
    source, target = (grid[..., chosen].astype(np.float64) for grid in (old.grid, new.grid))
    if step.table.role in (Role.RELATIVE, Role.DISTANCE):
        if step.table.role is Role.DISTANCE:
            source, target = mirrored(source), mirrored(target)
        if step.frames != step.table.frames:  # compare the windows at offset zero in depth
            source, target = (each[len(each) // 2 :][:1] for each in (source, target))
        own = getattr(step.operation, "resampling", None)
        return Measured(
            measure_relative(source, target, own if isinstance(own, OffsetResampling) else None)
        )
    if isinstance(step.operation, ResampleKernel | SetLength | ScaleQueries):
        return Measured({})  # rows of these tables are not places in an image
    if step.frames != step.table.frames:
        # A new frame has no source grid of its own; it is compared with the resampled film.
        how = resampling or DEFAULT.resampling
        source = resize_frames(source, step.table.frames, step.frames, how)
    measured = measure_grid(source, target, resampling)
    values = dict(measured.values)
    if isinstance(step.operation, Resample) and step.operation.restore_norms:
        # These compare the result with plain interpolation, so they would measure the rescaling.
        values = {name: value for name, value in values.items() if not name.startswith("rounding")}
    if old.prefix.size and new.prefix.size:
        values["prefix_to_grid_before"] = energy.prefix_to_grid(old.prefix[..., chosen], source)
        values["prefix_to_grid_after"] = energy.prefix_to_grid(new.prefix[..., chosen], target)
    kept_before = np.concatenate([old.prefix, old.suffix], axis=1)
    kept_after = np.concatenate([new.prefix, new.suffix], axis=1)
    if kept_before.size and kept_before.shape == kept_after.shape:
        values["prefix_change"] = energy.prefix_change(kept_before, kept_after)
    if around is not None and step.table.role is Role.ABSOLUTE and source.shape[0] == 1:
        keys = find_keys(step.table.name, around.tensors, old.grid.shape[-1])
        if keys is not None:
            weights = read_weights(keys, around.tensors, around.rows)
            values |= {} if weights is None else measure_attention(old.grid, new.grid, weights)
    return Measured(values, measured.peers)


def _measured_channels(grid: NDArray[Any]) -> slice | NDArray[np.intp]:
    """Return all channels, or a sample of a very large table's, which gives similar results."""
    channels = grid.shape[-1]
    if grid.size <= _LARGE:
        return slice(None)
    return spread(channels, max(16, _MEASURED * channels // grid.size))


def measure_grid(
    source: NDArray[np.float64], target: NDArray[np.float64], resampling: Resampling | None
) -> Measured:
    """Measure two grids (copies, h, w, d); without a resampling, skip measures that need it."""
    values = {
        **energy.norm_ratios(source, target),
        **energy.channel_drift(source, target),
        **energy.overshoot(source, target),
        **likeness(source, target),
        **place.neighbour_cosines(source, target),
        **place.places(source, target),
        **place.structure(source, target),
        **spectrum.frequencies(source, target, resampling),
        **spectrum.window_period(source),
    }
    others = loss.peers(source, target)
    if resampling is not None:
        grids = loss.grid_of(source), loss.grid_of(target)
        values |= loss.round_trips(source, target, resampling)
        values |= loss.clamped(*grids, resampling)
        values |= loss.rounding(source, target, resampling, others)
    return Measured(values, others)


def unfold(step: Step, before: NDArray[Any], after: NDArray[Any]) -> tuple[Unfolded, Unfolded]:
    """Take a table apart, before and after a step."""
    table = step.table
    source = stored_grid(table.role, table.grid)
    target = stored_grid(table.role, step.target)
    frames = [stored_frames(table.role, count) for count in (table.frames, step.frames)]
    return (
        table.layout.unfold(before, table.prefix, source, table.suffix, frames[0]),
        table.layout.unfold(after, table.prefix, target, table.suffix, frames[1]),
    )


def resampling_of(step: Step) -> Resampling | None:
    """Return the linear operator of a step; None where its values are not resampled by one."""
    resampling = getattr(step.operation, "resampling", None)
    return resampling if isinstance(resampling, Resampling) else None
