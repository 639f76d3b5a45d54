"""What kind of table this is, and whether it was damaged, from its values alone.

The types do not need numpy; `examine`, which reads the values, does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from resize_pos.core.fast_dataclass import dataclass
from resize_pos.core.geometry import Grid
from resize_pos.families.family import Role
from resize_pos.families.tables import PositionTable, stored_frames, stored_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Measured on real tables: untrained ones have a participation of 0.97 – 1.00 and |z| < 4, learned
# ones 0.01 – 0.22 and z > 15; a low participation with a small z is a learned table whose rows are
# in the wrong order. A table of fixed sines and cosines has D/2 of energy in every row.
UNTRAINED_PARTICIPATION = 0.9
LEARNED_PARTICIPATION = 0.4
SMALL_Z = 4.0
FEWEST_CELLS = 64  # with fewer cells such values occur by chance, so nothing is judged
CLEAR_DIP = 6.0  # depth of the column where rows end, in deviations of the other columns
CLEAR_RISE = 0.3  # of similarity, at the distance at which rows repeat; shuffled ones have none
INSIDE_A_ROW = 4  # no botched resize makes an image that many times wider
SINCOS_VARIATION = 1e-3
CONSTANT_SHARE = 1e-4


class HealthKind(StrEnum):
    """What a table's values are."""

    ZERO = "zero"
    CONSTANT = "constant"
    UNTRAINED = "untrained"
    SHUFFLED = "shuffled"
    SINCOS = "sincos"
    LEARNED = "learned"
    SMALL = "too small to tell"


