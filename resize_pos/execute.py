"""Carry one planned step out on arrays, and measure what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resize_pos.families import Role
from resize_pos.measures import measure_grid, prefix_change
from resize_pos.tables import Step, stored_grid
from resize_pos.transforms.absolute import resize_absolute


def transform(step: Step, array: NDArray[Any], device: str = "cpu") -> NDArray[Any]:
    """Resize one table; relative ones are resampled in offset space."""
    table, operation = step.table, step.operation
    assert operation is not None
    return resize_absolute(
        array,
        table.layout,
        table.prefix,
        stored_grid(table.role, table.grid),
        table.suffix,
        stored_grid(table.role, step.target),
        operation.resampling,
        device,
    )


def measure(step: Step, before: NDArray[Any], after: NDArray[Any]) -> Mapping[str, float]:
    """Measure a resized table; relative tables have no grid whose artifacts we know yet."""
    table = step.table
    if table.role is Role.RELATIVE or step.operation is None:
        return {}
    old = table.layout.unfold(before, table.prefix, table.grid, table.suffix)
    new = table.layout.unfold(after, table.prefix, step.target, table.suffix)
    kept_before = np.concatenate([old.prefix, old.suffix], axis=1)
    kept_after = np.concatenate([new.prefix, new.suffix], axis=1)
    measures = dict(
        measure_grid(
            old.grid.astype(np.float64), new.grid.astype(np.float64), step.operation.resampling
        )
    )
    if kept_before.size:
        measures["prefix_change"] = prefix_change(kept_before, kept_after)
    return measures
