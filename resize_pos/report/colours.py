"""Perceptually uniform colour maps: 256 colours each, interpolated between ten control points.

Brightness rises in equal steps in viridis and cividis, so they also work in grey and for
colour-blind readers. The control points are the published ones.
"""

from __future__ import annotations

from collections.abc import Iterable

from resize_pos.core.fast_dataclass import dataclass

Colour = tuple[int, int, int]

_COLOURS = 256


def _ramp(points: str) -> tuple[Colour, ...]:
    known = [bytes.fromhex(point) for point in points.split()]
    ramp = []
    for index in range(_COLOURS):
        at = index * (len(known) - 1) / (_COLOURS - 1)
        left = min(int(at), len(known) - 2)
        part = at - left
        channels = zip(known[left], known[left + 1], strict=True)
        red, green, blue = (round(a + (b - a) * part) for a, b in channels)
        ramp.append((red, green, blue))
    return tuple(ramp)


VIRIDIS = _ramp("440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6dcd59 b4de2c fde725")
CIVIDIS = _ramp("00204d 00306f 39486b 575c6d 707173 8a8779 a69d75 c4b56c e4cf5b ffea46")


@dataclass(frozen=True, slots=True)
class Scale:
    """Which numbers the two ends of a colour map stand for."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Iterable[float]) -> Scale:
        """Cover the given values; a single value gets a margin, so that the range is not empty."""
        found = [*values] or [0.0]
        low, high = min(found), max(found)
        room = 0.0 if high - low > 1e-6 * max(abs(low), abs(high)) else (abs(high) or 1.0) * 0.05
        return cls(low - room, high + room)

    def part(self, value: float) -> float:
        """Return the position of a value between the ends, 0 to 1."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def index(self, value: float) -> int:
        """Return the index of a value's colour."""
        return round(self.part(value) * (_COLOURS - 1))


COSINES = Scale(-1.0, 1.0)


def gradient(ramp: tuple[Colour, ...], stops: int = 10) -> str:
    """Return a colour map as the stops of a CSS gradient, for a legend."""
    chosen = [ramp[round(at * (len(ramp) - 1) / (stops - 1))] for at in range(stops)]
    return ", ".join(f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in chosen)