KIND_WORDS: Mapping[HealthKind, str] = {
    HealthKind.ZERO: "all zero: it holds no information",
    HealthKind.CONSTANT: "constant: every position has the same vector",
    HealthKind.UNTRAINED: "untrained: random numbers without spatial structure",
    HealthKind.SHUFFLED: "trained, but without spatial order: its rows may be shuffled",
    HealthKind.SINCOS: "fixed sines and cosines",
    HealthKind.LEARNED: "learned",
    HealthKind.SMALL: f"too small to tell: fewer than {FEWEST_CELLS} cells",
}
EMPTY = frozenset(
    {HealthKind.ZERO, HealthKind.CONSTANT, HealthKind.UNTRAINED}
)  # they contain nothing that a resize could preserve


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign of a wrong resize."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class Health:
    """What the values of one table say."""

    kind: HealthKind
    detail: str
    signs: tuple[Sign, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether the table contains nothing that a resize could preserve."""
        return self.kind in EMPTY


def examine(table: PositionTable, array: NDArray[Any]) -> Health:
    """Judge a stored table by its values alone."""
    from resize_pos.quality.measures.lone import measure_lone
    from resize_pos.quality.measures.sampling import in_range

    stored = stored_grid(table.role, table.grid)
    frames = stored_frames(table.role, table.frames)
    divisor, (array,) = in_range(array)
    parts = table.layout.unfold(array, table.prefix, stored, table.suffix, frames)
    numbers = measure_lone(parts.grid)
    if divisor != 1.0:  # sines and cosines need no scaling, so it is not such a table
        numbers = {**numbers, "row_energy": 0.0}
    kind = _kind(numbers)
    if divisor != 1.0:
        del numbers["row_energy"]
        numbers["mean_norm"] *= divisor
    signs = _signs(numbers, table.grid) if _has_order(table, kind) else ()
    detail = KIND_WORDS[kind]
    if table.fixed is not None:  # recognised by value when the table was located
        kind = HealthKind.SINCOS
        detail = f"{KIND_WORDS[kind]}, by the {table.fixed.formula} formula"
    return Health(kind, detail, signs, numbers)


def _has_order(table: PositionTable, kind: HealthKind) -> bool:
    return table.role is Role.ABSOLUTE and kind in (HealthKind.LEARNED, HealthKind.SINCOS)


def _kind(numbers: Mapping[str, float]) -> HealthKind:
    if numbers["mean_norm"] == 0:
        return HealthKind.ZERO
    if numbers["varying_share"] < CONSTANT_SHARE:
        return HealthKind.CONSTANT
    if numbers["norm_variation"] < SINCOS_VARIATION and abs(numbers["row_energy"] - 0.5) < 1e-3:
        return HealthKind.SINCOS
    if numbers["cells"] < FEWEST_CELLS or "participation" not in numbers:
        return HealthKind.SMALL
    small = abs(numbers["lag1_z"]) < SMALL_Z
    if numbers["participation"] > UNTRAINED_PARTICIPATION and small:
        return HealthKind.UNTRAINED
    disordered = abs(numbers["order_z"]) < SMALL_Z and not _repeats(numbers)
    if numbers["participation"] < LEARNED_PARTICIPATION and disordered:
        return HealthKind.SHUFFLED
    return HealthKind.LEARNED


def _repeats(numbers: Mapping[str, float]) -> bool:
    """Whether rows resemble those at another distance, as the columns of a line of text do."""
    return numbers.get("row_period_rise", 0.0) > CLEAR_RISE


def _signs(numbers: Mapping[str, float], grid: Grid) -> tuple[Sign, ...]:
    """Look for the traces of a wrong resize in a learned table."""
    found = [*_filled(numbers, grid), *_wrong_period(numbers, grid), *_shifted(numbers, grid)]
    return tuple(found)


def _filled(numbers: Mapping[str, float], grid: Grid) -> list[Sign]:
    found = []
    if numbers["zero_rows"]:
        count = int(numbers["zero_rows"])
        words = f"{count} of {grid.cells} positions are all zero: padded instead of resampled"
        found.append(Sign("truncated", words))
    if numbers["repeated_rows"] > 0.2:
        share = numbers["repeated_rows"]
        words = f"{share:.0%} of the rows repeat the one before: nearest neighbour, or padded"
        found.append(Sign("repeated", words))
    begins = numbers.get("rough_from", 1.0)
    if 0 < begins < 1 and numbers.get("smoothest_part", 0.0) > 0.4:
        words = f"the last {1 - begins:.0%} of the rows have no structure: not resampled"
        found.append(Sign("truncated", words))
    return found


def _wrong_period(numbers: Mapping[str, float], grid: Grid) -> list[Sign]:
    period = int(numbers.get("row_period", 0))
    rise, expected = numbers.get("row_period_rise", 0.0), numbers.get("row_period_rise_expected", 0)
    multiple = any(abs(period - n * grid.width) <= n for n in (1, 2, 3))
    # A period that fits several times into a row is inside of it: characters, or windows.
    inside = period > 0 and grid.width % period == 0 and grid.width >= INSIDE_A_ROW * period
    if rise < 0.15 or multiple or inside or rise < 2 * expected:
        return []
    if abs(period - grid.height) <= 1:
        words = (
            f"rows repeat every {period} positions, not every {grid.width}: height and width "
            "swapped, or resampled as a 1-D sequence"
        )
        return [Sign("swapped", words)]
    words = (
        f"rows repeat every {period} positions, not every {grid.width}: resampled as a 1-D "
        "sequence, or cut off"
    )
    return [Sign("1-D", words)]


def _shifted(numbers: Mapping[str, float], grid: Grid) -> list[Sign]:
    dip, expected = numbers.get("row_end_dip", 0.0), numbers.get("row_end_dip_expected", 0.0)
    column = int(numbers.get("row_end_column", grid.width - 1))
    if dip < 0.15 or column == grid.width - 1 or dip < 1.5 * max(expected, 0.0):
        return []
    if dip < CLEAR_DIP * numbers.get("row_end_spread", 1.0):
        return []  # several such columns: a rough table or windows, not the end of a row
    late = (column + 1) % grid.width
    late = late if late <= grid.width // 2 else late - grid.width
    words = (
        f"rows of the image end {abs(late)} cell{'s' if abs(late) > 1 else ''} "
        f"{'after' if late > 0 else 'before'} the rows of the grid: prefix rows in the wrong place"
    )
    return [Sign("shifted", words)]
