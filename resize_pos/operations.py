"""What is done to a table's values, as data: a plan names it, `execute.py` carries it out.

Free of numpy, like every value that a plan holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from resize_pos.conventions import Resampling


@dataclass(frozen=True, slots=True)
class Resample:
    """Interpolate the stored grid, one linear operator per axis."""

    resampling: Resampling

    def __str__(self) -> str:
        return str(self.resampling)


Operation = Resample
