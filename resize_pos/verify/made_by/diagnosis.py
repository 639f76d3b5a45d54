"""What explains a table that no honest method makes."""

from __future__ import annotations

from resize_pos.core.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A mistake that explains a table."""

    name: str
    detail: str
    error: float  # relative L2 distance of the recomputed mistake
    certain: bool
