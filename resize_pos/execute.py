"""Carry one planned step out on arrays."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

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
